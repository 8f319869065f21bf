"""`bench-master compare`: what may be said of several runs, or since when a series of runs has changed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import file_name
from bench_common.errors import ExitCode, UsageError
from bench_common.streams import tell
from bench_master.analysis.compare_runs import choose_runs, compare_runs
from bench_master.analysis.gates import check_gates, requested_gates, unpassed_gates, with_gates
from bench_master.analysis.report_schema import verdicts_schema
from bench_master.analysis.run_summary import read_paths
from bench_master.analysis.verdict_types import VerdictOptions, VerdictsReport
from bench_master.formatting import DEFAULT_WIDTH, page_of
from bench_master.options.report import add_schema_option
from bench_master.options.verdict import FAILURES, GATES_EPILOG, add_gate_options, baseline_labels, margin
from bench_master.progress_message import note, progress_message
from bench_master.reports.comparison import answer_lines, comparison_formats, write_comparison, write_text
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions

EPILOG = f"""\
The last one is the new run, those before it are the earlier ones; a folder stands for all stats files in it.

  bench-master compare A.stats.gz B.stats.gz        # ratios and what would explain them: two runs carry no word
  bench-master compare results/ B.stats.gz          # B against at least five earlier runs
  bench-master compare results/ --new B1 B2 B3      # the mean of three new runs: finds smaller differences
  bench-master compare A1 A2 ... A6 --new B1 ... B6 # two builds; runs in turns (A1 B1 A2 B2 ...) count as pairs
  bench-master compare results/                     # since when? steps in the history of the runs

Runs of another host, scenario or version are left out and named; --accept PROPERTY keeps them.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a gate failed or jobs of a new run did and nothing allows it, 2 usage error or no stats file, 3 a
new run is incomplete, a treatment of it has no result, or its file is damaged, 4 a gate could not be judged. 1 takes
precedence over 3, and 3 over 4.
"""

PROGRESS_INTERVAL_S: Final = 2.0
"""How often a long reading says how far it is."""


class Options(Struct, frozen=True):
    """The command line of `compare`."""

    runs: tuple[Path, ...]
    """The earlier runs, and the new one unless `new` has it."""
    new: tuple[Path, ...]
    """The new runs; empty: the last of `runs`."""
    anchor: Mapping[str, str]
    """Labels of a treatment that is the same in all runs."""
    margin: float | None
    accept: tuple[str, ...]
    """Properties whose difference refuses no word."""
    failures: Literal["worst", "at-random"]
    """What failed jobs count as."""
    format: str
    fail_on: tuple[str, ...]
    """Conditions on verdicts that fail where they are shown."""
    require: tuple[str, ...]
    """Conditions on verdicts that must be shown."""
    require_verdict: bool
    """Whether each comparison must have a verdict."""
    quiet: bool
    """Print the verdicts only, one line each."""
    verbose: bool
    """Name every run and property."""
    schema: bool = False
    """Print the JSON Schema of the JSON output; the parser does so, and ends the program."""
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How to show it on a terminal."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("runs", nargs="+", type=file_name, metavar="RUN", help="stats file, or a folder of them")
    parser.add_argument(
        "--new", nargs="+", action="extend", type=file_name, default=[], metavar="RUN", help="the new runs"
    )
    parser.add_argument(
        "--margin", type=margin, metavar="M", help="differences below this count as same, such as 3%% (the default)"
    )
    parser.add_argument(
        "--anchor",
        type=baseline_labels,
        default={},
        metavar="LABEL=VALUE[,LABEL=VALUE]",
        help="a treatment that is the same in all runs, such as engine=native: others are compared relative to it "
        "where the earlier runs show that this varies less",
    )
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="PROPERTY",
        help="compare although this property differs, such as kernel; repeatable",
    )
    parser.add_argument(
        "--failures",
        choices=FAILURES,
        default="worst",
        help="count failed jobs as the worst both ways, or leave them out (default: worst)",
    )
    add_gate_options(parser.add_argument_group("gates"))
    parser.add_argument(
        "--format", choices=comparison_formats(), default="text", help="format of the output (default: text)"
    )
    add_schema_option(parser, verdicts_schema, "what --format json prints")


def run(options: Options, names: Mapping[str, str] = MappingProxyType({})) -> int:
    """Write the comparison; return the exit code. `names` has how files are called that have no telling name."""
    earlier, new = _sides(options)
    verdicts_options = VerdictOptions(
        margin=options.margin,
        accept=frozenset(options.accept),
        failures=options.failures,
        fail_on=options.fail_on,
        require=options.require,
        require_verdict=options.require_verdict,
    )
    progress = _progress(quiet=options.quiet)
    with progress_message("reading the runs"):
        fresh, unreadable = read_paths(new, options.failures, progress)
        past, more = read_paths(earlier, options.failures, progress)
    fresh, past = ([replace(one, file=names.get(one.file, one.file)) for one in runs] for runs in (fresh, past))
    sides = choose_runs(past, fresh, [*unreadable, *more], verdicts_options)
    gates = requested_gates(verdicts_options, ())
    check_gates(gates, [one.labels for run_ in (*past, *fresh) for one in run_.treatments.values()])
    with progress_message("comparing the runs"):
        verdicts = with_gates(compare_runs(sides, anchor=options.anchor), gates)
    _write(verdicts, options)
    for line in unpassed_gates(verdicts.gates):
        tell(f"bench-master: {line}")
    for run_ in fresh:
        if run_.exit_code != ExitCode.OK:
            problem = "the run is incomplete" if run_.problem is None else run_.problem.sentence()
            tell(f"bench-master: {run_.file}: {run_.shortfall or problem}")
    return int(ExitCode.gravest([*(run_.exit_code for run_ in fresh), verdicts.exit_code]))


def _sides(options: Options) -> tuple[Sequence[Path], Sequence[Path]]:
    runs, new = options.runs, options.new
    if new:
        return runs, new
    if len(runs) > 1:
        return runs[:-1], runs[-1:]
    if not runs[0].is_dir():
        raise UsageError(f"{runs[0]}: one run has nothing to be compared with; name another run, or a folder of runs")
    return runs, ()


def _progress(*, quiet: bool) -> Callable[[int, int], None]:
    last_s = monotonic()

    def show(read: int, of: int) -> None:
        nonlocal last_s
        now_s = monotonic()
        if not quiet and read < of and now_s - last_s >= PROGRESS_INTERVAL_S:
            last_s = now_s
            note(f"read {read:,} of {of:,} runs")

    return show


def _write(verdicts: VerdictsReport, options: Options) -> None:
    if options.format != "text":
        with page_of(DEFAULT_WIDTH):
            write_comparison(options.format, verdicts, sys.stdout)
        return
    with text_output(options.terminal, paged=True) as out:
        if options.quiet:
            out.write("".join(f"{line}\n" for line in answer_lines(verdicts)))
        else:
            write_text(verdicts, out, verbose=options.verbose)
