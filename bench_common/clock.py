"""The offset between two hosts' monotonic clocks, from four stamps an exchange.

Source: RFC 5905 (NTP), section 8. With t1 sent and t4 received here, t2 received and t3 sent there, the other
clock is ahead of ours by ((t2 - t1) + (t3 - t4)) / 2, and that is off by at most half of the round trip,
(t4 - t1) - (t3 - t2).
The exchange with the shortest round trip of the last few is the one to believe.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

EXCHANGES_KEPT: Final = 32


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """How far the other clock is ahead of ours, and how far that may be off; both in ns."""

    bound_ns: int
    offset_ns: int


class ClockComparison:
    """Keeps the last exchanges and gives the best estimate of the offset."""

    def __init__(self) -> None:
        self._exchanges: deque[Offset] = deque(maxlen=EXCHANGES_KEPT)

    def exchange(self, t1: int, t2: int, t3: int, t4: int) -> None:
        """Add an exchange (ns): sent here, received there, sent there, received here; impossible ones are dropped."""
        round_trip = (t4 - t1) - (t3 - t2)
        if round_trip >= 0 and t4 >= t1 and t3 >= t2:
            self._exchanges.append(Offset((round_trip + 1) // 2, ((t2 - t1) + (t3 - t4)) // 2))

    @property
    def best(self) -> Offset | None:
        """The exchange with the smallest bound, or None before the first."""
        return min(self._exchanges, default=None)
