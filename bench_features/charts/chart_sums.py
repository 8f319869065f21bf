"""What charts need and the report document lacks, summed up by bins: its size does not grow with the jobs.

It takes part in the one reading of a run (`MeasuredRun.part`).

A value and `MOST_JOBS` jobs of each trial, `TIME_BINS` readings of each host, and one grid of `TIME_BINS` by
`LATENCY_BINS` counts for each treatment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench_common.histogram import Histogram, nearest_rank
from bench_common.records import MetricRecord, Outcome
from bench_common.stats.block_types import StoredTreatment
from bench_common.stats.reader import Block
from bench_common.stats.rows import Columns, SampleColumns
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.percentiles import group_positions
from bench_master.scenario.model import is_again

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


class ChartSums:
    """Takes the blocks of a run that was read; treatments go by their place in the report document."""

    kinds = frozenset({"jobs", "event", "metrics", "samples"})

    def __init__(self, run: MeasuredRun) -> None:
        sums, began_ns = run.sums, run.stats.began_ns
        self._began_ns = began_ns
        self._duration_s = sums.duration_s or 0.0
        self._places = document_places(sums.treatments)
        self._metrics: dict[tuple[int, str], dict[int, tuple[float, int]]] = {}
        self.trials: dict[int, TrialJobs] = {}
        """By the trial's index, warm-up included."""
        self.hosts: dict[int, HostReadings] = {}
        """By the worker's roster number."""
        self.heat = HeatMap(began_ns, self._duration_s, self._places, sums)

    def add(self, block: Block) -> None:
        """Add a block of one of the kinds."""
        match block.kind:
            case "jobs":
                self._add_jobs(block.body)
                self.heat.add(block.body)
            case "event":
                self._add_event(block.body)
            case "metrics":
                self._add_metrics(block.body)
            case "samples":
                self._add_samples(block.body)

    def trial_means(self) -> dict[tuple[int, str], dict[int, float]]:
        """Return the mean of each metric in each trial, in the order of the plan."""
        return {
            name: {trial: total / count for trial, (total, count) in sorted(own.items())}
            for name, own in self._metrics.items()
        }

    def _add_jobs(self, rows: Columns) -> None:
        trials, outcomes, durations = rows["trial"], rows["outcome"], rows["duration_ns"]
        for trial, where in group_positions(trials):
            entry = self.trials.setdefault(trial, TrialJobs())
            done = outcomes[where] == Outcome.DONE
            entry.done += int(done.sum())
            entry.failed += int((outcomes[where] == Outcome.FAILED).sum())
            if done.any():
                entry.histogram.record(durations[where][done])

    def _add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event; all rows of a trial come before its end."""
        trial, at_ns = event.get("trial"), event.get("at_ns")
        if not isinstance(trial, int) or not isinstance(at_ns, int):
            return
        entry = self.trials.setdefault(trial, TrialJobs())
        if event.get("kind") == "trial-begin":
            entry.begin_ns = at_ns
        elif event.get("kind") == "trial-end":
            entry.end_ns = at_ns
            entry.close()

    def _add_metrics(self, records: Sequence[MetricRecord]) -> None:
        for record in records:
            place = self._places.get(record.treatment)
            if place is not None and math.isfinite(record.value):
                own = self._metrics.setdefault((place, record.name), {})
                total, count = own.get(record.trial, (0.0, 0))
                own[record.trial] = (total + record.value, count + 1)

    def _add_samples(self, samples: SampleColumns) -> None:
        if samples.source != "host" or self._duration_s <= 0:
            return
        if samples.worker in self.hosts or len(self.hosts) < MOST_HOSTS:
            self.hosts.setdefault(samples.worker, HostReadings(self._began_ns, self._duration_s)).add(samples)


def document_places(treatments: Sequence[StoredTreatment]) -> dict[int, int]:
    """Return the place in the document of each treatment of the header that is in it."""
    listed = [index for index, each in enumerate(treatments) if not is_again(each.labels)]
    return {index: place for place, index in enumerate(listed)}


def at_rank(histogram: Histogram, rank: int) -> float:
    """Return the value (ns) at a rank (1..n): the extremes are exact."""
    if rank in (1, histogram.n):
        return float((histogram.min if rank == 1 else histogram.max) or 0)
    return histogram.value_in(histogram.locate(rank)[0])


@dataclass(slots=True)
class TrialJobs:
    """The jobs of one trial, and when it ran on the clock of the file."""

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
            self.jobs = [at_rank(histogram, rank) / 1e9 for rank in ranks]
            self.median_s = at_rank(histogram, nearest_rank(histogram.n, 0.5)) / 1e9
            self.histogram = Histogram()


class HostReadings:
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
        """Return the readings of the host of that name by bin of time."""
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


class HeatMap:
    """Counts of jobs by bin of time and of latency."""

    def __init__(self, began_ns: int, duration_s: float, places: Mapping[int, int], ledger: Aggregator) -> None:
        self._began_ns = began_ns
        self._bin_ns = duration_s * 1e9 / TIME_BINS
        self._places = places
        self._ledger = ledger
        self.counts: dict[int, npt.NDArray[np.int64]] = {}
        self.failed: dict[int, npt.NDArray[np.int64]] = {}

    def add(self, rows: Columns) -> None:
        """Add a block of jobs."""
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
