"""What people typed: names, tags, notes, baselines and changes that they know of, in a file that only grows.

Each line of ``annotation.jsonl`` is one entry. The database has the same and is brought up to date from it, so a
rebuild loses nothing. An entry is written at once and synchronised; a line that a killed process or a full disk cut
short is passed over, and the next entry begins a new line.
"""

from __future__ import annotations

import getpass
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench_common.errors import InfrastructureError
from bench_common.files import lock_within, open_regular
from bench_common.safe_text import one_line
from bench_features.archive.database import REPLAYED_KEY
from bench_features.archive.index import insert_if_absent, plain
from bench_features.archive.schema import ANNOTATION, META, TAG

FILE: Final = "annotation.jsonl"
KEYS: Final = ("name", "tag", "untag", "note", "baseline", "acknowledge")
MAX_VALUE_CHARS: Final = 4000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    uid: str
    at: str
    by: str
    run: str
    """The run's hash."""
    key: str
    value: str


_decode: Final = msgspec.json.Decoder(Entry).decode


LOCK_TIMEOUT_S: Final = 30.0
"""How long to wait for another command that adds entries, in seconds."""


class Annotations:
    """The file of one archive."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def append(self, entries: Sequence[tuple[str, str, str]]) -> None:
        """Add entries (run's hash, key, value): all of them are on the disk when this returns."""
        at, by = datetime.now(UTC).isoformat(timespec="seconds"), _user()
        made = [
            Entry(uid=secrets.token_hex(8), at=at, by=by, run=run, key=key, value=value[:MAX_VALUE_CHARS])
            for run, key, value in entries
        ]
        self.write(made)

    def write(self, entries: Sequence[Entry]) -> None:
        """Add entries as they are, such as those of another archive."""
        if not entries:
            return
        text = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if not lock_within(descriptor, LOCK_TIMEOUT_S):
                    raise InfrastructureError(
                        f"{self.path}: another command has written it for {LOCK_TIMEOUT_S:g} s; nothing is noted"
                    )
                size = os.fstat(descriptor).st_size
                cut = size and os.pread(descriptor, 1, size - 1) != b"\n"
                _write_whole(descriptor, b"\n" + text if cut else text, size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise InfrastructureError(
                f"{self.path}: cannot be written: {error.strerror}; nothing was noted"
            ) from error

    def read(self, start: int = 0) -> Iterator[tuple[int, Entry | None]]:
        """Yield each whole line from a byte on as an entry, with where it ends; None for one that is none."""
        try:
            with open_regular(self.path) as file:
                file.seek(start)
                for line in file:
                    start += len(line)
                    if not line.endswith(b"\n"):
                        return  # it is being written, or was cut short
                    if line.strip():
                        yield start, _parsed(line)
        except FileNotFoundError:
            return
        except OSError as error:
            raise InfrastructureError(f"{self.path}: cannot be read: {error.strerror}") from error

    def is_ahead(self, meta: Mapping[str, str]) -> bool:
        """Whether the file has more than a database with this `meta`."""
        try:
            return self.path.stat().st_size > int(meta.get(REPLAYED_KEY, "0"))
        except (FileNotFoundError, ValueError):
            return False

    def replay(self, connection: Connection) -> int:
        """Bring the database up to date; return how many lines are no entries."""
        row = sa.select(META.c.value).where(META.c.key == REPLAYED_KEY)
        # One at a time: a tag that is set and removed must not be set by a slower one.
        end, odd = int(connection.scalar(row.with_for_update()) or 0), 0
        for after, entry in self.read(end):
            end = after
            if entry is None:
                odd += 1
            else:
                _apply(connection, entry)
        connection.execute(META.update().where(META.c.key == REPLAYED_KEY).values(value=str(end)))
        return odd


def _apply(connection: Connection, entry: Entry) -> None:
    values = {name: plain(getattr(entry, name)) for name in ("uid", "run", "key", "value", "at", "by")}
    connection.execute(insert_if_absent(connection, ANNOTATION), values)
    if entry.key == "tag":
        connection.execute(insert_if_absent(connection, TAG), {"run": entry.run, "tag": values["value"]})
    elif entry.key == "untag":
        connection.execute(TAG.delete().where(TAG.c.run == entry.run, TAG.c.tag == values["value"]))


def _parsed(line: bytes) -> Entry | None:
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _write_whole(descriptor: int, text: bytes, size: int) -> None:
    """Write all of a text; of one that does not fit, nothing stays."""
    done = 0
    try:
        while done < len(text):
            done += os.write(descriptor, text[done:])
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _user() -> str:
    try:
        return one_line(getpass.getuser())
    except (KeyError, OSError):
        return f"user {os.geteuid()}"
