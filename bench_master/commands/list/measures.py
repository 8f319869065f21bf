"""`bench-master list measures`: list what thresholds and `primary` may name, with unit and meaning."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench_common.thresholds import (
    JOB_FIELDS,
    METRIC_FIELDS,
    OPERATION_FIELDS,
    OVERHEAD_FIELDS,
    OVERHEAD_UNITS,
    RELATIVE_UNITS,
    TRANSFER_FIELDS,
    TRANSFERRED_FIELDS,
    measure_unit,
    parse_measure_path,
)
from bench_master.formatting import choose_format, tab_separated, wrap_last_column
from bench_master.options.list_format import ListFormat
from bench_workloads.registry import workload_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS: Final = ("MEASURE", "UNIT", "MEANING")
_STATISTICS: Final = {
    "n": "how many values there are",
    "errors": "how many failed",
    "mean": "arithmetic mean",
    "stddev": "standard deviation",
    "min": "smallest value",
    "median": "median",
    "p50": "median (any percentile: p99.9_s)",
    "p95": "95th percentile",
    "p99": "99th percentile",
    "max": "largest value",
}
_JOBS: Final = {
    "total": "planned or begun, without warm-up",
    "done": "ended well",
    "failed": "ended with an error",
    "lost": "gone with their worker",
    "aborted": "ended by us before their end",
    "not_started": "planned, but never begun",
    "warmup": "of warm-up trials",
}
_TRANSFERS: Final = {
    "content_bytes": "content that was transferred",
    "mb_per_s": "content transferred in a second",
    "retries": "requests that were sent again",
    "redrawn": "jobs that did another operation than the one drawn",
    "per_s": "operations in a second",
}
_OVERHEAD: Final = {
    "rss_bytes": "resident memory of the engine",
    "pss_bytes": "memory of the engine, its share of shared pages",
    "cgroup_bytes": "memory of the engine's cgroup",
    "processes": "processes of the engine",
    "cpu_percent": "CPU time of the engine, of one CPU",
    "memory_percent": "memory against the baseline engine's",
    "cpu_factor": "CPU time against the baseline engine's",
}


class Measure(Struct, frozen=True):
    """What a threshold or `primary` may name; NAME, if any, is that of an operation or a metric."""

    measure: str
    unit: str
    meaning: str


class Options(Struct, frozen=True):
    """The command line of `list measures`."""

    format: ListFormat = None


def run(options: Options) -> int:
    """Print the measures."""
    chosen = choose_format(options.format)
    found = list(measures())
    rows = [(one.measure, one.unit, one.meaning) for one in found]
    if chosen == "json":
        names = ("measure", "unit", "meaning")
        lines = [json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2)]
    else:
        lines = wrap_last_column(COLUMNS, rows) if chosen == "table" else tab_separated([COLUMNS, *rows])
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def measures() -> Iterator[Measure]:
    """Yield the measures for `primary`, the paths for thresholds, then the metrics of the installed workloads."""
    yield Measure("NAME.pNN", "s", "primary: percentile of an operation, or of job")
    yield Measure("NAME.mean", "s", "primary: mean of an operation, or of job")
    yield Measure("METRIC", "its own", "primary: mean of a metric, listed below")
    yield Measure("containers", "1", "primary: containers that a packing held")
    yield Measure("jobs_per_s", "1/s", "primary, threshold: jobs done in a second")
    yield from (_path(name, meaning) for name, meaning in _paths())
    told: dict[str, Measure] = {}
    for workload, kind in workload_classes().items():
        for metric in kind.metrics:
            meaning = f"{workload}: {metric.help or 'metric'}"
            told.setdefault(metric.name, Measure(metric.name, metric.unit, meaning))
    yield from told.values()


def _paths() -> Iterator[tuple[str, str]]:
    yield from ((f"operations.NAME.{field}", _statistic(field)) for field in OPERATION_FIELDS)
    yield from ((f"metrics.NAME.{field}", _statistic(field)) for field in METRIC_FIELDS)
    yield from ((f"jobs.{field}", f"jobs {_JOBS[field]}") for field in JOB_FIELDS)
    yield "mb_per_s", f"objects: {_TRANSFERS['mb_per_s']}"
    yield from ((f"objects.{field}", _TRANSFERS[field]) for field in TRANSFERRED_FIELDS)
    yield from ((f"operations.NAME[CLASS].{field}", _TRANSFERS[field]) for field in TRANSFER_FIELDS)
    for name in OVERHEAD_UNITS:
        for field in OVERHEAD_FIELDS:
            yield f"overhead.{name}.{field}", f"{_OVERHEAD[name]}: {_statistic(field)}"
    yield "overhead.cpu_s", "CPU time of the engine in all trials"
    yield "overhead.cpu_per_job_s", "CPU time of the engine for each job"
    yield from ((f"overhead.relative.{name}", _OVERHEAD[name]) for name in RELATIVE_UNITS)


def _path(text: str, meaning: str) -> Measure:
    path = parse_measure_path(text.replace("CLASS", "class"))
    own = "its own" if path[0] == "metrics" and path[-1] != "n" else ""
    return Measure(text, own or measure_unit(path, {}), meaning)


def _statistic(field: str) -> str:
    return _STATISTICS[field.removesuffix("_s")]
