"""`bench-master run-scenario`: run a scenario, save its stats file, show the report.

The end of `run-scenario`: the report, what is saved beside it, and the exit code.

What ``run-scenario --dry-run`` prints: the plan, for the workers that the command line and inventory promise.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent

from bench_common.cli import MAX_SLOTS
from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_common.stats.reader import StatsFile
from bench_master.bucketbench import load_either
from bench_master.commands.fleet_options import inventory_of
from bench_master.commands.fleet_run import crewed, planned_crew
from bench_master.commands.run_options import (
    add_run_arguments,
    adopt,
    changed,
    definition_flags,
    duration,
    patience_of,
    scenario_of,
    seed_of,
)
from bench_master.commands.run_plan import PlanRun
from bench_master.commands.run_signals import default_path, give_signals_back, try_out
from bench_master.coordinator import Policy
from bench_master.plan import Plan, make_plan
from bench_master.plan_text import Prospect, environments_of, render_plan
from bench_master.progress.output import one_line
from bench_master.reports import ReportSource, report_named
from bench_master.run.local_workers import local_id
from bench_master.run.resume import Resumption
from bench_master.run.session import Result
from bench_master.table import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_master.scenario.model import Scenario


def conclude(result: Result, arguments: argparse.Namespace) -> int:
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
        of_all = f"{barren} of {plural(len(treatments), 'treatment')}"
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


def show_plan(scenario: Scenario, plan: Plan, arguments: argparse.Namespace) -> int:
    """Print a plan and touch nothing; return the exit code."""
    if arguments.noop:
        # Nothing is started in a run that does nothing, services of others included.
        plan = replace(plan, treatments=tuple(replace(one, places={}) for one in plan.treatments))
    workers = list(_prospects(plan, arguments)) or [Prospect()]
    sys.stdout.write(render_plan(scenario, plan, workers, look_ahead=arguments.look_ahead))
    return int(ExitCode.OK)


def _prospects(plan: Plan, arguments: argparse.Namespace) -> Iterator[Prospect]:
    named = environments_of(plan.treatments)
    # Workers of this machine are of one environment, which a plan that names several does not tell.
    here = arguments.environment or ("" if len(named) > 1 else next(iter(named), "local"))
    for place in range(arguments.workers):
        yield Prospect(local_id(place), here)
    if arguments.inventory is not None:
        for host in inventory_of(arguments).hosts:
            for name in host.worker_names:
                yield Prospect(name, host.environment or "")
    for _ in range(arguments.expect or 0):
        yield Prospect()


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
