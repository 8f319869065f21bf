"""Makes the index anew from the stats files, what is kept of pruned ones, and the annotations.

The new index is built beside the old one, which stays in use meanwhile; only the end, when what was added since is
taken in and the new one takes the old one's place, waits for others and lets them wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import sqlalchemy as sa
from msgspec import Struct, field
from sqlalchemy.engine import Connection

from bench_common.errors import InfrastructureError, NotAStatsFileError, StatsFileError, UsageError
from bench_common.safe_text import one_line
from bench_features.archive.address import BUILT_SUFFIX, Address, find_address
from bench_features.archive.annotations import Annotations
from bench_features.archive.archive import LOCK_FILE, folder_id, locked_file
from bench_features.archive.contents import RunContents, read_summary
from bench_features.archive.database import Database
from bench_features.archive.extract import contents_of
from bench_features.archive.index import add_run
from bench_features.archive.objects import SUFFIX, SUMMARY_SUFFIX, Objects, hash_of, sync_folder
from bench_features.archive.schema import META, METADATA, RUN

REBUILD_LOCK: str = "rebuild-lock"
_BATCH = 100
_AT_ONCE_S = 0.2

Progress = Callable[[int, int], None]


class Rebuilt(Struct):
    """What a rebuild found."""

    address: Address
    runs: int = 0
    """Runs with their stats file."""
    pruned: int = 0
    """Runs without."""
    odd_lines: int = 0
    """Lines of annotations that are none."""
    refused: list[tuple[Path, str]] = field(default_factory=list)
    """Files that are not in the new index, each with the reason."""
    damaged: list[tuple[Path, str]] = field(default_factory=list)
    """Files that are in it as damaged, each with what is wrong."""


def rebuild(url: str | None, progress: Progress = lambda *_: None) -> Rebuilt:
    """Make the index of an archive anew; raise `UsageError` where there is nothing to make it of."""
    address = find_address(url)
    objects = Objects(address.folder)
    if not objects.root.is_dir():
        raise UsageError(f"{address.shown}: has no stats files to make an index of; --archive names another archive")
    with locked_file(address.folder / REBUILD_LOCK, "alone", _AT_ONCE_S):
        return _Rebuild(address, objects).run(progress)


class _Rebuild:
    def __init__(self, address: Address, objects: Objects) -> None:
        self._address = address
        self._objects = objects
        self._found = Rebuilt(address)
        self._seen: set[str] = set()
        target = f"{address.database}.new" if address.url is None else f"{address.schema}{BUILT_SUFFIX}"
        self._new = Database(address, target=target)

    def run(self, progress: Progress) -> Rebuilt:
        try:
            self._discard()
            self._new.create(folder_id(self._address.folder, create=True) or "", wal=False)
            self._add_objects(progress)
            with locked_file(self._address.folder / LOCK_FILE, "alone"):
                self._add_objects(lambda *_: None)  # those that came meanwhile
                self._add_pruned()
                self._name_the_missing()
                with self._new.writing() as connection:
                    self._found.odd_lines = Annotations(self._address.folder).replay(connection)
                self._swap()
        except BaseException:
            self._new.close()
            with contextlib.suppress(Exception):
                self._discard()  # else the next rebuild does
            raise
        finally:
            self._new.close()
        return self._found

    def _discard(self) -> None:
        """Remove what a killed rebuild left."""
        if self._address.url is None:
            for suffix in ("", "-journal", "-wal", "-shm"):
                Path(f"{self._new.target}{suffix}").unlink(missing_ok=True)
            return
        with self._new.writing() as connection:
            self._check_schema(connection, str(self._address.schema))  # the end drops it
            self._drop_schema(connection, self._new.target)

    def _drop_schema(self, connection: Connection, name: str) -> None:
        if self._check_schema(connection, name):
            connection.execute(sa.schema.DropSchema(name, cascade=True))

    def _check_schema(self, connection: Connection, name: str) -> bool:
        """Return whether there is a schema; raise `UsageError` where it is not an archive's alone."""
        inspector = sa.inspect(connection)
        if not inspector.has_schema(name):
            return False
        tables = set(inspector.get_table_names(schema=name))
        others = sorted(tables - METADATA.tables.keys())
        if others or (name != self._address.schema and META.name not in tables):
            which = f" (table {one_line(others[0])})" if others else ""
            raise UsageError(
                f"{self._address.shown}: rebuild replaces the schema {name} of this database, and there is something "
                f"else in it than the index of an archive{which}: rename that schema, or move that elsewhere"
            )
        return True

    def _add_objects(self, progress: Progress) -> None:
        wanted = [sha256 for sha256 in self._objects.all() if sha256 not in self._seen]
        for first in range(0, len(wanted), _BATCH):
            self._add([contents for sha256 in wanted[first : first + _BATCH] if (contents := self._read(sha256))])
            progress(min(first + _BATCH, len(wanted)), len(wanted))

    def _read(self, sha256: str) -> RunContents | None:
        self._seen.add(sha256)
        path = self._objects.path(sha256)
        try:
            if hash_of(path) != sha256:
                raise StatsFileError("its content has changed since it was added")
            contents = contents_of(path, sha256, path.stat().st_size)
        except FileNotFoundError:
            return None  # it was pruned meanwhile
        except NotAStatsFileError as error:
            self._found.refused.append((path, error.message))
        except (OSError, StatsFileError) as error:
            self._found.refused.append((path, str(error)))
        else:
            self._found.runs += 1
            if contents.state == "damaged":
                self._found.damaged.append((path, contents.problem))
            return contents
        return None

    def _add_pruned(self) -> None:
        kept = []
        for sha256 in self._objects.all(SUMMARY_SUFFIX):
            if self._objects.find(sha256) is not None:
                continue
            path = self._objects.path(sha256, SUMMARY_SUFFIX)
            try:
                kept.append(read_summary(path))
            except (OSError, StatsFileError) as error:
                self._found.refused.append((path, str(error)))
        self._found.pruned = len(kept)
        with self._new.writing() as connection:
            for one in kept:
                if not add_run(connection, one):  # its file was read before it was pruned
                    self._found.runs -= 1
                    connection.execute(RUN.update().where(RUN.c.sha256 == one.sha256).values(pruned_at=one.pruned_at))

    def _name_the_missing(self) -> None:
        """Note the runs of the old index, where it can be read, that the new one has not: their files are gone."""
        old = Database(self._address)
        try:
            with old.reading() as connection:
                known = list(connection.scalars(sa.select(RUN.c.sha256)))
        except InfrastructureError:
            return  # what has no index yet, or a damaged one, has nothing to say
        finally:
            old.close()
        for sha256 in known:
            paths = [self._objects.path(sha256, suffix) for suffix in (SUFFIX, SUMMARY_SUFFIX)]
            if not any(path.exists() for path in paths):
                self._found.refused.append((paths[0], "is missing; add the original file again"))

    def _add(self, contents: Iterable[RunContents]) -> None:
        with self._new.writing() as connection:
            for one in contents:
                add_run(connection, one)

    def _swap(self) -> None:
        """Put the new index in the place of the old one, at once."""
        self._new.close()
        if self._address.url is not None:
            self._swap_schemas()
            return
        database = self._address.database
        old = Database(self._address)
        try:
            # What is in the old one's log must not be taken for the new one's. A damaged one has none to save.
            with contextlib.suppress(Exception), old.engine.connect() as connection:
                connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            old.close()
        for suffix in ("-wal", "-shm"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        Path(self._new.target).replace(database)
        sync_folder(database.parent)
        old.write_ahead()
        old.close()

    def _swap_schemas(self) -> None:
        name = str(self._address.schema)
        with self._new.writing() as connection:
            self._drop_schema(connection, name)
            connection.exec_driver_sql(f"ALTER SCHEMA {self._new.target} RENAME TO {name}")
