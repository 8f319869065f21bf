"""The decision: from one number for each trial to a word, an interval and a reason.

A comparison is of two treatments, `a` (the baseline) and `b`, over the rounds that have a trial of each. Its unit is
the round: the difference of the logarithms of the two trials' numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_master.verdicts import planning, signed_rank
from bench_master.verdicts.reasons import Code, Reason, because
from bench_master.verdicts.signed_rank import MIN_ROUNDS, Interval, Values

Word: TypeAlias = Literal["faster", "slower", "better", "worse", "same", "inconclusive", "refused"]
BandKind: TypeAlias = Literal["clock", "quantised", "failed"]

DEFAULT_MARGIN: Final = 0.03
"""Smaller differences are *same*, as a share."""
MAX_MARGIN: Final = 0.5
ALPHA: Final = 0.05
"""How often a family of comparisons may err."""
MAX_UNITS: Final = 2000
"""Of more rounds the means of neighbours are judged: the work grows with the square."""
_GAP_FACTOR: Final = {3: 3.0, 4: 1.0, 5: 1.0}
"""How many times the wider side's range the gap between the sides must be, by the number of rounds; of several
comparisons so many times that."""


class TrialValues(Struct, frozen=True):
    """One treatment's number for each round, with what is not known exactly as a band."""

    values: Values
    """The primary measure of each trial in its unit; NaN where no job gave one."""
    low: Values
    """The least that each may be."""
    high: Values
    """The most that each may be; infinite where jobs failed and could have taken for ever."""
    band: BandKind | None = None
    """Why `low` and `high` differ, where they do: the larger reason."""

    @property
    def median(self) -> float | None:
        """The median of the finite values; None without any."""
        known = self.values[np.isfinite(self.values)]
        return float(np.median(known)) if len(known) else None

    @property
    def width(self) -> float:
        """The widest band; a round without a number may have had any."""
        with np.errstate(invalid="ignore"):
            widths = np.where(np.isfinite(self.values), self.high - self.low, np.inf)
        return float(np.nanmax(widths, initial=0.0))

    def scaled(self, rules: Rules) -> TrialValues:
        """Return them on the scale on which sides are subtracted: logarithms, or for differences as they are."""
        if rules.differences:
            return self
        with np.errstate(divide="ignore", invalid="ignore"):
            return TrialValues(np.log(self.values), np.log(self.low), np.log(self.high), self.band)


class Rules(Struct, frozen=True):
    """What is the same for all comparisons of a report."""

    comparisons: int = 1
    """How many comparisons hold together at the level."""
    margin: float = DEFAULT_MARGIN
    alpha: float = ALPHA
    look: tuple[float, float] | None = None
    """Levels of the intervals of a look, for a difference and for *same*; 0 where the look concludes nothing.
    None for a run with a fixed number of rounds."""
    last_look: int | None = None
    """Rounds of the last look, where this is the last one; else None."""
    lower_is_better: bool = True
    words: tuple[Word, Word] = ("slower", "faster")
    """The words for `b` being worse and better than `a`."""
    differences: bool = False
    """Whether b - a is judged, for figures that may be 0; then nothing is ever *same*."""

    @property
    def levels(self) -> tuple[float, float]:
        """The levels of the interval that shows a difference, and of that of the two one-sided tests of *same*."""
        return self.look or (self.alpha, 2.0 * self.alpha)

    def interval_at(self, low: Values, high: Values, level: float, comparisons: int) -> Interval:
        """Return the interval of differences of rounds, which are known up to a band."""
        of_rounds = signed_rank.family_interval if self.look is None else signed_rank.look_interval
        return of_rounds(low, high, level, comparisons)

    def interval(self, low: Values, high: Values) -> Interval:
        """Return the one that shows a difference."""
        return self.interval_at(low, high, self.levels[0], self.comparisons)


class Verdict(Struct, frozen=True):
    """What may be said of b / a, as ratios and not logarithms; or of b - a, if the rules say so."""

    word: Word
    reason: Reason | None
    """Why nothing was decided, or what limits the decision; None where there is nothing to say."""
    ratio: float
    """The estimate; NaN without a round."""
    low: float
    high: float
    """The interval's ends, or the range of the rounds' ratios where there are too few rounds for an interval."""
    confidence: float
    """The interval's level; of a family's intervals together, but for a range."""
    rounds: int = 0
    p: float = math.nan
    """Exact and two-sided; NaN where no interval exists."""
    smallest_effect: float = math.inf
    """The difference that would have been missed in one run of five, as a share; infinite below six rounds."""
    more_rounds: int | None = None
    """How many more rounds would most likely settle it; None if out of reach, or settled."""
    differences: bool = False
    """Whether all of it is of b - a."""
    band: BandKind | None = None
    """Why the values are not known exactly, of the side that is known less well; None if both are."""
    exact: tuple[float, float] = (math.nan, math.nan)
    """The interval's ends as if they were; NaN without a band."""
    ratio_ends: tuple[float, float] = (math.nan, math.nan)
    """Of differences the ends of the interval of b / a; NaN where there is none, or a value is negative."""

    @property
    def tipping_point(self) -> float:
        """How large a shift between the two would explain a difference away, as a share; 0 where there is none.

        Of differences it is in the measure's unit.
        """
        if self.differences:
            return max(self.low, -self.high, 0.0)
        if self.low <= 1.0 <= self.high:
            return 0.0
        return self.low - 1.0 if self.low > 1.0 else 1.0 - self.high


class Part(Struct, frozen=True):
    """The effect in a part of the rounds, as ratios."""

    first: int
    """Its first round, of those with a value on both sides, from 1."""
    last: int
    ratio: float
    low: float
    high: float
    """The ends of its interval: those of all parts of a comparison hold together at its level."""


def compare(a: TrialValues, b: TrialValues, rules: Rules) -> Verdict:
    """Return the verdict on `b` against `a`; the values of one round stand at the same place in both."""
    first, second = a.scaled(rules), b.scaled(rules)
    point = second.values - first.values
    known = np.isfinite(point)
    band = max((first, second), key=lambda side: side.width if side.band else -1.0).band
    if int(known.sum()) < MIN_ROUNDS:
        return _by_gap(first, second, known, band, rules)
    low, high = second.low - first.high, second.high - first.low
    # A round without a number may have had any.
    low, high = np.where(known, low, -np.inf), np.where(known, high, np.inf)
    point, low, high = _condensed(point, low, high)
    verdict = _by_interval(point, low, high, band, rules)
    if rules.differences:
        verdict = replace(verdict, ratio_ends=_ratio_ends(first, second, known, rules))
    return replace(verdict, rounds=int(known.sum()))


def by_parts(a: TrialValues, b: TrialValues, rules: Rules) -> tuple[Part, ...]:
    """Return the effect in each half of the rounds, for an effect that changed; in all if halves are too short.

    Each half has an interval at half of the error. One part of all rounds says less: what its interval excludes does
    not hold in all of them. Empty where there are too few rounds for either.
    """
    first, second = a.scaled(rules), b.scaled(rules)
    point = second.values - first.values
    known = np.isfinite(point)
    if int(known.sum()) < MIN_ROUNDS:
        return ()
    series = [each[known] for each in (point, second.low - first.high, second.high - first.low)]
    look = None if rules.look is None else (rules.look[0] / 2.0, 0.0)
    halves = replace(rules, alpha=rules.alpha / 2.0, look=look)
    middle = -(-len(series[0]) // 2)
    parts = tuple(_part(series, part, halves) for part in ((0, middle), (middle, len(series[0]))))
    if all(math.isfinite(each.high) for each in parts):
        return parts
    return (_part(series, (0, len(series[0])), rules),)


def _part(series: Sequence[Values], part: tuple[int, int], rules: Rules) -> Part:
    point, low, high = _condensed(*(each[slice(*part)] for each in series))
    ends = _shown_ends(rules.interval(low, high), rules)
    return Part(part[0] + 1, part[1], _shown(signed_rank.estimate(point), rules), *ends)


def _ratio_ends(a: TrialValues, b: TrialValues, known: Any, rules: Rules) -> tuple[float, float]:
    """Return the interval of b / a by ``b - f a``; NaN where that means nothing."""
    sides = [np.where(known, each, np.nan) for each in (a.high, b.low, a.low, b.high)]
    if any((each < 0.0).any() for each in sides):
        return math.nan, math.nan
    a_high, b_low, a_low, b_high = _condensed(*sides)
    lower, upper = signed_rank.Pairs(a_high, b_low), signed_rank.Pairs(a_low, b_high)
    level, is_look = rules.levels[0], rules.look is not None
    if not level:
        return math.nan, math.nan
    found = signed_rank.ratio_interval(lower, upper, level, rules.comparisons, is_look=is_look)
    return max(found.low, 0.0), found.high


def _condensed(*series: Values) -> tuple[Values, ...]:
    """Return series of rounds as they are, of very many the means of so many neighbours that `MAX_UNITS` are left.

    Means of differences that are symmetric about a centre are symmetric about it, too.
    """
    group = -(-len(series[0]) // MAX_UNITS)
    if group == 1:
        return series
    whole = len(series[0]) // group * group
    return tuple(each[:whole].reshape(-1, group).mean(axis=1) for each in series)


def _by_interval(point: Values, low: Values, high: Values, band: BandKind | None, rules: Rules) -> Verdict:
    exact = point[np.isfinite(point)]
    estimate, p = signed_rank.estimate(exact), signed_rank.p_value(exact)
    verdict = decide((exact, exact), (low, high), rules.interval_at, estimate, p, rules, band)
    # More rounds make no band narrower.
    is_open = verdict.word == "inconclusive" and verdict.reason not in [because(code) for code in _BANDS.values()]
    last = rules.last_look if rules.look is not None else None
    smallest = planning.smallest_effect(float(exact.std(ddof=1)), len(exact), _asked(rules, len(exact)), last)
    return replace(
        verdict,
        smallest_effect=smallest if rules.differences else _shown(smallest, rules) - 1.0,
        more_rounds=planning.more_rounds(exact, _margin(rules), _asked(rules)) if is_open else None,
        exact=(math.nan, math.nan) if band is None else _shown_ends(rules.interval(exact, exact), rules),
    )


Side = TypeVar("Side")


def decide(
    exact: tuple[Side, Side],
    banded: tuple[Side, Side],
    interval_at: Callable[[Side, Side, float, int], Interval],
    estimate: float,
    p: float,
    rules: Rules,
    band: BandKind | None = None,
) -> Verdict:
    """Return the verdict on rounds, runs or hosts by what gives the interval of a difference at a level, of a family.

    It takes the values as if they were known `exact`, and `banded`: two sides, or the two ends of differences.
    """

    def judged(values: tuple[Side, Side], comparisons: int) -> tuple[Word, Interval]:
        shown, narrow = (interval_at(*values, level, comparisons) for level in rules.levels)
        return word_of(shown, narrow, rules), shown

    (found, interval), reason = judged(banded, rules.comparisons), None
    if found == "inconclusive":
        # What stands between the data and a word: the first thing whose absence would give one.
        if judged(exact, rules.comparisons)[0] != "inconclusive":
            reason = because(_BANDS[band or "failed"])
        elif judged(banded, 1)[0] != "inconclusive":
            reason = because(Code.NOT_ENOUGH_TOGETHER, comparisons=rules.comparisons)
        else:
            reason = because(Code.NOT_ENOUGH_EVIDENCE)
    elif found == "same":
        reason = because(Code.BELOW_MARGIN) if interval.excludes_zero() else None
    elif min(abs(interval.low), abs(interval.high)) < _margin(rules):
        reason = because(Code.MAYBE_BELOW_MARGIN)
    low, high = _shown_ends(interval, rules)
    return Verdict(
        word=found,
        reason=reason,
        ratio=_shown(estimate, rules),
        low=low,
        high=high,
        confidence=1.0 - rules.alpha,
        p=p,
        differences=rules.differences,
        band=band,
    )


def _asked(rules: Rules, rounds: int | None = None) -> float:
    """Return of how many comparisons at 5 % the level of each is; of a look before the last one by its own level."""
    level = rules.alpha
    if rounds is not None and rules.look is not None and rules.last_look is None:
        level = rules.look[0] or rules.alpha
    return max(1.0, rules.comparisons * ALPHA / level)


def _margin(rules: Rules) -> float:
    return 0.0 if rules.differences else math.log1p(rules.margin)


def _shown(effect: float, rules: Rules) -> float:
    """Return an effect as a ratio, infinite above what a double can hold, or the difference that it is."""
    if rules.differences:
        return effect
    return math.exp(effect) if effect < 700 else math.inf  # noqa: PLR2004  the largest exponent


def _shown_ends(interval: Interval, rules: Rules) -> tuple[float, float]:
    return _shown(interval.low, rules), _shown(interval.high, rules)


def word_of(interval: Interval, narrow: Interval, rules: Rules) -> Word:
    """Return the word of two intervals of a difference: `narrow` is that of the two one-sided tests of *same*."""
    if not rules.differences and narrow.is_within(_margin(rules)):
        return "same"
    if not interval.excludes_zero():
        return "inconclusive"
    return rules.words[0] if (interval.low > 0.0) == rules.lower_is_better else rules.words[1]


_BANDS: Final[dict[BandKind, Code]] = {
    "clock": Code.DEPENDS_ON_CLOCK,
    "quantised": Code.DEPENDS_ON_ROUNDING,
    "failed": Code.DEPENDS_ON_FAILURES,
}
"""Why there is no word where what is not known exactly could turn it round."""


def _by_gap(a: TrialValues, b: TrialValues, known: Any, band: BandKind | None, rules: Rules) -> Verdict:
    """Return the verdict on three to five rounds: only a gap that leaves no doubt, and never an interval."""
    rounds, point = int(known.sum()), (b.values - a.values)[known]
    word: Word = "inconclusive"
    lost = not rounds and len(known)
    reason = because(Code.NO_COMMON_ROUND) if lost else because(Code.TOO_FEW_ROUNDS, rounds=rounds)
    if rounds and len(known) >= MIN_ROUNDS:
        # Enough ran: what is left of them are survivors.
        reason = because(Code.DEPENDS_ON_FAILURES)
    exact = _gap_word(a.values[known], a.values[known], b.values[known], b.values[known], rules)
    if exact is not None:
        banded = _gap_word(a.low[known], a.high[known], b.low[known], b.high[known], rules)
        if not known.all():
            # Rounds that failed may have had any value: what is left of them are survivors.
            reason = because(Code.DEPENDS_ON_FAILURES)
        elif banded is None:
            reason = because(_BANDS[b.band or a.band or "clock"])
        else:
            word, reason = banded, because(Code.CLEAR_GAP, rounds=rounds)
    low, high = (_shown(float(end), rules) for end in (point.min(), point.max())) if rounds else (math.nan, math.nan)
    return Verdict(
        word=word,
        reason=reason,
        ratio=_shown(signed_rank.estimate(point), rules) if rounds else math.nan,
        low=low,
        high=high,
        confidence=1.0 - 2.0 ** (1 - rounds) if rounds else 0.0,
        rounds=rounds,
        # Where rounds took place and none has a value, jobs fail, and more of them would, too.
        more_rounds=MIN_ROUNDS - rounds if word == "inconclusive" and not lost else None,
        differences=rules.differences,
        band=band,
        exact=(low, high),
    )


def _gap_word(a_low: Values, a_high: Values, b_low: Values, b_high: Values, rules: Rules) -> Word | None:
    """Return the word if all rounds of one side lie far enough beyond all of the other; else None.

    Values that are one of two at random show a gap in 2 of 4^n comparisons of n rounds, however wide it is. A family
    that would err more often than its level has none; nor have two rounds.
    """
    if rules.comparisons * 2.0 * 4.0 ** -len(a_low) > rules.alpha:
        return None
    above, below = float(b_low.min() - a_high.max()), float(a_low.min() - b_high.max())
    gap = max(above, below)
    widest = max(float(a_high.max() - a_low.min()), float(b_high.max() - b_low.min()))
    if not gap > _margin(rules) or gap < _GAP_FACTOR[len(a_low)] * rules.comparisons * widest:
        return None
    return rules.words[0] if (above > below) == rules.lower_is_better else rules.words[1]
