"""Images in a Docker Engine: look at them, build them, import them. The thin shell under `bench_worker.images`."""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors
import docker.utils
import requests

from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_worker.engines.docker_builds import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

REGISTRY_LIMIT_S: Final = 5
"""How long a registry may take to say that it has an image; behind a firewall it never does."""
_BUILD_LIMIT_S: Final = 600
"""How long a build may be silent."""
_LAST_LINES: Final = 15
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """An image that is there: its id (``sha256:...``), labels and size in bytes."""

    identity: str
    labels: Mapping[str, str]
    size_bytes: int


class DockerImages:
    """The images of the Docker Engine that the environment names (``DOCKER_HOST`` or the local socket)."""

    def __init__(self) -> None:
        try:
            self._client = docker.APIClient(**docker.utils.kwargs_from_env(), version="auto", timeout=10)
            self.version = str(self._client.version()["Version"])
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise EngineUnavailable(
                f"no Docker Engine answers: {error}; start one with `script/docker-engine start`, or name one in "
                "DOCKER_HOST"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def inspect(self, image: str) -> ImageFacts | None:
        """Return the facts of a local image; None where there is none."""
        try:
            facts: dict[str, Any] = self._client.inspect_image(image)  # type: ignore[no-untyped-call]
        except docker.errors.ImageNotFound:
            return None
        labels = (facts.get("Config") or {}).get("Labels") or {}
        return ImageFacts(facts["Id"], labels, int(facts["Size"]))

    def obtainable(self, image: str) -> str | None:
        """Say where `image` is to be had without being made: ``local``, ``registry`` or not (None), in 5 s."""
        if self.inspect(image):
            return "local"
        impatient = docker.APIClient(
            **docker.utils.kwargs_from_env(), version=self._client.api_version, timeout=REGISTRY_LIMIT_S
        )
        try:
            impatient.inspect_distribution(image)  # type: ignore[no-untyped-call]
        except (docker.errors.DockerException, requests.RequestException):
            return None
        finally:
            impatient.close()
        return "registry"

    def build(
        self,
        folder: Path,
        image: str,
        *,
        labels: Mapping[str, str],
        arguments: Mapping[str, str],
        progress: Callable[[str], None],
    ) -> None:
        """Build `folder`'s Dockerfile with the host's network; raise `InfrastructureError` with what it said last."""
        self._client.timeout = _BUILD_LIMIT_S
        self._follow(
            image,
            lambda: self._client.build(
                path=str(folder),
                tag=image,
                labels=dict(labels),
                buildargs=dict(arguments),
                network_mode="host",
                rm=True,
                forcerm=True,
                nocache=True,
                decode=True,
            ),
            progress,
        )

    def import_tarball(
        self, tarball: Path, image: str, *, labels: Mapping[str, str], progress: Callable[[str], None]
    ) -> None:
        """Make an image of one layer from a root file system."""
        self._client.timeout = _BUILD_LIMIT_S
        changes = ['CMD ["bash"]', *(f"LABEL {key}={json.dumps(value)}" for key, value in labels.items())]
        self._follow(
            image,
            lambda: self._import(tarball, image, changes),
            progress,
        )

    def discard(self, identity: str) -> None:
        """Remove an image that a newer one of its name has replaced, unless a container or an image still uses it."""
        with contextlib.suppress(docker.errors.APIError):
            self._client.remove_image(identity)

    def _import(self, tarball: Path, image: str, changes: list[str]) -> Iterable[dict[str, Any]]:
        said = self._client.import_image(src=str(tarball), repository=image, tag="latest", changes=changes)
        return [json.loads(line) for line in said.splitlines() if line.strip()]

    def _follow(
        self, image: str, start: Callable[[], Iterable[dict[str, Any]]], progress: Callable[[str], None]
    ) -> None:
        """Hand on what the engine says while it works, and raise what it complains about."""
        last: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            for message in start():
                said = _COLOUR.sub("", str(message.get("stream") or message.get("status") or ""))
                for part in said.rstrip().splitlines():
                    last.append(part)
                    progress(part)
                if "error" in message:
                    reason = "\n".join([reason_of(str(message["error"]), last), "last lines:", *last])
                    raise InfrastructureError(f"{image} cannot be built: {reason}")
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise InfrastructureError(f"{image} cannot be built: {error}") from error
