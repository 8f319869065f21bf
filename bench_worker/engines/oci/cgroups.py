"""Finds out which limits this host's cgroups can enforce, and whether a container met its memory limit.

Engines report why a container's first process ended, and of no other process: for a command that `exec` runs, the
counter of memory kills in the container's cgroup decides. An exit code is that of any SIGKILL, or the command's own
where the kernel killed a child of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from bench_worker.engines.settings import DEVICE_LIMITS, NO_IO_WEIGHT, supports_io_weight
from bench_worker.host.procfs import LiveHostFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.engines.base import OperationResult
    from bench_worker.host.procfs import HostFiles

ROOT: Final = "/sys/fs/cgroup"
PARENT: Final = "weighbridge"
"""The cgroup below which those of all our containers are."""

_NEEDED: Final = {
    "memory_bytes": (("memory", "memory.limit_in_bytes"), "memory", "cannot limit memory"),
    "cpus": (("cpu", "cpu.cfs_quota_us"), "cpu", "cannot limit CPU time (CFS quota)"),
    "cpuset": (("cpuset", "cpuset.cpus"), "cpuset", "cannot pin a container to CPUs"),
    # Its root has no limit of its own, only what counts.
    "pids": (("pids", "cgroup.procs"), "pids", "cannot limit the number of processes"),
    **{
        setting: (("blkio", f"blkio.throttle.{what}_device"), "io", "cannot limit the rate of a block device")
        for setting, what in zip(DEVICE_LIMITS, ("read_bps", "write_bps", "read_iops", "write_iops"), strict=True)
    },
}


class Cgroups(Struct, frozen=True):
    """What this host's cgroups are: version 1 or 2, whether swap can be limited, and what cannot be, with reasons."""

    version: int
    swap_limit: bool
    unenforced: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def detect(cls, files: HostFiles | None = None, *, swap_limit: bool = True, sys: Path = Path("/sys")) -> Cgroups:
        """Look at the host (or at a recorded one), for an engine that limits swap where the kernel can, or never."""
        host = files or LiveHostFiles()
        controllers = host.text(f"{ROOT}/cgroup.controllers")
        if controllers is None:
            found = {
                setting: not host.exists(f"{ROOT}/{'/'.join(needed)}") for setting, (needed, _, _) in _NEEDED.items()
            }
            swap_limit = swap_limit and host.exists(f"{ROOT}/memory/memory.memsw.limit_in_bytes")
        else:
            found = {setting: name not in controllers.split() for setting, (_, name, _) in _NEEDED.items()}
        missing = {setting: f"this host's kernel {_NEEDED[setting][2]}" for setting, lacks in found.items() if lacks}
        if not supports_io_weight(sys):
            missing["blkio_weight"] = NO_IO_WEIGHT
        if "memory_bytes" not in missing and not swap_limit and _swap_bytes(host):
            missing["memory_bytes"] = (
                "this host has swap, which nobody here can limit: a container would go on in swap, not at its "
                "limit (`swapoff -a`, or boot with swapaccount=1)"
            )
        return cls(1 if controllers is None else 2, swap_limit, missing)

    def memory_directory(self, path: str) -> Path:
        """Return the directory that has the memory files of the cgroup `path`, which begins at the root."""
        return Path(ROOT, "memory" if self.version == 1 else "", path.lstrip("/"))


def oom_kills(directory: Path) -> int:
    """Return how many processes the memory limit killed in a cgroup (its directory); 0 where nobody counts."""
    for name in ("memory.events", "memory.oom_control"):
        try:
            lines = (directory / name).read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0


def _swap_bytes(files: HostFiles) -> int:
    for line in (files.text("/proc/meminfo") or "").splitlines():
        if line.startswith("SwapTotal:"):
            return int(line.split()[1]) * 1024
    return 0


_CONTROLLER: Final = "memory"


class OomKillCounter:
    """Those in the cgroup of a container, from now on; None: it has no limit, or nobody knows its cgroup."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._before = 0 if directory is None else oom_kills(directory)

    @property
    def is_counted(self) -> bool:
        """Whether anybody counts."""
        return self._directory is not None

    def explain(self, done: OperationResult) -> bool:
        """Say whether the OOM killer ended a command that ended like this."""
        return self._directory is not None and done.exit_code != 0 and oom_kills(self._directory) > self._before


def memory_directory(pid: int, identity: str, files: HostFiles | None = None) -> Path | None:
    """Return the directory of the cgroup that limits the memory of a container, by the number of its first process.

    None where that cannot be told. `identity` is part of the cgroup's name with every engine: where it is not, the
    number is that of a process on another host.
    """
    found: dict[bool, str] = {}
    for line in ((files or LiveHostFiles()).text(f"/proc/{pid}/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if _CONTROLLER in controllers.split(",") or number == "0":
            found[number == "0"] = path
    # A host that has both versions limits memory with the first (cgroups(7)).
    second = False not in found
    path = found.get(second, "")
    return Path(ROOT, "" if second else _CONTROLLER, path.lstrip("/")) if identity and identity in path else None
