"""The messages of the CRI that we send, by their field numbers in its ``api.proto`` of version 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_worker.engines.grpc import pack
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci.settings import bind_mount
from bench_worker.engines.oci.spec import CPU_PERIOD_US

if TYPE_CHECKING:
    from pathlib import Path

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import Container

RUNTIME: Final = "/runtime.v1.RuntimeService/"
IMAGES: Final = "/runtime.v1.ImageService/"
LOG: Final = "log"
"""The name of a container's log in its directory of ours."""

_NODE: Final = 2
"""`NamespaceMode`: the host's own network."""
_UNCONFINED: Final = 1
"""`SecurityProfile.ProfileType`: none at all."""
_POD_NAMESPACE: Final = "weighbridge"


def pod_config(container: Container, directory: Path) -> bytes:
    """Return a ``PodSandboxConfig``: a pod of one container, which logs below `directory`."""
    network = pack({1: _NODE if container.settings.network == "host" else 0})
    metadata = {1: container.name, 2: container.name, 3: _POD_NAMESPACE}
    return pack(
        {
            1: pack(metadata),
            2: "" if container.settings.network == "host" else "weighbridge",
            3: str(directory),
            6: container.labels,
            8: pack({1: f"/weighbridge/{container.name}", 2: pack({1: network})}),
        }
    )


def container_config(container: Container, image: str, directory: Path, *, allow_host_mounts: bool) -> bytes:
    """Return a ``ContainerConfig``; raise `UnsupportedSetting` and `MountRefused`."""
    settings = container.settings
    binds = [bind_mount(storage, directory, allow_host_mounts=allow_host_mounts) for storage in settings.storage]
    mounts = [
        pack({1: mount["destination"], 2: mount["source"], 3: int("ro" in mount["options"])})
        for mount in (*binds, *oci_bundle.bind_mounts(settings.files, directory))
    ]
    network = pack({1: _NODE if settings.network == "host" else 0, 2: 1})
    return pack(
        {
            1: pack({1: "main"}),
            2: image_spec(image),
            4: settings.command,
            6: [pack({1: name, 2: value}) for name, value in settings.env.items()],
            7: mounts,
            9: container.labels,
            11: LOG,
            15: pack({1: _resources(settings), 2: _security(settings, network)}),
        }
    )


def image_spec(image: str) -> bytes:
    """Return an ``ImageSpec``."""
    return pack({1: image})


def pod_filter(identity: str = "", labels: dict[str, str] | None = None) -> bytes:
    """Return a ``ListPodSandboxRequest`` for one pod, or for those with these labels."""
    return pack({1: pack({1: identity, 3: labels or {}})})


def _security(settings: ContainerSettings, network: bytes) -> bytes:
    """Return a ``LinuxContainerSecurityContext``."""
    options = settings.security_options
    capabilities = pack({1: settings.cap_add, 2: settings.cap_drop})
    return pack(
        {
            1: capabilities,
            3: network,
            7: int(settings.read_only or 0),
            11: int("no-new-privileges" in options),
            15: pack({1: _UNCONFINED}) if "seccomp=unconfined" in options else b"",
            16: pack({1: _UNCONFINED}) if "apparmor=unconfined" in options else b"",
        }
    )


def _resources(settings: ContainerSettings) -> bytes:
    quota = None if settings.cpus is None else round(settings.cpus * CPU_PERIOD_US)
    return pack(
        {
            1: CPU_PERIOD_US if quota else None,
            2: quota,
            4: settings.memory_bytes,
            6: settings.cpuset,
        }
    )


def split_log(text: bytes) -> tuple[bytes, bytes]:
    """Return stdout and stderr of a log in the CRI's format: lines of time, stream, F or P (part of a line), text."""
    streams: dict[bytes, bytearray] = {b"stdout": bytearray(), b"stderr": bytearray()}
    for line in text.splitlines():
        _, _, rest = line.partition(b" ")
        stream, _, rest = rest.partition(b" ")
        tag, _, said = rest.partition(b" ")
        if stream in streams:
            streams[stream] += said + (b"\n" if tag.startswith(b"F") else b"")
    return bytes(streams[b"stdout"]), bytes(streams[b"stderr"])
