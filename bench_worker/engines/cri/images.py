"""Gets images into a CRI's own store: pulled by it, or taken from the Docker Engine where it is a containerd.

Finds a CRI socket and asks what is behind it.
"""

from __future__ import annotations

import os
import secrets
import shutil
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
from bench_worker.engines.base import EngineStatus, OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.cri.messages import IMAGES, RUNTIME, image_spec
from bench_worker.engines.grpc import GrpcChannel, GrpcError, MalformedMessage, blob, pack, text, unpack
from bench_worker.engines.low_level import HOST
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.images import ImageUnavailable, docker_client

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench_worker.engines.grpc import Fields, GrpcReply

_ANSWER_S: Final = 30.0
_FETCH_S: Final = 300.0
_NAMESPACE: Final = "k8s.io"
"""Where containerd's CRI plugin keeps what is its own."""


class CriImages:
    """The images that one engine has used. Each is got by the first that wants it, while the others wait."""

    def __init__(self, channel: GrpcChannel, folder: Path) -> None:
        self._channel = channel
        self._folder = folder
        self._known_images: set[str] = set()
        self._lock = RLock()

    def get(self, image: str | None) -> str:
        """Return `image` when the CRI has it; raise `ImageUnavailable`, and `GrpcError` when it does not answer."""
        if image is None:
            raise ImageUnavailable("refused", "an `image` is needed to make a container from")
        with self._lock:
            if image not in self._known_images:
                self._fetch(image)
                self._known_images.add(image)
        return image

    def pull(self, image: str | None, *, fresh: bool, timeout_s: float) -> GrpcReply:
        """Fetch an image from its registry; raise `ImageUnavailable`, and `GrpcError` with gRPC's code.

        With `fresh` what is there of it is taken away before, untimed, once the registry has shown by a pull that it
        can bring it back, and where nobody would miss it.
        """
        if not image:
            raise ImageUnavailable("refused", "there is no image to pull")
        if fresh:
            present = self._status(image)
            if present:
                self._object(image, present)
                self._ask_pull(image, timeout_s)
                self._channel.call(f"{IMAGES}RemoveImage", pack({1: image_spec(image)}), timeout_s=timeout_s)
        return self._ask_pull(image, timeout_s)

    def _object(self, image: str, status: Fields) -> None:
        """Raise `ImageUnavailable` where somebody would miss an image: the CRI removes it with all of its names."""
        names = _texts(status, 2)
        if len(names) > 1:
            others = ", ".join(names)
            raise ImageUnavailable(
                "refused", f"image {image} is not taken away to be pulled anew: it is also {others}"
            )
        known = {text(status, 1), *_texts(status, 3)}
        reply = self._channel.call(f"{RUNTIME}ListContainers", b"", timeout_s=_ANSWER_S)
        for item in unpack(reply.message).get(1, ()):
            container = unpack(item) if isinstance(item, bytes) else {}
            if text(container, 5) in known:
                raise ImageUnavailable("conflict", f"image {image} is not taken away: a container is made from it")

    def _fetch(self, image: str) -> None:
        present = self._identity(image)
        try:
            with docker_client(f"image {image}") as client:
                facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
                if facts["Id"] == present:
                    return
                # By its name: that is what the CRI will be asked for.
                self._import(client.get_image(image))
        except (ImageUnavailable, OperationFailed) as trouble:
            if not present:
                self._pull(image, trouble)

    def _identity(self, image: str) -> str:
        return text(self._status(image), 1)

    def _status(self, image: str) -> Fields:
        reply = self._channel.call(f"{IMAGES}ImageStatus", pack({1: image_spec(image)}), timeout_s=_ANSWER_S)
        return unpack(blob(unpack(reply.message), 1))

    def _ask_pull(self, image: str, timeout_s: float) -> GrpcReply:
        return self._channel.call(f"{IMAGES}PullImage", pack({1: image_spec(image)}), timeout_s=timeout_s)

    def _import(self, chunks: Any) -> None:
        if shutil.which("ctr") is None:
            raise ImageUnavailable("image-missing", "there is no program 'ctr' to take it from Docker")
        archive = oci_images.make_private(self._folder) / f".{secrets.token_hex(8)}.tar"
        try:
            with archive.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            options = ("--address", self._channel.path, "--connect-timeout", "3s", "--namespace", _NAMESPACE)
            CommandLine("ctr", options).errand(_FETCH_S).do("images", "import", str(archive))
        finally:
            archive.unlink(missing_ok=True)

    def _pull(self, image: str, trouble: Exception) -> None:
        try:
            self._ask_pull(image, _FETCH_S)
        except GrpcError as error:
            raise ImageUnavailable("image-missing", f"{trouble}; and pulling it failed: {error}") from error


def _texts(fields: Fields, number: int) -> list[str]:
    """Return all values of a repeated field of text."""
    return [item.decode("utf-8", "replace") for item in fields.get(number, ()) if isinstance(item, bytes)]


VARIABLE: Final = "CONTAINER_RUNTIME_ENDPOINT"
"""The variable of ``crictl`` and of the kubelet's tools."""
_SOCKETS: Final = ("/run/crio/crio.sock", "/run/containerd/containerd.sock", "/run/cri-dockerd.sock")
_PROBE_S: Final = 3.0
_UNIMPLEMENTED: Final = 12
_ADVICE: Final = (
    "start CRI-O, or containerd with its CRI plugin (take `cri` out of disabled_plugins in its config.toml), "
    "or name a socket in CONTAINER_RUNTIME_ENDPOINT"
)


def address() -> str:
    """Return the socket that the environment names, or the first of the usual ones that there is."""
    named = os.environ.get(VARIABLE, "").removeprefix("unix://")
    return named or next((path for path in _SOCKETS if os.path.exists(path)), _SOCKETS[1])  # noqa: PTH110


def probe_cri(
    name: str,
    *,
    operations: frozenset[str],
    settings: frozenset[str],
    inapplicable: frozenset[str],
    reasons: Mapping[str, str],
    lacks: Mapping[str, str],
) -> EngineStatus:
    """Ask for the version; never raises, within `_PROBE_S`."""
    path = address()
    cgroups = Cgroups.look(swap_limit=False)
    channel = GrpcChannel(path)
    reason, version, runtime = "", "", ""
    try:
        said = unpack(channel.call(f"{RUNTIME}Version", b"", timeout_s=_PROBE_S).message)
        runtime, version = text(said, 2), text(said, 3)
    except GrpcError as error:
        missing = (
            "it does not speak the CRI (its plugin is disabled)"
            if error.code == _UNIMPLEMENTED
            else _failure_reason(error, path)
        )
        reason = f"no CRI answers at {path}: {missing}"
    except MalformedMessage as error:
        reason = f"what answers at {path} is no CRI: {error}"
    finally:
        channel.close()
    unenforced = {**reasons, **{key: why for key, why in cgroups.unenforced.items() if key in settings}}
    return EngineStatus(
        name=name,
        usable=not reason,
        version=f"{runtime} {version}".strip(),
        endpoint=f"unix://{path}",
        reason=reason,
        advice=_ADVICE if reason else "",
        operations=tuple(sorted(operations)),
        settings=tuple(sorted(settings - set(cgroups.unenforced))),
        inapplicable=tuple(sorted(inapplicable)),
        details={
            SERVICES_NETWORK: HOST,
            NETWORK_CHOICE: "host",
            UNNAMED_VOLUMES: "yes",
            CAPABILITIES_WITHHELD: " ".join(
                daemon_processes.unavailable_capabilities(daemon_processes.MACHINE_CAPABILITIES)
            ),
            GRACE_STEP: "1",
            "cgroup": f"v{cgroups.version}",
            **{f"operation.{operation}": why for operation, why in lacks.items()},
            **{f"setting.{setting}": why for setting, why in unenforced.items()},
        },
    )


def _failure_reason(error: GrpcError, path: str) -> str:
    return str(error).removeprefix(f"{path}: ")
