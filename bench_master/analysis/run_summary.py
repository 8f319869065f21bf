"""A run as one measurement: what identifies it, one level for each treatment; and what a series of such runs says.

The level is ln of the median of the trials' values. Memory grows with treatments and trials, never with jobs, so a
folder of thousands of runs can be read one after the other.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from bench_common.errors import StatsFileError, UsageError
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import Primary
from bench_master.analysis.aggregate import Aggregator
from bench_master.analysis.trial_values import Failures, TrialCollector
from bench_master.analysis.verdict_types import ChangeReport, NoiseFloorReport, PropertyReport
from bench_master.scenario.model import is_again
from bench_master.verdicts import between_runs
from bench_master.verdicts.between_runs import MIN_ARCHIVE, NEWEST, TREND_P, Prediction, RunLevels
from bench_master.verdicts.confounds import (
    Difference,
    engine_differences,
    host_differences,
    parameter_differences,
    parameters,
    same_machine,
)
from bench_master.verdicts.decision import DEFAULT_MARGIN, TrialValues, Word
from bench_master.verdicts.signed_rank import Values

SUFFIX: Final = ".stats.gz"
_KINDS: Final = frozenset({"jobs", "operations", "samples", "host", "event", "footer"})


@dataclass(frozen=True, slots=True)
class TreatmentSummary:
    """One treatment of a run."""

    title: str
    labels: Mapping[str, Any]
    figure: Primary
    """Its primary figure."""
    definition: Mapping[str, Any]
    """It as the stats file's header has it."""
    trials: TrialValues
    """The value of each trial."""

    @property
    def engine(self) -> str:
        """The engine's name."""
        return str(self.definition.get("engine"))

    @property
    def levels(self) -> RunLevels:
        """The run's level, with the band of what is not known exactly; NaN where it has none."""
        ends = (self.trials.values, self.trials.low, self.trials.high)
        point, low, high = (_log_of_median(each) for each in ends)
        return RunLevels(np.array([point]), np.array([low]), np.array([high]))

    @property
    def has_level(self) -> bool:
        """Whether there is a level: not where most trials have no value, or 0."""
        return math.isfinite(self.levels.values[0])


def _log_of_median(values: Values) -> float:
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan
    with np.errstate(invalid="ignore"):
        median = float(np.median(known))
    return math.log(median) if 0.0 < median < math.inf else -math.inf if median <= 0.0 else median


@dataclass(frozen=True, slots=True)
class HostSummary:
    """What a host is."""

    fingerprint: Mapping[str, Any]
    """Its properties."""
    engines: Mapping[str, str]
    """The versions of its engines."""
    speed: float
    """ln of the median time (ns) that a fixed amount of work took on it; NaN where it was not measured."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run."""

    file: str
    """The stats file, as it was named."""
    run_id: str | None
    created: str | None
    """When it began (ISO 8601); None if unknown, as of imported results."""
    began_s: float
    """The same as seconds since 1970; NaN if unknown."""
    scenario: str
    """The scenario's name."""
    hosts: Mapping[str, HostSummary]
    """Its hosts by name."""
    harness: str
    """The version of Weighbridge."""
    margin: float | None
    """The scenario's margin; None if it has none."""
    treatments: Mapping[str, TreatmentSummary]
    """Its treatments by title."""
    imported: bool = False
    """Whether it was measured elsewhere."""
    problem: str = ""
    """Why it does not count among others: it is incomplete, damaged, a no-op run; empty if it does."""
    incomplete: bool = False
    """Whether the run or its file is incomplete."""


def summarize(stats: StatsFile, failures: Failures = "worst") -> RunSummary:
    """Read a run; of an incomplete or damaged one what can be read. Raises `StatsFileError` without a header."""
    header = stats.header
    ledger = Aggregator(header)
    collector = TrialCollector(header, failures, alone=True)
    try:
        _read(stats, ledger, collector)
        for entry in ledger.treatments:
            parameters(entry)  # what other runs are compared by must be readable, too
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StatsFileError(f"{stats.path}: its run cannot be read: {type(error).__name__}: {error}") from error
    damage = stats.damage
    table = collector.table(ledger)
    treatments = {}
    for index, figure in table.figures.items():
        entry = ledger.treatments[index]
        if is_again(entry.get("labels", {})):
            continue
        title = str(entry.get("title"))
        treatments[title] = TreatmentSummary(title, dict(entry.get("labels", {})), figure, entry, table.values(index))
    status = (ledger.footer or {}).get("status")
    problem = _problem(header, status, damage)
    created = header.get("created")
    return RunSummary(
        file=str(stats.path),
        run_id=header.get("run_id"),
        created=created,
        began_s=_seconds(created),
        scenario=str((header.get("scenario") or {}).get("name")),
        hosts=_hosts(ledger),
        harness=str((header.get("versions") or {}).get("weighbridge")),
        margin=(header.get("verdicts") or {}).get("margin"),
        treatments=treatments,
        imported=bool(header.get("imported")),
        problem=problem,
        incomplete=bool(damage) or status != "complete",
    )


def with_titles_of(run: RunSummary, like: RunSummary) -> RunSummary:
    """Return a run whose treatments stand under the titles of their counterparts in `like`, if it shares none.

    Counterparts have the same labels but for the environment; one treatment each are counterparts, too, and what
    their labels say counts as parameters.
    """
    if run.treatments.keys() & like.treatments.keys():
        return run
    if len(run.treatments) == len(like.treatments) == 1:
        ((title, other),) = like.treatments.items()
        (own,) = run.treatments.values()
        definition = {**own.definition, "labels": other.definition.get("labels")}
        return replace(run, treatments={title: replace(own, definition=definition)})
    known = {_labels_elsewhere(one): one for one in run.treatments.values()}
    found = {title: known.get(_labels_elsewhere(one)) for title, one in like.treatments.items()}
    return replace(run, treatments={title: one for title, one in found.items() if one is not None})


def _labels_elsewhere(treatment: TreatmentSummary) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in treatment.labels.items() if key != "environment")


def _hosts(ledger: Aggregator) -> dict[str, HostSummary]:
    found: dict[str, HostSummary] = {}
    for worker, body in ledger.hosts.items():
        readings = [math.log(each.cpu_ns) for each in ledger.speeds.get(worker, ()) if each.cpu_ns > 0]
        speed = float(np.median(readings)) if readings else math.nan
        name = str(body.get("host") or body.get("environment"))
        if name in found and math.isnan(speed):  # one worker of a host measures
            speed = found[name].speed
        found[name] = HostSummary(body.get("fingerprint") or {}, body.get("engines") or {}, speed)
    return found


def _read(stats: StatsFile, ledger: Aggregator, collector: TrialCollector) -> None:
    for block in stats.blocks(_KINDS, by_column=True):
        ledger.add(block)
        if block.kind == "jobs":
            collector.add_jobs(block.body)
        elif block.kind == "operations":
            collector.add_operations(block.body)
        elif block.kind == "event":
            collector.add_event(block.body)
    ledger.open.settle()
    if any(figure.kind == "metric" for figure in collector.figures.values()):
        for block in stats.blocks({"metrics"}):
            ledger.add_metrics(block.body)


def _problem(header: Mapping[str, Any], status: object, damage: str | None) -> str:
    if header.get("noop"):
        return "a no-op run measures the harness alone"
    if header.get("imported"):
        return "imported results: nobody knows when and how they were measured"
    if damage:
        return f"damaged: {damage}"
    if status is None:
        return "incomplete: the run was killed or is still running"
    return "" if status == "complete" else f"the run was {status}"


def _seconds(created: object) -> float:
    try:
        return datetime.fromisoformat(str(created)).timestamp()
    except ValueError:
        return math.nan


# -- folders ------------------------------------------------------------------------------------------------------


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that are named, and the stats files of the folders that are; each once.

    Raises `UsageError` for a folder that cannot be read, or has no stats file.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            found.setdefault(path.resolve(), path)
            continue
        try:
            names = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(SUFFIX))
        except OSError as error:
            raise UsageError(f"{path}: cannot read this folder: {error.strerror}") from error
        if not names:
            raise UsageError(f"{path}: has no stats files (*{SUFFIX}); name the folder that runs were saved in")
        for name in names:
            found.setdefault((path / name).resolve(), path / name)
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

    A file that is named must be readable: otherwise `StatsFileError` is raised. One of a folder need not be.
    """
    named = find_files(path for path in paths if not path.is_dir())
    runs = [summarize(StatsFile(path), failures) for path in named]
    known = {path.resolve() for path in named}
    found = [file for file in find_files(path for path in paths if path.is_dir()) if file.resolve() not in known]
    more, unreadable = _read_runs(found, failures, progress)
    return [*runs, *more], unreadable


def _read_runs(
    files: Sequence[Path], failures: Failures, progress: Callable[[int, int], None]
) -> tuple[list[RunSummary], list[tuple[str, str]]]:
    """Read each file; `progress` is called with the number of files read and of all of them."""
    runs: list[RunSummary] = []
    unreadable: list[tuple[str, str]] = []
    for number, file in enumerate(files, 1):
        try:
            runs.append(summarize(StatsFile(file), failures))
        except StatsFileError as error:
            unreadable.append((str(file), error.message.removeprefix(f"{file}: ")))
        progress(number, len(files))
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
    """Return the parameters in which a treatment differs from one of another run, without the accepted ones."""
    return [each for each in parameter_differences(own.definition, like.definition) if each.name not in accept]


# -- a series of runs -----------------------------------------------------------------------------------------------


def levels_of(
    runs: Sequence[RunSummary], like: TreatmentSummary, accept: Collection[str]
) -> tuple[RunLevels, list[str]]:
    """Return the levels of the runs that have the treatment with its figure and parameters; why others do not."""
    found, others = [], []
    for run in runs:
        own = run.treatments.get(like.title)
        if own is None:
            others.append("the treatment is missing")
        elif own.figure.name != like.figure.name or own.figure.unit != like.figure.unit:
            others.append(f"another figure ({own.figure.name} instead of {like.figure.name})")
        elif changed := _changed(own, like, accept):
            others.append(f"other parameters: {changed}")
        elif not own.has_level:
            others.append("no value, or 0")
        else:
            found.append(own.levels)
    if not found:
        return RunLevels.exact([]), others
    return RunLevels(*(np.concatenate([getattr(one, name) for one in found]) for name in RunLevels.__slots__)), others


def _changed(own: TreatmentSummary, like: TreatmentSummary, accept: Collection[str]) -> str:
    found = parameter_changes(own, like, accept)
    shown = [f"{each.name} {each.a} -> {each.b}" for each in found[:2]]
    return ", ".join(shown) + (f" and {len(found) - 2} more" if len(found) > 2 else "")  # noqa: PLR2004


def current_regime(levels: RunLevels, margin: float) -> int:
    """Return the first run of the current regime."""
    steps = between_runs.history(levels.values, margin)
    return steps[-1].first if steps else 0


def noise_floor(levels: RunLevels, treatment: TreatmentSummary, margin: float) -> NoiseFloorReport | None:
    """Return by how much runs of the current regime differ; None if there are too few of them."""
    since = current_regime(levels, margin)
    standing_out = _newest(levels, since, margin)
    regime = levels.part(since, len(levels) - (standing_out.new if standing_out is not None else 0))
    if len(regime) < MIN_ARCHIVE:
        return None
    reach = between_runs.next_run(regime)
    return NoiseFloorReport(
        name=treatment.title,
        figure=treatment.figure.name,
        unit=treatment.figure.unit,
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
    steps = between_runs.history(levels.values, margin)
    ends = [*(step.first for step in steps[1:]), *([len(levels)] if steps else [])]
    found = [
        _change_report(runs[step.first], treatment, "step", end - step.first, step.difference, step.p)
        for step, end in zip(steps, ends, strict=True)
    ]
    new = _newest(levels, steps[-1].first if steps else 0, margin)
    if new is not None:
        found.append(_change_report(runs[-new.new], treatment, "newest", new.new, new.difference, new.p))
    return found


def _newest(levels: RunLevels, since: int, margin: float) -> Prediction | None:
    """Return the newest runs if they stand out from the regime before them, by the smaller p; None if they do not."""
    found = (between_runs.newest(levels, since, count) for count in NEWEST)
    standing_out = [
        new for new in found if new is not None and new.p < TREND_P and abs(new.difference) > math.log1p(margin)
    ]
    return min(standing_out, key=lambda new: new.p, default=None)


def _change_report(
    run: RunSummary,
    treatment: TreatmentSummary,
    kind: Literal["step", "newest"],
    count: int,
    difference: float,
    p: float,
) -> ChangeReport:
    figure = treatment.figure
    words: tuple[Word, Word] = ("slower", "faster") if figure.is_time_or_rate else ("worse", "better")
    word = words[0] if (difference > 0.0) == (figure.direction == "lower") else words[1]
    return ChangeReport(
        treatment.title, figure.name, kind, run.file, run.created, count, math.exp(difference), p, word
    )
