"""The folder of an archive: stats files under the hash of their content, and which changes are acknowledged.

::

    objects/ab/abcdef....stats.gz   a stats file under the SHA-256 of its content
    objects/tmp                     files that are being written
    acknowledged.jsonl              the changes that somebody knows of
    index.sqlite3                   made again from the files where it is missing, older than they are or unreadable

A file appears under its name only when it is whole and on the disk: it is written beside its place and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from bench_common.errors import InfrastructureError, UsageError
from bench_common.files import open_regular, user_folder
from bench_common.safe_text import one_line
from bench_common.stats.reader import SUFFIX

VARIABLE: Final = "WEIGHBRIDGE_ARCHIVE"
"""Names the archive where no option does."""
INDEX: Final = "index.sqlite3"
ACKNOWLEDGED: Final = "acknowledged.jsonl"
_PIECE: Final = 1 << 20
_STALE_S: Final = 86_400.0


def find_folder(given: str | None) -> Path:
    """Return the folder that an option, the environment or the default names; raise `UsageError` for a wrong one."""
    text = given if given is not None else os.environ.get(VARIABLE) or None
    where = "--archive" if given is not None else VARIABLE
    if text is None:
        try:
            return user_folder("DATA", ".local/share")
        except RuntimeError as error:
            raise UsageError(
                f"no archive is named, and this user has no home folder for one; name it with --archive or {VARIABLE}"
            ) from error
    if not text.strip():
        raise UsageError(f"{where}: empty; expected a folder")
    if "://" in text:
        # It can have a password in it, so it is not shown.
        raise UsageError(f"{where}: is a URL; expected a folder, which several hosts may mount")
    try:
        folder = Path(text).expanduser()
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{where} {one_line(text)}: is no folder; expected the folder of an archive")
    except RuntimeError as error:
        raise UsageError(f"{where} {one_line(text)}: the home folder is not known; name the whole path") from error
    except OSError as error:
        raise UsageError(f"{where} {one_line(text)}: {error.strerror}; expected the folder of an archive") from error
    return folder.absolute()


class Acknowledged(msgspec.Struct, frozen=True):
    """A change that somebody knows of."""

    series: str
    """The key of the series."""
    run: str
    """The hash of the run that begins the new level."""
    at: str
    """When that was noted (ISO 8601, UTC)."""


class ArchiveFolder:
    """The files of one archive."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.objects = path / "objects"

    @property
    def shown(self) -> str:
        """How messages name the archive."""
        return one_line(str(self.path))

    def make(self) -> bool:
        """Make the folder; return whether it is new. Raise `InfrastructureError` where that is not possible."""
        is_new = not self.objects.exists()
        with _refusing(self.objects, "cannot be made"):
            self.objects.mkdir(parents=True, exist_ok=True)
        if not os.access(self.objects, os.W_OK | os.X_OK):
            raise InfrastructureError(f"{self.objects}: cannot be written to; name another archive with --archive")
        return is_new

    def place(self, sha256: str) -> Path:
        """Return where the file with this content is, or would be."""
        return self.objects / sha256[:2] / f"{sha256}{SUFFIX}"

    def files(self) -> Iterator[Path]:
        """Yield every stats file, in order; raise `InfrastructureError` where a folder cannot be read."""
        with _refusing(self.objects, "cannot be read"):
            folders = sorted(entry.path for entry in os.scandir(self.objects) if len(entry.name) == 2)  # noqa: PLR2004
        for folder in folders:
            with _refusing(Path(folder), "cannot be read"):
                paths = sorted(Path(folder).iterdir())
            yield from (path for path in paths if path.name.endswith(SUFFIX))

    def put(self, source: Path) -> str:
        """Keep the content of a file; return its hash. One that is here and was damaged is replaced.

        Raises `UsageError` for a file that cannot be read, `InfrastructureError` where there is no room.
        """
        try:
            file = open_regular(source)
        except OSError as error:
            raise UsageError(f"{source}: cannot be read: {error.strerror}") from error
        with file, self._written() as (copy, part):
            digest = hashlib.sha256()
            while piece := file.read(_PIECE):
                digest.update(piece)
                copy.write(piece)
            place = self.place(sha256 := digest.hexdigest())
            if not (place.is_file() and hash_of(place) == sha256):
                place.parent.mkdir(exist_ok=True)
                _named(copy, part, place)
                _sync_folder(place.parent)
                _sync_folder(self.objects)
        return sha256

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside the stats files, whole or not at all; raise `InfrastructureError` where that fails."""
        with self._written() as (copy, part):
            copy.write(content)
            _named(copy, part, self.path / name)

    @contextlib.contextmanager
    def _written(self) -> Iterator[tuple[BinaryIO, Path]]:
        """Open a file that nothing names yet, and remove what a killed process left there a day ago."""
        folder, limit = self.objects / "tmp", time.time() - _STALE_S
        with _refusing(folder, "cannot be written"):
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.iterdir():
                with contextlib.suppress(OSError):
                    if old.lstat().st_mtime < limit:
                        old.unlink()
            part = folder / f"{os.getpid()}-{secrets.token_hex(8)}"
            try:
                with part.open("xb") as copy:
                    yield copy, part
            finally:
                part.unlink(missing_ok=True)

    # -- acknowledged changes ---------------------------------------------------------------------------------------

    def acknowledged(self) -> list[Acknowledged]:
        """Return the changes that somebody knows of; raise `InfrastructureError` where they cannot be read."""
        path = self.path / ACKNOWLEDGED
        try:
            with open_regular(path) as file:
                return msgspec.json.Decoder(Acknowledged).decode_lines(file.read())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot be read: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InfrastructureError(
                f"{path}: {error}; expected a line for each change, with series, run and at: mend or remove it"
            ) from error

    def acknowledge(self, series: str, run: str) -> None:
        """Note that the change of a series which a run begins is known."""
        self.acknowledged()  # nothing is added to what cannot be read
        line = msgspec.json.encode(Acknowledged(series, run, datetime.now(UTC).isoformat(timespec="seconds")))
        path = self.path / ACKNOWLEDGED
        with _refusing(path, "cannot be written"), path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def _refusing(path: Path, what: str) -> Iterator[None]:
    """Raise `InfrastructureError` for an `OSError`; one that names no file, such as of a full disk, is of `path`."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "; make room, then do it again" if full else ""
        where = one_line(str(error.filename or path))
        raise InfrastructureError(f"{where}: {what}: {error.strerror or error}{advice}") from error


def _named(file: BinaryIO, part: Path, place: Path) -> None:
    """Give a file its name once it is on the disk."""
    file.flush()
    os.fsync(file.fileno())
    part.replace(place)


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file's content; raise `OSError` where it is no regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
