"""Stamps the instant at which an answer arrives at a socket, however late the event loop gets round to reading it.

While greenlets queue for the processor an answer lies in its socket, and a stamp taken by the greenlet that reads it
counts our own queue as the engine's time. A native thread waits for the sockets too, with real-time priority where it
may, and does nothing but note when each became readable. It needs the interpreter for that, for which it waits about
its switch interval at most (half a millisecond in a load process), and mostly not at all, since the loop lets go of
it at each system call. How long that was goes with the stamp (see `bench_worker.timing.ready_waiter`).
"""

from __future__ import annotations

import ctypes
import termios
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gevent.monkey import get_original

from bench_worker.timing.ready_waiter import EDGE, IN, ReadyWaiter, prioritize_thread
from bench_worker.timing.stamps import LoopTimer, quick_libc

if TYPE_CHECKING:
    from collections.abc import Iterator

_native_lock = get_original("_thread", "allocate_lock")
_native_thread = get_original("_thread", "start_new_thread")
_native_poll = get_original("select", "poll")

_loop_timer = LoopTimer()


class SocketArrival:
    """When bytes last arrived, in nanoseconds of CLOCK_MONOTONIC.

    At `expected_ns` there were none yet (0: there were some already); from `watched_ns` on their coming is noticed.
    """

    __slots__ = ("_noticed", "expected_ns", "watched_ns")

    def __init__(self, expected_ns: int) -> None:
        self.expected_ns = expected_ns
        self.watched_ns = 0
        self._noticed = 0, 0, 0

    def notice(self, waiting_bytes: int, earliest_ns: int, noticed_ns: int) -> None:
        """Note that at `noticed_ns` so many bytes lay there, the last of which came not before `earliest_ns`."""
        self._noticed = waiting_bytes, earliest_ns, noticed_ns  # at once, whoever reads it meanwhile

    def earliest_at(self, read_ns: int) -> int:
        """Return the earliest instant at which the last of the bytes that were read by `read_ns` can have come in."""
        if not self.expected_ns:
            return 0
        _, by_thread_ns, noticed_ns = self._noticed
        # What was noticed later than the reading may have been other bytes.
        if self.watched_ns < by_thread_ns and noticed_ns <= read_ns:
            return by_thread_ns
        # The greenlet was quicker, or the thread's word is not of these bytes: the loop's last wait brought them.
        return max(self.expected_ns, _loop_timer.earliest_ns())

    def latest_at(self, read_ns: int, count: int) -> int:
        """Return when the last of the `count` bytes that were read by `read_ns` had come in, as far as anybody knows.

        Where more was read than had been noticed, the rest arrived too late for a stamp of its own: it is only known
        to be here.
        """
        waiting_bytes, _, noticed_ns = self._noticed
        if count > waiting_bytes:
            return read_ns
        return min(noticed_ns or read_ns, read_ns)


class SocketArrivalWatcher:
    """Watches the sockets that somebody is waiting to read from."""

    def __init__(self) -> None:
        self._expected: dict[int, SocketArrival] = {}
        self._lock = _native_lock()
        self._waiter: ReadyWaiter | None = None
        """Made with the thread: before that this process may be copied, and the copy would take its events."""

    @contextmanager
    def watch_socket(self, fd: int) -> Iterator[SocketArrival]:
        """Note when bytes come in at `fd` while the body reads from it. What is readable already is not watched."""
        arrival = SocketArrival(time.monotonic_ns())
        if _readable(fd):
            arrival.expected_ns = 0
            yield arrival
            return
        with self._lock:
            if self._waiter is None:
                self._waiter = ReadyWaiter()
                _native_thread(self._watch, (self._waiter,))
            waiter = self._waiter
        self._expected[fd] = arrival
        # Edge-triggered: one event an arrival, so that the stamp is that of the last bytes that a late reader gets.
        waiter.register(fd, IN | EDGE)
        arrival.watched_ns = time.monotonic_ns()
        try:
            yield arrival
        finally:
            del self._expected[fd]
            with suppress(OSError):
                # Somebody closed it meanwhile, which unregisters it as well.
                waiter.unregister(fd)

    def _watch(self, waiter: ReadyWaiter) -> None:
        prioritize_thread()
        while True:
            for fd in waiter.wait():
                arrival = self._expected.get(fd)
                # An event may be a relic of an earlier expectation on the same number: then there is nothing to read,
                # or what there is has come since and brings an event of its own.
                if arrival is None:
                    continue
                # Counted before the stamp, which is then not earlier than any byte that was counted.
                waiting_bytes = _waiting_bytes(fd)
                if waiting_bytes or _readable(fd):
                    arrival.notice(waiting_bytes, waiter.earliest_ns, time.monotonic_ns())


def _readable(fd: int) -> bool:
    poll = _native_poll()
    poll.register(fd, IN)
    return bool(poll.poll(0))


def _waiting_bytes(fd: int) -> int:
    """Return how many bytes can be read; 0 also where the other side has ended, or where the file is closed."""
    count = ctypes.c_int()
    if quick_libc().ioctl(fd, ctypes.c_ulong(termios.FIONREAD), ctypes.byref(count)) < 0:
        return 0
    return count.value


SOCKET_ARRIVALS = SocketArrivalWatcher()
"""The process's own: one thread is enough for all sockets."""
