"""What a resumed run takes from its stats file in place of the command line, and what may be said anew."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any, Final

from bench_common.arguments import file_name
from bench_common.errors import UsageError
from bench_master.bucketbench import load_either
from bench_master.commands.definition_options import definition_flags
from bench_master.run.resume import Resumption
from bench_master.scenario import Scenario
from bench_master.scenario.load import scenario_from
from bench_master.scenario.source import Source

FIXED: Final[Mapping[str, Any]] = {
    "noop": False,
    "keep": False,
    "user_count": None,
    "operation_count": None,
    "run_seconds": None,
    "rate": None,
    "arrivals": None,
    "overhead": False,
    "skip_limit": False,
    "look_ahead": True,
    "batch_size": None,
    "seed": None,
    "silence": None,
    "rejoin": None,
    "lease": None,
}
"""Options that belong to the plan or to the load, each with its default: a resumed run has those of its beginning."""

WHO: Final = ("workers", "expect", "environment")
"""Options that say who works; what is not said anew is as it was."""


def add_resume_option(parser: argparse.ArgumentParser, scenario: argparse.Action) -> None:
    """Add ``--resume``; where it is given the argument `scenario`, which is required otherwise, may be left out."""

    class Resume(argparse.Action):
        def __call__(
            self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
        ) -> None:
            setattr(namespace, self.dest, values)
            scenario.required = False

    parser.add_argument(
        "--resume",
        action=Resume,
        type=file_name,
        metavar="FILE",
        help="go on with a run that was killed or interrupted, in its stats file: its plan and its load are in it, "
        "so -f can be left out, and what is missing is run",
    )


def stored_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the header keeps of the command line."""
    return {name: getattr(arguments, name) for name in (*FIXED, *WHO)}


def adopt(arguments: argparse.Namespace, past: Resumption) -> None:
    """Set the options that the run was begun with; raise `UsageError` where other ones are given."""
    path, options = past.stats.path, past.header.get("options", {})
    stored = {**FIXED, **options, "seed": past.header["seed"], "noop": bool(past.header["noop"])}
    for name, default in FIXED.items():
        given = getattr(arguments, name)
        if given not in (default, stored[name]):
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag}: {path} was begun with another value, and goes on as it began: leave it out")
        setattr(arguments, name, stored[name])
    if arguments.set and arguments.file is None:
        raise UsageError(f"--set {arguments.set[0]}: {path} goes on with the scenario that it has: leave it out")
    if arguments.stats_file is not None and arguments.stats_file.resolve() != path.resolve():
        raise UsageError(f"--stats-file {arguments.stats_file}: what is resumed goes on in {path}: leave it out")
    if not arguments.workers and arguments.expect is None:
        arguments.workers, arguments.expect = options.get("workers") or 0, options.get("expect")
    if arguments.environment is None:
        arguments.environment = options.get("environment")


def scenario_of(arguments: argparse.Namespace, past: Resumption) -> Scenario:
    """Return the scenario that is named, else the one in the stats file as it was resolved there."""
    if arguments.file is not None:
        return load_either(arguments.file, arguments.set, definition_flags(arguments))
    stored = past.header["scenario"]
    return scenario_from(Source(str(stored["path"]), json.dumps(stored["document"])))
