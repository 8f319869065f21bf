"""Waits in a native thread until descriptors are ready, and says how early they can have been ready.

A thread that waits with `select.epoll` knows when its wait ended only once it has the interpreter again, and cannot
tell how long it had to wait for that. So this one waits with ppoll(2), which writes back how much of its timeout is
left: the kernel itself says how long the wait was, before the thread asks for the interpreter. What is ready is then
collected without letting go of the interpreter, and before the stamp, so that nothing comes in between.

The thread asks for real-time priority (SCHED_FIFO, sched(7)), so that it does not queue for a CPU behind the load
that it times. That needs CAP_SYS_NICE; without it the queueing counts in the bound.

A hypervisor may be slow to run a virtual CPU that sleeps, and whoever is woken there hears of the event late. So a
second thread, on the other CPUs, waits for the same descriptors: the CPU on which the event happens is awake, and
mostly one of the two is woken there. The second does nothing but wait. The kernel writes into memory how long that
took, where the first one reads it; what is earlier counts. What is left of such delays is measured: see
`bench_worker.timing.wake_ups`.

Where the system call's number is not known (an odd architecture), the wait is one with `select.epoll`, and its bound
the one of `bench_worker.timing.stamps.WaitTimer`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from gevent.monkey import get_original

from bench_common.eventloop import MIN_WAIT_NS
from bench_worker.timing.stamps import SchedDelay, WaitTimer, earliest_ns, quick_libc
from bench_worker.timing.wake_ups import WAKE_UPS, WakeUps

_native_lock = get_original("_thread", "allocate_lock")
_native_thread = get_original("_thread", "start_new_thread")
_native_epoll = get_original("select", "epoll")

IN: Final = 0x001
"""EPOLLIN, by value: gevent takes the names out of the select module together with the class."""
EDGE: Final = 1 << 31

_PPOLL_NUMBERS: Final = {"x86_64": 271, "aarch64": 73, "riscv64": 73, "loongarch64": 73, "ppc64le": 281, "s390x": 302}
"""The number of ppoll: libc's own function hides from its caller what the kernel writes into the timeout."""
_PPOLL: Final = _PPOLL_NUMBERS.get(platform.machine(), 0) if struct.calcsize("@l") == 8 else 0  # noqa: PLR2004
_TIMEOUT_S: Final = 3600
_TIMEOUT_NS: Final = _TIMEOUT_S * 1_000_000_000
_SIGNAL_SET_BYTES: Final = 8
_MAX_EVENTS: Final = 256
_LOWEST_PRIORITY: Final = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanos", ctypes.c_long))


class _PollDescriptor(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _Event(ctypes.Structure):
    # <sys/epoll.h>: packed on x86-64 only. `select.epoll` fills half of the union that holds the descriptor.
    _gap = () if platform.machine() == "x86_64" else (("gap", ctypes.c_int32),)
    _fields_ = (("events", ctypes.c_uint32), *_gap, ("fd", ctypes.c_int32), ("unused", ctypes.c_int32))


class _TimedWait:
    """One thread's waits in ppoll for one descriptor, and what the kernel writes of them."""

    def __init__(self, fd: int) -> None:
        self._blocking = ctypes.CDLL(None)
        self._left = _Timespec()
        self._polled = _PollDescriptor(fd, IN, 0)
        number, null = ctypes.c_long(_PPOLL), ctypes.c_void_p()
        left, polled = ctypes.byref(self._left), ctypes.byref(self._polled)
        self._ppoll = (number, polled, ctypes.c_long(1), left, null, ctypes.c_size_t(_SIGNAL_SET_BYTES))
        self.entered_ns = 0

    def wait(self) -> None:
        """Wait until the descriptor is ready."""
        # In this order: another thread may read `woken_ns` meanwhile.
        self._left.seconds, self._left.nanos = _TIMEOUT_S, 0
        self.entered_ns = time.monotonic_ns()
        self._blocking.syscall(*self._ppoll)

    @property
    def over(self) -> bool:
        """Whether the last wait is over, by the kernel's word; the thread itself may not know yet."""
        return bool(self._left.seconds != _TIMEOUT_S and self._left.nanos)

    @property
    def woken_ns(self) -> int:
        """When the last wait was over (CLOCK_MONOTONIC)."""
        left_ns: int = self._left.seconds * 1_000_000_000 + self._left.nanos
        return self.entered_ns + _TIMEOUT_NS - left_ns


class _Scout:
    """The second thread, which waits for the same as the first on CPUs of its own."""

    def __init__(self, fd: int, cpus: Sequence[int]) -> None:
        self._wait = _TimedWait(fd)
        self._cpus = cpus
        self._gate = _native_lock()
        self._gate.acquire()
        _native_thread(self._serve, ())

    def rearm(self) -> None:
        """Let this thread wait for what comes next, if its last wait is over: what that brought was collected."""
        if self._wait.over and self._gate.locked():
            self._gate.release()

    def woken_between(self, entered_ns: int, woken_ns: int) -> int:
        """Return when this thread was woken, if that was between these instants, and the later of them otherwise.

        What woke it before the other thread began its wait, at `entered_ns`, is what the other one had before.
        """
        if self._wait.over:
            own_ns = self._wait.woken_ns
            if entered_ns < own_ns < woken_ns:
                return own_ns
        return woken_ns

    def _serve(self) -> None:
        prioritize_thread()
        with suppress(OSError):
            os.sched_setaffinity(0, self._cpus)
        while True:
            self._wait.wait()
            # Until the other thread has collected what is ready the next wait would be over at once.
            self._gate.acquire()


class ReadyWaiter:
    """The descriptors that one native thread waits for. Any thread may register and unregister them."""

    def __init__(self, wake_ups: WakeUps = WAKE_UPS) -> None:
        self._wake_ups = wake_ups
        self._epoll: Any = _native_epoll()
        self.register = self._epoll.register
        """As `select.epoll.register`: a descriptor and its events, `IN` or ``IN | EDGE``."""
        self.unregister = self._epoll.unregister
        """As `select.epoll.unregister`."""
        self.earliest_ns = 0
        """The earliest instant at which what `wait` returned can have been ready (CLOCK_MONOTONIC)."""
        self.woken_ns = 0
        """When that wait was over, by the kernel and the thread's own account; 0 where it may have ended at once.

        What was ready then was so before, by as much as this host may be late with waking a thread.
        """
        self._before_ns = time.monotonic_ns()
        """What is ready next was not ready at this instant."""
        self._fallback: WaitTimer | None = None if _PPOLL else WaitTimer()
        self._delay: SchedDelay | None = None
        self._wait = _TimedWait(self._epoll.fileno())
        self._scout: _Scout | None = None
        self._events = (_Event * _MAX_EVENTS)()
        self._collect = (ctypes.c_int(self._epoll.fileno()), self._events, ctypes.c_int(_MAX_EVENTS), ctypes.c_int(0))

    def wait(self) -> list[int]:
        """Wait until something is ready; return which descriptors are, none if that has passed already.

        Take the stamp of the latest possible instant after this has returned. Always call it in the same thread.
        """
        if self._fallback is not None:
            return self._wait_untimed(self._fallback)
        if self._delay is None:
            self._delay = SchedDelay()
            self._start_scout()
        if self._scout is not None:
            self._scout.rearm()
        self._delay.read()
        self._wait.wait()
        collecting_ns = time.monotonic_ns()
        count = quick_libc().epoll_wait(*self._collect)
        entered_ns, woken_ns = self._wait.entered_ns, self._wait.woken_ns - self._delay.read()
        if self._scout is not None:
            woken_ns = self._scout.woken_between(entered_ns, woken_ns)
        self.woken_ns = woken_ns if woken_ns - entered_ns > MIN_WAIT_NS else 0
        self.earliest_ns = earliest_ns(entered_ns, woken_ns, self._wake_ups.allowance_ns, self._before_ns)
        if count < _MAX_EVENTS:
            self._before_ns = collecting_ns
        return [self._events[at].fd for at in range(count)]

    def _start_scout(self) -> None:
        """Share the CPUs with a second thread, if there are two."""
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) > 1:
            with suppress(OSError):
                os.sched_setaffinity(0, cpus[::2])
            self._scout = _Scout(self._epoll.fileno(), cpus[1::2])

    def _wait_untimed(self, timer: WaitTimer) -> list[int]:
        timer.enter()
        ready = self._epoll.poll()
        _, self.earliest_ns = timer.stamp()
        return [fd for fd, _ in ready]


def prioritize_thread() -> bool:
    """Give the calling thread real-time priority, the lowest one; say whether the kernel allows it.

    What it starts is scheduled as usual.
    """
    with suppress(OSError):
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(_LOWEST_PRIORITY))
        return True
    return False
