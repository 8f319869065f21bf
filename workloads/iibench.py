"""iibench: rows inserted at random places of three secondary indexes, and perhaps read meanwhile.

The program is our own, after the published description of the benchmark of that name; it prints the columns of the
original of 2012, and the parser reads the original of 2012 and its successor as well. Rates of the three are not
comparable: their rows, statements and drivers differ.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import ParseError, UsageError
from bench_common.long_output import OUTPUT_GAP
from bench_workloads import mariadb
from bench_workloads.base import Metric, Parameter, Service, Step, Workload
from bench_workloads.line_reader import LineReader, OutputLine, read_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar

HEADER: Final = "#rows #seconds #total_seconds cum_ips table_size last_ips #queries cum_qps last_qps"
"""The columns of the original of 2012, and ours."""

INSERTS_PER_SECOND: Final = 5_500
"""The rate of the published runs on machines of 2014, for estimates."""
ROW_BYTES: Final = 250
"""About what a row takes on disk in the table and its three indexes, without its text."""
REPORT_S: Final = 2.0
"""How often the report is looked at while it grows; its rows come by count, not by time."""

_CLASSIC: Final = frozenset({"#rows", "#total_seconds", "cum_ips", "last_ips"})
_LATER: Final = frozenset({"t_sec", "i_ips", "t_ips", "t_ins"})
"""The columns without which there is no result; versions have others besides, in an order of their own."""
_RUN_START: Final = r"(?:#rows\s+#?\w*sec|i_sec\s+t_sec\b)"
_NUMBER: Final = r"\d{1,15}(?:\.\d{1,9})?"
_ROW: Final = re.compile(rf"{_NUMBER}(?: {_NUMBER})+", re.ASCII)
_GAP: Final = re.compile(re.escape(OUTPUT_GAP))
_TABLE: Final = re.compile(r"create table \w+ .*", re.IGNORECASE)
_ENGINE: Final = re.compile(r"create table \w+ .*\bengine=(\w{1,40}).*", re.IGNORECASE | re.ASCII)
_WARNING: Final = re.compile(r"\S{1,400}:\d{1,9}: \w*Warning: .*")
"""The first of the two lines of a warning of Python; the second is the line of the program."""
_SERVER_LOG: Final = re.compile(
    r"(?:\d{6} +\d{1,2}:\d\d:\d\d|\d{4}-\d\d-\d\d[ T]\d{1,2}:\d\d:\d\d\S*) +"
    r"(?:\d+ )?(?:mysqld\w*|mariadbd\w*|\[(?:Note|Warning|System)\]|InnoDB:) .*"
)
"""What a server that was started beside the program prints about itself; not its errors."""
_AFTER: Final = (
    r"(?:Insert|Delete| ?Query) rt: .*",
    r"Query thread: \d+ queries, .*",
    r"getm(?:in|ax) \d+ queries, .*",
)
_TOTALS: Final = re.compile(
    rf"Totals: ({_NUMBER}) secs, ({_NUMBER}) rows/sec, (\d{{1,15}}) rows(?:, .*)?",
    re.ASCII,
)
_DONE: Final = "Done"


class Iibench(Workload):
    """Index insertion, against a MariaDB of the job's own."""

    name: ClassVar[str] = "iibench"
    summary: ClassVar[str] = "insertion into three secondary indexes of a database table (own program, after iibench)"
    image: ClassVar[str] = "weighbridge/iibench"
    binary: ClassVar[str] = "python3"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("max_rows", "int", 100_000, "rows to insert", minimum=1, maximum=10**10),
        Parameter("rows_per_report", "int", 10_000, "rows from one report of the rates to the next", minimum=1),
        Parameter(
            "rows_per_commit", "int", 1000, "rows in each INSERT, one transaction each", minimum=1, maximum=20_000
        ),
        Parameter("query_threads", "int", 0, "processes that read by the indexes meanwhile", minimum=0, maximum=1024),
        Parameter("data_bytes", "size", 10, "length of each row's text", "B", minimum=0, maximum=4000),
        Parameter("seed", "int", 1, "fixes the rows", minimum=0, maximum=2**31),
        mariadb.BUFFER_POOL_SIZE,
        mariadb.CONNECTION,
    )
    primary_metrics: ClassVar[tuple[str, ...]] = ("inserts_per_second", "queries_per_second")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("inserts_per_second", "1/s", "higher", "rows inserted a second, over the whole run"),
        Metric("last_inserts_per_second", "1/s", "higher", "rows inserted a second in the last interval"),
        Metric("queries_per_second", "1/s", "higher", "queries a second, over the whole run"),
        Metric("last_queries_per_second", "1/s", "higher", "queries a second in the last interval"),
        Metric("total_time_s", "s", "lower", "time that all rows took"),
        Metric("rows", "rows", "higher", "rows inserted"),
    )
    services: ClassVar[tuple[Service, ...]] = (mariadb.MARIADB,)
    run_start_pattern: ClassVar[str | None] = _RUN_START
    programs: ClassVar[Mapping[str, str]] = {**mariadb.PROGRAMS, "iibench": "iibench/iibench.py"}

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the one command; raise `UsageError` where there would be no report before the last row."""
        if int(str(params["rows_per_report"])) > int(str(params["max_rows"])):
            raise UsageError(
                f"{self.name}: {params['rows_per_report']} rows_per_report are more than the {params['max_rows']} "
                "rows of max_rows; make it smaller"
            )
        argv = (
            "iibench",
            *(
                (f"--socket={mariadb.SOCKET}",)
                if mariadb.uses_socket(params)
                else (f"--host={mariadb.HOST}", f"--port={mariadb.PORT}")
            ),
            f"--user={mariadb.USER}",
            f"--password={mariadb.PASSWORD}",
            f"--database={mariadb.DATABASE}",
            *(
                f"--{name.replace('_', '-')}={params[name]}"
                for name in ("max_rows", "rows_per_report", "rows_per_commit", "query_threads", "data_bytes", "seed")
            ),
        )
        return (Step("run", argv),)

    def usual_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the time at the rate of published runs."""
        return int(str(params["max_rows"])) / INSERTS_PER_SECOND

    def disk_bytes(self, params: Mapping[str, Scalar]) -> int:
        """Return the size of the table with its indexes and of an empty server."""
        return mariadb.EMPTY_BYTES + int(str(params["max_rows"])) * (ROW_BYTES + int(str(params["data_bytes"])))

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return the number of rows."""
        del params
        return {"rows": "max_rows"}

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run: of our program, of iibench of 2012, or of its successor.

        Raises `ParseError` for what does not end with ``Done``: iibench prints its header, and then fails.
        Rates of queries are left out where none was made.
        """
        output = _Output(text)
        return _classic(output) if set(output.columns) >= _CLASSIC else _later(output)

    def verify(self, params: Mapping[str, Scalar], metrics: Mapping[str, float]) -> None:
        """Raise `ParseError` where fewer rows were inserted than were to be."""
        if metrics["rows"] != params["max_rows"]:
            raise ParseError(f"{metrics['rows']:.0f} of {params['max_rows']} rows were inserted")

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return which iibench it was, its engine, its rows in the end and a report, and whether it queried."""
        lines = [" ".join(line.text.split()) for line in read_lines(text)]
        columns = next((line.split() for line in lines if _is_header(line)), [])
        if not columns:
            return {}
        classic = set(columns) >= _CLASSIC
        rows = [line.split() for line in lines if _ROW.fullmatch(line) and len(line.split()) == len(columns)]
        last = dict(zip(columns, rows[-1], strict=True)) if rows else {}
        stated: dict[str, Scalar] = {"version": "2012" if classic else "later"}
        engine = next((match[1] for line in lines if (match := _ENGINE.fullmatch(line))), None)
        if engine is not None:
            stated["storage_engine"] = engine.lower()
        if rows and classic:
            stated["rows_per_report"] = int(float(rows[0][0]))
        if _DONE in lines and last:
            count, queries = ("#rows", "#queries") if classic else ("t_ins", "t_query")
            stated |= {"max_rows": int(float(last[count])), "queries": float(last.get(queries, 0)) > 0}
        return stated

    def progress(self, text: str) -> str:
        """Return the latest row of the report."""
        rows = [line.split() for line in text.rpartition("\n")[0].splitlines() if _ROW.fullmatch(line)]
        if not rows or len(rows[-1]) != len(HEADER.split()):
            return ""
        rows_so_far, seconds, rate = rows[-1][0], rows[-1][2], rows[-1][5]
        return f"{rows_so_far} rows in {seconds} s, now {rate} rows/s"

    def progress_interval_s(self, params: Mapping[str, Scalar]) -> float | None:
        """Return how often it is worth looking for a new row."""
        del params
        return REPORT_S

    def uses_sockets(self, params: Mapping[str, Scalar]) -> bool:
        """Say whether the server is reached by its Unix socket."""
        return mariadb.uses_socket(params)

    def service_files(self, params: Mapping[str, Scalar]) -> dict[str, dict[str, str]]:
        """Return the server's settings file, with the size of its buffer pool."""
        return {mariadb.NAME: mariadb.settings_file(int(str(params[mariadb.BUFFER_POOL_SIZE.name])))}


def _is_header(line: str) -> bool:
    """Return whether a line names the columns of a report, each once."""
    columns = line.split()
    return len(set(columns)) == len(columns) and (set(columns) >= _CLASSIC or set(columns) >= _LATER)


class _Output(LineReader):
    """A header, the rows of the report, totals or not, and ``Done``, which a run that failed does not print."""

    explanations = ((_DONE, "the report ends too early"),)

    def __init__(self, text: str) -> None:
        lines = [OutputLine(line.number, " ".join(line.text.split())) for line in read_lines(text)]
        super().__init__("iibench", lines, empty="it says why on stderr")
        self.end_reason = "iibench failed or was cut off"
        self.columns = self.lines[0].text.split()
        if not _is_header(self.lines[0].text):
            self.fail(f"not a header of iibench; expected one such as '{HEADER}'")
        if not any(line.text == _DONE for line in self.lines):
            self.position = len(self.lines)
            self.refuse(f"'{_DONE}'")
        self.advance()

    def skip_warnings(self) -> None:
        """Pass over what else may be printed before the first row: warnings, the server's log, the table's text."""
        while self.accept(_TABLE) or self.accept(_SERVER_LOG) or self._skip_warning():
            pass

    def _skip_warning(self) -> bool:
        if not self.accept(_WARNING):
            return False
        known = (_ROW, _TABLE, _WARNING, _SERVER_LOG, re.compile(re.escape(_DONE)))
        if self.line and not any(pattern.fullmatch(self.line.text) for pattern in known):
            self.advance()
        return True

    def rows(self) -> list[tuple[OutputLine, list[float]]]:
        """Read the rows of the report."""
        columns = len(self.columns)
        rows = []
        while self.accept(_ROW) or self.accept(_GAP):
            if self.previous.text == OUTPUT_GAP:
                continue
            fields = [float(word) for word in self.previous.text.split()]
            if len(fields) != columns:
                self.fail(f"{len(fields)} numbers, where the header has {columns}", self.previous)
            rows.append((self.previous, fields))
        return rows

    def read_done(self) -> None:
        """Read the end that a complete run has."""
        self.expect(_DONE, f"'{_DONE}'")
        if self.line:
            self.fail(f"a run ends with '{_DONE}'; give one run at a time")

    def check_rate(self, count: float, total: str, rate: float, line: OutputLine) -> None:
        """Refuse a rate that does not follow from rows and time, of which the originals print one decimal only."""
        total_s, decimals = float(total), len(total.partition(".")[2])
        slack_s = 0.6 * 10.0**-decimals
        if (
            total_s > slack_s
            and not count / (total_s + slack_s) * 0.999 <= rate <= count / (total_s - slack_s) * 1.001
        ):
            self.fail(f"{count:g} rows in {total} s are not {rate:g} a second", line)


def _classic(output: _Output) -> dict[str, float]:
    output.skip_warnings()
    rows = output.rows()
    output.read_done()
    if not rows:
        raise ParseError("there is no report: no row was inserted")
    counts = [fields[output.columns.index("#rows")] for _, fields in rows]
    line, fields = rows[-1]
    last = dict(zip(output.columns, fields, strict=True))
    count, total_s, rate = last["#rows"], last["#total_seconds"], last["cum_ips"]
    seconds = line.text.split()[output.columns.index("#total_seconds")]
    if counts != sorted(set(counts)):
        output.fail("the rows do not grow from report to report", line)
    output.check_rate(count, seconds, rate, line)
    return {
        "inserts_per_second": rate,
        "last_inserts_per_second": last["last_ips"],
        **(
            {"queries_per_second": last["cum_qps"], "last_queries_per_second": last["last_qps"]}
            if last.keys() >= {"cum_qps", "last_qps"} and last.get("#queries")
            else {}
        ),
        "total_time_s": total_s,
        "rows": count,
    }


def _later(output: _Output) -> dict[str, float]:
    output.skip_warnings()
    rows = output.rows()
    output.skip(_AFTER)
    if not rows:
        raise ParseError("the totals are missing that iibench ends with")
    totals = output.expect(_TOTALS, "'Totals: ...'")
    line = output.previous
    output.read_done()
    total_s, rate, count = (float(totals[group]) for group in (1, 2, 3))
    output.check_rate(count, totals[1], rate, line)
    last = dict(zip(output.columns, rows[-1][1], strict=True))
    return {
        "inserts_per_second": rate,
        "last_inserts_per_second": last["i_ips"],
        **(
            {"queries_per_second": last["t_qps"], "last_queries_per_second": last["i_qps"]}
            if last.keys() >= {"t_qps", "i_qps"} and last.get("t_query")
            else {}
        ),
        "total_time_s": total_s,
        "rows": count,
    }
