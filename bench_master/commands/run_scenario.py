"""`bench-master run-scenario`: run a scenario, save its stats file, print the report; or print the plan."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import gevent
import msgspec
from msgspec.structs import replace

from bench_common.argument_types import MAX_SLOTS
from bench_common.cli import CommandParser, FirstHelp
from bench_common.errors import (
    ExitCode,
    InfrastructureError,
    ScenarioError,
    UsageError,
    WeighbridgeError,
    did_you_mean,
)
from bench_common.extras import require_extra
from bench_common.rendezvous import run_claim
from bench_common.safe_text import one_line
from bench_common.stats.block_types import as_stored
from bench_common.stats.reader import StatsFile
from bench_common.stats.writer import exists_with_content
from bench_common.streams import program_name, tell, tell_command, tell_quoted
from bench_common.treatment import Treatment
from bench_common.units import format_duration
from bench_master.analysis.parameters import parameter_differences
from bench_master.analysis.report_types import ReportDocument
from bench_master.commands.run_plan import STORED_LABELS, PlanRunner, restore_options, resumed_scenario
from bench_master.commands.run_signals import restore_signal_handlers
from bench_master.coordinator import Policy
from bench_master.formatting import listed, plural
from bench_master.options.engines import settle_engine_labels
from bench_master.options.load import LoadOptions, choose_seed, is_timed, settle_load_options
from bench_master.options.report import (
    add_to_job_summary,
    check_chart,
    load_reports,
    print_report,
    write_report_file,
)
from bench_master.options.run import DEFAULT_DIRECTORY, RunOptions, add_run_options
from bench_master.options.verdict import GATES_EPILOG, apply_verdict_options
from bench_master.plan import Plan, make_plan
from bench_master.plan_text import ExpectedWorker, named_environments, render_plan
from bench_master.progress_message import progress_message
from bench_master.reports import ReportSource, parts_of, report_named
from bench_master.run.local_workers import local_worker_id
from bench_master.run.session import RunResult
from bench_master.run_extension import (
    FIRST_PLACES,
    FIRST_RESULTS,
    RunObserver,
    expected_workers,
    prepare,
    run_extensions,
    scenario_change,
    settled,
    started_by_features,
    started_workers,
    watching,
)
from bench_master.scenario.dialects import load_scenario_or_definition
from bench_master.scenario.load import FEW_REPEATS, TreeChange, parse_scenario
from bench_master.scenario.model import is_again
from bench_master.scenario.selection import select_treatments
from bench_master.scenario.yaml_tree import Source
from bench_master.verdicts.confounds import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_master.run.resume import ResumableRun
    from bench_master.scenario.model import Scenario


EPILOG: Final = f"""\
Ctrl-C once lets the running jobs finish and saves; twice aborts them and cleans up. The stats file is valid either
way. The report is one page: -v shows all of it, -q only the answer.

{GATES_EPILOG}
Exit codes: 0 ok, 1 a threshold or gate failed, or jobs failed and nothing allows that (--allow-failures), 2
scenario error, 3 run incomplete, a treatment has no result, or an engine or image is missing, 4 a gate could not be
judged, 130 interrupted. 130 takes precedence over 1, 1 over 3, 3 over 4.
"""

MAX_NAME_CHARS: Final = 60
"""How much of a scenario's name becomes part of its file's name, in characters."""

Options = RunOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    cast("CommandParser", parser).show_first(_first_help(parser.prog))
    add_run_options(parser)


def _first_help(program: str) -> FirstHelp:
    """Return the options of the first day, which ``--help`` shows."""
    return FirstHelp(
        "-f X.yaml [OPTIONS]",
        {
            "what to run": ["-f", "--set", "--only", "--dry-run", "--resume"],
            "how much of it": ["-o", "-r", "--until", "--budget"],
            FIRST_PLACES: ["--workers"],
            FIRST_RESULTS: ["-s", "--export"],
            "what is compared, and what fails": ["--baseline", "--margin", "--fail-on", "--require"],
        },
        "Ctrl-C once lets the running jobs finish and saves; twice aborts them and cleans up. The report is one\n"
        "page: -v shows all of it, -q only the answer.\n\n"
        f"All options, gates and exit codes: {program} --help-all\n",
    )


def run(options: RunOptions) -> int:
    """Run the scenario, or continue a run; return the exit code."""
    prepare(options)
    settle_engine_labels(options)
    if options.resume is not None:
        return _resume(options)
    if options.more is not None:
        raise UsageError(f"--more {options.more}: it extends a complete run: name its file with --resume FILE")
    assert options.file is not None
    change = partial(scenario_change, options)
    return run_loaded(load_scenario_or_definition(options.file, options.set, options.definition, change), options)


def run_loaded(scenario: Scenario, options: RunOptions) -> int:
    """Run a scenario, whatever it was loaded from, or print its plan; return the exit code."""
    options = settled(replace(options, load=settle_load_options(scenario, options.load)))
    scenario = apply_verdict_options(_with_options(scenario, options), options.verdicts)
    seed = choose_seed(scenario, options.load)
    with progress_message("making the plan"):
        plan = make_plan(scenario, seed)
    _, slots = worker_policy(plan, options, len(expected_workers(options)))
    if options.dry_run:
        return print_plan(scenario, _apply_user_count(plan, slots, options.load), options)
    if not options.quiet:
        if options.load.run_seconds is not None and not (is_timed(scenario) and len(plan.trials) == 1):
            tell(describe_run_seconds(plan))
        for note in scenario.notes:
            if FEW_REPEATS not in note:  # the verdicts say it
                tell(f"note: {note}")
    stats = options.output.stats_file or default_path(scenario, noop=options.load.noop)
    if exists_with_content(stats):
        raise UsageError(f"{stats}: already exists, and stats files are never overwritten; name another file with -s")
    check_writable(stats)
    _check_outputs(options, stats)
    wanted = frozenset(each.environment for each in plan.treatments if each.environment is not None)
    with watching(options) as observers:
        result = _run_plan(scenario, plan, options, stats, observers, wanted=wanted)
    if result.status == "refused" and scenario.origin is not None and scenario.origin.if_refused:
        result.reasons.append(scenario.origin.if_refused)
    return finish_run(result, options)


def _check_outputs(options: RunOptions, stats: Path) -> None:
    """Refuse, before anything runs, what could not be made of its stats file afterwards."""
    check_chart(options.report)
    if options.output.profile:
        require_extra("pyinstrument")
    load_reports(options.report, stats)
    for extension in run_extensions().values():
        extension.check(options)


def _run_plan(
    scenario: Scenario,
    plan: Plan,
    options: RunOptions,
    stats: Path,
    observers: Sequence[RunObserver],
    *,
    past: ResumableRun | None = None,
    wanted: frozenset[str] = frozenset(),
) -> RunResult:
    """Run a plan, or what `past` has left of it, with the workers that features start.

    `wanted` are the environments that these must have.
    """
    with started_workers(options, wanted) as started:
        policy, slots = worker_policy(plan, options, len(started.names))
        plan = _apply_user_count(plan, slots, options.load)
        runner = PlanRunner(
            scenario, plan, policy, options, slots=slots, stats=stats, started=started, past=past, observers=observers
        )
        result = runner.run()
    restore_signal_handlers()
    return result


def _with_options(scenario: Scenario, options: RunOptions) -> Scenario:
    """Return the scenario with the treatments that the command line selects and adds."""
    if options.only and not any(one.takes_host_names(options) for one in run_extensions().values()):
        raise UsageError(
            f"--only {options.only[0]}: expected LABEL=VALUE, such as --only engine=docker; "
            "a host's name needs an inventory (-i)"
        )
    scenario = select_treatments(scenario, options.load.only_labels)
    if options.rerun_baseline is not None:
        accept, change = options.verdicts.accept, scenario_change(options)
        scenario = add_rerun_baseline(scenario, options.rerun_baseline, accept, change)
    # A comparison takes two.
    if scenario.until_verdict is not None and len(scenario.treatments) == 1:
        only = options.load.only_labels[0]
        raise UsageError(f"--only {only}: one treatment is left, and 'until: verdict' has nothing to compare it with")
    return scenario


def describe_run_seconds(plan: Plan) -> str:
    """Return what `--run-seconds` means for a plan: the length of each trial, not of the run, as in other tools."""
    length_s = plan.treatments[0].run_seconds or 0.0
    trials, each = len(plan.trials), format_duration(length_s)
    together = f"{plural(trials, 'trial')}, together at least {format_duration(length_s * trials)}"
    return f"--run-seconds {each} is the length of each trial, not of the run: {together}"


def _resume(options: RunOptions) -> int:
    path = options.resume
    assert path is not None
    options = settled(options)
    from bench_master.run.resume import ResumableRun

    with progress_message(f"reading {path}"):
        opened = ResumableRun(path)
    with watching(options) as observers, closing(opened) as past, run_claim(str(past.header.run_id)):
        if past.complete and options.more is None:
            tell(f"{path}: the run is complete; nothing to resume (--more N extends it by N rounds)")
            restore_options(options, past)  # refuses what contradicts the run
            # What failed when it ended has failed still, and a gate that nobody judges must not be green.
            source = ReportSource(StatsFile(path), options.report.pctile, options.verdicts)
            return _judge(source, _check_results(source, errors_shown=False))
        stored = past.header.options.get(STORED_LABELS, ())
        settle_engine_labels(options, stored)
        options = restore_options(options, past)
        _check_outputs(options, path)
        scenario = _with_options(resumed_scenario(options, past), options)
        plan = past.with_added_trials(make_plan(scenario, choose_seed(scenario, options.load)))
        _, slots = worker_policy(plan, options, len(expected_workers(options)))
        past.check_plan(_apply_user_count(plan, slots, options.load))
        if options.more is not None:
            plan = past.extended(plan, scenario, options.more)
        if not options.quiet:
            tell(f"resuming {path}: {past.summary()}")
        if options.dry_run:
            left = tuple(trial for trial in plan.trials if trial.index not in past.state.finished_trials)
            return print_plan(scenario, replace(plan, trials=left), options)
        wait_s = past.remaining_lease_s(options.timeouts.lease_s)
        if wait_s and not options.quiet:
            tell(f"waiting {wait_s:.0f} s: until then workers of the earlier run may still be active")
        with progress_message("waiting for the workers of the earlier run to end"):
            gevent.sleep(wait_s)
        return finish_run(_run_plan(scenario, plan, options, path, observers, past=past), options)


def worker_policy(plan: Plan, options: RunOptions, others: int) -> tuple[Policy, int]:
    """Return the policy, and the slots of each local worker; `others` are the workers that features start."""
    workers, load = options.workers, options.load
    expect = workers.expect
    if expect is None:
        expect = 0 if options.local_workers or started_by_features(options) else 1
    expected = options.local_workers + expect + others
    if not expected:
        raise UsageError("--workers 0 --expect 0: no worker would run the jobs; leave both out, and one starts here")
    timeouts = options.timeouts
    timeouts.check()
    policy = Policy(
        expected=expected,
        join_timeout_s=workers.worker_timeout_s,
        heartbeat_timeout_s=timeouts.heartbeat_timeout_s,
        reconnect_timeout_s=timeouts.reconnect_timeout_s,
        user_count=load.user_count,
        look_ahead=load.look_ahead,
        batch_size=load.batch_size,
        disk_wait_s=options.output.disk_wait_s,
    )
    slots = max(treatment.concurrency for treatment in plan.treatments)
    if load.user_count is not None:
        slots = -(-load.user_count // expected)
        if slots > MAX_SLOTS:
            raise UsageError(f"--user-count {load.user_count}: more than {MAX_SLOTS} jobs in flight on one worker")
    return policy, slots


def _apply_user_count(plan: Plan, slots: int, load: LoadOptions) -> Plan:
    """Return the plan with the concurrency of each worker that follows from -u, if given."""
    if load.user_count is None:
        return plan
    # Workers would refuse the plan's own concurrency, or reports show a wrong one.
    return replace(
        plan, treatments=tuple(msgspec.structs.replace(treatment, concurrency=slots) for treatment in plan.treatments)
    )


def finish_run(result: RunResult, options: RunOptions) -> int:
    """Print the report; return the exit code for the run's end, its thresholds and its results."""
    if result.status == "refused":
        refusal = InfrastructureError if result.unusable else UsageError
        raise refusal("this plan cannot run here:", *result.reasons)
    if result.stats is None:
        if result.status == "interrupted":
            return int(ExitCode.INTERRUPTED)
        first, *others = result.reasons or ["for no known reason"]
        raise InfrastructureError(f"the run did not start: {first}", *others)
    report = options.report
    extensions = run_extensions().values()
    source = ReportSource(
        StatsFile(result.stats),
        report.pctile,
        options.verdicts,
        report.detail,
        report.chart_options,
        parts_of([report.format, *(name for name, _ in report.files)]).union(
            *(extension.parts(options) for extension in extensions)
        ),
    )
    # Files first: whoever reads only the first lines of standard output ends the program.
    failed = {path: _write_report(name, source, path) for name, path in options.report.files}
    add_to_job_summary(options.report.formats, source)
    unprinted = None if options.output.no_report else _print_report(source, options)
    files = _file_lines(result, result.stats, options, failed)
    if not options.quiet:
        _tell_what_is_next(result, files, options)
    for reason in result.reasons:
        tell_quoted(f"{program_name()}: {reason}")
    codes = [extension.finish(options, source) for extension in extensions]
    errors = [error for error in (*failed.values(), unprinted) if error is not None]
    for error in errors:
        tell_quoted(f"{program_name()}: {error}")
    if result.status == "interrupted":
        return int(ExitCode.INTERRUPTED)
    errors_shown = options.report.format == "text" and not options.output.no_report
    codes += [error.exit_code for error in errors]
    return int(ExitCode.gravest([*codes, _exit_code(source, result, errors_shown=errors_shown)]))


def _tell_what_is_next(result: RunResult, files: Sequence[str], options: RunOptions) -> None:
    """Say below the answer where everything is, and what to run next."""
    for line in files:
        tell(line)
    if not options.output.no_report:
        tell_command("report again", [program_name(), "report-scenario", "-s", str(result.stats)])
    if result.status == "interrupted":
        tell_command("continue", [program_name(), "run-scenario", "--resume", str(result.stats)])


def _write_report(name: str, source: ReportSource, path: Path) -> WeighbridgeError | None:
    """Write a report beside the stats file; return what is wrong, which the other reports do not wait for."""
    try:
        write_report_file(report_named(name), source, path)
    except WeighbridgeError as error:
        return error
    return None


def _print_report(source: ReportSource, options: RunOptions) -> WeighbridgeError | None:
    """Print the report; return what is wrong, such as a chart that the run lacks the data of.

    The run is over: it is still said where its file is, and what features do with it is still done.
    """
    try:
        # Without a pager: a run that nobody watches must end.
        print_report(options.report.format, source, options.terminal)
    except WeighbridgeError as error:
        return error
    return None


def _file_lines(
    result: RunResult,
    stats: Path,
    options: RunOptions,
    failed: Mapping[Path, WeighbridgeError | None],
) -> list[str]:
    """Return lines that say where everything is."""
    files = [f"stats file: {stats}", *(f"profile: {path}" for path in result.profiles)]
    files += [f"{name} report: {path}" for name, path in options.report.files if failed[path] is None]
    return files


def _exit_code(source: ReportSource, result: RunResult, *, errors_shown: bool) -> int:
    """Return the gravest of what the run's end, its results, its thresholds and its gates give."""
    complete = result.status == "complete"
    own = _check_results(source, errors_shown=errors_shown) if complete else ExitCode.INFRASTRUCTURE
    return _judge(source, own)


def _judge(source: ReportSource, own: ExitCode) -> int:
    """Tell which thresholds and gates failed; return the gravest of their exit codes and `own`."""
    code = ExitCode.gravest([own, source.exit_code()])
    if code != ExitCode.INFRASTRUCTURE:
        for verdict in source.failed_thresholds:
            tell(f"{program_name()}: threshold failed: {verdict.message}")
    for line in source.failed_gates():
        tell(f"{program_name()}: {line}")
    return int(code)


def _check_results(source: ReportSource, *, errors_shown: bool) -> ExitCode:
    """Return the exit code of what a run measured: a treatment without results is no success."""
    if source.incomplete_text:
        tell(f"{program_name()}: {source.incomplete_text}")
        return ExitCode.INFRASTRUCTURE
    treatments = source.document.treatments
    for row in treatments:
        if row.skipped:
            tell(f"{program_name()}: optional treatment skipped: {row.title}: {one_line(row.skipped)}")
    if source.missing_results:
        reason = "" if errors_shown else _most_frequent_error(source.document)
        tell(f"{program_name()}: {source.missing_results}{reason}")
        return ExitCode.INFRASTRUCTURE
    return ExitCode.OK


def _most_frequent_error(document: ReportDocument) -> str:
    """Return the most frequent error of the treatments without a result, on one line; empty if there is none."""
    barren = {row.title for row in document.treatments if not row.jobs.done and not row.skipped}
    for group in document.errors:
        if barren.intersection(group.treatments):
            return f"; {group.operation}: {one_line(group.message)}"
    return ""


def print_plan(scenario: Scenario, plan: Plan, options: RunOptions) -> int:
    """Print a plan; return the exit code."""
    if options.load.noop:
        # A no-op run starts nothing, not even services on other hosts.
        plan = replace(plan, treatments=tuple(msgspec.structs.replace(one, placement={}) for one in plan.treatments))
    workers = list(_expected_workers(plan, options)) or [ExpectedWorker()]
    with progress_message("listing the plan"):
        text = render_plan(scenario, plan, workers, look_ahead=options.load.look_ahead)
    sys.stdout.write(text)
    return int(ExitCode.OK)


def _expected_workers(plan: Plan, options: RunOptions) -> Iterator[ExpectedWorker]:
    named = named_environments(plan.treatments)
    # Local workers share one environment; a plan that names several leaves it open.
    here = options.workers.environment or ("" if len(named) > 1 else next(iter(named), "local"))
    for place in range(options.local_workers):
        yield ExpectedWorker(local_worker_id(place), here)
    yield from expected_workers(options)
    for _ in range(options.workers.expect or 0):
        yield ExpectedWorker()


def default_path(scenario: Scenario, *, noop: bool) -> Path:
    """Return the default stats file of a run: a new file in `DEFAULT_DIRECTORY`."""
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in scenario.name.lower())
    # Milliseconds tell apart runs that start at once; names are cut to what file systems take.
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3] + "Z"
    stem = f"{name[:MAX_NAME_CHARS].strip('-') or 'scenario'}{'.noop' if noop else ''}.{when}"
    path = DEFAULT_DIRECTORY / f"{stem}.stats.gz"
    count = 1
    while path.exists():
        count += 1
        path = DEFAULT_DIRECTORY / f"{stem}-{count}.stats.gz"
    return path


def check_writable(stats: Path) -> None:
    """Create the stats file and remove it again: raise `UsageError` for an unwritable place before anything runs.

    No directory is made but the default one: a misspelt path would become a new tree, as root below ``/``.
    """
    try:
        if stats.parent == DEFAULT_DIRECTORY:
            stats.parent.mkdir(exist_ok=True)
        if not stats.parent.exists():
            raise UsageError(f"{stats}: there is no directory {stats.parent}; make it, or name another file with -s")
        if stats.is_file() and not exists_with_content(stats):
            stats.open("r+b").close()
            return
        stats.touch(exist_ok=False)
        stats.unlink()
    except OSError as error:
        raise UsageError(f"{stats}: cannot create this file: {error.strerror}; name another one with -s") from error


# -- an earlier run once more, in turns with the new one -------------------------------------------------------------

LABEL: Final = "build"
"""The label that tells old from new; no key of a scenario has this name."""
OLD: Final = "baseline"
NEW: Final = "new"
_OF_A_BUILD: Final = ("container.", "services.")
"""Parameters in which builds may differ; the others say what is measured."""
_NOT_NEEDED: Final = frozenset({"published", "thresholds", "allow_failures", "baseline", "margin"})
"""Keys of the earlier scenario that say nothing about its treatments."""
_SHOWN: Final = 3


def add_rerun_baseline(
    scenario: Scenario, path: Path, accept: Collection[str] = (), change: TreeChange | None = None
) -> Scenario:
    """Return the scenario with the treatments of the run in `path` that have a counterpart in it, labelled as old.

    `change` is made in the scenario that the file holds, too. Raises `UsageError` where they cannot
    be run again, or would not differ from the new ones in a build.
    """
    if scenario.order == "blocked":
        raise UsageError("--rerun-baseline: needs rounds that have both builds; add --set order=interleaved")
    old = {one.title: one for one in _earlier_scenario(path, change).treatments if not is_again(one.labels)}
    counterparts = [(index, old[one.title]) for index, one in enumerate(scenario.treatments) if one.title in old]
    if not counterparts:
        hint = did_you_mean(scenario.treatments[0].title, old)
        raise UsageError(
            f"--rerun-baseline {path}: none of its treatments is in this scenario{hint}; it has: {', '.join(old)}"
        )
    found = [_differences(before, scenario.treatments[index]) for index, before in counterparts]
    _check(path, [each for one in found for each in one if each.name not in accept])
    if not any(found):
        raise UsageError(
            f"--rerun-baseline {path}: its treatments are the same as those of this scenario, so both would measure "
            "the build that is installed now; give each build an image of its own, or compare runs: "
            "bench-master compare --help"
        )
    indices = [index for index, _ in counterparts]
    treatments = [_labelled(one, index, NEW) for index, one in enumerate(scenario.treatments)]
    treatments += [
        _labelled(one, len(scenario.treatments) + number, OLD) for number, (_, one) in enumerate(counterparts)
    ]
    return replace(
        scenario,
        treatments=tuple(treatments),
        repeats=(*scenario.repeats, *(scenario.repeats[index] for index in indices)),
        warmup=(*scenario.warmup, *(scenario.warmup[index] for index in indices)),
        primary=(*scenario.primary, *(scenario.primary[index] for index in indices)) if scenario.primary else (),
        baseline={LABEL: OLD},
    )


def _earlier_scenario(path: Path, change: TreeChange | None = None) -> Scenario:
    header = StatsFile(path).header
    document = header.scenario.document
    if header.imported or not document:
        raise UsageError(f"--rerun-baseline {path}: imported results hold no scenario that could be run again")
    kept = {key: value for key, value in document.items() if key not in _NOT_NEEDED}
    try:
        scenario = parse_scenario(Source(str(path), json.dumps(kept)), change=change)
    except ScenarioError as error:
        raise UsageError(f"--rerun-baseline {path}: its scenario cannot be run by this version: {error}") from error
    return select_treatments(scenario, header.options.get("only_labels") or ())


def _labelled(treatment: Treatment, index: int, build: str) -> Treatment:
    return msgspec.structs.replace(treatment, index=index, labels={**treatment.labels, LABEL: build})


def _differences(old: Treatment, new: Treatment) -> list[Difference]:
    return parameter_differences(as_stored(old), as_stored(new))


def _check(path: Path, differences: Collection[Difference]) -> None:
    """Raise `UsageError` where old and new differ in what is measured, and not in what it is measured on."""
    wrong = {each.name: each for each in differences if not each.name.startswith(_OF_A_BUILD)}
    if wrong:
        shown = listed([f"{each.name} ({each.a} -> {each.b})" for each in wrong.values()], _SHOWN)
        raise UsageError(
            f"--rerun-baseline {path}: it measured something else: {shown}; change this scenario with --set, "
            f"or --accept {next(iter(wrong))}"
        )
