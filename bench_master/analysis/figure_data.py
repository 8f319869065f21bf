"""What figures need and the report document lacks, of a size that does not grow with the jobs.

At most `MOST_QUANTILES` quantiles of each series, a value and `MOST_JOBS` jobs of each trial, `TIME_BINS` readings of
each host, and one grid of `TIME_BINS` by `LATENCY_BINS` counts for each treatment. Warm-up is in the trials alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench_common.histogram import Histogram, nearest_rank
from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile, has_times
from bench_common.stats.rows import Columns, SampleColumns
from bench_master.analysis.aggregate import Aggregator
from bench_master.analysis.document import read_ledger
from bench_master.analysis.percentiles import group_positions
from bench_master.analysis.report_types import ReportDocument
from bench_master.scenario.model import is_again

MOST_QUANTILES: Final = 120
"""Points of a line: 77 even ones up to the 95th percentile, the others geometric up to the tail."""
_EVEN: Final = 77
_ROUNDING: Final = 1e-6
_TAIL_FROM: Final = 0.05
_TAIL_TO: Final = 1e-6
MOST_JOBS: Final = 16
"""Jobs of a trial that are shown: spread evenly over their order of size."""
TIME_BINS: Final = 240
LATENCY_BINS: Final = 96
"""Bins of the heat map, each `LATENCY_STEP` times as wide as the one before."""
LATENCY_STEP: Final = 2.0**0.5
LEAST_LATENCY_S: Final = 1e-8
MOST_HOSTS: Final = 8

CPU_STATES: Final = ("user", "system", "iowait", "steal")


@dataclass(frozen=True, slots=True)
class Distribution:
    """The durations of one operation of a treatment: quantiles (0 to 1) and their values, both rising."""

    treatment: int
    """Place among the document's treatments."""
    operation: str
    n: int
    shares: Sequence[float]
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class TrialMark:
    """One trial, warm-up included."""

    trial: int
    treatment: int
    """Place among the document's treatments."""
    warmup: bool
    begin_s: float
    """Since the run began; its number, from 1, where times are unknown (`FigureData.timed`)."""
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


@dataclass(frozen=True, slots=True)
class HostSeries:
    """The readings of a host by time bin; NaN where there is none."""

    host: str
    columns: Mapping[str, npt.NDArray[np.float64]]
    """Means of ``user``, ``system``, ``iowait``, ``steal`` (%), ``memory`` (B), ``disk`` and ``net`` (B/s)."""
    readings: int
    negative_iowait: int
    """Readings in which the kernel's iowait ran backwards."""
    extremes: Mapping[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = field(default_factory=dict)
    """The lowest and the highest reading of each bin, of what does not add up: ``memory``, ``disk``, ``net``."""


@dataclass(frozen=True, slots=True)
class FigureData:
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


def read_figure_data(stats: StatsFile, document: ReportDocument, ledger: Aggregator | None = None) -> FigureData:
    """Read the rest of what figures need; without the `ledger` of the same file that, too."""
    ledger = read_ledger(stats) if ledger is None else ledger
    places = _document_places(ledger.treatments)
    duration_s = document.totals.duration_s or 0.0
    metrics = trial_metrics(document)
    timed = has_times(stats.header)
    trials = _Trials(stats.header, stats.began_ns, places, metrics)
    hosts: dict[int, _Host] = {}
    heat = _Heat(stats.began_ns, duration_s, places, ledger)
    for block in stats.blocks({"jobs", "event", "samples"}, by_column=True):
        if block.kind == "jobs":
            trials.add_jobs(block.body)
            heat.add(block.body)
        elif block.kind == "event":
            trials.add_event(block.body)
        elif block.kind == "samples" and block.body.source == "host" and duration_s > 0:
            worker = block.body.worker
            if worker in hosts or len(hosts) < MOST_HOSTS:
                hosts.setdefault(worker, _Host(stats.began_ns, duration_s)).add(block.body)
    for block in stats.blocks({"metrics"}):
        trials.add_metrics(block.body)
    names = {worker: str(body.get("host")) for worker, body in ledger.hosts.items()}
    return FigureData(
        duration_s=duration_s,
        distributions=_distributions(ledger, places) if timed else (),
        trials=trials.marks(timed=timed),
        metrics=metrics,
        values=trials.means(),
        hosts=[
            host.series(names[worker]) for worker, host in sorted(hosts.items()) if worker in names and host.readings
        ],
        heat=heat.counts,
        failed=heat.failed,
        timed=timed,
    )


def trial_metrics(document: ReportDocument) -> dict[int, str]:
    """Return the metric that each treatment is measured by: that of its verdicts, or else its primary one."""
    compared = (
        {}
        if document.verdicts is None
        else {title: each.figure for each in document.verdicts.comparisons for title in (each.a, each.b)}
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


def _distributions(ledger: Aggregator, places: Mapping[int, int]) -> list[Distribution]:
    found = []
    for (treatment, operation), series in ledger.series.items():
        histogram = series.histogram
        if treatment not in places or not histogram.n:
            continue
        points: dict[int, float] = {}
        for share in quantile_shares(histogram.n):
            # A share of a point is no percentile that somebody wrote: what is left of its rounding moves no rank.
            points[min(histogram.n, max(1, math.ceil(share * histogram.n - _ROUNDING)))] = share
        seconds = [_at_rank(histogram, rank) / 1e9 for rank in points]
        found.append(Distribution(places[treatment], operation, histogram.n, list(points.values()), seconds))
    return sorted(found, key=lambda each: each.treatment)


def _at_rank(histogram: Histogram, rank: int) -> float:
    if rank in (1, histogram.n):
        return float((histogram.min if rank == 1 else histogram.max) or 0)
    return histogram.value_in(histogram.locate(rank)[0])


def _document_places(treatments: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return the place in the document of each treatment of the header that is in it."""
    listed = [index for index, each in enumerate(treatments) if not is_again(each.get("labels", {}))]
    return {index: place for place, index in enumerate(listed)}


@dataclass(slots=True)
class _OpenTrial:
    begin_ns: int | None = None
    end_ns: int | None = None
    done: int = 0
    failed: int = 0
    durations: list[npt.NDArray[np.int64]] = field(default_factory=list)
    histogram: Histogram = field(default_factory=Histogram)
    jobs: Sequence[float] = ()
    median_s: float | None = None

    def close(self) -> None:
        """Reduce the durations to a median and a few jobs."""
        histogram = self.histogram
        if histogram.n and self.median_s is None:
            ranks = sorted(
                {round(rank) for rank in np.linspace(1, histogram.n, min(MOST_JOBS, histogram.n)).tolist()}
            )
            self.jobs = [_at_rank(histogram, rank) / 1e9 for rank in ranks]
            self.median_s = _at_rank(histogram, nearest_rank(histogram.n, 0.5)) / 1e9
            self.histogram = Histogram()


class _Trials:
    """Collects the trials. All rows of a trial come before its end."""

    def __init__(
        self, header: Mapping[str, Any], began_ns: int, places: Mapping[int, int], metrics: Mapping[int, str]
    ) -> None:
        self._plan: Sequence[Sequence[Any]] = header.get("trials", ())
        self._began_ns = began_ns
        self._places = places
        self._metrics = metrics
        self._trials: dict[int, _OpenTrial] = {}
        self._sums: dict[tuple[int, str], dict[int, tuple[float, int]]] = {}

    def add_jobs(self, rows: Columns) -> None:
        trials, outcomes, durations = rows["trial"], rows["outcome"], rows["duration_ns"]
        for trial, where in group_positions(trials):
            entry = self._trials.setdefault(trial, _OpenTrial())
            done = outcomes[where] == Outcome.DONE
            entry.done += int(done.sum())
            entry.failed += int((outcomes[where] == Outcome.FAILED).sum())
            if done.any():
                entry.histogram.record(durations[where][done])

    def add_event(self, event: Mapping[str, Any]) -> None:
        trial, at_ns = event.get("trial"), event.get("at_ns")
        if not isinstance(trial, int) or not isinstance(at_ns, int):
            return
        entry = self._trials.setdefault(trial, _OpenTrial())
        if event.get("kind") == "trial-begin":
            entry.begin_ns = at_ns
        elif event.get("kind") == "trial-end":
            entry.end_ns = at_ns
            entry.close()

    def add_metrics(self, records: Sequence[Any]) -> None:
        for record in records:
            place = self._places.get(record.treatment)
            if place is not None and math.isfinite(record.value):
                own = self._sums.setdefault((place, record.name), {})
                total, count = own.get(record.trial, (0.0, 0))
                own[record.trial] = (total + record.value, count + 1)

    def means(self) -> dict[tuple[int, str], dict[int, float]]:
        """Return the mean of each metric in each trial, in the order of the plan."""
        return {
            name: {trial: total / count for trial, (total, count) in sorted(own.items())}
            for name, own in self._sums.items()
        }

    def marks(self, *, timed: bool) -> list[TrialMark]:
        """Return the trials whose begin is known; without times (not `timed`) all trials."""
        means = self.means()
        found = []
        for trial, entry in self._trials.items():
            begin_ns = entry.begin_ns if timed else self._began_ns + (trial + 1) * 10**9
            if begin_ns is None or not 0 <= trial < len(self._plan) or self._plan[trial][0] not in self._places:
                continue
            entry.close()
            place = self._places[self._plan[trial][0]]
            by_metric = place in self._metrics
            metric = means.get((place, self._metrics.get(place, "")), {}).get(trial)
            found.append(
                TrialMark(
                    trial=trial,
                    treatment=place,
                    warmup=bool(self._plan[trial][2]),
                    begin_s=(begin_ns - self._began_ns) / 1e9,
                    end_s=None if entry.end_ns is None or not timed else (entry.end_ns - self._began_ns) / 1e9,
                    value=metric if by_metric else entry.median_s if timed else None,
                    jobs=() if by_metric or not timed else entry.jobs,
                    done=entry.done,
                    failed=entry.failed,
                )
            )
        return sorted(found, key=lambda mark: mark.begin_s)


class _Host:
    """Sums of a host's readings by bin of time."""

    def __init__(self, began_ns: int, duration_s: float) -> None:
        self._began_ns = began_ns
        self._bin_ns = duration_s * 1e9 / TIME_BINS
        self._sums: dict[str, npt.NDArray[np.float64]] = {}
        self._counts: dict[str, npt.NDArray[np.int64]] = {}
        self._lows: dict[str, npt.NDArray[np.float64]] = {}
        self._highs: dict[str, npt.NDArray[np.float64]] = {}
        self._longest_ns = 0.0
        self.readings = 0
        self._negative = 0

    def add(self, samples: SampleColumns) -> None:
        columns = samples.columns
        if not columns.keys() >= {"time_ns", "interval_ns"}:
            return
        intervals = columns["interval_ns"]
        bins = ((columns["time_ns"] - self._began_ns - intervals / 2) / self._bin_ns).astype(np.int64)
        inside = (bins >= 0) & (bins < TIME_BINS) & (intervals > 0)
        self.readings += int(inside.sum())
        if inside.any():
            self._longest_ns = max(self._longest_ns, float(np.median(intervals[inside])))
        for state in CPU_STATES:
            if f"cpu_{state}_percent" in columns:
                self._record(state, bins, columns[f"cpu_{state}_percent"], inside)
        if "cpu_iowait_percent" in columns:
            self._negative += int((columns["cpu_iowait_percent"][inside] < 0).sum())
        if "memory_used_bytes" in columns:
            self._record("memory", bins, columns["memory_used_bytes"], inside)
        seconds = np.where(intervals > 0, intervals, np.nan) / 1e9
        pairs = {"disk": ("disk_read_bytes", "disk_written_bytes"), "net": ("net_received_bytes", "net_sent_bytes")}
        for name, parts in pairs.items():
            if columns.keys() >= set(parts):
                self._record(name, bins, (columns[parts[0]] + columns[parts[1]]) / seconds, inside)

    def _record(
        self, name: str, bins: npt.NDArray[np.int64], values: npt.NDArray[Any], inside: npt.NDArray[np.bool_]
    ) -> None:
        known = inside & np.isfinite(values)
        sums = self._sums.setdefault(name, np.zeros(TIME_BINS))
        counts = self._counts.setdefault(name, np.zeros(TIME_BINS, np.int64))
        np.add.at(sums, bins[known], values[known])
        np.add.at(counts, bins[known], 1)
        if name not in CPU_STATES:
            np.fmin.at(self._lows.setdefault(name, np.full(TIME_BINS, np.nan)), bins[known], values[known])
            np.fmax.at(self._highs.setdefault(name, np.full(TIME_BINS, np.nan)), bins[known], values[known])

    def series(self, host: str) -> HostSeries:
        # Where bins are shorter than the intervals of readings, a reading stands for the bins that it covers.
        reach = math.ceil(self._longest_ns / self._bin_ns / 2) if self._longest_ns > self._bin_ns else 0
        return HostSeries(
            host=host,
            columns={
                name: _held(sums / np.maximum(self._counts[name], 1), self._counts[name], reach)
                for name, sums in self._sums.items()
            },
            readings=self.readings,
            negative_iowait=self._negative,
            extremes={
                name: (_held(lows, self._counts[name], reach), _held(self._highs[name], self._counts[name], reach))
                for name, lows in self._lows.items()
            },
        )


def _held(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], reach: int) -> npt.NDArray[np.float64]:
    """Return the values of bins that have readings, and NaN for others; each is held for `reach` bins around it."""
    means = np.where(counts > 0, values, np.nan)
    known = np.flatnonzero(counts)
    if not reach or not len(known):
        return means
    bins = np.arange(TIME_BINS)
    after = np.searchsorted(known, bins).clip(0, len(known) - 1)
    before = (after - 1).clip(0)
    nearest = np.where(abs(known[after] - bins) < abs(known[before] - bins), known[after], known[before])
    return np.where(abs(nearest - bins) <= reach, means[nearest], np.nan)


class _Heat:
    """Counts of jobs by bin of time and of latency."""

    def __init__(self, began_ns: int, duration_s: float, places: Mapping[int, int], ledger: Aggregator) -> None:
        self._began_ns = began_ns
        self._bin_ns = duration_s * 1e9 / TIME_BINS
        self._places = places
        self._ledger = ledger
        self.counts: dict[int, npt.NDArray[np.int64]] = {}
        self.failed: dict[int, npt.NDArray[np.int64]] = {}

    def add(self, rows: Columns) -> None:
        if not self._bin_ns:
            return
        self._add_failed(rows)
        for (treatment, _), group in self._ledger.measured_jobs(rows):
            place = self._places.get(treatment)
            if place is None:
                continue
            seconds = np.maximum(group["duration_ns"] / 1e9, LEAST_LATENCY_S)
            rows_of = (np.log(seconds / LEAST_LATENCY_S) / math.log(LATENCY_STEP)).astype(np.int64)
            grid = self.counts.setdefault(place, np.zeros((TIME_BINS, LATENCY_BINS), np.int64))
            np.add.at(grid, (self._bins(group), rows_of.clip(0, LATENCY_BINS - 1)), 1)

    def _add_failed(self, rows: Columns) -> None:
        if not (rows["outcome"] == Outcome.FAILED).any():
            return
        for (treatment, _), group in self._ledger.measured_jobs(rows, Outcome.FAILED):
            place = self._places.get(treatment)
            if place is not None:
                np.add.at(self.failed.setdefault(place, np.zeros(TIME_BINS, np.int64)), self._bins(group), 1)

    def _bins(self, rows: Columns) -> npt.NDArray[np.int64]:
        """Return the bin of time in which each job ended."""
        bins = ((rows["end_ns"] - self._began_ns) / self._bin_ns).astype(np.int64)
        return bins.clip(0, TIME_BINS - 1)
