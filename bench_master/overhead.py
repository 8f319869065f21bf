"""What the engines themselves cost, treatment by treatment: their samples, laid over the trials that they fall into.

A reading of memory belongs to the trial that was under way at that moment. CPU time was used at some time within an
interval; it is spread over that interval evenly, and each trial gets the part that it overlaps. Warm-up is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench_common.overhead import SOURCE
from bench_common.stats.rows import Samples
from bench_common.thresholds import label_equals
from bench_master.analysis.host_samples import Extent
from bench_master.spans import Span, Spans

Document = dict[str, Any]

MEMORY: Final = {"rss_bytes": "B", "pss_bytes": "B", "cgroup_bytes": "B", "processes": "1"}
"""Columns that are of an instant, with their units; a source has some of them."""


@dataclass(slots=True)
class _Account:
    """One treatment's readings."""

    columns: dict[str, Extent] = field(default_factory=dict)
    cpu_percent: Extent = field(default_factory=lambda: Extent("%"))
    cpu_ns: float = 0.0
    covered_ns: float = 0.0


class EngineCosts:
    """Takes the engines' samples of one run, and gives each treatment its part.

    `spans` are the measured trials, `engines` the engine of each treatment.
    """

    def __init__(self, spans: Spans, engines: Sequence[str]) -> None:
        self._spans = spans
        self._engines = engines
        self._accounts: dict[int, _Account] = {}

    def add(self, samples: Samples) -> None:
        """Take in one block; one that is of no engine is left alone."""
        if not samples.source.startswith(SOURCE):
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
        for span, here in self._spans.holding(worker, times, times):
            account = self._account(engine, span)
            if account is None:
                continue
            for name, unit in MEMORY.items():
                if name in columns:
                    account.columns.setdefault(name, Extent(unit)).add(np.asarray(columns[name])[here])

    def _add_interval(self, engine: str, worker: int, begin_ns: int, end_ns: int, cpu_ns: float) -> None:
        for span in self._spans.touching(worker, begin_ns, end_ns):
            account = self._account(engine, span)
            if account is None:
                continue
            overlap = min(end_ns, span.end_ns) - max(begin_ns, span.begin_ns)
            account.covered_ns += overlap
            account.cpu_ns += cpu_ns * overlap / (end_ns - begin_ns)
            if overlap == end_ns - begin_ns:
                account.cpu_percent.add(np.array([100.0 * cpu_ns / overlap]))

    def _account(self, engine: str, span: Span) -> _Account | None:
        """Return where what an engine did in a trial belongs; None where the trial is another engine's."""
        if self._engines[span.treatment] != engine:
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
