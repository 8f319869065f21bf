"""What confines a container beyond memory and CPUs, in the words of Docker's API, and what this host enforces of it.

Docker takes a weight for disks on every host and most kernels ignore it; so what a host can do is looked up where the
kernel says it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docker.types import Ulimit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings

SETTINGS: Final = frozenset(
    {
        "runtime",
        "pids",
        "ulimits",
        "blkio_weight",
        "device_read_bps",
        "device_write_bps",
        "device_read_iops",
        "device_write_iops",
        "read_only",
        "security_options",
        "cap_add",
        "cap_drop",
    }
)

THROTTLES: Final = ("device_read_bps", "device_write_bps", "device_read_iops", "device_write_iops")

_WARNED: Final = {
    "device_read_bps": "throttle.read_bps_device",
    "device_write_bps": "throttle.write_bps_device",
    "device_read_iops": "throttle.read_iops_device",
    "device_write_iops": "throttle.write_iops_device",
}
"""How `docker info` calls what the kernel lacks: ``WARNING: No blkio throttle.read_bps_device support``."""

NO_WEIGHT: Final = (
    "no disk of this host shares its time by weight: that takes the I/O scheduler bfq "
    "(`echo bfq > /sys/block/DISK/queue/scheduler`), or io.cost under cgroup v2"
)


def confinement(settings: ContainerSettings) -> dict[str, Any]:
    """Return the arguments of docker-py's `create_host_config` for what is given; raise `ValueError`."""
    given: dict[str, Any] = {
        name: [{"Path": device, "Rate": rate} for device, rate in getattr(settings, name).items()]
        for name in THROTTLES
        if getattr(settings, name)
    }
    if settings.ulimits:
        limits = ((name, *soft_and_hard(text)) for name, text in settings.ulimits.items())
        given["ulimits"] = [Ulimit(name=name, soft=soft, hard=hard) for name, soft, hard in limits]
    plain = {
        "runtime": settings.runtime,
        "pids_limit": settings.pids,
        "blkio_weight": settings.blkio_weight,
        "read_only": settings.read_only,
        "security_opt": list(settings.security_options) or None,
        "cap_add": list(settings.cap_add) or None,
        "cap_drop": list(settings.cap_drop) or None,
    }
    return given | {name: value for name, value in plain.items() if value is not None}


def confinement_words(settings: ContainerSettings) -> list[str]:
    """Return the same as flags of ``docker create``."""
    words = [f"--ulimit={name}={text}" for name, text in settings.ulimits.items()]
    for name in THROTTLES:
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


def soft_and_hard(text: str) -> tuple[int, int]:
    """Return the two limits of a text such as ``1024`` or ``512:1024``; raise `ValueError`."""
    soft, _, hard = text.partition(":")
    return int(soft), int(hard or soft)


def unenforced(info: Mapping[str, Any], *, sys: Path | None) -> dict[str, str]:
    """Return which of `SETTINGS` this host would ignore, and why, from `docker info` and the host's ``/sys``.

    `sys` is None where the engine is on another host, which nobody can look into.
    """
    found = {}
    if not info.get("PidsLimit"):
        found["pids"] = "this host's kernel cannot limit the number of processes"
    warnings = "\n".join(map(str, info.get("Warnings") or ()))
    for setting, name in _WARNED.items():
        if f"No blkio {name} support" in warnings:
            found[setting] = "this host's kernel cannot limit the rate of a block device"
    if "No blkio weight support" in warnings or sys is None or not honours_weights(sys):
        found["blkio_weight"] = NO_WEIGHT
    return found


def honours_weights(sys: Path) -> bool:
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
