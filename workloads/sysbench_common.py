"""What the workloads of sysbench have in common: the metrics that its every test ends with, and shared parameters.

The service MariaDB: what the workloads that need a database declare, and how they reach it.

The server reads no settings but those given here, so that a host's own do not make a difference between a container
and the host. Whoever wants others writes ``services.mariadb.files`` in the scenario, at `SETTINGS_PATH`.

What a tool's own output says of how it was run: parameters, and the version where versions are not comparable.

Of outputs that were taken elsewhere nothing else is known. It keeps runs apart that must not be averaged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bench_common.errors import UsageError
from workloads.base import Metric, Parameter, Service
from workloads.sysbench_output import SysbenchLatencies, SysbenchSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_common.treatment import Scalar

    Patterns = Mapping[str, tuple[str, Callable[[str], Scalar]]]

_REPORT: Final = re.compile(r"^\[ *\d+ ?s ?\] (?!queue length).*$", re.MULTILINE)

PERCENTILES: Final = ("50", "75", "90", "95", "99")
"""The ranks that have a metric of their own: numbers of different ranks must never share a name."""

RUN_START_PATTERN: Final = r"sysbench \d+\.\d+\S*(?::\s| \()"
"""The banner, the first line of every run since 0.4; what ``--version`` prints has nothing behind the number."""

PARAM_PATTERNS: Final[Patterns] = {
    "version": (r"sysbench (\d+\.\d+).*", str),
    "threads": (r"Number of threads: (\d{1,9})", int),
}
"""What the output of every test says of how it was run."""

PERCENTILE: Final = Parameter(
    "percentile", "choice", "95", "rank of the latency percentile; 0 is none", choices=("0", *PERCENTILES)
)

SUMMARY_METRICS: Final = (
    Metric("total_time_s", "s", "lower", "run time; says something where `time` does not end the run"),
    Metric("total_events", "events", "higher", "events completed; says something where `time` ends the run"),
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


NAME: Final = "mariadb"

SETTINGS_PATH: Final = "/etc/weighbridge/my.cnf"
"""Where the server's settings are, in a container or natively below its private directory."""

HOST: Final = f"{{{NAME}.host}}"
PORT: Final = f"{{{NAME}.port}}"
SOCKET: Final = f"{{{NAME}.socket}}"
"""What stands for where the server is, in the commands of a workload."""

USER: Final = "bench"
PASSWORD: Final = "bench"  # noqa: S105  of a server that lives as long as a run, and on the host is bound to loopback
DATABASE: Final = "bench"

MARIADB: Final = Service(
    NAME,
    image="weighbridge/mariadb",
    command=("serve-mariadb",),
    port=3306,
    ready=("ready-mariadb",),
    binary="mariadbd",
    socket="/run/mariadb/mysqld.sock",
    # A server that crashed, or that was killed with a large buffer pool, recovers first.
    ready_s=120.0,
    stop_s=120.0,
)

PROGRAMS: Final = {"serve-mariadb": "mariadb/serve-mariadb", "ready-mariadb": "mariadb/ready-mariadb"}

BUFFER_POOL_SIZE: Final = Parameter(
    "buffer_pool_size",
    "size",
    128 * 2**20,
    "InnoDB's cache of data and indexes; the server's settings file says it",
    "B",
    minimum=5 * 2**20,
    maximum=2**46,
)

CONNECTION: Final = Parameter("connection", "choice", "tcp", "how the server is reached", choices=("tcp", "socket"))
"""By a Unix socket there is no network between the two, and they are on one host."""


def uses_socket(params: Mapping[str, Scalar]) -> bool:
    """Say whether the server is reached by its Unix socket."""
    return params[CONNECTION.name] == "socket"


def settings_file(buffer_pool_bytes: int) -> dict[str, str]:
    """Return the server's settings file by its path."""
    return {SETTINGS_PATH: f"[mariadbd]\ninnodb_buffer_pool_size = {buffer_pool_bytes}\n"}


_SIZE: Final = re.compile(r"(\d{1,15})(?:\.0+)? ?([KMGT]?)(?:i?B|b)?", re.ASCII)


def parse_stated_params(text: str, patterns: Patterns) -> dict[str, Scalar]:
    """Return what the first line that matches each pattern says, by name; `patterns` have a group and its reading.

    What is not there, or is nothing that the reading knows, is left out.
    """
    found: dict[str, Scalar] = {}
    lines = [line.strip(" \t\r\0") for line in text.splitlines()]
    for name, (pattern, read) in patterns.items():
        compiled = re.compile(pattern, re.ASCII)
        match = next((match for line in lines if (match := compiled.fullmatch(line))), None)
        if match is not None:
            try:
                found[name] = read(match[1])
            except (ValueError, KeyError):
                continue
    return found


def parse_tool_size(text: str) -> int:
    """Return the bytes that a tool's ``16KiB``, ``16Kb`` or ``1K`` stands for, all of them by 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")
