"""The event loop: how busy and how late it is, busy polling for messages, and stalls of the process.

`LoopMeter` brackets the loop's waits in the kernel with prepare and check watchers; the time in between is our code.
Its longest stretch is the largest delay of an event; the current one is how long a native thread may have waited for
the interpreter. So a result can state its timing error.
`BusyPoller` stays awake for the next message if a sleep and a wake-up would take longer than its arrival.
`stall_s` detects that the process did not run: the machine was suspended, or the process got no CPU.
"""

from __future__ import annotations

import os
import sys
import time
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent
from msgspec import Struct

HIGHEST_PRIORITY: Final = 2
LOWEST_PRIORITY: Final = -2
"""Priorities of a watcher, as libev counts them."""

MIN_WAIT_NS: Final = 20_000
"""A wait in the kernel of at most this time did not block: its event was already pending."""
GIL_HANDOVER_NS: Final = 200_000
"""This long after the loop has released the interpreter, a native thread that waited for it surely has it."""


class LoopReading(Struct, frozen=True):
    """One interval of the loop."""

    time_ns: int
    """When the interval ended (CLOCK_MONOTONIC)."""
    busy_share: float
    """The share of the interval in which the loop ran code (0 to 1)."""
    lag_max_ns: int
    """The longest stretch without a poll."""


class LoopPoll(Struct, frozen=True):
    """One wait of the loop in the kernel; instants are CLOCK_MONOTONIC."""

    entered_ns: int
    ended_ns: int
    previous_ended_ns: int
    """When the previous wait ended."""


class LoopMeter:
    """Measures the hub's loop from `start` on; `read` returns the interval since the last reading.

    `lap` does the same independently: neither of the two ends an interval of the other.
    """

    UNITS = {"time_ns": "ns", "busy_share": "1", "lag_max_ns": "ns"}  # noqa: RUF012  constant

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        # The loop runs its callbacks (every greenlet that is woken or spawned) in its own prepare watcher. Ours must
        # run after it, or all that work would count as idle time; of the check watchers, ours must run first.
        self._prepare = loop.prepare(ref=False, priority=LOWEST_PRIORITY)
        self._check = loop.check(ref=False, priority=HIGHEST_PRIORITY)
        now = time.monotonic_ns()
        self.busy_since_ns = now
        """When the current stretch of code began; 0 while the loop polls. Native threads may read it."""
        self._began_ns = now
        self._poll_ended_ns = self._previous_poll_ended_ns = now
        self._last_blocking_poll_ns = now
        self._poll_entered_ns = 0
        self._idle_ns = 0
        """The total idle time; a reading or a lap subtracts the value at its beginning."""
        self._read_idle_ns = 0
        self._lag_ns = 0
        self._lap_began_ns = now
        self._lap_idle_ns = 0
        self._lap_lag_ns = 0

    def start(self) -> None:
        """Start measuring."""
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
        """Return the measurements since the last call."""
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
        """Return the length, the busy time and the largest lag of the interval since the last call, all in ns."""
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

        That is the current stretch of code, or the one that has just ended. Polls that return at once may take the
        interpreter back before a thread wakes up; the thread still gets it after a switch interval.
        """
        if not self.busy_since_ns and at_ns - self._poll_entered_ns > GIL_HANDOVER_NS:
            return 0
        return max(0, at_ns - self._poll_ended_ns, min(at_ns - self._last_blocking_poll_ns, switch_interval_ns()))

    def last_poll(self) -> LoopPoll:
        """Return the wait that delivered the events that the loop handles now."""
        return LoopPoll(self._poll_entered_ns, self._poll_ended_ns, self._previous_poll_ended_ns)

    def waited(self) -> int:
        """Count the time since the last poll as idle (there was nothing to do); return the current time (ns)."""
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
"""The active meters of this process: one, for its only hub."""


def gil_wait_ns(at_ns: int) -> int:
    """Return `held_ns` of this process's meter; without a meter, the interpreter's switch interval."""
    return _active_meters[-1].held_ns(at_ns) if _active_meters else switch_interval_ns()


def mark_idle() -> int:
    """Call `LoopMeter.waited` of this process's meter, if there is one; return the current time (monotonic ns)."""
    return _active_meters[-1].waited() if _active_meters else time.monotonic_ns()


def last_poll() -> LoopPoll | None:
    """Return `LoopMeter.last_poll` of this process's meter; None without a meter."""
    return _active_meters[-1].last_poll() if _active_meters else None


def switch_interval_ns() -> int:
    """Return how long a thread may keep the interpreter while another waits for it, in ns."""
    return int(sys.getswitchinterval() * 1e9)


POLL_INTERVAL_NS: Final = 250_000
"""The loop polls while the mean interval between messages is shorter, and never longer than this for one message."""
MAX_INTERVAL_NS: Final = 1_000_000
"""A longer interval counts as this: one pause does not outweigh many short intervals."""
SMOOTHING_SHIFT: Final = 4
"""The weight of each interval in the average, as a right shift: one sixteenth."""
MAX_YIELD_NS: Final = 500_000
"""If a yield of the CPU takes longer than this, more than libzmq's own thread wants the CPU."""
BACKOFF_NS: Final = 50_000_000
"""How long the loop does not poll after that."""
CPU_COUNT: Final = len(os.sched_getaffinity(0))


class BusyPoller:
    """Keeps the hub's loop from sleeping while messages arrive quickly, as `message_arrived` records, until `close`.

    A process that sleeps in the kernel takes some microseconds to wake up, and its CPU then sleeps, too, which costs
    even more on a virtual machine. So kernels poll a busy network card instead of waiting for its interrupts (Linux,
    Documentation/networking/napi.rst, "Busy polling"). Polling starts at thousands of messages a second, more than
    containers can cause. It ends with the first late message, or when another process wants the CPU, which each pass
    of the loop yields.
    """

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        self._idle = loop.idle(ref=False)
        self._last_message_ns = monotonic_ns()
        self._interval_ns = MAX_INTERVAL_NS
        self._backoff_until_ns = 0
        self.polling = False
        """Whether the loop polls instead of sleeping."""

    def message_arrived(self) -> None:
        """Record that messages arrived and were handled."""
        now = monotonic_ns()
        self._interval_ns += (
            min(now - self._last_message_ns, MAX_INTERVAL_NS) - self._interval_ns
        ) >> SMOOTHING_SHIFT
        self._last_message_ns = now
        # With a single CPU, polling would keep the next sender from running.
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
        # The loop calls this in a pass that has nothing else to do.
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
"""A loop that wakes up later than this after its due time was stalled; a merely busy loop is not that late."""


def stall_s(since: float, due_s: float) -> float:
    """Return how long this process did not run, in seconds: at `since` (monotonic) its wake-up was due in `due_s`.

    0 if it is no later than a merely busy process. A process that does not run receives nothing, so this time must
    not count as silence of its peers: by the clock alone, a suspended virtual machine would consider them all dead.
    """
    late_s = monotonic() - since - due_s
    return late_s if late_s > STALL_THRESHOLD_S else 0.0
