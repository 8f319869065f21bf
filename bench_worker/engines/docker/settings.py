"""Turns a container's settings into what Docker's API takes and into flags, and refuses mounts never allowed.

Also says which limits this host would ignore: Docker accepts a weight for disks on every host and most kernels ignore
it, so the kernel itself is asked.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_common.treatment import FOREIGN_ADVICE, outside_logging
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.settings import (
    DEVICE_LIMITS,
    KNOWN_SOCKETS,
    NO_IO_WEIGHT,
    MountRefused,
    directory_name,
    parse_ulimit,
    safe_host_directory,
    supports_io_weight,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings, Mount
    from bench_worker.engines.base import Container

_WARNED: Final = {
    "device_read_bps": "throttle.read_bps_device",
    "device_write_bps": "throttle.write_bps_device",
    "device_read_iops": "throttle.read_iops_device",
    "device_write_iops": "throttle.write_iops_device",
}
"""How `docker info` calls what the kernel lacks: ``WARNING: No blkio throttle.read_bps_device support``."""


_DEVICE_LIMIT_NAMES: Final = {
    "device_read_bps": "BlkioDeviceReadBps",
    "device_write_bps": "BlkioDeviceWriteBps",
    "device_read_iops": "BlkioDeviceReadIOps",
    "device_write_iops": "BlkioDeviceWriteIOps",
}
"""What the API calls the limits of devices."""


def confinement(settings: ContainerSettings) -> dict[str, Any]:
    """Return the part of the API's ``HostConfig`` for what confines a container; raise `ValueError`."""
    given: dict[str, Any] = {
        _DEVICE_LIMIT_NAMES[name]: [
            {"Path": device, "Rate": rate} for device, rate in getattr(settings, name).items()
        ]
        for name in DEVICE_LIMITS
        if getattr(settings, name)
    }
    if settings.ulimits:
        limits = ((name, *parse_ulimit(text)) for name, text in settings.ulimits.items())
        given["Ulimits"] = [{"Name": name, "Soft": soft, "Hard": hard} for name, soft, hard in limits]
    plain = {
        "Runtime": settings.runtime,
        "PidsLimit": settings.pids,
        "BlkioWeight": settings.blkio_weight,
        "ReadonlyRootfs": settings.read_only,
        "SecurityOpt": list(settings.security_options) or None,
        "CapAdd": list(settings.cap_add) or None,
        "CapDrop": list(settings.cap_drop) or None,
    }
    return given | _known(plain)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def limit_flags(settings: ContainerSettings) -> list[str]:
    """Return the same as flags of ``docker create``."""
    words = [f"--ulimit={name}={text}" for name, text in settings.ulimits.items()]
    for name in DEVICE_LIMITS:
        flag = name.replace("_", "-")
        words += [f"--{flag}={device}:{rate}" for device, rate in getattr(settings, name).items()]
    words += [f"--security-opt={option}" for option in settings.security_options]
    words += [f"--cap-add={name}" for name in settings.cap_add]
    words += [f"--cap-drop={name}" for name in settings.cap_drop]
    plain = {
        "runtime": settings.runtime,
        "pids-limit": settings.pids,
        "blkio-weight": settings.blkio_weight,
        "read-only": None if settings.read_only is None else str(settings.read_only).lower(),
    }
    return words + [f"--{flag}={value}" for flag, value in plain.items() if value is not None]


def unenforced(info: Mapping[str, Any], *, sys: Path | None) -> dict[str, str]:
    """Return which settings this host would ignore, and why, from `docker info` and the host's ``/sys``.

    `sys` is None where the engine is on another host, which cannot be inspected from here.
    """
    found = {}
    if not info.get("PidsLimit"):
        found["pids"] = "this host's kernel cannot limit the number of processes"
    warnings = "\n".join(map(str, info.get("Warnings") or ()))
    for setting, name in _WARNED.items():
        if f"No blkio {name} support" in warnings:
            found[setting] = "this host's kernel cannot limit the rate of a block device"
    if "No blkio weight support" in warnings or sys is None or not supports_io_weight(sys):
        found["blkio_weight"] = NO_IO_WEIGHT
    return found


def create_body(
    container: Container, *, allow_host_mounts: bool, allow_foreign: bool, own_socket: str | None
) -> dict[str, Any]:
    """Return what the API takes to make a container; raise `MountRefused`. Never privileged, never a tty."""
    settings = container.settings
    mounts = [
        _mount(mount, container, allow_host_mounts=allow_host_mounts, own_socket=own_socket)
        for mount in settings.storage
        if mount.kind != "data_container"
    ]
    shared = [*([data_container_name(container)] if has_data_container(container) else ()), *container.shares]
    host = {
        "NetworkMode": settings.network or "default",
        **_limits(settings),
        **confinement(settings),
        "Init": settings.init,
        "LogConfig": _log_config(settings, allow_foreign=allow_foreign),
        "Mounts": mounts or None,
        "VolumesFrom": shared or None,
        "CgroupParent": None if container.cost_group is None else container.cost_group.path,
    }
    body: dict[str, Any] = {
        "Image": settings.image,
        "Cmd": None if settings.command is None else list(settings.command),
        "Env": [f"{name}={value}" for name, value in settings.env.items()],
        "Labels": dict(container.labels),
        "WorkingDir": settings.directory,
    }
    if container.publish is not None:
        address, number = container.publish
        body["ExposedPorts"] = {f"{number}/tcp": {}}
        host["PortBindings"] = {f"{number}/tcp": [{"HostIp": address, "HostPort": ""}]}
    return _known({**body, "HostConfig": _known(host)})


def _limits(settings: ContainerSettings) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if settings.memory_bytes is not None:
        # Memory and swap together limited to the same number: no swap. Docker's default would be twice as much.
        limits |= {"Memory": settings.memory_bytes, "MemorySwap": settings.memory_bytes}
    if settings.cpus is not None:
        limits["NanoCpus"] = round(settings.cpus * 1e9)
    if settings.cpuset is not None:
        limits["CpusetCpus"] = settings.cpuset
    return limits


def _log_config(settings: ContainerSettings, *, allow_foreign: bool) -> dict[str, Any] | None:
    if settings.log_driver is None and not settings.log_options:
        return None
    options = allowed_log_options(settings, allow_foreign=allow_foreign)
    return {"Type": settings.log_driver or "", "Config": options}


def allowed_log_options(settings: ContainerSettings, *, allow_foreign: bool) -> dict[str, str]:
    """Return the options of a log driver; raise `MountRefused` for a log outside of the engine without leave for it.

    Podman writes what a container prints to the file that ``path`` names, as root where it runs as root.
    """
    outside = "" if allow_foreign else outside_logging(settings)
    if outside:
        raise MountRefused(f"{outside}: {FOREIGN_ADVICE}")
    return dict(settings.log_options)


def has_data_container(container: Container) -> bool:
    """Say whether some of its storage is in a data container."""
    return any(mount.kind == "data_container" for mount in container.settings.storage)


def data_container_name(container: Container) -> str:
    """Return the name of a container's data container."""
    return f"{container.name}-data"


def tar_archive(files: Mapping[str, str]) -> bytes:
    """Return `files` (texts by absolute path) as the tar archive of a root directory, readable by everybody."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _mount(mount: Mount, container: Container, *, allow_host_mounts: bool, own_socket: str | None) -> dict[str, Any]:
    made: dict[str, Any] = {"Target": mount.target, "ReadOnly": mount.read_only}
    if mount.kind == "tmpfs":
        return (
            made | {"Type": "tmpfs"} | ({"TmpfsOptions": {"SizeBytes": mount.size_bytes}} if mount.size_bytes else {})
        )
    if mount.kind == "volume":
        # A volume that Docker has to make for this carries our labels; one that is there already keeps its own.
        named = {"Source": mount.source} if mount.source else {}
        labels = {"VolumeOptions": {"Labels": dict(container.labels)}} if container.labels else {}
        return made | {"Type": "volume"} | named | labels
    if not mount.source:
        # The worker's own directory, made for this container: nothing of the host is in it.
        source = str(private_directory(container, mount))
    else:
        source = allowed_source(mount, allow_host_mounts=allow_host_mounts, own_socket=own_socket)
    return made | {"Type": "bind", "Source": source}


def allowed_source(mount: Mount, *, allow_host_mounts: bool, own_socket: str | None) -> str:
    """Return the host directory of a mount, without symbolic links; raise `MountRefused` where it is not allowed."""
    if not allow_host_mounts:
        raise MountRefused(
            f"host directory {mount.source} may not be mounted: this worker does not allow host mounts"
        )
    return safe_host_directory(mount.source, [*KNOWN_SOCKETS, *([own_socket] if own_socket else [])])


def private_directory(container: Container, mount: Mount) -> Path:
    """Return where the worker makes a host directory of this container's own (see `native_labels.private_root`)."""
    return native_labels.private_root() / f"{container.name}-host" / directory_name(mount.target)
