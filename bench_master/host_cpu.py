"""How much CPU time the hosts spent in each treatment, second by second: what a monitor of /proc/stat would show.

Figures are in USER_HZ a second (ticks of a hundredth of a second nearly everywhere), of all CPUs of a host together,
so that they can stand beside those of studies that polled the kernel's counters. A reading counts where all of its
interval lies within one measured trial, on a host that ran jobs of it: none is shared with another trial,
with warm-up or with the time between trials. The kernel's iowait can run backwards; such readings are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench_common.histogram import CEILING_NS, Histogram
from bench_common.stats.rows import Samples
from bench_master.spans import Spans

UNIT: Final = "USER_HZ/s"
COLUMNS: Final = {
    "host_cpu_user": "cpu_user_ticks",
    "host_cpu_system": "cpu_system_ticks",
    "host_cpu_iowait": "cpu_iowait_ticks",
}
"""The figures, and the columns of the hosts' samples that they are made of."""

_GRAIN: Final = 1_000_000
"""Parts of a USER_HZ/s that the histogram counts in."""

_NEEDED: Final = frozenset({"time_ns", "interval_ns"})


@dataclass(slots=True)
class Rates:
    """Spread of readings that may be negative, in memory that does not grow with their number."""

    n: int = 0
    mean: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    _squares: float = 0.0
    """Sum of squared distances from the mean, kept up by Chan's update."""
    _above: Histogram = field(default_factory=Histogram)
    _below: Histogram = field(default_factory=Histogram)
    """Those from 0 up, and the sizes of those below."""

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take readings in; NaN and infinities are left out."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return
        count, mean = len(finite), float(finite.mean())
        shift, total = mean - self.mean, self.n + count
        self._squares += float(((finite - mean) ** 2).sum()) + shift * shift * self.n * count / total
        self.mean += shift * count / total
        self.n = total
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        parts = np.minimum(np.rint(np.abs(finite) * _GRAIN), CEILING_NS).astype(np.int64)
        for histogram, own in ((self._above, finite >= 0), (self._below, finite < 0)):
            if own.any():
                histogram.record(parts[own])

    @property
    def stddev(self) -> float | None:
        """Return the standard deviation of a sample (n - 1); None below two readings."""
        return math.sqrt(self._squares / (self.n - 1)) if self.n > 1 else None

    @property
    def median(self) -> float:
        """Return the middle reading, or the mean of the two middle ones, each to within 0.2 %; there must be one."""
        return (self._at((self.n + 1) // 2) + self._at(self.n // 2 + 1)) / 2

    def _at(self, rank: int) -> float:
        # Of those below 0 the largest comes first.
        below = self._below.n
        sign, histogram, place = (
            (-1, self._below, below + 1 - rank) if rank <= below else (1, self._above, rank - below)
        )
        parts = histogram.quantile(Fraction(place, histogram.n)) or 0.0
        return min(max(sign * parts / _GRAIN, self.low), self.high)

    def document(self) -> dict[str, Any]:
        """Return the figures as those of a metric, of which n counts readings; there must be one."""
        return {
            "unit": UNIT,
            "direction": "lower",
            "n": self.n,
            "median": self.median,
            "mean": self.mean,
            "stddev": self.stddev,
            "min": self.low,
            "max": self.high,
        }


class HostCpu:
    """Takes the hosts' samples of one run, and gives each treatment the readings that fall into its measured trials.

    `spans` are those trials.
    """

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._rates: dict[tuple[int, str], Rates] = {}

    def add(self, samples: Samples) -> None:
        """Take in one block; one that is of no host, or whose readings have no times, is left alone."""
        columns = samples.columns
        if samples.source != "host" or not columns.keys() >= _NEEDED:
            return
        ends, lengths = columns["time_ns"], columns["interval_ns"]
        for span, inside in self._spans.holding(samples.worker, ends - lengths, ends):
            here = inside & (lengths > 0)
            for name, column in COLUMNS.items():
                if column in columns:
                    rates = columns[column][here] / (lengths[here] / 1e9)
                    self._rates.setdefault((span.treatment, name), Rates()).add(rates)

    def document(self, treatment: int) -> dict[str, Any] | None:
        """Return a treatment's figures by name; None where no reading is of it."""
        found = {name: self._rates.get((treatment, name)) for name in COLUMNS}
        return {name: rates.document() for name, rates in found.items() if rates is not None and rates.n} or None
