"""Latencies of a whole run in bounded memory, with exact percentiles.

Two passes over the rows: the first fills a histogram for each treatment and operation, which finds the bucket that
holds the wanted rank; the second collects only the values of those buckets and picks the rank among them. Where a
bucket holds too many values for the memory that is set aside, the histogram's answer stands, with its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.histogram import Histogram, Int64Array, bucket_bounds, bucket_of, nearest_rank
from bench_common.records import job_id_of
from bench_common.stats.rows import Columns

Key: TypeAlias = tuple[int, str]
"""Treatment index and name of the operation (``job`` for the whole job)."""

MAX_TARGET_VALUES: Final = 4 << 20
"""Entries (8 bytes each) that the second pass may hold, over all percentiles of all series."""


def in_seconds(nanoseconds: float | None) -> float | None:
    """Return a time in seconds; None where there is none."""
    return None if nanoseconds is None else nanoseconds / 1e9


class Moments(Struct):
    """Number, mean and spread of values, which are not kept."""

    n: int = 0
    mean: float = 0.0
    _squares: float = 0.0
    """Sum of squared distances from the mean, kept up by Chan's update: no large numbers are subtracted."""

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add some values."""
        count, mean = len(values), float(values.mean())
        shift, total = mean - self.mean, self.n + count
        self._squares += float(((values - mean) ** 2).sum()) + shift * shift * self.n * count / total
        self.mean += shift * count / total
        self.n = total

    @property
    def stddev(self) -> float | None:
        """Return the sample standard deviation (n - 1); None below two values."""
        return math.sqrt(self._squares / (self.n - 1)) if self.n > 1 else None

    @property
    def population_stddev(self) -> float | None:
        """Return the standard deviation of the values themselves; None when empty."""
        return math.sqrt(self._squares / self.n) if self.n else None


class LatencySeries(Struct):
    """The durations (ns) of one operation of one treatment; failed tries are only counted."""

    histogram: Histogram = field(default_factory=Histogram)
    moments: Moments = field(default_factory=Moments)
    errors: int = 0
    slowest_ticket: int | None = None

    def add(self, durations: Int64Array, rows: Columns) -> None:
        """Record successful durations (ns) and the rows that they belong to."""
        if not len(durations):
            return
        slowest = int(durations.argmax())
        if self.histogram.max is None or durations[slowest] > self.histogram.max:
            self.slowest_ticket = int(rows["ticket"][slowest])
        self.moments.add(durations)
        self.histogram.record(durations)

    @property
    def slowest_job(self) -> int | None:
        """Return the id of the job that took longest."""
        return None if self.slowest_ticket is None else job_id_of(self.slowest_ticket)


def select_rows(rows: Columns, keep: npt.NDArray[np.bool_]) -> Columns:
    """Return the rows to keep; where that is every one, themselves and no copy."""
    return rows if keep.all() else rows[keep]


def group_positions(keys: npt.NDArray[np.integer]) -> Iterator[tuple[int, npt.NDArray[np.intp] | slice]]:
    """Yield each distinct key, in order, and where it stands: everywhere as a slice, else the positions in order."""
    if not len(keys):
        return
    low, high = int(keys.min()), int(keys.max())
    if low == high:
        yield low, slice(None)
        return
    near = keys - low
    if high - low < 1 << 8:
        # Of 8 bits the order is found by counting, in a fraction of the time.
        near = near.astype(np.uint8)
        counts = np.bincount(near)
        distinct = np.flatnonzero(counts)
        edges = np.cumsum(counts[distinct])
    else:
        distinct, counts = np.unique(near, return_counts=True)
        edges = np.cumsum(counts)
    order = np.argsort(near, kind="stable")
    for key, positions in zip(distinct.tolist(), np.split(order, edges[:-1]), strict=True):
        yield low + key, positions


def group_rows(rows: Columns, column: str) -> Iterator[tuple[int, int, Columns]]:
    """Yield (treatment, value of `column`, rows) for each pair that occurs."""
    values = rows[column]
    width = int(values.max()) + 1 if len(rows) else 1
    keys = rows["treatment"].astype(np.int64) * width + values
    for key, where in group_positions(keys):
        yield *divmod(key, width), rows[where]


class _Target(Struct):
    """One bucket that a wanted rank fell into, and the ranks (from 1, within the bucket) to be found there."""

    low: int
    high: int
    count: int
    ranks: set[int] = field(default_factory=set)
    held: list[Int64Array] = field(default_factory=list)
    counts: Int64Array | None = None
    """Instead of `held`, a count for each possible value, where the bucket is narrower than it is full."""

    @property
    def value_count(self) -> int:
        return min(self.count, self.high - self.low + 1)

    def collect(self, durations: Int64Array) -> None:
        found = durations[(durations >= self.low) & (durations <= self.high)]
        if self.high - self.low + 1 >= self.count:
            self.held.append(found)
        else:
            width = self.high - self.low + 1
            counts = np.bincount(found - self.low, minlength=width)
            self.counts = counts if self.counts is None else self.counts + counts

    def value(self, rank: int) -> int:
        if self.counts is not None:
            return self.low + int(np.searchsorted(np.cumsum(self.counts), rank))
        return int(np.sort(np.concatenate(self.held))[rank - 1])


class ExactRanks:
    """Values at chosen ranks (from 1) of every series: exact after `collect` has seen every row once more."""

    def __init__(
        self,
        series: Mapping[Key, LatencySeries],
        ranks_of: Callable[[int], Iterable[int]],
        budget: int = MAX_TARGET_VALUES,
    ) -> None:
        """Prepare for the ranks that `ranks_of` returns for a number of values."""
        self._series = series
        self._targets: dict[Key, dict[int, _Target]] = {}
        for key, one in series.items():
            if one.histogram.n:
                self._add_targets(key, one.histogram, ranks_of(one.histogram.n))
        every = [
            (target.value_count, key, index)
            for key, found in self._targets.items()
            for index, target in found.items()
        ]
        spent = 0
        for cost, key, index in sorted(every):
            spent += cost
            if spent > budget:
                del self._targets[key][index]

    def _add_targets(self, key: Key, histogram: Histogram, ranks: Iterable[int]) -> None:
        targets = self._targets.setdefault(key, {})
        for wanted in ranks:
            index, rank, count = histogram.locate(wanted)
            low, high = bucket_bounds(index)
            # Values out of the histogram's range are in its first and last bucket, whose bounds they widen.
            low, high = (
                min(low, histogram.min or 0) if index == 0 else low,
                max(high, histogram.max or 0) if index == _LAST_BUCKET else high,
            )
            targets.setdefault(index, _Target(low, high, count)).ranks.add(rank)

    @property
    def needs_second_pass(self) -> bool:
        """Say whether a second pass can tell anything that the histograms do not."""
        return any(self._targets.values())

    def collect(self, key: Key, durations: Int64Array) -> None:
        """Show the second pass some of the durations that the first recorded under `key`."""
        for target in self._targets.get(key, {}).values():
            target.collect(durations)

    def at_rank(self, key: Key, rank: int) -> tuple[float, bool]:
        """Return the value of a rank (1..n) of a series that has values, in ns, and whether it is exact."""
        histogram = self._series[key].histogram
        index, place, _ = histogram.locate(rank)
        target = self._targets.get(key, {}).get(index)
        if target is None:
            return histogram.value_in(index), False
        return target.value(place), True


class ExactPercentiles(ExactRanks):
    """Nearest-rank percentiles of every series: exact after `collect` has seen every row once more."""

    def __init__(
        self, series: Mapping[Key, LatencySeries], percentiles: Iterable[float], budget: int = MAX_TARGET_VALUES
    ) -> None:
        wanted = [_share(percentile) for percentile in percentiles]
        super().__init__(series, lambda count: [nearest_rank(count, share) for share in wanted], budget)

    def value(self, key: Key, percentile: float) -> tuple[float | None, bool]:
        """Return a percentile (0..100) of a series in ns, and whether it is exact; (None, True) when it is empty."""
        count = self._series[key].histogram.n
        return self.at_rank(key, nearest_rank(count, _share(percentile))) if count else (None, True)


def _share(percentile: float) -> Fraction:
    return Fraction(repr(float(percentile))) / 100


_LAST_BUCKET: Final = int(bucket_of(np.iinfo(np.int64).max))
