"""`bench-master validate-scenario`: list all errors of scenarios, or print the JSON Schema of the format."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Final

from msgspec import Struct

from bench_common.cli import engine_option
from bench_common.engine_traits import EngineLabel, use_engine_labels
from bench_common.errors import ExitCode, UsageError
from bench_common.guard import error_lines
from bench_common.options import Option
from bench_common.streams import tell
from bench_master.formatting import plural
from bench_master.scenario import Scenario, scenario_schema
from bench_master.scenario.claims import registration_text
from bench_master.scenario.dialects import load_scenario_or_definition
from bench_master.scenario.keys_run import SCALE

EPILOG: Final = "Exit codes: 0 every scenario is valid, 2 at least one is not."


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `validate-scenario`."""

    file: Annotated[
        tuple[str, ...],
        Option("-f, --file X.yaml", "scenario file, or the name of a ready-made scenario; repeatable", nargs="+"),
    ] = ()
    set: Annotated[
        tuple[str, ...],
        Option(
            "--set KEY=VALUE", "override a key before the check, such as --set jobs.cpu.params.time=5s; repeatable"
        ),
    ] = ()
    schema: Annotated[bool, Option("--schema", "print the JSON Schema (draft 2020-12) of scenarios, for editors")] = (
        False
    )
    quiet: bool
    engine: Annotated[tuple[EngineLabel, ...], engine_option("let scenarios name an engine by a label")] = ()


def run(options: Options) -> int:
    """Check every file, or print the schema; return the exit code."""
    use_engine_labels(options.engine)
    if options.schema:
        if options.file or options.set:
            raise UsageError("--schema prints the schema of all scenarios; give neither -f nor --set with it")
        sys.stdout.write(json.dumps(scenario_schema(), indent=2) + "\n")
        return int(ExitCode.OK)
    if not options.file:
        raise UsageError("nothing to check: name a scenario with -f X.yaml, or give --schema")
    status = ExitCode.OK
    for reference in options.file:
        try:
            scenario = load_scenario_or_definition(reference, options.set)
        except UsageError as error:
            # The next file may be valid, so this one's errors must not end the command.
            for line in error_lines(error):
                tell(line)
            status = ExitCode.USAGE
        else:
            sys.stdout.write(_report_scenario(reference, scenario, quiet=options.quiet))
            status = max(status, *(_check_profile(reference, name, options) for name in scenario.profiles), status)
    return int(status)


def _check_profile(reference: str, profile: str, options: Options) -> ExitCode:
    """Check a scenario at another scale; print its errors or its size."""
    scale = f"{SCALE}={profile}"
    if any(text.replace(" ", "").startswith(f"{SCALE}=") for text in options.set):
        return ExitCode.OK
    try:
        scenario = load_scenario_or_definition(reference, [*options.set, scale])
    except UsageError as error:
        for line in error_lines(error):
            tell(f"with --set {scale}: {line}")
        return ExitCode.USAGE
    sys.stdout.write(_report_scenario(f"{reference} with --set {scale}", scenario, quiet=True))
    return ExitCode.OK


def _report_scenario(reference: str, scenario: Scenario, *, quiet: bool) -> str:
    warmup = sum(scenario.warmup)
    trials = plural(sum(scenario.repeats), "trial")
    if warmup:
        trials += f" and {plural(warmup, 'warm-up trial')}"
    lines = [f"{reference}: ok, {plural(len(scenario.treatments), 'treatment')}, {trials}"]
    if scenario.claims:
        lines.append(f"{reference}: {registration_text(scenario.claims, scenario.margin)}")
    if not quiet:
        lines += [f"{reference}: note: {note}" for note in scenario.notes]
    return "\n".join(lines) + "\n"
