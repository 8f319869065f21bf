"""`bench-master weigh`: measure a command under some engines, or several commands, without a scenario file.

The command line becomes the text of a scenario, which `run-scenario`'s own functions check, plan, run and report.
`--save-scenario` writes that text to a file.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from decimal import Decimal, InvalidOperation
from itertools import groupby, pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import yaml
from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import MAX_SLOTS, InvalidValue, int_range
from bench_common.cli import CommandParser, FirstHelp, WordsAfterDashes, check_choice
from bench_common.cost import COST_UNITS, MAX_RSS, MEMORY_PEAK
from bench_common.engine_traits import (
    baseline_engine,
    default_engine,
    engine_names,
    engine_traits,
    parse_engine_label,
)
from bench_common.errors import UsageError, did_you_mean
from bench_common.files import write_new
from bench_common.options import Option, add_options
from bench_common.safe_text import one_line, shorten
from bench_common.streams import program_name, tell
from bench_common.thresholds import JOBS_PER_S
from bench_common.treatment import OWN_COMMAND, USAGES
from bench_common.units import format_share
from bench_master.analysis.subject import WITH_INPUT
from bench_master.commands.run_scenario import run_loaded
from bench_master.formatting import plural
from bench_master.options.engines import settle_engine_labels
from bench_master.options.run import RunOptions, add_shared_run_options
from bench_master.options.verdict import GATES_EPILOG, apply_verdict_options
from bench_master.run_extension import FIRST_PLACES, FIRST_RESULTS, OptionGroups, scenario_change, started_by_features
from bench_master.scenario.keys_run import MAX_REPEATS
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.matrix import MAX_VALUE_NAME
from bench_master.scenario.yaml_tree import Source
from bench_master.verdicts.stopping import FEWEST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_master.scenario.model import Scenario


DEFAULT_IMAGE: Final = "weighbridge/base"
ADVISED_REPEATS: Final = 10
COMMAND_TIMEOUT: Final = "10m"
"""The time limit of one operation: commands of users take longer than the operations of an engine."""
SOURCE: Final = "<weigh>"
"""What messages call the scenario."""
TIME: Final = "time"
"""What ``--primary`` calls the time of a job."""
_TIME_MEASURE: Final = "job.p50"
MAX_STEPS: Final = 1000
"""The most values of a parameter that is scanned."""
_WIDTH: Final = 110
_NAME_CHARS: Final = 60
_ENGINE_LABEL: Final = re.compile(r"[A-Za-z0-9][\w.+-]*=[a-z][\w-]*(:(/|unix:|tcp:)\S*)?")
"""What a positional word looks like that is a label of an engine, as ``--engine`` takes it."""
_METRIC_NAME: Final = re.compile(r"(?:(?P<name>[A-Za-z][\w-]{0,63})=)?(?P<regex>.+)", re.DOTALL)
_FIRST_WORD: Final = re.compile(r"[A-Za-z][\w-]{0,63}")
_DIRECTIONS: Final = ("higher", "lower")

_SHELL_WORD: Final = re.compile(r"\|\|?|&&?|;|\d?(>>?|<)(&\d|[^=]*)")
"""A word that means something to a shell alone."""
_OURS: Final = frozenset(
    {"--repeats", "--runs", "--image", "--job", "--concurrency", "--until", "--margin", "--baseline", "-q"}
    | {"--mount", "--env", "--metric", "--prepare"}
)
"""Options that are not seldom put behind ``--`` by mistake."""

_HYPERFINE: Final = {
    "--export-json": "--export json FILE",
    "--export-markdown": "--export markdown FILE",
    "--export-csv": "--export csv FILE",
    "--min-runs": "--until verdict, which finds out how many rounds it takes",
    "--max-runs": "--until verdict --max-rounds N",
    "-m": "--until verdict, which finds out how many rounds it takes",
    "-M": "--until verdict --max-rounds N",
    "-N": "nothing here: no shell reads a command without --shell",
    "-S": "--shell",
    "-i": "--allow-failures",
    "--ignore-failure": "--allow-failures",
    "--show-output": "--format outputs",
    "--reference": "the first command",
    "--style": "--progress, or NO_COLOR=1",
    "-s": "--setup",
    "-p": "--prepare",
    "-c": "--cleanup",
    "--conclude": "--cleanup",
    "--output": "--format outputs",
    "--sort": "nothing here: the best stands first",
    "-u": "nothing here: a unit follows from the size",
    "--time-unit": "nothing here: a unit follows from the size",
}
"""Options of hyperfine that have another name here, or none, and what it is."""

Job = Literal["lifecycle", "command"]

_USAGE: Final = (
    "%(prog)s [-h] ENGINE [ENGINE ...] [OPTIONS] -- COMMAND [ARGUMENT ...]\n"
    "       %(prog)s [-h] [ENGINE ...] 'COMMAND' ['COMMAND' ...] [OPTIONS]"
)
EXAMPLES: Final = """\
Examples:
  bench-master weigh docker runc crun native -- sleep 1
  bench-master weigh docker native './script.sh input' --mount .
  bench-master weigh './old --flag' './new --flag'
  bench-master weigh docker --image python:3.11 --image python:3.13 -- python3 -c 'sum(range(10**6))'
  bench-master weigh './bench --old' './bench --new' --metric 'score: ([\\d.]+)' --primary score:higher
"""
"""What ``--help`` shows of `EPILOG`."""
EPILOG: Final = f"""\
Examples:
  bench-master weigh docker runc crun native -- sleep 1
  bench-master weigh docker native --job command --repeats 20 -- sh -c 'seq 100000 | sort -r | sha256sum'
  bench-master weigh docker podman --until verdict --save-scenario sleep.yaml -- sleep 1
  bench-master weigh crun new --engine new=crun:/opt/crun/bin/crun -- true
  bench-master weigh './old --flag' './new --flag' -n old -n new
  bench-master weigh docker 'python3 a.py' 'python3 b.py' --image python:3 --mount . --prepare 'rm -rf cache'
  bench-master weigh 'seq {{N}} | sort -r' -L N 10000,20000 --shell --until verdict --budget 2m
  bench-master weigh 'xz -T {{N}} -c' -P N 1 4 --input data.tar -r 20 --export json xz.json --export html xz.html
  bench-master weigh docker --image python:3.11 --image python:3.13 -- python3 -c 'sum(range(10**6))'
  bench-master weigh './bench --old' './bench --new' --metric 'score: ([\\d.]+)' --primary score:higher
  bench-master weigh docker native './script.sh input' --mount .

Commands: without -- each word behind the engines is a whole command, so quote it. They are compared with the first,
as plain processes in this directory unless an engine is named; trials take turns in drawn order.
--mount: containers have the directory or file at the same path (or at :TARGET), and begin in this directory if it is
there. --metric: a regular expression whose one group captures a number in the output; its first word is the name
unless NAME= stands before it. --primary: what verdicts are about: time (the default), user, system or cpu (CPU time,
which the engine native alone counts), max-rss, cpu_total or another measure of the key 'cost' (of a whole job), a
--metric with :higher or :lower for what is better, or job.p95 and the like.
Jobs: lifecycle creates a container with the command, starts it, waits for its end and removes it; each is timed, and
all together. command starts an idle container first and measures the command in it, without the container.
The containers have no network: --set container.network=host changes that. A command may take {COMMAND_TIMEOUT};
--set timeout=1h changes that. No shell reads a command without --shell: behind --, write sh -c 'a | b' for a pipe.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a threshold or gate failed, or a job did, 2 usage error, 3 run incomplete, a treatment has no
result, or an engine or image is missing, 4 a gate could not be judged, 130 interrupted. 130 takes precedence over 1,
1 over 3, 3 over 4.
"""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `weigh`."""

    engines: Annotated[
        tuple[str, ...],
        Option(
            "ENGINE|COMMAND",
            "an engine, as list engines shows them, or LABEL=ENGINE:PLACE; without -- the commands, each quoted",
            nargs="*",
        ),
    ]
    image: Annotated[
        tuple[str, ...],
        Option(
            "--image IMAGE",
            f"image of the containers, in which the command is (default: {DEFAULT_IMAGE}); several are compared; "
            "plain processes have none",
        ),
    ] = ()
    job: Annotated[
        Job | None,
        Option(
            "--job",
            "measure a container's life from create to remove, or the command alone (default: lifecycle behind --, "
            "command for quoted commands)",
        ),
    ] = None
    command_name: Annotated[
        tuple[str, ...],
        Option("-n, --command-name NAME", "name of a quoted command in the report; once for each, in order"),
    ] = ()
    parameter_list: Annotated[
        tuple[str, ...],
        Option(
            "-L, --parameter-list NAME VALUES",
            "weigh each quoted command with {NAME} replaced by each of the values: -L threads 1,2,4",
        ),
    ] = ()
    parameter_scan: Annotated[
        tuple[str, ...],
        Option("-P, --parameter-scan NAME FROM TO", "the same with each number from FROM to TO: -P threads 1 8"),
    ] = ()
    parameter_step_size: Annotated[
        str | None, Option("-D, --parameter-step-size STEP", "by how much the numbers of -P grow (default: 1)")
    ] = None
    shell: Annotated[bool, Option("--shell", "let sh -c run the commands, also those that prepare")] = False
    input: Annotated[
        Path | None, Option("--input FILE", "standard input of the commands (default: empty); sh opens it")
    ] = None
    mount: Annotated[
        tuple[str, ...],
        Option(
            "--mount SOURCE[:TARGET][:ro]",
            "a directory or file of this host that containers have at the same path, or at TARGET; repeatable",
        ),
    ] = ()
    printed_metric: Annotated[
        tuple[str, ...],
        Option("--metric [NAME=]REGEX", "a number that the commands print: 'score: ([\\d.]+)'; repeatable"),
    ] = ()
    primary: Annotated[
        str | None,
        Option(
            "--primary MEASURE",
            "what to compare: time, user, system, cpu, max-rss, a --metric such as score:higher, or a measure "
            "such as job.p95 (default: time)",
        ),
    ] = None
    setup: Annotated[str | None, Option("--setup COMMAND", "run this once before the first job, untimed")] = None
    prepare: Annotated[str | None, Option("--prepare COMMAND", "run this before each job, untimed")] = None
    cleanup: Annotated[str | None, Option("--cleanup COMMAND", "run this after each job, untimed")] = None
    env: Annotated[tuple[str, ...], Option("--env NAME=VALUE", "a variable of the commands' environment")] = ()
    warmup: Annotated[
        int,
        Option(
            "-w, --warmup N", "rounds that warm up, and count nowhere (default: 1)", type=int_range(0, MAX_REPEATS)
        ),
    ] = 1
    concurrency: Annotated[
        int, Option("--concurrency N", "jobs in flight at the same time (default: 1)", type=int_range(1, MAX_SLOTS))
    ] = 1
    repeats: Annotated[
        int | None,
        Option(
            "-r, --runs, --repeats N",
            f"exactly N rounds, in which each command has a trial (default: {ADVISED_REPEATS})",
            type=int_range(1, MAX_REPEATS),
        ),
    ] = None
    save_scenario: Annotated[
        Path | None,
        Option(
            "--save-scenario NEW.yaml", "write the scenario that this is to a new file, for run-scenario -f NEW.yaml"
        ),
    ] = None
    words: tuple[str, ...]
    """The command to measure; empty where there are several."""
    run: RunOptions
    """How it is run and reported, as `run-scenario` has it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = _USAGE
    cast("CommandParser", parser).words_after_dashes = WordsAfterDashes(
        "words", explain_missing_command, are_commands
    )
    cast("CommandParser", parser).show_first(_first_help(parser.prog))
    add_options(parser, Options, run=None)
    add_shared_run_options(OptionGroups(parser, takes_file=False))
    command_parser = cast("CommandParser", parser)
    explain_key = command_parser.explain_unknown
    assert explain_key is not None
    command_parser.explain_unknown = lambda flag: _explain_hyperfine(flag) or explain_key(flag)
    command_parser.explain_misused = _explain_hyperfine


def _first_help(program: str) -> FirstHelp:
    """Return the options of the first day, which ``--help`` shows."""
    return FirstHelp(
        _USAGE.removeprefix("%(prog)s ").replace("%(prog)s", program).replace("[-h] ", ""),
        {
            "what to weigh": ["ENGINE|COMMAND", "--image", "--mount", "--env", "-n", "--prepare"],
            "how much of it": ["-r", "-o", "--until", "--budget", "--dry-run"],
            FIRST_PLACES: [],
            FIRST_RESULTS: ["--metric", "-s", "--export"],
            "what is compared, and what fails": ["--primary", "--baseline", "--fail-on"],
        },
        f"{EXAMPLES.replace('bench-master weigh', program)}\n"
        f"All options, gates and exit codes: {program} --help-all\n",
    )


def _explain_hyperfine(flag: str) -> str:
    """Return what has the meaning here that an option has in hyperfine, as the end of a message; else nothing."""
    ours = _HYPERFINE.get(flag)
    return f" (hyperfine's {flag} is {ours})" if ours else ""


def run(options: Options) -> int:
    """Run the scenario that the command line describes; return the exit code."""
    options = settle_engines(options)
    options, commands = split_commands(options)
    check_options(options, commands)
    if not options.run.quiet:
        for word in options.words[1:]:
            if word.partition("=")[0] in _OURS:
                tell(f"note: {word} stands behind '--', so it is an option of {options.words[0]}, not of weigh")
        if "--" in options.words[1:]:
            example = " ".join(shlex.quote(shlex.join(each)) for each in _parted(options.words))
            tell(
                f"note: the second '--' is an argument of {options.words[0]}; to weigh several commands quote each: "
                f"{program_name()} weigh {shlex.join(options.engines)} {example}"
            )
        others = [words for words in commands.values() if options.engines == (baseline_engine(),)][1:]
        if others and all(len(words) == 1 and not shutil.which(words[0]) for words in others):
            tell(f"note: these are {len(commands)} commands; quote one with its arguments: {shlex.join(commands)!r}")
    source = Source(SOURCE, scenario_text(scenario_document(options, commands)))
    scenario = parse_scenario(source, options.run.set, change=scenario_change(options.run))
    if options.save_scenario is not None:
        document = with_run_options(scenario, options.run)
        _save(scenario_text(document), options.save_scenario)
        if not options.run.quiet:
            path = shlex.quote(str(options.save_scenario))
            labels = "".join(f" --engine {shlex.quote(str(label))}" for label in options.run.workers.engine)
            tell(f"scenario: {path}; run it again: {program_name()} run-scenario -f {path}{labels}")
    return run_loaded(scenario, options.run)


def _parted(words: Sequence[str]) -> list[list[str]]:
    """Return the words between dashes."""
    return [list(part) for dashes, part in groupby(words, lambda word: word == "--") if not dashes]


def explain_missing_command(words: Sequence[str]) -> str:
    """Return what to do about a command line, after ``weigh``, that names no command behind ``--``."""
    names = engine_names()
    engines = list(takewhile(lambda word: word in names or is_engine_label(word), words))
    rest = list(words[len(engines) :])
    # There it takes no value, so it took the command.
    meant = _explain_hyperfine("-i") if rest[:1] == ["-i"] else ""
    if not (engines and rest) or rest[0].startswith("-"):
        engines, rest = engines or [default_engine(), baseline_engine()], ["sleep", "1"]
    # The options of weigh end at the dashes, so they stand before the command.
    command = list(takewhile(lambda word: word.partition("=")[0] not in _OURS | {"-r", "-s"}, rest))
    example = shlex.join([*engines, *rest[len(command) :], "--", *command])
    return f"the command is missing: write it after '--', such as: {program_name()} weigh {example}{meant}"


def is_engine_label(word: str) -> bool:
    """Return whether a positional word is the label of an engine, such as ``new=crun:/opt/crun/bin/crun``."""
    return _ENGINE_LABEL.fullmatch(word) is not None


def are_commands(words: Sequence[str], line: Sequence[str]) -> bool:
    """Return whether the positional words of a command line end with quoted commands.

    Behind an engine the first one has arguments: a single word is more likely the begin of a command whose ``--`` was
    forgotten.
    """
    given = [value for flag, value in pairwise(line) if flag == "--engine"]
    given += [word.removeprefix("--engine=") for word in line if word.startswith("--engine=")]
    names = {*engine_names(), *(value.partition("=")[0] for value in given)}
    engines = list(takewhile(lambda word: word in names or is_engine_label(word), words))
    commands = words[len(engines) :]
    return bool(commands) and (not engines or len(commands[0].split()) > 1)


def settle_engines(options: Options) -> Options:
    """Return the options with names of engines alone before the commands, once all labels are known.

    ``new=crun:/opt/crun`` before the commands is ``--engine new=crun:/opt/crun`` and ``new``, and ``--engine docker``
    the word ``docker``. Raises `UsageError` for a label that is none.
    """
    given = options.run.workers.engine
    labels = [one for one in given if one.label != one.kind]
    known = {*engine_names(), *(one.label for one in labels)}
    engines: list[str] = []
    for word in takewhile(lambda word: word in known or is_engine_label(word), options.engines):
        if word in known:
            engines.append(word)
            continue
        try:
            labels.append(parse_engine_label(word))
        except InvalidValue as error:
            raise UsageError(str(error)) from error
        engines.append(labels[-1].label)
    commands = options.engines[len(engines) :]
    named = [one.label for one in given if one.label == one.kind and one.label not in engines]
    if options.words and not (engines or named or commands):
        raise UsageError(
            f"name an engine before '--', such as: {program_name()} weigh docker native -- "
            + shlex.join(options.words)
        )
    run = replace(options.run, workers=replace(options.run.workers, engine=tuple(labels)))
    settle_engine_labels(run)
    return replace(options, engines=(*engines, *named, *commands), run=run)


def split_commands(options: Options) -> tuple[Options, dict[str, tuple[str, ...]]]:
    """Return the options with the engines alone, and the quoted commands by name; none where ``--`` has the command.

    Raises `UsageError` for names and parameters that do not fit.
    """
    if options.words:
        for flag, value in (
            ("-n", options.command_name),
            ("-L", options.parameter_list),
            ("-P", options.parameter_scan),
            ("-D", options.parameter_step_size),
            ("--shell", options.shell),
        ):
            if value:
                raise UsageError(
                    f"{flag} is for quoted commands, such as: {program_name()} weigh 'a --old' 'a --new'"
                )
        return options, {}
    names = engine_names()
    engines = tuple(takewhile(lambda word: word in names, options.engines))
    written = options.engines[len(engines) :]
    values = _parameters(options, written)
    texts = [text for word in written for text in _with_parameters(word, values)]
    named = options.command_name or _names_of(texts)
    if len(named) != len(texts):
        raise UsageError(
            f"-n is given {plural(len(named), 'time')} for {plural(len(texts), 'command')}: once for each"
        )
    commands: dict[str, tuple[str, ...]] = {}
    for name, text in zip(named, texts, strict=True):
        if name in commands:
            raise UsageError(f"{name!r} is named twice; to measure the noise of one command: --set aa={name!r}")
        commands[name] = _split(text, options)
    return replace(options, engines=engines or (baseline_engine(),), job=options.job or "command"), commands


def _names_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return what reports call commands: their own texts, each on a line, without its middle where that is long."""
    full = [one_line(text).strip() for text in texts]
    short = [shorten(line, _NAME_OF_COMMAND_CHARS) for line in full]
    return tuple(short if len(set(short)) == len(set(full)) else [shorten(line, MAX_VALUE_NAME) for line in full])


_NAME_OF_COMMAND_CHARS: Final = 40
"""A table of verdicts has room for so much beside its figures."""


def _parameters(options: Options, commands: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each parameter; raise `UsageError` for one that no command has."""
    found: dict[str, list[str]] = {}
    lists, scans = options.parameter_list, options.parameter_scan
    if options.parameter_step_size is not None and not scans:
        raise UsageError(f"-D {options.parameter_step_size}: it is the step of a scan: -P NAME FROM TO -D STEP")
    given = [("-L", name, text.split(",")) for name, text in zip(lists[::2], lists[1::2], strict=True)]
    given += [
        ("-P", name, _scan(name, first, last, options.parameter_step_size or "1"))
        for name, first, last in zip(scans[::3], scans[1::3], scans[2::3], strict=True)
    ]
    for flag, name, values in given:
        if f"{{{name}}}" not in " ".join(commands):
            raise UsageError(f"{flag} {name}: no command has {{{name}}} in it")
        if name in found:
            raise UsageError(f"{flag} {name}: the parameter is given twice")
        twice = [value for place, value in enumerate(values) if value in values[:place]]
        if twice:
            raise UsageError(f"{flag} {name}: {twice[0]!r} is given twice; leave one out")
        found[name] = values
    return found


def _scan(name: str, first: str, last: str, step: str) -> list[str]:
    """Return each number of a scan as it is written, in decimals: steps of 0.1 stay exact."""
    where = f"-P {name} {first} {last}" + (f" -D {step}" if step != "1" else "")
    try:
        begin, end, by = (Decimal(text) for text in (first, last, step))
    except InvalidOperation as error:
        raise UsageError(f"{where}: expected numbers, such as -P threads 1 8 or -P share 0 1 -D 0.25") from error
    if not (begin.is_finite() and end.is_finite() and by.is_finite()):
        raise UsageError(f"{where}: expected finite numbers, such as -P threads 1 8")
    if not (by > 0 and begin <= end):
        raise UsageError(f"{where}: expected a first number that is not above the last, and a step above 0")
    count = int((end - begin) / by) + 1
    if count > MAX_STEPS:
        raise UsageError(f"{where}: these are {count} values; at most {MAX_STEPS}")
    return [f"{begin + by * place:f}" for place in range(count)]


def _with_parameters(text: str, values: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a command with each combination of the parameters that it names."""
    texts = [text]
    for name, choices in values.items():
        texts = [each.replace(f"{{{name}}}", value) for each in texts for value in choices]
    return list(dict.fromkeys(texts))


def _split(text: str, options: Options) -> tuple[str, ...]:
    """Return the words of a quoted command, or those of the shell that reads it or gives it its input."""
    if options.shell:
        return ("sh", "-c", text if options.input is None else f"{{ {text}\n}} < {_input(options.input)}")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}; a shell reads it with --shell") from error
    if not words or not words[0]:
        raise UsageError(f"{text!r}: the command is empty")
    # In quotes, or behind a backslash, it is meant as an argument.
    special = next((word for word in text.split() if _SHELL_WORD.fullmatch(word) and word in words), None)
    if special is not None and not (options.words or options.run.quiet):
        tell(f"note: no shell reads {text!r}: its {special} is an argument; --shell has sh read it")
    return _with_input(words, options)


def _with_input(words: tuple[str, ...], options: Options) -> tuple[str, ...]:
    """Return a command that reads `--input`, where there is one: a shell opens it and becomes the command."""
    if options.input is None or not words:
        return words
    return ("sh", "-c", f"{WITH_INPUT}{_input(options.input)}", *words)


def _input(path: Path) -> str:
    return shlex.quote(str(path.absolute()))


def check_options(options: Options, commands: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `UsageError` for engines and options that do not fit together."""
    for place, engine in enumerate(options.engines):
        check_choice(engine, engine_names(), what="engine")
        if engine in options.engines[:place]:
            raise UsageError(f"engine {engine!r} is named twice; to measure the noise of one: --set aa={engine}")
    _check_words(options, [*options.words, *(word for words in commands.values() for word in words)])
    _check_images(options)
    load = options.run.load
    if load.until is not None and options.repeats is not None:
        raise UsageError(
            f"--runs {options.repeats}: with --until verdict the run itself finds out how many it takes; leave it "
            f"out, or give --max-rounds {max(options.repeats, FEWEST_ROUNDS)}"
        )


def _check_images(options: Options) -> None:
    """Raise `UsageError` for images that would be compared where there are none."""
    for place, image in enumerate(options.image):
        if image in options.image[:place]:
            raise UsageError(f"--image {image} is given twice; to measure the noise of one: --set aa={image}")
    bare = [engine for engine in options.engines if not engine_traits(engine).has_images]
    if len(options.image) > 1 and bare:
        raise UsageError(f"--image {options.image[1]}: {bare[0]} has no images that could be compared; leave it out")


def _check_words(options: Options, words: Sequence[str]) -> None:
    """Raise `UsageError` for words of commands, variables, files and steps that no job can have."""
    try:
        for word in words:
            word.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the command is not UTF-8: {error.object!r}") from error
    if not words[0]:
        raise UsageError("the command is empty: the first word after '--' is the program to run")
    for entry in options.env:
        if not entry.partition("=")[0] or "=" not in entry:
            raise UsageError(f"--env {entry}: expected NAME=VALUE, such as --env LANG=C")
    if options.input is not None and not options.input.is_file():
        raise UsageError(f"--input {options.input}: {'is no regular' if options.input.exists() else 'no such'} file")
    steps = {"--setup": options.setup, "--prepare": options.prepare, "--cleanup": options.cleanup}
    given = steps | {"--metric": options.printed_metric or None}
    for flag, value in given.items():
        if value is not None and options.job != "command":
            raise UsageError(f"{flag} needs --job command: a container's life has no step beside its command")


def scenario_document(options: Options, commands: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the scenario that the command line describes, without what `run-scenario` has options for, too.

    What is compared besides engines, commands by their names and images, is in the matrix.
    """
    document = {
        "name": one_line(shlex.join(options.words) if options.words else " against ".join(commands))[:_NAME_CHARS],
        "engines": list(options.engines),
        "repeats": options.repeats or ADVISED_REPEATS,
        "warmup": options.warmup,
        "concurrency": options.concurrency,
        "timeout": COMMAND_TIMEOUT,
        "container": _container(options),
        # A threshold on failures would hold whatever is allowed.
        **({"allow_failures": True} if options.run.verdicts.allow_failures else {"thresholds": ["jobs.failed == 0"]}),
    }
    listed = {name: list(words) for name, words in commands.items()} or {
        "": list(_with_input(options.words, options))
    }
    metrics, primary = _metrics(options)
    if primary is not None:
        document["primary"] = primary
    if primary in COST_UNITS:
        document["cost"] = True
    several = len(listed) > 1
    named = several or (bool(commands) and _is_renamed(commands))
    matrix: dict[str, Any] = {}
    if named:
        matrix["command" if options.job == "command" else "container.command"] = listed
    if len(options.image) > 1:
        matrix["container.image"] = list(options.image)
    document["job"] = _job(options, None if named else next(iter(listed.values())), metrics)
    if matrix:
        document["matrix"] = matrix
    if several and (len(options.engines) > 1 or len(options.image) > 1):
        document["baseline"] = {"command": next(iter(listed))}
    return document


def _is_renamed(commands: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a command has another name than its words give it."""
    return any(name != shlex.join(words) for name, words in commands.items())


def _container(options: Options) -> dict[str, Any]:
    """Return the settings of the containers, and of plain processes."""
    container: dict[str, Any] = {}
    if len(options.image) <= 1:
        container["image"] = options.image[0] if options.image else DEFAULT_IMAGE
    container["network"] = "none"
    if options.env:
        container["env"] = dict(entry.split("=", 1) for entry in options.env)
    mounts = [_mount(text) for text in options.mount]
    if options.input is not None:
        path = str(options.input.absolute())
        mounts.append({"host": path, "target": path, "read_only": True})
    if mounts:
        container["storage"] = mounts
    here = Path.cwd()
    shared = any(one["host"] == one["target"] and here.is_relative_to(one["host"]) for one in mounts)
    plain = all(engine_traits(engine).runs_on_host for engine in options.engines)
    if shared or (plain and _runs_here(options.run)):
        container["directory"] = str(here)
    return container


def _runs_here(run: RunOptions) -> bool:
    """Return whether all workers are of this host, so that its directories are theirs."""
    return bool(run.local_workers) and not run.workers.expect and not started_by_features(run)


def _mount(text: str) -> dict[str, Any]:
    """Return ``SOURCE[:TARGET][:ro]`` as an entry of `storage`; raise `UsageError` where it is none."""
    rest = text.removesuffix(":ro")
    source, _, target = rest.partition(":")
    place = Path(source).expanduser().absolute() if source else None
    if place is None or not place.exists():
        raise UsageError(
            f"--mount {text}: there is no {source or 'source'} on this host; expected SOURCE[:TARGET][:ro]"
        )
    if target and (not target.startswith("/") or ":" in target):
        raise UsageError(
            f"--mount {text}: expected an absolute path in the containers after ':', then :ro or nothing"
        )
    found = str(place.resolve())
    return {"host": found, "target": target or found, **({"read_only": True} if rest != text else {})}


def _metrics(options: Options) -> tuple[dict[str, dict[str, str]], str | None]:
    """Return the metrics of the commands, and the measure to compare, None for the usual one.

    Raises `UsageError` for a measure that nothing gives.
    """
    found: dict[str, dict[str, str]] = {}
    for text in options.printed_metric:
        match = _METRIC_NAME.fullmatch(text)
        regex = match["regex"] if match else text
        word = (match and match["name"]) or ((first := _FIRST_WORD.search(regex)) and first[0])
        if not word:
            raise UsageError(f"--metric {text}: it has no word for a name; write NAME=REGEX")
        if word in found:
            raise UsageError(f"--metric {text}: {word} is there already; write another NAME=REGEX")
        found[word] = {"regex": regex}
    # A metric with a direction would be compared in the place of the time.
    usual = _TIME_MEASURE if found else None
    measure, _, direction = (options.primary or TIME).partition(":")
    if direction and (measure not in found or direction not in _DIRECTIONS):
        raise UsageError(
            f"--primary {options.primary}: expected a --metric before ':', and higher or lower, which is better, "
            "after it"
        )
    if measure in found:
        if not direction:
            raise UsageError(f"--primary {measure}: say what is better: {measure}:higher or {measure}:lower")
        found[measure]["better"] = direction
        return found, measure
    if measure in USAGES:
        return {**found, measure: _usage(measure, options)}, measure
    if measure == "max-rss":
        if len(plain := {engine_traits(engine).runs_on_host for engine in options.engines}) == 1:
            return found, MAX_RSS if plain.pop() else MEMORY_PEAK
        raise UsageError(
            f"--primary max-rss: write {MAX_RSS} (plain processes that take more than the worker does) or "
            f"{MEMORY_PEAK} (containers)"
        )
    _check_measure(measure, found)
    return found, usual if measure == TIME else measure


def _check_measure(measure: str, metrics: Mapping[str, object]) -> None:
    words = (TIME, *USAGES, "max-rss", *metrics)
    if "." not in measure and measure not in (*words, *COST_UNITS, JOBS_PER_S):
        raise UsageError(
            f"--primary {measure}: unknown measure{did_you_mean(measure, words)}; expected {', '.join(words)}, or "
            f"one of `{program_name()} list measures`, such as job.p95"
        )


def _usage(measure: str, options: Options) -> dict[str, str]:
    """Return the metric of a command's CPU time; raise `UsageError` where an engine does not tell it."""
    others = [engine for engine in options.engines if not engine_traits(engine).runs_on_host]
    if options.job != "command":
        raise UsageError(f"--primary {measure}: needs --job command, or a quoted command")
    if others:
        raise UsageError(
            f"--primary {measure}: {others[0]} does not tell the CPU time of a command; {baseline_engine()} does"
        )
    return {"usage": measure}


def _job(options: Options, words: list[str] | None, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job of a command; None for one that varies."""
    if options.job != "command":
        command = {} if words is None else {"container": {"command": words}}
        return {"operations": ["create", "start", "wait", "remove"], **command}
    steps = {"setup": options.setup, "prepare": options.prepare, "cleanup": options.cleanup}
    unread = replace(options, input=None)
    return {
        "workload": OWN_COMMAND,
        **({} if words is None else {"command": words}),
        # With a step before it the command runs in an idle container, so that the job's time is its own.
        "start_cost": list(_split("true", options)),
        **{key: list(_split(text, unread)) for key, text in steps.items() if text is not None},
        **({"metrics": dict(metrics)} if metrics else {}),
    }


def with_run_options(scenario: Scenario, options: RunOptions) -> dict[str, Any]:
    """Return a scenario's document with the options of its run that a scenario has keys for.

    Raises `UsageError` for values that no run would accept.
    """
    verdicts = options.verdicts
    apply_verdict_options(scenario, verdicts)
    given = {
        "seed": options.load.seed,
        "baseline": dict(verdicts.baseline) or None,
        "margin": format_share(verdicts.margin) if verdicts.margin else None,
    }
    return {**scenario.document} | {key: value for key, value in given.items() if value is not None}


def scenario_text(document: Mapping[str, Any]) -> str:
    """Return a scenario's document as the text of a scenario."""
    text = yaml.safe_dump(dict(document), sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True)
    return f"# Written by bench-master weigh; docs/reference/scenario-keys.rst explains every key.\n\n{text}"


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
