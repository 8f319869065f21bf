"""`bench-master run-scenario`: run a scenario, save its stats file, show the report."""

from __future__ import annotations

import argparse
import logging
import secrets
import shlex
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent

from bench_common.arguments import MAX_SEED, MAX_SLOTS, file_name, name, port, whole_number
from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_common.ports import CONTROL_PORT, RESULTS_PORT, WORK_PORT
from bench_common.records import KEPT_PREFIX
from bench_common.spec import Treatment
from bench_common.statsfile import StatsFile
from bench_common.units import parse_duration
from bench_master.commands.fleet_options import add_inventory, add_start
from bench_master.commands.fleet_run import bind_ip_for, crewed, planned_crew
from bench_master.commands.report_options import add_report_options
from bench_master.coordinator import Policy
from bench_master.coordinator.shares import MAX_AHEAD
from bench_master.plan import Plan, look_ahead_note, make_plan
from bench_master.plan_text import render_plan
from bench_master.progress.choice import MODES, choose_view
from bench_master.progress.quantities import one_line
from bench_master.reports import ReportSource, report_named
from bench_master.run.access import load_keys
from bench_master.run.endpoints import Endpoints, Ports
from bench_master.run.header import build_header, operation_names
from bench_master.run.journal import Journal
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.profiles import Profiles
from bench_master.run.session import Result, Session, SessionOptions
from bench_master.run.switchboard import Switchboard
from bench_master.scenario import Scenario, load_scenario
from bench_master.table import counted
from bench_master.tally import Tally

log = logging.getLogger(__name__)

NAME = "run-scenario"
HELP = "run a scenario on local or remote workers, save the stats file, print the report"

DEFAULT_DIRECTORY = Path("weighbridge-results")
NAME_LIMIT = 60
"""How much of a scenario's name becomes part of its file's name, in characters."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = (
        "Ctrl-C once finishes the running jobs and saves; twice aborts them and cleans up. Either way the stats\n"
        "file is good. Exit codes: 0 ok, 1 a threshold failed, 2 scenario error, 3 run incomplete, 130 interrupted."
    )
    parser.add_argument(
        "-f", "--file", required=True, metavar="X.yaml", help="a scenario's file, or a ready-made one's name"
    )
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
        type=whole_number(0, MAX_SEED),
        metavar="N",
        help="seed of the order (default: the scenario's, else drawn and saved)",
    )

    who = parser.add_argument_group("workers")
    who.add_argument("--workers", type=whole_number(0), default=0, metavar="N", help="start N workers on this host")
    who.add_argument(
        "--expect",
        type=whole_number(0),
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

    fleet = parser.add_argument_group("workers on the hosts of an inventory: started, run and ended again")
    add_inventory(fleet, required=False)
    add_start(fleet)

    load = parser.add_argument_group("load, in place of what the scenario says")
    load.add_argument(
        "-u", "--user-count", type=whole_number(1), metavar="N", help="jobs in flight over all workers together"
    )
    size = load.add_mutually_exclusive_group()
    size.add_argument("-o", "--operation-count", type=whole_number(1), metavar="N", help="jobs in each trial")
    size.add_argument("-r", "--run-seconds", metavar="TIME", help="length of each trial, such as 90 or 15m")

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
        type=whole_number(1, MAX_AHEAD),
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
    out.add_argument(
        "--profile",
        action="store_true",
        help="save where the master and the workers' load processes spend their time, beside the stats file",
    )

    net = parser.add_argument_group("network, for workers on other hosts")
    net.add_argument(
        "--zmq-bind-ip",
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


def run(arguments: argparse.Namespace) -> int:
    """Run the scenario; return the exit code."""
    scenario = _resized(load_scenario(arguments.file, arguments.set), arguments)
    seed = _seed(scenario, arguments)
    plan = make_plan(scenario, seed)
    crew = planned_crew(arguments)
    policy, slots = _policy(plan, arguments, crew)
    if arguments.dry_run:
        workers = max(1, arguments.workers + (arguments.expect or 0) + len(crew))
        sys.stdout.write(render_plan(scenario, plan, workers, look_ahead=arguments.look_ahead))
        return int(ExitCode.OK)
    stats = arguments.stats_file or _default_path(scenario, noop=arguments.noop)
    if stats.exists():
        raise UsageError(f"{stats}: exists already, and a stats file is never overwritten; name another with -s")
    _try_out(stats)
    wanted = frozenset(each.environment for each in plan.treatments if each.environment is not None)
    with crewed(arguments, wanted) as crew:
        policy, slots = _policy(plan, arguments, crew)
        result = _run_plan(scenario, plan, policy, slots, stats, arguments, crew)
    return _conclude(result, arguments)


def _try_out(stats: Path) -> None:
    """Make the stats file and remove it again: a place that cannot be written is told of before anything runs."""
    try:
        stats.parent.mkdir(parents=True, exist_ok=True)
        stats.touch(exist_ok=False)
        stats.unlink()
    except OSError as error:
        raise UsageError(f"{stats}: cannot be created: {error.strerror}; name another place with -s") from error


def _duration(text: str, flag: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}") from error


def _resized(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with `-o` or `-r` in the place of its own sizes."""
    count, seconds = arguments.operation_count, arguments.run_seconds
    if count is None and seconds is None:
        return scenario
    length = None if seconds is None else _duration(seconds, "--run-seconds")
    if length is not None and length <= 0:
        raise UsageError(f"--run-seconds {seconds}: expected more than 0 seconds")

    def resize(treatment: Treatment) -> Treatment:
        return replace(treatment, iterations=None, operation_count=count, run_seconds=length)

    return replace(scenario, treatments=tuple(resize(treatment) for treatment in scenario.treatments))


def _seed(scenario: Scenario, arguments: argparse.Namespace) -> int:
    if arguments.seed is not None:
        return int(arguments.seed)
    return scenario.seed if scenario.seed is not None else secrets.randbelow(1 << 31)


def _default_path(scenario: Scenario, *, noop: bool) -> Path:
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in scenario.name.lower())
    # Runs that are started side by side have files of their own; a name of any length has one.
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3] + "Z"
    stem = f"{name[:NAME_LIMIT].strip('-') or 'scenario'}{'.noop' if noop else ''}.{when}"
    path = DEFAULT_DIRECTORY / f"{stem}.stats.gz"
    count = 1
    while path.exists():
        count += 1
        path = DEFAULT_DIRECTORY / f"{stem}-{count}.stats.gz"
    return path


def _environment(plan: Plan, arguments: argparse.Namespace) -> str:
    if arguments.environment:
        return str(arguments.environment)
    named = {treatment.environment for treatment in plan.treatments}
    only = named.pop() if len(named) == 1 else None
    return only or "local"


def _bind_ip(arguments: argparse.Namespace) -> str | None:
    if arguments.inventory is not None:
        return bind_ip_for(arguments)
    if arguments.zmq_bind_ip:
        return str(arguments.zmq_bind_ip)
    return None if arguments.workers and not arguments.expect else "127.0.0.1"


def _policy(plan: Plan, arguments: argparse.Namespace, crew: Collection[str]) -> tuple[Policy, int]:
    """Return the policy, and the slots that each local worker needs; `crew` are the workers of an inventory."""
    expect = arguments.expect
    if expect is None:
        expect = 0 if arguments.workers or arguments.inventory is not None else 1
    expected = arguments.workers + expect + len(crew)
    if not expected:
        raise UsageError("--workers 0 --expect 0: nobody would run the jobs; give --workers 1")
    policy = Policy(
        expected=expected,
        gather_s=_duration(arguments.worker_timeout, "--worker-timeout"),
        user_count=arguments.user_count,
        look_ahead=arguments.look_ahead,
        batch_size=arguments.batch_size,
    )
    slots = max(treatment.concurrency for treatment in plan.treatments)
    if arguments.user_count is not None:
        slots = -(-arguments.user_count // expected)
        if slots > MAX_SLOTS:
            raise UsageError(
                f"--user-count {arguments.user_count}: more than {MAX_SLOTS} jobs in flight on one worker"
            )
    return policy, slots


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _run_plan(
    scenario: Scenario,
    plan: Plan,
    policy: Policy,
    slots: int,
    stats: Path,
    arguments: argparse.Namespace,
    crew: frozenset[str],
) -> Result:
    run_id = (KEPT_PREFIX if arguments.keep else "") + secrets.token_hex(6)
    noop: bool = arguments.noop
    if arguments.user_count is not None:
        # What is in flight per worker follows from -u; the plan's own concurrency would be refused or misreported.
        treatments = tuple(replace(treatment, concurrency=slots) for treatment in plan.treatments)
        plan = replace(plan, treatments=treatments)
    note = look_ahead_note(plan.treatments) if policy.look_ahead else "look-ahead is off, as asked for"
    titles = [treatment.title for treatment in plan.treatments]
    names = [operation_names(treatment) for treatment in plan.treatments]

    def make_tally(planned: int | None) -> Tally:
        return Tally(
            titles, names, plan.trials, scenario=scenario.name, planned=planned, started_ns=monotonic_ns(), noop=noop
        )

    def open_journal(environments: Sequence[str], **callbacks: Any) -> Journal:
        stats.parent.mkdir(parents=True, exist_ok=True)
        argv = ["bench-master", *sys.argv[1:]]
        header = build_header(scenario, plan, run_id=run_id, argv=argv, noop=noop, environments=environments)
        return Journal(stats, header, **callbacks)

    ports = Ports(arguments.zmq_control_port, arguments.zmq_results_port, arguments.zmq_work_port)
    with Endpoints(_bind_ip(arguments), ports, insecure=arguments.insecure, keys=bool(crew)) as endpoints:
        key, allow_list = load_keys(endpoints, arguments.key_dir, insecure=arguments.insecure)
        if allow_list is not None and crew and not arguments.expect:
            allow_list.only = crew
        options = SessionOptions(
            run_id=run_id,
            noop=noop,
            keep=arguments.keep,
            sampling_s=scenario.sampling_interval_s,
            first_epoch=secrets.randbits(31) << 16,
            notes=(note,) if note else (),
        )
        session = Session(
            plan,
            policy,
            options,
            tally=make_tally,
            view=choose_view(arguments.progress, sys.stderr, quiet=arguments.quiet),
            open_journal=open_journal,
            local_boot_id=_boot_id(),
        )
        board = Switchboard(
            endpoints,
            on_control=session.control_came,
            on_result=session.result_came,
            master_key=key,
            allow_list=allow_list,
        )
        session.board = board
        if arguments.profile:
            # Before anybody can ask to be admitted: the welcome says whether there are profiles.
            session.profiles = Profiles(stats)
            session.profiles.start()
        board.open()
        try:
            if arguments.workers:
                session.locals = LocalWorkers(
                    arguments.workers,
                    control=endpoints.local_control,
                    directory=endpoints.directory,
                    slots=slots,
                    environment=_environment(plan, arguments),
                    master_public=key.public if key is not None else None,
                    verbose=arguments.verbose,
                )
                board.local_keys = session.locals.keys
                session.locals.start()
            by_hand = policy.expected - arguments.workers - len(crew)
            if by_hand and not arguments.quiet:
                _invite(endpoints, by_hand, alone=not arguments.workers)
            _take_signals(session)
            result = session.run()
            if session.profiles is not None and result.stats is not None:
                result.profiles = session.profiles.finish()
            return result
        finally:
            board.close()


def _invite(endpoints: Endpoints, count: int, *, alone: bool) -> None:
    host = "THIS-HOST" if endpoints.bind_ip in ("0.0.0.0", "::") else endpoints.bind_ip  # noqa: S104  compared only
    port = "" if endpoints.ports.control == CONTROL_PORT else f" --zmq-control-port {endpoints.ports.control}"
    key = " --key FILE" if endpoints.curve else ""
    here = " (to use this machine, give --workers 1 instead)" if alone else ""
    sys.stderr.write(f"waiting for {counted(count, 'worker')}: bench-worker --zmq-host {host}{port}{key}{here}\n")


def _take_signals(session: Session) -> None:
    """Let signals mean what the user expects: Ctrl-C once and twice, and the end of the terminal or the system."""
    gevent.signal_handler(signal.SIGINT, session.interrupt)
    gevent.signal_handler(signal.SIGTERM, session.terminate)
    gevent.signal_handler(signal.SIGHUP, session.terminate)


def _conclude(result: Result, arguments: argparse.Namespace) -> int:
    """Show the report; return the exit code that the run's end, its thresholds and its results call for."""
    if result.status == "refused":
        text = "this plan cannot be run here:\n" + "\n".join(f"  {reason}" for reason in result.reasons)
        raise (InfrastructureError if result.unusable else UsageError)(text)
    if result.stats is None:
        if result.status == "interrupted":
            return int(ExitCode.INTERRUPTED)
        raise InfrastructureError("the run did not begin: " + "; ".join(result.reasons))
    source = ReportSource(StatsFile(result.stats), arguments.pctile)
    if not arguments.no_report:
        report_named(arguments.format).write(source, sys.stdout)
        sys.stdout.flush()
    if not arguments.quiet:
        sys.stderr.write(f"stats file: {result.stats}\n")
        sys.stderr.writelines(f"profile: {path}\n" for path in result.profiles)
        if not arguments.no_report:
            sys.stderr.write(f"report again: bench-master report-scenario -s {shlex.quote(str(result.stats))}\n")
    for reason in result.reasons:
        sys.stderr.write(f"bench-master: {reason}\n")
    if result.status == "interrupted" and not result.unwritable:
        return int(ExitCode.INTERRUPTED)
    if result.status != "complete":
        return int(ExitCode.INFRASTRUCTURE)
    errors_shown = arguments.format == "text" and not arguments.no_report
    return _judge(source, noop=arguments.noop, errors_shown=errors_shown)


def _judge(source: ReportSource, *, noop: bool, errors_shown: bool) -> int:
    """Return the exit code of a complete run: what gave no result at all is no success, nor is a missed threshold."""
    treatments = source.document["treatments"]
    barren = sum(not row["jobs"]["done"] for row in treatments)
    if barren:
        of_all = f"{barren} of {counted(len(treatments), 'treatment')}"
        reason = "" if errors_shown else _first_error(source.document)
        sys.stderr.write(f"bench-master: no job was done in {of_all}{reason}\n")
        return int(ExitCode.INFRASTRUCTURE)
    if noop:
        return int(ExitCode.OK)
    for verdict in source.failed_thresholds:
        sys.stderr.write(f"bench-master: threshold failed: {verdict['message']}\n")
    return int(ExitCode.THRESHOLD if source.failed_thresholds else ExitCode.OK)


def _first_error(document: Mapping[str, Any]) -> str:
    """Return what the most frequent error in treatments without a result said, on one line; nothing if none did."""
    barren = {row["title"] for row in document["treatments"] if not row["jobs"]["done"]}
    for group in document["errors"]:
        if barren.intersection(group["treatments"]):
            return f"; {group['operation']}: {one_line(group['message'])}"
    return ""
