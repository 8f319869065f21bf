"""The options of `run-scenario`, in groups; `report-scenario` and `convert-scenario` share some of them."""

from __future__ import annotations

import argparse
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from bench_common.cli import MAX_SEED, InvalidValue, file_name, int_range, name
from bench_common.errors import UsageError
from bench_common.treatment import ARRIVAL_PROCESSES, ArrivalProcess, OpenLoad, OverheadSampling, Treatment
from bench_common.units import format_duration, parse_duration, parse_rate
from bench_master.analysis.verdict_types import VerdictOptions
from bench_master.bucketbench import DefinitionFlags
from bench_master.bucketbench.schema import GRACE
from bench_master.commands.fleet_options import (
    InventoryOptions,
    NetworkOptions,
    StartOptions,
    add_inventory_options,
    add_listen_options,
    add_start_options,
    parse_duration_option,
)
from bench_master.commands.report_options import ReportOptions, add_report_options
from bench_master.commands.verdict_options import add_verdict_options
from bench_master.coordinator import Policy
from bench_master.coordinator.trial_scheduler import MAX_LOOK_AHEAD
from bench_master.progress import MODES
from bench_master.run.dispatcher import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S
from bench_master.scenario import Scenario
from bench_master.scenario.format import MAX_RATE_PER_S, OPEN_CONCURRENCY
from bench_master.scenario.model import UntilVerdict
from bench_master.verdicts.stopping import DEFAULT_MOST_ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS

DEFAULT_DIRECTORY: Final = Path("weighbridge-results")
"""Where stats files go if the command line names none."""
DEFAULT_POLICY: Final = Policy()
MIN_TIMEOUT_S: Final = 0.5
"""A shorter timeout would take a busy host for a dead one."""
HEARTBEATS_PER_TIMEOUT: Final = 6
"""The least number of heartbeats within the timeout after which a silent worker counts as missing."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
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
    """Jobs in each trial."""
    run_seconds: str | None = None
    """The length of each trial, as a duration."""
    rate: str | None = None
    """Jobs that arrive each second over all workers, such as ``200/s``."""
    arrivals: ArrivalProcess | None = None
    """How arrivals are spaced."""
    overhead: bool = False
    """Sample the memory and CPU time of the engines' own processes."""
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


def add_plan_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of `LoadOptions` that stand beside the scenario."""
    parser.add_argument("--noop", action="store_true", help="execute nothing: measure the harness's own maximum rate")
    parser.add_argument(
        "--seed",
        type=int_range(0, MAX_SEED),
        metavar="N",
        help="seed of the order of trials (default: the scenario's, else random; the stats file keeps it)",
    )


def add_load_options(group: argparse._ActionsContainer) -> None:
    """Add the size and the rate of the load."""
    group.add_argument(
        "-u", "--user-count", type=int_range(1), metavar="N", help="jobs in flight, over all workers together"
    )
    size = group.add_mutually_exclusive_group()
    size.add_argument("-o", "--operation-count", type=int_range(1), metavar="N", help="jobs in each trial")
    size.add_argument("-r", "--run-seconds", metavar="TIME", help="length of each trial, not of the run: 90, 15m")
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
        "needs -o or -r if the scenario counts iterations",
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


def apply_load_options(scenario: Scenario, options: LoadOptions) -> Scenario:
    """Return the scenario with the values that the command line overrides."""
    scenario = _apply_until(_apply_rate(_apply_size(scenario, options), options), options)
    if options.overhead and scenario.overhead is None:
        scenario = replace(scenario, overhead=OverheadSampling())
    if options.skip_host_ceiling or options.noop:
        scenario = replace(scenario, host_ceiling=False)
    return scenario


def _apply_size(scenario: Scenario, options: LoadOptions) -> Scenario:
    """Return the scenario with `-o` or `-r` in place of its own sizes."""
    count, seconds = options.operation_count, options.run_seconds
    if count is None and seconds is None:
        return scenario
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
            advice = "give the number of jobs (-o) or the length of a trial (-r)"
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


@dataclass(frozen=True, slots=True)
class WorkerTimeouts:
    """How long master and workers wait for each other, in seconds."""

    heartbeat_timeout_s: float
    """After so long without a heartbeat a worker counts as missing, and its jobs are retried."""
    reconnect_timeout_s: float
    """After so much longer a missing worker, and what it had, counts as lost."""
    lease_s: float
    """After so long without its master a worker cleans up and leaves the run."""

    @property
    def heartbeat_interval_s(self) -> float:
        """The time between heartbeats: short enough that some may be lost before a worker counts as missing."""
        return min(HEARTBEAT_INTERVAL_S, self.heartbeat_timeout_s / HEARTBEATS_PER_TIMEOUT)


@dataclass(frozen=True, slots=True)
class TimeoutOptions:
    """The timeouts between master and workers, as durations; a resumed run keeps them."""

    heartbeat_timeout: str | None = None
    """See `WorkerTimeouts.heartbeat_timeout_s`."""
    reconnect_timeout: str | None = None
    """See `WorkerTimeouts.reconnect_timeout_s`."""
    lease: str | None = None
    """See `WorkerTimeouts.lease_s`; None: the default, or the heartbeat timeout if that is longer."""

    def parse(self) -> WorkerTimeouts:
        """Return the timeouts in seconds; raise `UsageError` for values that contradict each other."""
        heartbeat_s = self._seconds("--heartbeat-timeout", self.heartbeat_timeout, DEFAULT_POLICY.heartbeat_timeout_s)
        reconnect_s = self._seconds("--reconnect-timeout", self.reconnect_timeout, DEFAULT_POLICY.reconnect_timeout_s)
        default_s = max(DEFAULT_LEASE_S, heartbeat_s)
        lease_s = default_s if self.lease is None else parse_duration_option(self.lease, "--lease")
        if lease_s < heartbeat_s:
            raise UsageError(
                f"--lease {self.lease}: expected no less than --heartbeat-timeout ({heartbeat_s:g} s): workers would "
                "leave a master that still waits for them"
            )
        return WorkerTimeouts(heartbeat_s, reconnect_s, lease_s)

    @staticmethod
    def _seconds(flag: str, text: str | None, default_s: float) -> float:
        if text is None:
            return default_s
        value_s = parse_duration_option(text, flag)
        if value_s < MIN_TIMEOUT_S:
            raise UsageError(f"{flag} {text}: expected {MIN_TIMEOUT_S:g} s or more: a busy host is not a dead one")
        return value_s


def add_timeout_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of `TimeoutOptions`."""
    parser.add_argument(
        "--heartbeat-timeout",
        metavar="TIME",
        help="how long a worker may send no heartbeat before its jobs are retried "
        f"(default: {DEFAULT_POLICY.heartbeat_timeout_s:g}s)",
    )
    parser.add_argument(
        "--reconnect-timeout",
        metavar="TIME",
        help="how long it may then stay away before its jobs count as lost "
        f"(default: {DEFAULT_POLICY.reconnect_timeout_s:g}s)",
    )
    parser.add_argument(
        "--lease",
        metavar="TIME",
        help="how long a worker goes on without its master before it cleans up "
        f"(default: {DEFAULT_LEASE_S:g}s; at least --heartbeat-timeout)",
    )


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Which workers run the jobs, apart from those of an inventory."""

    local_workers: int = 0
    """How many workers to start on this host."""
    expect: int | None = None
    """How many workers, started by hand, to wait for; None: 0 with others, else 1."""
    worker_timeout: str = "30s"
    """How long to wait for workers to connect, as a duration."""
    environment: str | None = None
    """The environment of the local workers; None: the scenario's only one, else ``local``."""
    allow_swapoff: bool = False
    """Let the scenario switch swap off on this host."""


def add_worker_options(group: argparse._ActionsContainer) -> None:
    """Add the options of `WorkerOptions`."""
    group.add_argument(
        "--workers",
        dest="local_workers",
        type=int_range(0),
        default=0,
        metavar="N",
        help="start N workers on this host",
    )
    group.add_argument(
        "--expect",
        type=int_range(0),
        metavar="N",
        help="wait for N workers that you start with bench-worker (default: 0 with --workers or -i, else 1)",
    )
    group.add_argument(
        "--worker-timeout",
        default="30s",
        metavar="TIME",
        help="how long to wait for workers to connect (default: 30s)",
    )
    group.add_argument(
        "--environment",
        type=name,
        metavar="LABEL",
        help="environment of the workers on this host (default: the scenario's if it has one, else local)",
    )
    group.add_argument(
        "--allow-swapoff",
        action="store_true",
        help="let the scenario switch swap off on this host while a job runs; needs root",
    )


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What a run shows and saves."""

    stats_file: Path | None = None
    """Where to save the run; None: a new file in `DEFAULT_DIRECTORY`."""
    no_report: bool = False
    """Print no report."""
    progress: str = "auto"
    """How to show progress, one of `MODES`."""
    trace: bool = False
    """Also save every operation on a time axis."""
    profile: bool = False
    """Also save where the harness's own processes spend their time."""


def add_output_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of `OutputOptions`, the report's, and those of the load that decide what is left or sampled."""
    group.add_argument(
        "-s",
        "--stats-file",
        type=file_name,
        metavar="FILE",
        help=f"where to save the run (default: a new file in {DEFAULT_DIRECTORY}/)",
    )
    group.add_argument("-R", "--no-report", action="store_true", help="save the run, but print no report")
    add_report_options(group)
    group.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help="progress display on stderr (default: live on a terminal, else chars)",
    )
    group.add_argument(
        "-k",
        "--keep",
        action="store_true",
        help="leave containers as the jobs left them; cleanup-containers removes them",
    )
    add_overhead_option(group)
    group.add_argument(
        "--trace",
        action="store_true",
        help="also save every operation on a time axis, for Perfetto or Chrome's tracing, beside the stats file",
    )
    group.add_argument(
        "--profile",
        action="store_true",
        help="also save a CPU profile of the master and of each worker's load process, beside the stats file",
    )


def add_overhead_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--overhead``."""
    parser.add_argument(
        "--overhead",
        action="store_true",
        help="sample the memory and CPU time of the engines' own processes, as the scenario key 'overhead' does",
    )


def add_definition_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `DefinitionFlags`, except ``--overhead``, which stands elsewhere in each command."""
    group = parser.add_argument_group("bucketbench definitions")
    group.add_argument(
        "--legacy", action="store_true", help="run each driver with 1, 2, ... threads up to its maximum, not only all"
    )
    group.add_argument(
        "--drivers",
        type=_driver_names,
        default=(),
        metavar="A,B",
        help="run only these drivers, by type; the second one of a type is called Docker-2",
    )
    group.add_argument(
        "--stop-grace",
        dest="grace",
        type=_grace_period,
        default=GRACE,
        metavar="TIME",
        help="how long `stop` waits before it kills, under every driver (default: %(default)s)",
    )


def _grace_period(text: str) -> str:
    try:
        return format_duration(parse_duration(text))
    except ValueError as error:
        raise InvalidValue(str(error)) from error


def _driver_names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not names:
        raise InvalidValue(f"{text!r}: expected names of drivers, such as Docker,CRun")
    return names


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The command line of `run-scenario`."""

    file: str | None
    """The scenario: a file, or the name of a ready-made one; None only with `resume`."""
    resume: Path | None
    """The stats file of the run to continue."""
    more: int | None
    """By how many rounds to extend the run in `resume`, which is complete."""
    set: tuple[str, ...]
    """Keys of the scenario to override, as ``KEY=VALUE``."""
    definition: DefinitionFlags
    """How to read the scenario if it is a bucketbench definition."""
    dry_run: bool
    """Print the plan and do nothing."""
    load: LoadOptions
    """What every trial does."""
    timeouts: TimeoutOptions
    """How long master and workers wait for each other."""
    workers: WorkerOptions
    """The workers of this host, and those started by hand."""
    fleet: InventoryOptions
    """The hosts of an inventory."""
    start: StartOptions
    """How workers start there."""
    network: NetworkOptions
    """Where the master listens."""
    output: OutputOptions
    """What the run shows and saves."""
    report: ReportOptions
    """How the report is shown."""
    verdicts: VerdictOptions
    """What the report compares with what."""
    rerun_baseline: Path | None
    """Stats file of an earlier run whose treatments run again."""
    quiet: bool
    """Print only results and errors."""
    verbose: bool
    """Log more, here and in the workers."""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `RunOptions`."""
    scenario = parser.add_argument(
        "-f",
        "--file",
        required=True,
        metavar="X.yaml",
        help="scenario file (- is standard input), or the name of a ready-made scenario",
    )
    _add_resume_option(parser, scenario)
    add_definition_options(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the scenario, such as --set jobs.cpu.params.time=5s; repeatable",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and do nothing")
    add_plan_options(parser)
    add_worker_options(parser.add_argument_group("workers"))
    hosts = parser.add_argument_group("workers on the hosts of an inventory (run-scenario starts and stops them)")
    add_inventory_options(hosts, required=False)
    add_start_options(hosts)
    add_load_options(parser.add_argument_group("load (overrides the scenario)"))
    add_dispatch_options(parser.add_argument_group("dispatch"))
    add_output_options(parser.add_argument_group("results"))
    verdicts = parser.add_argument_group("verdicts")
    add_verdict_options(verdicts)
    verdicts.add_argument(
        "--rerun-baseline",
        type=file_name,
        metavar="STATS",
        help="run the treatments of an earlier run again, in turns with the new ones, and compare with them: two "
        "builds in one run",
    )
    network = parser.add_argument_group("network (for workers on other hosts)")
    add_timeout_options(network)
    add_listen_options(network, default_ip="none: workers of this user on this machine; with -i all", work=True)


def _add_resume_option(parser: argparse.ArgumentParser, scenario: argparse.Action) -> None:
    """Add ``--resume``, with which the otherwise required argument `scenario` may be left out."""

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
        help="continue a killed or interrupted run from its stats file, which holds its plan and options (-f can be "
        "left out): run what is missing",
    )
    parser.add_argument(
        "--more",
        type=int_range(1, 1000),
        metavar="N",
        help="with --resume: extend a complete run by N rounds; its comparisons are then judged at 2.5%%",
    )
