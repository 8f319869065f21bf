"""How far the master's clock is ahead of this host's, from the heartbeats that it acknowledges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_common.clock import ClockOffsetEstimator

if TYPE_CHECKING:
    from bench_common.clock import ClockOffset
    from bench_common.messages import HeartbeatAck

OFFSET_MAX_AGE_S: Final = 5.0
"""How long a clock offset measured outside of a run is reported, in seconds."""


class MasterClock:
    """Estimates the master's clock offset from acknowledged heartbeats; instants are CLOCK_MONOTONIC, in ns."""

    def __init__(self) -> None:
        self._comparison = ClockOffsetEstimator()
        self._compared_ns = 0

    def forget(self) -> None:
        """Discard all estimates: the next master may be another one."""
        self._comparison = ClockOffsetEstimator()

    def add(self, ack: HeartbeatAck, now_ns: int, *, admitted: bool) -> None:
        """Add an exchange that ended at `now_ns`; after a silence outside of a run, the master may be another one."""
        if not admitted and not self._is_fresh(now_ns):
            self.forget()
        self._compared_ns = now_ns
        self._comparison.exchange(ack.echo_ns, ack.received_ns, ack.sent_ns, now_ns)

    def offset_at(self, now_ns: int) -> ClockOffset | None:
        """Return the best estimate at an instant; None before the first exchange."""
        return self._comparison.best_offset(now_ns)

    def last_offset(self, now_ns: int) -> ClockOffset | None:
        """Return the estimate at the last exchange; None if it is so old that another master may answer now."""
        return self.offset_at(self._compared_ns) if self._is_fresh(now_ns) else None

    def _is_fresh(self, now_ns: int) -> bool:
        return now_ns - self._compared_ns < OFFSET_MAX_AGE_S * 1e9
