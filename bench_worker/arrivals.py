"""Stamps the instant at which an answer arrives at a socket, however late the event loop gets round to reading it.

While greenlets queue for the processor an answer lies in its socket, and a stamp taken by the greenlet that reads it
counts our own queue as the engine's time. A native thread waits for the sockets too, with epoll, and does nothing but
note when each became readable. It needs the interpreter for that, for which it waits about its switch interval
(half a millisecond in a load process), and mostly not at all, since the loop lets go of it at each system call.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gevent.monkey import get_original

if TYPE_CHECKING:
    from collections.abc import Iterator

_native_lock = get_original("_thread", "allocate_lock")
_native_thread = get_original("_thread", "start_new_thread")
_native_epoll = get_original("select", "epoll")
_native_poll = get_original("select", "poll")

# By value: gevent takes the names out of the select module together with the class.
_IN = 0x001
_EDGE = 1 << 31


class Arrival:
    """When bytes last came in, in nanoseconds of CLOCK_MONOTONIC; 0 until some are noticed."""

    __slots__ = ("noticed_ns",)

    def __init__(self) -> None:
        self.noticed_ns = 0

    def by(self, read_ns: int) -> int:
        """Return when the last of the bytes that were read by `read_ns` had come in, as far as anybody knows."""
        return min(self.noticed_ns or read_ns, read_ns)


class ArrivalClock:
    """Watches the sockets that somebody is waiting to read from."""

    def __init__(self) -> None:
        self._expected: dict[int, Arrival] = {}
        self._epoll = _native_epoll()
        self._lock = _native_lock()
        self._running = False

    @contextmanager
    def expecting(self, fd: int) -> Iterator[Arrival]:
        """Note when bytes come in at `fd` while the body reads from it. What is readable already is not watched."""
        arrival = Arrival()
        if _readable(fd):
            yield arrival
            return
        with self._lock:
            if not self._running:
                self._running = True
                _native_thread(self._watch, ())
        self._expected[fd] = arrival
        # Edge-triggered: told of each arrival, so that the stamp is that of the last bytes that a late reader gets.
        self._epoll.register(fd, _IN | _EDGE)
        try:
            yield arrival
        finally:
            del self._expected[fd]
            with suppress(OSError):
                # Somebody closed it meanwhile, which unregisters it as well.
                self._epoll.unregister(fd)

    def _watch(self) -> None:
        while True:
            for fd, _ in self._epoll.poll():
                now_ns = time.monotonic_ns()
                arrival = self._expected.get(fd)
                # An event may be a relic of an earlier expectation on the same number: then there is nothing to read.
                if arrival is not None and _readable(fd):
                    arrival.noticed_ns = now_ns


def _readable(fd: int) -> bool:
    poll = _native_poll()
    poll.register(fd, _IN)
    return bool(poll.poll(0))


ARRIVALS = ArrivalClock()
"""The process's own: one thread is enough for all sockets."""
