"""``validate-scenario``: say everything that is wrong with a scenario, or publish the schema of all scenarios."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from bench_common.errors import ExitCode, UsageError
from bench_master.bucketbench import load_scenario_or_definition
from bench_master.formatting import plural
from bench_master.scenario import Scenario, scenario_schema
from bench_master.scenario.keys_run import SCALE

if TYPE_CHECKING:
    import argparse

NAME = "validate-scenario"
HELP = "check scenarios and say everything that is wrong with them, or print the JSON Schema of the format"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = "Exit codes: 0 every scenario is good, 2 at least one is not."
    parser.add_argument(
        "-f",
        "--file",
        action="extend",
        nargs="+",
        default=[],
        metavar="X.yaml",
        help="a scenario's file, or a ready-made one's name; may be given several times",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key before checking, such as --set jobs.cpu.params.time=5s",
    )
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema (draft 2020-12) of scenarios, for editors"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check every file, or print the schema; return the exit code."""
    if arguments.schema:
        if arguments.file or arguments.set:
            raise UsageError("--schema prints the schema of all scenarios; it goes with neither -f nor --set")
        sys.stdout.write(json.dumps(scenario_schema(), indent=2) + "\n")
        return int(ExitCode.OK)
    if not arguments.file:
        raise UsageError("nothing to check: name a scenario with -f X.yaml, or ask for --schema")
    status = ExitCode.OK
    for reference in arguments.file:
        try:
            scenario = load_scenario_or_definition(reference, arguments.set)
        except UsageError as error:
            # The next file may be good, so this one's problems must not end the command.
            sys.stderr.write(f"{error}\n")
            status = ExitCode.USAGE
        else:
            sys.stdout.write(_report_scenario(reference, scenario, quiet=arguments.quiet))
            status = max(status, *(_check_profile(reference, name, arguments) for name in scenario.profiles), status)
    return int(status)


def _check_profile(reference: str, profile: str, arguments: argparse.Namespace) -> ExitCode:
    """Check a scenario at another scale than it was asked for at; say what is wrong, or how large it is."""
    scale = f"{SCALE}={profile}"
    if any(text.replace(" ", "").startswith(f"{SCALE}=") for text in arguments.set):
        return ExitCode.OK
    try:
        scenario = load_scenario_or_definition(reference, [*arguments.set, scale])
    except UsageError as error:
        sys.stderr.writelines(f"with --set {scale}: {line}\n" for line in str(error).splitlines())
        return ExitCode.USAGE
    sys.stdout.write(_report_scenario(f"{reference} with --set {scale}", scenario, quiet=True))
    return ExitCode.OK


def _report_scenario(reference: str, scenario: Scenario, *, quiet: bool) -> str:
    warmup = sum(scenario.warmup)
    trials = plural(sum(scenario.repeats), "trial")
    if warmup:
        trials += f" and {plural(warmup, 'warm-up trial')}"
    lines = [f"{reference}: ok, {plural(len(scenario.treatments), 'treatment')}, {trials}"]
    if not quiet:
        lines += [f"{reference}: note: {note}" for note in scenario.notes]
    return "\n".join(lines) + "\n"
