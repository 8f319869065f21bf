"""The options of `run-scenario`, in groups; `report-scenario` and `convert-scenario` share some of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench_common.argument_types import InvalidValue, file_name, int_range, name
from bench_common.cli import CommandParser, StoreOnce, add_engine_option, add_host_settings_option
from bench_common.engine_traits import EngineLabel
from bench_common.errors import UsageError
from bench_common.units import format_duration, parse_duration
from bench_master.analysis.verdict_types import VerdictOptions
from bench_master.coordinator import Policy
from bench_master.coordinator.policy import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S
from bench_master.options.durations import parse_duration_option
from bench_master.options.load import (
    LoadOptions,
    add_dispatch_options,
    add_load_options,
    add_plan_options,
)
from bench_master.options.network import NetworkOptions, add_listen_options
from bench_master.options.report import ReportOptions, add_report_options
from bench_master.options.verdict import add_verdict_options
from bench_master.progress import MODES
from bench_master.run_extension import (
    DISPATCH,
    LOAD,
    NETWORK,
    NO_EXTENSIONS,
    RESULTS,
    VERDICTS,
    WORKERS,
    ExtensionOptions,
    OptionGroups,
    run_extensions,
    started_by_features,
)
from bench_master.scenario.model import DefinitionFlags
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions

DEFAULT_DIRECTORY: Final = Path("weighbridge-results")
"""Where stats files go if the command line names none."""
DEFAULT_POLICY: Final = Policy()
MIN_TIMEOUT_S: Final = 0.5
"""A shorter timeout would take a busy host for a dead one."""
HEARTBEATS_PER_TIMEOUT: Final = 6
"""The least number of heartbeats within the timeout after which a silent worker counts as missing."""


class WorkerTimeouts(Struct, frozen=True):
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


class TimeoutOptions(Struct, frozen=True):
    """The timeouts between master and workers, as durations; a resumed run keeps them."""

    heartbeat_timeout: str | None = None
    reconnect_timeout: str | None = None
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


class WorkerOptions(Struct, frozen=True):
    """Which workers run the jobs, apart from those that features start."""

    local_workers: int | None = None
    """How many workers to start on this host; None: see `RunOptions.local_workers`."""
    expect: int | None = None
    """How many workers, started by hand, to wait for; None: 0 with others, else 1."""
    worker_timeout: str = "60s"
    """How long to wait for workers to connect, as a duration."""
    environment: str | None = None
    """The environment of the local workers; None: the scenario's only one, else ``local``."""
    allow_swapoff: bool = False
    """Let the scenario switch swap off on this host."""
    allow_cold: bool = False
    """Let the scenario drop this host's page cache and fetch images again before a job."""
    allow_host_settings: tuple[str, ...] = ()
    """Let the scenario change these settings of this host's kernel."""
    allow_host_mounts: bool = False
    """Let the scenario use what others made on this host."""
    engine: tuple[EngineLabel, ...] = ()
    """Labels of engines that workers have; with their places for the workers of this host."""


def add_worker_options(group: argparse._ActionsContainer, *, takes_engines: bool = False) -> None:
    """Add the options of `WorkerOptions`; with `takes_engines`, ``--engine`` takes the name of an engine, too."""
    group.add_argument(
        "--workers",
        dest="local_workers",
        type=int_range(0),
        metavar="N",
        help="start N workers on this host (default: 1 unless -i, --expect or --zmq-bind-ip names other workers)",
    )
    group.add_argument(
        "--expect",
        type=int_range(0),
        metavar="N",
        help="wait for N workers started with bench-worker (default: 1 if no worker is named otherwise, else 0)",
    )
    group.add_argument(
        "--worker-timeout",
        default="60s",
        metavar="TIME",
        help="how long to wait for workers to connect (default: 60s)",
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
    group.add_argument(
        "--allow-cold",
        action="store_true",
        help="let the scenario drop this host's page cache, or remove and fetch again the image, before each job; "
        "needs root",
    )
    add_host_settings_option(group, "let the scenario change these settings of this host's kernel while a trial runs")
    group.add_argument(
        "--allow-host-mounts",
        action="store_true",
        help="let the scenario use volumes and networks of this host's engines that others made, and any log driver; "
        "directories of this host that it names need no consent",
    )
    add_engine_option(
        group,
        ("weigh under this engine, or " if takes_engines else "let the scenario name an engine ")
        + "by a label, whose program or socket the workers of this host use; without PLACE the label is one that "
        "other workers have",
        takes_names=takes_engines,
    )


class OutputOptions(Struct, frozen=True):
    """What a run shows and saves."""

    stats_file: Path | None = None
    """Where to save the run; None: a new file in `DEFAULT_DIRECTORY`."""
    no_report: bool = False
    progress: str = "auto"
    """How to show progress, one of `MODES`."""
    profile: bool = False
    """Also save where the harness's own processes spend their time."""
    disk_wait: str = "10m"
    """How long to wait for room on the disk of the stats file, as a duration."""


def add_output_options(group: argparse._ArgumentGroup) -> None:
    """Add the options of `OutputOptions`, the report's, and those of the load that decide what is left or sampled."""
    group.add_argument(
        "-s",
        "--stats-file",
        type=file_name,
        metavar="FILE",
        help=f"where to save the run (default: a new file in {DEFAULT_DIRECTORY}/)",
    )
    group.add_argument(
        "--disk-wait",
        default="10m",
        metavar="TIME",
        help="how long a run whose stats file has no room on its disk pauses until there is some; then it is "
        "cancelled, with 0 at once (default: 10m)",
    )
    group.add_argument("-R", "--no-report", action="store_true", help="save the run, but print no report")
    add_report_options(group)
    group.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help="progress display on stderr (default: live on a terminal, a line every ten seconds elsewhere)",
    )
    group.add_argument(
        "-k",
        "--keep",
        action="store_true",
        help="leave containers as the jobs left them; cleanup-containers removes them",
    )
    add_overhead_option(group)
    group.add_argument(
        "--explain",
        action="store_true",
        help="after the measured trials trace a few jobs of each treatment, and report where their time goes, as the "
        "scenario key 'explain' does",
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
        metavar="TIME",
        help="how long `stop` waits before it kills, under every driver; 0 is SIGKILL alone (default: what "
        "bucketbench does under each: 30s for Docker, 10s for DockerCLI, 0 for the others)",
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


class RunOptions(Struct, frozen=True):
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
    timeouts: TimeoutOptions
    """How long master and workers wait for each other."""
    workers: WorkerOptions
    """The workers of this host, and those started by hand."""
    network: NetworkOptions
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
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How the report is shown on a terminal."""
    only: tuple[str, ...] = ()
    """What ``--only`` names that is no label: hosts, where a feature knows any."""
    extensions: ExtensionOptions = NO_EXTENSIONS

    @property
    def local_workers(self) -> int:
        """How many workers start on this host: as given, else one unless other workers are named.

        Who says where the master listens wants workers of other hosts: one here would measure the wrong host.
        """
        if self.workers.local_workers is not None:
            return self.workers.local_workers
        others = self.workers.expect is not None or started_by_features(self)
        return 0 if others or self.network.bind_ip is not None else 1


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `RunOptions`."""
    add_file_options(parser)
    groups = OptionGroups(parser, takes_file=True)
    add_shared_run_options(groups)
    groups.named(VERDICTS).add_argument(
        "--rerun-baseline",
        type=file_name,
        metavar="STATS",
        help="run the treatments of an earlier run again, in turns with the new ones, and compare with them: two "
        "builds in one run",
    )


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add what names the scenario, or the run to go on with."""
    scenario = parser.add_argument(
        "-f",
        "--file",
        required=True,
        metavar="X.yaml",
        help="scenario file (- is standard input), or the name of a ready-made scenario",
    )
    _add_resume_option(parser, scenario)
    add_definition_options(parser)


_BUCKETBENCH_OPTIONS: Final = {
    "-b": "-f FILE",
    "--benchmark": "-f FILE",
    "-l": "--legacy",
    "-o": "--overhead",
    "-s": "--skip-host-ceiling",
    "--skip-limit": "--skip-host-ceiling",
    "-t": "nothing here: it traces runc alone, and no runc of today takes it",
    "--log-level": "nothing here: what happens is on stderr, and --debug adds tracebacks",
}
"""bucketbench's options that are none here, or mean something else, and what has their meaning."""


def _explain_bucketbench(flag: str) -> str:
    """Return what has the meaning here that an option has in bucketbench, as the end of a message; else nothing."""
    ours = _BUCKETBENCH_OPTIONS.get(flag)
    return f" (bucketbench's {flag} is {ours})" if ours else ""


def _explain_key(flag: str) -> str:
    """Return what an unknown option means, a key of the scenario or an option of bucketbench's; else nothing."""
    if flag in _BUCKETBENCH_OPTIONS:
        return _explain_bucketbench(flag)
    from bench_master.scenario.format import scenario_format

    key = flag.lstrip("-").replace("-", "_")
    known = {field.name for field in scenario_format().scenario.fields}
    return f" (a key of the scenario: '--set {key}=...')" if key in known else ""


def add_shared_run_options(groups: OptionGroups) -> None:
    """Add the options of `RunOptions` that hold for every scenario, and those of features.

    A command that takes its scenario from elsewhere than a file has these alone.
    """
    parser = groups.parser
    parser.set_defaults(file=None, resume=None, more=None, rerun_baseline=None)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the scenario, such as --set jobs.cpu.params.time=5s; repeatable",
    )
    if isinstance(parser, CommandParser):
        parser.explain_unknown = _explain_key
        parser.explain_misused = _explain_bucketbench
    _add_only_option(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and do nothing")
    add_plan_options(parser)
    add_worker_options(groups.named(WORKERS), takes_engines=not groups.takes_file)
    add_load_options(groups.named(LOAD), short_length=groups.takes_file)
    add_dispatch_options(groups.named(DISPATCH))
    add_output_options(groups.named(RESULTS))
    add_verdict_options(groups.named(VERDICTS))
    network = groups.named(NETWORK)
    add_timeout_options(network)
    add_listen_options(network, default_ip="none: workers of this user on this machine; with -i all", work=True)
    for extension in run_extensions().values():
        extension.add_options(groups)


def _add_only_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--only``: a text with ``=`` selects treatments, any other one hosts that a feature knows."""

    class Only(argparse.Action):
        def __call__(
            self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
        ) -> None:
            kept = "only_labels" if "=" in values else self.dest
            setattr(namespace, kept, [*getattr(namespace, kept), values])

    parser.set_defaults(only_labels=[])
    parser.add_argument(
        "--only",
        action=Only,
        default=[],
        metavar="LABEL=VALUE|HOST",
        help="run only the treatments with this label, such as --only engine=docker; repeatable: a label's second "
        "value is an alternative, another label narrows the choice. Without =: use only this host, range of hosts or "
        "group of the inventory",
    )


def _add_resume_option(parser: argparse.ArgumentParser, scenario: argparse.Action) -> None:
    """Add ``--resume``, with which the otherwise required argument `scenario` may be left out."""

    class Resume(StoreOnce):
        def __call__(
            self,
            parser: argparse.ArgumentParser,
            namespace: argparse.Namespace,
            values: Any,
            option: str | None = None,
        ) -> None:
            super().__call__(parser, namespace, values, option)
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
