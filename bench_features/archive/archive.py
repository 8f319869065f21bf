"""One archive: opened, asked and added to. The commands and the gates use nothing else.

Its index has what was read from the stats files, so that no command reads them again. It can be thrown away: one that
is missing, of another version or unreadable is made again, and one that cannot be kept is made by each command.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Self, TypeAlias

import msgspec

from bench_common.errors import (
    InfrastructureError,
    NotAStatsFileError,
    StatsFileError,
    UsageError,
    did_you_mean,
)
from bench_common.files import open_regular
from bench_common.safe_text import one_line, shorten
from bench_common.stats.reader import SUFFIX, StatsFile
from bench_common.streams import program_name, tell
from bench_features.archive.extract import contents_of
from bench_features.archive.folder import INDEX, ArchiveFolder, find_folder, hash_of
from bench_features.archive.types import (
    Added,
    ArchivedRun,
    ArchivedTreatment,
    RunFilter,
    Series,
)
from bench_master.progress_message import note, progress_message
from bench_master.run_data.measured import MeasuredRun

EVERYTHING: Final = RunFilter()
MIN_PREFIX: Final = 4
"""The shortest beginning of an id that is taken for one."""
_MOST_SHOWN: Final = 5
_SHOWN_CHARS: Final = 200
Row: TypeAlias = tuple[tuple[int, int], ArchivedRun]
"""Size and time of change (ns) of a file, by which it is known to be the one that was read; and what is in it."""


_VERSION: Final = 3
"""Of what the index keeps; one of another version is made again."""
_TABLE: Final = "CREATE TABLE run (sha256 TEXT PRIMARY KEY, bytes INTEGER, mtime_ns INTEGER, run BLOB)"
_encode: Final = msgspec.msgpack.Encoder().encode
_run: Final = msgspec.msgpack.Decoder(ArchivedRun).decode


class Archive:
    """An open archive; close it, or use it as a context."""

    def __init__(self, folder: ArchiveFolder) -> None:
        self.folder = folder
        self.unreadable: dict[Path, str] = {}
        """Files in the archive that cannot be read, and why; they are in no answer."""
        self._rows = _read_index(folder.path / INDEX)
        self._is_saved = True
        self._refresh()

    @classmethod
    def open(cls, given: str | None = None, *, create: bool = False) -> Archive:
        """Open the archive in a folder; None is the one of the environment, or the default. Note what is unreadable.

        Raises `UsageError` where there is none and `create` is false, `InfrastructureError` where it cannot be used.
        """
        folder = ArchiveFolder(find_folder(given))
        if create:
            if folder.make():
                note(f"{program_name()}: {folder.shown}: a new archive")
        elif not folder.objects.is_dir():
            raise UsageError(
                f"{folder.shown}: there is no archive; bench-master archive add FILE makes one, and --archive names "
                "another"
            )
        archive = cls(folder)
        for path, reason in archive.unreadable.items():
            note(f"{program_name()}: {one_line(str(path))}: not in the archive: {reason}")
        return archive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the index if it has changed; where that is not possible, the next command reads the files again."""
        if self._is_saved:
            return
        try:
            self.folder.write(INDEX, _index_of(self._rows))
        except InfrastructureError as error:
            tell(f"{program_name()}: {error}: the index is made for this command alone")
        self._is_saved = True

    def _refresh(self) -> None:
        """Bring the index up to date: read the files that are new or have changed, forget those that are gone."""
        known, self._rows = self._rows, {}
        try:
            with progress_message("reading the archive's files"):
                for path in self.folder.files():
                    sha256 = path.name.removesuffix(SUFFIX)
                    try:
                        self._rows[sha256] = self._row(sha256, path, known.get(sha256))
                    except OSError as error:
                        self.unreadable[path] = f"cannot be read: {error.strerror or error}"
                    except StatsFileError as error:
                        self.unreadable[path] = error.message.removeprefix(f"{path}: ")
            self._is_saved = self._is_saved and self._rows.keys() == known.keys()
        except BaseException:
            self._rows = known | self._rows
            self.close()  # what was read so far is kept
            raise

    def _row(self, sha256: str, path: Path, known: Row | None) -> Row:
        """Return what the index has of a file, which is read where it is not the one that is known."""
        about = path.stat()
        state = about.st_size, about.st_mtime_ns
        if known is not None and known[0] == state:
            return known
        if path != self.folder.place(sha256) or hash_of(path) != sha256:
            raise StatsFileError("its content is not what was added; add the original file again")
        self._is_saved = False
        return state, contents_of(path, sha256, about.st_size)

    # -- adding -----------------------------------------------------------------------------------------------------

    def add(self, path: Path, *, run: MeasuredRun | None = None) -> Added:
        """Add a stats file; one that is in the archive stays as it is, and is repaired where it was damaged.

        `run` are its sums where it was read before.

        Raises `UsageError` for a file that is none, `InfrastructureError` where the archive cannot take it.
        """
        try:
            StatsFile(path)
        except NotAStatsFileError:
            raise
        except StatsFileError:
            pass  # damaged: it goes in as such
        sha256 = self.folder.put(path)
        place = self.folder.place(sha256)
        about = place.stat()
        self.unreadable.pop(place, None)
        if sha256 in self._rows:
            return Added(self._rows[sha256][1], new=False)
        # What was read must be what is here: the file may have changed since.
        is_same = run is not None and run.is_whole and run.intact_bytes == about.st_size
        found = contents_of(place, sha256, about.st_size, run if is_same else None)
        self._rows[sha256], self._is_saved = ((about.st_size, about.st_mtime_ns), found), False
        return Added(found, new=True)

    # -- asking -----------------------------------------------------------------------------------------------------

    def runs(self, wanted: RunFilter = EVERYTHING) -> list[ArchivedRun]:
        """Return the runs that meet a filter, the newest first; raise `UsageError` for a name that no run has."""
        everything = self._runs()
        found = [run for run in everything if wanted.meets(run)]
        if not found:
            _check_filter(everything, wanted)
        return found

    def _runs(self) -> list[ArchivedRun]:
        everything = [run for _, run in self._rows.values()]
        latest: dict[str, ArchivedRun] = {}
        # Of the files of one run, which was resumed, the whole and longest one counts.
        for run in sorted(everything, key=lambda run: (run.state == "complete", run.bytes, run.sha256)):
            run.superseded = False
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
            return found[0]
        if found:
            several = ", ".join(run.id for run in found[:_MOST_SHOWN])
            raise UsageError(f"{one_line(word)}: names several runs: {several}; give more of the id")
        hint = did_you_mean(word[:_SHOWN_CHARS], [run.id for run in runs]) or "; bench-master archive list shows all"
        if len(word) < MIN_PREFIX:
            hint = f" (an id has {MIN_PREFIX} characters or more)"
        raise UsageError(f"{one_line(word)}: no run of the archive{hint}")

    def file(self, run: ArchivedRun) -> Path:
        """Return the stats file of a run."""
        return self.folder.place(run.sha256)

    def series(self, wanted: RunFilter = EVERYTHING) -> list[Series]:
        """Return every series that runs of a filter belong to, by scenario, title and hosts.

        Raises `UsageError` for a name that no run has.
        """
        members: dict[str, list[tuple[ArchivedRun, ArchivedTreatment]]] = {}
        everything = self._runs()
        for run in reversed(everything):
            if run.counts and wanted.meets(run):
                for one in run.treatments:
                    if one.measure is not None:
                        members.setdefault(one.series, []).append((run, one))
        if not members:
            _check_filter(everything, wanted)
        found = []
        for key, own in members.items():
            run, newest = own[-1]
            assert newest.measure is not None
            about = (key, run.scenario or "", newest.title, newest.labels, newest.measure, run.place)
            found.append(Series(*about, own))
        return sorted(found, key=lambda one: (one.scenario, one.title, one.hosts))

    def acknowledged(self, series: str) -> frozenset[str]:
        """Return the ids of the runs that begin a change of a series which somebody acknowledged."""
        known = {one.run for one in self.folder.acknowledged() if one.series == series}
        return frozenset(run.id for run in (self._runs() if known else ()) if run.sha256 in known)


def _index_of(rows: Mapping[str, Row]) -> bytes:
    """Return the index as a file of sqlite3, which is written whole: nothing locks it, also on a shared folder."""
    with closing(sqlite3.connect(":memory:")) as index:
        index.executescript(f"{_TABLE}; PRAGMA user_version = {_VERSION};")
        kept = ((sha256, *state, _encode(run)) for sha256, (state, run) in rows.items())
        index.executemany("INSERT INTO run VALUES (?, ?, ?, ?)", kept)
        index.commit()
        return index.serialize()


def _read_index(path: Path) -> dict[str, Row]:
    try:
        with open_regular(path) as file:
            content = file.read() or b"-"  # of no bytes sqlite3 raises MemoryError
        with closing(sqlite3.connect(":memory:")) as index:
            index.deserialize(content)
            (version,) = index.execute("PRAGMA user_version").fetchone()
            rows = index.execute("SELECT * FROM run") if version == _VERSION else ()
            return {sha256: ((size, mtime_ns), _run(run)) for sha256, size, mtime_ns, run in rows}
    except (FileNotFoundError, sqlite3.Error, msgspec.MsgspecError, TypeError):
        return {}
    except OSError as error:
        raise InfrastructureError(f"{path}: {error.strerror}; remove it, and it is made again") from error


def _check_filter(runs: Sequence[ArchivedRun], wanted: RunFilter) -> None:
    """Raise `UsageError` for a scenario or a host that no run has, with the nearest that one has."""
    scenarios = {run.scenario for run in runs if run.scenario}
    hosts = {name for run in runs for name in run.hosts}
    for what, value, known in (("--scenario", wanted.scenario, scenarios), ("--host", wanted.host, hosts)):
        if value is not None and value not in known:
            more = f" and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
            few = f"; known: {', '.join(sorted(known)[:_MOST_SHOWN])}" if known else ""
            hint = did_you_mean(value, known) or shorten(few, _SHOWN_CHARS) + more
            raise UsageError(one_line(f"{what} {shorten(value, _SHOWN_CHARS)}: no run in the archive has it{hint}"))
