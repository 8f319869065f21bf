"""The CSV report: a tidy row for each measure of a treatment, then one for each comparison."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from msgspec import Struct

from bench_common.records import FIRST_BYTE
from bench_common.thresholds import TRANSFERRED
from bench_master.analysis.document import percentile_name
from bench_master.analysis.report_types import PublishedReport, ReportDocument
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import table_cell
from bench_master.reports import ReportSource
from bench_master.run_data.store_course import MB
from bench_master.run_data.transfer_types import EndpointOperationReport, StoreOperationReport, TransfersReport
from bench_master.run_data.treatment_types import OverheadReport, TreatmentReport

_JOBS: Final = ("planned", "missing", "done", "failed", "lost", "aborted", "not_started", "warmup")
_TREATMENT: Final = (
    "jobs_per_s", "timing_error_p99_s", "timing_error_max_s", "worker_busy_share", "worker_lag_max_s",
    "host_wake_up_max_s", "timing_warning",
)  # fmt: skip
_HARNESS: Final = {
    "harness_ceiling": "ceiling",
    "harness_ceiling_per_s": "ceiling_per_s",
    "harness_ceiling_measured": "measured",
    "harness_ceiling_setup": "setup",
    "harness_others_share": "others_share",
    "harness_share": "share",
    "harness_cpu_share": "cpu_share",
    "harness_idle_share": "idle_share",
}
_OPEN_LOAD: Final = ("rate_per_s", "offered", "offered_per_s", "achieved_per_s", "dropped")
_LITTLES_LAW: Final = ("in_system", "expected")
_COMMON_COLUMNS: Final = (
    "run_state", *(f"jobs_{name}" for name in _JOBS), *_TREATMENT, "disturbed_trials", "disturbances", *_HARNESS,
    *(f"open_{name}" for name in (*_OPEN_LOAD, *_LITTLES_LAW)), "imported", "skipped",
)  # fmt: skip
"""Columns that say the same in each row of a treatment."""

_COMPARISON_COLUMNS: Final = (
    "a", "b", "group", "verdict", "reason", "ratio", "low", "high", "scale", "confidence", "rounds", "lost", "p",
    "mde", "tipping", "more_rounds", "a_value", "b_value", "jobs_per_trial", "effective_jobs", "grade", "flags",
)  # fmt: skip
"""Columns of rows of the kind ``comparison``; the others leave them empty."""
_COURSE_COLUMNS: Final = ("trial", "second", "endpoint")
"""Columns of rows of the kinds ``second`` and ``course``: the trial, and when in it a second or interval began."""


class CsvReport:
    """Writes a row for each measure of a treatment, and for each comparison. Times are seconds, empty cells no value.

    The first columns are the treatments' labels; a label with the name of another column becomes ``label_NAME``.
    """

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the table as RFC 4180 has it, with plain line feeds."""
        document = source.document
        labels = list(dict.fromkeys(key for entry in document.treatments for key in entry.treatment))
        percentiles = list(dict.fromkeys(("p50", "p95", "p99", percentile_name(source.pctile))))
        own = [
            "scenario", "run_id", "kind", "name", "unit", "direction", "n", "errors", "mean", "stddev", "min",
            *percentiles, "max", "worst_job", *_COMMON_COLUMNS, "note", *_COMPARISON_COLUMNS,
            *_COURSE_COLUMNS,
        ]  # fmt: skip
        titles = {label: table_cell(f"label_{label}" if label in own else label) for label in labels}
        writer = csv.DictWriter(out, [*titles.values(), *own], restval="", lineterminator="\n")
        writer.writeheader()

        def write_row(labels: Mapping[str, Any], common: Mapping[str, Any], row: Mapping[str, Any]) -> None:
            named = {titles[label]: value for label, value in labels.items() if label in titles}
            writer.writerow({name: _format_cell(value) for name, value in {**named, **common, **row}.items()})

        if not document.treatments:
            # The state of the run is in the data, even where there is nothing else.
            write_row({}, _run_cells(document), {"kind": "run", "name": "jobs"})
        by_title: dict[str, Mapping[str, Any]] = {}
        for entry in document.treatments:
            common = by_title[entry.title] = _common_cells(document, entry)
            for row in _rows(entry, percentiles):
                write_row(entry.treatment, common, row)
        for compared, row in _comparisons(document.verdicts):
            write_row(compared, by_title.get(row["b"], _run_cells(document)), row)
        for shown, row in _published(document.published):
            write_row(shown, {"run_state": document.run_state}, row)


def _run_cells(document: ReportDocument) -> dict[str, Any]:
    return {
        "scenario": document.scenario.name,
        "run_id": document.run.run_id,
        "run_state": document.run_state,
        "imported": bool(document.run.imported),
    }


def _common_cells(document: ReportDocument, entry: TreatmentReport) -> dict[str, Any]:
    load = entry.open_load
    return {
        **_run_cells(document),
        **_cells(entry.jobs, **{f"jobs_{name}": name for name in _JOBS}),
        **_cells(entry, *_TREATMENT),
        "disturbed_trials": len({one.trial for one in entry.disturbances}),
        "disturbances": "; ".join(f"trial {one.trial}: {one.text}" for one in entry.disturbances) or None,
        "skipped": entry.skipped,
        **_cells(entry.harness, **_HARNESS),
        **_cells(load, **{f"open_{name}": name for name in _OPEN_LOAD}),
        **_cells(load and load.littles_law, **{f"open_{name}": name for name in _LITTLES_LAW}),
    }


def _cells(part: Struct | None, *names: str, **renamed: str) -> dict[str, Any]:
    """Return fields of a part of the document, `renamed` ones by their columns; nothing without the part."""
    fields = {**dict(zip(names, names, strict=True)), **renamed}
    return {} if part is None else {column: getattr(part, name) for column, name in fields.items()}


def _statistics(part: Struct) -> dict[str, Any]:
    return _cells(part, "n", "mean", "stddev", "min", "max", p50="median")


def _row(kind: str, name: str, unit: str, direction: str | None = None, **cells: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "unit": unit, "direction": direction, **cells}


def _rows(entry: TreatmentReport, percentiles: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name, operation in entry.operations.items():
        own = _row("operation", name, "s", "lower", worst_job=operation.slowest_job)
        own |= {percentile: operation.percentiles_s[percentile] for percentile in percentiles}
        yield own | _cells(operation, "n", "errors", mean="mean_s", stddev="stddev_s", min="min_s", max="max_s")
    if entry.objects is not None:
        yield from _transfers(entry.objects)
    for name, metric in entry.metrics.items():
        own = _row("metric", name, metric.unit, metric.direction, worst_job=metric.worst_job)
        yield own | _statistics(metric) | dict(metric.percentiles)
    for name, cpu in (entry.host_cpu or {}).items():
        yield _row("host", name, cpu.unit, cpu.direction) | _statistics(cpu)
    if entry.overhead is not None:
        yield from _overhead(entry.overhead)
    if entry.packing is not None and (counts := entry.packing.containers) is not None:
        yield _row("packing", "containers", "1") | _cells(counts, "n", "min", "max", p50="median")


_TRANSFER_MEASURES: Final = (
    ("per_s", "1/s", "higher"),
    ("content_bytes", "B", None),
    ("mb_per_s", "MB/s", "higher"),
    ("retries", "1", "lower"),
    ("redrawn", "1", None),
)
"""Measures of what jobs transferred that are no times, with unit and the better direction."""


def _transfers(moved: TransfersReport) -> Iterator[dict[str, Any]]:
    """Yield what was moved in all, by each operation and by each endpoint, whose times follow."""
    parts: list[tuple[str, str, Any]] = [(TRANSFERRED, "", moved)]
    parts += [("transfer", f"{name}.", one) for name, one in moved.operations.items()]
    parts += [("endpoint", f"endpoint-{one.endpoint}.", one) for one in moved.endpoints]
    for kind, prefix, part in parts:
        for measure, unit, direction in _TRANSFER_MEASURES:
            if (value := getattr(part, measure, None)) is not None:
                yield _row(kind, f"{prefix}{measure}", unit, direction, mean=value)
    for one in moved.endpoints:
        times = _cells(one, "n", "errors", mean="mean_s", max="max_s", note="url")
        yield _row("endpoint", f"endpoint-{one.endpoint}", "s", "lower") | times | dict(one.percentiles_s)
        yield from _by_operation("endpoint", f"endpoint-{one.endpoint}.", one.operations)
    yield from _by_operation("all-sizes", "", moved.by_operation)
    named = {"": moved.seconds} | {f"{name}.": one.seconds for name, one in moved.by_operation.items()}
    for prefix, seconds in named.items():
        for which in ("fastest", "median", "slowest") if seconds is not None else ():
            cells = _cells(getattr(seconds, which), "trial", "second", mean="per_s")
            yield _row("second", f"{prefix}{which}", "1/s", "higher") | cells
    for course in moved.series:
        steps = zip(course.done, course.failed, course.content_bytes, strict=True)
        for place, (done, failed, content) in enumerate(steps):
            at = {"second": place * moved.interval_s, "n": done, "errors": failed}
            at |= {"trial": course.trial, "endpoint": course.endpoint}
            rates = [("per_s", "1/s", done), *([("mb_per_s", "MB/s", content / MB)] if content else [])]
            for measure, unit, amount in rates:
                yield _row("course", f"{course.operation}.{measure}", unit, mean=amount / moved.interval_s) | at


def _by_operation(
    kind: str, prefix: str, operations: Mapping[str, StoreOperationReport | EndpointOperationReport]
) -> Iterator[dict[str, Any]]:
    for name, one in operations.items():
        times = _cells(one, "n", "errors", max="max_s")
        yield _row(kind, f"{prefix}{name}", "s", "lower", **times, **one.percentiles_s)
        first = one.first_byte
        if first is not None:
            times = _cells(first, "n", mean="mean_s", max="max_s")
            yield _row(kind, f"{prefix}{name}{FIRST_BYTE}", "s", "lower", **times, **first.percentiles_s)
        for measure, unit in (("per_s", "1/s"), ("mb_per_s", "MB/s")):
            if (value := getattr(one, measure)) is not None:
                yield _row(kind, f"{prefix}{name}.{measure}", unit, "higher", mean=value)
        for failure, count in one.error_kinds.items():
            yield _row("error", f"{prefix}{name}.{failure}", "1", mean=count)


def _overhead(overhead: OverheadReport) -> Iterator[dict[str, Any]]:
    for name, reading in overhead.readings.items():
        yield _row("overhead", name, reading.unit) | _cells(reading, "n", "mean", "min", "max")
    if overhead.cpu_per_job_s is not None:
        yield _row("overhead", "cpu_per_job_s", "s", mean=overhead.cpu_per_job_s)
    if overhead.relative is not None:
        yield _row("overhead", "memory_percent", "%", mean=overhead.relative.memory_percent)
        yield _row("overhead", "cpu_factor", "1", mean=overhead.relative.cpu_factor)


def _comparisons(verdicts: VerdictsReport | None) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    if verdicts is None:
        return
    for each in verdicts.comparisons:
        shared = {name: getattr(each, name) for name in _COMPARISON_COLUMNS if hasattr(each, name)}
        own = _row("comparison", each.measure, each.unit, each.direction, grade=verdicts.design.grade)
        yield each.labels, shared | own | {"flags": "; ".join(flag.kind for flag in each.flags) or None}


def _published(section: PublishedReport | None) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the labels and the row of each published figure; its place stands in as the environment."""
    if section is None:
        return
    for table in section.tables:
        for one in table.published:
            own = _row("published", table.metric, table.unit, table.direction, scenario=section.title, note=one.note)
            yield {**table.labels, "environment": one.where}, own | _statistics(one)


def _format_cell(value: Any) -> Any:
    """Return true and false as JSON spells them, and texts that are safe to open."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, int | float) else table_cell(str(value))
