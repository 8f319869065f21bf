"""Slots that run jobs, and the queue that releases the jobs of an open system when they arrive.

`Slots` keeps one greenlet for each unit of concurrency, all fed from one deque, and creates none per job. A callback
of the loop wakes an idle slot, which wakes the next one if more orders wait: a batch costs the receiver one call.
`TimerFd` fires within microseconds of an instant: its file descriptor (timerfd_create(2)) becomes readable in time,
while the loop's timers are as coarse as epoll_wait(2), up to a millisecond late, which is longer than many jobs take.
`ArrivalQueue` uses it to hold back each order of an open system until the job arrives.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any, Final, Generic, TypeVar

import gevent
from greenlet import greenlet

from bench_common.records import ASSIGNMENT_FIELDS

log = logging.getLogger(__name__)


Item = TypeVar("Item")

PASSED_WITHIN_S: Final = 0.001
"""How long results may wait for further ones while the slots have enough orders, in seconds."""


class JobAborted(gevent.GreenletExit):
    """Raised in a slot to abort its job."""


class Slots(Generic[Item]):
    """Runs `execute(order)` for each order of `put`, first in first out, at most `limit` (up to `most`) at once.

    `passed` is called in the pass of the loop that follows a `put` or `schedule_pass`; by then, orders that never
    wait are done. While orders wait for a slot, it is called once for the passes of `PASSED_WITHIN_S`.
    """

    def __init__(self, most: int, execute: Callable[[Item], None], passed: Callable[[], None] = lambda: None) -> None:
        self.limit = most
        self._most = most
        self._execute = execute
        self._after_pass = passed
        self._orders: deque[Item] = deque()
        self._idle: list[greenlet] = []
        self._greenlets: list[greenlet] = []
        self._loop = gevent.get_hub().loop
        self._later: Any = self._loop.timer(0.0, PASSED_WITHIN_S)
        self.pass_scheduled = False
        """Whether a pass is scheduled, which wakes one more slot if orders wait."""
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many orders no slot has taken yet."""
        return len(self._orders)

    @property
    def made(self) -> int:
        """How many slots exist; each is created when it is first needed."""
        return len(self._greenlets)

    def put(self, orders: Sequence[Item]) -> None:
        """Queue orders and schedule a slot for them."""
        self._orders.extend(orders)
        self.schedule_pass()

    def cancel_queued(self) -> list[Item]:
        """Remove and return all orders that no slot has taken yet."""
        orders = list(self._orders)
        self._orders.clear()
        return orders

    def schedule_pass(self) -> None:
        """Schedule a call of `passed` for when the running greenlet waits or ends."""
        if not self.pass_scheduled:
            self.pass_scheduled = True
            self._loop.run_callback(self._pass)

    def _pass(self) -> None:
        """Wake one more slot if orders wait; that slot schedules the next one if more orders wait."""
        self.pass_scheduled = False
        try:
            if not self._orders:
                self._after_pass()
            elif not self._later.active:
                self._later.again(self._pass_later, update=True)
        finally:
            if self._orders and self.running < self.limit:
                self._wake()

    def _pass_later(self) -> None:
        self._later.stop()
        self._after_pass()

    def _wake(self) -> None:
        if self._idle:
            self._idle.pop().switch()
        elif len(self._greenlets) < self._most:
            self._greenlets.append(gevent.spawn(self._serve))

    def _serve(self) -> None:
        orders, hub, me = self._orders, gevent.get_hub(), gevent.getcurrent()
        while True:
            while not orders or self.running >= self.limit:
                self._idle.append(me)
                hub.switch()
            order = orders.popleft()
            self.running += 1
            # Not needed if jobs never wait: then the queue is empty by the next pass.
            if orders and not self.pass_scheduled and self.running < self.limit:
                self.schedule_pass()
            try:
                self._execute(order)
            except JobAborted:
                log.debug("a job was called off when it was over already")
            except Exception:  # a slot must survive: all later jobs need it
                log.exception("a slot goes on after what escaped from the job of %r", order)
            self.running -= 1


_CLOCK_MONOTONIC: Final = 1
_TFD_NONBLOCK: Final = os.O_NONBLOCK
_TFD_CLOEXEC: Final = os.O_CLOEXEC
_TFD_TIMER_ABSTIME: Final = 1
_S_NS: Final = 10**9


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class TimerFd:
    """Calls `ring()` in the loop when CLOCK_MONOTONIC reaches the instant of the last `set`."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._callback = ring
        self._watcher = gevent.get_hub().loop.io(self._fd, 1)
        self._watcher.start(self._on_expiry)

    def set(self, at_ns: int) -> None:
        """Fire at an instant (ns of CLOCK_MONOTONIC), at once if it has passed; this replaces any earlier instant."""
        # A value of zero would disarm the timer.
        seconds, nanoseconds = divmod(max(1, at_ns), _S_NS)
        value = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(value), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """Disarm and close the timer."""
        self._watcher.stop()
        self._watcher.close()
        os.close(self._fd)

    def _on_expiry(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the timer was set again in the same pass of the loop
            os.read(self._fd, 8)
            self._callback()


INTENDED_NS_COLUMN: Final = ASSIGNMENT_FIELDS.index("intended_ns")


class ArrivalQueue:
    """Passes each order of `put` to `admit(orders)` at its arrival instant, at once if that has passed."""

    def __init__(self, admit: Callable[[Sequence[Sequence[int]]], None]) -> None:
        self._admit = admit
        self._held: list[tuple[int, Sequence[int]]] = []
        self._timer = TimerFd(self._open)

    def __len__(self) -> int:
        return len(self._held)

    def put(self, orders: Sequence[Sequence[int]]) -> None:
        """Add orders, each a sequence of the values of `records.ASSIGNMENT_FIELDS`."""
        for order in orders:
            heapq.heappush(self._held, (order[INTENDED_NS_COLUMN], order))
        self._open()

    def cancel_queued(self) -> list[Sequence[int]]:
        """Remove and return all orders that are not due yet."""
        orders = [order for _, order in self._held]
        self._held.clear()
        return orders

    def close(self) -> None:
        """Stop admitting orders."""
        self._timer.close()

    def _open(self) -> None:
        held, now = self._held, monotonic_ns()
        due = []
        while held and held[0][0] <= now:
            due.append(heapq.heappop(held)[1])
        if held:
            self._timer.set(held[0][0])
        if due:
            self._admit(due)
