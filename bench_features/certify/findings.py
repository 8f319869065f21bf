"""What the runs of equal treatments say together: false words, floors, spreads, order and probe."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np

from bench_common.units import unix_seconds
from bench_features.certify.certificate import (
    Bounded,
    Certificate,
    CertifiedMeasure,
    CertifiedRun,
    FalseWords,
    ProbeFinding,
    machine_of,
)
from bench_features.certify.runs import Evidence, RunPlan
from bench_master.analysis.occasions import occasion_numbers
from bench_master.analysis.verdict_types import DIRECTED_WORDS
from bench_master.reports.table import grouped
from bench_master.verdicts.planning import smallest_effect
from bench_master.verdicts.quantiles import quantile
from bench_master.verdicts.spread import spread_of
from bench_master.verdicts.student import binomial_interval

PROMISED: Final = 0.05
"""In how many runs of equal treatments any of the words may be false."""
DETECTABLE_ROUNDS: Final = (6, 10, 20, 30)
"""For so many rounds a certificate says what a run can show; and for as many as its own runs had."""
FLOOR_QUANTILE: Final = 0.95
_FLOOR_RUNS: Final = 20
"""Of fewer runs the largest difference is the floor."""


def certify_runs(runs: Sequence[CertifiedRun], last: Evidence, plan: RunPlan, valid_days: int) -> Certificate:
    """Return the certificate of runs that were made by one plan on one machine, in the order of time."""
    numbers = occasion_numbers([unix_seconds(run.began) for run in runs], [run.boot_id for run in runs])
    series = [one for run in runs for one in run.series]
    return Certificate(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        valid_days=valid_days,
        host=last.host,
        machine=machine_of(last.fingerprint),
        scenario=plan.scenario,
        plan=plan.digest,
        jobs=plan.jobs,
        rounds=last.rounds,
        margin=last.margin,
        occasions=len(set(numbers)),
        false_words=false_words(runs),
        measures=tuple(_measures(runs, numbers, last.rounds)),
        place=bounded((one.place for one in series), math.expm1),
        carry_over=bounded((one.carry_over for one in series), math.expm1),
        probe=probe_finding(runs),
        runs=tuple(runs),
    ).sealed()


def false_words(runs: Iterable[CertifiedRun]) -> FalseWords:
    """Return how often treatments were called different from themselves."""
    words = [[one.word for one in run.comparisons] for run in runs]
    every = [word for own in words for word in own]
    found = sum(word in DIRECTED_WORDS for word in every)
    runs_found = sum(not DIRECTED_WORDS.isdisjoint(own) for own in words)
    low, high = binomial_interval(found, len(every))
    runs_low, runs_high = binomial_interval(runs_found, len(words))
    return FalseWords(
        comparisons=len(every),
        found=found,
        low=low,
        high=high,
        runs=len(words),
        runs_found=runs_found,
        runs_low=runs_low,
        runs_high=runs_high,
        words=dict(Counter(map(str, every)).most_common()),
    )


# -- measures --------------------------------------------------------------------------------------------------------


def _measures(runs: Sequence[CertifiedRun], occasions: Sequence[int], rounds: int) -> Iterable[CertifiedMeasure]:
    """Yield what the runs say of each measure that all of them have."""
    every = [(occasion, one) for occasion, run in zip(occasions, runs, strict=True) for one in run.measures]
    for (treatment, measure), own in grouped(every, lambda pair: (pair[1].treatment, pair[1].measure)).items():
        if len(own) < len(runs):
            continue
        each = [one for _, one in own]
        sd = pooled_sd([(one.sd, one.rounds - 1) for one in each])
        within, between = spreads([(occasion, one.level) for occasion, one in own])
        yield CertifiedMeasure(
            treatment=treatment,
            measure=measure,
            unit=each[0].unit,
            value=math.exp(float(np.median([one.level for one in each]))),
            runs=len(each),
            floor=math.expm1(floor_of([one.estimate for one in each])),
            sd=math.expm1(sd),
            detectable={str(count): detectable(sd, count) for count in sorted({*DETECTABLE_ROUNDS, rounds})},
            between_runs=None if within is None else math.expm1(within),
            between_days=None if between is None else math.expm1(between),
        )


def floor_of(estimates: Sequence[float]) -> float:
    """Return the size that the differences of 19 of 20 runs are below; of fewer than twenty runs the largest."""
    sizes = np.abs(np.asarray(estimates, float))
    return float(sizes.max()) if len(sizes) < _FLOOR_RUNS else quantile(sizes, FLOOR_QUANTILE)


def pooled_sd(spreads_of_runs: Iterable[tuple[float, int]]) -> float:
    """Return the standard deviation of several runs, of each its own and the degrees of freedom."""
    known = list(spreads_of_runs)
    return math.sqrt(sum(sd * sd * degrees for sd, degrees in known) / sum(degrees for _, degrees in known))


def detectable(sd: float, rounds: int) -> float | None:
    """Return the share that one comparison of so many rounds shows in four runs of five; None if there is none."""
    effect = smallest_effect(sd, rounds)
    return math.expm1(effect) if math.isfinite(effect) else None


def spreads(levels: Sequence[tuple[int, float]]) -> tuple[float | None, float | None]:
    """Return the standard deviations of the runs of an occasion, and of the means of occasions, of logarithms.

    The second one has the noise of the runs in it that each mean is of. None where there are no two of a kind.
    """
    occasions = [[level for _, level in own] for own in grouped(levels, lambda pair: pair[0]).values()]
    several = [own for own in occasions if len(own) > 1]
    within = pooled_sd([(float(np.std(own, ddof=1)), len(own) - 1) for own in several]) if several else None
    means = [float(np.mean(own)) for own in occasions]
    return within, float(np.std(means, ddof=1)) if len(means) > 1 else None


# -- order and probe ------------------------------------------------------------------------------------------------


def bounded(values: Iterable[float | None], form: Callable[[float], float] = float) -> Bounded | None:
    """Return the middle of values with its exact interval by signed ranks, in a form; None without any."""
    found = spread_of([value for value in values if value is not None], log=False)
    if found is None:
        return None
    low, high = (form(end) if found.is_interval else None for end in (found.low, found.high))
    return Bounded(form(found.middle), low, high)


def probe_finding(runs: Iterable[CertifiedRun]) -> ProbeFinding | None:
    """Return what the probe explains; None where no run has one.

    Where it explains nothing, each correlation may as well have the other sign, and its square is 1 / rounds on
    average: that of a direction in so many dimensions with one that is fixed.
    """
    known = [
        (one.probe_correlation, one.probe_rounds)
        for run in runs
        for one in run.series
        if one.probe_correlation is not None
    ]
    correlation = bounded(one for one, _ in known)
    if correlation is None:
        return None
    return ProbeFinding(
        r2=float(np.mean([one * one for one, _ in known])),
        chance=float(np.mean([1.0 / rounds for _, rounds in known])),
        correlation=correlation,
        explains=(correlation.low or 0.0) > 0.0 or (correlation.high or 0.0) < 0.0,
    )
