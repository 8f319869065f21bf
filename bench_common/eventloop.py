"""How busy the event loop is, and how late it can be: measured, so that a result can say how far it may be off.

The loop's own prepare and check watchers bracket the time that it waits in the kernel. What lies between is our own
code: its longest stretch is how late anything on this loop was noticed, and the stretch that is under way is how long
a native thread may have waited for the interpreter.

Staying awake for the next message, where falling asleep and being woken would take longer than it takes to come.

A process that sleeps in the kernel takes some microseconds to be woken, and then its CPU has been asleep, too, which
on a virtual machine costs more still. So kernels poll a busy network card instead of waiting for its interrupts
(Linux, Documentation/networking/napi.rst, "Busy polling"), and a loop here does the same with its messages. It begins
where thousands come each second, as no containers can bring about, and is over with the first one that is late, or as
soon as somebody else wants the CPU: it is offered in each pass of the loop.

Tells when a process did not run for a while: the machine was stopped, or it got no processor.

Whoever waits for another to speak hears nothing in that time, however much was said. So silence counts only while
one listens: by the clock alone a virtual machine that was held up would take all of its peers for dead.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent

HIGHEST_PRIORITY: Final = 2
LOWEST_PRIORITY: Final = -2
"""Priorities of a watcher, as libev counts them."""

MIN_WAIT_NS: Final = 20_000
"""A wait in the kernel that took no longer did not wait: what it was for had been there before."""
GIL_HANDOVER_NS: Final = 200_000
"""So long after the loop has let go of the interpreter, a native thread that wanted it surely has it."""


@dataclass(frozen=True, slots=True)
class LoopReading:
    """One interval: when it ended (ns), its busy share (0..1) and the longest stretch without a poll (ns)."""

    time_ns: int
    busy_share: float
    lag_max_ns: int


@dataclass(frozen=True, slots=True)
class LoopPoll:
    """One wait of the loop: when it was entered and over, and when the one before it was over."""

    entered_ns: int
    ended_ns: int
    previous_ended_ns: int


class LoopMeter:
    """Measures the hub's loop from `start` on; `read` gives the interval since the last reading.

    `lap` does so on its own account: the intervals of either do not end those of the other.
    """

    UNITS = {"time_ns": "ns", "busy_share": "1", "lag_max_ns": "ns"}  # noqa: RUF012  constant

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        # The loop runs its callbacks (every greenlet that is woken or spawned) in a prepare watcher of its own. Ours
        # must come after it, or all that work would pass for sleep; of the check watchers ours must be the first.
        self._prepare = loop.prepare(ref=False, priority=LOWEST_PRIORITY)
        self._check = loop.check(ref=False, priority=HIGHEST_PRIORITY)
        now = time.monotonic_ns()
        self.busy_since_ns = now
        """When the stretch of code that is under way began; 0 while the loop polls. Native threads may read it."""
        self._began_ns = now
        self._poll_ended_ns = self._previous_poll_ended_ns = now
        self._last_blocking_poll_ns = now
        self._poll_entered_ns = 0
        self._idle_ns = 0
        """How long the loop has waited in all: a reading, and a lap, takes from it what it was when it began."""
        self._read_idle_ns = 0
        self._lag_ns = 0
        self._lap_began_ns = now
        self._lap_idle_ns = 0
        self._lap_lag_ns = 0

    def start(self) -> None:
        """Begin to measure."""
        _active_meters.append(self)
        self._prepare.start(self._before_poll)
        self._check.start(self._after_poll)

    def stop(self) -> None:
        """Stop measuring."""
        if self in _active_meters:
            _active_meters.remove(self)
        for watcher in (self._prepare, self._check):
            watcher.stop()
            watcher.close()

    def read(self) -> LoopReading:
        """Return what was measured since the last call."""
        now = time.monotonic_ns()
        span = max(1, now - self._began_ns)
        lag = max(self._lag_ns, now - self._poll_ended_ns)
        idle = self._idle_ns - self._read_idle_ns
        reading = LoopReading(now, min(1.0, max(0.0, 1.0 - idle / span)), lag)
        self._began_ns = now
        self._read_idle_ns = self._idle_ns
        self._lag_ns = 0
        return reading

    def lap(self) -> tuple[int, int, int]:
        """Return, of the time since the last call: its length, how much the loop was busy, its lag (all in ns)."""
        now = time.monotonic_ns()
        span = now - self._lap_began_ns
        lag = max(self._lap_lag_ns, now - self._poll_ended_ns)
        busy = max(0, span - (self._idle_ns - self._lap_idle_ns))
        self._lap_began_ns = now
        self._lap_idle_ns = self._idle_ns
        self._lap_lag_ns = 0
        return span, busy, lag

    def held_ns(self, at_ns: int) -> int:
        """Return how long a native thread that stamped `at_ns` just now may have waited for the interpreter.

        That is the stretch that the loop is in, or has been in until just now. Polls that return at once may take the
        interpreter back before a thread has woken up; it gets it after a switch interval all the same.
        """
        if not self.busy_since_ns and at_ns - self._poll_entered_ns > GIL_HANDOVER_NS:
            return 0
        return max(0, at_ns - self._poll_ended_ns, min(at_ns - self._last_blocking_poll_ns, switch_interval_ns()))

    def last_poll(self) -> LoopPoll:
        """Return the wait that brought what the loop is at now."""
        return LoopPoll(self._poll_entered_ns, self._poll_ended_ns, self._previous_poll_ended_ns)

    def waited(self) -> int:
        """Count the time since the last poll as waited, in which nothing was found to do; return the time."""
        now = time.monotonic_ns()
        self._idle_ns += now - self._poll_ended_ns
        self._poll_ended_ns = self.busy_since_ns = now
        return now

    def _before_poll(self) -> None:
        now = time.monotonic_ns()
        self._poll_entered_ns = now
        self.busy_since_ns = 0
        stretch = now - self._poll_ended_ns
        self._lag_ns = max(self._lag_ns, stretch)
        self._lap_lag_ns = max(self._lap_lag_ns, stretch)

    def _after_poll(self) -> None:
        now = time.monotonic_ns()
        idle_ns = now - self._poll_entered_ns
        self._idle_ns += idle_ns
        self._previous_poll_ended_ns = self._poll_ended_ns
        self._poll_ended_ns = self.busy_since_ns = now
        if idle_ns > MIN_WAIT_NS:
            self._last_blocking_poll_ns = now


_active_meters: Final[list[LoopMeter]] = []
"""The meters at work in this process: one, that of its only hub."""


def gil_wait_ns(at_ns: int) -> int:
    """Return `held_ns` of this process's meter; without a meter, the interpreter's switch interval."""
    return _active_meters[-1].held_ns(at_ns) if _active_meters else switch_interval_ns()


def mark_idle() -> int:
    """Do `LoopMeter.waited` with this process's meter, if there is one; return what time it is (monotonic ns)."""
    return _active_meters[-1].waited() if _active_meters else time.monotonic_ns()


def last_poll() -> LoopPoll | None:
    """Return `LoopMeter.last_poll` of this process's meter; None where there is none."""
    return _active_meters[-1].last_poll() if _active_meters else None


def switch_interval_ns() -> int:
    """Return for how long a thread may keep the interpreter that another wants."""
    return int(sys.getswitchinterval() * 1e9)


POLL_INTERVAL_NS: Final = 250_000
"""Messages that come at shorter intervals, on average, are waited for awake; and never for longer."""
MAX_INTERVAL_NS: Final = 1_000_000
"""An interval counts as no more than this: one pause does not outweigh all that came quickly."""
SMOOTHING_SHIFT: Final = 4
"""Each interval changes the average by so many bits less: by a sixteenth."""
MAX_YIELD_NS: Final = 500_000
"""A CPU that is back only so long after it was offered was wanted by more than libzmq's own thread."""
BACKOFF_NS: Final = 50_000_000
"""How long the loop sleeps as ever after that."""
CPU_COUNT: Final = len(os.sched_getaffinity(0))


class BusyPoller:
    """Keeps the hub's loop from sleeping while messages come quickly, as `came` tells it; until `close`."""

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        self._idle = loop.idle(ref=False)
        self._last_message_ns = monotonic_ns()
        self._interval_ns = MAX_INTERVAL_NS
        self._backoff_until_ns = 0
        self.polling = False
        """Whether the loop is kept from sleeping."""

    def came(self) -> None:
        """Note that messages have come, and were seen to."""
        now = monotonic_ns()
        self._interval_ns += (
            min(now - self._last_message_ns, MAX_INTERVAL_NS) - self._interval_ns
        ) >> SMOOTHING_SHIFT
        self._last_message_ns = now
        # With a single CPU, whoever sends the next message would be kept from it.
        if (
            not self.polling
            and self._interval_ns < POLL_INTERVAL_NS
            and now > self._backoff_until_ns
            and CPU_COUNT > 1
        ):
            self.polling = True
            self._idle.start(self._wait)

    def close(self) -> None:
        """Let the loop sleep from now on."""
        self._idle.stop()
        self._idle.close()

    def _wait(self) -> None:
        # The loop calls this in a pass in which there was nothing else to do.
        offered = monotonic_ns()
        os.sched_yield()
        now = mark_idle()
        if now - offered > MAX_YIELD_NS:
            self._backoff_until_ns = now + BACKOFF_NS
            self._sleep()
        elif now - self._last_message_ns > POLL_INTERVAL_NS:
            self._sleep()

    def _sleep(self) -> None:
        self.polling = False
        self._idle.stop()


STALL_THRESHOLD_S: Final = 2.0
"""A loop that comes by so much later than it was to was absent; one that is merely busy does not."""


def stall_s(since: float, due_s: float) -> float:
    """Return for how long this process was absent, in seconds: at `since` (monotonic) it was to come by in `due_s`.

    0 where it is no later than one that is merely busy.
    """
    late_s = monotonic() - since - due_s
    return late_s if late_s > STALL_THRESHOLD_S else 0.0
