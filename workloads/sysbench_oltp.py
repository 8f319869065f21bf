"""sysbench oltp: transactions of reads and writes on tables of a database server that the job starts for itself.

The tables are made once for all jobs of a treatment, or again for each job; neither is timed, nor is a warm-up, which
is the same test before the one that counts. Reads of tables that fit the buffer pool measure the server's CPU time
and the network; to measure storage, make the tables larger than `buffer_pool_size` and the memory limit smaller than
both, or the page cache serves what the buffer pool does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import ParseError, UsageError
from bench_workloads import mariadb
from bench_workloads.base import Metric, Parameter, Service, Step, Workload
from bench_workloads.line_reader import parse_stated_params
from bench_workloads.sysbench import (
    PARAM_PATTERNS,
    PERCENTILE,
    RATE_PATTERN,
    RUN_START_PATTERN,
    SUMMARY_METRICS,
    SysbenchSummary,
    latest_report,
    measures_fixed_by_end,
    number,
    read_run,
    summary_values,
    whole_seconds,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from bench_workloads.line_reader import Patterns

TESTS: Final = (
    "read_only",
    "read_write",
    "write_only",
    "point_select",
    "insert",
    "update_index",
    "update_non_index",
    "delete",
)
"""The scripts of sysbench 1.0, less the ``oltp_`` that their names begin with."""

ROW_BYTES: Final = 236
"""What a row of a table takes on disk: ten tables of a million rows are 2360 MB."""
ROWS_PER_SECOND: Final = 20_000
"""How fast a slow machine makes tables, for the time that this may take."""

_COUNT: Final = r"(\d{1,18})"
_RATE: Final = r"\((\d{1,15}[.,]\d\d) per sec\.\)"
_FACTS: Final = {
    "heading": r"(?:OLTP test|SQL) statistics:",
    "performed": r"queries performed:",
    "read": rf"read: +{_COUNT}",
    "write": rf"write: +{_COUNT}",
    "other": rf"other: +{_COUNT}",
    "total": rf"total: +{_COUNT}",
    "transactions": rf"transactions: +{_COUNT} +{_RATE}",
    # before 1.0; 0.4 and some of 0.5 say "deadlocks"
    "requests": rf"read/write requests: +{_COUNT} +{_RATE}",
    "other_operations": rf"other operations: +{_COUNT} +{_RATE}",
    "deadlocks": rf"deadlocks: +{_COUNT} +{_RATE}",
    # since 1.0
    "queries": rf"queries: +{_COUNT} +{_RATE}",
    # some of 0.5, and since 1.0
    "ignored": rf"ignored errors: +{_COUNT} +{_RATE}",
    "reconnects": rf"reconnects: +{_COUNT} +{_RATE}",
}
_PASSING: Final = (
    r"No DB drivers specified, using \w+",
    r"Doing OLTP test\.",
    r"Running (?:mixed OLTP|simple OLTP|non-transactional|stored procedure) test",
    r"Doing read-only test",
    r"Using (?:Uniform|Normal|Gaussian|Special|Pareto) distribution.*",
    r"(?:Using|Not using) auto_inc on the id column",
    r'Using "[\w ]+" for starting transactions',
    r"Skipping BEGIN/COMMIT",
    r"Maximum number of requests for OLTP test is limited to \d+",
    r"Using \d+ test tables",
    r"\[ *\d+ ?s ?\] Intermediate results: \d+ threads, .*",
)
_PARAM_PATTERNS: Final[Patterns] = {
    **PARAM_PATTERNS,
    "rate": RATE_PATTERN,
    "tables": (r"Using (\d{1,9}) test tables", int),
    # 0.4 and 0.5 only
    "distribution": (r"Using (Uniform|Gaussian|Special|Pareto) distribution.*", str.lower),
    "events": (r"Maximum number of requests for OLTP test is limited to (\d{1,15})", int),
    "read": (_FACTS["read"], int),
    "write": (_FACTS["write"], int),
}
_IN_ALL: Final = ("heading", "performed", "read", "write", "other", "total", "transactions")
_OLD_TABLE: Final = (*_IN_ALL, "requests", "other_operations")
_TABLE: Final = (*_IN_ALL, "queries", "ignored", "reconnects")


class SysbenchOltp(Workload):
    """The oltp tests of sysbench, against a MariaDB of the job's own."""

    name: ClassVar[str] = "sysbench-oltp"
    summary: ClassVar[str] = "transactions of a database server: MariaDB in a container of its own (sysbench oltp)"
    image: ClassVar[str] = "weighbridge/sysbench"
    binary: ClassVar[str] = "sysbench"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("test", "choice", "read_only", "what a transaction is made of", choices=TESTS),
        Parameter("tables", "int", 1, "tables", minimum=1, maximum=100_000),
        Parameter("table_size", "int", 10_000, "rows in each table", minimum=1, maximum=10**10),
        Parameter("threads", "int", 1, "connections that make transactions side by side", minimum=1, maximum=65536),
        Parameter("time", "duration", 10.0, "run time, whole seconds; 0 is until `events` are done", "s", minimum=0),
        Parameter("events", "int", 0, "end after this many transactions; 0 is without limit", minimum=0),
        Parameter("rate", "int", 0, "transactions a second to start; 0 is as fast as it goes", "1/s", minimum=0),
        Parameter("warmup", "duration", 0.0, "whole seconds of the same before the run", "s", minimum=0),
        Parameter("prepare", "choice", "once", "when the tables are made", choices=("once", "each-job")),
        Parameter(
            "distribution",
            "choice",
            "special",
            "how rows are chosen",
            choices=("special", "uniform", "gaussian", "pareto"),
        ),
        Parameter("skip_trx", "bool", default=False, help="leave out BEGIN and COMMIT"),
        mariadb.BUFFER_POOL_SIZE,
        mariadb.CONNECTION,
        PERCENTILE,
        Parameter(
            "report_interval", "duration", 0.0, "whole seconds between progress lines; 0 is none", "s", minimum=0
        ),
    )
    primary_metrics: ClassVar[tuple[str, ...]] = ("transactions_per_second", "latency_avg_ms")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("transactions_per_second", "1/s", "higher", "transactions completed a second"),
        Metric("queries_per_second", "1/s", "higher", "queries a second, BEGIN and COMMIT included"),
        Metric("ignored_errors", "errors", "lower", "errors (mostly deadlocks) whose transactions were repeated"),
        Metric("reconnects", "connections", "lower", "connections that were lost and reopened"),
        *SUMMARY_METRICS,
    )
    tool_option_names: ClassVar[Mapping[str, str]] = {
        "num-threads": "threads",
        "max-time": "time",
        "max-requests": "events",
        "tx-rate": "rate",
        "table-size": "table_size",
        "oltp-table-size": "table_size",
        "oltp-tables-count": "tables",
        "oltp-num-tables": "tables",
        "rand-type": "distribution",
        "oltp-dist-type": "distribution",
    }
    run_start_pattern: ClassVar[str | None] = RUN_START_PATTERN
    services: ClassVar[tuple[Service, ...]] = (mariadb.MARIADB,)
    programs: ClassVar[Mapping[str, str]] = mariadb.PROGRAMS

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return preparation, warm-up, run and clean-up; only the run is timed and parsed.

        Raises `UsageError` where parameters ask for what sysbench cannot do. Tables that are made once are not
        removed by a step: they go with the server.
        """
        time_s = whole_seconds(params, "time")
        warmup_s = whole_seconds(params, "warmup")
        interval_s = whole_seconds(params, "report_interval")
        if not time_s and not params["events"]:
            raise UsageError(f"{self.name}: time and events are both 0, so it would never end; give one of them")
        base = (
            self.binary,
            f"oltp_{params['test']}",
            "--db-driver=mysql",
            *(
                (f"--mysql-socket={mariadb.SOCKET}",)
                if mariadb.uses_socket(params)
                else (f"--mysql-host={mariadb.HOST}", f"--mysql-port={mariadb.PORT}")
            ),
            f"--mysql-user={mariadb.USER}",
            f"--mysql-password={mariadb.PASSWORD}",
            f"--mysql-db={mariadb.DATABASE}",
            f"--tables={params['tables']}",
            f"--table-size={params['table_size']}",
        )
        load = [f"--threads={params['threads']}", f"--rand-type={params['distribution']}"]
        if params["skip_trx"]:
            load.append("--skip-trx=on")
        if params["rate"]:
            load.append(f"--rate={params['rate']}")
        if interval_s:
            load.append(f"--report-interval={interval_s}")
        makers = min(int(str(params["tables"])), int(str(params["threads"])))
        once = params["prepare"] == "once"
        prepare = (*base, f"--threads={makers}", "prepare")
        run = (
            *base,
            *load,
            f"--time={time_s}",
            f"--events={params['events']}",
            f"--percentile={params['percentile']}",
        )
        making_s = self._making_seconds(params)
        steps = [Step("prepare", prepare, timed=False, parse=False, once=once, expected_s=making_s)]
        if warmup_s:
            warmup = (*base, *load, f"--time={warmup_s}", "--events=0", "run")
            steps.append(Step("warmup", warmup, timed=False, parse=False, expected_s=float(warmup_s)))
        steps.append(Step("run", (*run, "run"), expected_s=float(time_s) or None))
        if not once:
            steps.append(Step("cleanup", (*base, "cleanup"), timed=False, parse=False, expected_s=making_s))
        return tuple(steps)

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run by sysbench 0.4, 0.5, 1.0 or 1.1.

        Before 1.0 sysbench printed no rate of all queries; there ``queries_per_second`` is their number over its
        total time, and ``ignored_errors`` what it calls deadlocks where it does. Reconnects are left out where they
        are not printed.
        """
        run, facts = read_run(text, test="oltp", facts=_FACTS, passing=_PASSING)
        # Which table a build prints does not follow from its version: 1.0 printed that of 0.5 before its release.
        wanted = _OLD_TABLE if "requests" in facts else _TABLE
        missing = [name for name in wanted if name not in facts]
        if missing:
            raise ParseError(
                f"lines are missing that sysbench oltp {run.version} prints ({', '.join(missing)}): this is another "
                "test of sysbench, or was altered"
            )
        reads, writes, others, total = (int(facts[name][1]) for name in ("read", "write", "other", "total"))
        if reads + writes + others != total:
            raise ParseError("the queries do not make their total", text=facts["total"][0])
        return {
            "transactions_per_second": number(facts["transactions"][2]),
            "queries_per_second": _queries_per_second(run, facts, total),
            **{
                metric: float(facts[name][1])
                for name, metric in (
                    ("ignored", "ignored_errors"),
                    ("deadlocks", "ignored_errors"),
                    ("reconnects", "reconnects"),
                )
                if name in facts
            },
            **summary_values(run),
        }

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return what the run states of its load, and whether it read, wrote or both; the test is not printed."""
        stated = parse_stated_params(text, _PARAM_PATTERNS)
        kinds = [kind for kind in ("read", "write") if stated.pop(kind, 0)]
        return {**stated, "queries": "+".join(kinds)} if kinds else stated

    def uses_sockets(self, params: Mapping[str, Scalar]) -> bool:
        """Say whether the server is reached by its Unix socket."""
        return mariadb.uses_socket(params)

    def service_files(self, params: Mapping[str, Scalar]) -> dict[str, dict[str, str]]:
        """Return the server's settings file, with the size of its buffer pool."""
        return {mariadb.NAME: mariadb.settings_file(int(str(params[mariadb.BUFFER_POOL_SIZE.name])))}

    def progress(self, text: str) -> str:
        """Return the latest line of `report_interval`."""
        return latest_report(text)

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return what the end of the run and its rate fix."""
        return measures_fixed_by_end(params, rate_of="transactions_per_second")

    def disk_bytes(self, params: Mapping[str, Scalar]) -> int:
        """Return the size of the tables and of an empty server."""
        rows = int(str(params["tables"])) * int(str(params["table_size"]))
        return mariadb.EMPTY_BYTES + rows * ROW_BYTES

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the warm-up, the time limit and what making the tables takes; None where only `events` ends it."""
        time_s, warmup_s = float(str(params["time"])), float(str(params["warmup"]))
        return time_s + warmup_s + self._making_seconds(params) if time_s else None

    @staticmethod
    def _making_seconds(params: Mapping[str, Scalar]) -> float:
        return int(str(params["tables"])) * int(str(params["table_size"])) / ROWS_PER_SECOND


def _queries_per_second(run: SysbenchSummary, facts: Mapping[str, re.Match[str]], total: int) -> float:
    if "queries" in facts:
        if int(facts["queries"][1]) != total:
            raise ParseError(f"{total} queries are not these", text=facts["queries"][0])
        return number(facts["queries"][2])
    if not run.total_time_s:
        raise ParseError("the run was too short for the total time that is printed, so it has no rate")
    return total / run.total_time_s
