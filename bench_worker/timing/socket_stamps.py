"""Stamps the instant at which an answer arrives at a socket, however late the event loop gets round to reading it.

While greenlets queue for the processor an answer lies in its socket, and a stamp taken by the greenlet that reads it
counts our own queue as the engine's time. A native thread waits for the sockets too, with epoll, and does nothing but
note when each became readable. It needs the interpreter for that, for which it waits about its switch interval
(half a millisecond in a load process), and mostly not at all, since the loop lets go of it at each system call.
How long that and the wait for a CPU may have been goes with the stamp (see `bench_worker.timing.stamps`).
"""

from __future__ import annotations

import sys
import termios
import time
from contextlib import contextmanager, suppress
from fcntl import ioctl
from typing import TYPE_CHECKING

from gevent.monkey import get_original

from bench_worker.timing.stamps import LoopTimer, WaitTimer

if TYPE_CHECKING:
    from collections.abc import Iterator

_native_lock = get_original("_thread", "allocate_lock")
_native_thread = get_original("_thread", "start_new_thread")
_native_epoll = get_original("select", "epoll")
_native_poll = get_original("select", "poll")

# By value: gevent takes the names out of the select module together with the class.
_IN = 0x001
_EDGE = 1 << 31

_NO_COUNT = bytes(4)

_loop_timer = LoopTimer()


class SocketArrival:
    """When bytes last arrived, in nanoseconds of CLOCK_MONOTONIC; 0 until some are noticed.

    `earliest_ns` is the earliest instant at which those that were noticed can have come in, `noticed_bytes` how many
    lay there then. At `expected_ns` there were none yet (0: there were some already), and from `watched_ns` on their
    coming is noticed.
    """

    __slots__ = ("earliest_ns", "expected_ns", "noticed_bytes", "noticed_ns", "watched_ns")

    def __init__(self, expected_ns: int) -> None:
        self.expected_ns = expected_ns
        self.noticed_bytes = 0
        self.noticed_ns = 0
        self.earliest_ns = 0
        self.watched_ns = 0

    def earliest_at(self, read_ns: int) -> int:
        """Return the earliest instant at which the last of the bytes that were read by `read_ns` can have come in."""
        # Asked each time, since the answer counts what the loop has waited for a CPU since the last one.
        by_loop_ns = _loop_timer.earliest_ns()
        # What was noticed later than the reading may have been other bytes.
        if self.watched_ns < self.earliest_ns and self.noticed_ns <= read_ns:
            return self.earliest_ns
        # The greenlet was quicker, or the thread's word is not of these bytes: the loop's last wait brought them.
        return max(self.expected_ns, by_loop_ns) if self.expected_ns else 0

    def latest_at(self, read_ns: int, count: int) -> int:
        """Return when the last of the `count` bytes that were read by `read_ns` had come in, as far as anybody knows.

        Where more was read than had been noticed, the rest arrived too late for a stamp of its own: it is only known
        to be here.
        """
        if count > self.noticed_bytes:
            return read_ns
        return min(self.noticed_ns or read_ns, read_ns)


class SocketArrivalWatcher:
    """Watches the sockets that somebody is waiting to read from."""

    def __init__(self) -> None:
        self._expected: dict[int, SocketArrival] = {}
        self._epoll = _native_epoll()
        self._lock = _native_lock()
        self._running = False

    @contextmanager
    def watch_socket(self, fd: int) -> Iterator[SocketArrival]:
        """Note when bytes come in at `fd` while the body reads from it. What is readable already is not watched."""
        arrival = SocketArrival(time.monotonic_ns())
        if _readable(fd):
            arrival.expected_ns = 0
            yield arrival
            return
        with self._lock:
            if not self._running:
                self._running = True
                _native_thread(self._watch, ())
        self._expected[fd] = arrival
        # Edge-triggered: one event an arrival, so that the stamp is that of the last bytes that a late reader gets.
        self._epoll.register(fd, _IN | _EDGE)
        arrival.watched_ns = time.monotonic_ns()
        try:
            yield arrival
        finally:
            del self._expected[fd]
            with suppress(OSError):
                # Somebody closed it meanwhile, which unregisters it as well.
                self._epoll.unregister(fd)

    def _watch(self) -> None:
        rounds = WaitTimer()
        while True:
            rounds.enter()
            events = self._epoll.poll()
            # One stamp for all of them: each was there when the wait ended, and checking them takes time.
            stamped_ns, earliest_ns = rounds.stamp()
            for fd, _ in events:
                arrival = self._expected.get(fd)
                # An event may be a relic of an earlier expectation on the same number: then there is nothing to read,
                # or what there is has come since and brings an event of its own.
                if arrival is None or arrival.expected_ns >= stamped_ns:
                    continue
                # Counted first of all: each system call may keep this thread waiting for the interpreter afterwards.
                waiting_bytes = _waiting_bytes(fd)
                if waiting_bytes or _readable(fd):
                    arrival.noticed_bytes = waiting_bytes
                    arrival.earliest_ns = earliest_ns
                    arrival.noticed_ns = stamped_ns


def _readable(fd: int) -> bool:
    poll = _native_poll()
    poll.register(fd, _IN)
    return bool(poll.poll(0))


def _waiting_bytes(fd: int) -> int:
    """Return how many bytes can be read; 0 also where the other side has ended, or where the file is closed."""
    with suppress(OSError):
        return int.from_bytes(ioctl(fd, termios.FIONREAD, _NO_COUNT), sys.byteorder)
    return 0


SOCKET_ARRIVALS = SocketArrivalWatcher()
"""The process's own: one thread is enough for all sockets."""
