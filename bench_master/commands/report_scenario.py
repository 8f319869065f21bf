"""`bench-master report-scenario`: print the report of a stats file."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Final, TextIO, cast

import numpy as np
from msgspec import Struct

from bench_common.argument_types import InvalidValue, file_name
from bench_common.cli import CommandParser, FirstHelp
from bench_common.errors import ExitCode, UsageError
from bench_common.files import open_regular, real_path
from bench_common.options import Heading, Option, add_options
from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile, has_times
from bench_common.streams import escape_output, program_name, tell
from bench_master.analysis.report_schema import report_schema
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.formatting import plural
from bench_master.options.report import (
    ReportOptions,
    check_chart,
    check_writable,
    load_reports,
    print_report,
    schema_option,
    write_report_file,
)
from bench_master.options.verdict import GATES_EPILOG
from bench_master.progress_message import progress_message
from bench_master.reports import RATES_LONGEST_S, RatesReport, Report, ReportSource, parts_of, report_named
from bench_master.reports.verification import MOST_FINDINGS, Verification, format_of, verify_report
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions

EPILOG = f"""\
The text report is one page: -v shows all of it, -q only the answer, a sentence.
The report of an incomplete run or a damaged stats file covers what can be read, and says so in every format.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a threshold or gate failed, or jobs failed and the run did not allow that, 2 usage error or
no stats file, 3 the run is incomplete, a treatment has no result, the stats file is damaged, or another version of
Weighbridge wrote it, 4 a gate could not be judged. 1 takes precedence over 3, and 3 over 4.
"""


def _digest(text: str) -> str:
    """Return a SHA-256: a type of arguments."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise InvalidValue(
            f"{text!r}: expected the 64 hexadecimal digits of a SHA-256, as `sha256sum FILE` prints them"
        )
    return text.lower()


def _report_file(text: str) -> Path | None:
    """Return the file to write; None for standard output."""
    return None if text == "-" else file_name(text)


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `report-scenario`."""

    stats_file: Annotated[
        Path,
        Option("-s, --stats-file STATS", "stats file of a run (*.stats.gz); - is standard input", required=True),
    ]
    report_file: Annotated[
        Path | None,
        Option(
            "-f, --report-file FILE",
            "write the report to FILE (default, and -: standard output)",
            type=_report_file,
        ),
    ]
    report: ReportOptions
    schema: Annotated[bool, schema_option(report_schema, "the JSON report")] = False
    verdicts: Annotated[VerdictOptions, Heading("verdicts")]
    rps_histogram: Annotated[
        Path | None,
        Option(
            "-r, --rps-histogram FILE",
            "also write the number of jobs that ended in each second to FILE (tab-separated; *.csv: commas; with a "
            "format of ssbench its two columns)",
        ),
    ]
    verify: Annotated[
        Path | None,
        Heading("verification of a published report"),
        Option(
            "--verify REPORT",
            "print no report: make the one in the file REPORT again, with the same options, and say whether all of "
            "it follows from the stats file (exit code 1 if not); its format by --format, or by the file's ending",
        ),
    ] = None
    sha256: Annotated[
        str | None, Option("--sha256 HEX", "with --verify: the SHA-256 that the stats file must have", type=_digest)
    ] = None
    terminal: TerminalOptions = DEFAULT_TERMINAL


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    cast("CommandParser", parser).show_first(_first_help(parser.prog))
    add_options(parser, Options)


def _first_help(program: str) -> FirstHelp:
    """Return the options of the first day, which ``--help`` shows."""
    return FirstHelp(
        "-s STATS [OPTIONS]",
        {
            "what to show": ["-s", "--format", "-f", "--export"],
            "what is compared, and what fails": ["--baseline", "--margin", "--fail-on", "--require"],
        },
        "The report is one page: -v shows all of it, -q only the answer.\n\n"
        f"All options, gates and exit codes: {program} --help-all\n",
    )


def run(options: Options) -> int:
    """Write the report, or verify one; return the exit code."""
    if options.verify is not None or options.sha256 is not None:
        return _verify(options)
    check_chart(options.report)
    report = report_named(options.report.format)
    files = load_reports(options.report, options.stats_file)
    written = [real_path(path) for _, path in files]
    for path in filter(None, (options.report_file, options.rps_histogram)):
        if real_path(path) in written:
            raise UsageError(f"{path}: two reports go to this file; name two files")
        check_writable(path, options.stats_file)
        written.append(real_path(path))
    with progress_message(f"reading {options.stats_file}"):
        stats = StatsFile(options.stats_file)
        # Without a header there is no report, and the file to write stays as it is.
        _ = stats.header
    source = ReportSource(
        stats,
        options.report.pctile,
        options.verdicts,
        options.report.detail,
        options.report.chart_options,
        parts_of([options.report.format, *(name for name, _ in options.report.files)]),
    )
    if not has_times(source.stats.header):
        needs_times = any(getattr(each, "needs_times", False) for each in (report, *(each for each, _ in files)))
        _check_imported(options, needs_times=needs_times)
    if options.rps_histogram is not None:
        _write_rates(source, options.rps_histogram, report)
    # Files first: whoever reads only the first lines of standard output ends the program.
    for each, path in files:
        write_report_file(each, source, path)
    if options.report_file is None:
        print_report(options.report.format, source, options.terminal, paged=True)
    else:
        write_report_file(report, source, options.report_file)
    return _judge(source, options)


def _verify(options: Options) -> int:
    """Say whether a report follows from the stats file; return the exit code."""
    path, stats_file = options.verify, options.stats_file
    if path is None:
        raise UsageError("--sha256: expected --verify REPORT beside it, the report that follows from this stats file")
    for unused, flag in (
        (options.report_file, "-f"),
        (options.rps_histogram, "-r"),
        (options.report.files, "--format NAME=FILE"),
    ):
        if unused:
            raise UsageError(f"--verify prints no report: leave out {flag}")
    if str(stats_file) == "-":
        raise UsageError("--verify reads the stats file twice: -s - cannot be; save it to a file first")
    if real_path(path) == real_path(stats_file):
        raise UsageError(f"{path}: this is the stats file itself; name the report")
    name = format_of(path, options.report.format if options.report.formats else None)
    with progress_message(f"reading {stats_file}"):
        stats = StatsFile(stats_file)
        _ = stats.header
        with open_regular(stats_file) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    told = f"SHA-256 of {stats_file}: {digest}"
    if options.sha256 not in (None, digest):
        _say(told)
        tell(f"{program_name()}: {stats_file}: this is another file: its SHA-256 is not {options.sha256}")
        return int(ExitCode.THRESHOLD)
    charts = options.report.chart_options
    source = ReportSource(stats, options.report.pctile, options.verdicts, "page", charts, parts_of([name]))
    found = verify_report(source, path, name)
    _say(told)
    if found.differences:
        _show_differences(found, path, stats_file)
        return int(ExitCode.THRESHOLD)
    _say(f"{path}: verified: all of it follows from the rows ({found.what})")
    return int(ExitCode.OK)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _show_differences(found: Verification, path: Path, stats_file: Path) -> None:
    count = len(found.differences)
    places = f"{plural(count, 'place')} {'differs' if count == 1 else 'differ'}"
    _say(f"{path}: NOT verified: {places} from what follows from the rows ({found.what})")
    for each in found.differences[:MOST_FINDINGS]:
        _say(f"  {each}")
    if count > MOST_FINDINGS:
        _say(f"  and {count - MOST_FINDINGS:,} more")
    tell(
        f"{program_name()}: {path} does not follow from {stats_file}; if it was made with options such as --pctile, "
        "--baseline or --margin, give the same ones"
    )


def _judge(source: ReportSource, options: Options) -> int:
    """Tell what failed or is missing; return the exit code."""
    failed = source.failed_thresholds
    if failed and options.report.format != "text":
        for verdict in failed:
            tell(f"{program_name()}: threshold failed: {verdict.message}")
    elif failed:
        tell(f"{program_name()}: {plural(len(failed), 'threshold')} failed")
    for line in source.failed_gates():
        tell(f"{program_name()}: {line}")
    if source.incomplete_text:
        tell(f"{program_name()}: {source.incomplete_text}")
    elif source.missing_results:
        tell(f"{program_name()}: {source.missing_results}")
    return int(source.exit_code())


def _check_imported(options: Options, *, needs_times: bool) -> None:
    """Refuse what imported results, which carry no timestamps, cannot show."""
    for wanted, what in ((options.rps_histogram, "rates"), (needs_times, "times")):
        if wanted:
            raise UsageError(f"{options.stats_file}: imported results carry no timestamps, so no {what} can be shown")


def _write_rates(source: ReportSource, path: Path, report: Report) -> None:
    text = io.StringIO()
    with progress_message("counting the jobs of each second"):
        if isinstance(report, RatesReport):
            outside = report.write_rates(source, text)
        else:
            outside = write_rate_histogram(source, text, delimiter="," if path.suffix == ".csv" else "\t")
    with escape_output(path.open("w", encoding="utf-8", newline="")) as out:
        out.write(text.getvalue())
    if outside:
        tell(f"{program_name()}: {plural(outside, 'job')} ended outside the run and are not in {path}")


SECOND_NS: Final = 1_000_000_000


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
        inside = (at >= 0) & (at < RATES_LONGEST_S)
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
