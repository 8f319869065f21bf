"""`bench-master report-scenario`: look again at what a run gave."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import TextIO

from bench_common.cli import file_name
from bench_common.errors import ExitCode, UsageError
from bench_common.stats.reader import StatsFile
from bench_master.commands.run_options import add_report_options
from bench_master.formatting import plural
from bench_master.reports import ReportSource, report_named
from bench_master.reports.rate import write_rate_histogram

NAME = "report-scenario"
HELP = "print the report of a stats file"

EPILOG = """\
A damaged or unfinished stats file is reported as far as it can be read, and the report says so.

Exit codes: 0 ok, 1 a threshold of the scenario failed, 2 usage error or no stats file, 3 the stats file
lacks its beginning or is of a newer Weighbridge.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "-s",
        "--stats-file",
        required=True,
        type=file_name,
        metavar="STATS",
        help="the stats file of a run (*.stats.gz)",
    )
    parser.add_argument(
        "-f",
        "--report-file",
        type=file_name,
        metavar="FILE",
        help="write the report to FILE (default: standard output)",
    )
    add_report_options(parser)
    parser.add_argument(
        "-r", "--rps-histogram", type=file_name, metavar="FILE",
        help="also write the jobs that ended in each second to FILE (tab-separated; commas if it is named *.csv)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Write what was asked for; return the exit code."""
    for path in filter(None, (arguments.report_file, arguments.rps_histogram)):
        if path.resolve() == arguments.stats_file.resolve():
            raise UsageError(f"{path}: is the stats file itself; name another file to write to")
    report = report_named(arguments.format)
    source = ReportSource(StatsFile(arguments.stats_file), arguments.pctile)
    # Where there is no header there is no report, and a file to write to is left as it was.
    _ = source.stats.header
    if source.stats.header.get("imported"):
        _check_imported(arguments, needs_times=report.needs_times)
    if arguments.rps_histogram is not None:
        _write_rates(source.stats, arguments.rps_histogram)
    if arguments.report_file is None:
        report.write(source, sys.stdout)
    else:
        with _create_file(arguments.report_file) as out:
            report.write(source, out)
    failed = source.failed_thresholds
    if failed and arguments.format != "text":
        for verdict in failed:
            sys.stderr.write(f"bench-master: threshold failed: {verdict.message}\n")
    elif failed:
        sys.stderr.write(f"bench-master: {plural(len(failed), 'threshold')} failed\n")
    return int(ExitCode.THRESHOLD if failed else ExitCode.OK)


def _check_imported(arguments: argparse.Namespace, *, needs_times: bool) -> None:
    """Refuse what cannot be told of results of which nobody knows when they were."""
    for wanted, what in ((arguments.rps_histogram, "rates"), (needs_times, "times")):
        if wanted:
            raise UsageError(
                f"{arguments.stats_file}: imported results carry no timestamps, so no {what} can be shown"
            )


def _create_file(path: Path) -> TextIO:
    try:
        return path.open("w", encoding="utf-8", newline="")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; name another file") from error


def _write_rates(stats: StatsFile, path: Path) -> None:
    text = io.StringIO()
    outside = write_rate_histogram(stats, text, delimiter="," if path.suffix == ".csv" else "\t")
    with _create_file(path) as out:
        out.write(text.getvalue())
    if outside:
        sys.stderr.write(f"bench-master: {plural(outside, 'job')} ended outside of the run, not in {path}\n")
