"""`bench-master alternate`: two builds in drawn pairs of runs, and one comparison of which the pair is the unit."""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final, Literal, cast

from msgspec import Struct
from msgspec.structs import asdict

from bench_common.argument_types import duration, int_range
from bench_common.cli import WordsAfterDashes
from bench_common.errors import UsageError
from bench_common.files import lock_within
from bench_common.options import Option, add_options
from bench_common.streams import program_name, tell
from bench_common.units import format_duration
from bench_features.alternate.series import ORDERS, Series, Side, files_of, load, run_file, save, set_aside
from bench_master.analysis.gates import unpassed_gates
from bench_master.analysis.run_summary import read_paths
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.commands.compare import ComparisonOptions, judge_runs, write
from bench_master.commands.run_signals import interruptible
from bench_master.formatting import format_span, plural
from bench_master.options.verdict import GATES_EPILOG
from bench_master.run_process import run_master, run_process, tail
from bench_master.verdicts.stopping import FEWEST_ROUNDS, MOST_ROUNDS, is_settled

if TYPE_CHECKING:
    from bench_common.cli import CommandParser

DEFAULT_PAIRS: Final = 10
DEFAULT_MOST_PAIRS: Final = 20
RUNNERS: Final = ("run-scenario", "weigh")
_UNFIT: Final = ("-s", "--stats-file", "--resume", "--dry-run", "--noop")
"""Options with which a run is none of a series."""
EXAMPLE: Final = (
    "bench-master alternate DIR --old 'git checkout -q v1 && make' --new 'git checkout -q v2 && make' -- "
    "weigh native -- ./program"
)

EPILOG: Final = f"""\
A run is one measurement: memory layout, placement and neighbours are the same in all of its rounds, and others in the
next run. So a pair has one run of each build, the first of each pair is drawn, and the verdict counts pairs.

  {EXAMPLE}
  bench-master alternate DIR               # goes on where it was interrupted or killed, and prints the comparison
  bench-master alternate DIR --old 'docker tag app:1 app' --new 'docker tag app:2 app' --until verdict --budget 8h \\
      --fail-on "slower by 5%" -- run-scenario -f app.yaml --workers 1

Before each run sh -c runs the command of its build (WEIGHBRIDGE_BUILD is old or new); that is not measured. What
stands behind -- is the same for both builds. DIR gets a stats file and a log of each run. Ctrl-C ends the run that is
being made; its pair is made again.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a gate failed, 2 usage error, or a build could not be put in place, 3 a run is incomplete,
4 a gate could not be judged, 130 interrupted.
"""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `alternate`."""

    folder: Annotated[Path, Option("DIR", "where the runs are kept, a new folder")]
    old: Annotated[str | None, Option("--old COMMAND", "put the old build in place, before each of its runs")] = None
    new: Annotated[str | None, Option("--new COMMAND", "put the new build in place, before each of its runs")] = None
    pairs: Annotated[
        int | None,
        Option(
            "--pairs N",
            f"pairs of runs, {FEWEST_ROUNDS} at least (default: {DEFAULT_PAIRS}); with --until verdict the most of "
            f"them (default: {DEFAULT_MOST_PAIRS})",
            type=int_range(FEWEST_ROUNDS, MOST_ROUNDS),
        ),
    ] = None
    until: Annotated[
        Literal["verdict"] | None, Option("--until", "instead of a number: go on until every comparison is settled")
    ] = None
    budget_s: Annotated[
        float | None,
        Option("--budget TIME", "with --until verdict: no pair begins after so much time, such as 8h", type=duration),
    ] = None
    seed: Annotated[
        int | None,
        Option(
            "--seed N",
            "draws which run of each pair is first (default: random; the folder keeps it)",
            type=int_range(0, (1 << 63) - 1),
        ),
    ] = None
    setup_timeout_s: Annotated[
        float, Option("--setup-timeout TIME", "how long --old and --new may take (default: 1h)", type=duration)
    ] = 3600.0
    comparison: ComparisonOptions
    words: tuple[str, ...]
    """The sub-command that makes a run, with its options; empty to go on."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.usage = "%(prog)s [-h] DIR [--old COMMAND --new COMMAND] [OPTIONS] [-- SUB-COMMAND [ARGUMENT ...]]"
    cast("CommandParser", parser).words_after_dashes = WordsAfterDashes(
        "words", lambda _: f"the run is missing: write it after '--', such as: {EXAMPLE}", lambda *_: True
    )
    add_options(parser, Options)
    parser.set_defaults(words=())


def run(options: Options) -> int:
    """Make the runs that are missing, and write the comparison; return the exit code."""
    series = _series(options)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{options.folder}: {error.strerror}; name another folder") from error
    consequence = (
        f"the run that is being made ends; to go on: bench-master alternate {shlex.quote(str(options.folder))}"
    )
    with _locked(options.folder) as held, interruptible(consequence):
        series = (load(options.folder) or series).whole()
        for path in set_aside(series, options.folder):
            _say(options, f"of a pair that was cut, so it is made again: {path}")
        save(series, options.folder)
        while not series.is_over and not _is_settled(series, options):
            pair, side = series.next_run()
            most = "at most " if series.until_verdict else ""
            _say(options, f"pair {pair} of {most}{series.pairs}: {side} build")
            took_s = make_run(series, options.folder, setup_timeout_s=options.setup_timeout_s, held=held)
            series = series.with_run(took_s)
            save(series, options.folder)
            _say(options, f"pair {pair} of {most}{series.pairs}: {side} build took {format_span(took_s)}")
    verdicts = judged(series, options.folder, options)
    write(verdicts, options.comparison)
    stopping = verdicts.design.stopping
    if stopping is not None and options.comparison.format == "text" and not options.comparison.quiet:
        made = plural(stopping.look, "pair")
        sys.stdout.write(f"Stopped after {made} of at most {stopping.last}; the intervals hold at every look.\n")
    for line in unpassed_gates(verdicts.gates):
        tell(f"{program_name()}: {line}")
    return int(verdicts.exit_code)


def _say(options: Options, text: str) -> None:
    if not options.comparison.quiet:
        tell(text)


# -- what is asked for ----------------------------------------------------------------------------------------------


def _series(options: Options) -> Series:
    """Return the series of the folder, or the new one that the options describe."""
    known = load(options.folder)
    budget = None if options.budget_s is None else format_duration(options.budget_s)
    given: Mapping[str, object] = {
        "--old": options.old, "--new": options.new, "--pairs": options.pairs, "--until": options.until,
        "--budget": budget, "--seed": options.seed, "--margin": options.comparison.margin,
        "--": options.words or None,
    }  # fmt: skip
    if known is not None:
        extra = [flag for flag, value in given.items() if value is not None]
        if extra:
            raise UsageError(
                f"{options.folder}: has a series of runs, which {', '.join(extra)} cannot change; to go on with it: "
                f"bench-master alternate {shlex.quote(str(options.folder))}; or name another folder"
            )
        return known
    missing = [flag for flag in ("--old", "--new", "--") if given[flag] is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} is missing, and {options.folder} has no series; such as: {EXAMPLE}")
    if options.folder.is_dir() and any(options.folder.iterdir()):
        raise UsageError(f"{options.folder}: has files that are not of a series; name a new folder")
    _check_words(options.words)
    if options.until is None and budget is not None:
        raise UsageError(f"--budget {budget}: the number of pairs is fixed; add --until verdict")
    return Series(
        command=options.words,
        old=cast("str", options.old),
        new=cast("str", options.new),
        seed=secrets.randbelow(1 << 31) if options.seed is None else options.seed,
        pairs=options.pairs or (DEFAULT_MOST_PAIRS if options.until else DEFAULT_PAIRS),
        until_verdict=options.until is not None,
        budget_s=options.budget_s,
        margin=options.comparison.margin,
    )


def _check_words(words: Sequence[str]) -> None:
    """Raise `UsageError` for words after ``--`` that make no run, or one that cannot be of a series."""
    if words[0] not in RUNNERS:
        raise UsageError(f"{words[0]!r} makes no run: behind '--' stands {' or '.join(RUNNERS)}, with its options")
    for word in words[: words.index("--")] if "--" in words else words:
        if word.partition("=")[0] in _UNFIT:
            raise UsageError(f"{word}: each run of a series is a new one, in a file of its folder; leave it out")


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Keep others from the series; yield the descriptor that holds it, also in processes that inherit it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not lock_within(descriptor, 0.0):
            raise UsageError(f"{folder}: a run of this series is still being made; wait for its end, or end it")
        yield descriptor
    finally:
        os.close(descriptor)


# -- one run --------------------------------------------------------------------------------------------------------


def make_run(series: Series, folder: Path, *, setup_timeout_s: float, held: int) -> float:
    """Make the next run of a series; return how long it took, in seconds.

    Raises `UsageError` if the build cannot be put in place, and what `run_master` does. `held` is a descriptor that
    the processes keep open as long as they live.
    """
    pair, side = series.next_run()
    file = run_file(folder, pair, side)
    log = file.with_name(file.name.replace(".stats.gz", ".log"))
    began_s = time.monotonic()
    with log.open("wb") as out:
        _set_up(series, side, out, log, setup_timeout_s, held)
        # Files say in whole seconds when a run began, and the order is read from them.
        time.sleep(1.0 - time.time() % 1.0)
        words = [series.command[0], "--stats-file", str(file), *series.command[1:]]
        run_master(words, out, f"{file.name}: the run", pass_fds=(held,), more=f"\nall of it: {log}")
    return time.monotonic() - began_s


def _set_up(series: Series, side: Side, out: IO[bytes], log: Path, timeout_s: float, held: int) -> None:
    command = series.old if side == "old" else series.new
    environ = {**os.environ, "WEIGHBRIDGE_BUILD": side}
    try:
        status = run_process(["sh", "-c", command], out, timeout_s=timeout_s, environ=environ, pass_fds=(held,))
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--{side} {command!r}: took more than {timeout_s:g} s; raise --setup-timeout. Its output: {log}"
        ) from None
    if status:
        raise UsageError(f"--{side} {command!r}: ended with exit code {status}:\n{tail(log)}\nall of it: {log}")


# -- the comparison -------------------------------------------------------------------------------------------------


def judged(series: Series, folder: Path, options: Options) -> VerdictsReport:
    """Return the comparison of the complete pairs; where the series goes on until settled, as a look judges it."""
    given = options.comparison
    verdict_options = VerdictOptions(margin=series.margin, accept=given.accept, **asdict(given.gates))
    if not series.complete_pairs:
        raise UsageError(f"{folder}: no pair is complete, so there is nothing to compare")
    (new, _), (old, _) = (read_paths(files_of(series, folder, side), "worst") for side in ORDERS[0])
    return judge_runs(old, new, verdict_options, last_look=series.pairs if series.until_verdict else None)


def _is_settled(series: Series, options: Options) -> bool:
    """Whether more pairs can add nothing."""
    pairs = series.complete_pairs
    if not series.until_verdict or len(series.runs) % 2 or pairs < FEWEST_ROUNDS:
        return False
    found = judged(series, options.folder, options).comparisons
    return bool(found) and all(is_settled(one.verdict, pairs) for one in found)
