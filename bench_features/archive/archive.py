"""One archive: opened, asked and added to. The commands and the gates use nothing else."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

import msgspec
import sqlalchemy as sa

from bench_common.errors import InfrastructureError, NotAStatsFileError, StatsFileError, UsageError
from bench_common.files import lock_within
from bench_common.stats.reader import StatsFile
from bench_features.archive.address import Address, find_address
from bench_features.archive.annotations import Annotations, Entry
from bench_features.archive.contents import RunContents
from bench_features.archive.database import FOLDER_KEY, Database
from bench_features.archive.extract import contents_of
from bench_features.archive.index import add_run
from bench_features.archive.objects import SUMMARY_SUFFIX, Objects
from bench_features.archive.queries import (
    annotations_of,
    check_filter,
    count_runs,
    find_hash,
    find_runs,
    hosts_of,
    treatments_of,
)
from bench_features.archive.schema import RUN
from bench_features.archive.series import find_points, find_series
from bench_features.archive.types import ID_CHARS, Added, RunDetails, RunFilter, RunRow, Series, State, TrendPoint
from bench_master.run_data.measured import MeasuredRun

LOCK_FILE: Final = "lock"
OBJECTS_LOCK: Final = "objects-lock"
FOLDER_FILE: Final = "archive-id"
LOCK_TIMEOUT_S: Final = 120.0
"""How long a command waits for a rebuild or a prune to end."""
_PUT_AGAIN: Final = 5
"""How often a file that is removed at the same time is put again."""
EVERYTHING: Final = RunFilter()


class Archive:
    """An open archive; close it, or use it as a context."""

    def __init__(self, address: Address, database: Database) -> None:
        self.address = address
        self.database = database
        self.objects = Objects(address.folder)
        self.annotations = Annotations(address.folder)

    @classmethod
    def open(cls, url: str | None = None, *, create: bool = False) -> Archive:
        """Open the archive at a folder or URL; None is the one of the environment, or the default.

        Raises `UsageError` where there is none and `create` is false, or its index is of another version, and
        `InfrastructureError` where it cannot be reached or used.
        """
        address = find_address(url)
        database = Database(address)
        try:
            return cls._opened(address, database, create=create)
        except BaseException:
            database.close()
            raise

    @classmethod
    def _opened(cls, address: Address, database: Database, *, create: bool) -> Archive:
        archive = cls(address, database)
        if create:
            make_folder(address.folder)
        elif not address.folder.is_dir():
            raise UsageError(
                f"{address.shown}: there is no archive; bench-master archive add FILE makes one, and --archive names "
                "another"
            )
        with archive.locked():
            meta = database.meta()
            if meta is None and archive.objects.has_any():
                meta = database.meta()  # whoever adds the first file makes the index before
                if meta is None:
                    raise UsageError(
                        f"{address.shown}: has stats files and no index; bench-master archive rebuild makes it"
                    )
            if meta is None:
                if not create:
                    raise UsageError(f"{address.shown}: there is no archive; bench-master archive add FILE makes one")
                database.create(folder_id(address.folder, create=True) or "")
                meta = database.meta() or {}
            database.check_version(meta)
            own = folder_id(address.folder, create=False)
            if own != meta.get(FOLDER_KEY):
                raise UsageError(
                    f"{address.shown}: the index is of another folder of stats files than this one; on every host "
                    "objects= must name the same shared folder (after it was copied: bench-master archive rebuild)"
                )
            if archive.annotations.is_ahead(meta):
                archive._replay()
        return archive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index."""
        self.database.close()

    @contextmanager
    def locked(self, how: Literal["shared", "alone"] = "shared") -> Iterator[None]:
        """Keep others from replacing the index meanwhile; ``alone`` waits until nobody uses it.

        Raises `InfrastructureError` where that takes too long.
        """
        with locked_file(self.address.folder / LOCK_FILE, how):
            yield

    @contextmanager
    def holding_objects(self, how: Literal["shared", "alone"] = "shared") -> Iterator[None]:
        """Keep a prune from removing stats files meanwhile; ``alone`` is for a prune, from its note to its end.

        Raises `InfrastructureError` where that takes too long.
        """
        with locked_file(self.address.folder / OBJECTS_LOCK, how):
            yield

    # -- adding -----------------------------------------------------------------------------------------------------

    def add(self, path: Path, *, link: bool = False, run: MeasuredRun | None = None) -> Added:
        """Add a stats file; one that is in the archive stays as it is, and is repaired where it was damaged.

        `run` are its sums where it was read before.

        Raises `UsageError` for a file that is none, `InfrastructureError` where the archive cannot take it.
        """
        check_stats_file(path)
        sha256 = self.objects.put(path, link=link)
        with self.locked():
            with self.database.reading() as connection:
                known = connection.execute(
                    sa.select(RUN.c.state, RUN.c.problem, RUN.c.pruned_at).where(RUN.c.sha256 == sha256)
                ).first()
            if known is not None and known.pruned_at is None and self.objects.find(sha256) is not None:
                return Added(sha256[:ID_CHARS], sha256, new=False, state=known.state, problem=known.problem)
        for _ in range(_PUT_AGAIN):
            # A prune that was first has removed the file: it is put again then.
            with contextlib.suppress(FileNotFoundError):
                added = self.index(sha256, run=run)
                if self.objects.find(sha256) is not None:
                    return added
            self.objects.put(path, link=link)
        raise InfrastructureError(f"{self.objects.path(sha256)}: others remove it each time; add it again later")

    def index(self, sha256: str, *, run: MeasuredRun | None = None) -> Added:
        """Put an object that is here into the index; a run that was pruned is so no longer.

        Raises `FileNotFoundError` where a prune has removed the object.
        """
        place = self.objects.path(sha256)
        size = place.stat().st_size
        # What was read must be what is here: the file may have been damaged, or have changed since.
        is_same = run is not None and run.is_whole and run.intact_bytes == size
        contents = contents_of(place, sha256, size, run if is_same else None)
        with self.holding_objects():
            place.stat()
            with self.locked(), self.database.writing() as connection:
                new = add_run(connection, contents)
                if not new:
                    connection.execute(RUN.update().where(RUN.c.sha256 == sha256).values(pruned_at=None))
            self.objects.remove(sha256, SUMMARY_SUFFIX)
        return Added(sha256[:ID_CHARS], sha256, new=new, state=_state(contents), problem=contents.problem)

    def annotate(self, entries: Sequence[tuple[str, str, str]]) -> None:
        """Note entries (run's hash, key, value), in the file first; see `annotations.KEYS`."""
        self.annotations.append(entries)
        with self.locked():
            self._replay()

    def take_annotations(self, entries: Sequence[Entry]) -> None:
        """Note entries of another archive, as they were made there."""
        if entries:
            self.annotations.write(entries)
            with self.locked():
                self._replay()

    def _replay(self) -> None:
        with self.database.writing() as connection:
            self.annotations.replay(connection)

    # -- asking -----------------------------------------------------------------------------------------------------

    def runs(self, wanted: RunFilter = EVERYTHING) -> list[RunRow]:
        """Return the runs that meet a filter, the newest first; raise `UsageError` for a name that no run has."""
        with self.locked(), self.database.reading() as connection:
            found = find_runs(connection, wanted)
            if not found:
                check_filter(connection, wanted)
            return found

    def count(self, wanted: RunFilter = EVERYTHING) -> int:
        """Return how many runs meet a filter, whatever its limit."""
        with self.locked(), self.database.reading() as connection:
            return count_runs(connection, wanted)

    def find(self, word: str) -> str:
        """Return the hash of the run that a word names; raise `UsageError` where it is none or several."""
        with self.locked(), self.database.reading() as connection:
            return find_hash(connection, word)

    def run(self, word: str) -> RunDetails:
        """Return a run with what the index has of it; `word` is a unique beginning of its id, or its name."""
        with self.locked(), self.database.reading() as connection:
            sha256 = find_hash(connection, word)
            number = connection.execute(
                sa.select(RUN.c.id, RUN.c.argv, RUN.c.versions).where(RUN.c.sha256 == sha256)
            ).one()
            (row,) = find_runs(connection, RunFilter(sha256=sha256, limit=1))
            return RunDetails(
                row=row,
                hosts=hosts_of(connection, number.id),
                treatments=treatments_of(connection, number.id),
                annotations=annotations_of(connection, sha256),
                file=self.objects.find(sha256),
                argv=tuple(msgspec.json.decode(number.argv)),
                versions=msgspec.json.decode(number.versions),
            )

    def series(self, wanted: RunFilter = EVERYTHING) -> list[Series]:
        """Return every series that runs of a filter belong to, by scenario and title."""
        with self.locked(), self.database.reading() as connection:
            return find_series(connection, wanted)

    def points(
        self, series: str, measure: str | None = None, newest: int | None = None, wanted: RunFilter = EVERYTHING
    ) -> list[TrendPoint]:
        """Return the points of a series, the oldest first, by its primary measure or another one of its runs.

        Only runs that meet the filter `wanted` are points; `newest` is how many of the newest ones; None: all.
        """
        with self.locked(), self.database.reading() as connection:
            return find_points(connection, series, wanted, measure, newest)


def _state(contents: RunContents) -> State:
    state: State = contents.state  # type: ignore[assignment]  # extract has no others
    return state


def check_stats_file(path: Path) -> None:
    """Raise `NotAStatsFileError` for a file that is none, before it is copied."""
    try:
        StatsFile(path)
    except NotAStatsFileError:
        raise
    except StatsFileError:
        return  # damaged: it goes in as such


def make_folder(folder: Path) -> None:
    """Make the folder of an archive; raise `InfrastructureError` where that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: cannot be made: {error.strerror}; name another with --archive"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InfrastructureError(f"{folder}: cannot be written to; name another with --archive")


def folder_id(folder: Path, *, create: bool) -> str | None:
    """Return what tells this folder of stats files from others; the first one to ask makes it."""
    path = folder / FOLDER_FILE
    try:
        if create and not path.exists():
            part = folder / f"{FOLDER_FILE}.{os.getpid()}"
            part.write_text(secrets.token_hex(8) + "\n", encoding="ascii")
            # Of two that begin at the same time one is first, and both read its id.
            try:
                os.link(part, path)
            except FileExistsError:
                pass
            finally:
                part.unlink()
        return path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InfrastructureError(f"{path}: {error.strerror}") from error


@contextmanager
def locked_file(path: Path, how: Literal["shared", "alone"], timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold a lock on a file; raise `InfrastructureError` after the timeout."""
    try:
        descriptor = _open_lock(path, how)
    except OSError as error:
        need = "readable" if how == "shared" else "writable"
        raise InfrastructureError(f"{path}: {error.strerror}; the folder must be {need} to you") from error
    try:
        if not lock_within(descriptor, timeout_s, shared=how == "shared"):
            raise InfrastructureError(
                f"{path.parent}: the archive was in use by another command for {timeout_s:.0f} s (archive rebuild or "
                "prune, or readers that do not end); try again when it has ended"
            )
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: Path, how: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if how == "alone" or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # whoever may only read
