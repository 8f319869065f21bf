"""How much CPU time this harness took while a trial ran, and how much of its host's was idle meanwhile.

Read by the master at both ends of a trial, of itself and of the workers that it started on its host. A worker's agent
and its load process count; the processes of jobs are theirs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from bench_common.activity import child_pids

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_CPU_FIELDS: Final = slice(1, 9)
"""Of the first line of /proc/stat: user to steal. Time of guests is in user."""
_IDLE_FIELDS: Final = slice(3, 5)
"""Of these: idle and iowait."""
_INTERRUPT_FIELDS: Final = slice(5, 7)
"""Of these: interrupts and soft interrupts, which the harness's own messages cause as well as others do."""
QUIET_SHARE: Final = 0.05
"""Neighbours that take no more of the CPU time are quiet: what runs beside them is slower by as much at most."""


class _Reading(Struct, frozen=True):
    used_ns: dict[int, int]
    """CPU time by process, 0 for the master."""
    idle_ns: int
    total_ns: int
    """Of all CPUs of the host together."""


class HarnessWatch:
    """Reads the CPU time of the master and of `pids`, the agents of its local workers, and of what they started.

    Without `pids` nothing is read: a part of the harness is on other hosts.
    """

    def __init__(self, pids: Callable[[], Iterable[int]] | None) -> None:
        self._pids = pids
        self._began: _Reading | None = None

    def begin(self) -> None:
        """Note that a trial begins."""
        self._began = self._read()

    def end(self) -> dict[str, list[int]]:
        """Return as ``harness`` its CPU time, and of the host the idle and all of it, in ns since `begin`.

        Empty where that is not known: a worker was restarted meanwhile, or the kernel does not say.
        """
        before, now, self._began = self._began, self._read(), None
        if before is None or now is None or before.used_ns.keys() != now.used_ns.keys():
            return {}
        used_ns = sum(now.used_ns.values()) - sum(before.used_ns.values())
        found = (used_ns, now.idle_ns - before.idle_ns, now.total_ns - before.total_ns)
        return {"harness": [max(0, one) for one in found]}

    def _read(self) -> _Reading | None:
        if self._pids is None:
            return None
        try:
            used_ns = {0: time.process_time_ns()}
            for agent in self._pids():
                used_ns |= {pid: time.clock_gettime_ns(cpu_clock(pid)) for pid in (agent, *child_pids(agent))}
            ticks = _cpu_ticks()
        except (OSError, ValueError):
            return None
        return _Reading(used_ns, sum(ticks[_IDLE_FIELDS]) * _TICK_NS, sum(ticks) * _TICK_NS)


class Neighbours(Struct, frozen=True):
    """What was beside some processes of ours while they ran."""

    others: float
    """Share of the host's CPU time that others took, the hypervisor included."""
    idle_cpus: float
    """How many CPUs were idle, on average."""

    @property
    def are_quiet(self) -> bool:
        """Whether they slowed nothing down: they took little, or a CPU was idle that nobody wanted."""
        return self.others <= QUIET_SHARE or self.idle_cpus >= 1.0


class NeighbourWatch:
    """Reads what else the host does while this process and its children run; begins when it is made."""

    def __init__(self) -> None:
        self._ticks, self._own_s = _cpu_ticks(), _own_s()

    def end(self) -> Neighbours:
        """Return what there was since the beginning. The children have to be awaited by now, with theirs.

        Raises `OSError` or `ValueError` where the kernel does not say.
        """
        ticks = [now - before for now, before in zip(_cpu_ticks(), self._ticks, strict=True)]
        idle, interrupts, total = sum(ticks[_IDLE_FIELDS]), sum(ticks[_INTERRUPT_FIELDS]), max(1, sum(ticks))
        others = total - idle - interrupts - (_own_s() - self._own_s) * 1e9 / _TICK_NS
        return Neighbours(max(0.0, others / total), max(0, idle) / total * (os.cpu_count() or 1))


def _own_s() -> float:
    """Return the CPU time of this process and of its children that were awaited."""
    return sum(os.times()[:4])


def _cpu_ticks() -> list[int]:
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123  at both ends of each trial
        return [int(word) for word in file.readline().split()[_CPU_FIELDS]]


def cpu_clock(pid: int) -> int:
    """Return the clock of a process's CPU time, of all its threads: what clock_getcpuclockid(3) returns."""
    return (~pid << 3) | 2
