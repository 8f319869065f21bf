"""What confines a container beyond memory and CPUs, as entries of a config.json. Pure, but for the devices' numbers.

The words are those of the `runtime specification <https://github.com/opencontainers/runtime-spec>`_:
``process.rlimits``, ``.noNewPrivileges`` and ``.capabilities``, ``root.readonly``, ``linux.resources.pids`` and
``.blockIO``.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final

from bench_common.treatment import CAPABILITIES
from bench_worker.engines.docker_confinement import THROTTLES, soft_and_hard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_common.treatment import ContainerSettings

SETTINGS: Final = frozenset(
    {"pids", "ulimits", "blkio_weight", *THROTTLES, "read_only", "security_options", "cap_add", "cap_drop"}
)

_ALL: Final = "ALL"
_UNLIMITED: Final = (1 << 64) - 1
"""How a config.json writes that there is no limit (RLIM_INFINITY)."""

_ENTRIES: Final = {
    "device_read_bps": "throttleReadBpsDevice",
    "device_write_bps": "throttleWriteBpsDevice",
    "device_read_iops": "throttleReadIOPSDevice",
    "device_write_iops": "throttleWriteIOPSDevice",
}


def device_numbers(path: str) -> tuple[int, int]:
    """Return the major and minor number of a block device of this host; raise `ValueError` where it is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  its number is wanted
    except OSError as error:
        raise ValueError(f"block device {path}: {error.strerror}") from error
    if not stat.S_ISBLK(found.st_mode):
        raise ValueError(f"{path} is no block device, so its rate cannot be limited")
    return os.major(found.st_rdev), os.minor(found.st_rdev)


def confine(
    config: dict[str, Any],
    settings: ContainerSettings,
    numbers: Callable[[str], tuple[int, int]] = device_numbers,
) -> None:
    """Enter what is given into a config.json; raise `ValueError` for a device that is none (see `numbers`)."""
    process, linux = config["process"], config["linux"]
    if settings.ulimits:
        process["rlimits"] = _limits(process.get("rlimits") or (), settings.ulimits)
    if settings.read_only is not None:
        config["root"]["readonly"] = settings.read_only
    for option in settings.security_options:
        _secure(process, linux, option)
    if settings.cap_add or settings.cap_drop:
        _empower(process, settings)
    resources = linux.setdefault("resources", {})
    if settings.pids is not None:
        resources["pids"] = {"limit": settings.pids}
    block: dict[str, Any] = {
        entry: [
            dict(zip(("major", "minor"), numbers(device), strict=True), rate=rate)
            for device, rate in getattr(settings, name).items()
        ]
        for name, entry in _ENTRIES.items()
        if getattr(settings, name)
    }
    if settings.blkio_weight is not None:
        block["weight"] = settings.blkio_weight
    if block:
        resources["blockIO"] = {**resources.get("blockIO", {}), **block}


def _limits(present: Any, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return limits as a config.json has them: those that are `present`, with the `given` ones in their place."""
    limits = {str(one["type"]): one for one in present}
    for name, text in given.items():
        soft, hard = (_UNLIMITED if limit < 0 else limit for limit in soft_and_hard(text))
        kind = f"RLIMIT_{name.upper()}"
        limits[kind] = {"type": kind, "soft": soft, "hard": hard}
    return list(limits.values())


def _empower(process: dict[str, Any], settings: ContainerSettings) -> None:
    """Take and give capabilities; a user that is not root has none at once, and may get what is in ``bounding``."""
    kinds = {kind: list(names) for kind, names in process.get("capabilities", {}).items()}
    added = [f"CAP_{name}" for name in settings.cap_add]
    dropped = {f"CAP_{name}" for name in (CAPABILITIES if _ALL in settings.cap_drop else settings.cap_drop)}
    for kind in ("bounding", "effective", "permitted"):
        kinds.setdefault(kind, [])
        if kind == "bounding" or not process.get("user", {}).get("uid", 0):
            kinds[kind] += [name for name in added if name not in kinds[kind]]
    taken = dropped - set(added)
    process["capabilities"] = {kind: [name for name in names if name not in taken] for kind, names in kinds.items()}


def _secure(process: dict[str, Any], linux: dict[str, Any], option: str) -> None:
    if option == "no-new-privileges":
        process["noNewPrivileges"] = True
    elif option == "seccomp=unconfined":
        # There is none but in a bundle of the user's own.
        linux.pop("seccomp", None)
    elif option == "apparmor=unconfined":
        process.pop("apparmorProfile", None)
    else:
        raise ValueError(f"security option {option!r} has no entry in a config.json")
