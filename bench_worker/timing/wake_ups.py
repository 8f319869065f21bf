"""How late this host wakes a thread that waits, as far as nothing in the thread's own account says so.

A hypervisor that is slow to run a sleeping virtual CPU delays whoever is woken on it, by up to milliseconds, and no
counter of the guest knows. So a witness (`bench_worker.timing.wake_up_witness`) sends itself events whose instants it
knows, and keeps here how late it heard of them. Every bound of a stamp allows for the largest recent reading: of n
readings that are alike a further one exceeds the largest with probability 1 / (n + 1).

Source: S. S. Wilks, Determination of sample sizes for setting tolerance limits, Annals of Mathematical Statistics 12,
1941.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LEAST_ALLOWANCE_NS: Final = 100_000
"""What waking up and stamping take by themselves, on an idle machine too; every bound includes it."""
WINDOW: Final = 1_000
"""How many of the last readings count: a further wake-up is later than all of them in one case of 1,001."""


class WakeUps:
    """The last readings of how late wake-ups were, and what a bound allows for them.

    One native thread records; any thread may read.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._readings: deque[int] = deque(maxlen=window)
        self.allowance_ns = LEAST_ALLOWANCE_NS
        """How late a wake-up may be, in ns: the largest reading, `LEAST_ALLOWANCE_NS` at least."""

    @property
    def count(self) -> int:
        """The number of readings of which `allowance_ns` is the largest."""
        return len(self._readings)

    def record(self, late_ns: int) -> None:
        """Add a reading: a wake-up was late by so many ns beyond what the thread's own account explains."""
        readings = self._readings
        dropped_ns = readings[0] if len(readings) == readings.maxlen else 0
        readings.append(late_ns)
        if late_ns >= self.allowance_ns:
            self.allowance_ns = late_ns
        elif dropped_ns >= self.allowance_ns:
            self.allowance_ns = max(LEAST_ALLOWANCE_NS, *readings)


WAKE_UPS: Final = WakeUps()
