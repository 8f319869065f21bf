"""Packing: the containers of a trial exist at the same time, created one by one until all run or the host is full.

Each job waits for its turn, creates its container and reaches its ``hold``. When every job has reached it, or the
host is full, all hold together; then they continue, one operation of one job at a time, first in first out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, monotonic_ns
from typing import Final

import gevent
from gevent.event import Event
from msgspec import Struct

from bench_common.treatment import HostState, Operation, StopCondition
from bench_worker.engines.base import OperationResult
from bench_worker.hold_meter import HoldMeter
from bench_worker.host.procfs import CpuTicks, HostFiles, LiveHostFiles, parse_meminfo, parse_stat

ALL_PACKED: Final = "as many as asked for"


class PackingResult(Struct, frozen=True):
    """How a packing ended."""

    trial: int
    """The index of the trial."""
    containers: int
    """How many containers are held."""
    reason: str
    """Why no more containers are held."""
    full: bool
    """Whether the host is full: the stop condition holds, or a container could not be created."""
    returned: tuple[int, ...]
    """Tickets of the jobs that did not start and are returned to the master."""
    hold_s: float
    """How long the containers are held, in seconds."""
    memory_before: int
    """Bytes of the host's memory that were in use before the first container."""
    unread: str
    """Why containers' own control groups are not read; empty if they are."""


class JobReturned(gevent.GreenletExit):
    """The host is full at a job's turn: the job does not start and is returned to the master."""


class HostStateReader:
    """Reads the host's state for stop conditions; CPU time is counted since the previous reading."""

    def __init__(self, files: HostFiles | None = None) -> None:
        self._files: HostFiles = files or LiveHostFiles()
        self._cpu = self._ticks()

    def __call__(self) -> HostState:
        """Return the host's current state; raise `ValueError` if /proc is not readable."""
        before, self._cpu = self._cpu, self._ticks()
        memory = parse_meminfo(self._files.text("/proc/meminfo") or "")
        spent = [
            max(0, getattr(self._cpu, name) - getattr(before, name))
            for name in ("idle", "iowait", "user", "system", "steal")
        ]
        idle = 100.0 * sum(spent[:2]) / sum(spent) if sum(spent) else 100.0
        return HostState(memory.total, memory.available, memory.swap_total, memory.swap_used, idle)

    def _ticks(self) -> CpuTicks:
        return parse_stat(self._files.text("/proc/stat") or "").cpu


class FifoLock:
    """A lock that jobs get in strict order of request; a semaphore lets the releasing job take it again."""

    def __init__(self) -> None:
        self._holder: int | None = None
        self._queue: deque[tuple[int, Event]] = deque()

    def take(self, ticket: int) -> None:
        """Wait for the lock."""
        if self._holder is None:
            self._holder = ticket
            return
        entry = (ticket, Event())
        self._queue.append(entry)
        try:
            entry[1].wait()
        except BaseException:
            if entry in self._queue:
                self._queue.remove(entry)
            self.release(ticket)
            raise

    def release(self, ticket: int) -> None:
        """Pass the lock to the next job, if this job holds it."""
        if self._holder != ticket:
            return
        self._holder = None
        if self._queue:
            self._holder, called = self._queue.popleft()
            called.set()


class Packing:
    """One trial's packing on one worker. `on_result` gets the result once, when the hold begins."""

    def __init__(
        self,
        trial: int,
        operations: Sequence[Operation],
        until: StopCondition | None,
        on_result: Callable[[PackingResult], None],
    ) -> None:
        self.position = next(place for place, one in enumerate(operations) if one.kind == "hold")
        self._hold_s = operations[self.position].seconds or 0.0
        self._sleeps = [one.kind == "sleep" for one in operations]
        self.trial = trial
        self._until = until
        self._on_result = on_result
        self._look = HostStateReader()
        before = self._look()
        self._memory_before = before.memory_total - before.memory_available
        self._turn = FifoLock()
        self._outside: dict[int, None] = {}
        self._starting: set[int] = set()
        self._container_count = 0
        self._full: str | None = None
        self._unread = ""
        self._released = Event()
        self._hold_ends_at = 0.0

    def expect(self, tickets: Iterable[int]) -> None:
        """Add the tickets of jobs to pack."""
        self._outside.update(dict.fromkeys(tickets))

    def before(self, ticket: int, position: int) -> None:
        """Wait for a job's turn if its operation needs one; raise `JobReturned` if the host is full."""
        if position == 0:
            self._turn.take(ticket)
            if self._full is not None:
                self.job_ended(ticket)
                raise JobReturned
            self._outside.pop(ticket, None)
            self._starting.add(ticket)
        elif position > self.position and not self._sleeps[position]:
            self._turn.take(ticket)

    def after(self, ticket: int, position: int) -> None:
        """Pass the turn to the next job after an operation that follows the hold."""
        if position > self.position:
            self._turn.release(ticket)

    def hold(self, ticket: int, meter: HoldMeter | None = None) -> OperationResult:
        """Count a job's container as up and hold it as long as all others; the result's times begin here.

        `meter` reads what the container takes meanwhile.
        """
        start_ns = monotonic_ns()
        if meter is not None:
            self._unread = self._unread or meter.unread
        self._starting.discard(ticket)
        self._container_count += 1
        if self._until is not None and self._full is None and self._outside:
            reason = self._until.reason_if_met(self._look())
            if reason is not None:
                self._full = reason
        self._turn.release(ticket)
        self._begin_when_packed()
        self._released.wait()
        if meter is not None:
            meter.begin()
        gevent.sleep(max(0.0, self._hold_ends_at - monotonic()))
        done = OperationResult(start_ns, monotonic_ns())
        if meter is not None:
            meter.end()
        return done

    def job_ended(self, ticket: int, failure: str | None = None) -> None:
        """Remove an ended job; a container that could not be created (`failure`: why) may end the packing."""
        self._outside.pop(ticket, None)
        if ticket in self._starting:
            self._starting.discard(ticket)
            if failure is not None and self._until is not None and self._full is None:
                self._full = f"a container could not be made: {failure}"
        self._turn.release(ticket)
        self._begin_when_packed()

    def _begin_when_packed(self) -> None:
        """Begin the hold when every job is packed or the host is full."""
        if self._released.is_set() or self._starting or (self._outside and self._full is None):
            return
        if not self._container_count and self._full is None:
            return  # no job has reached its hold, so none waits
        returned = tuple(self._outside)
        self._outside.clear()
        self._hold_ends_at = monotonic() + self._hold_s
        self._released.set()
        full = self._full is not None
        self._on_result(
            PackingResult(
                self.trial,
                self._container_count,
                self._full or ALL_PACKED,
                full,
                returned,
                self._hold_s,
                self._memory_before,
                self._unread,
            )
        )
