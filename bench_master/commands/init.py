"""`bench-master init`: write a commented scenario, by three questions or three options.

On a terminal each question whose option is not given is asked; elsewhere its default is taken. The text is read as a
scenario before it is written, so what is written runs.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from msgspec import Struct

from bench_common.engine_traits import baseline_engine, default_engine, engine_names, engine_traits
from bench_common.errors import ExitCode, InfrastructureError, UsageError, did_you_mean
from bench_common.files import write_new
from bench_common.options import Option
from bench_common.safe_text import one_line
from bench_common.streams import tell
from bench_master.commands.list.workloads import format_default
from bench_master.scenario.load import ADVISED_TRIALS, FEWEST_TRIALS, parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_workloads.registry import workload_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


DEFAULT_FILE: Final = "scenario.yaml"
LIFECYCLE: Final = "lifecycle"
"""What to measure: the operations of a container's life."""
COMMAND: Final = "command"
"""The workload that runs a command of the user's own."""
UNTIL_VERDICT: Final = "verdict"
"""In place of a number of trials: as many as the comparisons need."""
MOST_TRIALS: Final = 10_000
_IMAGE: Final = "weighbridge/base"


EPILOG: Final = (
    "What no option says is asked on a terminal; elsewhere the default is taken.\n\n"
    "  bench-master init first.yaml --job lifecycle\n"
    "  bench-master init cpu.yaml --job sysbench-cpu --repeats 10\n"
    "  bench-master init mine.yaml --job 'mytool 5'\n"
)


class Options(Struct, frozen=True):
    """The command line of `init`."""

    file: Annotated[
        str,
        Option(
            "X.yaml", "file to write, never an existing one; - is standard output (default: %(default)s)", nargs="?"
        ),
    ] = DEFAULT_FILE
    job: Annotated[
        str | None,
        Option(
            "--job WHAT",
            f"what to measure: {LIFECYCLE}, a workload (see list workloads), or a command with arguments, in quotes",
        ),
    ] = None
    engines: Annotated[str | None, Option("--engines A,B", "engines to measure it under (see list engines)")] = None
    repeats: Annotated[
        str | None,
        Option(f"--repeats N|{UNTIL_VERDICT}", "trials of each treatment, or as many as the verdicts need"),
    ] = None


def run(options: Options) -> int:
    """Ask what is missing, write the scenario, say what to do next; return the exit code."""
    if options.file != "-" and Path(options.file).exists():
        raise UsageError(f"{options.file}: already exists, and init overwrites nothing; name another file")
    job = _answer(
        options.job,
        f"What to measure? {LIFECYCLE}, a workload ({', '.join(job_names()[1:])}), or a command with its arguments",
        LIFECYCLE,
        parse_job,
    )
    engines = _answer(
        options.engines,
        f"Under which engines? Of {', '.join(engine_names())}",
        f"{default_engine()},{baseline_engine()}",
        parse_engines,
    )
    repeats = _answer(
        options.repeats,
        f"How many trials of each? A number, or {UNTIL_VERDICT}: as many as the verdicts need",
        str(ADVISED_TRIALS),
        parse_repeats,
    )
    text = scenario_text(options.file, job, engines, repeats)
    parse_scenario(Source(options.file, text))
    if options.file == "-":
        sys.stdout.write(text)
        return int(ExitCode.OK)
    try:
        write_new(Path(options.file), text)
    except OSError as error:
        raise InfrastructureError(f"{options.file}: cannot write the scenario: {error.strerror}") from error
    tell(f"wrote {options.file}; look at its plan, then run it:")
    run = f"  bench-master run-scenario -f {shlex.quote(options.file)}"
    tell(f"{run} --dry-run")
    tell(run)
    return int(ExitCode.OK)


Answer = TypeVar("Answer")


def _answer(given: str | None, question: str, default: str, parse: Callable[[str], Answer]) -> Answer:
    """Return what was given, else what is answered on a terminal, else the default."""
    if given is not None:
        return parse(given)
    while sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(f"{question} [{default}]: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise UsageError("the answers ended; nothing was written")
        try:
            return parse(line.strip() or default)
        except UsageError as error:
            tell(str(error))
    return parse(default)


def job_names() -> list[str]:
    """Return what ``--job`` takes by name: `LIFECYCLE` and the workloads."""
    return [LIFECYCLE, *(name for name in workload_classes() if name != COMMAND)]


def parse_job(text: str) -> str | tuple[str, ...]:
    """Return `LIFECYCLE`, the name of a workload, or the words of a command."""
    known = job_names()
    if text in known:
        return text
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--job {text}: not a command: {str(error).lower()}") from error
    if len(words) > 1 or "/" in text:
        return words
    hint = did_you_mean(text, known) or f"; there is: {', '.join(known)}"
    raise UsageError(
        f"--job {text}: neither {LIFECYCLE} nor a workload{hint}; a command without arguments is written with its "
        "path, such as /bin/true"
    )


def parse_engines(text: str) -> tuple[str, ...]:
    """Return the names of engines in a list with commas between them."""
    names = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if not names:
        raise UsageError(f"--engines {text!r}: expected names of engines, such as {default_engine()}")
    for name in names:
        if name not in engine_names():
            hint = did_you_mean(name, engine_names()) or f"; there is: {', '.join(engine_names())}"
            raise UsageError(f"--engines {text}: unknown engine '{name}'{hint}")
    return names


def parse_repeats(text: str) -> int | None:
    """Return a number of trials; None for as many as the verdicts need."""
    if text == UNTIL_VERDICT:
        return None
    if text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST_TRIALS:
        return int(text)
    hint = did_you_mean(text, [UNTIL_VERDICT])
    raise UsageError(f"--repeats {text}: expected a whole number from 1 to {MOST_TRIALS}, or {UNTIL_VERDICT}{hint}")


def scenario_text(file: str, job: str | tuple[str, ...], engines: Sequence[str], repeats: int | None) -> str:
    """Return a commented scenario; `repeats` None goes on until the verdicts are settled."""
    if repeats is None and len(engines) == 1:
        raise UsageError(f"--repeats {UNTIL_VERDICT}: a verdict compares two engines, and there is one: {engines[0]}")
    reference = "scenario.yaml" if file == "-" else file
    what = Path(job[0]).name or COMMAND if isinstance(job, tuple) else job
    return "\n".join(_lines(one_line(shlex.quote(reference)), what, job, engines, repeats)) + "\n"


def _lines(
    file: str, what: str, job: str | tuple[str, ...], engines: Sequence[str], repeats: int | None
) -> Iterator[str]:
    yield f"# What {what} costs under {', '.join(engines)}. Written by `bench-master init`; change what you like."
    yield "#"
    yield f"#   bench-master validate-scenario -f {file}                 find errors"
    yield f"#   bench-master run-scenario -f {file} --dry-run            show the plan, run nothing"
    yield f"#   bench-master run-scenario -f {file} --set scale=small    a first look, without a verdict"
    yield f"#   bench-master run-scenario -f {file}                      run it on this machine"
    yield "#"
    yield "# Every key is explained in docs/reference/scenario-keys.rst; `list scenarios` has more examples."
    yield ""
    yield f"name: {json.dumps(what, ensure_ascii=False) if isinstance(job, tuple) else what}"
    yield ""
    yield "# Each job below is measured under each of these."
    yield from (f"# {one}: plain processes, no container." for one in engines if engine_traits(one).is_baseline)
    yield f"engines: [{', '.join(engines)}]"
    yield ""
    if repeats is None:
        yield "# Trials of each treatment: as many as it takes until every comparison has its verdict."
        yield "repeats: {until: verdict, at-most: 30}"
    else:
        yield f"# Trials of each treatment. An interval takes {FEWEST_TRIALS} or more; {ADVISED_TRIALS} are advised."
        yield f"repeats: {repeats}"
    yield ""
    yield "# Trials before those, to warm caches. They enter no figure."
    yield "warmup: 1"
    yield ""
    yield "# Jobs in flight at once. To vary a key, list its values:"
    yield "#   matrix: {concurrency: [1, 2, 4]}"
    yield "concurrency: 1"
    yield ""
    yield "job:"
    if isinstance(job, tuple):
        yield from _own_command(job)
    elif job == LIFECYCLE:
        yield from _lifecycle()
    else:
        yield from _guest(job)
    yield ""
    yield "# The same at another scale, for a first look: `--set scale=small`. Each key is a path, as for `--set`."
    yield "profiles:"
    yield "  small:"
    yield "    repeats: 1"
    yield "    warmup: 0"
    yield from _small(job)
    yield ""
    yield "# Conditions for exit code 0; such as `operations.job.p95_s < 500ms where engine=NAME`."
    yield "thresholds:"
    yield "  - jobs.failed == 0"


def _lifecycle() -> Iterator[str]:
    yield "  # Operations on one container, in order, each timed by itself."
    yield "  operations:"
    yield "    - create"
    yield "    - start"
    yield "    - exec: [/bin/true]   # a command is a list of words; no shell is involved"
    # Engines without an init refuse the one that `stop` needs to end this command at once.
    yield "    - kill                # SIGKILL; `stop: 5s` sends SIGTERM first, for a command that handles it"
    yield "    - remove"
    yield "  iterations: 5           # jobs in each trial, one after the other"
    yield "  container:"
    yield f"    image: {_IMAGE}     # `bench-master build-images base` makes it"
    yield '    command: [sleep, "600"]'
    yield "    network: none         # or bridge: what does a network cost?"


def _small(job: str | tuple[str, ...]) -> Iterator[str]:
    """Yield what makes a trial short."""
    if job == LIFECYCLE:
        yield "    job.iterations: 1"
    elif isinstance(job, str) and any(one.name == "time" for one in workload_classes()[job].parameters):
        yield "    job.params.time: 1s"


def _own_command(words: Sequence[str]) -> Iterator[str]:
    yield f"  workload: {COMMAND}"
    yield f"  command: {json.dumps(list(words), ensure_ascii=False)}"
    yield "  # setup: [...]         runs once, before the first job"
    yield "  # prepare: [...]       runs before each job, untimed"
    yield "  # cleanup: [...]       runs after each job"
    yield "  # What it prints can be a metric, and the one that verdicts are about:"
    yield "  # metrics:"
    yield "  #   score: {regex: 'score: ([\\d.]+)', unit: 1/s, better: higher}"
    yield "  #   p95: {json: '$.latency.p95', unit: ms, better: lower}"
    yield "  # primary: score"
    yield "  container:"
    yield f"    image: {_IMAGE}     # an image that has the command"
    yield "    network: none"


def _guest(name: str) -> Iterator[str]:
    kind = workload_classes()[name]
    yield f"  # {kind.summary}"
    yield f"  workload: {name}        # its image: `bench-master build-images {kind.image.rpartition('/')[2]}`"
    yield "  # All parameters with their defaults; remove the # of those that you change, and of `params`."
    yield f"  # Types and limits: bench-master list workloads {name}"
    yield "  # params:"
    for parameter in kind.parameters:
        yield f"  #   {parameter.name}: {format_default(parameter)}   # {parameter.help}"
    if not kind.services:
        yield "  container:"
        yield "    network: none"
