"""Finds out who else takes the CPU of a host that has none left: not the harness, the engines or the measured jobs.

Processes are looked at only while the host has no idle CPU, and never for more than one part in two hundred of the
time. Of the workers of a run on one host a single one looks.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench_worker.host.procfs import HostFiles, LiveHostFiles, ProcessStat, read_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_worker.host.sampler import Row

MAX_IDLE_PERCENT: Final = 2.0
"""A host with less idle CPU than this has none."""
REPORT_INTERVAL_NS: Final = 4_000_000_000
"""How often a host that stays so is reported, in ns."""
SCAN_INTERVAL_FACTOR: Final = 200
"""Looking at all processes may take one part of so many of the time."""
MAX_NAME_CHARS: Final = 64
_KERNEL_THREADS: Final = 2
"""The process whose children are the kernel's threads."""
_MAX_ANCESTORS: Final = 64
_MODULE_OPTION: Final = "-m"
_CODE_OPTION: Final = "-c"
"""What follows it is a program's text."""
_INTERPRETERS: Final = ("python", "perl", "ruby", "node", "java", "bash", "sh", "dash")


class BusyPeriod(Struct, frozen=True):
    """A time in which a host had no idle CPU; instants are ns of CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int
    consumer: str
    """The name of the largest consumer that is none of ours; empty where there was none."""
    pid: int
    """Its process, of several the one that took most; 0 where there was none."""
    processes: int
    """How many processes have that name."""
    consumer_ns: int
    """CPU time that they took."""
    others_ns: int
    """CPU time that all processes took that are none of ours."""


class ContentionWatch:
    """Follows the samples of a host from now on; `report` gets each time without idle CPU.

    `family` is the process whose descendants are the harness and its jobs, `engines` the names of the engines' own
    processes, `servers` those that jobs use, which may be called anything. What the engines' started since now is a
    measured container. `leads()` says whether it is this worker that looks; `processes` are all of the host, if they
    have just been read.
    """

    def __init__(
        self,
        family: int,
        engines: frozenset[str],
        report: Callable[[BusyPeriod], None],
        *,
        leads: Callable[[], bool],
        processes: Mapping[int, ProcessStat] | None = None,
        servers: frozenset[int] = frozenset(),
        files: HostFiles | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._engines = engines
        self._ours = frozenset((family, _KERNEL_THREADS)) | servers
        self._report = report
        self._leads = leads
        self._files: HostFiles = files or LiveHostFiles()
        self._clock = clock
        self._tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
        self._due_ns = 0
        self._begin_ns = self._end_ns = 0
        self._spent: Counter[str] = Counter()
        self._spent_by: dict[str, Counter[int]] = {}
        self._before: Mapping[int, ProcessStat] = processes or {}
        self._first: frozenset[tuple[int, int]] = frozenset()
        if leads():
            if processes is None:
                self._scan()
            self._first = frozenset((one.pid, one.start_ticks) for one in self._before.values())

    def add(self, row: Row) -> None:
        """Take in a row of the host's samples; look at the processes if there was no idle CPU."""
        idle = row.get("cpu_idle_percent", 100.0) + row.get("cpu_iowait_percent", 0.0)
        if not idle < MAX_IDLE_PERCENT:
            self.flush()
            return
        if not self._leads():
            return
        end_ns = int(row["time_ns"])
        if not self._end_ns:
            self._begin_ns = end_ns - int(row["interval_ns"])
        self._end_ns = end_ns
        if self._clock() >= self._due_ns:
            self._compare()
        if end_ns - self._begin_ns >= REPORT_INTERVAL_NS:
            self.flush()

    def flush(self) -> None:
        """Report what was gathered."""
        if not self._end_ns:
            return
        name, spent_ns = max(self._spent.items(), key=lambda item: item[1], default=("", 0))
        by_pid = self._spent_by.get(name, Counter[int]())
        pid = max(by_pid, key=by_pid.__getitem__, default=0)
        self._report(
            BusyPeriod(
                self._begin_ns,
                self._end_ns,
                name,
                pid,
                len(by_pid),
                spent_ns,
                self._spent.total(),
            )
        )
        self._begin_ns = self._end_ns = 0
        self._spent, self._spent_by = Counter(), {}

    def _compare(self) -> None:
        before, now = self._before, self._scan()
        for pid, one in now.items():
            old = before.get(pid)
            known = old is not None and old.start_ticks == one.start_ticks
            ticks = one.own_ticks - (old.own_ticks if old is not None and known else 0)
            if ticks > 0 and not self._is_ours(one, now):
                name = describe_process(self._files, one)
                self._spent[name] += ticks * self._tick_ns
                self._spent_by.setdefault(name, Counter())[pid] += ticks

    def _scan(self) -> Mapping[int, ProcessStat]:
        begun_ns = self._clock()
        self._before = read_processes(self._files)
        took_ns = self._clock() - begun_ns
        self._due_ns = begun_ns + SCAN_INTERVAL_FACTOR * took_ns
        return self._before

    def _is_ours(self, one: ProcessStat, table: Mapping[int, ProcessStat]) -> bool:
        """Return whether it belongs to the harness, an engine, a server, the kernel, or a measured container."""
        if one.name in self._engines:
            return True
        seen: ProcessStat | None = one
        for _ in range(_MAX_ANCESTORS):
            if seen is None:
                return False
            if seen.pid in self._ours:
                return True  # also process 1: a master in a container is its first process
            if seen.pid <= 1:
                return False
            if seen.name in self._engines:
                return (one.pid, one.start_ticks) not in self._first
            seen = table.get(seen.parent)
        return False


def describe_process(files: HostFiles, one: ProcessStat) -> str:
    """Return the name of a process; of an interpreter with that of its script or module, and no other argument.

    What follows on a command line may be a secret.
    """
    if not one.name.startswith(_INTERPRETERS):
        return one.name
    words = [word for word in (files.text(f"/proc/{one.pid}/cmdline") or "").split("\0")[1:] if word]
    while words and words[0] != _MODULE_OPTION and words[0].startswith("-"):
        words = words[1:] if words[0] != _CODE_OPTION else []
    if words and words[0] == _MODULE_OPTION:
        words = words[1:]
    return f"{one.name} {PurePath(words[0]).name}"[:MAX_NAME_CHARS] if words else one.name


class HostLeader:
    """Is held by one worker of a run on each host, until its process ends. Nothing of it is on a disk."""

    def __init__(self, run_id: str) -> None:
        # An abstract name, as unix(7) has it: it vanishes with the socket.
        self._name = f"\0weighbridge-{os.getuid()}-{run_id}"
        self._socket: socket.socket | None = None

    def holds(self) -> bool:
        """Return whether this process is the leader, which it becomes if there is none."""
        if self._socket is None:
            mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                mine.bind(self._name)
            except OSError:
                mine.close()
                return False
            self._socket = mine
        return True

    def close(self) -> None:
        """Let another worker lead."""
        held, self._socket = self._socket, None
        if held is not None:
            with suppress(OSError):
                held.close()
