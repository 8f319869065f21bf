"""The database of an archive: opened, checked, made; SQLite (WAL) or PostgreSQL through SQLAlchemy Core."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from bench_common.errors import InfrastructureError, UsageError
from bench_common.safe_text import mask_credentials, one_line, shorten
from bench_features.archive.address import Address
from bench_features.archive.schema import META, METADATA, SCHEMA_VERSION

BUSY_TIMEOUT_S: Final = 60.0
"""How long a writer waits for another one."""
CONNECT_TIMEOUT_S: Final = 10
_WRITES: Final = "weighbridge_writes"
VERSION_KEY: Final = "schema_version"
FOLDER_KEY: Final = "folder_id"
REPLAYED_KEY: Final = "annotation_bytes"
"""How much of the file of annotations the database has."""


class Database:
    """One index; each `reading` and `writing` is a transaction of its own."""

    def __init__(self, address: Address, *, target: str | None = None) -> None:
        """Prepare for the address; `target` is another file or schema, such as one that is being built."""
        self.address = address
        self.target = target or (str(address.database) if address.url is None else str(address.schema))
        self.engine = self._engine()

    @property
    def is_sqlite(self) -> bool:
        """Whether it is SQLite."""
        return self.address.url is None

    def _engine(self) -> Engine:
        if self.is_sqlite:
            return self._sqlite()
        try:
            # No prepared statements: a rebuild changes the tables under an open connection.
            return sa.create_engine(
                make_url(str(self.address.url)),
                pool_pre_ping=True,
                pool_size=2,
                connect_args={
                    "connect_timeout": CONNECT_TIMEOUT_S,
                    "prepare_threshold": None,
                    "options": f"-c search_path={self.target} -c lock_timeout={int(BUSY_TIMEOUT_S)}s",
                },
            )
        except (ImportError, NoSuchModuleError) as error:
            raise UsageError(
                f"{self.address.shown}: the driver of PostgreSQL is missing ({one_line(str(error))}); install it: "
                "pip install 'weighbridge[postgres]'"
            ) from error
        except (SQLAlchemyError, ValueError) as error:
            raise UsageError(f"{self.address.shown}: not a URL: {_reason(error)}") from error

    def _sqlite(self) -> Engine:
        # A new connection for each transaction: a rebuild puts another file in the place of this one.
        engine = sa.create_engine("sqlite://", creator=lambda: _connect(Path(self.target)), poolclass=NullPool)

        @event.listens_for(engine, "connect")
        def set_up(connection: Any, _record: object) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA foreign_keys = ON")
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.close()

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            # A transaction that reads first and writes later would fail where another one writes in between.
            is_writer = connection.get_execution_options().get(_WRITES)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

        return engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that reads one state of the index."""
        with self.naming_errors(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection whose changes are all made at the end, or none of them."""
        with (
            self.naming_errors(),
            self.engine.connect().execution_options(**{_WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Raise `InfrastructureError` for what the database refuses, without its credentials."""
        try:
            yield
        except DBAPIError as error:
            raise InfrastructureError(f"{self.address.shown}: {_advice(_reason(error))}") from error
        except SQLAlchemyError as error:
            raise InfrastructureError(f"{self.address.shown}: {_reason(error)}") from error

    def write_ahead(self) -> None:
        """Let readers read while one writes: SQLite keeps this mode with the file."""
        with self.naming_errors(), self.engine.connect() as connection:
            connection.connection.cursor().execute("PRAGMA journal_mode = WAL")

    def create(self, folder_id: str, *, wal: bool = True) -> None:
        """Make the tables where there are none; another process may do the same at the same time."""
        if self.is_sqlite and wal:
            self.write_ahead()
        with self.writing() as connection:
            if not self.is_sqlite:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": self.target})
                connection.execute(sa.schema.CreateSchema(self.target, if_not_exists=True))
            METADATA.create_all(connection)
            first = {VERSION_KEY: str(SCHEMA_VERSION), FOLDER_KEY: folder_id, REPLAYED_KEY: "0"}
            known = set(connection.scalars(sa.select(META.c.key)))
            for key, value in first.items():
                if key not in known:
                    connection.execute(META.insert().values(key=key, value=value))

    def meta(self) -> dict[str, str] | None:
        """Return what the index says of itself; None where there is none."""
        if self.is_sqlite and not self.address.database.exists() and self.target == str(self.address.database):
            return None
        with self.naming_errors(), self.engine.connect() as connection:
            schema = None if self.is_sqlite else self.target
            if not sa.inspect(connection).has_table(META.name, schema=schema):
                return None
            return {row.key: row.value for row in connection.execute(sa.select(META))}

    def check_version(self, meta: dict[str, str]) -> None:
        """Raise `UsageError` for an index that this program cannot read."""
        version = meta.get(VERSION_KEY)
        if version != str(SCHEMA_VERSION):
            raise UsageError(
                f"{self.address.shown}: its index has version {one_line(str(version))}, and this program has "
                f"{SCHEMA_VERSION}; bench-master archive rebuild makes it anew from the stats files"
            )

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _connect(path: Path) -> sqlite3.Connection:
    """Open SQLite's file; where nothing can be written beside it, as on a read-only medium, it is read as it is."""
    is_fixed = (
        path.is_file()
        and not os.access(path.parent, os.W_OK)
        and not os.access(path, os.W_OK)
        and not Path(f"{path}-wal").exists()
    )
    name = f"{path.absolute().as_uri()}?mode=ro&immutable=1" if is_fixed else str(path)
    return sqlite3.connect(name, timeout=BUSY_TIMEOUT_S, isolation_level=None, uri=is_fixed)


def _reason(error: BaseException) -> str:
    origin = getattr(error, "orig", None) or error
    return shorten(one_line(mask_credentials(str(origin))), 400)


_ADVICE: Final = (
    (r"disk is full|no space left|disk i/o error", "make room on its disk, then try again"),
    (r"unable to open database file", "archive.db must be a file that you may read and write"),
    (r"invalid connection option", "after ? stand objects=, schema= and options of libpq"),
    (
        r"malformed|not a database",
        "the index is damaged; bench-master archive rebuild makes it anew from the stats files",
    ),
    (r"database \S+ does not exist", "make the database first, with createdb"),
    (
        r"role \S+ does not exist|authentication failed|no password supplied",
        "check user and password (~/.pgpass, PGPASSWORD)",
    ),
    (
        r"relation \S+ does not exist",
        "the user needs USAGE of the schema and rights on its tables; if they are gone: bench-master archive rebuild",
    ),
    (r"permission denied|readonly", "the user needs the right to create and change tables there"),
    (
        r"connection|could not translate host|failed to resolve host",
        "check the host, the port and that the server runs",
    ),
)
"""What to do about what a database says, the first that fits."""


def _advice(reason: str) -> str:
    found = (advice for pattern, advice in _ADVICE if re.search(pattern, reason, re.IGNORECASE))
    advice = next(found, None)
    return reason if advice is None else f"{reason}; {advice}"
