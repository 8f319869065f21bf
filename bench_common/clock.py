"""The offset between two hosts' monotonic clocks, from four stamps an exchange.

Source: RFC 5905 (NTP), section 8. With t1 sent and t4 received here, t2 received and t3 sent there, the other
clock is ahead of ours by ((t2 - t1) + (t3 - t4)) / 2, and that is off by at most half of the round trip,
(t4 - t1) - (t3 - t2).
The exchange with the shortest round trip of the last few is the one to believe, the less the older it is: clocks
drift. One that contradicts those before it says that a clock was set or stood still: they are forgotten.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_EXCHANGES: Final = 32
DRIFT_PPM: Final = 100
"""By how many parts in a million two clocks may part: no crystal of a computer is worse, disciplined or not."""


def clock_id() -> str:
    """Return what tells this process's CLOCK_MONOTONIC from all others; empty where nobody can know.

    One boot of one machine has one, apart from time namespaces (time_namespaces(7)), which are some seconds ahead.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        offsets = Path("/proc/self/timens_offsets")
        ahead = offsets.read_text("ascii").split()[1:3] if offsets.exists() else ["0", "0"]
    except (OSError, ValueError):
        return ""
    return boot_id if ahead == ["0", "0"] else f"{boot_id}+{'.'.join(ahead)}"


def max_drift_ns(elapsed_ns: int) -> int:
    """Return how far two clocks may have parted in so long, in ns, rounded up."""
    return -(-max(0, elapsed_ns) * DRIFT_PPM // 1_000_000)


@dataclass(frozen=True, slots=True, order=True)
class ClockOffset:
    """How far the other clock is ahead of ours, and how far that may be off; both in ns."""

    uncertainty_ns: int
    offset_ns: int

    def contradicts(self, other: ClockOffset) -> bool:
        """Whether both cannot be true of clocks that nothing happened to."""
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
        aged = (
            ClockOffset(offset.uncertainty_ns + max_drift_ns(now_ns - made_ns), offset.offset_ns)
            for made_ns, offset in self._exchanges
        )
        return min(aged, default=None)
