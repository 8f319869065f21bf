"""Verdicts between runs: a run counts as one measurement, however many rounds it has.

What is constant within a run (memory layout, placement, neighbours) differs from run to run, and no number of rounds
shows by how much. So a run gives one level, ln of the median of its trials, and its unit is the run:

- a new run against at least five earlier ones: Student's prediction interval;
- runs of two builds in turns (A B A B ...): the signed rank on the pairs;
- two groups of runs: the rank sum, from 4 against 4 on.

When a long series of runs changed is in `change_points`. Levels are logarithms, in the order of time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_master.verdicts import decision
from bench_master.verdicts.decision import Rules, TrialValues, Verdict
from bench_master.verdicts.planning import POWER_QUANTILE, upper_spread
from bench_master.verdicts.rank_sum import critical_rank_sum, rank_sum_p
from bench_master.verdicts.reasons import Code, because
from bench_master.verdicts.signed_rank import Interval, Values
from bench_master.verdicts.student import t_quantile, t_two_sided

MIN_ARCHIVE: Final = 5
"""Fewer earlier runs do not show how much runs differ."""
MIN_PAIRS: Final = 6
"""Fewer pairs have no interval at 95 %."""
MIN_SPLITS: Final = 40
"""In so many ways at least two groups must be divisible: with fewer no rank sum reaches 5 %."""
MAX_NEW_RUNS: Final = 50
"""More new runs are no advice: a quieter machine is."""
_ANCHOR_P: Final = 0.05


class RunLevels(Struct, frozen=True):
    """The level of each run, with what is not known exactly as a band."""

    values: Values
    low: Values
    high: Values

    @classmethod
    def exact(cls, values: object) -> RunLevels:
        """Return levels that are known exactly."""
        array = np.atleast_1d(np.asarray(values, float))
        return cls(array, array, array)

    def __len__(self) -> int:
        return len(self.values)

    def part(self, first: int, last: int | None = None) -> RunLevels:
        """Return the runs from `first` up to `last`, exclusive."""
        return self.taken(range(len(self))[first:last])

    def taken(self, places: Sequence[int]) -> RunLevels:
        """Return the runs at these places, in this order."""
        chosen = np.asarray(places, int)
        return RunLevels(self.values[chosen], self.low[chosen], self.high[chosen])

    def joined(self, *newer: RunLevels) -> RunLevels:
        """Return these runs, and newer ones behind them."""
        names = self.__struct_fields__
        return RunLevels(*(np.concatenate([getattr(one, name) for one in (self, *newer)]) for name in names))

    def trials(self) -> TrialValues:
        """Return the runs as if each were a trial."""
        return TrialValues(np.exp(self.values), np.exp(self.low), np.exp(self.high))


class Prediction(Struct, frozen=True):
    """Where new runs lie against what earlier ones predict. Differences of logarithms."""

    new: int
    difference: float
    """The mean of the new runs less that of the earlier ones."""
    interval: Interval
    """That of the difference; infinite where the earlier runs have no spread."""
    p: float
    """Of "the new runs are like the earlier ones", two-sided."""
    spread: float
    """Standard deviation of the earlier runs."""


def predict(earlier: RunLevels, new: RunLevels, alpha: float = decision.ALPHA) -> Prediction:
    """Return how the mean of the `new` runs lies against the `earlier` ones, of which there must be at least two.

    Earlier runs that do not differ at all (a measure in coarse steps, say) predict nothing.
    """
    m, j = len(earlier), len(new)
    spread = float(earlier.values.std(ddof=1))
    difference = float(new.values.mean() - earlier.values.mean())
    error = spread * math.sqrt(1.0 / j + 1.0 / m)
    if not error > 1e-12:  # noqa: PLR2004  rounding of equal values
        return Prediction(j, difference, Interval(-math.inf, math.inf), 1.0, 0.0)
    reach = t_quantile(1.0 - alpha / 2.0, m - 1) * error
    low = float(new.low.mean() - earlier.high.mean())
    high = float(new.high.mean() - earlier.low.mean())
    p = t_two_sided(abs(difference) / error, m - 1)
    return Prediction(j, difference, Interval(low - reach, high + reach), p, spread)


def next_run(earlier: RunLevels) -> float:
    """Return how far from their mean one more run like these is expected at most (as a difference of logarithms).

    This is the noise floor of comparisons between runs, whatever the intervals within each run are.
    """
    m = len(earlier)
    spread = float(earlier.values.std(ddof=1))
    return t_quantile(1.0 - decision.ALPHA / 2.0, m - 1) * spread * math.sqrt(1.0 + 1.0 / m)


def expected(earlier: RunLevels) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of where one more run like these is expected, no logarithms; None of too few runs."""
    if len(earlier) < MIN_ARCHIVE:
        return None, None
    mean, reach = float(earlier.values.mean()), next_run(earlier)
    return math.exp(mean - reach), math.exp(mean + reach)


def smallest_effect(spread: float, earlier: int, new: int, alpha: float = decision.ALPHA) -> float:
    """Return the smallest difference that `new` runs against `earlier` ones show with a power of 80 %."""
    return (t_quantile(1.0 - alpha / 2.0, earlier - 1) + POWER_QUANTILE) * spread * math.sqrt(1 / new + 1 / earlier)


def new_runs_needed(earlier: RunLevels, effect: float) -> int | None:
    """Return how many new runs show an `effect` with a power of 80 %; None if no number does.

    As the spread of few runs is itself uncertain, this takes the upper 80 % bound of it.
    """
    spread, m = upper_spread(earlier.values), len(earlier)
    enough = (j for j in range(1, MAX_NEW_RUNS + 1) if smallest_effect(spread, m, j) <= effect)
    return next(enough, None)


def against_archive(earlier: RunLevels, new: RunLevels, rules: Rules) -> Verdict:
    """Return the verdict on the mean of the `new` runs against at least `MIN_ARCHIVE` earlier ones."""
    alpha = rules.alpha / rules.comparisons
    found = predict(earlier, new, alpha)
    exact = RunLevels.exact(earlier.values), RunLevels.exact(new.values)
    verdict = decision.decide(exact, (earlier, new), _predicted, found.difference, found.p, rules)
    return replace(
        verdict,
        reason=verdict.reason if found.spread else because(Code.EARLIER_RUNS_ALIKE),
        rounds=len(earlier),
        smallest_effect=math.expm1(smallest_effect(found.spread, len(earlier), len(new), alpha)),
        more_rounds=_more_new(earlier, len(new), rules) if verdict.word == "inconclusive" and found.spread else None,
    )


def _predicted(earlier: RunLevels, new: RunLevels, level: float, comparisons: int) -> Interval:
    return predict(earlier, new, level / comparisons).interval


def _more_new(earlier: RunLevels, new: int, rules: Rules) -> int | None:
    needed = new_runs_needed(earlier, math.log1p(rules.margin))
    return None if needed is None or needed <= new else needed - new


def of_pairs(a: RunLevels, b: RunLevels, rules: Rules) -> Verdict:
    """Return the verdict on pairs of runs that alternated, `MIN_PAIRS` at least: the signed rank, as for rounds."""
    return decision.compare(a.trials(), b.trials(), rules)


def can_rank(a: int, b: int) -> bool:
    """Whether groups of so many runs (or hosts) are enough for a rank sum."""
    return math.comb(a + b, a) >= MIN_SPLITS


def of_groups(a: RunLevels, b: RunLevels, rules: Rules) -> Verdict:
    """Return the verdict on two groups of runs, or of hosts, that `can_rank`: Wilcoxon's rank sum.

    The interval holds the differences between all pairs; as within a run, what is shown is what was decided.
    """
    alpha = rules.alpha / rules.comparisons
    estimate, p = float(np.median(np.subtract.outer(b.values, a.values))), rank_sum_p(a.values, b.values)
    exact = RunLevels.exact(a.values), RunLevels.exact(b.values)
    verdict = decision.decide(exact, (a, b), _rank_sum_interval, estimate, p, rules)
    degrees = len(a) + len(b) - 2
    pooled = float(((len(a) - 1) * a.values.var(ddof=1) + (len(b) - 1) * b.values.var(ddof=1)) / degrees)
    quantile = t_quantile(1.0 - alpha / 2.0, degrees) + POWER_QUANTILE
    effect = quantile * math.sqrt(pooled * (1 / len(a) + 1 / len(b)) / 0.95)
    return replace(verdict, rounds=min(len(a), len(b)), smallest_effect=math.expm1(effect))


def shift_between(a: Values, b: Values) -> tuple[float, Interval]:
    """Return how far group `b` lies above `a`, two groups that `can_rank`: Hodges and Lehmann's."""
    one, other = RunLevels.exact(a), RunLevels.exact(b)
    return float(np.median(np.subtract.outer(b, a))), _rank_sum_interval(one, other, decision.ALPHA, 1)


def _rank_sum_interval(a: RunLevels, b: RunLevels, alpha: float, comparisons: int) -> Interval:
    corrected = alpha / comparisons
    c = critical_rank_sum(len(a), len(b), corrected)
    if c < 0:
        # As within a run: which rule holds depends on the numbers of runs and comparisons alone.
        alone = critical_rank_sum(len(a), len(b), alpha)
        return _ends(a, b, alone).hull(_student(a, b, corrected)) if alone >= 0 else Interval(-math.inf, math.inf)
    return _ends(a, b, c)


def _ends(a: RunLevels, b: RunLevels, c: int) -> Interval:
    low = np.sort((b.low[:, None] - a.high[None, :]).ravel())
    high = np.sort((b.high[:, None] - a.low[None, :]).ravel())
    return Interval(float(low[c]), float(high[len(high) - 1 - c]))


def _student(a: RunLevels, b: RunLevels, alpha: float) -> Interval:
    """Return Welch's interval of the difference of the means."""
    parts = a.values.var(ddof=1) / len(a), b.values.var(ddof=1) / len(b)
    error = math.sqrt(sum(parts))
    if not error:
        return Interval(math.inf, -math.inf)  # adds nothing to a hull
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    reach = t_quantile(1.0 - alpha / 2.0, float(degrees)) * error
    return Interval(float(b.low.mean() - a.high.mean()) - reach, float(b.high.mean() - a.low.mean()) + reach)


# -- anchor -------------------------------------------------------------------------------------------------------


def anchor_helps(levels: Values, anchors: Values) -> bool:
    """Whether the archive shows that ratios to an unchanged treatment differ less from run to run than the levels.

    The test of Pitman and Morgan (1939) for the spreads of paired values, one-sided at 5 %. It takes an archive: a
    ratio to something that varies on its own makes it worse.
    """
    if len(levels) < MIN_ARCHIVE:
        return False
    ratios = levels - anchors
    total, difference = levels + ratios, levels - ratios
    if not (total.std() > 0.0 and difference.std() > 0.0) or ratios.std() >= levels.std():
        return False
    r = min(1.0 - 1e-12, abs(float(np.corrcoef(total, difference)[0, 1])))
    degrees = len(levels) - 2
    return t_two_sided(r * math.sqrt(degrees / (1.0 - r * r)), degrees) < 2.0 * _ANCHOR_P
