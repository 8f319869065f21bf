"""The options that change a scenario's load: how much runs, how often, in which order, and which part of it."""

from __future__ import annotations

import argparse
import secrets

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import MAX_SEED, int_range
from bench_common.errors import UsageError
from bench_common.treatment import ARRIVAL_PROCESSES, ArrivalProcess, OpenLoad, OverheadSampling, Treatment
from bench_common.units import parse_rate
from bench_master.coordinator.share import MAX_LOOK_AHEAD
from bench_master.options.durations import parse_duration_option
from bench_master.scenario import Scenario
from bench_master.scenario.format import MAX_RATE_PER_S, OPEN_CONCURRENCY
from bench_master.scenario.model import UntilVerdict
from bench_master.verdicts.stopping import DEFAULT_MOST_ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS


class LoadOptions(Struct, frozen=True):
    """What is run and how it is dispatched; None leaves a value to the scenario."""

    noop: bool = False
    """Execute nothing: measure the harness's own maximum rate."""
    keep: bool = False
    """Leave containers as the jobs left them."""
    seed: int | None = None
    """The seed of the order of trials; None: the scenario's, else a random one."""
    user_count: int | None = None
    """Jobs in flight over all workers together."""
    operation_count: int | None = None
    run_seconds: str | None = None
    """The length of each trial, as a duration."""
    rate: str | None = None
    """Jobs that arrive each second over all workers, such as ``200/s``."""
    arrivals: ArrivalProcess | None = None
    overhead: bool = False
    """Sample the memory and CPU time of the engines' own processes."""
    explain: bool = False
    """Trace a few jobs of each treatment after the measured ones."""
    skip_host_ceiling: bool = False
    """Do not measure the host ceiling."""
    look_ahead: bool = True
    """Prefetch short, independent jobs to workers."""
    batch_size: int | None = None
    """Jobs and results in one message; None: adapts to the rate of jobs."""
    until: str | None = None
    """``verdict``: go on until every comparison is settled."""
    max_rounds: int | None = None
    """Rounds at most with `until`."""
    budget: str | None = None
    """How long the run may take with `until`, as a duration."""
    only_labels: tuple[str, ...] = ()
    """Labels of the treatments to run, as ``LABEL=VALUE``; empty: all."""


def add_plan_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of `LoadOptions` that stand beside the scenario."""
    parser.add_argument("--noop", action="store_true", help="execute nothing: measure the harness's own maximum rate")
    parser.add_argument(
        "--seed",
        type=int_range(0, MAX_SEED),
        metavar="N",
        help="seed of the order of trials (default: the scenario's, else random; the stats file keeps it)",
    )


def add_load_options(group: argparse._ActionsContainer, *, short_length: bool = True) -> None:
    """Add the size and the rate of the load; with `short_length`, ``-r`` is the length of a trial."""
    group.add_argument(
        "-u", "--user-count", type=int_range(1), metavar="N", help="jobs in flight, over all workers together"
    )
    group.add_argument("-o", "--operation-count", type=int_range(1), metavar="N", help="jobs in each trial")
    group.add_argument(
        *(("-r",) if short_length else ()),
        "--run-seconds",
        metavar="TIME",
        help="length of each trial, not of the run: 90, 15m. An ssbench scenario is one trial, so there it is the "
        "length of the run, and takes precedence over -o",
    )
    group.add_argument(
        "--until",
        choices=("verdict",),
        help="instead of a number of trials: go on until every comparison is settled, or --max-rounds is reached",
    )
    group.add_argument(
        "--max-rounds",
        type=int_range(FEWEST_ROUNDS, MOST_ROUNDS),
        metavar="N",
        help=f"rounds at most with --until verdict (default: {DEFAULT_MOST_ROUNDS})",
    )
    group.add_argument(
        "--budget",
        metavar="TIME",
        help="with --until verdict: end after the round in which so much time is over, such as 2h",
    )
    group.add_argument(
        "--rate",
        metavar="RATE",
        help="start jobs at this rate over all workers, such as 200/s, even if earlier jobs still run (open load); "
        "needs -o or --run-seconds if the scenario counts iterations",
    )
    group.add_argument(
        "--arrivals",
        choices=ARRIVAL_PROCESSES,
        help="spacing of the jobs that start at a rate (default: the scenario's, else constant)",
    )
    group.add_argument(
        "--skip-host-ceiling",
        action="store_true",
        help="do not measure the host ceiling, even if the scenario asks for it",
    )


def add_dispatch_options(group: argparse._ActionsContainer) -> None:
    """Add how jobs reach the workers."""
    group.add_argument(
        "--look-ahead",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="prefetch jobs to workers when jobs are short and independent (default: yes)",
    )
    group.add_argument(
        "--batch-size",
        type=int_range(1, MAX_LOOK_AHEAD),
        metavar="N",
        help="jobs or results in one message (default: adapts to the rate of jobs)",
    )


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
            f"--run-seconds {seconds}: not allowed with -o {count}: a trial ends after a time or after its jobs"
        )
    length = None if seconds is None else parse_duration_option(seconds, "--run-seconds")
    if length is not None and length <= 0:
        raise UsageError(f"--run-seconds {seconds}: expected more than 0 seconds")

    def resize(treatment: Treatment) -> Treatment:
        return msgspec.structs.replace(treatment, iterations=None, operation_count=count, run_seconds=length)

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
    given = {"--max-rounds": options.max_rounds, "--budget": options.budget}
    own = scenario.until_verdict
    if options.until is None and own is None:
        for flag, value in given.items():
            if value is not None:
                raise UsageError(f"{flag} {value}: the scenario has a fixed number of repeats; add --until verdict")
        return scenario
    if options.until is None and options.max_rounds is None and options.budget is None:
        return scenario
    if len(scenario.treatments) < 2:  # noqa: PLR2004  a comparison takes two
        raise UsageError("--until verdict: the scenario has one treatment, and nothing to compare it with")
    if scenario.order == "blocked":
        raise UsageError(
            "--until verdict: it looks at whole rounds, and 'order: blocked' has none; add --set order=interleaved"
        )
    budget_s = own.budget_s if own is not None else None
    if options.budget is not None:
        budget_s = parse_duration_option(options.budget, "--budget")
        if budget_s <= 0:
            raise UsageError(f"--budget {options.budget}: expected more than 0 seconds")
    at_most = options.max_rounds or (own.at_most if own is not None else DEFAULT_MOST_ROUNDS)
    rule = UntilVerdict(at_most, budget_s)
    return replace(scenario, until_verdict=rule, repeats=(at_most,) * len(scenario.treatments))


def choose_seed(scenario: Scenario, options: LoadOptions) -> int:
    """Return the given seed, else the scenario's, else a random one."""
    if options.seed is not None:
        return options.seed
    return scenario.seed if scenario.seed is not None else secrets.randbelow(1 << 31)
