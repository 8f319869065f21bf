"""From files and folders to runs as one measurement each, and what a series of such runs says.

Memory grows with treatments and trials, never with jobs, so a folder of thousands of runs can be read one after the
other.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from bench_common.errors import ExitCode, StatsFileError, UsageError
from bench_common.files import real_path
from bench_common.stats.block_types import Header, StoredFooter
from bench_common.stats.reader import SUFFIX, StatsFile
from bench_common.units import unix_seconds
from bench_master.analysis.gates import failures_exceed
from bench_master.analysis.harness_limits import limits_of
from bench_master.analysis.parameters import parameter_differences, parameters
from bench_master.analysis.verdict_makers import changed_word
from bench_master.analysis.verdict_types import ChangeReport, NoiseFloorReport, PropertyReport
from bench_master.formatting import plural
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.summary import HostSummary, RunSummary, TreatmentSummary
from bench_master.run_data.trial_values import Failures
from bench_master.scenario.model import is_again
from bench_master.verdicts import between_runs
from bench_master.verdicts.between_runs import MIN_ARCHIVE, Prediction, RunLevels
from bench_master.verdicts.change_points import TREND_P, Step, find_steps, standing_out
from bench_master.verdicts.confounds import (
    ABSENT,
    Difference,
    as_data,
    engine_differences,
    host_differences,
    program_differences,
    same_machine,
)
from bench_master.verdicts.decision import DEFAULT_MARGIN
from bench_master.verdicts.reasons import Code, Reason, because


def summarize(stats: StatsFile, failures: Failures = "worst") -> RunSummary:
    """Read a run; of an incomplete or damaged one what can be read. Raises `StatsFileError` without a header."""
    _ = stats.header
    with _naming_the_file(stats):
        run = MeasuredRun(stats, for_comparison=True)
    return summary_of(run, failures)


def summary_of(run: MeasuredRun, failures: Failures = "worst") -> RunSummary:
    """Return a measured run as one measurement; raise `StatsFileError` where it cannot be compared."""
    header, ledger = run.header, run.sums
    with _naming_the_file(run.stats):
        table = run.trials(failures).without(ledger.split_blocks())  # as in the run's own report
        for entry in ledger.treatments:
            parameters(entry)  # what other runs are compared by must be readable, too
    treatments = {}
    for index, measure in table.measures.items():
        entry = ledger.treatments[index]
        if is_again(entry.labels):
            continue
        values = table.values(index)
        limits = limits_of(ledger, index, values.median, measure)
        one = TreatmentSummary(entry, measure, values, bool(header.imported), limits)
        treatments[one.title] = one
    status = (ledger.footer or StoredFooter()).status
    problem = _problem(header, status, run.damage)
    created = header.created
    incomplete = bool(run.damage) or status != "complete"
    exit_code, shortfall = _judged(header, ledger) if not incomplete else (ExitCode.INFRASTRUCTURE, "")
    return RunSummary(
        file=str(run.path),
        run_id=header.run_id,
        created=created,
        began_s=unix_seconds(created),
        scenario=header.scenario.name,
        hosts=_hosts(ledger),
        harness=str(header.versions.get("weighbridge")),
        margin=header.verdicts.margin,
        treatments=treatments,
        imported=bool(header.imported),
        problem=problem,
        incomplete=incomplete,
        shortfall=shortfall,
        exit_code=exit_code,
    )


def _judged(header: Header, ledger: Aggregator) -> tuple[ExitCode, str]:
    """Return the exit code of what a complete run measured, as `ReportSource` has it, and why it is not 0."""
    if header.noop:
        return ExitCode.OK, ""
    wanted = {
        index: ledger.outcomes[index] for index in range(len(ledger.treatments)) if not ledger.is_skipped(index)
    }
    barren = sum(not counts["done"] for counts in wanted.values())
    if barren and not (header.imported and barren < len(wanted)):
        text = f"no job succeeded in {barren} of {plural(len(wanted), 'treatment')}"
        return ExitCode.INFRASTRUCTURE, text
    failed = {
        index: counts["failed"]
        for index, counts in wanted.items()
        if failures_exceed(header, ledger.treatments[index].labels, counts["failed"])
    }
    if not failed:
        return ExitCode.OK, ""
    where = plural(len(failed), "treatment")
    return (
        ExitCode.THRESHOLD,
        f"{plural(sum(failed.values()), 'job')} failed in {where}, more than its scenario allows",
    )


def with_titles_of(run: RunSummary, like: RunSummary) -> RunSummary:
    """Return a run whose treatments stand under the titles of their counterparts in `like`, if it shares none.

    Counterparts have the same labels but for the environment; one treatment each are counterparts, too, and what
    their labels say counts as parameters. Results measured elsewhere have labels of what their outputs state:
    treatments of one workload are counterparts if the labels that both have agree.
    """
    if run.treatments.keys() & like.treatments.keys():
        return run
    if len(run.treatments) == len(like.treatments) == 1:
        ((title, other),) = like.treatments.items()
        (own,) = run.treatments.values()
        return replace(run, treatments={title: _named_as(other, own)})
    known = {_labels_elsewhere(one): one for one in run.treatments.values()}
    found = {title: known.get(_labels_elsewhere(one)) for title, one in like.treatments.items()}
    if run.imported != like.imported:
        found = {title: _agreeing(one, run.treatments.values()) for title, one in like.treatments.items()}
        titles = [one.title for one in found.values() if one is not None]
        found = {title: one for title, one in found.items() if one is not None and titles.count(one.title) == 1}
    pairs = {title: one for title, one in found.items() if one is not None}
    return replace(run, treatments={title: _named_as(like.treatments[title], one) for title, one in pairs.items()})


def _agreeing(like: TreatmentSummary, known: Iterable[TreatmentSummary]) -> TreatmentSummary | None:
    """Return the one treatment of the same workload that contradicts no label of `like`; None if it is not one."""
    labels = dict(_labels_elsewhere(like))
    found = [
        one
        for one in known
        if parameters(one.definition).get("workload") == parameters(like.definition).get("workload")
        and all(labels.get(name, value) == value for name, value in _labels_elsewhere(one))
    ]
    return found[0] if len(found) == 1 else None


def _named_as(like: TreatmentSummary, own: TreatmentSummary) -> TreatmentSummary:
    """Return a treatment with the labels of its counterpart: what its own labels said counts as parameters."""
    return replace(own, definition=replace(own.definition, labels=like.definition.labels))


def _labels_elsewhere(treatment: TreatmentSummary) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in treatment.labels.items() if key != "environment")


def _hosts(ledger: Aggregator) -> dict[str, HostSummary]:
    found: dict[str, HostSummary] = {}
    for worker, body in ledger.hosts.items():
        readings = [math.log(each.cpu_ns) for each in ledger.speeds.get(worker, ()) if each.cpu_ns > 0]
        speed = float(np.median(readings)) if readings else math.nan
        name = str(body.host or body.environment)
        if name in found and math.isnan(speed):  # one worker of a host measures
            speed = found[name].speed
        found[name] = HostSummary(body.fingerprint or {}, body.engines or {}, body.programs, speed)
    return found


@contextmanager
def _naming_the_file(stats: StatsFile) -> Iterator[None]:
    """Raise `StatsFileError` for a run that is odd in a way that no check finds."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StatsFileError(f"{stats.path}: its run cannot be read: {type(error).__name__}: {error}") from error


def _problem(header: Header, status: object, damage: str | None) -> Reason | None:
    if damage:
        return _unusable("damaged", damage)
    if header.noop:
        return _unusable("noop")
    if header.imported:
        return _unusable("imported")
    if status is None:
        return _unusable("whole")
    return None if status == "complete" else _unusable("ended", str(status))


def _unusable(kind: str, detail: str = "") -> Reason:
    return because(Code.UNUSABLE_RUN, kind=kind, detail=detail)


# -- folders ------------------------------------------------------------------------------------------------------


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that are named, and the stats files of the folders that are; each once.

    Raises `UsageError` for a folder that cannot be read, or has no stats file.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            found.setdefault(real_path(path), path)
            continue
        try:
            names = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(SUFFIX))
        except OSError as error:
            raise UsageError(f"{path}: cannot read this folder: {error.strerror}") from error
        if not names:
            raise UsageError(f"{path}: has no stats files (*{SUFFIX}); name the folder that runs were saved in")
        for name in names:
            found.setdefault(real_path(path / name), path / name)
    return list(found.values())


def check_earlier_runs(paths: Sequence[Path]) -> None:
    """Raise `UsageError` or `StatsFileError` for a file or folder that cannot be read: before a run, not after it."""
    find_files(paths)
    for path in paths:
        if not path.is_dir():
            _ = StatsFile(path).header


def read_paths(
    paths: Sequence[Path], failures: Failures, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[list[RunSummary], list[tuple[str, str]]]:
    """Read the runs of files and folders; return them, and each file that cannot be read with the reason.

    A file that is named must be readable: otherwise `StatsFileError` is raised. One of a folder need not be; of those
    `progress` is called with how many were read, and of how many.
    """
    named = find_files(path for path in paths if not path.is_dir())
    runs = [summarize(StatsFile(path), failures) for path in named]
    known = {real_path(path) for path in named}
    found = [file for file in find_files(path for path in paths if path.is_dir()) if real_path(file) not in known]
    unreadable: list[tuple[str, str]] = []
    for number, file in enumerate(found, 1):
        try:
            runs.append(summarize(StatsFile(file), failures))
        except StatsFileError as error:
            unreadable.append((str(file), error.message.removeprefix(f"{file}: ")))
        progress(number, len(found))
    return runs, unreadable


# -- differences ----------------------------------------------------------------------------------------------------

HARNESS: Final = "weighbridge"
"""The name of a difference in the harness itself."""


def property_differences(a: RunSummary, b: RunSummary, accept: Collection[str]) -> list[PropertyReport]:
    """Return the properties in which run `b` differs from `a`, each once, those that refuse first."""
    found: dict[str, PropertyReport] = {}
    for each in _differences(a, b):
        level = "accepted" if each.name in accept else each.effect
        found.setdefault(each.name, PropertyReport(each.name, {"earlier": each.a, "new": each.b}, level))
    return sorted(found.values(), key=lambda each: each.level != "refusal")


def _differences(a: RunSummary, b: RunSummary) -> Iterator[Difference]:
    yield from _machines(a, b)
    if a.harness != b.harness:
        yield Difference(HARNESS, a.harness, b.harness, "warning")
    shared = a.treatments.keys() & b.treatments.keys()
    used = {run.treatments[title].engine for title in shared for run in (a, b)}
    for name, other in zip(sorted(a.hosts), sorted(b.hosts), strict=False):
        one, two = a.hosts[name], b.hosts[other]
        yield from host_differences(one.fingerprint, two.fingerprint)
        if abs(one.speed - two.speed) > math.log1p(DEFAULT_MARGIN):  # no property shows it
            speeds = [f"{math.exp(each.speed) / 1e6:.1f} ms" for each in (one, two)]
            yield Difference("speed", speeds[0], speeds[1], "warning")
        yield from engine_differences(one.engines, two.engines, used)
        yield from program_differences(one.programs, two.programs, used)


def _machines(a: RunSummary, b: RunSummary) -> Iterator[Difference]:
    names = [", ".join(sorted(run.hosts)) or "unknown" for run in (a, b)]
    if names[0] != names[1]:
        yield Difference("host", names[0], names[1], "refusal")
        return
    for name in a.hosts:
        if same_machine(a.hosts[name].fingerprint, b.hosts[name].fingerprint) is False:
            ids = [str(run.hosts[name].fingerprint["machine_id"])[:8] for run in (a, b)]
            yield Difference("machine_id", ids[0], ids[1], "refusal")


def parameter_changes(own: TreatmentSummary, like: TreatmentSummary, accept: Collection[str]) -> list[Difference]:
    """Return the parameters in which a treatment differs from one of another run, without the accepted ones.

    What only one side states is no difference where the other one was measured elsewhere: see `known_of_one`.
    """
    found = [each for each in parameter_differences(own.definition, like.definition) if each.name not in accept]
    return [each for each in found if ABSENT not in (each.a, each.b)] if own.imported != like.imported else found


def known_of_one(own: TreatmentSummary, like: TreatmentSummary) -> list[str]:
    """Return the parameters that only one of two treatments states, where one of them was measured elsewhere."""
    if own.imported == like.imported:
        return []
    found = parameter_differences(own.definition, like.definition)
    return [each.name for each in found if ABSENT in (each.a, each.b)]


# -- a series of runs -----------------------------------------------------------------------------------------------


def levels_of(
    runs: Sequence[RunSummary], like: TreatmentSummary, accept: Collection[str]
) -> tuple[RunLevels, list[RunSummary], list[Reason]]:
    """Return the levels of the runs that have the treatment with its measure and parameters, and these runs.

    The last is why others do not.
    """
    found, others = [], list[Reason]()
    for run in runs:
        own = run.treatments.get(like.title)
        if own is None:
            others.append(because(Code.NO_VALUE))
        elif own.measure.name != like.measure.name or own.measure.unit != like.measure.unit:
            change = Difference("primary", own.measure.name, like.measure.name, "refusal")
            others.append(because(Code.OTHER_PARAMETERS, changes=as_data([change])))
        elif changed := parameter_changes(own, like, accept):
            others.append(because(Code.OTHER_PARAMETERS, changes=as_data(changed)))
        elif not own.has_level:
            others.append(because(Code.NO_VALUE))
        else:
            found.append((run, own.levels))
    return RunLevels.exact([]).joined(*(levels for _, levels in found)), [run for run, _ in found], others


def current_regime(levels: RunLevels, margin: float) -> int:
    """Return the first run of the current regime."""
    steps = find_steps(levels.values, margin)
    return steps[-1].first if steps else 0


def noise_floor(levels: RunLevels, treatment: TreatmentSummary, margin: float) -> NoiseFloorReport | None:
    """Return by how much runs of the current regime differ; None if there are too few of them."""
    since = current_regime(levels, margin)
    new = standing_out(levels, since, margin)
    regime = levels.part(since, len(levels) - (new.new if new is not None else 0))
    if len(regime) < MIN_ARCHIVE:
        return None
    reach = between_runs.next_run(regime)
    return NoiseFloorReport(
        name=treatment.title,
        measure=treatment.measure.name,
        unit=treatment.measure.unit,
        runs=len(regime),
        sd=math.expm1(float(regime.values.std(ddof=1))),
        low=math.exp(-reach),
        high=math.exp(reach),
        new_runs=between_runs.new_runs_needed(regime, math.log1p(margin)),
    )


def changes_of(
    runs: Sequence[RunSummary], levels: RunLevels, treatment: TreatmentSummary, margin: float
) -> list[ChangeReport]:
    """Return the steps in the history of a treatment, and its newest runs if they stand out."""
    steps = find_steps(levels.values, margin)
    ends = [*(step.first for step in steps[1:]), *([len(levels)] if steps else [])]
    found: list[tuple[Step | Prediction, int, int, float]] = [
        (step, step.first, end - step.first, TREND_P) for step, end in zip(steps, ends, strict=True)
    ]
    new = standing_out(levels, steps[-1].first if steps else 0, margin)
    found += [(new, len(runs) - new.new, new.new, new.p)] if new is not None else []
    measure = treatment.measure
    return [
        ChangeReport(
            name=treatment.title,
            measure=measure.name,
            kind="newest" if change is new else "step",
            since=runs[first].file,
            created=runs[first].created,
            runs=count,
            ratio=math.exp(change.difference),
            low=math.exp(change.interval.low),
            high=math.exp(change.interval.high),
            p=p,
            word=changed_word(measure, change.difference),
        )
        for change, first, count, p in found
    ]
