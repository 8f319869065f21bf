"""`bench-master run-scenario`: run a scenario, save its stats file, show the report."""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent

from bench_common.arguments import MAX_SLOTS
from bench_common.clock import clock_id
from bench_common.errors import ExitCode, UsageError
from bench_common.heap import share_heap
from bench_common.ports import CONTROL_PORT
from bench_common.records import KEPT_PREFIX
from bench_common.statsfile import StatsWriter
from bench_master.bucketbench import load_either
from bench_master.commands.definition_options import definition_flags
from bench_master.commands.dry_run import show_plan
from bench_master.commands.fleet_run import bind_ip_for, crewed, planned_crew
from bench_master.commands.load_options import changed, duration, seed_of
from bench_master.commands.patience_options import patience_of
from bench_master.commands.resume_options import adopt, scenario_of, stored_options
from bench_master.commands.run_arguments import add_run_arguments
from bench_master.commands.run_ending import conclude
from bench_master.commands.run_place import default_path, try_out
from bench_master.commands.run_signals import give_signals_back, take_signals
from bench_master.coordinator import Policy
from bench_master.plan import Plan, look_ahead_note, make_plan
from bench_master.progress.choice import choose_view
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
from bench_master.table import counted
from bench_master.tally import Tally

log = logging.getLogger(__name__)

NAME = "run-scenario"
HELP = "run a scenario on local or remote workers, save the stats file, print the report"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the scenario, or what is missing of it; return the exit code."""
    if arguments.resume is not None:
        return _resume(arguments)
    scenario = changed(load_either(arguments.file, arguments.set, definition_flags(arguments)), arguments)
    seed = seed_of(scenario, arguments)
    plan = make_plan(scenario, seed)
    crew = planned_crew(arguments)
    policy, slots = _policy(plan, arguments, crew)
    if arguments.dry_run:
        return show_plan(scenario, plan, arguments)
    if not arguments.quiet:
        sys.stderr.writelines(f"note: {note}\n" for note in scenario.notes)
    stats = arguments.stats_file or default_path(scenario, noop=arguments.noop)
    if stats.exists():
        raise UsageError(f"{stats}: exists already, and a stats file is never overwritten; name another with -s")
    try_out(stats)
    wanted = frozenset(each.environment for each in plan.treatments if each.environment is not None)
    with crewed(arguments, wanted) as crew:
        policy, slots = _policy(plan, arguments, crew)
        result = _run_plan(scenario, plan, policy, slots, stats, arguments, crew)
    give_signals_back()
    if result.status == "refused" and scenario.dialect:
        result.reasons.append("to run the other drivers of the definition, name them: --drivers A,B")
    return conclude(result, arguments)


def _resume(arguments: argparse.Namespace) -> int:
    with closing(Resumption(arguments.resume)) as past:
        if past.complete:
            sys.stderr.write(f"{arguments.resume}: the run is complete: there is nothing to resume\n")
            return int(ExitCode.OK)
        adopt(arguments, past)
        scenario = changed(scenario_of(arguments, past), arguments)
        plan = make_plan(scenario, seed_of(scenario, arguments))
        crew = planned_crew(arguments)
        _, slots = _policy(plan, arguments, crew)
        past.check_plan(_for_user_count(plan, slots, arguments))
        if not arguments.quiet:
            sys.stderr.write(f"resuming {arguments.resume}: {past.summary()}\n")
        if arguments.dry_run:
            left = tuple(trial for trial in plan.trials if trial.index not in past.standing.whole)
            return show_plan(scenario, replace(plan, trials=left), arguments)
        lease_s = patience_of(arguments.silence, arguments.rejoin, arguments.lease).lease_s
        patience_s = past.patience_s(lease_s)
        if patience_s and not arguments.quiet:
            sys.stderr.write(f"waiting {patience_s:.0f} s: until then the workers of before may be at work\n")
        gevent.sleep(patience_s)
        with crewed(arguments) as crew:
            policy, slots = _policy(plan, arguments, crew)
            result = _run_plan(scenario, plan, policy, slots, arguments.resume, arguments, crew, past)
        give_signals_back()
        return conclude(result, arguments)


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
    patience = patience_of(arguments.silence, arguments.rejoin, arguments.lease)
    policy = Policy(
        expected=expected,
        gather_s=duration(arguments.worker_timeout, "--worker-timeout"),
        silence_s=patience.silence_s,
        rejoin_s=patience.rejoin_s,
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
    share_heap()
    run_id = (KEPT_PREFIX if arguments.keep else "") + secrets.token_hex(6)
    noop: bool = arguments.noop
    plan = _for_user_count(plan, slots, arguments)
    patience = patience_of(arguments.silence, arguments.rejoin, arguments.lease)
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
            lease_s=patience.lease_s,
            heartbeat_s=patience.heartbeat_s,
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
            on_control=session.reception.control_came,
            on_result=session.reception.result_came,
            master_key=key,
            allow_list=allow_list,
        )
        session.courier.board = board
        if arguments.profile:
            # Before anybody can ask to be admitted: the welcome says whether there are profiles.
            session.courier.profiles = Profiles(stats)
            session.courier.profiles.start()
        make_room(policy.expected)
        board.open()
        try:
            if arguments.workers:
                session.courier.locals = LocalWorkers(
                    arguments.workers,
                    control=endpoints.local_control,
                    directory=endpoints.directory,
                    slots=slots,
                    environment=_environment(plan, arguments),
                    engines={treatment.engine for treatment in plan.treatments},
                    master_public=key.public if key is not None else None,
                    verbose=arguments.verbose,
                    allow_swapoff=arguments.allow_swapoff,
                )
                board.local_keys = session.courier.locals.keys
                session.courier.locals.start()
            by_hand = policy.expected - arguments.workers - len(crew)
            if by_hand and not arguments.quiet:
                _invite(endpoints, by_hand, alone=not arguments.workers)
            take_signals(session)
            result = session.run()
            if session.courier.profiles is not None and result.stats is not None:
                result.profiles = session.courier.profiles.finish()
            return result
        finally:
            board.close()


def _invite(endpoints: Endpoints, count: int, *, alone: bool) -> None:
    host = "THIS-HOST" if endpoints.bind_ip in ("0.0.0.0", "::") else endpoints.bind_ip  # noqa: S104  compared only
    port = "" if endpoints.ports.control == CONTROL_PORT else f" --zmq-control-port {endpoints.ports.control}"
    key = " --key FILE" if endpoints.curve else ""
    here = " (to use this machine, give --workers 1 instead)" if alone else ""
    sys.stderr.write(f"waiting for {counted(count, 'worker')}: bench-worker --zmq-host {host}{port}{key}{here}\n")
