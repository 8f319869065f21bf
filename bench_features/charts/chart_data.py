"""What charts need and the report document lacks, of a size that does not grow with the jobs.

At most `MOST_QUANTILES` quantiles of each series, and what `chart_sums` has of trials and hosts. Warm-up
is in the trials alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.stats.reader import has_times
from bench_features.charts.chart_sums import TIME_BINS, ChartSums, HostSeries, at_rank, document_places
from bench_master.analysis.report_types import ReportDocument
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.measured import MeasuredRun

MOST_QUANTILES: Final = 120
"""Points of a line: 77 even ones up to the 95th percentile, the others geometric up to the tail."""
_EVEN: Final = 77
_ROUNDING: Final = 1e-6
_TAIL_FROM: Final = 0.05
_TAIL_TO: Final = 1e-6


class Distribution(Struct, frozen=True):
    """The durations of one operation of a treatment: quantiles (0 to 1) and their values, both rising."""

    treatment: int
    """Place among the document's treatments."""
    operation: str
    n: int
    shares: Sequence[float]
    seconds: Sequence[float]


class TrialMark(Struct, frozen=True):
    """One trial, warm-up included."""

    trial: int
    treatment: int
    """Place among the document's treatments."""
    warmup: bool
    begin_s: float
    """Since the run began; its number, from 1, where times are unknown (`ChartData.timed`)."""
    end_s: float | None
    """None if it did not end."""
    value: float | None
    """The mean of its primary metric, or else the median time of its jobs; None if no job was done."""
    jobs: Sequence[float]
    """Times of some of its jobs, the shortest and the longest among them; empty where the value is a metric."""
    done: int
    failed: int

    @property
    def jobs_per_s(self) -> float | None:
        """Jobs done per second; None if it did not end."""
        return None if self.end_s is None or self.end_s <= self.begin_s else self.done / (self.end_s - self.begin_s)


class ChartData(Struct, frozen=True):
    """All of it."""

    duration_s: float
    """How long the run was; the bins of time are even parts of it."""
    distributions: Sequence[Distribution] = ()
    trials: Sequence[TrialMark] = ()
    """In the order in which they began."""
    metrics: Mapping[int, str] = field(default_factory=dict)
    """The metric that a treatment's trials are measured by; others are measured by the time of jobs."""
    values: Mapping[tuple[int, str], Mapping[int, float]] = field(default_factory=dict)
    """By treatment and metric: the mean of each trial, warm-up included."""
    hosts: Sequence[HostSeries] = ()
    heat: Mapping[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Jobs done by bin of time and of latency, for each treatment."""
    failed: Mapping[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Jobs failed by bin of time, for each treatment that has some."""
    timed: bool = True
    """Whether it is known when trials ran; imported results may not say so."""

    @property
    def bin_s(self) -> float:
        """How long a bin of time is."""
        return self.duration_s / TIME_BINS


def chart_data(run: MeasuredRun, document: ReportDocument) -> ChartData:
    """Return what the charts of a run's report document need."""
    ledger, sums, timed = run.sums, run.part(ChartSums), has_times(run.header)
    metrics, means = trial_metrics(document), sums.trial_means()
    names = {worker: str(body.host) for worker, body in ledger.hosts.items()}
    return ChartData(
        duration_s=ledger.duration_s or 0.0,
        distributions=_distributions(ledger) if timed else (),
        trials=_trial_marks(run, metrics, means, timed=timed),
        metrics=metrics,
        values=means,
        hosts=[
            host.series(names[worker])
            for worker, host in sorted(sums.hosts.items())
            if worker in names and host.readings
        ],
        heat=sums.heat.counts,
        failed=sums.heat.failed,
        timed=timed,
    )


def trial_metrics(document: ReportDocument) -> dict[int, str]:
    """Return the metric that each treatment is measured by: that of its verdicts, or else its primary one."""
    compared = (
        {}
        if document.verdicts is None
        else {title: each.measure for each in document.verdicts.comparisons for title in (each.a, each.b)}
    )
    found = {}
    for place, treatment in enumerate(document.treatments):
        name = compared.get(treatment.title)
        if name not in treatment.metrics:
            name = next((name for name, metric in treatment.metrics.items() if metric.primary), None)
        if name is not None:
            found[place] = name
    return found


def quantile_shares(n: int) -> list[float]:
    """Return the quantiles (0 to 1) of the points of a line of `n` values: each, or `MOST_QUANTILES`."""
    if n <= MOST_QUANTILES:
        return [(rank + 1) / n for rank in range(n)]
    even = np.linspace(0.0, 1 - _TAIL_FROM, _EVEN).tolist()
    tail = (1 - np.geomspace(_TAIL_FROM, _TAIL_TO, MOST_QUANTILES - _EVEN + 1)[1:-1]).tolist()
    return [*even, *tail, 1.0]


def _trial_marks(
    run: MeasuredRun,
    metrics: Mapping[int, str],
    means: Mapping[tuple[int, str], Mapping[int, float]],
    *,
    timed: bool,
) -> list[TrialMark]:
    """Return the trials whose begin is known; without times (not `timed`) all trials."""
    plan, began_ns = run.header.trials, run.stats.began_ns
    places = document_places(run.sums.treatments)
    found = []
    for trial, entry in run.part(ChartSums).trials.items():
        begin_ns = entry.begin_ns if timed else began_ns + (trial + 1) * 10**9
        if begin_ns is None or not 0 <= trial < len(plan) or plan[trial][0] not in places:
            continue
        entry.close()
        place = places[plan[trial][0]]
        by_metric = place in metrics
        metric = means.get((place, metrics.get(place, "")), {}).get(trial)
        found.append(
            TrialMark(
                trial=trial,
                treatment=place,
                warmup=bool(plan[trial][2]),
                begin_s=(begin_ns - began_ns) / 1e9,
                end_s=None if entry.end_ns is None or not timed else (entry.end_ns - began_ns) / 1e9,
                value=metric if by_metric else entry.median_s if timed else None,
                jobs=() if by_metric or not timed else entry.jobs,
                done=entry.done,
                failed=entry.failed,
            )
        )
    return sorted(found, key=lambda mark: mark.begin_s)


def _distributions(ledger: Aggregator) -> list[Distribution]:
    places = document_places(ledger.treatments)
    found = []
    for (treatment, operation), series in ledger.series.items():
        histogram = series.histogram
        if treatment not in places or not histogram.n:
            continue
        points: dict[int, float] = {}
        for share in quantile_shares(histogram.n):
            # A share of a point is no percentile that somebody wrote: what is left of its rounding moves no rank.
            points[min(histogram.n, max(1, math.ceil(share * histogram.n - _ROUNDING)))] = share
        seconds = [at_rank(histogram, rank) / 1e9 for rank in points]
        found.append(Distribution(places[treatment], operation, histogram.n, list(points.values()), seconds))
    return sorted(found, key=lambda each: each.treatment)
