"""Samples of a control group: its memory and CPU time, under version 1 and version 2 of the kernel's interface.

Sources: Documentation/admin-guide/cgroup-v1/{memory,cpuacct}.rst and cgroup-v2.rst of the Linux kernel. Nothing that
ran in the group is missed, however short it lived, and its groups inside count too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeAlias

from bench_worker.host_files import HostFiles, LiveFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


ROOT: Final = "/sys/fs/cgroup"

CGROUP_UNITS: Final[Mapping[str, str]] = {"time_ns": "ns", "interval_ns": "ns", "cgroup_bytes": "B", "cpu_ns": "ns"}
"""Unit of every column. `cgroup_bytes` is what is charged to the group less file pages that it has not used
lately, which is what container engines show; `cpu_ns` is CPU time within `interval_ns`. A controller that is
not there gives NaN.
"""

_UNIFIED: Final = "unified"
"""Where version 2 is on a host that has both: without controllers, but with the CPU time of each group."""
_V1_MEMORY: Final = ("memory",)
_V1_CPU: Final = ("cpuacct", "cpu,cpuacct", "cpuacct,cpu")


class CgroupSampler:
    """Gives a row for each call of `sample`; the first reading is taken now.

    `path` is the group's, as /proc/PID/cgroup has it, or with ``/sys/fs/cgroup`` and a controller in front of it.
    """

    units = CGROUP_UNITS

    def __init__(
        self, path: str, files: HostFiles | None = None, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._files: HostFiles = files or LiveFiles()
        self._clock = clock
        self._path = _inner(path)
        self._time_ns = clock()
        self._cpu_ns = self._cpu()

    @property
    def found(self) -> bool:
        """Whether there is such a group."""
        return self._cpu() is not None or self._memory() is not None

    def sample(self) -> Row | None:
        """Return a row, of the time since the one before; None while there is no such group."""
        now_ns, cpu_ns, memory = self._clock(), self._cpu(), self._memory()
        before_ns, self._cpu_ns = self._cpu_ns, cpu_ns
        if cpu_ns is None and memory is None:
            return None
        interval_ns, self._time_ns = now_ns - self._time_ns, now_ns
        nan = float("nan")
        return {
            "time_ns": now_ns,
            "interval_ns": interval_ns,
            "cgroup_bytes": nan if memory is None else memory,
            # A group that was made anew begins at 0 again.
            "cpu_ns": nan if cpu_ns is None or before_ns is None else max(0, cpu_ns - before_ns),
        }

    def _memory(self) -> int | None:
        for places, usage, idle in (
            (("",), "memory.current", "inactive_file"),
            (_V1_MEMORY, "memory.usage_in_bytes", "total_inactive_file"),
        ):
            for place in places:
                charged = _number(self._read(place, usage))
                if charged is not None:
                    return max(0, charged - (_field(self._read(place, "memory.stat"), idle) or 0))
        return None

    def _cpu(self) -> int | None:
        used_us = _field(self._read("", "cpu.stat"), "usage_usec")
        if used_us is not None:
            return used_us * 1000
        found = (_number(self._read(place, "cpuacct.usage")) for place in _V1_CPU)
        used_ns = next((value for value in found if value is not None), None)
        if used_ns is None:
            used_us = _field(self._read(_UNIFIED, "cpu.stat"), "usage_usec")
        return used_ns if used_us is None else used_us * 1000

    def _read(self, controller: str, name: str) -> str | None:
        parts = (ROOT, controller, self._path, name)
        return self._files.text("/".join(part for part in parts if part))


def _inner(path: str) -> str:
    """Return the group's path below its hierarchy's root, without slashes around it."""
    inner = path.strip("/")
    root = ROOT.strip("/")
    if inner != root and not inner.startswith(f"{root}/"):
        return inner
    inner = inner[len(root) :].strip("/")
    first, _, rest = inner.partition("/")
    return rest if first in (*_V1_MEMORY, *_V1_CPU, _UNIFIED, "cpu") else inner


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _field(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value)
    return None
