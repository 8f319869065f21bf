"""The stats files of an archive, each under the SHA-256 of its content: ``objects/ab/abcdef….stats.gz``.

A file appears under its name only when it is whole and on the disk: it is written beside its place, synchronised and
renamed. What a killed process leaves is a file in ``objects/tmp``, which the next one removes after a day. The file
itself is copied, and shares its blocks where the file system can do that; a hard link is made only on request, since
``run-scenario --resume`` writes into a file that exists.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from bench_common.errors import InfrastructureError, UsageError
from bench_common.files import open_regular, real_path
from bench_common.safe_text import one_line

SUFFIX: Final = ".stats.gz"
SUMMARY_SUFFIX: Final = ".pruned.gz"
"""What the index has of a run whose stats file was removed, so that a rebuild finds it."""
_PIECE: Final = 1 << 20
_STALE_S: Final = 86_400.0
_HASH_CHARS: Final = 64


class Objects:
    """The files of one archive."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "objects"
        """Their folder."""

    def path(self, sha256: str, suffix: str = SUFFIX) -> Path:
        """Return where the file with this content is, or would be."""
        return self.root / sha256[:2] / f"{sha256}{suffix}"

    def find(self, sha256: str) -> Path | None:
        """Return the file with this content; None if it is not here."""
        path = self.path(sha256)
        return path if path.is_file() else None

    def put(self, source: Path, *, link: bool = False) -> str:
        """Keep the content of a file; return its hash. One that is here and was damaged is replaced.

        Raises `UsageError` for a file that cannot be read, `InfrastructureError` where there is no room.
        """
        try:
            with open_regular(source) as file:
                return self._put(file, source, link=link)
        except OSError as error:
            if error.filename is not None and Path(error.filename) != source:
                raise self._refused(error) from error
            raise UsageError(f"{source}: cannot be read: {error.strerror}") from error

    def _put(self, file: BinaryIO, source: Path, *, link: bool) -> str:
        part = self.temporary()
        try:
            with naming(part):
                sha256 = _copy(file, part)
                place = self.path(sha256)
                if place.is_file() and hash_of(place) == sha256:
                    return sha256
                if link:
                    self._link(source, part, sha256)
                self.settle(part, place)
            return sha256
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _link(self, source: Path, part: Path, sha256: str) -> None:
        """Put a hard link in the place of the copy, where that is possible and the content is still the same."""
        linked = self.temporary()
        try:
            os.link(real_path(source), linked)
        except OSError:
            return  # another file system, or one without links: the copy stands
        if hash_of(linked) == sha256:
            linked.replace(part)
        else:
            linked.unlink()

    def write(self, sha256: str, suffix: str, content: bytes) -> Path:
        """Write a small file that stands for a content."""
        place, part = self.path(sha256, suffix), self.temporary()
        try:
            with naming(part), part.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            with naming(place):
                self.settle(part, place)
        except OSError as error:
            raise self._refused(error) from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        return place

    def settle(self, part: Path, place: Path) -> None:
        """Give a file that is on the disk its name, and have the name on the disk, too."""
        made = not place.parent.exists()
        place.parent.mkdir(parents=True, exist_ok=True)
        part.replace(place)
        sync_folder(place.parent)
        if made:
            sync_folder(self.root)

    def temporary(self) -> Path:
        """Return a name that nothing has; remove what was left there a day ago."""
        folder = self.root / "tmp"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error) from error
        limit = time.time() - _STALE_S
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < limit:
                        Path(entry.path).unlink()
        return folder / f"{os.getpid()}-{secrets.token_hex(8)}"

    def all(self, suffix: str = SUFFIX) -> Iterator[str]:
        """Yield the hash in the name of each file that is here, in order."""
        try:
            folders = sorted(entry.path for entry in os.scandir(self.root) if len(entry.name) == 2)  # noqa: PLR2004
        except FileNotFoundError:
            return
        for folder in folders:
            for name in sorted(path.name for path in Path(folder).iterdir()):
                sha256 = name.removesuffix(suffix)
                if name.endswith(suffix) and len(sha256) == _HASH_CHARS:
                    yield sha256

    def has_any(self) -> bool:
        """Whether there is a file, or what is kept of a pruned one."""
        return any(self.all()) or any(self.all(SUMMARY_SUFFIX))

    def remove(self, sha256: str, suffix: str = SUFFIX) -> None:
        """Remove the file with this content, if it is here."""
        path = self.path(sha256, suffix)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> InfrastructureError:
        where = one_line(str(error.filename or self.root))
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "make room, then add the run again" if full else "the folder must be writable to you"
        return InfrastructureError(f"{where}: cannot be written: {error.strerror or error}; {advice}")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an `OSError` that names no file, such as one of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _copy(file: BinaryIO, to: Path) -> str:
    """Copy a file and return the hash of what was copied; it is on the disk then."""
    digest = hashlib.sha256()
    with to.open("xb") as copy:
        if not _share_blocks(file, copy):
            while piece := file.read(_PIECE):
                copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    with to.open("rb") as copied:
        while piece := copied.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _share_blocks(file: BinaryIO, copy: BinaryIO) -> bool:
    """Copy within the kernel, where blocks can be shared; return whether that was possible."""
    left = os.fstat(file.fileno()).st_size
    try:
        while left > 0:
            done = os.copy_file_range(file.fileno(), copy.fileno(), left)
            if not done:
                break
            left -= done
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        file.seek(0)
        copy.seek(0)
        copy.truncate()
        return False
    return True


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file's content; raise `OSError` where it is no regular file."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
