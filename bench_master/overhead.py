"""What the engines themselves cost, treatment by treatment: their samples, laid over the trials that they fall into.

A reading of memory belongs to the trial that was under way at that moment. CPU time was used at some time within an
interval; it is spread over that interval evenly, and each trial gets the part that it overlaps. Warm-up is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench_common.overhead import SOURCE
from bench_common.stats_rows import Samples
from bench_common.thresholds import label_equals
from bench_master.extent import Extent

Document = dict[str, Any]

MEMORY: Final = {"rss_bytes": "B", "pss_bytes": "B", "cgroup_bytes": "B", "processes": "1"}
"""Columns that are of an instant, with their units; a source has some of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """A measured trial: its treatment, when it began and ended (ns, the master's clock), and which workers ran it."""

    treatment: int
    begin_ns: int
    end_ns: int
    workers: frozenset[int]


@dataclass(slots=True)
class _Account:
    """One treatment's readings."""

    columns: dict[str, Extent] = field(default_factory=dict)
    cpu_percent: Extent = field(default_factory=lambda: Extent("%"))
    cpu_ns: float = 0.0
    covered_ns: float = 0.0


class EngineCosts:
    """Takes the engines' samples of one run, and gives each treatment its part.

    `spans` are the measured trials, `engines` the engine of each treatment; trials do not overlap.
    """

    def __init__(self, spans: Iterable[Span], engines: Sequence[str]) -> None:
        self._spans = sorted(spans, key=lambda span: span.begin_ns)
        self._begins = np.array([span.begin_ns for span in self._spans], np.int64)
        self._ends = np.array([span.end_ns for span in self._spans], np.int64)
        self._engines = engines
        self._accounts: dict[int, _Account] = {}

    def add(self, samples: Samples) -> None:
        """Take in one block; one that is of no engine is left alone."""
        if not samples.source.startswith(SOURCE) or not self._spans:
            return
        engine = samples.source.removeprefix(SOURCE)
        columns = samples.columns
        self._add_instants(engine, samples.worker, columns)
        if {"cpu_ns", "interval_ns"} <= columns.keys():
            rows = zip(*(columns[name].tolist() for name in ("time_ns", "interval_ns", "cpu_ns")), strict=True)
            for time_ns, interval_ns, cpu_ns in rows:
                if interval_ns > 0 and np.isfinite(cpu_ns):
                    self._add_interval(
                        engine, samples.worker, int(time_ns - interval_ns), int(time_ns), float(cpu_ns)
                    )

    def _add_instants(self, engine: str, worker: int, columns: Mapping[str, Any]) -> None:
        times = columns["time_ns"]
        places = np.searchsorted(self._begins, times, side="right") - 1
        inside = (places >= 0) & (times <= self._ends[places])
        for place in np.unique(places[inside]).tolist():
            account = self._account(engine, worker, place)
            if account is None:
                continue
            here = inside & (places == place)
            for name, unit in MEMORY.items():
                if name in columns:
                    account.columns.setdefault(name, Extent(unit)).add(np.asarray(columns[name])[here])

    def _add_interval(self, engine: str, worker: int, begin_ns: int, end_ns: int, cpu_ns: float) -> None:
        first = int(np.searchsorted(self._ends, begin_ns, side="right"))
        last = int(np.searchsorted(self._begins, end_ns, side="left"))
        for place in range(first, last):
            account = self._account(engine, worker, place)
            if account is None:
                continue
            span = self._spans[place]
            overlap = min(end_ns, span.end_ns) - max(begin_ns, span.begin_ns)
            account.covered_ns += overlap
            account.cpu_ns += cpu_ns * overlap / (end_ns - begin_ns)
            if overlap == end_ns - begin_ns:
                account.cpu_percent.add(np.array([100.0 * cpu_ns / overlap]))

    def _account(self, engine: str, worker: int, place: int) -> _Account | None:
        """Return where what an engine did on a worker's host belongs; None where it ran nothing of the trial."""
        span = self._spans[place]
        if self._engines[span.treatment] != engine or worker not in span.workers:
            return None
        return self._accounts.setdefault(span.treatment, _Account())

    def document(self, treatment: int) -> Document | None:
        """Return what a treatment's engine cost; None where nothing was sampled while it ran.

        ``cpu_percent.mean`` is all CPU time by all time, of one CPU; its extremes are those of whole intervals.
        """
        account = self._accounts.get(treatment)
        if account is None:
            return None
        document: Document = {name: extent.document() for name, extent in account.columns.items() if extent.n}
        if account.covered_ns:
            extremes = account.cpu_percent
            document["cpu_percent"] = {
                "unit": "%",
                "n": extremes.n,
                "mean": 100.0 * account.cpu_ns / account.covered_ns,
                "min": extremes.low if extremes.n else None,
                "max": extremes.high if extremes.n else None,
            }
            document["cpu_s"] = account.cpu_ns / 1e9
            document["covered_s"] = account.covered_ns / 1e9
        return document or None


def compare(treatments: Sequence[Document], baseline: Mapping[str, str]) -> None:
    """Add to the overhead of each treatment how it relates to its baseline's.

    The baseline has the labels of `baseline`, and else those of the treatment itself where there is such a one;
    without `baseline` it is the first treatment that has figures.
    """
    measured = [entry for entry in treatments if entry["overhead"]]
    for entry in measured:
        other = _baseline_of(entry, measured, baseline)
        entry["overhead"]["relative"] = None if other is None else _relation(entry, other)


def _baseline_of(entry: Document, measured: Sequence[Document], baseline: Mapping[str, str]) -> Document | None:
    if not baseline:
        return measured[0]
    meant = [
        other
        for other in measured
        if all(
            key in other["treatment"] and label_equals(other["treatment"][key], value)
            for key, value in baseline.items()
        )
    ]
    own = {key: value for key, value in entry["treatment"].items() if key not in baseline}
    alike = [
        other
        for other in meant
        if {key: value for key, value in other["treatment"].items() if key not in baseline} == own
    ]
    return next(iter(alike or meant), None)


def _relation(entry: Document, other: Document) -> Document:
    memory = next((name for name in ("cgroup_bytes", "rss_bytes") if name in entry["overhead"]), None)
    there = other["overhead"].get(memory)
    cpu, cpu_there = (one["overhead"].get("cpu_percent", {}).get("mean") for one in (entry, other))
    return {
        "baseline": other["title"],
        "memory": memory,
        "memory_percent": 100.0 * (entry["overhead"][memory]["mean"] / there["mean"] - 1)
        if memory and there and there["mean"]
        else None,
        "cpu_factor": cpu / cpu_there if cpu is not None and cpu_there else None,
    }
