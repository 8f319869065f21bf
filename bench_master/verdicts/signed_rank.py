"""Wilcoxon's signed rank on the rounds' differences: exact p, exact interval, Hodges-Lehmann estimate.

Walsh averages are the means of all pairs of differences, each with itself as well. The number of those above zero is
the signed rank statistic T (Tukey 1949), so test and interval follow from the same numbers, and what is shown is what
was decided. Under "no difference" the drawn order makes each difference symmetric about zero: the level is exact,
whatever the noise. Sources: Wilcoxon 1945; Hodges and Lehmann 1963.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct

from bench_master.verdicts.student import t_quantile

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

MAX_EXACT: Final = 300
"""Above so many rounds the distribution of T is approximated by a normal one."""
MIN_ROUNDS: Final = 6
"""Fewer rounds have no interval at 95 %."""
SWAP_STEPS: Final = 20_000
"""Steps of the sum of all differences on which sums are counted."""
NO_INTERVAL: Final = -1
"""The critical value where no interval has the level."""


class Interval(Struct, frozen=True):
    """An interval of the effect, a difference of logarithms; an end may be infinite."""

    low: float
    high: float

    def excludes_zero(self) -> bool:
        """Whether zero is outside."""
        return self.low > 0.0 or self.high < 0.0

    def is_within(self, margin: float) -> bool:
        """Whether all of it lies between -`margin` and `margin`."""
        return -margin < self.low and self.high < margin

    def hull(self, other: Interval) -> Interval:
        """Return the smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


@lru_cache(maxsize=512)
def null_distribution(rounds: int) -> Values:
    """Return P(T <= t) for t = 0 ... rounds (rounds + 1) / 2 under "no difference"; at most `MAX_EXACT` rounds."""
    chances = np.ones(1)
    for rank in range(1, rounds + 1):
        longer = np.zeros(len(chances) + rank)
        longer[: len(chances)] += chances / 2.0
        longer[rank:] += chances / 2.0
        chances = longer
    cumulated = np.cumsum(chances)
    cumulated.setflags(write=False)
    return cumulated


@lru_cache(maxsize=4096)
def critical_value(rounds: int, alpha: float) -> int:
    """Return c, the largest t with P(T <= t) <= alpha / 2; `NO_INTERVAL` where there is none."""
    if rounds > MAX_EXACT:
        mean, sd = _moments(rounds)
        return math.floor(mean + sd * NormalDist().inv_cdf(alpha / 2.0) - 0.5)
    # A sum of doubles may be off in its last digits; the smallest step, 2^-300, is not in question.
    return int(np.searchsorted(null_distribution(rounds), alpha / 2.0 * (1.0 + 1e-12), side="right")) - 1


def walsh_averages(differences: Values) -> Values:
    """Return the sorted means of all pairs of differences, each with itself as well."""
    rows, columns = np.triu_indices(len(differences))
    averages: Values = np.sort((differences[rows] + differences[columns]) / 2.0)
    return averages


def estimate(differences: Values) -> float:
    """Return the Hodges-Lehmann estimate of the centre of symmetry: the median of the Walsh averages."""
    return float(np.median(walsh_averages(differences)))


def p_value(differences: Values) -> float:
    """Return the two-sided p of "the centre is zero"; ties with zero count against a difference."""
    averages = walsh_averages(differences)
    zeros = int((averages == 0.0).sum())
    fewer = min(int((averages > 0.0).sum()), int((averages < 0.0).sum())) + zeros
    return min(1.0, 2.0 * _cumulated(len(differences), fewer))


def swap_p_value(differences: Values) -> float:
    """Return the two-sided p of "no difference" of differences themselves, not their ranks: exact, by swapping names.

    Under "no difference" each round's sign is a coin's. All sums are counted on a grid of `SWAP_STEPS` steps.
    """
    sizes = np.rint(np.abs(differences) / np.abs(differences).sum() * SWAP_STEPS).astype(np.int64)
    # Half the sum of all is the most that swapping can move; rounding must not make a tie a difference.
    sums = np.zeros(int(sizes.sum()) + 1)
    sums[0] = 1.0
    for size in sizes[sizes > 0].tolist():
        moved = sums / 2.0
        moved[size:] += sums[:-size] / 2.0
        sums = moved
    observed = abs(2 * int(sizes[differences > 0].sum()) - int(sizes.sum())) - len(sizes)
    places = np.abs(2 * np.arange(len(sums)) - int(sizes.sum()))
    return min(1.0, float(sums[places >= observed].sum()))


def exact_interval(low_differences: Values, high_differences: Values, alpha: float) -> Interval:
    """Return the interval at level 1 - `alpha`; infinite where too few rounds are there for it.

    The differences are known up to a band: the lower end comes from the lowest that they may be, the upper from the
    highest. They are the same where there is no band.
    """
    c = critical_value(len(low_differences), alpha)
    if c == NO_INTERVAL:
        return Interval(-math.inf, math.inf)
    low, high = walsh_averages(low_differences), walsh_averages(high_differences)
    return Interval(float(low[c]), float(high[len(high) - 1 - c]))


def student_interval(low_differences: Values, high_differences: Values, alpha: float) -> Interval:
    """Return Student's interval of the mean at level 1 - `alpha`, of differences that are known up to a band.

    Each end is the worst over all values within the bands. As it is convex in them, that is where each is at one of
    its ends: not all at the same one, since values that are further apart have a wider interval.
    """
    low, high = low_differences, high_differences
    return Interval(-_student_end(-high, -low, alpha), _student_end(low, high, alpha))


def _student_end(low: Values, high: Values, alpha: float) -> float:
    """Return the largest upper end of values between `low` and `high`."""
    n = len(low)
    if n < 2 or not np.isfinite([low, high]).all():  # noqa: PLR2004  a spread takes two
        return math.inf
    reach = t_quantile(1.0 - alpha / 2.0, n - 1) / math.sqrt(n)

    def ends(sums: Any, squares: Any) -> Any:
        variance = np.maximum(squares - sums * sums / n, 0.0) / (n - 1)
        return sums / n + reach * np.sqrt(variance)

    # The values in the upper part of the sample at their upper ends, the others at their lower ones ...
    centre = float((low + high).mean()) / 2.0
    one, other = low - centre, high - centre
    order = np.argsort(one + other)
    up = np.tri(n + 1, n, -1, dtype=bool)[:, ::-1]
    tried = np.where(up, other[order], one[order])
    best = int(ends(tried.sum(axis=1), (tried**2).sum(axis=1)).argmax())
    values = np.empty(n)
    values[order] = tried[best]
    if (one == other).all():
        return float(ends(values.sum(), (values**2).sum())) + centre
    # ... and then one after the other, as long as that makes the end larger.
    for _ in range(2 * n):
        flipped = one + other - values
        found = ends(values.sum() - values + flipped, (values**2).sum() - values**2 + flipped**2)
        place = int(found.argmax())
        if not found[place] > ends(values.sum(), (values**2).sum()) + 1e-15:  # rounding
            break
        values[place] = flipped[place]
    return float(ends(values.sum(), (values**2).sum())) + centre


def family_interval(low_differences: Values, high_differences: Values, alpha: float, comparisons: int) -> Interval:
    """Return the interval of one of `comparisons`, so that all of them hold together at level 1 - `alpha`.

    The exact interval at ``alpha / comparisons`` needs ``log2(2 comparisons / alpha)`` rounds. With fewer it is the
    hull of the exact interval at `alpha` and Student's at the corrected level. Which rule holds depends on the number
    of rounds and comparisons alone, never on the data.
    """
    corrected = alpha / comparisons
    if critical_value(len(low_differences), corrected) != NO_INTERVAL:
        return exact_interval(low_differences, high_differences, corrected)
    exact = exact_interval(low_differences, high_differences, alpha)
    return exact.hull(student_interval(low_differences, high_differences, corrected))


def look_interval(low_differences: Values, high_differences: Values, level: float, comparisons: int) -> Interval:
    """Return the interval of one of `comparisons` at a look of nominal `level`, 0 for a look without one.

    For several it is the hull of the exact interval at `level` and Student's at the corrected level: the early looks
    have so small a level that no exact interval at a share of it exists.
    """
    if level <= 0.0:
        return Interval(-math.inf, math.inf)
    exact = exact_interval(low_differences, high_differences, level)
    if comparisons == 1:
        return exact
    return exact.hull(student_interval(low_differences, high_differences, level / comparisons))


class Pairs(Struct, frozen=True):
    """Values of 0 and more of both sides, round by round, which say where one end of their ratio lies."""

    a: Values
    b: Values

    def exact_end(self, alpha: float, side: float) -> float:
        """Return the end of the exact interval of b / a: `side` -1 for the lower one, 1 for the upper.

        It holds each f for which the signed rank of ``b - f a`` does not show a difference. A Walsh average of these
        is above 0 for all f below the ratio of the two sums, so the ends are order statistics of such ratios.
        """
        c = critical_value(len(self.a), alpha)
        if c == NO_INTERVAL:
            return side * math.inf
        rows, columns = np.triu_indices(len(self.a))
        above, below = self.b[rows] + self.b[columns], self.a[rows] + self.a[columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(below > 0.0, above / below, np.where(above > 0.0, math.inf, side * math.inf))
        # What is not known counts for no limit.
        ordered = np.sort(np.where(np.isnan(ratios), side * math.inf, ratios))
        return float(ordered[c] if side < 0.0 else ordered[len(ordered) - 1 - c])

    def student_end(self, alpha: float, side: float) -> float:
        """Return the end of Fieller's interval of the ratio of the means: Student's test of ``b - f a`` for all f."""
        n = len(self.a)
        if not np.isfinite([self.a, self.b]).all():
            return side * math.inf
        means = float(self.a.mean()), float(self.b.mean())
        reach = t_quantile(1.0 - alpha / 2.0, n - 1) ** 2 / n
        (aa, ab), (_, bb) = reach * np.cov(self.a, self.b)
        square, mixed, rest = means[0] ** 2 - aa, means[0] * means[1] - ab, means[1] ** 2 - bb
        if square <= 0.0:
            return side * math.inf
        return float((mixed + side * math.sqrt(max(mixed * mixed - square * rest, 0.0))) / square)


def ratio_interval(lower: Pairs, upper: Pairs, alpha: float, comparisons: int, *, is_look: bool) -> Interval:
    """Return the interval of b / a where values may be 0, so that there are no logarithms.

    `lower` are the values that make the ratio least, `upper` those that make it largest; the same where all are known
    exactly. The rules for families and looks are those of `family_interval` and `look_interval`.
    """
    n, corrected = len(lower.a), alpha / comparisons
    if not is_look and critical_value(n, corrected) != NO_INTERVAL:
        return Interval(lower.exact_end(corrected, -1.0), upper.exact_end(corrected, 1.0))
    exact = Interval(lower.exact_end(alpha, -1.0), upper.exact_end(alpha, 1.0))
    if comparisons == 1:
        return exact
    return exact.hull(Interval(lower.student_end(corrected, -1.0), upper.student_end(corrected, 1.0)))


def _cumulated(rounds: int, t: int) -> float:
    if rounds <= MAX_EXACT:
        return float(null_distribution(rounds)[t])
    mean, sd = _moments(rounds)
    return 0.5 * math.erfc(-(t + 0.5 - mean) / sd / math.sqrt(2.0))


def _moments(rounds: int) -> tuple[float, float]:
    return rounds * (rounds + 1) / 4.0, math.sqrt(rounds * (rounds + 1) * (2 * rounds + 1) / 24.0)
