"""Resident slots: one greenlet for each unit of concurrency, all fed from one deque.

No greenlet is made per job. An idle slot is woken by a callback of the loop, and wakes the next one when there is
more to do, so that a batch of orders costs one call from the receiver. A slot outlives whatever escapes from a job.

An alarm on the event loop that rings within microseconds of an instant (timerfd_create(2)).

The loop's own timers are as coarse as epoll_wait(2): they ring up to a millisecond late, which is longer than many a
job that is to begin at that instant. The kernel's timer is a file descriptor that becomes readable in time.

Holds the orders of an open system back until their jobs arrive.
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
from typing import Final, Generic, TypeVar

import gevent
from greenlet import greenlet

from bench_common.records import ASSIGNMENT_FIELDS

log = logging.getLogger(__name__)


Item = TypeVar("Item")


class JobAborted(gevent.GreenletExit):
    """Thrown into a slot whose job is called off."""


class Slots(Generic[Item]):
    """Runs `execute(order)` for each order put in, in order of arrival, at most `limit` (of `most`) at once.

    `passed` is called in the pass of the loop after one in which orders came or `soon` was called: what a slot did
    until then, and those after it that never waited, is done.
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
        self.pass_scheduled = False
        """Whether the loop will come by, to see whether one more slot has something to do."""
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many orders no slot has taken yet."""
        return len(self._orders)

    @property
    def made(self) -> int:
        """How many slots there are by now: one is made when it is first needed."""
        return len(self._greenlets)

    def put(self, orders: Sequence[Item]) -> None:
        """Queue orders and see to it that a slot takes them."""
        self._orders.extend(orders)
        self.schedule_pass()

    def cancel_queued(self) -> list[Item]:
        """Take back all orders that no slot has taken yet."""
        orders = list(self._orders)
        self._orders.clear()
        return orders

    def schedule_pass(self) -> None:
        """Have `passed` called once whoever runs now waits or is done."""
        if not self.pass_scheduled:
            self.pass_scheduled = True
            self._loop.run_callback(self._pass)

    def _pass(self) -> None:
        """Let one more slot look for orders, where there are some; it sees to the next where there are more."""
        self.pass_scheduled = False
        try:
            self._after_pass()
        finally:
            if self._orders and self.running < self.limit:
                self._wake()

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
            # In vain where no job waits: then they are gone when the loop comes by.
            if orders and not self.pass_scheduled and self.running < self.limit:
                self.schedule_pass()
            try:
                self._execute(order)
            except JobAborted:
                log.debug("a job was called off when it was over already")
            except Exception:  # a slot that ended here would be missing to all jobs after this one
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
    """Calls `ring()` in the loop once CLOCK_MONOTONIC has reached the instant that was set last."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._callback = ring
        self._watcher = gevent.get_hub().loop.io(self._fd, 1)
        self._watcher.start(self._on_expiry)

    def set(self, at_ns: int) -> None:
        """Ring at an instant (ns of CLOCK_MONOTONIC), at once where it has passed, in place of any set before."""
        # A value of zero would switch it off.
        seconds, nanoseconds = divmod(max(1, at_ns), _S_NS)
        value = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(value), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """Never ring again."""
        self._watcher.stop()
        self._watcher.close()
        os.close(self._fd)

    def _on_expiry(self) -> None:
        with contextlib.suppress(BlockingIOError):  # set again in the same pass of the loop
            os.read(self._fd, 8)
            self._callback()


INTENDED_NS_COLUMN: Final = ASSIGNMENT_FIELDS.index("intended_ns")


class ArrivalQueue:
    """Lets each order of `put` through to `admit(orders)` at its own instant; those that are late go at once."""

    def __init__(self, admit: Callable[[Sequence[Sequence[int]]], None]) -> None:
        self._admit = admit
        self._held: list[tuple[int, Sequence[int]]] = []
        self._timer = TimerFd(self._open)

    def __len__(self) -> int:
        return len(self._held)

    def put(self, orders: Sequence[Sequence[int]]) -> None:
        """Take orders in, which are lists of `records.ASSIGNMENT_FIELDS`."""
        for order in orders:
            heapq.heappush(self._held, (order[INTENDED_NS_COLUMN], order))
        self._open()

    def cancel_queued(self) -> list[Sequence[int]]:
        """Take back all orders whose instants have not come."""
        orders = [order for _, order in self._held]
        self._held.clear()
        return orders

    def close(self) -> None:
        """Let nothing through any more."""
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
