"""A histogram of durations that costs the same whether it holds ten values or ten million.

Buckets are log-linear: within each power of two there are `SUB_BUCKETS` buckets of equal width, so a bucket is
never wider than 1/256 of the values in it and its middle is never more than 0.2 % away from any of them. Values
below 512 ns have a bucket each and are exact. Only the buckets between the smallest and the largest value take
memory. Histograms of the same thing from several workers are merged by adding counts; percentiles are never averaged.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

SUB_BUCKET_BITS: Final = 8
SUB_BUCKETS: Final = 1 << SUB_BUCKET_BITS

MAX_VALUE_NS: Final = (1 << 53) - 1
"""Values above this (104 days) are counted in the last bucket; up to here a float64 is exact."""

RELATIVE_ERROR: Final = 1 / (2 * SUB_BUCKETS)
"""The bound of `Histogram.quantile`: the value returned is within this share of the true one."""

_CHUNK: Final = 1 << 16
"""Values per pass: the work arrays stay in the processor's cache, and small however many values are recorded."""

Int64Array = npt.NDArray[np.int64]


def bucket_of(values: npt.ArrayLike) -> Int64Array:
    """Return the bucket index of each value (ns); values below 0 count as 0, above `MAX_VALUE_NS` as that."""
    clipped = np.clip(np.asarray(values, dtype=np.int64), 0, MAX_VALUE_NS)
    # frexp gives the exponent without a logarithm's rounding: v = m * 2**e with m in [0.5, 1).
    exponent = np.frexp(clipped.astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(exponent - (SUB_BUCKET_BITS + 1), 0)
    return (shift << SUB_BUCKET_BITS) + (clipped >> shift)


def bucket_bounds(index: int) -> tuple[int, int]:
    """Return the smallest and the largest value (ns, both inclusive) that bucket `index` counts."""
    if index < 0:
        raise ValueError(f"bucket index {index}: 0 or more expected")
    shift = max(0, (index >> SUB_BUCKET_BITS) - 1)
    within = index - (shift << SUB_BUCKET_BITS)
    return within << shift, ((within + 1) << shift) - 1


def nearest_rank(n: int, q: float | Fraction) -> int:
    """Return the rank (1..n) of quantile `q` (0..1) among `n` sorted values: the smallest rank that covers `q * n`.

    A float is taken as it is written (0.07 of 100 is rank 7, not 8), so no rounding error moves a rank.
    """
    share = q if isinstance(q, Fraction) else Fraction(repr(float(q)))
    if n < 1 or not 0 <= share <= 1:
        raise ValueError(f"no rank for quantile {float(share)!r} of {n} values")
    return max(1, math.ceil(share * n))


class Histogram:
    """Counts of durations in nanoseconds. `n`, `min`, `max`, `total` and `mean` are exact, quantiles nearly so."""

    __slots__ = ("_base", "_counts", "max", "min", "n", "total")

    def __init__(self) -> None:
        self.n = 0
        self.total = 0
        """Sum of all values, exact (a Python integer)."""
        self.min: int | None = None
        """The smallest value; None when empty."""
        self.max: int | None = None
        """The largest value; None when empty."""
        self._base = 0
        self._counts: Int64Array = np.zeros(0, dtype=np.int64)

    def __repr__(self) -> str:
        return f"Histogram(n={self.n}, min={self.min}, max={self.max})"

    @property
    def mean(self) -> float | None:
        """Return the mean in ns; None when empty."""
        return self.total / self.n if self.n else None

    def record(self, values: npt.ArrayLike) -> None:
        """Count an array of durations (int64 ns)."""
        array = np.atleast_1d(np.asarray(values, dtype=np.int64)).ravel()
        for first in range(0, len(array), _CHUNK):
            self._record(array[first : first + _CHUNK])

    def _record(self, chunk: Int64Array) -> None:
        buckets = bucket_of(chunk)
        low, high = int(buckets.min()), int(buckets.max())
        self._grow_range(low, high)
        window = self._counts[low - self._base : high - self._base + 1]
        window += np.bincount(buckets - low, minlength=high - low + 1)
        smallest, largest = int(chunk.min()), int(chunk.max())
        self.n += len(chunk)
        self.total += _exact_sum(chunk, smallest, largest)
        self._update_extremes(smallest, largest)

    def quantile(self, q: float | Fraction) -> float | None:
        """Return the value (ns) at nearest rank `q` (0..1) within `RELATIVE_ERROR` (0.2 %); None when empty.

        Exact below 512 ns, and where all values of the bucket are the smallest or the largest recorded.
        """
        if not self.n:
            return None
        return self.value_in(self.locate(nearest_rank(self.n, q))[0])

    def value_in(self, index: int) -> float:
        """Return what stands for the values (ns) in a bucket; the histogram must not be empty."""
        assert self.min is not None
        assert self.max is not None
        low, high = bucket_bounds(index)
        return min(max((low + high) / 2, self.min), self.max)

    def locate(self, rank: int) -> tuple[int, int, int]:
        """Return where the value of `rank` (1..n) is: bucket index, rank in the bucket (from 1), bucket's count."""
        if not 1 <= rank <= self.n:
            raise ValueError(f"rank {rank}: 1 to {self.n} expected")
        cumulative = np.cumsum(self._counts)
        place = int(np.searchsorted(cumulative, rank))
        count = int(self._counts[place])
        return self._base + place, rank - (int(cumulative[place]) - count), count

    def counts(self) -> dict[int, int]:
        """Return bucket index -> count, of the buckets that hold something, in order."""
        return {self._base + int(place): int(self._counts[place]) for place in np.flatnonzero(self._counts)}

    def copy(self) -> Histogram:
        """Return another one with the same values."""
        made = Histogram()
        made.n, made.total, made.min, made.max, made._base = self.n, self.total, self.min, self.max, self._base
        made._counts = self._counts.copy()
        return made

    def since(self, earlier: Histogram) -> dict[int, int]:
        """Return bucket index -> count of what was recorded after `earlier` was copied from this one, in order."""
        counts = self._counts.copy()
        if len(earlier._counts):
            begin = earlier._base - self._base
            counts[begin : begin + len(earlier._counts)] -= earlier._counts
        return {self._base + int(place): int(counts[place]) for place in np.flatnonzero(counts)}

    def add(self, other: Histogram) -> None:
        """Count the values of another one, too."""
        if not other.n:
            return
        counted = np.flatnonzero(other._counts)
        low, high = (int(counted[place]) + other._base for place in (0, -1))
        self._grow_range(low, high)
        self._counts[low - self._base : high - self._base + 1] += other._counts[
            low - other._base : high - other._base + 1
        ]
        self.n += other.n
        self.total += other.total
        self._update_extremes(other.min or 0, other.max or 0)

    def _update_extremes(self, smallest: int, largest: int) -> None:
        self.min = smallest if self.min is None else min(self.min, smallest)
        self.max = largest if self.max is None else max(self.max, largest)

    def _grow_range(self, low: int, high: int) -> None:
        """Make room for buckets `low` to `high`, in whole powers of two so that a drift does not copy each time."""
        if len(self._counts) and self._base <= low and high < self._base + len(self._counts):
            return
        first, last = low, high
        if len(self._counts):
            first, last = min(low, self._base), max(high, self._base + len(self._counts) - 1)
        first = first // SUB_BUCKETS * SUB_BUCKETS
        size = -(-(last + 1 - first) // SUB_BUCKETS) * SUB_BUCKETS
        grown = np.zeros(size, dtype=np.int64)
        if len(self._counts):
            grown[self._base - first : self._base - first + len(self._counts)] = self._counts
        self._base, self._counts = first, grown


def _exact_sum(chunk: Int64Array, smallest: int, largest: int) -> int:
    if max(abs(smallest), abs(largest)) * len(chunk) < 1 << 63:
        return int(chunk.sum())
    return sum(chunk.tolist())
