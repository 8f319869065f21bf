"""The options of `run-scenario`, in groups; `report-scenario` and `convert-scenario` share some of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Struct

from bench_common.argument_types import duration, duration_from, int_range, name, stats_name
from bench_common.cli import CommandParser, StoreOnce, engine_option, host_settings_option
from bench_common.engine_traits import EngineLabel
from bench_common.errors import UsageError
from bench_common.options import Option, add_options
from bench_common.units import format_duration
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.coordinator import Policy
from bench_master.coordinator.policy import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S
from bench_master.options.load import LoadOptions, length_option
from bench_master.options.network import NetworkOptions
from bench_master.options.report import ReportOptions
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
from bench_master.scenario.model import Definition
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions

DEFAULT_DIRECTORY: Final = Path("weighbridge-results")
"""Where stats files go if the command line names none."""
DEFAULT_POLICY: Final = Policy()
HEARTBEATS_PER_TIMEOUT: Final = 6
"""The least number of heartbeats within the timeout after which a silent worker counts as missing."""


_LABELLED: Final = (
    "by a label, whose program or socket the workers of this host use; without PLACE the label is one that other "
    "workers have"
)
_SIZE: Final = (
    *("user_count", "operation_count", "run_seconds", "until", "max_rounds", "budget_s", "rate", "arrivals"),
    "skip_host_ceiling",
)
_WITHOUT_FILE: Final[Mapping[str, Option | None]] = {
    "engine": engine_option(f"weigh under this engine, or {_LABELLED}", takes_names=True),
    "user_count": None,
    "run_seconds": length_option("--run-seconds"),
    "metric": None,
}
"""Options of a command that says itself what to measure: its -r are rounds, its --metric is one to measure, and its
jobs in flight are --concurrency."""
_timeout: Final = duration_from(0.5, ": a busy host is not a dead one")


class TimeoutOptions(Struct, frozen=True):
    """How long master and workers wait for each other, in seconds; a resumed run keeps it."""

    heartbeat_timeout_s: Annotated[
        float,
        Option(
            "--heartbeat-timeout TIME",
            "how long a worker may send no heartbeat before its jobs are retried "
            f"(default: {DEFAULT_POLICY.heartbeat_timeout_s:g}s)",
            type=_timeout,
        ),
    ] = DEFAULT_POLICY.heartbeat_timeout_s
    reconnect_timeout_s: Annotated[
        float,
        Option(
            "--reconnect-timeout TIME",
            "how long it may then stay away before its jobs count as lost "
            f"(default: {DEFAULT_POLICY.reconnect_timeout_s:g}s)",
            type=_timeout,
        ),
    ] = DEFAULT_POLICY.reconnect_timeout_s
    given_lease_s: Annotated[
        float | None,
        Option(
            "--lease TIME",
            "how long a worker goes on without its master before it cleans up "
            f"(default: {DEFAULT_LEASE_S:g}s; at least --heartbeat-timeout)",
            type=duration,
        ),
    ] = None

    @property
    def lease_s(self) -> float:
        """The lease: as given, else the default, or the heartbeat timeout if that is longer."""
        given_s = self.given_lease_s
        return max(DEFAULT_LEASE_S, self.heartbeat_timeout_s) if given_s is None else given_s

    @property
    def heartbeat_interval_s(self) -> float:
        """The time between heartbeats: short enough that some may be lost before a worker counts as missing."""
        return min(HEARTBEAT_INTERVAL_S, self.heartbeat_timeout_s / HEARTBEATS_PER_TIMEOUT)

    def check(self) -> None:
        """Raise `UsageError` for values that contradict each other."""
        if self.lease_s < self.heartbeat_timeout_s:
            raise UsageError(
                f"--lease {format_duration(self.lease_s)}: expected no less than --heartbeat-timeout "
                f"({self.heartbeat_timeout_s:g} s): workers would leave a master that still waits for them"
            )


class WorkerOptions(Struct, frozen=True):
    """Which workers run the jobs, apart from those that features start."""

    local_workers: Annotated[
        int | None,
        Option(
            "--workers N",
            "start N workers on this host (default: 1 unless -i, --expect or --zmq-bind-ip names other workers)",
            type=int_range(0),
        ),
    ] = None
    expect: Annotated[
        int | None,
        Option(
            "--expect N",
            "wait for N workers started with bench-worker (default: 1 if no worker is named otherwise, else 0)",
            type=int_range(0),
        ),
    ] = None
    worker_timeout_s: Annotated[
        float,
        Option("--worker-timeout TIME", "how long to wait for workers to connect (default: 60s)", type=duration),
    ] = 60.0
    environment: Annotated[
        str | None,
        Option(
            "--environment LABEL",
            "environment of the workers on this host (default: the scenario's if it has one, else local)",
            type=name,
        ),
    ] = None
    allow_swapoff: Annotated[
        bool,
        Option("--allow-swapoff", "let the scenario switch swap off on this host while a job runs; needs root"),
    ] = False
    allow_cold: Annotated[
        bool,
        Option(
            "--allow-cold",
            "let the scenario drop this host's page cache, or remove and fetch again the image, before each job; "
            "needs root",
        ),
    ] = False
    allow_host_settings: Annotated[
        tuple[str, ...],
        host_settings_option("let the scenario change these settings of this host's kernel while a trial runs"),
    ] = ()
    allow_host_mounts: Annotated[
        bool,
        Option(
            "--allow-host-mounts",
            "let the scenario use volumes and networks of this host's engines that others made, and any log driver; "
            "directories of this host that it names need no consent",
        ),
    ] = False
    engine: Annotated[tuple[EngineLabel, ...], engine_option(f"let the scenario name an engine {_LABELLED}")] = ()


class OutputOptions(Struct, frozen=True):
    """What a run shows and saves."""

    stats_file: Annotated[
        Path | None,
        Option(
            "-s, --stats-file NEW.stats.gz",
            f"where to save the run (default: a new file in {DEFAULT_DIRECTORY}/)",
            type=stats_name,
        ),
    ] = None
    disk_wait_s: Annotated[
        float,
        Option(
            "--disk-wait TIME",
            "how long a run whose stats file has no room on its disk pauses until there is some; then it is "
            "cancelled, with 0 at once (default: 10m)",
            type=duration,
        ),
    ] = 600.0
    no_report: Annotated[bool, Option("-R, --no-report", "save the run, but print no report")] = False
    progress: Annotated[
        str,
        Option(
            "--progress",
            "progress display on stderr (default: live on a terminal, a line every ten seconds elsewhere)",
            choices=MODES,
        ),
    ] = "auto"
    profile: Annotated[
        bool,
        Option(
            "--profile",
            "also save a CPU profile of the master and of each worker's load process, beside the stats file",
        ),
    ] = False


class _Only(argparse.Action):
    """Keeps a text with ``=``, which selects treatments, apart from hosts that a feature knows."""

    def __call__(self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        kept = "only_labels" if "=" in values else self.dest
        setattr(namespace, kept, [*getattr(namespace, kept, ()), values])


class _Resume(StoreOnce):
    """Stores the run to go on with, for which the otherwise required scenario may be left out."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        super().__call__(parser, namespace, values, option)
        assert isinstance(parser, CommandParser)
        for argument in parser.arguments:
            argument.required = False


class RunOptions(Struct, frozen=True, kw_only=True):
    """The command line of `run-scenario`."""

    file: Annotated[
        str | None,
        Option(
            "-f, --file X.yaml",
            "scenario file (- is standard input), or the name of a ready-made scenario",
            required=True,
        ),
    ] = None
    resume: Annotated[
        Path | None,
        Option(
            "--resume FILE",
            "continue a killed or interrupted run from its stats file, which holds its plan and options (-f can be "
            "left out): run what is missing",
            action=_Resume,
        ),
    ] = None
    more: Annotated[
        int | None,
        Option(
            "--more N",
            "with --resume: extend a complete run by N rounds; its comparisons are then judged at 2.5%%",
            type=int_range(1, 1000),
        ),
    ] = None
    definition: Definition
    set: Annotated[
        tuple[str, ...],
        Option(
            "--set KEY=VALUE",
            "override a key of the scenario, such as --set jobs.cpu.params.time=5s; repeatable",
        ),
    ] = ()
    only: Annotated[
        tuple[str, ...],
        Option(
            "--only LABEL=VALUE|HOST",
            "run only the treatments with this label, such as --only engine=docker; repeatable: a label's second "
            "value is an alternative, another label narrows the choice. Without =: use only this host, range of "
            "hosts or group of the inventory",
            action=_Only,
        ),
    ] = ()
    dry_run: Annotated[bool, Option("--dry-run", "print the plan and do nothing")] = False
    load: LoadOptions
    timeouts: TimeoutOptions
    workers: WorkerOptions
    network: NetworkOptions
    output: OutputOptions
    report: ReportOptions
    verdicts: VerdictOptions
    rerun_baseline: Annotated[
        Path | None,
        Option(
            "--rerun-baseline STATS",
            "run the treatments of an earlier run again, in turns with the new ones, and compare with them: two "
            "builds in one run",
        ),
    ] = None
    quiet: bool
    """Print only results and errors."""
    verbose: bool
    """Log more, here and in the workers."""
    terminal: TerminalOptions = DEFAULT_TERMINAL
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
    add_options(parser, RunOptions, "file", "resume", "more", "definition")
    groups = OptionGroups(parser, takes_file=True)
    add_shared_run_options(groups)
    add_options(groups.named(VERDICTS), RunOptions, "rerun_baseline")


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
    if isinstance(parser, CommandParser):
        parser.explain_unknown = _explain_key
        parser.explain_misused = _explain_bucketbench
    add_options(parser, RunOptions, "set", "only", "dry_run")
    add_options(parser, LoadOptions, "noop", "seed")
    instead = {} if groups.takes_file else _WITHOUT_FILE
    add_options(groups.named(WORKERS), WorkerOptions, **instead)
    add_options(groups.named(LOAD), LoadOptions, *_SIZE, **instead)
    add_options(groups.named(DISPATCH), LoadOptions, "look_ahead", "batch_size")
    results = groups.named(RESULTS)
    add_options(results, OutputOptions, "stats_file", "disk_wait_s", "no_report")
    add_options(results, ReportOptions, **instead)
    add_options(results, OutputOptions, "progress")
    add_options(results, LoadOptions, "keep", "overhead", "explain")
    add_options(results, OutputOptions, "profile")
    add_options(groups.named(VERDICTS), VerdictOptions)
    add_options(groups.named(NETWORK), TimeoutOptions)
    add_options(groups.named(NETWORK), NetworkOptions)
    for extension in run_extensions().values():
        extension.add_options(groups)
