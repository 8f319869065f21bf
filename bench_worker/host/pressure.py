"""Reads how much a host's work was held up: pressure, time stolen or in soft interrupts, the load process's own wait.

A reading is some 0.1 ms of CPU: one at each sampling interval, and one before and after the measurement of the
host's speed before a trial, so that what a row counts lies in one trial as far as it can.

The kernel brings ``total`` of /proc/pressure up to date at each reading, with what waits at that moment; only the
averages beside it, which are not used, change every two seconds. A wait for a CPU in /proc/PID/schedstat counts when
it is over.

Sources: Documentation/accounting/psi.rst, Documentation/scheduler/sched-stats.rst and kernel/sched/psi.c of Linux.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench_worker.host.procfs import HostFiles, LiveHostFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_worker.host.sampler import Row

SOURCE: Final = "pressure"
"""The source of the rows among a run's samples."""
RESOURCES: Final = ("cpu", "io", "memory")
_TICKS: Final = ("cpu_ticks", "steal_ticks", "softirq_ticks")
UNITS: Final[Mapping[str, str]] = {
    "time_ns": "ns",
    "interval_ns": "ns",
    **{f"{name}_some_ns": "ns" for name in RESOURCES},
    "load_wait_ns": "ns",
    **dict.fromkeys(_TICKS, "USER_HZ"),
}
"""Unit of every column. `time_ns` is CLOCK_MONOTONIC after the reading; all others are since the row before.

`*_some_ns` is time in which some task waited for a CPU, for input and output, or for memory; the kernel weighs its
CPUs by how busy they are. `load_wait_ns` is how long the main thread of this worker's load process waited for a CPU,
NaN where it is unknown. `cpu_ticks` is all time of all CPUs, with `steal_ticks` (taken by the hypervisor) and
`softirq_ticks` in it. What the host does not show has no column.
"""
_SOFTIRQ: Final = 6
_STEAL: Final = 7
"""Places in the first line of /proc/stat; the first eight columns are all time."""
_LEAST_WORDS: Final = 5
"""User, nice, system and idle time are on every kernel."""
_NAN: Final = float("nan")


def parse_pressure(text: str | None) -> int | None:
    """Return ``total`` of the line ``some`` of /proc/pressure/RESOURCE, in ns; None without it."""
    for line in (text or "").splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind == "some" and total.isdecimal():
            return int(total) * 1000
    return None


def parse_shares(text: str | None) -> dict[str, int] | None:
    """Return the columns of /proc/stat's first line; those that an old kernel lacks are 0; None without the line."""
    words = (text or "").partition("\n")[0].split()
    if len(words) < _LEAST_WORDS or words[0] != "cpu" or not all(word.isdecimal() for word in words[1:]):
        return None
    values = [int(word) for word in words[1 : _STEAL + 2]]
    values += [0] * (_STEAL + 1 - len(values))
    return dict(zip(_TICKS, (sum(values), values[_STEAL], values[_SOFTIRQ]), strict=True))


def parse_run_delay(text: str | None) -> int | None:
    """Return how long a thread has waited for a CPU, by its schedstat, in ns; None where it does not say."""
    words = (text or "").split()
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None


class PressureSampler:
    """Gives a row for each call of `sample`; the first reading is taken now.

    `load_pid` gives the process that runs this worker's jobs, None while there is none.
    """

    units = UNITS

    def __init__(
        self,
        load_pid: Callable[[], int | None],
        files: HostFiles | None = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._load_pid = load_pid
        self._files: HostFiles = files or LiveHostFiles()
        self._clock = clock
        self._pid: int | None = None
        self._previous = self._read()
        self.columns = ("time_ns", "interval_ns", *self._previous)
        """What this host can give."""
        self._time_ns = clock()

    def sample(self) -> Row:
        """Return a row: a value for each of `columns`; NaN where a file gives nothing any more."""
        before_ns, before, pid = self._time_ns, self._previous, self._pid
        now, now_ns = self._read(), self._clock()
        self._time_ns = now_ns
        self._previous = {name: now.get(name, _NAN) for name in before}
        row: Row = {"time_ns": now_ns, "interval_ns": now_ns - before_ns}
        for name, old in before.items():
            row[name] = self._previous[name] - old
        if pid != self._pid and "load_wait_ns" in row:
            row["load_wait_ns"] = _NAN
        return row

    def _read(self) -> dict[str, int | float]:
        found: dict[str, int | float] = {}
        for name in RESOURCES:
            total = parse_pressure(self._files.text(f"/proc/pressure/{name}"))
            if total is not None:
                found[f"{name}_some_ns"] = total
        self._pid = self._load_pid()
        delay = None if self._pid is None else parse_run_delay(self._files.text(f"/proc/{self._pid}/schedstat"))
        found["load_wait_ns"] = _NAN if delay is None else delay
        return found | (parse_shares(self._files.text("/proc/stat")) or {})
