"""`bench-master import-results`: results that were measured elsewhere, as a stats file that every report reads."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bench_common.cli import file_name, name
from bench_common.errors import ExitCode, ParseError, UsageError
from bench_common.units import parse_duration
from bench_master.formatting import plural
from bench_master.imported import ImportSpec, decode_text, read_bytes, read_monitor, split_runs, write_import
from workloads.registry import workload

if TYPE_CHECKING:
    from bench_common.treatment import Scalar

NAME = "import-results"
HELP = "make a stats file of outputs that were taken elsewhere, to report on and compare like any run"

_RESERVED_LABELS = frozenset({"environment", "engine"})


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = (
        "A file may hold one run or many, with other lines between; or one number a line (--metric says of what);\n"
        "or what a monitor of CPU, memory or disk logged. What is not in the files stays unknown."
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="whose outputs they are (see list-workloads)")
    parser.add_argument("file", metavar="FILE", nargs="+", help="outputs or monitor logs, plain or gzip; - is stdin")
    parser.add_argument(
        "--environment", type=name, required=True, metavar="NAME", help="the environment that it was measured in"
    )
    parser.add_argument("--engine", type=name, required=True, metavar="NAME", help="the engine that it ran under")
    parser.add_argument(
        "-s", "--stats-file", type=file_name, required=True, metavar="FILE", help="the stats file to make"
    )
    parser.add_argument("--metric", metavar="NAME", help="what the numbers are in files of one number a line")
    parser.add_argument(
        "--before-each",
        metavar="FILE",
        help="a text to read in front of each run, such as the help of a tool that alone says its version",
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what else is known of the treatment, as a run would label it, such as threads=4",
    )
    parser.add_argument("--interval", metavar="TIME", help="how far apart the readings of monitor logs are")


def run(arguments: argparse.Namespace) -> int:
    """Write the stats file and say what was found; return the exit code."""
    what = ImportSpec(
        workload=workload(arguments.workload),
        environment=arguments.environment,
        engine=arguments.engine,
        run_id=f"imported-{secrets.token_hex(6)}",
        argv=["bench-master", *sys.argv[1:]],
        labels=dict(_label(text) for text in arguments.label),
        interval_s=_interval(arguments.interval),
    )
    before = "" if arguments.before_each is None else decode_text(*read_bytes(arguments.before_each))
    empty = [file for file in arguments.file if not _import_file(what, file, arguments.metric, before)]
    if not what.runs and not what.monitors:
        raise UsageError(f"no run of {what.workload.name} begins in {', '.join(arguments.file)}; nothing is imported")
    write_import(arguments.stats_file, what)
    for file in empty:
        sys.stderr.write(f"{file}: no run of {what.workload.name} begins in it\n")
    for place, one in what.runs:
        if one.error:
            sys.stderr.write(f"{place}: failed run: {one.error}\n")
    if not arguments.quiet:
        failed = f", {what.failed} of them failed" if what.failed else ""
        logs = f"; {plural(len(what.monitors), 'log')} of monitors, too" if what.monitors else ""
        runs = plural(len(what.runs), "run")
        sys.stderr.write(f"{runs} imported{failed}{logs}\nstats file: {arguments.stats_file}\n")
    return int(ExitCode.OK)


def _import_file(what: ImportSpec, file: str, metric: str | None, before: str) -> bool:
    """Read one file, whatever it holds; return whether it holds anything."""
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
            sys.stderr.write(f"{place}: too few readings in it to say anything\n")
        what.files.append(described | {"runs": 0, "readings": readings})
        return True
    try:
        runs = split_runs(what.workload, text, metric, before)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    own, others = [one for one in runs if not one.other], [one for one in runs if one.other]
    what.runs += [(place, one) for one in own]
    what.files.append(described | {"runs": len(own), "readings": 0})
    if others:
        outputs = plural(len(others), "output")
        sys.stderr.write(f"{place}: {outputs} passed over, as no run of {what.workload.name}: {others[0].error}\n")
    return bool(runs)


def _label(text: str) -> tuple[str, Scalar]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value:
        raise UsageError(f"--label {text}: expected KEY=VALUE, such as threads=4")
    if key in _RESERVED_LABELS:
        raise UsageError(f"--label {text}: give it with --{key}")
    return key, int(value) if value.isascii() and value.isdigit() else value


def _interval(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        interval = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--interval {text}: {error}") from error
    if interval <= 0:
        raise UsageError(f"--interval {text}: expected more than 0 seconds")
    return interval
