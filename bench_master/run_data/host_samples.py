"""Samples of hosts, event loops and engines, summed up by process and by treatment while they stream by.

`HostLoad` sums up a process, `HostCpu` the CPU time of hosts and `EngineCosts` the overhead of engines by treatment.
A reading of memory belongs to the trial that runs at that moment. An engine's CPU time is spread evenly over its
interval, and each trial gets the part that it overlaps. Warm-up is excluded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.histogram import MAX_VALUE_NS, Histogram
from bench_common.stats.rows import Column, SampleColumns
from bench_common.thresholds import label_equals
from bench_common.treatment import SOURCE
from bench_master.run_data.percentiles import Moments, in_seconds
from bench_master.run_data.run_types import LoopReport
from bench_master.run_data.treatment_types import (
    HostCpuReport,
    OverheadReport,
    RelativeOverheadReport,
    SampleReport,
    TreatmentReport,
)


class MinMeanMax(Struct):
    """Mean and extremes of a column; NaN (unreadable) is excluded."""

    unit: str
    n: int = 0
    total: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add readings."""
        finite = values[np.isfinite(values)]
        if len(finite):
            self.n += len(finite)
            self.total += float(finite.sum())
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def report(self) -> SampleReport:
        """Return the figures; there must be a reading."""
        return SampleReport(unit=self.unit, n=self.n, mean=self.total / self.n, min=self.low, max=self.high)


class TrialSpan(Struct, frozen=True):
    """A measured trial: its treatment, when it began and ended (ns, the master's clock), and which workers ran it."""

    treatment: int
    begin_ns: int
    end_ns: int
    workers: frozenset[int]
    trial: int = -1


class TrialSpans:
    """Measured trials, which do not overlap. Readings of a worker's host belong to trials that it ran."""

    def __init__(self, spans: Iterable[TrialSpan]) -> None:
        self._spans = sorted(spans, key=lambda span: span.begin_ns)
        self._begins = np.array([span.begin_ns for span in self._spans], np.int64)
        self._ends = np.array([span.end_ns for span in self._spans], np.int64)

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[TrialSpan]:
        return iter(self._spans)

    def containing(
        self, worker: int, begins: npt.NDArray[Any], ends: npt.NDArray[Any]
    ) -> Iterator[tuple[TrialSpan, npt.NDArray[np.bool_]]]:
        """Yield the trials that hold some of a worker's intervals (ns) from begin to end, and which ones."""
        if not self._spans:
            return
        places = np.searchsorted(self._begins, begins, side="right") - 1
        whole = (places >= 0) & (ends <= self._ends[places])
        for place in np.unique(places[whole]).tolist():
            if worker in self._spans[place].workers:
                yield self._spans[place], whole & (places == place)

    def overlaps(self, samples: SampleColumns) -> Iterator[tuple[int, TrialSpan, int, int]]:
        """Yield each sample and trial that overlap: its row, the trial, for how long (ns), and its whole interval."""
        columns = samples.columns
        if not columns.keys() >= _INTERVAL_COLUMNS:
            return
        rows = zip(columns["time_ns"].tolist(), columns["interval_ns"].tolist(), strict=True)
        for row, (end_ns, length_ns) in enumerate(rows):
            if not (0 < length_ns < _MAX_NS and abs(end_ns) < _MAX_NS):
                continue
            begin_ns = end_ns - length_ns
            first = int(np.searchsorted(self._ends, begin_ns, side="right"))
            last = int(np.searchsorted(self._begins, end_ns, side="left"))
            for span in self._spans[first:last]:
                if samples.worker in span.workers:
                    yield row, span, min(end_ns, span.end_ns) - max(begin_ns, span.begin_ns), length_ns


_INTERVAL_COLUMNS: Final = frozenset({"time_ns", "interval_ns"})
_MAX_NS: Final = 1 << 62
_RATE_COLUMNS: Final = ("disk_", "net_")
"""Columns that are amounts since the previous sample; they are reported per second."""


class HostLoad(Struct):
    """The samples of one process's host (``host``) and of its own event loop (``loop``)."""

    columns: dict[str, MinMeanMax] = field(default_factory=dict)
    busy: MinMeanMax = field(default_factory=lambda: MinMeanMax("share"))
    lag: Histogram = field(default_factory=Histogram)

    def add(self, samples: SampleColumns) -> None:
        """Add a block; unknown sources are ignored."""
        if samples.source == "host":
            for name, (values, unit) in _per_second(samples.columns, samples.units).items():
                self.columns.setdefault(name, MinMeanMax(unit)).add(values)
        elif samples.source == "loop":
            if "busy_share" in samples.columns:
                self.busy.add(samples.columns["busy_share"])
            if "lag_max_ns" in samples.columns:
                self.lag.record(samples.columns["lag_max_ns"])

    def samples(self) -> dict[str, SampleReport]:
        """Return mean, min and max of each column of the host's samples."""
        return {name: readings.report() for name, readings in self.columns.items() if readings.n}

    def loop(self) -> LoopReport | None:
        """Return how busy and how late the event loop was; None if it was not measured.

        Each sample is the longest lag since the one before; `lag_p99_s` is within the histogram's error of the 99th
        percentile of those.
        """
        if not self.lag.n and not self.busy.n:
            return None
        return LoopReport(
            n=max(self.lag.n, self.busy.n),
            busy_mean=self.busy.total / self.busy.n if self.busy.n else None,
            busy_max=self.busy.high if self.busy.n else None,
            lag_p99_s=in_seconds(self.lag.quantile(0.99)),
            lag_max_s=in_seconds(self.lag.max),
        )


def _per_second(columns: Mapping[str, Column], units: Mapping[str, str]) -> dict[str, tuple[Column, str]]:
    """Return the columns to sum up, amounts turned into rates by the real length of each interval."""
    interval = columns.get("interval_ns")
    found: dict[str, tuple[Column, str]] = {}
    for name, values in columns.items():
        unit = units.get(name, "")
        if interval is not None and name.startswith(_RATE_COLUMNS):
            seconds = np.where(interval > 0, interval, np.nan) / 1e9
            found[f"{name}_per_s"] = (values / seconds, f"{unit}/s")
        elif name not in _INTERVAL_COLUMNS:
            found[name] = (values, unit)
    return found


UNIT: Final = "USER_HZ/s"
COLUMNS: Final = {
    "host_cpu_user": "cpu_user_ticks",
    "host_cpu_system": "cpu_system_ticks",
    "host_cpu_iowait": "cpu_iowait_ticks",
}
"""The figures, and the columns of the hosts' samples that they are made of."""

_RESOLUTION: Final = 1_000_000
"""Parts of a USER_HZ/s that the histogram counts in."""


class RateStats(Moments):
    """Spread of readings that may be negative, in memory that does not grow with their number."""

    low: float = math.inf
    high: float = -math.inf
    _above: Histogram = field(default_factory=Histogram)
    _below: Histogram = field(default_factory=Histogram)
    """Those from 0 up, and the sizes of those below."""

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add readings; NaN and infinities are excluded."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return
        super().add(finite)
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
        parts = np.minimum(np.rint(np.abs(finite) * _RESOLUTION), MAX_VALUE_NS).astype(np.int64)
        for histogram, own in ((self._above, finite >= 0), (self._below, finite < 0)):
            if own.any():
                histogram.record(parts[own])

    @property
    def median(self) -> float:
        """Return the middle reading, or the mean of the two middle ones, each to within 0.2 %; there must be one."""
        return (self._at((self.n + 1) // 2) + self._at(self.n // 2 + 1)) / 2

    def _at(self, rank: int) -> float:
        # Of those below 0 the largest comes first.
        below = self._below.n
        sign, histogram, place = (
            (-1, self._below, below + 1 - rank) if rank <= below else (1, self._above, rank - below)
        )
        parts = histogram.quantile(Fraction(place, histogram.n)) or 0.0
        return min(max(sign * parts / _RESOLUTION, self.low), self.high)

    def report(self) -> HostCpuReport:
        """Return the figures; there must be a reading."""
        return HostCpuReport(
            unit=UNIT,
            direction="lower",
            n=self.n,
            median=self.median,
            mean=self.mean,
            stddev=self.stddev,
            min=self.low,
            max=self.high,
        )


class HostCpu:
    """CPU time of the hosts by treatment, in USER_HZ per second over all CPUs, as a poll of /proc/stat would show it.

    A reading counts if its whole interval lies within one of the measured trials (`spans`), on a host that ran jobs
    of it. The kernel's iowait can run backwards; such readings are kept.
    """

    def __init__(self, spans: TrialSpans) -> None:
        self._spans = spans
        self._rates: dict[tuple[int, str], RateStats] = {}

    def add(self, samples: SampleColumns) -> None:
        """Add a block; one that is not of a host or has no times is ignored."""
        columns = samples.columns
        if samples.source != "host" or not columns.keys() >= _INTERVAL_COLUMNS:
            return
        ends, lengths = columns["time_ns"], columns["interval_ns"]
        for span, inside in self._spans.containing(samples.worker, ends - lengths, ends):
            here = inside & (lengths > 0)
            for name, column in COLUMNS.items():
                if column in columns:
                    rates = columns[column][here] / (lengths[here] / 1e9)
                    self._rates.setdefault((span.treatment, name), RateStats()).add(rates)

    def report(self, treatment: int) -> dict[str, HostCpuReport] | None:
        """Return a treatment's figures by name; None without readings."""
        found = {name: self._rates.get((treatment, name)) for name in COLUMNS}
        return {name: rates.report() for name, rates in found.items() if rates is not None and rates.n} or None


MEMORY: Final = {"rss_bytes": "B", "pss_bytes": "B", "cgroup_bytes": "B", "processes": "1"}
"""Columns that are read at an instant, with their units; a source has some of them."""


class _EngineUsage(Struct):
    """One treatment's readings."""

    columns: dict[str, MinMeanMax] = field(default_factory=dict)
    cpu_percent: MinMeanMax = field(default_factory=lambda: MinMeanMax("%"))
    cpu_ns: float = 0.0
    covered_ns: float = 0.0

    def cpu_report(self) -> SampleReport:
        """Return the CPU time in percent of one CPU; there must be a reading of it."""
        whole = self.cpu_percent
        return SampleReport(
            unit="%",
            n=whole.n,
            mean=100.0 * self.cpu_ns / self.covered_ns,
            min=whole.low if whole.n else None,
            max=whole.high if whole.n else None,
        )


class EngineCosts:
    """Overhead of the engines by treatment.

    `spans` are the measured trials, `engines` what each treatment's engine is sampled as, `hosts` the host of each
    worker. Of a host's workers that ran a trial the first one's readings count: all of them read the same processes.
    """

    def __init__(self, spans: TrialSpans, engines: Sequence[str], hosts: Mapping[int, str] | None = None) -> None:
        self._spans = spans
        self._engines = engines
        self._hosts = hosts or {}
        self._accounts: dict[int, _EngineUsage] = {}

    def add(self, samples: SampleColumns) -> None:
        """Add a block; one that is not of an engine is ignored."""
        if not samples.source.startswith(SOURCE):
            return
        engine = samples.source.removeprefix(SOURCE)
        columns = samples.columns
        self._add_instants(engine, samples.worker, columns)
        used = columns["cpu_ns"].tolist() if "cpu_ns" in columns else ()
        for row, span, overlap_ns, length_ns in self._spans.overlaps(samples) if used else ():
            account = self._account(engine, samples.worker, span)
            if account is not None and math.isfinite(used[row]):
                account.covered_ns += overlap_ns
                account.cpu_ns += used[row] * overlap_ns / length_ns
                if overlap_ns == length_ns:
                    account.cpu_percent.add(np.array([100.0 * used[row] / overlap_ns]))

    def _add_instants(self, engine: str, worker: int, columns: Mapping[str, Any]) -> None:
        times = columns["time_ns"]
        for span, here in self._spans.containing(worker, times, times):
            account = self._account(engine, worker, span)
            if account is None:
                continue
            for name, unit in MEMORY.items():
                if name in columns:
                    account.columns.setdefault(name, MinMeanMax(unit)).add(np.asarray(columns[name])[here])

    def _account(self, engine: str, worker: int, span: TrialSpan) -> _EngineUsage | None:
        """Return the account of an engine in a trial; None if that is of another engine, or for another worker."""
        if self._engines[span.treatment] != engine:
            return None
        host = self._hosts.get(worker, worker)
        if any(other < worker and self._hosts.get(other, other) == host for other in span.workers):
            return None
        return self._accounts.setdefault(span.treatment, _EngineUsage())

    def report(self, treatment: int, jobs: int = 0) -> OverheadReport | None:
        """Return what a treatment's engine used for so many jobs; None if nothing was sampled while it ran.

        ``cpu_percent.mean`` is all CPU time divided by all time, of one CPU; its extremes are of whole intervals.
        """
        account = self._accounts.get(treatment)
        if account is None:
            return None
        found = {name: readings.report() for name, readings in account.columns.items() if readings.n}
        if not found and not account.covered_ns:
            return None
        return OverheadReport(
            rss_bytes=found.get("rss_bytes"),
            pss_bytes=found.get("pss_bytes"),
            cgroup_bytes=found.get("cgroup_bytes"),
            processes=found.get("processes"),
            cpu_percent=account.cpu_report() if account.covered_ns else None,
            cpu_s=account.cpu_ns / 1e9 if account.covered_ns else None,
            covered_s=account.covered_ns / 1e9 if account.covered_ns else None,
            cpu_per_job_s=account.cpu_ns / 1e9 / jobs if account.covered_ns and jobs else None,
        )


def compare_to_baseline(treatments: Sequence[TreatmentReport], baseline: Mapping[str, str]) -> list[TreatmentReport]:
    """Return the treatments with the overhead of each compared to its baseline's.

    The baseline is the treatment with the labels of `baseline` and otherwise the treatment's own labels; if there is
    none, any with the labels of `baseline`; without `baseline`, the first treatment that has figures.
    """
    measured = [entry for entry in treatments if entry.overhead]
    return [_compared(entry, _baseline_of(entry, measured, baseline)) for entry in treatments]


def _baseline_of(
    entry: TreatmentReport, measured: Sequence[TreatmentReport], baseline: Mapping[str, str]
) -> TreatmentReport | None:
    if not baseline:
        return next(iter(measured), None)
    meant = [
        other
        for other in measured
        if all(
            key in other.treatment and label_equals(other.treatment[key], value) for key, value in baseline.items()
        )
    ]
    own = {key: value for key, value in entry.treatment.items() if key not in baseline}
    alike = [
        other
        for other in meant
        if {key: value for key, value in other.treatment.items() if key not in baseline} == own
    ]
    return next(iter(alike or meant), None)


def _compared(entry: TreatmentReport, other: TreatmentReport | None) -> TreatmentReport:
    if entry.overhead is None or other is None or other.overhead is None:
        return entry
    here, there = entry.overhead.readings, other.overhead.readings
    memory = next((name for name in ("cgroup_bytes", "rss_bytes") if name in here), None)
    base = there.get(memory) if memory else None
    cpu, cpu_base = here.get("cpu_percent"), there.get("cpu_percent")
    relative = RelativeOverheadReport(
        baseline=other.title,
        memory=memory,
        memory_percent=100.0 * (here[memory].mean / base.mean - 1) if memory and base and base.mean else None,
        cpu_factor=cpu.mean / cpu_base.mean if cpu and cpu_base and cpu_base.mean else None,
    )
    return replace(entry, overhead=replace(entry.overhead, relative=relative))
