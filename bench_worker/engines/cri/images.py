"""A CRI runtime's socket, and the images in its own store: pulled by it, or imported where it is a containerd."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from gevent.lock import RLock

from bench_common.requirements import (
    CAPABILITIES_WITHHELD,
    GRACE_STEP,
    NETWORK_CHOICE,
    SERVICES_NETWORK,
    UNNAMED_VOLUMES,
)
from bench_worker.engines import daemon_processes
from bench_worker.engines.base import HOST, PROBE_S, ImageUnavailable, OperationFailed, unavailable_advice
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.images import import_archive, qualified_name
from bench_worker.engines.cri import messages_pb2 as messages
from bench_worker.engines.grpc import CallSequence, GrpcChannel
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.images import docker_client
from bench_worker.engines.results import PULL_KIND_PATTERNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench_worker.engines.base import Engine, EngineStatus, OperationResult

PACKAGE: Final = "runtime.v1"
VARIABLE: Final = "CONTAINER_RUNTIME_ENDPOINT"
"""The variable of ``crictl`` and of the kubelet's tools."""

_IMAGES: Final = "ImageService/"
_ANSWER_S: Final = 30.0
_FETCH_S: Final = 300.0
_FOLLOWS_S: Final = 5.0
_POLL_S: Final = 0.02
_NAMESPACE: Final = "k8s.io"
"""Where containerd's CRI plugin keeps its images and containers."""
_SOCKETS: Final = ("/run/crio/crio.sock", "/run/containerd/containerd.sock", "/run/cri-dockerd.sock")
_ADVICE: Final = (
    "start CRI-O, or containerd with its CRI plugin (take `cri` out of disabled_plugins in its config.toml), "
    "or set CONTAINER_RUNTIME_ENDPOINT to the socket"
)


class CriImages:
    """The images that one engine has used. Each is fetched by the first that needs it, while the others wait."""

    def __init__(self, channel: GrpcChannel, folder: Path) -> None:
        self._channel = channel
        self._folder = folder
        self._known_images: set[str] = set()
        self._lock = RLock()

    def get(self, image: str | None) -> str:
        """Return `image` when the CRI has it; raise `ImageUnavailable` and `OperationFailed`."""
        if image is None:
            raise ImageUnavailable("refused", "an `image` is needed to make a container from")
        with self._lock:
            if image not in self._known_images:
                self._fetch(image)
                self._known_images.add(image)
        return image

    def digest(self, image: str | None) -> str:
        """Return the id of an image, the digest of its configuration; empty where the CRI does not have it."""
        return self._status(image).id.rpartition(":")[2] if image else ""

    def pull(self, image: str | None, *, fresh: bool, timeout_s: float) -> OperationResult:
        """Pull an image from its registry; raise `ImageUnavailable` and `OperationFailed`.

        With `fresh` the present one is removed before, untimed, once a pull shows that the registry can bring it
        back, and where nothing else needs it.
        """
        if not image:
            raise ImageUnavailable("refused", "there is no image to pull")
        if fresh:
            present = self._status(image)
            if present.id:
                self._check_unused(image, present)
                self._pull(image, timeout_s)
                self._calls(timeout_s).do(f"{_IMAGES}RemoveImage", _request(image))
                if self._status(image).id or self._status(present.id).id:
                    text = f"image {image} is still there after its removal, so a pull would not fetch it"
                    raise ImageUnavailable("conflict", text)
        return self._pull(image, timeout_s)

    def _calls(self, timeout_s: float) -> CallSequence:
        return CallSequence(self._channel, timeout_s)

    def _check_unused(self, image: str, present: messages.Image) -> None:
        """Raise `ImageUnavailable` where something needs an image: the CRI removes it with all of its names."""
        names = present.repo_tags
        if len(names) > 1:
            others = ", ".join(names)
            raise ImageUnavailable("refused", f"image {image} is not removed to pull it fresh: it is also {others}")
        known = {present.id, *present.repo_digests}
        listed = self._calls(_ANSWER_S).call(
            "RuntimeService/ListContainers", messages.ListContainersRequest(), messages.ListContainersResponse
        )
        if any(container.image_ref in known for container in listed.containers):
            raise ImageUnavailable("conflict", f"image {image} is not removed: a container is made from it")

    def _fetch(self, image: str) -> None:
        present = self._status(image).id
        try:
            with docker_client(f"image {image}") as client:
                facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
                if facts["Id"] == present:
                    return
                self._import(image, client.get_image(image), facts, present)
        except (ImageUnavailable, OperationFailed) as failure:
            if not present:
                self._pull_instead(image, failure)

    def config(self, image: str) -> Mapping[str, Any] | None:
        """Return an image's ``Config``; None where the CRI does not tell it: not every one does."""
        with suppress(ValueError, AttributeError, KeyError):
            return dict(json.loads(self._ask(image).info["info"])["imageSpec"].get("config") or {})
        return None

    def _status(self, image: str) -> messages.Image:
        """Return what the CRI has of an image; an empty message where it has none."""
        return self._ask(image).image

    def _ask(self, image: str) -> messages.ImageStatusResponse:
        request = messages.ImageStatusRequest(image=messages.ImageSpec(image=image), verbose=True)
        return self._calls(_ANSWER_S).call(f"{_IMAGES}ImageStatus", request, messages.ImageStatusResponse)

    def _import(self, image: str, chunks: Iterator[bytes], facts: Mapping[str, Any], present: str) -> None:
        api = ContainerdApi(self._channel.path, _NAMESPACE)
        try:
            import_archive(api, chunks, facts, self._folder, qualified_name(image))
        finally:
            api.close()
        # The CRI's own list follows containerd's events.
        deadline = monotonic() + _FOLLOWS_S
        while self._status(image).id in ("", present) and monotonic() < deadline:
            sleep(_POLL_S)

    def _pull(self, image: str, timeout_s: float) -> OperationResult:
        calls = CallSequence(self._channel, timeout_s, PULL_KIND_PATTERNS)
        calls.do(f"{_IMAGES}PullImage", _request(image))
        return calls.result()

    def _pull_instead(self, image: str, failure: Exception) -> None:
        try:
            self._pull(image, _FETCH_S)
        except OperationFailed as error:
            raise ImageUnavailable("image-missing", f"{failure}; and pulling it failed: {error}") from error


def _request(image: str) -> messages.ImageRequest:
    return messages.ImageRequest(image=messages.ImageSpec(image=image))


def address(place: str = "") -> str:
    """Return the socket at `place`, that which the environment names, or the first default one that exists."""
    named = (place or os.environ.get(VARIABLE, "")).removeprefix("unix://")
    return named or next((path for path in _SOCKETS if os.path.exists(path)), _SOCKETS[1])  # noqa: PTH110


def probe_cri(engine: type[Engine], path: str) -> EngineStatus:
    """Ask what listens at `path` for its version; never raises, within `PROBE_S`."""
    cgroups = Cgroups.detect(swap_limit=False)
    channel = GrpcChannel(path, PACKAGE)
    reason, version = "", ""
    try:
        found = CallSequence(channel, PROBE_S).call(
            "RuntimeService/Version", messages.VersionRequest(), messages.VersionResponse
        )
        version = f"{found.runtime_name} {found.runtime_version}".strip()
    except OperationFailed as error:
        missing = (
            "it does not serve the CRI (its plugin is disabled)"
            if error.kind == "unsupported"
            else str(error).removeprefix(f"{path}: ")
        )
        reason = f"no CRI answers at {path}: {missing}"
    finally:
        channel.close()
    return engine.status(
        f"unix://{path}",
        version=version,
        reason=reason,
        advice=unavailable_advice(reason, _ADVICE) if reason else "",
        unenforced=cgroups.unenforced,
        details={
            SERVICES_NETWORK: HOST,
            NETWORK_CHOICE: "host",
            UNNAMED_VOLUMES: "yes",
            CAPABILITIES_WITHHELD: " ".join(
                daemon_processes.unavailable_capabilities(daemon_processes.MACHINE_CAPABILITIES)
            ),
            GRACE_STEP: "1",
            "cgroup": f"v{cgroups.version}",
        },
    )
