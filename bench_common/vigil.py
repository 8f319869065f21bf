"""Staying awake for the next message, where falling asleep and being woken would take longer than it takes to come.

A process that sleeps in the kernel takes some microseconds to be woken, and then its CPU has been asleep, too, which
on a virtual machine costs more still. So kernels poll a busy network card instead of waiting for its interrupts
(Linux, Documentation/networking/napi.rst, "Busy polling"), and a loop here does the same with its messages. It begins
where thousands come each second, as no containers can bring about, and is over with the first one that is late, or as
soon as somebody else wants the CPU: it is offered in each pass of the loop.
"""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import Any, Final

import gevent

from bench_common import eventloop

QUICK_NS: Final = 250_000
"""Messages that come at shorter intervals, on average, are waited for awake; and never for longer."""
SLOW_NS: Final = 1_000_000
"""An interval counts as no more than this: one pause does not outweigh all that came quickly."""
SMOOTHING: Final = 4
"""Each interval changes the average by so many bits less: by a sixteenth."""
AWAY_NS: Final = 500_000
"""A CPU that is back only so long after it was offered was wanted by more than libzmq's own thread."""
REST_NS: Final = 50_000_000
"""How long the loop sleeps as ever after that."""
CPUS: Final = len(os.sched_getaffinity(0))


class Vigil:
    """Keeps the hub's loop from sleeping while messages come quickly, as `came` tells it; until `close`."""

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        self._idle = loop.idle(ref=False)
        self._came_ns = monotonic_ns()
        self._interval_ns = SLOW_NS
        self._rest_until_ns = 0
        self.awake = False
        """Whether the loop is kept from sleeping."""

    def came(self) -> None:
        """Note that messages have come, and were seen to."""
        now = monotonic_ns()
        self._interval_ns += (min(now - self._came_ns, SLOW_NS) - self._interval_ns) >> SMOOTHING
        self._came_ns = now
        # With a single CPU, whoever sends the next message would be kept from it.
        if not self.awake and self._interval_ns < QUICK_NS and now > self._rest_until_ns and CPUS > 1:
            self.awake = True
            self._idle.start(self._wait)

    def close(self) -> None:
        """Let the loop sleep from now on."""
        self._idle.stop()
        self._idle.close()

    def _wait(self) -> None:
        # The loop calls this in a pass in which there was nothing else to do.
        offered = monotonic_ns()
        os.sched_yield()
        now = eventloop.waited()
        if now - offered > AWAY_NS:
            self._rest_until_ns = now + REST_NS
            self._sleep()
        elif now - self._came_ns > QUICK_NS:
            self._sleep()

    def _sleep(self) -> None:
        self.awake = False
        self._idle.stop()
