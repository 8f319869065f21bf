"""`bench-master compare`: what may be said of several runs, or since when a series of runs has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Annotated, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from bench_common.errors import ExitCode, UsageError
from bench_common.options import Heading, Option
from bench_common.streams import program_name, tell
from bench_master.analysis.compare_runs import choose_runs, compare_runs
from bench_master.analysis.gates import check_accepted, check_gates, requested_gates, unpassed_gates, with_gates
from bench_master.analysis.report_schema import verdicts_schema
from bench_master.analysis.run_summary import read_paths
from bench_master.analysis.verdict_options import GateOptions, VerdictOptions, baseline_labels, margin
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import DEFAULT_WIDTH, page_of
from bench_master.options.report import schema_option
from bench_master.options.verdict import GATES_EPILOG
from bench_master.progress_message import note, progress_message
from bench_master.reports.comparison import answer_lines, comparison_formats, write_comparison, write_text
from bench_master.run_data.summary import RunSummary
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions
from bench_master.verdicts.reasons import MAX_NAMED

EPILOG = f"""\
The last one is the new run, those before it are the earlier ones; a folder stands for all stats files in it.

  bench-master compare A.stats.gz B.stats.gz        # ratios, and what would explain them; two runs give no verdict
  bench-master compare results/ B.stats.gz          # B against at least five earlier runs
  bench-master compare results/ --new B1 B2 B3      # the mean of three new runs: finds smaller differences
  bench-master compare A1 A2 ... A6 --new B1 ... B6 # two builds; runs in turns (A1 B1 A2 B2 ...) count as pairs
  bench-master compare results/                     # since when? steps in the history of the runs

Runs of another host, scenario or version are left out and named; --accept PROPERTY keeps them.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a gate failed, or jobs of a new run failed and the run did not allow that, 2 usage error or no
stats file, 3 a new run is incomplete, a treatment of it has no result, or its file is damaged, 4 a gate could not be
judged. 1 takes precedence over 3, and 3 over 4.
"""

PROGRESS_INTERVAL_S: Final = 2.0
"""How often a long reading says how far it is."""


class ComparisonOptions(Struct, frozen=True, kw_only=True):
    """What every command has that compares runs with each other."""

    margin: Annotated[
        float | None,
        Option("--margin M", "differences below this count as same, such as 3%% (the default)", type=margin),
    ] = None
    accept: Annotated[
        tuple[str, ...],
        Option("--accept PROPERTY", "compare although this property differs, such as kernel; repeatable"),
    ] = ()
    gates: Annotated[GateOptions, Heading("gates")]
    format: Annotated[
        str, Option("--format", "format of the output (default: text)", choices=comparison_formats())
    ] = "text"
    quiet: bool
    """Print the verdicts only, one line each."""
    verbose: bool
    """Name every run and property."""
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How to show it on a terminal."""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `compare`."""

    runs: Annotated[tuple[Path, ...], Option("RUN", "stats file, or a folder of them", nargs="+")]
    new: Annotated[tuple[Path, ...], Option("--new RUN", "the new runs", nargs="+")] = ()
    anchor: Annotated[
        Mapping[str, str],
        Option(
            "--anchor LABEL=VALUE[,LABEL=VALUE]",
            "a treatment that is the same in all runs, such as engine=native: the others are compared by their "
            "ratio to it where that varies less among the earlier runs",
            type=baseline_labels,
        ),
    ] = {}
    failures: Annotated[
        Literal["worst", "at-random"],
        Option(
            "--failures",
            "worst: intervals hold whatever time failed jobs would have taken; at-random: failed jobs are left out "
            "(default: worst)",
        ),
    ] = "worst"
    comparison: ComparisonOptions
    schema: Annotated[bool, schema_option(verdicts_schema, "what --format json prints")] = False


def run(options: Options, names: Mapping[str, str] = MappingProxyType({})) -> int:
    """Write the comparison; return the exit code. `names` has how files are called that have no telling name."""
    earlier, new = _sides(options)
    verdicts_options = VerdictOptions(
        margin=options.comparison.margin,
        accept=options.comparison.accept,
        failures=options.failures,
        **asdict(options.comparison.gates),
    )
    progress = _progress(quiet=options.comparison.quiet)
    with progress_message("reading the runs"):
        fresh, unreadable = read_paths(new, options.failures, progress)
        past, more = read_paths(earlier, options.failures, progress)
    fresh, past = ([replace(one, file=names.get(one.file, one.file)) for one in runs] for runs in (fresh, past))
    with progress_message("comparing the runs"):
        verdicts = judge_runs(past, fresh, verdicts_options, [*unreadable, *more], anchor=options.anchor)
    archive = verdicts.archive
    if archive is not None and not (archive.runs or archive.new or verdicts.gates):
        why = "; ".join(f"{one.file}: {one.why}" for one in archive.left_out[:MAX_NAMED])
        raise UsageError(f"no run of the history can be compared: {why}")
    write(verdicts, options.comparison)
    for line in unpassed_gates(verdicts.gates):
        tell(f"{program_name()}: {line}")
    for run_ in fresh:
        if run_.exit_code != ExitCode.OK:
            problem = "the run is incomplete" if run_.problem is None else run_.problem.sentence()
            tell(f"{program_name()}: {run_.file}: {run_.shortfall or problem}")
    return int(ExitCode.gravest([*(run_.exit_code for run_ in fresh), verdicts.exit_code]))


def judge_runs(
    past: Sequence[RunSummary],
    fresh: Sequence[RunSummary],
    options: VerdictOptions,
    unreadable: Sequence[tuple[str, str]] = (),
    *,
    anchor: Mapping[str, str] = MappingProxyType({}),
    last_look: int | None = None,
) -> VerdictsReport:
    """Return the verdicts on new runs against earlier ones, with the gates (see `compare_runs`)."""
    sides = choose_runs(past, fresh, unreadable, options)
    gates = requested_gates(options, ())
    runs = (*past, *fresh)
    treatments = [one.definition for run_ in runs for one in run_.treatments.values()]
    check_accepted(options.accept, treatments, [host for run_ in runs for host in run_.hosts.values()])
    check_gates(gates, [one.labels for one in treatments])
    return with_gates(compare_runs(sides, anchor=anchor, last_look=last_look), gates)


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


def write(verdicts: VerdictsReport, options: ComparisonOptions) -> None:
    """Write verdicts between runs in the format that was asked for."""
    if options.format != "text":
        with page_of(DEFAULT_WIDTH):
            write_comparison(options.format, verdicts, sys.stdout)
        return
    with text_output(options.terminal, paged=True) as out:
        if options.quiet:
            out.write("".join(f"{line}\n" for line in answer_lines(verdicts)))
        else:
            write_text(verdicts, out, verbose=options.verbose)
