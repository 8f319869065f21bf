"""The CSV report: one tidy row for each treatment and operation or metric, for spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, TextIO

from bench_master.analysis.document import percentile_name
from bench_master.analysis.published import published_rows
from bench_master.reports import ReportSource

_JOBS: Final = ("done", "failed", "lost", "aborted", "not_started", "warmup")
_TIMING: Final = (
    "timing_error_p99_s",
    "timing_error_max_s",
    "worker_busy_share",
    "worker_lag_max_s",
    "timing_warning",
)
_OPEN: Final = ("rate_per_s", "offered", "offered_per_s", "achieved_per_s", "dropped")
_LITTLE: Final = ("in_system", "expected")


class CsvReport:
    """Writes a header line and the rows. Times are seconds; what has no value is empty.

    The first columns are the treatments' labels; one that is named like a column of the report's own is called
    ``label_NAME``. The counts of jobs, the rates and the timing error are the treatment's, repeated in each
    of its rows.
    """

    name: ClassVar[str] = "csv"

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the table as RFC 4180 has it, with plain line feeds."""
        document = source.document
        labels = list(dict.fromkeys(key for entry in document["treatments"] for key in entry["treatment"]))
        percentiles = list(dict.fromkeys(("p50", "p95", "p99", percentile_name(source.pctile))))
        own = [
            "scenario", "run_id", "kind", "name", "unit", "direction", "n", "errors", "mean", "stddev", "min",
            *percentiles, "max", "worst_job", *(f"jobs_{name}" for name in _JOBS), "jobs_per_s",
            *_TIMING, *(f"open_{name}" for name in (*_OPEN, *_LITTLE)), "imported", "left_out", "note",
        ]  # fmt: skip
        titles = {label: f"label_{label}" if label in own else label for label in labels}
        writer = csv.DictWriter(out, [*titles.values(), *own], restval="", lineterminator="\n")
        writer.writeheader()
        for entry in document["treatments"]:
            named = {titles[label]: value for label, value in entry["treatment"].items()}
            common = named | _common_columns(document, entry)
            for row in _rows(entry, percentiles):
                writer.writerow(_format_cells(common | row))
        for row in published_rows(document["published"]):
            named = {titles[label]: value for label, value in row.pop("labels").items() if label in titles}
            writer.writerow(_format_cells(named | row))


def _common_columns(document: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all rows of a treatment say: of its run, and of the treatment itself."""
    return {
        "scenario": document["scenario"]["name"],
        "run_id": document["run"]["run_id"],
        "imported": bool(document["run"]["imported"]),
        "left_out": entry["left_out"],
        **{f"jobs_{name}": entry["jobs"][name] for name in _JOBS},
        **{name: entry[name] for name in ("jobs_per_s", *_TIMING)},
        **{f"open_{name}": value for name, value in _open(entry).items()},
    }


def _open(entry: Mapping[str, Any]) -> dict[str, Any]:
    load = entry["open_load"]
    if load is None:
        return {}
    return {name: load[name] for name in _OPEN} | {name: (load["little"] or {}).get(name) for name in _LITTLE}


def _rows(entry: dict[str, Any], percentiles: list[str]) -> Iterator[dict[str, Any]]:
    figures = ("mean", "stddev", "min", "max")
    for name, operation in entry["operations"].items():
        yield {
            "kind": "operation",
            "name": name,
            "unit": "s",
            "direction": "lower",
            "n": operation["n"],
            "errors": operation["errors"],
            **{figure: operation[f"{figure}_s"] for figure in (*figures, *percentiles)},
            "worst_job": operation["slowest_job"],
        }
    for name, metric in entry["metrics"].items():
        yield {
            "kind": "metric",
            "name": name,
            **{key: metric[key] for key in ("unit", "direction", "n", *figures, "worst_job")},
            "p50": metric["median"],
            **{percentile: metric[percentile] for percentile in percentiles if percentile in metric},
        }
    for name, figures in (entry["host_cpu"] or {}).items():
        yield {
            "kind": "host",
            "name": name,
            "p50": figures["median"],
            **{key: figures[key] for key in ("unit", "direction", "n", "mean", "stddev", "min", "max")},
        }
    yield from _overhead(entry["overhead"])
    yield from _packing(entry["packing"])


def _overhead(overhead: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield what the engine itself cost, by column; the relation to the baseline has a mean alone."""
    for name, figures in (overhead or {}).items():
        if isinstance(figures, dict) and "mean" in figures:
            yield {"kind": "overhead", "name": name, **figures}
    relative = (overhead or {}).get("relative")
    if relative:
        yield {"kind": "overhead", "name": "memory_percent", "unit": "%", "mean": relative["memory_percent"]}
        yield {"kind": "overhead", "name": "cpu_factor", "unit": "1", "mean": relative["cpu_factor"]}


def _packing(packing: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield how many containers were packed; its n counts trials."""
    counts = (packing or {}).get("containers")
    if counts:
        figures = {name: counts[name] for name in ("n", "min", "max")}
        yield {"kind": "packing", "name": "containers", "unit": "1", **figures, "p50": counts["median"]}


def _format_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as cells: nothing for None, true and false as JSON spells them."""
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in row.items()}
