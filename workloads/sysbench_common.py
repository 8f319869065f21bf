"""What the workloads of sysbench share: the metrics that every test ends with, and common parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bench_common.errors import UsageError
from workloads.base import Metric, Parameter
from workloads.sysbench_output import SysbenchLatencies, SysbenchSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from workloads.line_reader import Patterns

_REPORT: Final = re.compile(r"^\[ *\d+ ?s ?\] (?!queue length).*$", re.MULTILINE)

PERCENTILES: Final = ("50", "75", "90", "95", "99")
"""The ranks that have a metric of their own: numbers of different ranks must never share a name."""

RUN_START_PATTERN: Final = r"sysbench \d+\.\d+\S*(?::\s| \()"
"""The banner, the first line of every run since 0.4; what ``--version`` prints has nothing behind the number."""

PARAM_PATTERNS: Final[Patterns] = {
    "version": (r"sysbench (\d+\.\d+).*", str),
    "threads": (r"Number of threads: (\d{1,9})", int),
}
"""The parameters that the output of every test states."""

PERCENTILE: Final = Parameter(
    "percentile", "choice", "95", "rank of the latency percentile; 0 is none", choices=("0", *PERCENTILES)
)

SUMMARY_METRICS: Final = (
    Metric("total_time_s", "s", "lower", "run time; meaningful unless `time` ends the run"),
    Metric("total_events", "events", "higher", "events completed; meaningful if `time` ends the run"),
    Metric("latency_min_ms", "ms", "lower", "the fastest event"),
    Metric("latency_avg_ms", "ms", "lower", "the mean event"),
    Metric("latency_max_ms", "ms", "lower", "the slowest event"),
    *(Metric(f"latency_p{rank}_ms", "ms", "lower", f"{rank} % of events were faster") for rank in PERCENTILES),
    Metric("latency_sum_ms", "ms", "lower", "time of all events of all threads"),
    Metric("thread_events_avg", "events", "higher", "events completed by a thread, mean over threads"),
    Metric("thread_events_stddev", "events", "lower", "how unevenly threads were served: spread of their events"),
    Metric("thread_time_avg_s", "s", "lower", "time that a thread spent in events, mean over threads"),
    Metric("thread_time_stddev_s", "s", "lower", "how unevenly threads were served: spread of their time"),
)


def summary_values(run: SysbenchLatencies) -> dict[str, float]:
    """Return the values of those `SUMMARY_METRICS` that the run has, by name.

    A run without totals has none of them; the percentile is left out where it was switched off, and where its rank is
    one that has no metric.
    """
    latencies = {
        "latency_min_ms": run.latency_min_ms,
        "latency_avg_ms": run.latency_avg_ms,
        "latency_max_ms": run.latency_max_ms,
        **_percentile(run),
        "latency_sum_ms": run.latency_sum_ms,
    }
    if not isinstance(run, SysbenchSummary):
        return latencies
    return {
        "total_time_s": run.total_time_s,
        "total_events": float(run.total_events),
        **latencies,
        "thread_events_avg": run.events_avg,
        "thread_events_stddev": run.events_stddev,
        "thread_time_avg_s": run.time_avg_s,
        "thread_time_stddev_s": run.time_stddev_s,
    }


def latest_report(text: str) -> str:
    """Return the last whole line of progress in what sysbench has printed so far, or nothing."""
    whole = text.rpartition("\n")[0]
    reports = _REPORT.findall(whole)
    return reports[-1].strip() if reports else ""


def whole_seconds(params: Mapping[str, Scalar], name: str) -> int:
    """Return a duration as sysbench takes it; raise `UsageError` for a fraction of a second."""
    value = float(str(params[name]))
    if not value.is_integer():
        raise UsageError(f"sysbench takes whole seconds: {name} cannot be {value:g} s; try {max(1, round(value))} s")
    return int(value)


def _percentile(run: SysbenchLatencies) -> dict[str, float]:
    if run.percentile is None:
        return {}
    rank, value = run.percentile
    return {f"latency_p{rank}_ms": value} if str(rank) in PERCENTILES else {}
