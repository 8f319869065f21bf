"""`bench-master report-scenario`: print the report of a stats file."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from bench_common.cli import discard_output, escape_output, file_name, tell
from bench_common.errors import UsageError
from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile
from bench_master.analysis.verdict_schema import verdicts_schema
from bench_master.analysis.verdict_types import VerdictOptions
from bench_master.commands.report_options import ReportOptions, add_report_options
from bench_master.commands.verdict_options import GATES_EPILOG, add_verdict_options
from bench_master.formatting import plural
from bench_master.reports import Report, ReportSource, report_named

NAME = "report-scenario"
HELP = "print the report of a stats file"

EPILOG = f"""\
The text report is one page: -v shows all of it, -q only the verdicts, one on each line.
The report of an incomplete run or a damaged stats file covers what can be read, and says so in every format.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a threshold or gate failed, 2 usage error or no stats file, 3 the run is incomplete, the stats
file is damaged, or another version of Weighbridge wrote it, 4 a gate could not be judged. 1 takes precedence over 3,
and 3 over 4.
"""


@dataclass(frozen=True, slots=True)
class Options:
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
    schema: bool = False
    """Print the JSON Schema of the verdicts; the parser does so, and ends the program."""


class _PrintSchema(argparse.Action):
    """Prints the schema and ends the program, as ``--version`` does: no stats file is needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print it."""
        sys.stdout.write(json.dumps(verdicts_schema(), indent=2) + "\n")
        parser.exit()


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
        type=file_name,
        metavar="FILE",
        help="write the report to FILE (default: standard output)",
    )
    add_report_options(parser)
    parser.add_argument(
        "--schema",
        action=_PrintSchema,
        nargs=0,
        default=False,
        help="print the JSON Schema (draft 2020-12) of what the JSON report has under `verdicts`",
    )
    add_verdict_options(parser.add_argument_group("verdicts"))
    parser.add_argument(
        "-r", "--rps-histogram", type=file_name, metavar="FILE",
        help="also write the number of jobs that ended in each second to FILE (tab-separated; *.csv: commas)",
    )  # fmt: skip


def run(options: Options) -> int:
    """Write the report; return the exit code."""
    for path in filter(None, (options.report_file, options.rps_histogram)):
        if path.resolve() == options.stats_file.resolve():
            raise UsageError(f"{path}: this is the stats file itself; name another file to write to")
    report = report_named(options.report.format)
    source = ReportSource(
        StatsFile(options.stats_file), options.report.pctile, options.verdicts, options.report.detail
    )
    # Without a header there is no report, and the file to write stays as it is.
    _ = source.stats.header
    if source.stats.header.get("imported"):
        _check_imported(options, needs_times=report.needs_times)
    if options.rps_histogram is not None:
        _write_rates(source, options.rps_histogram)
    if options.report_file is None:
        _print(report, source)
    else:
        with _create_file(options.report_file) as out:
            report.write(source, out)
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
    return int(source.exit_code())


def _print(report: Report, source: ReportSource) -> None:
    try:
        report.write(source, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads the first lines only must learn on stderr that the run is not whole.
        if not source.incomplete_text:
            raise
        discard_output()


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


def _write_rates(source: ReportSource, path: Path) -> None:
    text = io.StringIO()
    outside = write_rate_histogram(source, text, delimiter="," if path.suffix == ".csv" else "\t")
    with _create_file(path) as out:
        out.write(text.getvalue())
    if outside:
        tell(f"bench-master: {plural(outside, 'job')} ended outside the run and are not in {path}")


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
    for rows in stats.iter_jobs():
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
