"""The decision: from one number for each trial to a word, an interval and a reason.

A comparison is of two treatments, `a` (the baseline) and `b`, over the rounds that have a trial of each. Its unit is
the round: the difference of the logarithms of the two trials' numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from bench_master.verdicts import planning, signed_rank
from bench_master.verdicts.signed_rank import MIN_ROUNDS, Interval, Values

Word: TypeAlias = Literal["faster", "slower", "better", "worse", "same", "inconclusive", "refused"]
BandKind: TypeAlias = Literal["clock", "quantised", "failed"]

DEFAULT_MARGIN: Final = 0.03
"""Smaller differences are *same*, as a share."""
ALPHA: Final = 0.05
"""How often a family of comparisons may err."""
MIN_GAP_ROUNDS: Final = 3
"""With fewer rounds nothing is decided."""
_GAP_FACTOR: Final = {3: 3.0, 4: 1.0, 5: 1.0}
"""How many times the wider side's range the gap between the sides must be, by the number of rounds."""


@dataclass(frozen=True, slots=True)
class TrialValues:
    """One treatment's number for each round, with what is not known exactly as a band."""

    values: Values
    """The primary figure of each trial, above 0, in its unit; NaN where no job gave one."""
    low: Values
    """The least that each may be."""
    high: Values
    """The most that each may be; infinite where jobs failed and could have taken for ever."""
    band: BandKind | None = None
    """Why `low` and `high` differ, where they do: the larger reason."""

    @classmethod
    def exact(cls, values: Any) -> TrialValues:
        """Return values that are known exactly."""
        array = np.asarray(values, float)
        return cls(array, array, array)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for all comparisons of a report."""

    comparisons: int = 1
    """How many comparisons hold together at the level."""
    margin: float = DEFAULT_MARGIN
    alpha: float = ALPHA
    look: tuple[float, float] | None = None
    """Levels of the intervals of a look, for a difference and for *same*; 0 where the look concludes nothing.
    None for a run with a fixed number of rounds."""
    lower_is_better: bool = True
    words: tuple[Word, Word] = ("slower", "faster")
    """The words for `b` being worse and better than `a`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be said of b / a. Ratios, not logarithms."""

    word: Word
    reason: str | None
    """Why nothing was decided, or what limits the decision; None where there is nothing to say."""
    ratio: float
    """The estimate; NaN without a round."""
    low: float
    high: float
    """The interval's ends, or the range of the rounds' ratios where there are too few rounds for an interval."""
    confidence: float
    """The interval's level; of a family's intervals together, but for a range."""
    rounds: int
    p: float
    """Exact and two-sided; NaN where no interval exists."""
    smallest_effect: float
    """The smallest difference that would have been seen four times in five, as a share; infinite below six rounds."""
    more_rounds: int | None
    """How many more rounds would most likely settle it; None if out of reach, or settled."""

    @property
    def tipping_point(self) -> float:
        """How large a shift between the two would explain a difference away, as a share; 0 where there is none."""
        if self.low <= 1.0 <= self.high:
            return 0.0
        return self.low - 1.0 if self.low > 1.0 else 1.0 / self.high - 1.0


def compare(a: TrialValues, b: TrialValues, rules: Rules) -> Verdict:
    """Return the verdict on `b` against `a`; the values of one round stand at the same place in both."""
    with np.errstate(divide="ignore", invalid="ignore"):
        point = np.log(b.values) - np.log(a.values)
        low, high = np.log(b.low) - np.log(a.high), np.log(b.high) - np.log(a.low)
    known = np.isfinite(point)
    rounds = int(known.sum())
    if rounds < MIN_ROUNDS:
        return _by_gap(a, b, point[known], rules)
    return _by_interval(point, low, high, b.band or a.band, rules)


def _by_interval(point: Values, low: Values, high: Values, band: BandKind | None, rules: Rules) -> Verdict:
    known = np.isfinite(point)
    exact = point[known]
    # A round without a number may have had any.
    low, high = np.where(known, low, -np.inf), np.where(known, high, np.inf)
    interval, narrow = _intervals(low, high, rules)
    word = word_of(interval, narrow, rules)
    reason = limits_of(word, interval, rules.margin)
    if word == "inconclusive":
        reason = _why_inconclusive(point, low, high, band, rules)
    spread = float(exact.std(ddof=1))
    return Verdict(
        word=word,
        reason=reason,
        ratio=math.exp(signed_rank.estimate(exact)),
        low=math.exp(interval.low),
        high=ratio_of(interval.high),
        confidence=1.0 - rules.alpha,
        rounds=len(exact),
        p=signed_rank.p_value(exact),
        smallest_effect=math.expm1(planning.smallest_effect(spread, len(exact))),
        more_rounds=planning.more_rounds(exact, math.log1p(rules.margin)) if word == "inconclusive" else None,
    )


def _intervals(low: Values, high: Values, rules: Rules, comparisons: int | None = None) -> tuple[Interval, Interval]:
    """Return the interval that shows a difference, and the narrower one of the two one-sided tests of *same*."""
    comparisons = comparisons or rules.comparisons
    if rules.look is not None:
        level, same_level = rules.look
        return (
            signed_rank.look_interval(low, high, level, comparisons),
            signed_rank.look_interval(low, high, same_level, comparisons),
        )
    return (
        signed_rank.family_interval(low, high, rules.alpha, comparisons),
        signed_rank.family_interval(low, high, 2.0 * rules.alpha, comparisons),
    )


def word_of(interval: Interval, narrow: Interval, rules: Rules) -> Word:
    """Return the word of two intervals of a difference: `narrow` is that of the two one-sided tests of *same*."""
    if narrow.is_within(math.log1p(rules.margin)):
        return "same"
    if not interval.excludes_zero():
        return "inconclusive"
    return rules.words[0] if (interval.low > 0.0) == rules.lower_is_better else rules.words[1]


def limits_of(word: Word, interval: Interval, margin: float) -> str | None:
    """Return what limits a word that was found; None if nothing does."""
    if word not in ("same", "inconclusive") and _overlaps(interval, margin):
        return "may be less than the margin"
    if word == "same" and interval.excludes_zero():
        return "real, but below the margin"
    return None


def ratio_of(difference: float) -> float:
    """Return the ratio of a difference of logarithms; infinite above what a double can hold."""
    return math.exp(difference) if difference < 700 else math.inf  # noqa: PLR2004  the largest exponent


def _overlaps(interval: Interval, margin: float) -> bool:
    return min(abs(interval.low), abs(interval.high)) < math.log1p(margin)


def _why_inconclusive(point: Values, low: Values, high: Values, band: BandKind | None, rules: Rules) -> str:
    """Return what stands between the data and a word: the first thing whose absence would give one."""
    exact = point[np.isfinite(point)]
    if word_of(*_intervals(exact, exact, rules), rules) != "inconclusive":
        if band is not None:
            return _BAND_REASONS[band]
        return _BAND_REASONS["failed"]
    if word_of(*_intervals(low, high, rules, 1), rules) != "inconclusive":
        return f"not enough for {rules.comparisons} comparisons together"
    return "neither a difference nor sameness is shown"


_BAND_REASONS: Final[dict[BandKind, str]] = {
    "clock": "it hangs on how exactly the clock was read",
    "quantised": "it hangs on the steps in which the figure is given",
    "failed": "it hangs on what failed",
}


def _by_gap(a: TrialValues, b: TrialValues, point: Values, rules: Rules) -> Verdict:
    """Return the verdict on three to five rounds: only a gap that leaves no doubt, and never an interval."""
    rounds = len(point)
    word: Word = "inconclusive"
    reason: str | None = f"{rounds} rounds are too few" if rounds != 1 else "1 round is too few"
    if rounds >= MIN_GAP_ROUNDS:
        both = np.isfinite(a.values) & np.isfinite(b.values)
        gap = _gap(a, b, both)
        widest = max(_range(a, both), _range(b, both))
        if abs(gap) >= _GAP_FACTOR[rounds] * widest and abs(gap) > math.log1p(rules.margin):
            word = rules.words[0] if (gap > 0.0) == rules.lower_is_better else rules.words[1]
            reason = f"by a clear gap; {rounds} rounds are too few for an interval"
    return Verdict(
        word=word,
        reason=reason,
        ratio=math.exp(signed_rank.estimate(point)) if rounds else math.nan,
        low=math.exp(point.min()) if rounds else math.nan,
        high=math.exp(point.max()) if rounds else math.nan,
        confidence=1.0 - 2.0 ** (1 - rounds) if rounds else 0.0,
        rounds=rounds,
        p=math.nan,
        smallest_effect=math.inf,
        more_rounds=MIN_ROUNDS - rounds if word == "inconclusive" else None,
    )


def _gap(a: TrialValues, b: TrialValues, both: Any) -> float:
    """Return by how much all trials of one side lie beyond all of the other, in logarithms; 0 where they overlap."""
    above = float(np.log(b.low[both].min()) - np.log(a.high[both].max()))
    below = float(np.log(a.low[both].min()) - np.log(b.high[both].max()))
    return above if above > 0.0 else -below if below > 0.0 else 0.0


def _range(side: TrialValues, both: Any) -> float:
    return float(np.log(side.high[both].max()) - np.log(side.low[both].min()))
