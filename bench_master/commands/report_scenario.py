"""`bench-master report-scenario`: print the report of a stats file."""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from pathlib import Path
from typing import Final, TextIO

import numpy as np
from msgspec import Struct

from bench_common.argument_types import file_name
from bench_common.errors import UsageError
from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile, has_times
from bench_common.streams import escape_output, tell
from bench_master.analysis.report_schema import report_schema
from bench_master.analysis.verdict_types import VerdictOptions
from bench_master.formatting import plural
from bench_master.options.report import (
    ReportOptions,
    add_report_options,
    add_schema_option,
    check_figure,
    check_writable_report,
    load_reports,
    print_report,
    write_report_file,
)
from bench_master.options.verdict import GATES_EPILOG, add_verdict_options
from bench_master.progress_message import progress_message
from bench_master.reports import ReportSource, parts_of, report_named
from bench_master.reports.ssbench import FORMATS as SSBENCH_FORMATS
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions

EPILOG = f"""\
The text report is one page: -v shows all of it, -q only the verdicts, one on each line.
The report of an incomplete run or a damaged stats file covers what can be read, and says so in every format.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a threshold or gate failed, or jobs did and nothing allows it, 2 usage error or no stats file,
3 the run is incomplete, a treatment has no result, the stats file is damaged, or another version of Weighbridge wrote
it, 4 a gate could not be judged. 1 takes precedence over 3, and 3 over 4.
"""


class Options(Struct, frozen=True):
    """The command line of `report-scenario`."""

    stats_file: Path
    """The stats file."""
    report_file: Path | None
    """Where to write the report; None: standard output."""
    report: ReportOptions
    """How to show it."""
    verdicts: VerdictOptions
    """What to compare with what."""
    rps_histogram: Path | None
    """Where to write the jobs that ended in each second."""
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How to show it on a terminal."""
    schema: bool = False
    """Print the JSON Schema of the JSON report; the parser does so, and ends the program."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = EPILOG
    parser.add_argument(
        "-s",
        "--stats-file",
        required=True,
        type=file_name,
        metavar="STATS",
        help="stats file of a run (*.stats.gz); - is standard input",
    )
    parser.add_argument(
        "-f",
        "--report-file",
        type=_report_file,
        metavar="FILE",
        help="write the report to FILE (default, and -: standard output)",
    )
    add_report_options(parser)
    add_schema_option(parser, report_schema, "the JSON report")
    add_verdict_options(parser.add_argument_group("verdicts"))
    parser.add_argument(
        "-r", "--rps-histogram", type=file_name, metavar="FILE",
        help="also write the number of jobs that ended in each second to FILE (tab-separated; *.csv: commas; with a "
        "format of ssbench its two columns)",
    )  # fmt: skip


def _report_file(text: str) -> Path | None:
    """Return the file to write; None for standard output."""
    return None if text == "-" else file_name(text)


def run(options: Options) -> int:
    """Write the report; return the exit code."""
    for path in filter(None, (options.report_file, options.rps_histogram)):
        if path.resolve() == options.stats_file.resolve():
            raise UsageError(f"{path}: this is the stats file itself; name another file to write to")
    check_figure(options.report)
    report = report_named(options.report.format)
    files = load_reports(options.report, options.stats_file, printed=options.report_file is None)
    if options.report_file is not None:
        if any(path.resolve() == options.report_file.resolve() for _, path in files):
            raise UsageError(f"{options.report_file}: two reports go to this file; name two files")
        check_writable_report(report, options.report_file, options.stats_file)
    with progress_message(f"reading {options.stats_file}"):
        stats = StatsFile(options.stats_file)
        # Without a header there is no report, and the file to write stays as it is.
        _ = stats.header
    source = ReportSource(
        stats,
        options.report.pctile,
        options.verdicts,
        options.report.detail,
        options.report.choice,
        parts_of([options.report.format, *(name for name, _ in options.report.files)]),
    )
    if not has_times(source.stats.header):
        needs_times = any(each.needs_times for each in (report, *(each for each, _ in files)))
        _check_imported(options, needs_times=needs_times)
    if options.rps_histogram is not None:
        _write_rates(source, options.rps_histogram, as_ssbench=options.report.format in SSBENCH_FORMATS)
    # Files first: whoever reads only the first lines of standard output ends the program.
    for each, path in files:
        write_report_file(each, source, path)
    if options.report_file is None:
        print_report(report, source, options.terminal, paged=True)
    else:
        write_report_file(report, source, options.report_file)
    return _judge(source, options)


def _judge(source: ReportSource, options: Options) -> int:
    """Tell what failed or is missing; return the exit code."""
    failed = source.failed_thresholds
    if failed and options.report.format != "text":
        for verdict in failed:
            tell(f"bench-master: threshold failed: {verdict.message}")
    elif failed:
        tell(f"bench-master: {plural(len(failed), 'threshold')} failed")
    for line in source.failed_gates():
        tell(f"bench-master: {line}")
    if source.incomplete_text:
        tell(f"bench-master: {source.incomplete_text}")
    elif source.missing_results:
        tell(f"bench-master: {source.missing_results}")
    return int(source.exit_code())


def _check_imported(options: Options, *, needs_times: bool) -> None:
    """Refuse what imported results, which carry no timestamps, cannot show."""
    for wanted, what in ((options.rps_histogram, "rates"), (needs_times, "times")):
        if wanted:
            raise UsageError(f"{options.stats_file}: imported results carry no timestamps, so no {what} can be shown")


def _create_file(path: Path) -> TextIO:
    try:
        return escape_output(path.open("w", encoding="utf-8", newline=""))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}; name another file") from error


def _write_rates(source: ReportSource, path: Path, *, as_ssbench: bool) -> None:
    text = io.StringIO()
    with progress_message("counting the jobs of each second"):
        if as_ssbench:
            outside = write_ssbench_rates(source, text)
        else:
            outside = write_rate_histogram(source, text, delimiter="," if path.suffix == ".csv" else "\t")
    with _create_file(path) as out:
        out.write(text.getvalue())
    if outside:
        tell(f"bench-master: {plural(outside, 'job')} ended outside the run and are not in {path}")


def write_ssbench_rates(source: ReportSource, out: TextIO) -> int:
    """Write ssbench's two columns: the second of the calendar, from 1, and the requests that ended in it.

    Failed requests do not count, those of warm-up trials do. Returns how many ended too late to be in it.
    """
    stats = source.stats
    clock = stats.header.get("clock") or {}
    unix_ns = int(clock.get("unix_ns", 0)) - stats.began_ns
    seconds: Counter[int] = Counter()
    for block in source.run.blocks({"jobs"}):
        rows = block.body
        at = (rows["end_ns"][rows["outcome"] == Outcome.DONE] + unix_ns) // SECOND_NS
        seconds.update(Counter(at.tolist()))
    out.write('"Seconds Since Start","Requests Completed"\n')
    first = min(seconds, default=0)
    last = min(max(seconds, default=-1), first + LONGEST_S - 1)
    out.writelines(f"{second - first + 1},{seconds[second]}\n" for second in range(first, last + 1))
    return sum(count for second, count in seconds.items() if second > last)


SECOND_NS: Final = 1_000_000_000
LONGEST_S: Final = 31 * 86_400
"""Seconds without a job are written too, but no file may ask for more lines than this."""


def write_rate_histogram(source: ReportSource, out: TextIO, *, delimiter: str = "\t") -> int:
    """Write a header and a line for each second since the run began, from the first with a job to the last.

    Warm-up is counted too: this is what the machine did. Jobs without an end of their own (lost before they were
    handed out) are not in it, nor are those that ended before the run began or over a month after it: their number
    is returned. Each line has the state of the run; if it is incomplete, there is at least one.
    """
    stats, state = source.stats, source.document.run_state
    began_ns = stats.began_ns
    seconds: dict[Outcome, Counter[int]] = {outcome: Counter() for outcome in Outcome}
    outside = 0
    for block in source.run.blocks({"jobs"}):
        rows = block.body
        at = (rows["end_ns"] - began_ns) // SECOND_NS
        inside = (at >= 0) & (at < LONGEST_S)
        outside += int((~inside).sum())
        for outcome, counter in seconds.items():
            distinct, counts = np.unique(at[inside & (rows["outcome"] == outcome)], return_counts=True)
            counter.update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["second", *(outcome.name.lower() for outcome in Outcome), "run_state"])
    every = sorted({second for counter in seconds.values() for second in counter})
    if not every and state != "complete":
        every = [0]
    for second in range(every[0], every[-1] + 1) if every else ():
        writer.writerow([second, *(seconds[outcome][second] for outcome in Outcome), state])
    return outside
