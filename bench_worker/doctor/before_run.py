"""The doctor's checks of load and neighbours, which a worker makes by itself before each run.

A worker begins a sample of its host while it waits for a run and ends it when a run admits it, so a run begins no
later for it. What the harness and the engines themselves do is nobody's neighbour.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from bench_worker.doctor.base import CHECKS, Finding, HostSnapshot, Level, run_checks
from bench_worker.doctor.checks import MAX_ANCESTORS
from bench_worker.host.procfs import HostFiles, LiveHostFiles, ProcessStat, ProcStat, parse_stat, read_processes

NEIGHBOUR_CHECKS: Final = ("load", "processes", "containers", "steal")
"""The checks that are made before each run."""
MAX_SAMPLE_S: Final = 30.0
"""How long a sample may become before it begins anew, in seconds."""
MIN_SAMPLE_S: Final = 0.3
"""A shorter sample tells nothing about CPU time, in seconds: a tick is 10 ms."""
_HARNESS: Final = ("bench-master", "bench-worker")
"""Other workers of the run, which a launcher may have started beside this one."""
_KERNEL_THREADS: Final = 2
"""The process whose children are the kernel's threads."""


class NeighbourSample:
    """A sample of this host that goes on until a run begins.

    `family` is the process whose descendants are the harness; its ancestors are no neighbours, either.
    """

    def __init__(
        self, family: int, files: HostFiles | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._family = family
        self._files: HostFiles = files or LiveHostFiles()
        self._clock = clock
        self._began_s = 0.0
        self._before: tuple[ProcStat | None, Mapping[int, ProcessStat]] | None = None

    def begin(self) -> None:
        """Begin a sample, unless one has begun that is not too long yet."""
        now = self._clock()
        if self._before is None or now - self._began_s > MAX_SAMPLE_S:
            self._began_s, self._before = now, self._read()

    def missing_s(self) -> float:
        """Return how long to wait, in seconds, until the sample is long enough to tell what runs."""
        return max(0.0, self._began_s + MIN_SAMPLE_S - self._clock()) if self._before is not None else 0.0

    def end(self, daemons: Collection[str], servers: Collection[int] = ()) -> HostSnapshot:
        """Return the sampled host, and forget the sample.

        `daemons` are the names of the engines' own processes, `servers` the processes of the servers that jobs use.
        """
        stat, after = self._read()
        enough = self._before is not None and self._clock() - self._began_s >= MIN_SAMPLE_S
        before, processes = self._before if enough and self._before is not None else (None, {})
        self._before = None
        return HostSnapshot(
            self._files, before, stat, processes, after, ours=_ours(after, self._family, daemons, servers)
        )

    def _read(self) -> tuple[ProcStat | None, Mapping[int, ProcessStat]]:
        text = self._files.text("/proc/stat")
        return (parse_stat(text) if text else None), read_processes(self._files)


def neighbour_findings(host: HostSnapshot) -> Iterator[Finding]:
    """Yield what makes the host unfit for a run that begins now; nothing for an idle one.

    A high load average counts only while something runs: it lasts for a minute after its cause, such as our last run.
    """
    found = [
        one
        for one in run_checks(host, [check for check in CHECKS if check.name in NEIGHBOUR_CHECKS])
        if one.level in (Level.WARNING, Level.PROBLEM)
    ]
    busy = any(one.check in ("processes", "steal") for one in found)
    yield from (one for one in found if busy or one.check != "load")


def _ours(
    table: Mapping[int, ProcessStat], family: int, daemons: Collection[str], servers: Collection[int]
) -> frozenset[int]:
    """Return the processes of the harness, its ancestors, the engines, the servers that jobs use and the kernel."""
    ours = {pid for pid, one in table.items() if one.name in daemons or one.name in _HARNESS}
    ours |= _chain(table, family)
    roots = (family, _KERNEL_THREADS, os.getpid(), *servers)
    return frozenset(ours | {pid for pid in table if not _chain(table, pid).isdisjoint(roots)})


def _chain(table: Mapping[int, ProcessStat], pid: int) -> set[int]:
    """Return a process and its ancestors."""
    found: set[int] = set()
    while pid in table and pid not in found and len(found) < MAX_ANCESTORS:
        found.add(pid)
        pid = table[pid].parent
    return found
