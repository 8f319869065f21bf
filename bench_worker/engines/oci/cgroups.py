"""Finds out which limits this host's cgroups can enforce, and whether a container met its memory limit.

Engines report why a container's first process ended, and of no other process: for a command that `exec` runs, the
counter of memory kills in the container's cgroup decides. An exit code is that of any SIGKILL, or the command's own
where the kernel killed a child of it.

Sources of what a cgroup has used: cgroup-v1/{cpuacct,memory,blkio-controller}.rst and cgroup-v2.rst in the
documentation of Linux.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from bench_common.cost import CPU_SYSTEM, CPU_TOTAL, CPU_USER, IO_READ, IO_WRITTEN, MEMORY_PEAK
from bench_worker.engines.settings import DEVICE_LIMITS, NO_IO_WEIGHT, supports_io_weight
from bench_worker.host.procfs import LiveHostFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.engines.base import CostMeter, OperationResult
    from bench_worker.host.procfs import HostFiles

log = logging.getLogger(__name__)

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
    def detect(cls, files: HostFiles | None = None, *, swap_limit: bool = True) -> Cgroups:
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
        if not supports_io_weight(Path("/sys")):
            missing["blkio_weight"] = NO_IO_WEIGHT
        if "memory_bytes" not in missing and not swap_limit and _swap_bytes(host):
            missing["memory_bytes"] = (
                "this host has swap, which nobody here can limit: a container would go on in swap, not at its "
                "limit (`swapoff -a`, or boot with swapaccount=1)"
            )
        return cls(1 if controllers is None else 2, swap_limit, missing)

    def cost(self, path: str, files: HostFiles | None = None) -> dict[str, float]:
        """Return what a cgroup (`path` begins at the root) has used, by the names of `bench_common.cost`.

        The kernel counts CPU time exactly and splits it into user and system by its ticks, so these are shares of the
        whole, as for a process. What is not there is left out.
        """
        host, path = files or LiveHostFiles(), path.lstrip("/")
        if self.version > 1:
            counts = _counters(host.text(f"{ROOT}/{path}/cpu.stat"))
            total, user, system = (counts.get(f"{name}_usec") for name in ("usage", "user", "system"))
            per_s, peak = 1e6, _whole(host.text(f"{ROOT}/{path}/memory.peak"))
        else:
            names = ("cpuacct.usage", "cpuacct.usage_user", "cpuacct.usage_sys")
            total, user, system = (_whole(host.text(f"{ROOT}/cpuacct/{path}/{name}")) for name in names)
            per_s, peak = 1e9, _whole(host.text(f"{ROOT}/memory/{path}/memory.max_usage_in_bytes"))
        found: dict[str, float] = {}
        if total is not None:
            found[CPU_TOTAL] = total / per_s
        if total is not None and user is not None and system is not None:
            found[CPU_SYSTEM] = total / per_s * (system / (user + system) if system else 0.0)
            found[CPU_USER] = total / per_s - found[CPU_SYSTEM]
        if peak is not None:
            found[MEMORY_PEAK] = float(peak)
        return found | self._io(path, host)

    def _io(self, path: str, host: HostFiles) -> dict[str, float]:
        """Return the bytes that went from and to block devices, with those of the cgroups below that are there."""
        if self.version > 1:
            text, names = host.text(f"{ROOT}/{path}/io.stat"), ("rbytes", "wbytes")
            counts = [word.partition("=")[::2] for word in (text or "").split()]
        else:
            text = host.text(f"{ROOT}/blkio/{path}/blkio.throttle.io_service_bytes_recursive")
            names = ("Read", "Write")
            counts = [
                (one[1], one[2]) for line in (text or "").splitlines() if len(one := line.split()) == _V1_FIELDS
            ]
        if text is None:
            return {}
        # Where no device was used there is no line.
        return {
            measure: float(sum(int(value) for name, value in counts if name == wanted and value.isdecimal()))
            for measure, wanted in zip((IO_READ, IO_WRITTEN), names, strict=True)
        }

    def cost_meter(self, path: str) -> CostMeter:
        """Return what tells the cost of a cgroup: the latest figures while it is there, else those of now."""
        before = self.cost(path)
        if not before:
            _tell_once(path.rpartition("/")[0])

        def read() -> dict[str, float]:
            return before | self.cost(path)

        return read

    def memory_directory(self, path: str) -> Path:
        """Return the directory that has the memory files of the cgroup `path`, which begins at the root."""
        return Path(ROOT, "memory" if self.version == 1 else "", path.lstrip("/"))


_V1_FIELDS: Final = 3
"""Of a line of blkio: the device, what was done, and how many bytes; the last line is a sum of two."""


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _counters(text: str | None) -> dict[str, int]:
    pairs = (line.partition(" ")[::2] for line in (text or "").splitlines())
    return {name: int(value) for name, value in pairs if value.isdecimal()}


@cache
def _tell_once(parent: str) -> None:
    log.warning(
        "nobody can tell what jobs cost: there are no counters of a container's control group below %s (%s)",
        ROOT,
        parent,
    )


@cache
def are_writable() -> bool:
    """Return whether this process may make cgroups; in a container they are often mounted read-only."""
    first = Path(ROOT, _CONTROLLER)
    return os.access(first if first.is_dir() else ROOT, os.W_OK)


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
    second, path = _group_of(pid, identity, files)
    return Path(ROOT, "" if second else _CONTROLLER, path.lstrip("/")) if path else None


def cgroup_path(pid: int, identity: str, files: HostFiles | None = None) -> str | None:
    """Return the path of that cgroup below the root of its hierarchy; None where that cannot be told."""
    return _group_of(pid, identity, files)[1] or None


def _group_of(pid: int, identity: str, files: HostFiles | None) -> tuple[bool, str]:
    """Return whether version 2 limits a container's memory, and its path there; empty where that is not known."""
    found: dict[bool, str] = {}
    for line in ((files or LiveHostFiles()).text(f"/proc/{pid}/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if _CONTROLLER in controllers.split(",") or number == "0":
            found[number == "0"] = path
    # A host that has both versions limits memory with the first (cgroups(7)).
    second = False not in found
    path = found.get(second, "")
    return second, path if identity and identity in path else ""
