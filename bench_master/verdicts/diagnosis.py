"""Whether a series of measurements is one thing: drift, steps, neighbours alike, regimes; and carry-over.

A series is of logarithms, in the order in which they were measured. A finding needs evidence (level 1 %) and size
(more than the margin). The rank tests hold for any continuous noise and for quantised figures.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_master.verdicts.rank_sum import least_rank_sum_p, rank_sum_p

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
SeriesKind: TypeAlias = Literal["drift", "step", "neighbours", "regimes"]

LEVEL: Final = 0.01
"""How often each test may find something in a series of independent measurements."""
FALSE_ALARMS: Final = {"series": 0.0075, "carry-over": 0.01}
"""How often the tests of a run may find something where nothing is: those of its series together, and of carry-over.

The rest of 2 % is for regimes, which have no level but a gap.
"""
TREND_LEVEL: Final = 0.1
"""The same for a trend that groups of runs have in common: it would be taken for a difference between them."""
OUTLIER_SDS: Final = 5.0
"""A measurement further than so many robust standard deviations from the median is an outlier."""
MAX_POINTS: Final = 2000
"""A longer series is judged by the medians of groups of neighbours; the tests of pairs grow with the square."""
MIN_DRIFT: Final = 6
"""Fewest measurements that can show a drift; the others likewise."""
MIN_NEIGHBOURS: Final = 10
MIN_REGIMES: Final = 20
STEP_SIDE: Final = 3
"""Fewest measurements on each side of a step."""
_PERMUTATIONS: Final = 20_000
_FEWEST_PERMUTATIONS: Final = 2000
_TABLE_ENTRIES: Final = 2_400_000
"""How many ranks a table of permutations takes at most, so that a long series costs as much as one of 120."""
_TABLE_SEED: Final = 20_140_101
_REGIME_GAPS: Final = ((120, 3.0), (40, 4.0), (30, 4.5), (MIN_REGIMES, 6.0))
"""Least gap between two regimes, in units of their mean deviations, by the length of the series: fewer than one in a
thousand series of normal, uniform or exponential noise has one. A doubled number of series has a tenth more."""
REGIME_SHARE: Final = 5
"""Each regime has at least one measurement in so many."""
_REGIME_STEPS: Final = 2.5
"""Regimes of a quantised measure are more than so many steps apart."""
_WARM_UP_SHARE: Final = 0.6
_WARM_UP_TREATMENTS: Final = 8
_ROBUST_SD: Final = 1.4826
"""Standard deviation of normal noise whose median absolute deviation is 1."""


class Finding(Struct, frozen=True):
    """Something that a test found in a series. Sizes are in logarithms."""

    kind: SeriesKind
    p: float | None
    """Two-sided (`neighbours`: one-sided); None for regimes, which are found by a threshold."""
    size: float
    """Change over the whole series (`drift`, signed), at the step (signed), between the regimes (positive); for
    `neighbours` twice the standard deviation of what neighbours share."""
    at: int | None = None
    """`step`: how many measurements lie before it."""
    switches: int | None = None
    """`regimes`: how often the series changed between them."""
    modes: tuple[float, float] | None = None
    """`regimes`: the median of the lower and of the upper one."""
    correlation: float | None = None
    """`neighbours`: of the ranks of neighbours."""


def find(series: Any, margin: float, *, level: float = LEVEL, of: int = 1) -> list[Finding]:
    """Return what the four tests find in a series of logarithms whose size is above `margin` (a logarithm, too).

    It is one `of` so many series that are looked at together; `level` allows for that already.
    """
    values = np.asarray(series, float)
    group = math.ceil(len(values) / MAX_POINTS) if len(values) > MAX_POINTS else 1
    if group > 1:
        values = np.median(values[: len(values) // group * group].reshape(-1, group), axis=1)
    found = (drift(values), step(values), neighbours(values))
    large = [one for one in found if one is not None and one.p is not None and one.p <= level]
    two = regimes(values, margin, of)
    results = [one for one in [*large, two] if one is not None and abs(one.size) > margin]
    return [_ungrouped(one, group) for one in results] if group > 1 else results


def _ungrouped(found: Finding, group: int) -> Finding:
    return found if found.at is None else replace(found, at=found.at * group)


def can_find(test: Callable[[Values], Finding | None], count: int, level: float) -> bool:
    """Whether a test can find anything in so many measurements: in a series that only rises it finds most."""
    found = test(np.arange(min(count, MAX_POINTS), dtype=float))
    return found is not None and found.p is not None and found.p <= level


# -- ranks -----------------------------------------------------------------------------------------------------------


def ranks(values: Values) -> Values:
    """Return the ranks from 1; equal values share the mean of theirs."""
    ordered = np.sort(values)
    below, above = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return np.asarray((below + above + 1) / 2.0)


def _upper_tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2.0))


# -- drift -----------------------------------------------------------------------------------------------------------


def drift(values: Values) -> Finding | None:
    """Return the Mann-Kendall test of a trend, with Theil and Sen's slope as its size; None for less than six points.

    References: Mann, Econometrica 13 (1945); Sen, JASA 63 (1968).
    """
    return shared_drift([values]) if len(values) >= MIN_DRIFT else None


def shared_drift(parts: Sequence[Values]) -> Finding | None:
    """Return the test of a trend that several series share, each with a level of its own; None for constants.

    Their scores and variances are summed up (van Belle and Hughes, Water Resources Research 20, 1984). The size is
    that of the whole, from the first series to the last.
    """
    score, variance, slopes = 0.0, 0.0, []
    for values in parts:
        n = len(values)
        first, second = np.triu_indices(n, 1)
        score += float(np.sign(values[second] - values[first]).sum())
        _, ties = np.unique(values, return_counts=True)
        variance += (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18.0
        slopes.append((values[second] - values[first]) / (second - first))
    if variance <= 0.0:
        return None
    p = min(1.0, 2.0 * _upper_tail(max(abs(score) - 1.0, 0.0) / math.sqrt(variance)))
    return Finding("drift", p, float(np.median(np.concatenate(slopes))) * (sum(map(len, parts)) - 1))


# -- steps -----------------------------------------------------------------------------------------------------------


def step(values: Values) -> Finding | None:
    """Return where the level most likely changed: the largest standardised CUSUM of ranks; None for a constant.

    There are at least `STEP_SIDE` values before and after it. Its p comes from a seeded table of permutations, so the
    same series always has the same p.
    """
    found = largest_sum(values, STEP_SIDE)
    if found is None:
        return None
    at, largest = found
    table = _step_table(_table_length(len(values)))
    # A value as large as one of the table counts as that one: rounding must not make it rarer.
    at_least = len(table) - int(np.searchsorted(table, largest - 1e-5))
    p = (1.0 + at_least) / (1.0 + len(table))
    return Finding("step", p, float(np.median(values[at:]) - np.median(values[:at])), at)


def largest_sum(values: Values, side: int, *, untied: bool = False) -> tuple[int, float] | None:
    """Return the largest standardised CUSUM of the ranks: how many values lie before it, and its size.

    With `untied` it is standardised as if no values were equal: then a short series of few distinct values has no
    larger one than others. None for a constant, and for less than `side` values on each side.
    """
    n = len(values)
    if n < 2 * side:
        return None
    centred = ranks(values) - (n + 1) / 2.0
    spread = math.sqrt(float((centred**2).mean()))
    if spread == 0.0:
        return None
    if untied:
        spread = math.sqrt((n * n - 1) / 12.0)
    sums = np.abs(np.cumsum(centred)[side - 1 : n - side]) / (_step_scale(n, side) * spread)
    best = int(sums.argmax())
    return best + side, float(sums[best])


def _step_scale(n: int, side: int) -> Values:
    before = np.arange(side, n - side + 1, dtype=float)
    return np.sqrt(before * (n - before) / (n - 1.0))


def _table_length(n: int) -> int:
    """Return the length of the table for `n` points: the next of a series that grows by an eighth, never shorter.

    The largest sum grows with the length, so a table of a longer series errs to the safe side.
    """
    if n <= 120:  # noqa: PLR2004  tables up to here have all their permutations
        return n
    return math.ceil(120 * 1.125 ** math.ceil(math.log(n / 120) / math.log(1.125)))


@functools.lru_cache(maxsize=64)
def _step_table(n: int) -> Values:
    """Return the sorted statistics of seeded permutations of `n` ranks."""
    count = max(_FEWEST_PERMUTATIONS, min(_PERMUTATIONS, _TABLE_ENTRIES // n))
    draw = np.random.default_rng((_TABLE_SEED, n))
    centred = np.arange(1, n + 1, dtype=np.float32) - np.float32((n + 1) / 2)
    shuffled = draw.permuted(np.broadcast_to(centred, (count, n)), axis=1)
    sums = np.abs(np.cumsum(shuffled, axis=1)[:, STEP_SIDE - 1 : n - STEP_SIDE])
    spread = math.sqrt((n * n - 1) / 12.0)
    return np.sort((sums / (_step_scale(n, STEP_SIDE) * spread).astype(np.float32)).max(axis=1).astype(float))


# -- neighbours ------------------------------------------------------------------------------------------------------


def neighbours(values: Values) -> Finding | None:
    """Return Bartels' rank version of von Neumann's ratio, one-sided: neighbours are more alike than others.

    Reference: Bartels, JASA 77 (1982). None for less than ten points and for a constant.
    """
    n = len(values)
    if n < MIN_NEIGHBOURS:
        return None
    p, correlation = von_neumann(values)
    if p is None:
        return None
    shared = float(values.std(ddof=1)) * math.sqrt(max(correlation, 0.0))
    return Finding("neighbours", p, 2.0 * shared, correlation=correlation)


def von_neumann(values: Values) -> tuple[float | None, float]:
    """Return p of the rank von Neumann ratio and the correlation of neighbours' ranks; None for a constant."""
    n = len(values)
    ranked = ranks(values)
    centred = ranked - ranked.mean()
    total = float((centred**2).sum())
    if total == 0.0:
        return None, 0.0
    ratio = float((np.diff(ranked) ** 2).sum()) / total
    variance = 4.0 * (n - 2) * (5 * n * n - 2 * n - 9) / (5.0 * n * (n + 1) * (n - 1) ** 2)
    return _upper_tail((2.0 - ratio) / math.sqrt(variance)), float((centred[1:] * centred[:-1]).sum()) / total


# -- regimes ---------------------------------------------------------------------------------------------------------


def regimes(values: Values, margin: float, of: int = 1) -> Finding | None:
    """Return the two levels that a series keeps to, if it has two that are further apart than `margin`.

    The best split of the sorted values counts: the gap of the parts' medians over the sum of their mean deviations.
    """
    n = len(values)
    needed = next((gap for length, gap in _REGIME_GAPS if n >= length), None)
    if needed is None:
        return None
    ordered = np.sort(values)
    resolution = resolution_step(values)
    least = math.ceil(n / REGIME_SHARE)
    splits = np.arange(least, n - least + 1)
    low, high = _medians(ordered, 0, splits), _medians(ordered, splits, n)
    within = _mean_deviations(ordered, splits)
    gaps = high - low
    # Within a regime a measure varies by one of its steps at least.
    scores = gaps / np.maximum(within, max(resolution, 1e-12))
    best = int(scores.argmax())
    gap = float(gaps[best])
    if scores[best] <= needed * (1.0 + math.log2(of) / 10.0) or gap <= margin or gap <= _REGIME_STEPS * resolution:
        return None
    middle = (ordered[splits[best] - 1] + ordered[splits[best]]) / 2.0
    above = values > middle
    switches = int((above[1:] != above[:-1]).sum())
    return Finding("regimes", None, gap, switches=switches, modes=(float(low[best]), float(high[best])))


def _medians(ordered: Values, begin: Any, end: Any) -> Values:
    """Return the medians of the slices `begin` to `end` of sorted values."""
    first, last = (begin + end - 1) // 2, (begin + end) // 2
    return np.asarray((ordered[first] + ordered[last]) / 2.0)


def _mean_deviations(ordered: Values, splits: Any) -> Values:
    """Return the sum of the two parts' mean absolute deviations from their medians."""
    n = len(ordered)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))

    def mean(begin: Any, end: Any) -> Any:
        # In a sorted slice the deviations from the median are the upper half's sum less that of the lower.
        size = end - begin
        half = size // 2
        return (sums[end] - sums[end - half] - (sums[begin + half] - sums[begin])) / size

    return np.asarray(mean(np.zeros_like(splits), splits) + mean(splits, np.full_like(splits, n)))


def resolution_step(values: Any) -> float:
    """Return the step in which a measure is given: where at most half of the values differ, the least gap; else 0."""
    distinct = np.unique(np.asarray(values, float))
    if not 1 < len(distinct) <= len(values) / 2:
        return 0.0
    return float(np.diff(distinct).min())


def outliers(values: Any) -> list[int]:
    """Return the places of measurements that are more than five robust standard deviations from the median."""
    array = np.asarray(values, float)
    if len(array) < MIN_DRIFT:
        return []
    away = np.abs(array - np.median(array))
    robust = _ROBUST_SD * float(np.median(away))
    return [int(place) for place in np.flatnonzero(away > OUTLIER_SDS * robust)] if robust > 0.0 else []


# -- between trials and treatments -----------------------------------------------------------------------------------


class CarryOver(Struct, frozen=True):
    """How much slower a trial is after one treatment than after another."""

    p: float
    """Of the rank sum, two-sided."""
    shift: float
    """In logarithms: above 0 where trials after the first treatment are slower."""


def carry_over(after_a: Any, after_b: Any) -> CarryOver | None:
    """Return how trials differ by what ran before them: residuals after `a` and after `b`.

    None where one side has less than three. The estimate is Hodges and Lehmann's shift.
    """
    first, second = np.asarray(after_a, float), np.asarray(after_b, float)
    m, n = len(first), len(second)
    if min(m, n) < STEP_SIDE:
        return None
    return CarryOver(rank_sum_p(first, second), float(np.median(np.subtract.outer(first, second))))


def can_find_carry_over(after_a: int, after_b: int, level: float) -> bool:
    """Whether so many trials after each of two treatments can show a carry-over at a level."""
    return min(after_a, after_b) >= STEP_SIDE and least_rank_sum_p(after_a, after_b) <= level


def warm_up_too_short(slowest_first: Sequence[bool]) -> bool:
    """Return whether the first measured round was the slowest of so many treatments that it still warmed up."""
    count = len(slowest_first)
    return count >= _WARM_UP_TREATMENTS and sum(slowest_first) >= _WARM_UP_SHARE * count
