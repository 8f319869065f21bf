"""`bench-master show-output`: print what the tool of one job printed, unchanged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bench_common.argument_types import int_range
from bench_common.errors import ExitCode, StatsFileError, UsageError, did_you_mean
from bench_common.options import Option
from bench_common.records import OutputRecord, job_id_of
from bench_common.stats.reader import StatsFile
from bench_common.streams import program_name, tell
from bench_master.progress_message import progress_message
from bench_master.reports.outputs import output_title

EPILOG = """\
Standard output is the tool's, byte for byte where it is no terminal; stderr has the step and the tool's standard
error. Reports name jobs beside errors and slowest operations; report-scenario --format outputs shows every output.

  bench-master show-output 12 -s FILE.stats.gz | bench-master parse-output sysbench-cpu

Exit codes: 0 ok, 2 usage error, or the job has no output, 3 the stats file is damaged.
"""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `show-output`."""

    job: Annotated[int, Option("JOB", "number of the job", type=int_range(0))]
    stats_file: Annotated[
        Path, Option("-s, --stats-file STATS", "stats file of a run (*.stats.gz); - is standard input", required=True)
    ]
    step: Annotated[str | None, Option("--step NAME", "show this step only, such as run (default: all steps)")] = None
    quiet: bool


def run(options: Options) -> int:
    """Print the outputs of the job; return the exit code."""
    numbers: set[int] = set()
    found: list[OutputRecord] = []
    with progress_message(f"reading {options.stats_file}"):
        stats = StatsFile(options.stats_file)
        header = stats.header
        for record in (record for block in stats.blocks({"outputs"}) for record in block.body):
            number = job_id_of(record.ticket)
            numbers.add(number)
            if number == options.job:
                found.append(record)
    if not found:
        raise _no_output(stats, options.job, numbers)
    shown = [record for record in found if options.step in (None, record.step)]
    if not shown:
        steps = list(dict.fromkeys(record.step for record in found))
        hint = did_you_mean(str(options.step), steps)
        raise UsageError(f"--step {options.step}: job {options.job} has none{hint}; its steps: {', '.join(steps)}")
    for record in shown:
        if not options.quiet:
            tell(output_title(header, record))
        _show(record)
    if stats.damage:
        tell(f"{program_name()}: {stats.path}: {stats.damage}")
        return int(ExitCode.INFRASTRUCTURE)
    return int(ExitCode.OK)


def _no_output(stats: StatsFile, job: int, numbers: set[int]) -> StatsFileError | UsageError:
    """Return the error that says why there is nothing to show."""
    if stats.damage:
        return StatsFileError(f"{stats.path}: no output of job {job} can be read: {stats.damage}")
    if not numbers:
        return UsageError(f"{stats.path}: holds no outputs; only jobs that run a tool have any")
    return UsageError(
        f"{stats.path}: no output of job {job}; {len(numbers):,} jobs have one, from {min(numbers)} to {max(numbers)}"
    )


def _show(record: OutputRecord) -> None:
    if sys.stdout.isatty():
        # What a tool prints must not steer the terminal; the stream escapes it.
        sys.stdout.write(record.stdout.decode("utf-8", "backslashreplace"))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(record.stdout)
    sys.stdout.flush()
    for line in record.stderr.decode("utf-8", "backslashreplace").splitlines():
        tell(line)
