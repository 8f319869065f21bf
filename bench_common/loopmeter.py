"""How busy the event loop is, and how late it can be: measured, so that a result can say how far it may be off.

The loop's own prepare and check watchers bracket the time that it waits in the kernel. What lies between is our own
code: its longest stretch is how late anything on this loop was noticed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import gevent

FIRST: Final = 2
LAST: Final = -2
"""Priorities of a watcher, as libev counts them."""


@dataclass(frozen=True, slots=True)
class LoopReading:
    """One interval: when it ended (ns), its busy share (0..1) and the longest stretch without a poll (ns)."""

    time_ns: int
    busy_share: float
    lag_max_ns: int


class LoopMeter:
    """Measures the hub's loop from `start` on; `read` gives the interval since the last reading."""

    UNITS = {"time_ns": "ns", "busy_share": "1", "lag_max_ns": "ns"}  # noqa: RUF012  constant

    def __init__(self) -> None:
        loop: Any = gevent.get_hub().loop
        # The loop runs its callbacks (every greenlet that is woken or spawned) in a prepare watcher of its own. Ours
        # must come after it, or all that work would pass for sleep; of the check watchers ours must be the first.
        self._prepare = loop.prepare(ref=False, priority=LAST)
        self._check = loop.check(ref=False, priority=FIRST)
        now = time.monotonic_ns()
        self._began_ns = now
        self._awake_ns = now
        self._asleep_ns = 0
        self._idle_ns = 0
        self._lag_ns = 0

    def start(self) -> None:
        """Begin to measure."""
        self._prepare.start(self._before_poll)
        self._check.start(self._after_poll)

    def stop(self) -> None:
        """Stop measuring."""
        for watcher in (self._prepare, self._check):
            watcher.stop()
            watcher.close()

    def read(self) -> LoopReading:
        """Return what was measured since the last call."""
        now = time.monotonic_ns()
        span = max(1, now - self._began_ns)
        lag = max(self._lag_ns, now - self._awake_ns)
        reading = LoopReading(now, min(1.0, max(0.0, 1.0 - self._idle_ns / span)), lag)
        self._began_ns = now
        self._idle_ns = 0
        self._lag_ns = 0
        return reading

    def _before_poll(self) -> None:
        now = time.monotonic_ns()
        self._asleep_ns = now
        self._lag_ns = max(self._lag_ns, now - self._awake_ns)

    def _after_poll(self) -> None:
        now = time.monotonic_ns()
        self._idle_ns += now - self._asleep_ns
        self._awake_ns = now
