"""The options that change a scenario's load: how much runs, how often, in which order, and which part of it."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import MAX_SEED, int_range, some_time
from bench_common.options import Option
from bench_common.treatment import ArrivalProcess
from bench_common.units import format_duration
from bench_master.coordinator.share import MAX_LOOK_AHEAD
from bench_master.scenario import Scenario
from bench_master.scenario.diagnostics import Diagnostics
from bench_master.scenario.model import Origin
from bench_master.scenario.overrides import node_of, refuse_varied, set_everywhere, set_path
from bench_master.scenario.yaml_tree import MappingNode, SourceLocation
from bench_master.verdicts.stopping import DEFAULT_MOST_ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS


def length_option(flags: str) -> Option:
    """Return ``--run-seconds`` with these flags."""
    return Option(
        f"{flags} TIME",
        "length of each trial, not of the run: 90, 15m. An ssbench scenario is one trial, so there it is the length "
        "of the run, and takes precedence over -o",
        type=some_time,
    )


class LoadOptions(Struct, frozen=True):
    """What is run and how it is dispatched; None leaves a value to the scenario."""

    noop: Annotated[bool, Option("--noop", "execute nothing: measure the harness's own maximum rate")] = False
    seed: Annotated[
        int | None,
        Option(
            "--seed N",
            "seed of the order of trials (default: the scenario's, else random; the stats file keeps it)",
            type=int_range(0, MAX_SEED),
        ),
    ] = None
    user_count: Annotated[
        int | None, Option("-u, --user-count N", "jobs in flight, over all workers together", type=int_range(1))
    ] = None
    operation_count: Annotated[
        int | None, Option("-o, --operation-count N", "jobs in each trial", type=int_range(1))
    ] = None
    run_seconds: Annotated[float | None, length_option("-r, --run-seconds")] = None
    until: Annotated[
        Literal["verdict"] | None,
        Option(
            "--until",
            "instead of a number of trials: go on until every comparison is settled, or --max-rounds is reached",
        ),
    ] = None
    max_rounds: Annotated[
        int | None,
        Option(
            "--max-rounds N",
            f"rounds at most with --until verdict (default: {DEFAULT_MOST_ROUNDS})",
            type=int_range(FEWEST_ROUNDS, MOST_ROUNDS),
        ),
    ] = None
    budget_s: Annotated[
        float | None,
        Option(
            "--budget TIME",
            "with --until verdict: end after the round in which so much time is over, such as 2h",
            type=some_time,
        ),
    ] = None
    rate: Annotated[
        str | None,
        Option(
            "--rate RATE",
            "start jobs at this rate over all workers, such as 200/s, even if earlier jobs still run (open load); "
            "needs -o or --run-seconds if the scenario counts iterations",
        ),
    ] = None
    arrivals: Annotated[
        ArrivalProcess | None,
        Option("--arrivals", "spacing of the jobs that start at a rate (default: the scenario's, else constant)"),
    ] = None
    skip_host_ceiling: Annotated[
        bool,
        Option("--skip-host-ceiling", "do not measure the host ceiling, even if the scenario asks for it"),
    ] = False
    look_ahead: Annotated[
        bool,
        Option(
            "--look-ahead",
            "prefetch jobs to workers when jobs are short and independent (default: yes)",
            action=argparse.BooleanOptionalAction,
        ),
    ] = True
    batch_size: Annotated[
        int | None,
        Option(
            "--batch-size N",
            "jobs or results in one message (default: adapts to the rate of jobs)",
            type=int_range(1, MAX_LOOK_AHEAD),
        ),
    ] = None
    keep: Annotated[
        bool, Option("-k, --keep", "leave containers as the jobs left them; cleanup-containers removes them")
    ] = False
    overhead: Annotated[
        bool,
        Option(
            "--overhead",
            "sample the memory and CPU time of the engines' own processes, as the scenario key 'overhead' does",
        ),
    ] = False
    explain: Annotated[
        bool,
        Option(
            "--explain",
            "after the measured trials trace a few jobs of each treatment, and report where their time goes, as the "
            "scenario key 'explain' does",
        ),
    ] = False
    only_labels: tuple[str, ...] = ()
    """Labels of the treatments to run, as ``LABEL=VALUE``; empty: all."""


def is_timed(scenario: Scenario) -> bool:
    """Return whether a length on the command line takes precedence over a number of jobs, as another tool has it."""
    return scenario.origin is not None and scenario.origin.length_wins


def settle_load_options(scenario: Scenario, options: LoadOptions) -> LoadOptions:
    """Return the options as another tool's file means them: with its number of users, and its precedence."""
    if scenario.user_count is not None and options.user_count is None:
        options = replace(options, user_count=scenario.user_count)
    if is_timed(scenario) and options.run_seconds is not None:
        options = replace(options, operation_count=None)
    return options


def change_load(options: LoadOptions, origin: Origin | None, root: MappingNode, findings: Diagnostics) -> None:
    """Change a scenario's tree to the load of the command line.

    `origin` is the tool whose file it was: in some of them a length takes precedence over a number of jobs.
    """
    for flag, key, value in _given(options, origin, root, findings):
        set_everywhere(root, key, value, SourceLocation(flag), findings)
    users = options.user_count
    if users is not None:
        refuse_varied(root, "concurrency", users, SourceLocation(f"-u {users}"), findings)
    _change_repeats(options, root, findings)


def _given(
    options: LoadOptions, origin: Origin | None, root: MappingNode, findings: Diagnostics
) -> Iterator[tuple[str, str, Any]]:
    """Yield each flag that is given, with the scenario's key of it and the value."""
    count, seconds = options.operation_count, options.run_seconds
    if seconds is not None:
        flag = f"--run-seconds {format_duration(seconds)}"
        if count is not None and not (origin is not None and origin.length_wins):
            text = f"not allowed with -o {count}: a trial ends after a time or after its jobs"
            findings.add(SourceLocation(flag), text)
        yield flag, "run_seconds", format_duration(seconds)
    elif count is not None:
        yield f"-o {count}", "operation_count", count
    if options.rate is not None:
        yield f"--rate {options.rate}", "rate", options.rate
    if options.arrivals is not None:
        yield f"--arrivals {options.arrivals}", "arrivals", options.arrivals
    if options.overhead and not isinstance(root.values.get("overhead"), MappingNode):
        yield "--overhead", "overhead", True
    if options.explain:
        yield "--explain", "explain", True
    if (options.skip_host_ceiling or options.noop) and "host_ceiling" in root.values:
        yield "--noop" if options.noop else "--skip-host-ceiling", "host_ceiling", False


def _change_repeats(options: LoadOptions, root: MappingNode, findings: Diagnostics) -> None:
    """Put ``--until verdict`` and its limits in the place of the repeats; what is not given is the scenario's own."""
    budget = None if options.budget_s is None else format_duration(options.budget_s)
    limits = [("--max-rounds", "at-most", options.max_rounds), ("--budget", "budget", budget)]
    limits = [one for one in limits if one[2] is not None]
    own = root.values.get("repeats")
    goes_on = isinstance(own, MappingNode) and "until" in own.values
    if options.until is not None and not goes_on:
        place = SourceLocation(f"--until {options.until}")
        set_everywhere(root, "repeats", {"until": options.until}, place, findings)
        goes_on = True
    for flag, key, value in limits:
        place = SourceLocation(f"{flag} {value}")
        if goes_on:
            set_path(root, f"repeats.{key}", node_of(value, place), place, findings)
        else:
            findings.add(place, "the scenario has a fixed number of repeats; add --until verdict")


def choose_seed(scenario: Scenario, options: LoadOptions) -> int:
    """Return the given seed, else the scenario's, else a random one."""
    if options.seed is not None:
        return options.seed
    return scenario.seed if scenario.seed is not None else secrets.randbelow(1 << 31)
