"""What every engine checks in a container's settings: host directories, limits of devices, ulimits."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

DEVICE_LIMITS: Final = ("device_read_bps", "device_write_bps", "device_read_iops", "device_write_iops")

GVISOR_ONLY: Final = "it is a setting of gVisor, the engine runsc"

NO_IO_WEIGHT: Final = (
    "no disk of this host supports I/O weights: they need the I/O scheduler bfq "
    "(`echo bfq > /sys/block/DISK/queue/scheduler`), or io.cost under cgroup v2"
)

KNOWN_SOCKETS = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/docker/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
)
"""A container that can write to one of these owns the host; no benchmark's container gets one."""

_MAX_NAME_CHARS: Final = 200
"""File systems take names of 255 bytes."""

_HOST_PSEUDO_FILESYSTEMS = ("/proc", "/sys", "/dev")
"""Below these there are other ways to the whole host (/proc/1/root)."""


class MountRefused(ValueError):
    """A mount that is not allowed in a benchmark's container; the message says which and why."""


def directory_name(target: str) -> str:
    """Return the name of the directory that stands for a path in a container: no two paths have the same."""
    name = quote(target.strip("/"), safe="")
    if not name.strip("."):
        name = name.replace(".", "%2E")
    return name if len(name) <= _MAX_NAME_CHARS else hashlib.sha256(target.encode()).hexdigest()


def safe_host_directory(source: str, sockets: Iterable[str]) -> str:
    """Return `source` without symbolic links when it may be mounted; raise `MountRefused` otherwise.

    Refused are: what is not absolute, an engine's socket, any directory that holds one (``/`` and ``/run`` do), any
    other socket, and the kernel's own file systems.
    """
    path = Path(source)
    if not path.is_absolute():
        raise MountRefused(f"host directory {source!r} is not an absolute path")
    _check_pseudo_filesystems(source, path)
    try:
        real = path.resolve()
    except (OSError, RuntimeError) as error:  # the latter for a symbolic link that leads round and round
        reason = getattr(error, "strerror", None) or error
        raise MountRefused(f"host directory {source} cannot be read: {reason}") from error
    _check_pseudo_filesystems(source, real)
    for guarded in {Path(item) for item in sockets} | {Path(item).resolve() for item in sockets}:
        if guarded.is_relative_to(real):
            raise MountRefused(f"host directory {source} contains an engine's socket ({guarded}): never mounted")
    if real.exists() and stat.S_ISSOCK(real.stat().st_mode):
        raise MountRefused(f"{source} is a socket; only directories and files are mounted")
    return str(real)


def _check_pseudo_filesystems(source: str, path: Path) -> None:
    for window in _HOST_PSEUDO_FILESYSTEMS:
        if path.is_relative_to(window):
            raise MountRefused(f"host directory {source} is the kernel's view of the host ({window}): never mounted")


def parse_ulimit(text: str) -> tuple[int, int]:
    """Return the two limits of a text such as ``1024`` or ``512:1024``; raise `ValueError`."""
    soft, _, hard = text.partition(":")
    return int(soft), int(hard or soft)


def supports_io_weight(sys: Path) -> bool:
    """Say whether a disk divides its time by the cgroups' weights, by what the kernel says below `sys` (``/sys``)."""
    for scheduler in sys.glob("block/*/queue/scheduler"):
        if "[bfq]" in _text(scheduler):
            return True
    return "enable=1" in _text(sys / "fs/cgroup/io.cost.qos").split()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
