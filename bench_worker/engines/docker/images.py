"""Images in a Docker Engine: look them up, build and import them, pull them, and remove one before it is pulled.

docker-py does it all but the pull, which is timed. A removal is never forced: an image that has another name, that
containers or other images are made from, or that no registry could give again, stays, and the operation fails.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.auth
import docker.errors
import docker.utils

from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_common.safe_text import shorten
from bench_worker.engines.docker.client import bounded_client
from bench_worker.engines.docker.context import endpoint
from bench_worker.engines.docker.errors import call_errors, failure_kind, operation_failed
from bench_worker.engines.docker.http import DockerApiError, environment_settings
from bench_worker.engines.docker.probe import failed_status
from bench_worker.engines.output import ERROR_CHARS
from bench_worker.engines.results import PULL_KIND_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.docker.http import TimedRequest

_STEP: Final = re.compile(r"The command '.*' returned a non-zero code: (\d+)", re.DOTALL)
_NO_IMAGE: Final = re.compile(
    r"dial tcp|no such host|TLS handshake|i/o timeout|request canceled|access denied|manifest .*unknown|not found:",
    re.IGNORECASE,
)
_BUILDERS_OWN: Final = re.compile(r"Removing intermediate container| *---> |Step \d+/\d+ : ")
_ERROR_LINE: Final = re.compile(
    r"^E: |\berror\b|\bno (?:such )?package|\bno command\b|not found|unable to", re.IGNORECASE
)


def build_failure_reason(error: str, output: Iterable[str]) -> str:
    """Return why a build ended with this error of Docker's; `output` are the last lines before it."""
    failed = _STEP.fullmatch(error.strip())
    if failed is None:
        if _NO_IMAGE.search(error):
            return f"the base image of its Dockerfile is not on this host and cannot be pulled: {error.strip()}"
        return error.strip()
    own = [line.strip() for line in output if line.strip() and not _BUILDERS_OWN.match(line)]
    telling = [line for line in own if _ERROR_LINE.search(line)]
    words = (telling or own)[-1:]
    return f"a build step failed with exit code {failed[1]}" + (f": {words[0]}" if words else "")


REGISTRY_LIMIT_S: Final = 5
"""How long a registry may take to say that it has an image; behind a firewall it never does."""
_BUILD_LIMIT_S: Final = 600
"""How long a build may be silent."""
_LAST_LINES: Final = 15
_ANSI_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class DockerImageInfo:
    """An image in the engine's store."""

    identity: str
    """Its id, ``sha256:...``."""
    labels: Mapping[str, str]
    size_bytes: int


class DockerImages:
    """The images of the Docker Engine that the environment names (see `context.endpoint`)."""

    def __init__(self) -> None:
        try:
            self._client = bounded_client(**environment_settings(), version="auto", timeout=10)
            self.version = str(self._client.version()["Version"])
        except call_errors() as error:
            status = failed_status("docker", endpoint(), error)
            raise EngineUnavailable(f"{status.reason}; {status.advice}") from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def inspect(self, image: str) -> DockerImageInfo | None:
        """Return the facts of a local image; None where there is none."""
        try:
            facts: dict[str, Any] = self._client.inspect_image(image)  # type: ignore[no-untyped-call]
        except docker.errors.ImageNotFound:
            return None
        labels = (facts.get("Config") or {}).get("Labels") or {}
        return DockerImageInfo(facts["Id"], labels, int(facts["Size"]))

    def find_source(self, image: str) -> str | None:
        """Say where `image` is available without being made: ``local``, ``registry`` or not (None), in 5 s."""
        if self.inspect(image):
            return "local"
        quick = bounded_client(**environment_settings(), version=self._client.api_version, timeout=REGISTRY_LIMIT_S)
        try:
            quick.inspect_distribution(image)  # type: ignore[no-untyped-call]
        except call_errors():
            return None
        finally:
            quick.close()
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
        """Build `folder`'s Dockerfile with the host's network; raise `InfrastructureError` with its last lines."""
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
        output = self._client.import_image(src=str(tarball), repository=image, tag="latest", changes=changes)
        return [json.loads(line) for line in output.splitlines() if line.strip()]

    def _follow(
        self, image: str, start: Callable[[], Iterable[dict[str, Any]]], progress: Callable[[str], None]
    ) -> None:
        """Report the engine's output while it works; raise `InfrastructureError` with its error."""
        last: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            for message in start():
                text = _ANSI_COLOUR.sub("", str(message.get("stream") or message.get("status") or ""))
                for part in text.rstrip().splitlines():
                    last.append(part)
                    progress(part)
                if "error" in message:
                    reason = "\n".join([build_failure_reason(str(message["error"]), last), "last lines:", *last])
                    raise InfrastructureError(f"{image} cannot be built: {reason}")
        except call_errors() as error:
            raise InfrastructureError(f"{image} cannot be built: {error}") from error


_IMAGE_VANISHED: Final = "image not known"
"""What Podman says, with HTTP status 500, when somebody removes an image while it lists them."""
_SEVERAL_NAMES: Final = "with more than one tag"
_ATTEMPTS: Final = 10


def list_images(client: docker.APIClient, **which: Any) -> list[dict[str, Any]]:
    """Return the images, as docker-py's `images` does with the same words; raise `docker.errors.APIError`.

    An engine that fails because an image has just been removed is asked again.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return list(client.images(**which))
        except docker.errors.APIError as error:
            if _IMAGE_VANISHED not in str(error.explanation):
                raise
    return list(client.images(**which))


def require_image(settings: ContainerSettings, timed: TimedRequest) -> str:
    """Return the image that the settings name; raise the failure ``refused`` where they name none."""
    if not settings.image:
        raise operation_failed("refused", "there is no image to pull", timed)
    return settings.image


def pull_image(client: docker.APIClient, image: str, timed: TimedRequest) -> None:
    """Pull an image, as ``docker pull`` does; raise the failure that the engine's words mean.

    docker-py's `pull` has no timeout and no stamps; the credentials of `docker login` are as it finds them.
    """
    name, tag = docker.utils.parse_repository_tag(image)
    registry, _ = docker.auth.resolve_repository_name(name)
    login = docker.auth.get_config_header(client, registry)
    headers = {"X-Registry-Auth": login.decode("ascii")} if login else {}
    try:
        with timed.stream("POST", "images", "create", headers=headers, fromImage=name, tag=tag or "latest") as answer:
            error = next((line["error"] for line in map(json.loads, answer) if "error" in line), "")
    except DockerApiError as refusal:
        error = refusal
    if error:
        raise operation_failed(pull_failure_kind(str(error)), str(error), timed)


def pull_failure_kind(text: str) -> str:
    """Return the kind of failure that an engine's words of a pull mean; of many, the first and the last count."""
    text = shorten(text, ERROR_CHARS)
    return next((kind for kind, pattern in PULL_KIND_PATTERNS if pattern.search(text)), failure_kind(None, text))


def remove_image(client: docker.APIClient, image: str, timed: TimedRequest) -> None:
    """Remove an image by its name, so that all of it has to be fetched; one that is not there is no error.

    The registry has to show first that it can bring it back, by a pull that finds everything there. Raises the
    failure ``refused`` where somebody would miss the image, ``conflict`` where a container is made from it, and
    the pull's own failure.
    """
    facts = _image_facts(client, image)
    if facts is None:
        return
    reason = removal_objection(image, facts, list_images(client, all=True))
    if reason:
        raise operation_failed("refused", f"image {image} is not removed for a fresh pull: {reason}", timed)
    pull_image(client, image, timed)
    facts = _image_facts(client, image) or facts
    _remove_all_names(client, facts)
    if _image_facts(client, image) is not None or _image_facts(client, facts["Id"]) is not None:
        text = f"image {image} is still there after its removal, so a pull would not fetch it"
        raise operation_failed("conflict", text, timed)


def _remove_all_names(client: docker.APIClient, facts: Mapping[str, Any]) -> None:
    """Remove an image by its id: a tag and a digest are two names, and the one that is left would keep it."""
    try:
        client.remove_image(facts["Id"], force=False)
    except docker.errors.APIError as error:
        if _SEVERAL_NAMES not in str(error.explanation):
            raise
        # Podman takes no id then. A container would lose the name of its image before it is refused.
        if client.containers(all=True, filters={"ancestor": facts["Id"]}):
            raise
        for name in (facts.get("RepoTags") or [])[:1]:
            client.remove_image(name, force=False)
        if _image_facts(client, facts["Id"]) is not None:
            client.remove_image(facts["Id"], force=False)


def _image_facts(client: docker.APIClient, image: str) -> dict[str, Any] | None:
    """Return what the engine tells of an image; None where it has none of this name."""
    try:
        facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
    except docker.errors.NotFound:
        return None
    return facts


def removal_objection(image: str, facts: Mapping[str, Any], images: Iterable[Mapping[str, Any]]) -> str:
    """Return why `image` must stay, from its own facts and the list of all images; nothing where it may go."""
    names = facts.get("RepoTags") or []
    # A reference by digest may stand beside any tag; only one that it has itself is its own.
    others = [name for name in names if name != image.partition("@")[0]] if "@" in image else names[1:]
    if others:
        return f"it has other names: {', '.join(map(str, names))}"
    if not facts.get("RepoDigests"):
        return "it was not pulled from a registry, so it could not be pulled again"
    if any(one.get("ParentId") == facts["Id"] for one in images):
        return "other images are built on it"
    return ""
