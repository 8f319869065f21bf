"""One archive: opened, asked and added to. The commands and the gates use nothing else."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Final, Self

from bench_common.errors import (
    NotAStatsFileError,
    StatsFileError,
    UsageError,
    closest_match,
    did_you_mean,
)
from bench_common.safe_text import one_line
from bench_common.stats.reader import SUFFIX, StatsFile
from bench_features.archive.extract import contents_of
from bench_features.archive.facts import steadied
from bench_features.archive.folder import INDEX, ArchiveFolder, find_folder, hash_of
from bench_features.archive.index import FileState, Index
from bench_features.archive.types import (
    METRIC,
    OPERATION,
    STATISTICS,
    Added,
    ArchivedRun,
    ArchivedTreatment,
    RunFilter,
    Series,
    TrendPoint,
)
from bench_master.progress_message import note, progress_message
from bench_master.run_data.measured import MeasuredRun

EVERYTHING: Final = RunFilter()
MIN_PREFIX: Final = 4
"""The shortest beginning of an id that is taken for one."""
MAX_NAME_CHARS: Final = 1000
"""The longest name that a filter may ask for."""
_MOST_SHOWN: Final = 5
_SHOWN_CHARS: Final = 40
_BATCH: Final = 100
"""Runs that go into the index in one transaction: an index that is made again is kept so far when it is cut short."""


class Archive:
    """An open archive; close it, or use it as a context."""

    def __init__(self, folder: ArchiveFolder) -> None:
        self.folder = folder
        self.unreadable: dict[Path, str] = {}
        """Files in the archive that cannot be read, and why; they are in no answer."""
        self._index = Index.open(folder.path / INDEX, self._refresh)

    @classmethod
    def open(cls, given: str | None = None, *, create: bool = False) -> Archive:
        """Open the archive in a folder; None is the one of the environment, or the default. Note what is unreadable.

        Raises `UsageError` where there is none and `create` is false, `InfrastructureError` where it cannot be used.
        """
        folder = ArchiveFolder(find_folder(given))
        if create:
            folder.make()
        elif not folder.objects.is_dir():
            raise UsageError(
                f"{folder.shown}: there is no archive; bench-master archive add FILE makes one, and --archive names "
                "another"
            )
        archive = cls(folder)
        for path, reason in archive.unreadable.items():
            note(f"bench-master: {one_line(str(path))}: not in the archive: {reason}")
        return archive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _refresh(self, index: Index) -> None:
        """Bring the index up to date: read the files that are new or have changed, forget those that are gone."""
        # First what is in it: what another command adds meanwhile is then never taken for gone.
        known = index.files()
        found = {path.name.removesuffix(SUFFIX): path for path in self.folder.files()}
        self.unreadable.clear()
        states = {sha256: state for sha256, path in found.items() if (state := self._state(path)) is not None}
        changed = [sha256 for sha256, state in states.items() if known.get(sha256) != state]
        gone = known.keys() - states.keys()
        if not changed and not gone:
            return
        index.check_writable()
        with progress_message("reading the archive's files"):
            for first in range(0, max(1, len(changed)), _BATCH):
                part = changed[first : first + _BATCH]
                runs = [(sha256, self._read(sha256, found[sha256])) for sha256 in part]
                lost = [sha256 for sha256, run in runs if run is None]
                index.write([(states[sha256], run) for sha256, run in runs if run is not None], {*gone, *lost})

    def _state(self, path: Path) -> FileState | None:
        try:
            about = path.stat()
        except OSError as error:
            self.unreadable[path] = str(error.strerror)
            return None
        return about.st_size, about.st_mtime_ns

    def _read(self, sha256: str, path: Path) -> ArchivedRun | None:
        """Return what the index has of a file; None, and why, for one that is not what it was when it was added."""
        try:
            if path != self.folder.place(sha256) or hash_of(path) != sha256:
                raise StatsFileError("its content is not what was added; add the original file again")
            return contents_of(path, sha256, path.stat().st_size)
        except OSError as error:
            self.unreadable[path] = f"cannot be read: {error.strerror or error}"
        except StatsFileError as error:
            self.unreadable[path] = error.message.removeprefix(f"{path}: ")
        return None

    # -- adding -----------------------------------------------------------------------------------------------------

    def add(self, path: Path, *, run: MeasuredRun | None = None) -> Added:
        """Add a stats file; one that is in the archive stays as it is, and is repaired where it was damaged.

        `run` are its sums where it was read before.

        Raises `UsageError` for a file that is none, `InfrastructureError` where the archive cannot take it.
        """
        _check_stats_file(path)
        sha256 = self.folder.put(path)
        place = self.folder.place(sha256)
        about = place.stat()
        self.unreadable.pop(place, None)
        known = self._index.run(sha256)
        if known is not None:
            return Added(known, new=False)
        # What was read must be what is here: the file may have changed since.
        is_same = run is not None and run.is_whole and run.intact_bytes == about.st_size
        found = contents_of(place, sha256, about.st_size, run if is_same else None)
        # The run is in the archive with its file: an index that cannot be written now is so by the next command.
        with contextlib.suppress(sqlite3.Error):
            self._index.write([((about.st_size, about.st_mtime_ns), found)])
        return Added(found, new=True)

    # -- asking -----------------------------------------------------------------------------------------------------

    def runs(self, wanted: RunFilter = EVERYTHING) -> list[ArchivedRun]:
        """Return the runs that meet a filter, the newest first; raise `UsageError` for a name that no run has."""
        everything = self._runs()
        found = [run for run in everything if wanted.meets(run)]
        if not found:
            _check_filter(everything, wanted)
        return found[: wanted.limit]

    def _runs(self) -> list[ArchivedRun]:
        everything = self._index.runs()
        latest: dict[str, ArchivedRun] = {}
        # Of the files of one run, which was resumed, the whole and longest one counts.
        for run in sorted(everything, key=lambda run: (run.state == "complete", run.bytes, run.sha256)):
            if run.run_id is not None:
                if (earlier := latest.get(run.run_id)) is not None:
                    earlier.superseded = True
                latest[run.run_id] = run
        everything.sort(key=lambda run: (run.created is not None, run.created or 0.0, run.sha256), reverse=True)
        return everything

    def find(self, word: str) -> ArchivedRun:
        """Return the run that a word names: a unique beginning of its id, or of its file's hash.

        Raises `UsageError` with the nearest ids where it is none, or several.
        """
        runs, prefix = self.runs(), word.lower()
        found: list[ArchivedRun] = []
        if len(prefix) >= MIN_PREFIX:
            found = [run for run in runs if run.id.startswith((word, prefix))]
            found = found or [run for run in runs if run.sha256.startswith(prefix)]
            # The files of one run are one run: the last one.
            found = [run for run in found if not run.superseded] or found
        if len(found) == 1:
            (run,) = found
            run.treatments = self._index.treatments(run.sha256)
            return run
        if found:
            several = ", ".join(run.id for run in found[:_MOST_SHOWN])
            raise UsageError(f"{one_line(word)}: names several runs: {several}; give more of the id")
        if len(word) < MIN_PREFIX:
            hint = f" (an id has {MIN_PREFIX} characters or more)"
        else:
            near = closest_match(word[:MAX_NAME_CHARS], [run.id for run in runs])
            hint = f" (did you mean '{near}'?)" if near else "; bench-master archive list shows all"
        raise UsageError(f"{one_line(word)}: no run of the archive{hint}")

    def file(self, run: ArchivedRun) -> Path:
        """Return the stats file of a run."""
        return self.folder.place(run.sha256)

    def series(self, wanted: RunFilter = EVERYTHING) -> list[Series]:
        """Return every series that runs of a filter belong to, by scenario, title and hosts."""
        newest_first = [run for run in self._runs() if run.counts and wanted.meets(run)]
        ages = {run.sha256: age for age, run in enumerate(newest_first)}
        members: dict[str, list[tuple[int, int]]] = {}
        for key, sha256, position in self._index.members():
            if sha256 in ages:
                members.setdefault(key, []).append((ages[sha256], position))
        treatments: dict[str, Sequence[ArchivedTreatment]] = {}
        found = []
        for key, parts in members.items():
            age, position = min(parts)
            run = newest_first[age]
            if run.sha256 not in treatments:
                treatments[run.sha256] = self._index.treatments(run.sha256)
            one = treatments[run.sha256][position]
            if (primary := one.primary) is not None:
                found.append(
                    Series(
                        key=key,
                        scenario=run.scenario or "",
                        title=one.title,
                        labels=one.labels,
                        measure=primary.name,
                        unit=primary.unit,
                        direction=primary.direction,
                        hosts=run.place,
                        runs=len(parts),
                    )
                )
        return sorted(found, key=lambda one: (one.scenario, one.title, one.hosts))

    def points(self, series: str, measure: str | None = None, wanted: RunFilter = EVERYTHING) -> list[TrendPoint]:
        """Return the points of a series, the oldest first, by its primary measure or another one of its runs.

        Another one is ``OPERATION.STATISTIC``, such as ``start.p95``, or the name of a metric. Raises `UsageError`
        for a measure that the newest run of the series has not.
        """
        runs = {run.sha256: run for run in reversed(self._runs()) if run.counts and wanted.meets(run)}
        order = {sha256: place for place, sha256 in enumerate(runs)}
        rows = self._index.of_series(series)
        if not rows:
            keys = {key for key, _, _ in self._index.members()}
            raise UsageError(f"{one_line(series)}: no series of the archive{did_you_mean(series, keys)}")
        rows = sorted(((sha256, one) for sha256, one in rows if sha256 in runs), key=lambda row: order[row[0]])
        if not rows:
            return []
        kind, name, statistic = _measure(rows[-1][1], measure)
        found: list[TrendPoint] = []
        machine: dict[str, str] = {}
        for sha256, one in rows:
            lists = next((each.trials for each in one.values if (each.kind, each.name) == (kind, name)), {})
            trials = tuple(value for value in lists.get(statistic, ()) if value is not None)
            run = runs[sha256]
            if not trials or run.created is None:
                continue
            steady = steadied(machine, run.machine)
            machine = machine if steady == machine else steady
            found.append(
                TrendPoint(
                    run_id=run.id,
                    created=run.created,
                    version=one.engine_version or run.version,
                    value=median(trials),
                    trials=trials,
                    machine=machine,
                )
            )
        return found

    def acknowledged(self, series: str) -> frozenset[str]:
        """Return the ids of the runs that begin a change of a series which somebody acknowledged."""
        known = {one.run for one in self.folder.acknowledged() if one.series == series}
        return frozenset(run.id for run in (self._runs() if known else ()) if run.sha256 in known)


def _measure(newest: ArchivedTreatment, measure: str | None) -> tuple[str, str, str]:
    """Return kind, name and statistic of a measure."""
    primary = newest.primary
    known = {} if primary is None else {primary.name: (primary.kind, primary.name, "value")}
    if measure is None:
        return next(iter(known.values()), ("", "", ""))
    for value in newest.values:
        if value.kind == METRIC:
            known.setdefault(value.name, (METRIC, value.name, "mean"))
        elif value.kind == OPERATION:
            for statistic in STATISTICS:
                known.setdefault(f"{value.name}.{statistic}", (OPERATION, value.name, statistic))
    if measure not in known:
        names = ", ".join(map(one_line, sorted(known)[:12]))
        raise UsageError(
            f"measure {one_line(measure)}: not in this series{did_you_mean(measure, known)}; it has {names}"
        )
    return known[measure]


def _check_filter(runs: Sequence[ArchivedRun], wanted: RunFilter) -> None:
    """Raise `UsageError` for a scenario or a host that no run has, with the nearest that one has."""
    scenarios = {run.scenario for run in runs if run.scenario}
    hosts = {host.label for run in runs for host in run.hosts}
    for what, value, known in (("--scenario", wanted.scenario, scenarios), ("--host", wanted.host, hosts)):
        if value is None or value in known:
            continue
        if len(value) > MAX_NAME_CHARS:
            raise UsageError(
                f"{what} {one_line(value[:_SHOWN_CHARS])}...: a name of {len(value):,} characters; "
                f"at most {MAX_NAME_CHARS:,} expected"
            )
        near = closest_match(value, sorted(known))
        few = ", ".join(map(one_line, sorted(known)[:_MOST_SHOWN]))
        more = f" and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
        hint = f"; did you mean {one_line(near)!r}?" if near else f"; known: {few}{more}" if known else ""
        raise UsageError(f"{what} {one_line(value)}: no run in the archive has it{hint}")


def _check_stats_file(path: Path) -> None:
    """Raise `NotAStatsFileError` for a file that is none, before it is copied."""
    try:
        StatsFile(path)
    except NotAStatsFileError:
        raise
    except StatsFileError:
        return  # damaged: it goes in as such
