"""The offset between two hosts' monotonic clocks, from the four timestamps of an exchange.

Source: RFC 5905 (NTP), section 8. With t1 sent and t4 received here, t2 received and t3 sent there, the other
clock is ahead of ours by ((t2 - t1) + (t3 - t4)) / 2, with an error of at most half of the round trip,
(t4 - t1) - (t3 - t2).
The recent exchange with the shortest round trip gives the estimate; its uncertainty grows with age, since clocks
drift. An exchange that contradicts the earlier ones means that a clock was set or stopped: those are dropped.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

from msgspec import Struct

MAX_EXCHANGES: Final = 32
"""How many exchanges the estimator keeps."""
DRIFT_PPM: Final = 100
"""How far two clocks may drift apart, in parts per million: no computer's crystal is worse, disciplined or not."""


def clock_id() -> str:
    """Return an id that distinguishes this process's CLOCK_MONOTONIC from all others; empty if it is unknown.

    Each boot of a machine has one such clock; time namespaces (time_namespaces(7)) are some seconds ahead of it.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        offsets = Path("/proc/self/timens_offsets")
        ahead = offsets.read_text("ascii").split()[1:3] if offsets.exists() else ["0", "0"]
    except (OSError, ValueError):
        return ""
    return boot_id if ahead == ["0", "0"] else f"{boot_id}+{'.'.join(ahead)}"


def max_drift_ns(elapsed_ns: int) -> int:
    """Return how far two clocks may drift apart in `elapsed_ns`, in ns, rounded up."""
    return -(-max(0, elapsed_ns) * DRIFT_PPM // 1_000_000)


class ClockOffset(Struct, frozen=True, order=True):
    """An estimate of the other clock's offset; the most certain estimate sorts first."""

    uncertainty_ns: int
    """The largest possible error of `offset_ns`."""
    offset_ns: int
    """How far the other clock is ahead of ours; negative if it is behind."""

    def contradicts(self, other: ClockOffset) -> bool:
        """Return whether the two estimates exclude each other, if neither clock was set or stopped."""
        return abs(self.offset_ns - other.offset_ns) > self.uncertainty_ns + other.uncertainty_ns + 1


class ClockOffsetEstimator:
    """Keeps the last exchanges and gives the best estimate of the offset."""

    def __init__(self) -> None:
        self._exchanges: deque[tuple[int, ClockOffset]] = deque(maxlen=MAX_EXCHANGES)

    def exchange(self, t1: int, t2: int, t3: int, t4: int) -> None:
        """Add an exchange (ns): sent here, received there, sent there, received here; impossible ones are dropped."""
        round_trip = (t4 - t1) - (t3 - t2)
        if round_trip < 0 or t4 < t1 or t3 < t2:
            return
        found = ClockOffset((round_trip + 1) // 2, ((t2 - t1) + (t3 - t4)) // 2)
        before = self.best_offset(t4)
        if before is not None and found.contradicts(before):
            self._exchanges.clear()
        self._exchanges.append((t4, found))

    def best_offset(self, now_ns: int) -> ClockOffset | None:
        """Return the exchange with the smallest uncertainty at an instant of our clock, or None before the first."""
        # Plain tuples: an object for each would be the agent's dearest work between two jobs.
        aged = [
            (offset.uncertainty_ns + max_drift_ns(now_ns - made_ns), offset.offset_ns)
            for made_ns, offset in self._exchanges
        ]
        return ClockOffset(*min(aged)) if aged else None
