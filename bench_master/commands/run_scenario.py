"""`bench-master run-scenario`: run a scenario, save its stats file, show the report."""

from __future__ import annotations

import argparse
import logging
import secrets
import shlex
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent

from bench_common.arguments import MAX_SEED, MAX_SLOTS, file_name, name, port, whole_number
from bench_common.clock import clock_id
from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_common.overhead import Overhead
from bench_common.ports import CONTROL_PORT, RESULTS_PORT, WORK_PORT
from bench_common.records import KEPT_PREFIX
from bench_common.spec import ARRIVAL_PROCESSES, OpenLoad, Treatment
from bench_common.statsfile import StatsFile, StatsWriter
from bench_common.units import parse_duration, parse_rate
from bench_master.bucketbench import load_either
from bench_master.commands.definition_options import add_definition_options, definition_flags
from bench_master.commands.fleet_options import add_inventory, add_start
from bench_master.commands.fleet_run import bind_ip_for, crewed, planned_crew
from bench_master.commands.report_options import add_report_options
from bench_master.commands.resume_options import add_resume_option, adopt, scenario_of, stored_options
from bench_master.coordinator import Policy
from bench_master.coordinator.shares import MAX_AHEAD
from bench_master.plan import Plan, look_ahead_note, make_plan
from bench_master.plan_text import render_plan
from bench_master.progress.choice import MODES, choose_view
from bench_master.progress.quantities import one_line
from bench_master.reports import ReportSource, report_named
from bench_master.run.access import load_keys
from bench_master.run.descriptors import make_room
from bench_master.run.endpoints import Endpoints, Ports
from bench_master.run.header import build_header, operation_names
from bench_master.run.journal import Journal
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.profiles import Profiles
from bench_master.run.resumption import Resumption
from bench_master.run.session import Result, Session, SessionOptions
from bench_master.run.switchboard import Switchboard
from bench_master.scenario import Scenario
from bench_master.scenario.format import MAX_RATE_PER_S, OPEN_CONCURRENCY
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

    who.add_argument(
        "--allow-swapoff",
        action="store_true",
        help="let the scenario switch swap off on this host while a job runs; needs root",
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
    load.add_argument(
        "--skip-limit",
        action="store_true",
        help="leave out the machine's own limit, where the scenario's key asks for it",
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
    """Run the scenario, or what is missing of it; return the exit code."""
    if arguments.resume is not None:
        return _resume(arguments)
    scenario = _changed(load_either(arguments.file, arguments.set, definition_flags(arguments)), arguments)
    seed = _seed(scenario, arguments)
    plan = make_plan(scenario, seed)
    crew = planned_crew(arguments)
    policy, slots = _policy(plan, arguments, crew)
    if arguments.dry_run:
        return _show(scenario, plan, arguments, crew)
    if not arguments.quiet:
        sys.stderr.writelines(f"note: {note}\n" for note in scenario.notes)
    stats = arguments.stats_file or _default_path(scenario, noop=arguments.noop)
    if stats.exists():
        raise UsageError(f"{stats}: exists already, and a stats file is never overwritten; name another with -s")
    _try_out(stats)
    wanted = frozenset(each.environment for each in plan.treatments if each.environment is not None)
    with crewed(arguments, wanted) as crew:
        policy, slots = _policy(plan, arguments, crew)
        result = _run_plan(scenario, plan, policy, slots, stats, arguments, crew)
    if result.status == "refused" and scenario.dialect:
        result.reasons.append("to run the other drivers of the definition, name them: --drivers A,B")
    return _conclude(result, arguments)


def _show(scenario: Scenario, plan: Plan, arguments: argparse.Namespace, crew: Collection[str]) -> int:
    workers = max(1, arguments.workers + (arguments.expect or 0) + len(crew))
    sys.stdout.write(render_plan(scenario, plan, workers, look_ahead=arguments.look_ahead))
    return int(ExitCode.OK)


def _resume(arguments: argparse.Namespace) -> int:
    with closing(Resumption(arguments.resume)) as past:
        if past.complete:
            sys.stderr.write(f"{arguments.resume}: the run is complete: there is nothing to resume\n")
            return int(ExitCode.OK)
        adopt(arguments, past)
        scenario = _changed(scenario_of(arguments, past), arguments)
        plan = make_plan(scenario, _seed(scenario, arguments))
        crew = planned_crew(arguments)
        _, slots = _policy(plan, arguments, crew)
        past.check_plan(_for_user_count(plan, slots, arguments))
        if not arguments.quiet:
            sys.stderr.write(f"resuming {arguments.resume}: {past.summary()}\n")
        if arguments.dry_run:
            left = tuple(trial for trial in plan.trials if trial.index not in past.standing.whole)
            return _show(scenario, replace(plan, trials=left), arguments, crew)
        patience_s = past.patience_s
        if patience_s and not arguments.quiet:
            sys.stderr.write(f"waiting {patience_s:.0f} s: until then the workers of before may be at work\n")
        gevent.sleep(patience_s)
        with crewed(arguments) as crew:
            policy, slots = _policy(plan, arguments, crew)
            result = _run_plan(scenario, plan, policy, slots, arguments.resume, arguments, crew, past)
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


def _changed(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with what the command line says in the place of its own."""
    scenario = _paced(_resized(scenario, arguments), arguments)
    if arguments.overhead and scenario.overhead is None:
        scenario = replace(scenario, overhead=Overhead())
    if arguments.skip_limit or arguments.noop:
        scenario = replace(scenario, limit=False)
    return scenario


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


def _paced(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
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


def _for_user_count(plan: Plan, slots: int, arguments: argparse.Namespace) -> Plan:
    """Return the plan as it is run: what is in flight per worker follows from -u, where that is given."""
    if arguments.user_count is None:
        return plan
    # The plan's own concurrency would be refused or misreported.
    return replace(plan, treatments=tuple(replace(treatment, concurrency=slots) for treatment in plan.treatments))


def _run_plan(
    scenario: Scenario,
    plan: Plan,
    policy: Policy,
    slots: int,
    stats: Path,
    arguments: argparse.Namespace,
    crew: frozenset[str],
    past: Resumption | None = None,
) -> Result:
    run_id = (KEPT_PREFIX if arguments.keep else "") + secrets.token_hex(6)
    noop: bool = arguments.noop
    plan = _for_user_count(plan, slots, arguments)
    note = look_ahead_note(plan.treatments) if policy.look_ahead else "look-ahead is off, as asked for"
    titles = [treatment.title for treatment in plan.treatments]
    names = [operation_names(treatment) for treatment in plan.treatments]

    def make_tally(planned: int | None) -> Tally:
        return Tally(
            titles, names, plan.trials, scenario=scenario.name, planned=planned, started_ns=monotonic_ns(), noop=noop
        )

    def open_journal(environments: Sequence[str], **callbacks: Any) -> Journal:
        argv = ["bench-master", *sys.argv[1:]]
        if past is not None:
            past.check_crew(environments)
            writer, shift_ns = past.writer(argv)
            return Journal(writer, shift_ns=shift_ns, **callbacks)
        stats.parent.mkdir(parents=True, exist_ok=True)
        options = stored_options(arguments)
        header = build_header(
            scenario, plan, run_id=run_id, argv=argv, noop=noop, environments=environments, options=options
        )
        writer = StatsWriter(stats)
        writer.put("header", header)
        return Journal(writer, **callbacks)

    ports = Ports(arguments.zmq_control_port, arguments.zmq_results_port, arguments.zmq_work_port)
    with Endpoints(_bind_ip(arguments), ports, insecure=arguments.insecure, keys=bool(crew)) as endpoints:
        key, allow_list = load_keys(endpoints, arguments.key_dir, insecure=arguments.insecure)
        if allow_list is not None and crew and not arguments.expect:
            allow_list.only = crew
        options = SessionOptions(
            run_id=past.run_label if past is not None else run_id,
            noop=noop,
            keep=arguments.keep,
            standing=past.standing if past is not None else None,
            sampling_s=scenario.sampling_interval_s,
            first_epoch=secrets.randbits(31) << 16,
            notes=(*((note,) if note else ()), *scenario.lost),
            overhead=scenario.overhead,
        )
        session = Session(
            plan,
            policy,
            options,
            tally=past.counting(make_tally) if past is not None else make_tally,
            view=choose_view(arguments.progress, sys.stderr, quiet=arguments.quiet),
            open_journal=open_journal,
            local_boot_id=clock_id(),
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
        make_room(policy.expected)
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
                    allow_swapoff=arguments.allow_swapoff,
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
    files = _files(result, result.stats, source, arguments)
    if not arguments.quiet:
        sys.stderr.writelines(f"{line}\n" for line in files)
    for reason in result.reasons:
        sys.stderr.write(f"bench-master: {reason}\n")
    if result.status == "interrupted" and not result.unwritable:
        return int(ExitCode.INTERRUPTED)
    if result.status != "complete":
        return int(ExitCode.INFRASTRUCTURE)
    errors_shown = arguments.format == "text" and not arguments.no_report
    return _judge(source, noop=arguments.noop, errors_shown=errors_shown)


def _files(result: Result, stats: Path, source: ReportSource, arguments: argparse.Namespace) -> list[str]:
    """Save what is to stand beside the stats file; return lines that say where everything is."""
    files = [f"stats file: {stats}", *(f"profile: {path}" for path in result.profiles)]
    if arguments.trace:
        files.append(f"trace: {_save_trace(source, stats)} (open it at ui.perfetto.dev)")
    if not arguments.no_report:
        files.append(f"report again: bench-master report-scenario -s {shlex.quote(str(stats))}")
    return files


def _save_trace(source: ReportSource, stats: Path) -> Path:
    path = stats.with_name(f"{stats.name.removesuffix('.stats.gz')}.trace.json")
    try:
        with path.open("w", encoding="utf-8") as out:
            report_named("trace").write(source, out)
    except OSError as error:
        raise InfrastructureError(f"{path}: the trace cannot be written: {error.strerror}") from error
    return path


def _judge(source: ReportSource, *, noop: bool, errors_shown: bool) -> int:
    """Return the exit code of a complete run: what gave no result at all is no success, nor is a missed threshold."""
    treatments = source.document["treatments"]
    for row in treatments:
        if row["left_out"]:
            sys.stderr.write(
                f"bench-master: left out, as it is optional: {row['title']}: {one_line(row['left_out'])}\n"
            )
    if treatments and all(row["left_out"] for row in treatments):
        sys.stderr.write("bench-master: every treatment was left out, so nothing was measured\n")
        return int(ExitCode.INFRASTRUCTURE)
    barren = sum(not row["jobs"]["done"] and not row["left_out"] for row in treatments)
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
    barren = {row["title"] for row in document["treatments"] if not row["jobs"]["done"] and not row["left_out"]}
    for group in document["errors"]:
        if barren.intersection(group["treatments"]):
            return f"; {group['operation']}: {one_line(group['message'])}"
    return ""
