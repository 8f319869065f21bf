"""The options of a resumed run: those that its stats file keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from bench_common.errors import UsageError
from bench_master.bucketbench import load_scenario_or_definition
from bench_master.commands.run_options import LoadOptions, RunOptions, TimeoutOptions
from bench_master.run.resume import ResumableRun
from bench_master.scenario import Scenario
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

WORKER_OPTIONS: Final = ("local_workers", "expect", "environment")
"""The fields of `WorkerOptions` that a resumed run keeps unless they are given again."""

Group = TypeVar("Group", LoadOptions, TimeoutOptions)


def stored_options(options: RunOptions) -> dict[str, Any]:
    """Return the options that the header of the stats file keeps."""
    workers = {name: getattr(options.workers, name) for name in WORKER_OPTIONS}
    return asdict(options.load) | asdict(options.timeouts) | workers


def restore_options(options: RunOptions, past: ResumableRun) -> RunOptions:
    """Return the options that the run started with; raise `UsageError` if others are given now."""
    path = past.stats.path
    stored = {**past.header.get("options", {}), "seed": past.header["seed"], "noop": bool(past.header["noop"])}
    load = _restore_group(options.load, stored, path)
    timeouts = _restore_group(options.timeouts, stored, path)
    if options.set and options.file is None:
        raise UsageError(f"--set {options.set[0]}: {path} continues with its own scenario: leave it out")
    saved = options.output.stats_file
    if saved is not None and saved.resolve() != path.resolve():
        raise UsageError(f"--stats-file {saved}: a resumed run continues in {path}: leave it out")
    workers = options.workers
    if not workers.local_workers and workers.expect is None:
        workers = replace(workers, local_workers=stored.get("local_workers") or 0, expect=stored.get("expect"))
    if workers.environment is None:
        workers = replace(workers, environment=stored.get("environment"))
    definition = replace(options.definition, overhead=load.overhead)
    return replace(options, load=load, timeouts=timeouts, workers=workers, definition=definition)


def _restore_group(group: Group, stored: Mapping[str, Any], path: Path) -> Group:
    """Return a group with the values in `stored`; raise `UsageError` for a given value that differs."""
    values = {}
    for field in fields(group):
        values[field.name] = value = stored.get(field.name, field.default)
        if getattr(group, field.name) not in (field.default, value):
            flag = "--" + field.name.replace("_", "-")
            raise UsageError(f"{flag}: {path} started with another value and continues with it: leave it out")
    return replace(group, **values)


def resumed_scenario(options: RunOptions, past: ResumableRun) -> Scenario:
    """Return the given scenario, else the one that the stats file holds, overrides applied."""
    if options.file is not None:
        return load_scenario_or_definition(options.file, options.set, options.definition)
    stored = past.header["scenario"]
    return parse_scenario(Source(str(stored["path"]), json.dumps(stored["document"])))
