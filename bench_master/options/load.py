"""The options that change a scenario's load: how much runs, how often, in which order, and which part of it."""

from __future__ import annotations

import argparse
import secrets
from typing import Annotated, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import MAX_SEED, int_range, some_time
from bench_common.errors import UsageError
from bench_common.options import Option
from bench_common.treatment import ArrivalProcess, OpenLoad, OverheadSampling, Treatment
from bench_common.units import format_duration, parse_rate
from bench_master.coordinator.share import MAX_LOOK_AHEAD
from bench_master.scenario import Scenario
from bench_master.scenario.format import MAX_RATE_PER_S, OPEN_CONCURRENCY
from bench_master.scenario.model import UntilVerdict
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


def apply_load_options(scenario: Scenario, options: LoadOptions) -> Scenario:
    """Return the scenario with the values that the command line overrides."""
    scenario = _apply_rate(_apply_size(scenario, options), options)
    scenario = _apply_until(scenario, options)
    if options.overhead and scenario.overhead is None:
        scenario = replace(scenario, overhead=OverheadSampling())
    if options.explain:
        scenario = replace(scenario, explain=True)
    if options.skip_host_ceiling or options.noop:
        scenario = replace(scenario, host_ceiling=False)
    return scenario


def _apply_size(scenario: Scenario, options: LoadOptions) -> Scenario:
    """Return the scenario with `-o` or `-r` in place of its own sizes."""
    count, seconds = options.operation_count, options.run_seconds
    if count is None and seconds is None:
        return scenario
    if count is not None and seconds is not None:
        raise UsageError(
            f"--run-seconds {format_duration(seconds)}: not allowed with -o {count}: a trial ends after a time or "
            "after its jobs"
        )

    def resize(treatment: Treatment) -> Treatment:
        return msgspec.structs.replace(treatment, iterations=None, operation_count=count, run_seconds=seconds)

    return replace(scenario, treatments=tuple(resize(treatment) for treatment in scenario.treatments))


def _apply_rate(scenario: Scenario, options: LoadOptions) -> Scenario:
    """Return the scenario with `--rate` and `--arrivals` in place of its own."""
    if options.rate is None and options.arrivals is None:
        return scenario
    rate = None
    if options.rate is not None:
        try:
            rate = parse_rate(options.rate)
        except ValueError as error:
            raise UsageError(f"--rate {options.rate}: {error}") from error
        if not 0 < rate <= MAX_RATE_PER_S:
            raise UsageError(f"--rate {options.rate}: expected more than 0 and at most {MAX_RATE_PER_S:g} a second")

    def pace(treatment: Treatment) -> Treatment:
        load = treatment.open_load
        if rate is None and load is None:
            raise UsageError(f"--arrivals {options.arrivals}: the scenario has no rate; give --rate, such as 200/s")
        if treatment.iterations is not None:
            advice = "give the number of jobs (-o) or the length of a trial (--run-seconds)"
            raise UsageError(f"--rate {options.rate}: the scenario counts iterations of a slot; {advice}")
        if load is None:
            assert rate is not None
            concurrency = treatment.concurrency if treatment.concurrency > 1 else OPEN_CONCURRENCY
            load, treatment = OpenLoad(rate), msgspec.structs.replace(treatment, concurrency=concurrency)
        paced = msgspec.structs.replace(
            load, rate_per_s=rate or load.rate_per_s, process=options.arrivals or load.process
        )
        return msgspec.structs.replace(treatment, open_load=paced)

    return replace(scenario, treatments=tuple(pace(treatment) for treatment in scenario.treatments))


def _apply_until(scenario: Scenario, options: LoadOptions) -> Scenario:
    """Return the scenario with ``--until verdict`` and its limits in place of its repeats."""
    budget_s = options.budget_s
    budget = None if budget_s is None else format_duration(budget_s)
    given = {"--max-rounds": options.max_rounds, "--budget": budget}
    own = scenario.until_verdict
    if options.until is None and own is None:
        for flag, value in given.items():
            if value is not None:
                raise UsageError(f"{flag} {value}: the scenario has a fixed number of repeats; add --until verdict")
        return scenario
    if options.until is None and options.max_rounds is None and budget_s is None:
        return scenario
    if len(scenario.treatments) < 2:  # noqa: PLR2004  a comparison takes two
        raise UsageError("--until verdict: the scenario has one treatment, and nothing to compare it with")
    if scenario.order == "blocked":
        raise UsageError(
            "--until verdict: it looks at whole rounds, and 'order: blocked' has none; add --set order=interleaved"
        )
    if budget_s is None and own is not None:
        budget_s = own.budget_s
    at_most = options.max_rounds or (own.at_most if own is not None else DEFAULT_MOST_ROUNDS)
    rule = UntilVerdict(at_most, budget_s)
    return replace(scenario, until_verdict=rule, repeats=(at_most,) * len(scenario.treatments))


def choose_seed(scenario: Scenario, options: LoadOptions) -> int:
    """Return the given seed, else the scenario's, else a random one."""
    if options.seed is not None:
        return options.seed
    return scenario.seed if scenario.seed is not None else secrets.randbelow(1 << 31)
