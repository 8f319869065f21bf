"""The configurations of pods and containers that the CRI is asked to create, and the format of its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_worker.engines.cri import messages_pb2 as messages
from bench_worker.engines.low_level import HOST
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci.settings import bind_mount
from bench_worker.engines.oci.spec import CPU_PERIOD_US

if TYPE_CHECKING:
    from pathlib import Path

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import Container

LOG: Final = "log"
"""The name of a container's log in its directory of ours."""

_POD_NAMESPACE: Final = "weighbridge"
_UNCONFINED: Final = messages.SecurityProfile(profile_type=messages.SecurityProfile.UNCONFINED)


def pod_config(container: Container, directory: Path) -> messages.PodSandboxConfig:
    """Return the configuration of a pod of one container, which logs below `directory`."""
    name, network = container.name, container.settings.network
    options = messages.NamespaceOption(network=_network_mode(network))
    return messages.PodSandboxConfig(
        metadata=messages.PodSandboxMetadata(name=name, uid=name, namespace=_POD_NAMESPACE),
        hostname="" if network == HOST else "weighbridge",
        log_directory=str(directory),
        labels=container.labels,
        linux=messages.LinuxPodSandboxConfig(
            cgroup_parent=f"/weighbridge/{name}",
            security_context=messages.LinuxSandboxSecurityContext(namespace_options=options),
        ),
    )


def container_config(
    container: Container, image: str, directory: Path, *, allow_host_mounts: bool
) -> messages.ContainerConfig:
    """Return the configuration of a pod's container; raise `UnsupportedSetting` and `MountRefused`."""
    settings = container.settings
    binds = [bind_mount(storage, directory, allow_host_mounts=allow_host_mounts) for storage in settings.storage]
    return messages.ContainerConfig(
        metadata=messages.ContainerMetadata(name="main"),
        image=messages.ImageSpec(image=image),
        args=settings.command or (),
        envs=[messages.KeyValue(key=name, value=value) for name, value in settings.env.items()],
        mounts=[
            messages.Mount(
                container_path=mount["destination"], host_path=mount["source"], readonly="ro" in mount["options"]
            )
            for mount in (*binds, *oci_bundle.bind_mounts(settings.files, directory))
        ],
        labels=container.labels,
        log_path=LOG,
        linux=messages.LinuxContainerConfig(
            resources=_resources(settings), security_context=_security_context(settings)
        ),
    )


def _security_context(settings: ContainerSettings) -> messages.LinuxContainerSecurityContext:
    options = settings.security_options
    return messages.LinuxContainerSecurityContext(
        capabilities=messages.Capability(add_capabilities=settings.cap_add, drop_capabilities=settings.cap_drop),
        namespace_options=messages.NamespaceOption(network=_network_mode(settings.network), pid=messages.CONTAINER),
        readonly_rootfs=bool(settings.read_only),
        no_new_privs="no-new-privileges" in options,
        seccomp=_UNCONFINED if "seccomp=unconfined" in options else None,
        apparmor=_UNCONFINED if "apparmor=unconfined" in options else None,
    )


def _network_mode(network: str | None) -> messages.NamespaceMode:
    return messages.NODE if network == HOST else messages.POD


def _resources(settings: ContainerSettings) -> messages.LinuxContainerResources:
    quota = None if settings.cpus is None else round(settings.cpus * CPU_PERIOD_US)
    return messages.LinuxContainerResources(
        cpu_period=CPU_PERIOD_US if quota else None,
        cpu_quota=quota,
        memory_limit_in_bytes=settings.memory_bytes,
        cpuset_cpus=settings.cpuset,
    )


def split_log(text: bytes) -> tuple[bytes, bytes]:
    """Return stdout and stderr of a log in the CRI's format: lines of time, stream, F or P (part of a line), text."""
    streams: dict[bytes, bytearray] = {b"stdout": bytearray(), b"stderr": bytearray()}
    for line in text.splitlines():
        _, _, rest = line.partition(b" ")
        stream, _, rest = rest.partition(b" ")
        tag, _, printed = rest.partition(b" ")
        if stream in streams:
            streams[stream] += printed + (b"\n" if tag.startswith(b"F") else b"")
    return bytes(streams[b"stdout"]), bytes(streams[b"stderr"])
