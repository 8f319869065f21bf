"""A run as one measurement: what identifies it, and one level for each treatment.

The level is ln of the median of the trials' values. Memory grows with treatments and trials, never with jobs, so a
folder of thousands of runs can be read one after the other.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench_common.errors import StatsFileError, UsageError
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import Primary
from bench_master.analysis.aggregate import Aggregator
from bench_master.analysis.trial_values import Failures, TrialCollector
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.decision import TrialValues
from bench_master.verdicts.signed_rank import Values

SUFFIX: Final = ".stats.gz"
_KINDS: Final = frozenset({"jobs", "operations", "host", "event", "footer"})


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
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StatsFileError(f"{stats.path}: its run cannot be read: {type(error).__name__}: {error}") from error
    damage = stats.damage
    table = collector.table(ledger)
    treatments = {}
    for index, figure in table.figures.items():
        entry = ledger.treatments[index]
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
        hosts={
            str(body.get("host")): HostSummary(body.get("fingerprint") or {}, body.get("engines") or {})
            for body in ledger.hosts.values()
        },
        harness=str((header.get("versions") or {}).get("weighbridge")),
        margin=(header.get("verdicts") or {}).get("margin"),
        treatments=treatments,
        problem=problem,
        incomplete=bool(damage) or status != "complete",
    )


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
