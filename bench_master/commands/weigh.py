"""`bench-master weigh`: measure one command under some engines, without a scenario file.

The command line becomes the text of a scenario, which `run-scenario`'s own functions check, plan, run and report.
`--save-scenario` writes that text to a file.
"""

from __future__ import annotations

import argparse
import shlex
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import yaml
from msgspec import Struct

from bench_common.argument_types import MAX_SLOTS, file_name, int_range
from bench_common.cli import CommandParser, WordsAfterDashes, check_choice
from bench_common.engine_traits import baseline_engine, default_engine, engine_names
from bench_common.errors import UsageError
from bench_common.files import write_new
from bench_common.safe_text import one_line
from bench_common.streams import tell
from bench_common.treatment import OWN_COMMAND
from bench_common.units import format_duration, format_share
from bench_master.commands.run_scenario import run_loaded
from bench_master.options.load import apply_load_options
from bench_master.options.run import RunOptions, add_shared_run_options
from bench_master.options.verdict import GATES_EPILOG, apply_verdict_options
from bench_master.scenario.format import TRIAL_SIZE_KEYS
from bench_master.scenario.keys_run import MAX_REPEATS
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_master.verdicts.stopping import FEWEST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_master.scenario.model import Scenario, UntilVerdict


DEFAULT_IMAGE: Final = "weighbridge/base"
ADVISED_REPEATS: Final = 10
COMMAND_TIMEOUT: Final = "10m"
"""The time limit of one operation: commands of users take longer than the operations of an engine."""
SOURCE: Final = "<weigh>"
"""What messages call the scenario."""
_WIDTH: Final = 110
_NAME_CHARS: Final = 60

Job = Literal["lifecycle", "command"]

EPILOG: Final = f"""\
Examples:
  bench-master weigh docker runc crun native -- sleep 1
  bench-master weigh docker native --job command --repeats 20 -- sh -c 'seq 100000 | sort -r | sha256sum'
  bench-master weigh docker podman --until verdict --save-scenario sleep.yaml -- sleep 1

Jobs: lifecycle creates a container with the command, starts it, waits for its end and removes it; each is timed, and
all together. command starts an idle container first and measures the command in it, without the container.
The containers have no network: --set container.network=host changes that. A command may take {COMMAND_TIMEOUT};
--set timeout=1h changes that. No shell reads the command: for a pipe, write sh -c 'a | b'.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a threshold or gate failed, or a job did, 2 usage error, 3 run incomplete, a treatment has no
result, or an engine or image is missing, 4 a gate could not be judged, 130 interrupted. 130 takes precedence over 1,
1 over 3, 3 over 4.
"""


class Options(Struct, frozen=True):
    """The command line of `weigh`."""

    engines: tuple[str, ...]
    """The engines to compare."""
    words: tuple[str, ...]
    """The command to measure."""
    image: str
    """The image of the containers."""
    job: Job
    """What is measured: a container's life with the command in it, or the command alone."""
    concurrency: int
    """Jobs in flight at the same time."""
    repeats: int | None
    """Trials of each engine; None: `ADVISED_REPEATS`, or as many as `--until` takes."""
    save_scenario: Path | None
    """Where to write the scenario; None: nowhere."""
    run: RunOptions
    """How it is run and reported, as `run-scenario` has it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = "%(prog)s [-h] ENGINE [ENGINE ...] [OPTIONS] -- COMMAND [ARGUMENT ...]"
    parser.epilog = EPILOG
    cast("CommandParser", parser).words_after_dashes = WordsAfterDashes("words", explain_missing_command)
    parser.add_argument("engines", nargs="+", metavar="ENGINE", help="an engine, as list-engines shows them")
    parser.add_argument(
        "--image",
        default=DEFAULT_IMAGE,
        metavar="IMAGE",
        help="image of the containers, in which the command is (default: %(default)s); plain processes have none",
    )
    parser.add_argument(
        "--job",
        choices=("lifecycle", "command"),
        default="lifecycle",
        help="measure a container's life from create to remove, or the command alone (default: lifecycle)",
    )
    parser.add_argument(
        "--concurrency",
        type=int_range(1, MAX_SLOTS),
        default=1,
        metavar="N",
        help="jobs in flight at the same time (default: 1)",
    )
    parser.add_argument(
        "--repeats",
        type=int_range(1, MAX_REPEATS),
        metavar="N",
        help=f"trials of each engine, after one to warm up (default: {ADVISED_REPEATS})",
    )
    parser.add_argument(
        "--save-scenario",
        type=file_name,
        metavar="NEW.yaml",
        help="write the scenario that this is to a new file, for run-scenario -f NEW.yaml",
    )
    add_shared_run_options(parser)
    parser.set_defaults(words=())


def run(options: Options) -> int:
    """Run the scenario that the command line describes; return the exit code."""
    check_options(options)
    scenario = parse_scenario(Source(SOURCE, scenario_text(scenario_document(options))), options.run.set)
    if options.save_scenario is not None:
        document = with_run_options(scenario, options.run)
        _save(scenario_text(document), options.save_scenario)
        if not options.run.quiet:
            path = shlex.quote(str(options.save_scenario))
            tell(f"scenario: {path}; run it again: bench-master run-scenario -f {path}")
    return run_loaded(scenario, options.run)


def explain_missing_command(words: Sequence[str]) -> str:
    """Return what to do about a command line, after ``weigh``, that names no command behind ``--``."""
    names = engine_names()
    engines = list(takewhile(lambda word: word in names, words))
    rest = list(words[len(engines) :])
    if not (engines and rest) or rest[0].startswith("-"):
        engines, rest = engines or [default_engine(), baseline_engine()], ["sleep", "1"]
    example = shlex.join([*engines, "--", *rest])
    return f"the command is missing: write it after '--', such as: bench-master weigh {example}"


def check_options(options: Options) -> None:
    """Raise `UsageError` for engines and options that do not fit together."""
    for place, engine in enumerate(options.engines):
        check_choice(engine, engine_names(), what="engine")
        if engine in options.engines[:place]:
            raise UsageError(f"engine {engine!r} is named twice; to measure the noise of one: --set aa={engine}")
    try:
        encoded = [word.encode() for word in options.words]
    except UnicodeEncodeError as error:
        raise UsageError(f"the command is not UTF-8: {error.object!r}") from error
    if not encoded[0]:
        raise UsageError("the command is empty: the first word after '--' is the program to run")
    load = options.run.load
    if load.user_count is not None:
        raise UsageError(f"--user-count {load.user_count}: give --concurrency {load.user_count} instead")
    if load.until is not None and options.repeats is not None:
        raise UsageError(
            f"--repeats {options.repeats}: with --until verdict the run itself finds out how many it takes; leave it "
            f"out, or give --max-rounds {max(options.repeats, FEWEST_ROUNDS)}"
        )


def scenario_document(options: Options) -> dict[str, Any]:
    """Return the scenario that the command line describes, without what `run-scenario` has options for, too."""
    words = list(options.words)
    container: dict[str, Any] = {"image": options.image, "network": "none"}
    if options.job == "lifecycle":
        container["command"] = words
        job: dict[str, Any] = {"operations": ["create", "start", "wait", "remove"]}
    else:
        # With a step before it the command runs in an idle container, so that the job's time is its own.
        job = {"workload": OWN_COMMAND, "command": words, "prepare": ["true"]}
    return {
        "name": one_line(shlex.join(words))[:_NAME_CHARS],
        "engines": list(options.engines),
        "repeats": options.repeats or ADVISED_REPEATS,
        "warmup": 1,
        "concurrency": options.concurrency,
        "timeout": COMMAND_TIMEOUT,
        "container": container,
        "job": job,
        # A threshold on failures would hold whatever is allowed.
        **({"allow_failures": True} if options.run.verdicts.allow_failures else {"thresholds": ["jobs.failed == 0"]}),
    }


def with_run_options(scenario: Scenario, options: RunOptions) -> dict[str, Any]:
    """Return a scenario's document with the options of its run that a scenario has keys for.

    Raises `UsageError` for values that no run would accept.
    """
    load, verdicts = options.load, options.verdicts
    made = apply_verdict_options(apply_load_options(scenario, load), verdicts)
    first, until = made.treatments[0], made.until_verdict
    given = {
        "operation_count": load.operation_count,
        "run_seconds": format_duration(first.run_seconds) if load.run_seconds and first.run_seconds else None,
        "rate": load.rate,
        "arrivals": load.arrivals,
        # A scenario with a rate of its own would be about response times.
        "primary": made.primary[0] if load.rate else None,
        "concurrency": first.concurrency,
        "repeats": _until_key(until) if load.until and until else None,
        "overhead": True if load.overhead and "overhead" not in scenario.document else None,
        "seed": load.seed,
        "baseline": dict(verdicts.baseline) or None,
        "margin": format_share(verdicts.margin) if verdicts.margin else None,
    }
    resized = given["operation_count"] or given["run_seconds"]
    kept = {key: value for key, value in scenario.document.items() if not (resized and key in TRIAL_SIZE_KEYS)}
    return kept | {key: value for key, value in given.items() if value is not None}


def _until_key(until: UntilVerdict) -> dict[str, Any]:
    """Return the key `repeats` of a scenario that goes on until its verdicts are settled."""
    budget = {} if until.budget_s is None else {"budget": format_duration(until.budget_s)}
    return {"until": "verdict", "at-most": until.at_most, **budget}


def scenario_text(document: Mapping[str, Any]) -> str:
    """Return a scenario's document as the text of a scenario."""
    text = yaml.safe_dump(dict(document), sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True)
    return f"# Written by bench-master weigh; docs/scenario-reference.rst explains every key.\n\n{text}"


def _save(text: str, path: Path) -> None:
    """Write a scenario to a new file; the same text may be there already."""
    try:
        if path.is_file() and path.read_text("utf-8", "replace") == text:
            return
        write_new(path, text)
    except FileExistsError as error:
        raise UsageError(
            f"{path}: already exists, with something else in it; name another file with --save-scenario"
        ) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}; name another file with --save-scenario") from error
