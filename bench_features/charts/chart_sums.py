"""What charts need and the report document lacks, summed up by bins: its size does not grow with the jobs.

It takes part in the one reading of a run (`MeasuredRun.part`): a value and `MOST_JOBS` jobs of each trial,
`TIME_BINS` readings of each host, the jobs of `TIME_BINS` bins of each treatment, at most `MOST_QUANTILES` quantiles
of each series. Warm-up is in the trials alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bench_common.histogram import Histogram, nearest_rank
from bench_common.records import MetricRecord, Outcome
from bench_common.stats.reader import Block, has_times
from bench_common.stats.rows import Columns, SampleColumns
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.percentiles import group_positions
from bench_master.scenario.model import is_again

MOST_JOBS: Final = 16
"""Jobs of a trial that are shown: spread evenly over their order of size."""
TIME_BINS: Final = 240
MOST_HOSTS: Final = 8
MOST_QUANTILES: Final = 120
"""Points of a line: 77 even ones up to the 95th percentile, the others geometric up to the tail."""
_EVEN: Final = 77
_ROUNDING: Final = 1e-6
_TAIL_FROM: Final = 0.05
_TAIL_TO: Final = 1e-6

CPU_STATES: Final = ("user", "system", "iowait", "steal")
_AMOUNTS: Final = {"disk": ("disk_read_bytes", "disk_written_bytes"), "net": ("net_received_bytes", "net_sent_bytes")}
Values: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]


class ChartSums:
    """Takes the blocks of a run that was read; treatments go by their place in the report document."""

    kinds = frozenset({"jobs", "event", "metrics", "samples"})

    def __init__(self, run: MeasuredRun) -> None:
        self._ledger, self._began_ns = run.sums, run.stats.began_ns
        self._plan = run.header.trials
        self.timed = has_times(run.header)
        """Whether it is known when trials ran; imported results may not say so."""
        self.duration_s = run.sums.duration_s or 0.0
        """How long the run was; the bins of time are even parts of it."""
        self.bin_s = self.duration_s / TIME_BINS
        self._bin_ns = self.duration_s * 1e9 / TIME_BINS
        listed = [i for i, each in enumerate(run.sums.treatments) if not is_again(each.labels)]
        self._places = {index: place for place, index in enumerate(listed)}
        """The place in the document of each treatment of the header that is in it."""
        self._metrics: dict[tuple[int, str], dict[int, tuple[float, int]]] = {}
        self._trials: dict[int, TrialJobs] = {}
        self._hosts: dict[int, HostReadings] = {}
        self.done: dict[int, Counts] = {}
        """Measured jobs that were done by the bin of time in which they ended, for each treatment that has some."""
        self.failed: dict[int, Counts] = {}
        """Those that failed."""

    def add(self, block: Block) -> None:
        """Add a block of one of the kinds."""
        match block.kind:
            case "jobs":
                self._add_jobs(block.body)
            case "event":
                # All rows of a trial come before its end.
                if block.body["kind"] == "trial-end" and block.body["trial"] in self._trials:
                    self._trials[block.body["trial"]].close()
            case "metrics":
                self._add_metrics(block.body)
            case "samples":
                self._add_samples(block.body)

    def values(self) -> dict[tuple[int, str], dict[int, float]]:
        """Return the mean of each metric of a treatment in each trial, warm-up included, in the order of the plan."""
        return {
            name: {trial: total / count for trial, (total, count) in sorted(own.items())}
            for name, own in self._metrics.items()
        }

    def trials(self, metrics: Mapping[int, str]) -> list[TrialMark]:
        """Return the trials whose begin is known, the first first; without times all trials.

        `metrics` are those that treatments are measured by; others are measured by the time of jobs.
        """
        found, values = [], self.values()
        brackets = self._ledger.trial_brackets
        for trial in dict.fromkeys((*brackets, *self._trials)):
            entry, (begin_ns, end_ns) = self._trials.get(trial, TrialJobs()), brackets.get(trial, (None, None))
            begin_ns = begin_ns if self.timed else self._began_ns + (trial + 1) * 10**9
            if begin_ns is None or trial >= len(self._plan) or self._plan[trial][0] not in self._places:
                continue
            entry.close()
            place = self._places[self._plan[trial][0]]
            metric = metrics.get(place)
            median_s = entry.median_s if self.timed else None
            mark = TrialMark(
                trial=trial,
                treatment=place,
                warmup=bool(self._plan[trial][2]),
                begin_s=(begin_ns - self._began_ns) / 1e9,
                end_s=None if end_ns is None or not self.timed else (end_ns - self._began_ns) / 1e9,
                value=median_s if metric is None else values.get((place, metric), {}).get(trial),
                jobs=() if metric is not None or not self.timed else entry.jobs,
                done=entry.done,
                failed=entry.failed,
            )
            found.append(mark)
        return sorted(found, key=lambda mark: mark.begin_s)

    def hosts(self) -> list[HostReadings]:
        """Return the readings of each host that has some."""
        found = []
        for worker, readings in sorted(self._hosts.items()):
            if worker in self._ledger.hosts and readings.readings:
                readings.host = str(self._ledger.hosts[worker].host)
                found.append(readings)
        return found

    def distributions(self) -> list[Distribution]:
        """Return the durations of each operation; none where times are not known."""
        found = []
        for (treatment, operation), series in self._ledger.series.items() if self.timed else ():
            histogram = series.histogram
            if treatment not in self._places or not histogram.n:
                continue
            points: dict[int, float] = {}
            for share in quantile_shares(histogram.n):
                # A share of a point is no percentile that somebody wrote: what is left of its rounding moves no rank.
                points[min(histogram.n, max(1, math.ceil(share * histogram.n - _ROUNDING)))] = share
            seconds = [at_rank(histogram, rank) / 1e9 for rank in points]
            place, shares = self._places[treatment], list(points.values())
            found.append(Distribution(place, operation, histogram.n, shares, seconds))
        return sorted(found, key=lambda each: each.treatment)

    def _add_jobs(self, rows: Columns) -> None:
        trials, outcomes, durations = rows["trial"], rows["outcome"], rows["duration_ns"]
        for trial, where in group_positions(trials):
            entry = self._trials.setdefault(trial, TrialJobs())
            done = outcomes[where] == Outcome.DONE
            entry.done += int(done.sum())
            entry.failed += int((outcomes[where] == Outcome.FAILED).sum())
            if done.any():
                entry.histogram.record(durations[where][done])
        for outcome, found in ((Outcome.DONE, self.done), (Outcome.FAILED, self.failed)) if self._bin_ns else ():
            if not (outcomes == outcome).any():
                continue
            for (treatment, _), group in self._ledger.measured_jobs(rows, outcome):
                if treatment in self._places:
                    bins = ((group["end_ns"] - self._began_ns) / self._bin_ns).astype(np.int64)
                    counts = found.setdefault(self._places[treatment], np.zeros(TIME_BINS, np.int64))
                    np.add.at(counts, bins.clip(0, TIME_BINS - 1), 1)

    def _add_metrics(self, records: Sequence[MetricRecord]) -> None:
        for record in records:
            place = self._places.get(record.treatment)
            if place is not None and math.isfinite(record.value):
                own = self._metrics.setdefault((place, record.name), {})
                total, count = own.get(record.trial, (0.0, 0))
                own[record.trial] = (total + record.value, count + 1)

    def _add_samples(self, samples: SampleColumns) -> None:
        if samples.source != "host" or self._bin_ns <= 0:
            return
        if samples.worker in self._hosts or len(self._hosts) < MOST_HOSTS:
            self._hosts.setdefault(samples.worker, HostReadings(self._began_ns, self._bin_ns)).add(samples)


def at_rank(histogram: Histogram, rank: int) -> float:
    """Return the value (ns) at a rank (1..n): the extremes are exact."""
    if rank in (1, histogram.n):
        return float((histogram.min if rank == 1 else histogram.max) or 0)
    return histogram.value_in(histogram.locate(rank)[0])


@dataclass(slots=True)
class TrialJobs:
    """The jobs of one trial."""

    done: int = 0
    failed: int = 0
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
            self.jobs = [at_rank(histogram, rank) / 1e9 for rank in ranks]
            self.median_s = at_rank(histogram, nearest_rank(histogram.n, 0.5)) / 1e9
            self.histogram = Histogram()


class Bins:
    """The readings of one measure by bin of time."""

    def __init__(self) -> None:
        self.total, self.counts = np.zeros(TIME_BINS), np.zeros(TIME_BINS, np.int64)
        self.low, self.high = np.full(TIME_BINS, np.nan), np.full(TIME_BINS, np.nan)

    def add(self, bins: Counts, values: npt.NDArray[Any]) -> None:
        """Add readings to their bins."""
        np.add.at(self.total, bins, values)
        np.add.at(self.counts, bins, 1)
        np.fmin.at(self.low, bins, values)
        np.fmax.at(self.high, bins, values)


class HostReadings:
    """A host's readings by bin of time; NaN where there is none."""

    def __init__(self, began_ns: int, bin_ns: float) -> None:
        self._began_ns, self._bin_ns = began_ns, bin_ns
        self._bins: dict[str, Bins] = {}
        self._longest_ns = 0.0
        self.host = ""
        self.readings = 0
        self.negative_iowait = 0
        """Readings in which the kernel's iowait ran backwards."""

    def add(self, samples: SampleColumns) -> None:
        """Add a block of readings of the host."""
        columns = samples.columns
        if not columns.keys() >= {"time_ns", "interval_ns"}:
            return
        intervals = columns["interval_ns"]
        bins = ((columns["time_ns"] - self._began_ns - intervals / 2) / self._bin_ns).astype(np.int64)
        inside = (bins >= 0) & (bins < TIME_BINS) & (intervals > 0)
        self.readings += int(inside.sum())
        if inside.any():
            self._longest_ns = max(self._longest_ns, float(np.median(intervals[inside])))
        if "cpu_iowait_percent" in columns:
            self.negative_iowait += int((columns["cpu_iowait_percent"][inside] < 0).sum())
        names = {**{state: f"cpu_{state}_percent" for state in CPU_STATES}, "memory": "memory_used_bytes"}
        found = {name: columns[column] for name, column in names.items() if column in columns}
        seconds = np.where(intervals > 0, intervals, np.nan) / 1e9
        for name, parts in _AMOUNTS.items():
            if columns.keys() >= set(parts):
                found[name] = (columns[parts[0]] + columns[parts[1]]) / seconds
        for name, values in found.items():
            known = inside & np.isfinite(values)
            self._bins.setdefault(name, Bins()).add(bins[known], values[known])

    @cached_property
    def columns(self) -> dict[str, Values]:
        """Means of ``user``, ``system``, ``iowait``, ``steal`` (%), ``memory`` (B), ``disk`` and ``net`` (B/s)."""
        return {
            name: self._held(own.total / np.maximum(own.counts, 1), own.counts) for name, own in self._bins.items()
        }

    def extremes(self, name: str) -> tuple[Values, Values]:
        """Return the lowest and the highest reading of each bin."""
        own = self._bins[name]
        return self._held(own.low, own.counts), self._held(own.high, own.counts)

    def _held(self, values: Values, counts: Counts) -> Values:
        """Return the values of bins that have readings, and NaN for others.

        Where bins are shorter than the intervals of readings, a reading stands for the bins that it covers.
        """
        reach = math.ceil(self._longest_ns / self._bin_ns / 2) if self._longest_ns > self._bin_ns else 0
        means, known = np.where(counts > 0, values, np.nan), np.flatnonzero(counts)
        if not reach or not len(known):
            return means
        bins = np.arange(TIME_BINS)
        after = np.searchsorted(known, bins).clip(0, len(known) - 1)
        before = (after - 1).clip(0)
        nearest = np.where(abs(known[after] - bins) < abs(known[before] - bins), known[after], known[before])
        return np.where(abs(nearest - bins) <= reach, means[nearest], np.nan)


# -- what is drawn --------------------------------------------------------------------------------------------------


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
    """Since the run began; its number, from 1, where times are unknown (`ChartSums.timed`)."""
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


def quantile_shares(n: int) -> list[float]:
    """Return the quantiles (0 to 1) of the points of a line of `n` values: each, or `MOST_QUANTILES`."""
    if n <= MOST_QUANTILES:
        return [(rank + 1) / n for rank in range(n)]
    even = np.linspace(0.0, 1 - _TAIL_FROM, _EVEN).tolist()
    tail = (1 - np.geomspace(_TAIL_FROM, _TAIL_TO, MOST_QUANTILES - _EVEN + 1)[1:-1]).tolist()
    return [*even, *tail, 1.0]
