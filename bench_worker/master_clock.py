"""How far a master's clock is ahead of ours: of the one that has our run, or else of the one that answers us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_common.clock import ClockComparison, Offset

if TYPE_CHECKING:
    from bench_common.messages import Message

COMPARED_S: Final = 5.0
"""How long a comparison with a master that holds no run is told."""


class MasterClock:
    """Compares clocks with every pulse. Instants are those of CLOCK_MONOTONIC, in ns."""

    def __init__(self) -> None:
        self._comparison = ClockComparison()
        self._compared_ns = 0

    def forget(self) -> None:
        """Begin anew: from here on it may be another master."""
        self._comparison = ClockComparison()

    def take(self, pulse: Message, now_ns: int, *, admitted: bool) -> None:
        """Take in a pulse that came at `now_ns`; outside of a run, one after a silence may be another master's."""
        if not admitted and not self._is_fresh(now_ns):
            self.forget()
        self._compared_ns = now_ns
        self._comparison.exchange(pulse["echo_ns"], pulse["received_ns"], pulse["sent_ns"], now_ns)

    def offset_at(self, now_ns: int) -> Offset | None:
        """Return the best estimate for an instant; None before the first."""
        return self._comparison.best_at(now_ns)

    def last_offset(self, now_ns: int) -> Offset | None:
        """Return the estimate at the last pulse; None where that is so old that another master may answer now."""
        return self.offset_at(self._compared_ns) if self._is_fresh(now_ns) else None

    def _is_fresh(self, now_ns: int) -> bool:
        return now_ns - self._compared_ns < COMPARED_S * 1e9
