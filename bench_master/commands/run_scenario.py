"""`bench-master run-scenario`: run a scenario, save its stats file, show the report.

The end of `run-scenario`: the report, what is saved beside it, and the exit code.

What ``run-scenario --dry-run`` prints: the plan, for the workers that the command line and inventory promise.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gevent

from bench_common.cli import MAX_SLOTS
from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_common.stats.reader import StatsFile
from bench_master.analysis.report_types import ReportDocument
from bench_master.bucketbench import load_scenario_or_definition
from bench_master.commands.fleet_options import selected_inventory
from bench_master.commands.fleet_run import expected_worker_names, fleet_workers
from bench_master.commands.run_options import (
    add_run_arguments,
    apply_load_options,
    choose_seed,
    definition_flags,
    parse_duration_option,
    parse_timeouts,
    restore_options,
    resumed_scenario,
)
from bench_master.commands.run_plan import PlanRunner
from bench_master.commands.run_signals import check_writable, default_path, restore_signal_handlers
from bench_master.coordinator import Policy
from bench_master.formatting import one_line, plural
from bench_master.plan import Plan, make_plan
from bench_master.plan_text import ExpectedWorker, named_environments, render_plan
from bench_master.reports import ReportSource, report_named
from bench_master.run.local_workers import local_worker_id
from bench_master.run.resume import ResumableRun
from bench_master.run.session import RunResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_master.scenario.model import Scenario


def finish_run(result: RunResult, arguments: argparse.Namespace) -> int:
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
    files = _write_files(result, result.stats, source, arguments)
    if not arguments.quiet:
        sys.stderr.writelines(f"{line}\n" for line in files)
    for reason in result.reasons:
        sys.stderr.write(f"bench-master: {reason}\n")
    if result.status == "interrupted" and not result.stats_unwritable:
        return int(ExitCode.INTERRUPTED)
    if result.status != "complete":
        return int(ExitCode.INFRASTRUCTURE)
    errors_shown = arguments.format == "text" and not arguments.no_report
    return _exit_code(source, noop=arguments.noop, errors_shown=errors_shown)


def _write_files(result: RunResult, stats: Path, source: ReportSource, arguments: argparse.Namespace) -> list[str]:
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


def _exit_code(source: ReportSource, *, noop: bool, errors_shown: bool) -> int:
    """Return the exit code of a complete run: what gave no result at all is no success, nor is a missed threshold."""
    treatments = source.document.treatments
    for row in treatments:
        if row.skipped:
            sys.stderr.write(f"bench-master: optional treatment skipped: {row.title}: {one_line(row.skipped)}\n")
    if treatments and all(row.skipped for row in treatments):
        sys.stderr.write("bench-master: every treatment was skipped, so nothing was measured\n")
        return int(ExitCode.INFRASTRUCTURE)
    barren = sum(not row.jobs.done and not row.skipped for row in treatments)
    if barren:
        of_all = f"{barren} of {plural(len(treatments), 'treatment')}"
        reason = "" if errors_shown else _most_frequent_error(source.document)
        sys.stderr.write(f"bench-master: no job was done in {of_all}{reason}\n")
        return int(ExitCode.INFRASTRUCTURE)
    if noop:
        return int(ExitCode.OK)
    for verdict in source.failed_thresholds:
        sys.stderr.write(f"bench-master: threshold failed: {verdict.message}\n")
    return int(ExitCode.THRESHOLD if source.failed_thresholds else ExitCode.OK)


def _most_frequent_error(document: ReportDocument) -> str:
    """Return what the most frequent error in treatments without a result said, on one line; nothing if none did."""
    barren = {row.title for row in document.treatments if not row.jobs.done and not row.skipped}
    for group in document.errors:
        if barren.intersection(group.treatments):
            return f"; {group.operation}: {one_line(group.message)}"
    return ""


def print_plan(scenario: Scenario, plan: Plan, arguments: argparse.Namespace) -> int:
    """Print a plan and touch nothing; return the exit code."""
    if arguments.noop:
        # Nothing is started in a run that does nothing, services of others included.
        plan = replace(plan, treatments=tuple(replace(one, placement={}) for one in plan.treatments))
    workers = list(_expected_workers(plan, arguments)) or [ExpectedWorker()]
    sys.stdout.write(render_plan(scenario, plan, workers, look_ahead=arguments.look_ahead))
    return int(ExitCode.OK)


def _expected_workers(plan: Plan, arguments: argparse.Namespace) -> Iterator[ExpectedWorker]:
    named = named_environments(plan.treatments)
    # Workers of this machine are of one environment, which a plan that names several does not tell.
    here = arguments.environment or ("" if len(named) > 1 else next(iter(named), "local"))
    for place in range(arguments.workers):
        yield ExpectedWorker(local_worker_id(place), here)
    if arguments.inventory is not None:
        for host in selected_inventory(arguments).hosts:
            for name in host.worker_names:
                yield ExpectedWorker(name, host.environment or "")
    for _ in range(arguments.expect or 0):
        yield ExpectedWorker()


NAME = "run-scenario"
HELP = "run a scenario on local or remote workers, save the stats file, print the report"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the scenario, or what is missing of it; return the exit code."""
    if arguments.resume is not None:
        return _resume(arguments)
    scenario = apply_load_options(
        load_scenario_or_definition(arguments.file, arguments.set, definition_flags(arguments)), arguments
    )
    seed = choose_seed(scenario, arguments)
    plan = make_plan(scenario, seed)
    crew = expected_worker_names(arguments)
    policy, slots = _policy(plan, arguments, crew)
    if arguments.dry_run:
        return print_plan(scenario, plan, arguments)
    if not arguments.quiet:
        sys.stderr.writelines(f"note: {note}\n" for note in scenario.notes)
    stats = arguments.stats_file or default_path(scenario, noop=arguments.noop)
    if stats.exists():
        raise UsageError(f"{stats}: exists already, and a stats file is never overwritten; name another with -s")
    check_writable(stats)
    wanted = frozenset(each.environment for each in plan.treatments if each.environment is not None)
    with fleet_workers(arguments, wanted) as crew:
        policy, slots = _policy(plan, arguments, crew)
        plan = _apply_user_count(plan, slots, arguments)
        result = PlanRunner(scenario, plan, policy, arguments, slots=slots, stats=stats, crew=crew).run()
    restore_signal_handlers()
    if result.status == "refused" and scenario.dialect:
        result.reasons.append("to run the other drivers of the definition, name them: --drivers A,B")
    return finish_run(result, arguments)


def _resume(arguments: argparse.Namespace) -> int:
    with closing(ResumableRun(arguments.resume)) as past:
        if past.complete:
            sys.stderr.write(f"{arguments.resume}: the run is complete: there is nothing to resume\n")
            return int(ExitCode.OK)
        restore_options(arguments, past)
        scenario = apply_load_options(resumed_scenario(arguments, past), arguments)
        plan = make_plan(scenario, choose_seed(scenario, arguments))
        crew = expected_worker_names(arguments)
        _, slots = _policy(plan, arguments, crew)
        past.check_plan(_apply_user_count(plan, slots, arguments))
        if not arguments.quiet:
            sys.stderr.write(f"resuming {arguments.resume}: {past.summary()}\n")
        if arguments.dry_run:
            left = tuple(trial for trial in plan.trials if trial.index not in past.state.whole)
            return print_plan(scenario, replace(plan, trials=left), arguments)
        lease_s = parse_timeouts(arguments.heartbeat_timeout, arguments.reconnect_timeout, arguments.lease).lease_s
        patience_s = past.patience_s(lease_s)
        if patience_s and not arguments.quiet:
            sys.stderr.write(f"waiting {patience_s:.0f} s: until then the workers of before may be at work\n")
        gevent.sleep(patience_s)
        with fleet_workers(arguments) as crew:
            policy, slots = _policy(plan, arguments, crew)
            plan = _apply_user_count(plan, slots, arguments)
            going_on = PlanRunner(
                scenario, plan, policy, arguments, slots=slots, stats=arguments.resume, crew=crew, past=past
            )
            result = going_on.run()
        restore_signal_handlers()
        return finish_run(result, arguments)


def _policy(plan: Plan, arguments: argparse.Namespace, crew: Collection[str]) -> tuple[Policy, int]:
    """Return the policy, and the slots that each local worker needs; `crew` are the workers of an inventory."""
    expect = arguments.expect
    if expect is None:
        expect = 0 if arguments.workers or arguments.inventory is not None else 1
    expected = arguments.workers + expect + len(crew)
    if not expected:
        raise UsageError("--workers 0 --expect 0: nobody would run the jobs; give --workers 1")
    timeouts = parse_timeouts(arguments.heartbeat_timeout, arguments.reconnect_timeout, arguments.lease)
    policy = Policy(
        expected=expected,
        join_timeout_s=parse_duration_option(arguments.worker_timeout, "--worker-timeout"),
        heartbeat_timeout_s=timeouts.heartbeat_timeout_s,
        reconnect_timeout_s=timeouts.reconnect_timeout_s,
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


def _apply_user_count(plan: Plan, slots: int, arguments: argparse.Namespace) -> Plan:
    """Return the plan as it is run: what is in flight per worker follows from -u, where that is given."""
    if arguments.user_count is None:
        return plan
    # The plan's own concurrency would be refused or misreported.
    return replace(plan, treatments=tuple(replace(treatment, concurrency=slots) for treatment in plan.treatments))
