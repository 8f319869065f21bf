"""`bench-master import-results`: make a stats file of results that were measured elsewhere."""

from __future__ import annotations

import hashlib
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import name, some_time, stats_name
from bench_common.errors import ExitCode, ParseError, UsageError
from bench_common.options import Option
from bench_common.streams import program_name, tell
from bench_common.units import format_duration
from bench_features.compat.imports import ImportSpec, decode_text, read_bytes, read_monitor, split_runs, write_import
from bench_features.compat.log_files import common_beginning
from bench_features.compat.ssbench_run import read_run
from bench_features.compat.ssbench_stat_files import write_stat_import
from bench_master.formatting import plural
from bench_master.progress_message import progress_message
from bench_workloads.registry import workload

if TYPE_CHECKING:
    from bench_common.treatment import Scalar


_RESERVED_LABELS = frozenset({"environment", "engine"})
SSBENCH = "ssbench"
"""What stands in the place of a workload for stat files of ssbench."""


EPILOG: Final = (
    "A file holds one run or several, with other lines between them; or numbers on each line (--metric names\n"
    "what each column measures); or the log of a monitor of CPU, memory, disk or load average.\n"
    "What the files do not say stays unknown; what they say is shown as labels.\n"
    "With WORKLOAD ssbench: stat files of ssbench (.stat, .stat.gz); each is a trial, with times.\n\n"
    "Exit codes: 0 ok, 2 usage error, or no run in the files, 3 every run in them failed."
)


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `import-results`."""

    workload: Annotated[str, Option("WORKLOAD", "workload that printed the outputs (see list workloads), or ssbench")]
    file: Annotated[
        tuple[str, ...], Option("FILE", "output or monitor log, plain or gzip; -: standard input", nargs="+")
    ]
    environment: Annotated[str, Option("--environment NAME", "environment of the results", type=name, required=True)]
    engine: Annotated[str, Option("--engine NAME", "engine of the results", type=name, required=True)]
    stats_file: Annotated[
        Path, Option("-s, --stats-file NEW.stats.gz", "stats file to write", type=stats_name, required=True)
    ]
    metric: Annotated[
        str | None,
        Option(
            "--metric NAME",
            "metric that files of one number a line hold; of several, by commas the metric of each column (-: none)",
        ),
    ] = None
    before_each: Annotated[
        str | None,
        Option(
            "--before-each FILE",
            "text to prepend to each run, such as a tool's --help output if only that states the version",
        ),
    ] = None
    label: Annotated[
        tuple[str, ...], Option("--label KEY=VALUE", "label of the treatment, such as threads=4; repeatable")
    ] = ()
    interval_s: Annotated[
        float | None, Option("--interval TIME", "time between two samples of a monitor log", type=some_time)
    ] = None
    quiet: bool


def run(options: Options) -> int:
    """Write the stats file and print a summary; return the exit code."""
    if options.workload == SSBENCH:
        return _import_stat_files(options)
    what = ImportSpec(
        workload=workload(options.workload),
        environment=options.environment,
        engine=options.engine,
        run_id=f"imported-{secrets.token_hex(6)}",
        argv=["bench-master", *sys.argv[1:]],
        labels=dict(_label(text) for text in options.label),
        interval_s=options.interval_s,
    )
    before = "" if options.before_each is None else decode_text(*read_bytes(options.before_each))
    with progress_message(f"reading {plural(len(options.file), 'file')}"):
        empty: dict[str, str] = {}
        for file in options.file:
            _import_file(what, file, options.metric, before, empty)
    if not what.runs and not what.monitors:
        hint = "".join(f"; {file}: {why}" for file, why in empty.items() if why)
        raise UsageError(f"no run of {what.workload.name} in {', '.join(options.file)}; nothing imported{hint}")
    write_import(options.stats_file, what)
    for file, why in empty.items():
        tell(f"{file}: no run of {what.workload.name} in this file" + (f"; {why}" if why else ""))
    for place, one in what.runs:
        if one.error:
            tell(f"{place}: failed run: {one.error}")
    if not options.quiet:
        failed = f", {what.failed} of them failed" if what.failed else ""
        logs = f"; {plural(len(what.monitors), 'monitor log')} imported" if what.monitors else ""
        runs = plural(len(what.runs), "run")
        tell(f"{runs} imported{failed}{logs}")
        tell(f"stats file: {options.stats_file}")
    if what.runs and what.failed == len(what.runs):
        tell(f"{program_name()}: every run failed, so there is no result")
        return int(ExitCode.INFRASTRUCTURE)
    return int(ExitCode.OK)


def _import_stat_files(options: Options) -> int:
    """Import files of ssbench; return the exit code."""
    for flag, value in (
        ("metric", options.metric),
        ("before-each", options.before_each),
        ("interval", None if options.interval_s is None else format_duration(options.interval_s)),
    ):
        if value is not None:
            raise UsageError(f"--{flag} {value}: stat files of ssbench have all of their own values; leave it out")
    runs = [read_run(file) for file in options.file]
    told = write_stat_import(
        options.stats_file,
        runs,
        labels={"environment": options.environment, "engine": options.engine, **dict(map(_label, options.label))},
        run_id=f"imported-{secrets.token_hex(6)}",
        argv=["bench-master", *sys.argv[1:]],
    )
    for line in told:
        tell(line)
    done, failed = sum(run.done for run in runs), sum(len(run.failures) for run in runs)
    if not options.quiet:
        also = f", {failed:,} of them failed" if failed else ""
        tell(f"{plural(len(runs), 'run')} of ssbench imported: {plural(done + failed, 'job')}{also}")
        tell(f"stats file: {options.stats_file}")
    if not done:
        tell(f"{program_name()}: every job failed, so there is no result")
        return int(ExitCode.INFRASTRUCTURE)
    return int(ExitCode.OK)


def _import_file(what: ImportSpec, file: str, metric: str | None, before: str, empty: dict[str, str]) -> None:
    """Read one file; one without runs or samples goes into `empty`, with what may be the reason."""
    place, data = read_bytes(file)
    text = decode_text(place, data)
    try:
        monitor = read_monitor(text)
    except ParseError as error:
        where = f":{error.line}" if error.line else ""
        raise UsageError(f"{place}{where}: {str(error).removeprefix(f'line {error.line}: ')}") from error
    described = {"name": place, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if monitor is not None:
        what.monitors.append(replace(monitor, caveats=tuple(f"{place}: {doubt}" for doubt in monitor.caveats)))
        readings = len(next(iter(monitor.columns.values()), ()))
        if not readings:
            tell(f"{place}: too few samples to report")
        what.files.append(described | {"runs": 0, "readings": readings})
        return
    try:
        runs = split_runs(what.workload, text, metric, before)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    own, others = [one for one in runs if not one.other], [one for one in runs if one.other]
    what.runs += [(place, one) for one in own]
    what.files.append(described | {"runs": len(own), "readings": 0})
    if others:
        outputs = plural(len(others), "output")
        tell(f"{place}: {outputs} skipped, not a run of {what.workload.name}: {others[0].error}")
    if not runs:
        empty[file] = common_beginning(text)


def _label(text: str) -> tuple[str, Scalar]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value:
        raise UsageError(f"--label {text}: expected KEY=VALUE, such as threads=4")
    if key in _RESERVED_LABELS:
        raise UsageError(f"--label {text}: give it with --{key}")
    return key, int(value) if value.isascii() and value.isdigit() else value
