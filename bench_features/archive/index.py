"""The index of an archive: what was read from its stats files, in sqlite3, so that no command reads them again.

It can be thrown away. One that is missing, of another version or unreadable is made again; where it cannot be kept,
as on a read-only medium, a command makes one in memory for itself.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from bench_common.errors import InfrastructureError
from bench_common.streams import tell
from bench_features.archive.types import ArchivedRun, ArchivedTreatment

VERSION: Final = 2
"""Of what is kept; an index of another one is made again."""
BUSY_S: Final = 60.0
"""How long to wait for another command that writes."""
FileState: TypeAlias = tuple[int, int]
"""Size and time of change (ns) of a file, by which it is known to be the one that was read."""
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS run (sha256 TEXT PRIMARY KEY, bytes INTEGER, mtime_ns INTEGER, run BLOB);
    CREATE TABLE IF NOT EXISTS treatment (sha256 TEXT, position INTEGER, series TEXT, treatment BLOB,
        PRIMARY KEY (sha256, position));
    CREATE INDEX IF NOT EXISTS treatment_by_series ON treatment (series);
"""
_encode: Final = msgspec.msgpack.Encoder().encode
_run: Final = msgspec.msgpack.Decoder(ArchivedRun).decode
_treatment: Final = msgspec.msgpack.Decoder(ArchivedTreatment).decode


class _UnreadableError(sqlite3.DatabaseError):
    sqlite_errorname = "SQLITE_CORRUPT"


class Index:
    """An open index; close it."""

    def __init__(self, place: Path | None) -> None:
        """Open the index at a place, or one in memory; raise `sqlite3.Error` where it cannot be used."""
        self._name = "memory" if place is None else str(place)
        new = place is None or not (place.exists() and place.stat().st_size)
        self._connection = sqlite3.connect(":memory:" if place is None else place, BUSY_S, isolation_level=None)
        try:
            self._check(new=new)
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def open(cls, place: Path, fill: Callable[[Self], None]) -> Self:
        """Return the index at a place once `fill` has brought it up to date; one that is unreadable is replaced."""
        if os.path.lexists(place) and not place.is_file():
            raise InfrastructureError(f"{place}: is no regular file; remove it, and it is made again")
        for _ in range(2):
            try:
                return cls._filled(place, fill)
            except sqlite3.DatabaseError as error:
                reason = str(error)
                if getattr(error, "sqlite_errorname", "") not in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
                    break
                for suffix in ("-journal", ""):
                    with contextlib.suppress(OSError):
                        Path(f"{place}{suffix}").unlink()
        tell(f"bench-master: {place}: {reason}: the index is made for this command alone")
        return cls._filled(None, fill)

    @classmethod
    def _filled(cls, place: Path | None, fill: Callable[[Self], None]) -> Self:
        index = cls(place)
        try:
            fill(index)
        except BaseException:
            index.close()
            raise
        return index

    def _check(self, *, new: bool) -> None:
        """Make the tables where there are none; raise `sqlite3.DatabaseError` for a damaged or another index."""
        run = self._connection.execute
        if not new:
            (said,) = run("PRAGMA quick_check(1)").fetchone()
            (version,) = run("PRAGMA user_version").fetchone()
            if said == "ok" and version == VERSION:
                return
            raise _UnreadableError("it is damaged, or of another version")
        self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    # -- writing ----------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise `sqlite3.Error` where nothing can be written, before files are read."""
        self._connection.executescript("BEGIN IMMEDIATE; ROLLBACK;")

    def write(self, runs: Iterable[tuple[FileState, ArchivedRun]], gone: Iterable[str] = ()) -> None:
        """Put runs, with the state of their files, into the index in one transaction; remove those that are gone."""
        execute, rows = self._connection.execute, list(runs)
        execute("BEGIN IMMEDIATE")
        try:
            for sha256 in (*gone, *(run.sha256 for _, run in rows)):
                execute("DELETE FROM run WHERE sha256 = ?", (sha256,))
                execute("DELETE FROM treatment WHERE sha256 = ?", (sha256,))
            for state, run in rows:
                row = _encode(replace(run, treatments=[]))
                execute("INSERT INTO run VALUES (?, ?, ?, ?)", (run.sha256, *state, row))
                parts = [(run.sha256, place, one.series, _encode(one)) for place, one in enumerate(run.treatments)]
                self._connection.executemany("INSERT INTO treatment VALUES (?, ?, ?, ?)", parts)
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    # -- asking -----------------------------------------------------------------------------------------------------

    def files(self) -> dict[str, FileState]:
        """Return the files that are in the index by their hash, as they were when they were read."""
        rows = self._connection.execute("SELECT sha256, bytes, mtime_ns FROM run")
        return {sha256: (size, mtime_ns) for sha256, size, mtime_ns in rows}

    def runs(self) -> list[ArchivedRun]:
        """Return every run, without its treatments."""
        with self._reading():
            return [_run(row) for (row,) in self._connection.execute("SELECT run FROM run")]

    def run(self, sha256: str) -> ArchivedRun | None:
        """Return a run without its treatments; None where it is not in the index."""
        with self._reading():
            row = self._connection.execute("SELECT run FROM run WHERE sha256 = ?", (sha256,)).fetchone()
            return None if row is None else _run(row[0])

    def treatments(self, sha256: str) -> list[ArchivedTreatment]:
        """Return the treatments of a run, in order."""
        query = "SELECT treatment FROM treatment WHERE sha256 = ? ORDER BY position"
        with self._reading():
            return [_treatment(row) for (row,) in self._connection.execute(query, (sha256,))]

    def members(self) -> list[tuple[str, str, int]]:
        """Return series, hash of the run and place in it of every treatment."""
        with self._reading():
            return self._connection.execute("SELECT series, sha256, position FROM treatment").fetchall()

    def of_series(self, series: str) -> list[tuple[str, ArchivedTreatment]]:
        """Return the treatments of a series, each with its run's hash."""
        query = "SELECT sha256, treatment FROM treatment WHERE series = ? ORDER BY sha256, position"
        with self._reading():
            return [(sha256, _treatment(row)) for sha256, row in self._connection.execute(query, (series,))]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise InfrastructureError(f"{self._name}: {error}; remove it, and it is made again") from error
