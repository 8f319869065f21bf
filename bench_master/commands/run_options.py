"""The command line of `run-scenario`: what may be said of workers, load, hand-out, results and network.

What the command line of `run-scenario` changes in a scenario: size, rate, host ceiling, what is watched, seed.

How long silence between master and workers is borne: for networks that are slow, that stutter, or that break.

What `run-scenario` and `report-scenario` share: how a report is shown.

What `run-scenario` and `convert-scenario` share: what can be said of a bucketbench definition besides its text.

What a resumed run takes from its stats file in place of the command line, and what may be said anew.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench_common.cli import (
    CONTROL_PORT,
    MAX_SEED,
    RESULTS_PORT,
    WORK_PORT,
    file_name,
    int_range,
    name,
    port,
    strip_brackets,
)
from bench_common.errors import UsageError
from bench_common.treatment import ARRIVAL_PROCESSES, OpenLoad, OverheadSampling, Treatment
from bench_common.units import format_duration, parse_duration, parse_rate
from bench_master.analysis.document import DEFAULT_PERCENTILE
from bench_master.bucketbench import DefinitionFlags, load_scenario_or_definition
from bench_master.bucketbench.schema import GRACE
from bench_master.commands.fleet_options import add_inventory_options, add_start_options
from bench_master.commands.run_signals import DEFAULT_DIRECTORY
from bench_master.coordinator import Policy
from bench_master.coordinator.trial_scheduler import MAX_LOOK_AHEAD
from bench_master.progress.choice import MODES
from bench_master.reports import report_formats
from bench_master.run.dispatcher import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S
from bench_master.run.resume import ResumableRun
from bench_master.scenario import Scenario
from bench_master.scenario.format import MAX_RATE_PER_S, OPEN_CONCURRENCY
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source


def apply_load_options(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with what the command line says in the place of its own."""
    scenario = _apply_rate(_apply_size(scenario, arguments), arguments)
    if arguments.overhead and scenario.overhead is None:
        scenario = replace(scenario, overhead=OverheadSampling())
    if arguments.skip_host_ceiling or arguments.noop:
        scenario = replace(scenario, host_ceiling=False)
    return scenario


def _apply_size(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with `-o` or `-r` in the place of its own sizes."""
    count, seconds = arguments.operation_count, arguments.run_seconds
    if count is None and seconds is None:
        return scenario
    length = None if seconds is None else parse_duration_option(seconds, "--run-seconds")
    if length is not None and length <= 0:
        raise UsageError(f"--run-seconds {seconds}: expected more than 0 seconds")

    def resize(treatment: Treatment) -> Treatment:
        return replace(treatment, iterations=None, operation_count=count, run_seconds=length)

    return replace(scenario, treatments=tuple(resize(treatment) for treatment in scenario.treatments))


def _apply_rate(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with `--rate` and `--arrivals` in the place of its own."""
    if arguments.rate is None and arguments.arrivals is None:
        return scenario
    rate = None
    if arguments.rate is not None:
        try:
            rate = parse_rate(arguments.rate)
        except ValueError as error:
            raise UsageError(f"--rate {arguments.rate}: {error}") from error
        if not 0 < rate <= MAX_RATE_PER_S:
            raise UsageError(f"--rate {arguments.rate}: expected more than 0 and at most {MAX_RATE_PER_S:g} a second")

    def pace(treatment: Treatment) -> Treatment:
        load = treatment.open_load
        if rate is None and load is None:
            raise UsageError(
                f"--arrivals {arguments.arrivals}: nothing arrives at a rate; give --rate, such as 200/s"
            )
        if treatment.iterations is not None:
            advice = "say how many jobs (-o) or how long (-r)"
            raise UsageError(f"--rate {arguments.rate}: the scenario counts iterations of a slot; {advice}")
        if load is None:
            assert rate is not None
            width = treatment.concurrency if treatment.concurrency > 1 else OPEN_CONCURRENCY
            load, treatment = OpenLoad(rate), replace(treatment, concurrency=width)
        paced = replace(load, rate_per_s=rate or load.rate_per_s, process=arguments.arrivals or load.process)
        return replace(treatment, open_load=paced)

    return replace(scenario, treatments=tuple(pace(treatment) for treatment in scenario.treatments))


def choose_seed(scenario: Scenario, arguments: argparse.Namespace) -> int:
    """Return the seed that is given, else the scenario's, else one that is drawn."""
    if arguments.seed is not None:
        return int(arguments.seed)
    return scenario.seed if scenario.seed is not None else secrets.randbelow(1 << 31)


def parse_duration_option(text: str, flag: str) -> float:
    """Return the seconds that a flag's text stands for; raise `UsageError` where it stands for none."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}") from error


DEFAULT_POLICY: Final = Policy()
MIN_TIMEOUT_S: Final = 0.5
"""Below this a host that is only busy would be taken for dead."""
HEARTBEATS_PER_TIMEOUT: Final = 6
"""How many heartbeats there are in the time after which a silent worker is missed, at least."""


@dataclass(frozen=True, slots=True)
class WorkerTimeouts:
    """What a run is to bear, all in seconds; `heartbeat_s` is the time between two signs of life."""

    heartbeat_timeout_s: float
    reconnect_timeout_s: float
    lease_s: float

    @property
    def heartbeat_s(self) -> float:
        """Short enough that some heartbeats may be lost before a worker is missed."""
        return min(HEARTBEAT_INTERVAL_S, self.heartbeat_timeout_s / HEARTBEATS_PER_TIMEOUT)


def add_timeout_options(parser: argparse._ActionsContainer) -> None:
    """Add the options to a group."""
    parser.add_argument(
        "--heartbeat-timeout",
        metavar="TIME",
        help="how long a worker may be silent before its jobs are tried again (default: "
        f"{DEFAULT_POLICY.heartbeat_timeout_s:g}s)",
    )
    parser.add_argument(
        "--reconnect-timeout",
        metavar="TIME",
        help=f"how long it is awaited then before they are lost (default: {DEFAULT_POLICY.reconnect_timeout_s:g}s)",
    )
    parser.add_argument(
        "--lease",
        metavar="TIME",
        help="how long a worker goes on without a word of its master before it cleans up "
        f"(default: {DEFAULT_LEASE_S:g}s; no less than --heartbeat-timeout)",
    )


def parse_timeouts(heartbeat_timeout: str | None, reconnect_timeout: str | None, lease: str | None) -> WorkerTimeouts:
    """Return what the options say; raise `UsageError` for what makes no sense."""
    heartbeat_flag, reconnect_flag = "--heartbeat-timeout", "--reconnect-timeout"
    heartbeat_s, reconnect_s = DEFAULT_POLICY.heartbeat_timeout_s, DEFAULT_POLICY.reconnect_timeout_s
    if heartbeat_timeout is not None:
        heartbeat_s = parse_duration_option(heartbeat_timeout, heartbeat_flag)
    if reconnect_timeout is not None:
        reconnect_s = parse_duration_option(reconnect_timeout, reconnect_flag)
    given = ((heartbeat_flag, heartbeat_timeout, heartbeat_s), (reconnect_flag, reconnect_timeout, reconnect_s))
    for flag, text, seconds in given:
        if seconds < MIN_TIMEOUT_S:
            raise UsageError(f"{flag} {text}: expected {MIN_TIMEOUT_S:g} s or more: a busy host is not a dead one")
    lease_s = max(DEFAULT_LEASE_S, heartbeat_s) if lease is None else parse_duration_option(lease, "--lease")
    if lease_s < heartbeat_s:
        raise UsageError(
            f"--lease {lease}: expected no less than {heartbeat_flag} ({heartbeat_s:g} s): workers would leave a "
            "master that still waits for them"
        )
    return WorkerTimeouts(heartbeat_s, reconnect_s, lease_s)


def add_report_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options of both commands."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument(
        "--format", default="text", choices=sorted(report_formats()), help="format of the report (default: text)"
    )
    formats.add_argument("--csv", action="store_const", const="csv", dest="format", help="the same as --format csv")
    parser.add_argument(
        "--pctile",
        type=percentile,
        default=DEFAULT_PERCENTILE,
        metavar="P",
        help="the percentile to show, above 0 and below 100 (default: 95)",
    )


def percentile(text: str) -> float:
    """Return the percentile that `text` says; raise `argparse.ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 100:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r}: a number above 0 and below 100 expected, such as 95 or 99.9")
    return value


def add_definition_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands, but for ``--overhead``, which stands elsewhere in each."""
    group = parser.add_argument_group("bucketbench definitions")
    group.add_argument(
        "--legacy", action="store_true", help="each driver with 1, 2 ... and all of its threads, not only all"
    )
    group.add_argument(
        "--drivers",
        type=_names,
        default=(),
        metavar="A,B",
        help="only these drivers, by type; the second of a type is called Docker-2",
    )
    group.add_argument(
        "--stop-grace",
        type=_grace,
        default=GRACE,
        metavar="TIME",
        help="how long `stop` waits under every driver before it kills (default: %(default)s)",
    )


def definition_flags(arguments: argparse.Namespace) -> DefinitionFlags:
    """Return what the command line says."""
    return DefinitionFlags(arguments.legacy, arguments.overhead, arguments.drivers, arguments.stop_grace)


def _grace(text: str) -> str:
    try:
        return format_duration(parse_duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r}: names of drivers expected, such as Docker,CRun")
    return names


FIXED_OPTIONS: Final[Mapping[str, Any]] = {
    "noop": False,
    "keep": False,
    "user_count": None,
    "operation_count": None,
    "run_seconds": None,
    "rate": None,
    "arrivals": None,
    "overhead": False,
    "skip_host_ceiling": False,
    "look_ahead": True,
    "batch_size": None,
    "seed": None,
    "heartbeat_timeout": None,
    "reconnect_timeout": None,
    "lease": None,
}
"""Options that belong to the plan or to the load, each with its default: a resumed run has those of its beginning."""

WORKER_OPTIONS: Final = ("workers", "expect", "environment")
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
    return {name: getattr(arguments, name) for name in (*FIXED_OPTIONS, *WORKER_OPTIONS)}


def restore_options(arguments: argparse.Namespace, past: ResumableRun) -> None:
    """Set the options that the run was begun with; raise `UsageError` where other ones are given."""
    path, options = past.stats.path, past.header.get("options", {})
    stored = {**FIXED_OPTIONS, **options, "seed": past.header["seed"], "noop": bool(past.header["noop"])}
    for key, default in FIXED_OPTIONS.items():
        given = getattr(arguments, key)
        if given not in (default, stored[key]):
            flag = "--" + key.replace("_", "-")
            raise UsageError(f"{flag}: {path} was begun with another value, and goes on as it began: leave it out")
        setattr(arguments, key, stored[key])
    if arguments.set and arguments.file is None:
        raise UsageError(f"--set {arguments.set[0]}: {path} goes on with the scenario that it has: leave it out")
    if arguments.stats_file is not None and arguments.stats_file.resolve() != path.resolve():
        raise UsageError(f"--stats-file {arguments.stats_file}: what is resumed goes on in {path}: leave it out")
    if not arguments.workers and arguments.expect is None:
        arguments.workers, arguments.expect = options.get("workers") or 0, options.get("expect")
    if arguments.environment is None:
        arguments.environment = options.get("environment")


def resumed_scenario(arguments: argparse.Namespace, past: ResumableRun) -> Scenario:
    """Return the scenario that is named, else the one in the stats file as it was resolved there."""
    if arguments.file is not None:
        return load_scenario_or_definition(arguments.file, arguments.set, definition_flags(arguments))
    stored = past.header["scenario"]
    return parse_scenario(Source(str(stored["path"]), json.dumps(stored["document"])))


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run-scenario``."""
    parser.epilog = (
        "Ctrl-C once finishes the running jobs and saves; twice aborts them and cleans up. Either way the stats\n"
        "file is good. Exit codes: 0 ok, 1 a threshold failed, 2 scenario error, 3 run incomplete, 130 interrupted."
    )
    named = parser.add_argument(
        "-f", "--file", required=True, metavar="X.yaml", help="a scenario's file, or a ready-made one's name"
    )
    add_resume_option(parser, named)
    add_definition_options(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key: --set jobs.cpu.params.time=5s",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and touch nothing")
    parser.add_argument(
        "--noop", action="store_true", help="the whole path with the execution free: the harness's own ceiling"
    )
    parser.add_argument(
        "--seed",
        type=int_range(0, MAX_SEED),
        metavar="N",
        help="seed of the order (default: the scenario's, else drawn and saved)",
    )

    who = parser.add_argument_group("workers")
    who.add_argument("--workers", type=int_range(0), default=0, metavar="N", help="start N workers on this host")
    who.add_argument(
        "--expect",
        type=int_range(0),
        metavar="N",
        help="wait for N workers started by hand with bench-worker (default: 0 with --workers, else 1)",
    )
    who.add_argument(
        "--worker-timeout", default="30s", metavar="TIME", help="how long to wait for them (default: 30s)"
    )
    who.add_argument(
        "--environment",
        type=name,
        metavar="LABEL",
        help="what local workers call their environment (default: the scenario's if it has one, else local)",
    )

    who.add_argument(
        "--allow-swapoff",
        action="store_true",
        help="let the scenario switch swap off on this host while a job runs; needs root",
    )

    fleet = parser.add_argument_group("workers on the hosts of an inventory: started, run and ended again")
    add_inventory_options(fleet, required=False)
    add_start_options(fleet)

    load = parser.add_argument_group("load, in place of what the scenario says")
    load.add_argument(
        "-u", "--user-count", type=int_range(1), metavar="N", help="jobs in flight over all workers together"
    )
    size = load.add_mutually_exclusive_group()
    size.add_argument("-o", "--operation-count", type=int_range(1), metavar="N", help="jobs in each trial")
    size.add_argument("-r", "--run-seconds", metavar="TIME", help="length of each trial, such as 90 or 15m")
    load.add_argument(
        "--rate",
        metavar="RATE",
        help="jobs that arrive each second over all workers, such as 200/s, whether earlier ones have ended or not; "
        "needs -o or -r where the scenario counts iterations",
    )
    load.add_argument(
        "--arrivals", choices=ARRIVAL_PROCESSES, help="how they are spaced (default: the scenario's, else constant)"
    )

    flow = parser.add_argument_group("hand-out")
    flow.add_argument(
        "--look-ahead",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let some jobs wait at a worker beyond those that it runs, where they are fast and independent "
        "(default: yes)",
    )
    flow.add_argument(
        "--batch-size",
        type=int_range(1, MAX_LOOK_AHEAD),
        metavar="N",
        help="jobs and results that travel together (default: tuned to the pace)",
    )

    out = parser.add_argument_group("results")
    out.add_argument(
        "-s",
        "--stats-file",
        type=file_name,
        metavar="FILE",
        help=f"where to save the run (default: a new file in {DEFAULT_DIRECTORY}/)",
    )
    out.add_argument("-R", "--no-report", action="store_true", help="save only, print no report")
    add_report_options(out)
    out.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help="what to show meanwhile, on stderr (default: live on a terminal, else chars)",
    )
    out.add_argument(
        "-k",
        "--keep",
        action="store_true",
        help="leave containers as the jobs left them; cleanup-containers removes them",
    )
    load.add_argument(
        "--skip-host-ceiling",
        action="store_true",
        help="do not measure the host ceiling, even where the scenario asks for it",
    )
    out.add_argument(
        "--overhead",
        action="store_true",
        help="sample the memory and CPU time of the engines' own processes, as the scenario's key does",
    )
    out.add_argument(
        "--trace",
        action="store_true",
        help="save every operation on a time axis, for Perfetto's and Chrome's viewers, beside the stats file",
    )
    out.add_argument(
        "--profile",
        action="store_true",
        help="save where the master and the workers' load processes spend their time, beside the stats file",
    )

    net = parser.add_argument_group("network, for workers on other hosts")
    add_timeout_options(net)
    net.add_argument(
        "--zmq-bind-ip",
        type=strip_brackets,
        metavar="IP",
        help="address to listen on (default: none with --workers alone, else 127.0.0.1)",
    )
    net.add_argument(
        "--zmq-control-port", type=port, default=CONTROL_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    net.add_argument(
        "--zmq-results-port", type=port, default=RESULTS_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    net.add_argument(
        "--zmq-work-port",
        type=port,
        default=WORK_PORT,
        metavar="PORT",
        help="first of the lanes' ports, one a worker (default: %(default)s)",
    )
    net.add_argument("--key-dir", type=Path, metavar="DIR", help="where `bench-master keygen` put the keys")
    net.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond loopback without keys: whoever reaches the port can take part",
    )
