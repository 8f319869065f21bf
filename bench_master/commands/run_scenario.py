"""`bench-master run-scenario`: run a scenario, save its stats file, show the report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace

import gevent

from bench_common.arguments import MAX_SLOTS
from bench_common.errors import ExitCode, UsageError
from bench_master.bucketbench import load_either
from bench_master.commands.definition_options import definition_flags
from bench_master.commands.dry_run import show_plan
from bench_master.commands.fleet_run import crewed, planned_crew
from bench_master.commands.load_options import changed, duration, seed_of
from bench_master.commands.patience_options import patience_of
from bench_master.commands.resume_options import adopt, scenario_of
from bench_master.commands.run_ending import conclude
from bench_master.commands.run_options import add_run_arguments
from bench_master.commands.run_place import default_path, try_out
from bench_master.commands.run_plan import PlanRun
from bench_master.commands.run_signals import give_signals_back
from bench_master.coordinator import Policy
from bench_master.plan import Plan, make_plan
from bench_master.run.resume import Resumption

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
        plan = _for_user_count(plan, slots, arguments)
        result = PlanRun(scenario, plan, policy, arguments, slots=slots, stats=stats, crew=crew).run()
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
            plan = _for_user_count(plan, slots, arguments)
            going_on = PlanRun(
                scenario, plan, policy, arguments, slots=slots, stats=arguments.resume, crew=crew, past=past
            )
            result = going_on.run()
        give_signals_back()
        return conclude(result, arguments)


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
