"""Opens files that the user named: regular ones only, so that no pipe, device or socket makes a program wait.

Opening a FIFO waits for a writer, and reading /dev/zero never ends; a device may even act when it is opened.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Final

STDIN: Final = "-"
"""The name of a file that is standard input."""
_PIECE_BYTES: Final = 1 << 20
_LOCK_POLL_S: Final = 0.02
_KINDS: Final = (
    (stat.S_ISFIFO, "is a pipe (FIFO)"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def lock_within(descriptor: int, timeout_s: float, *, shared: bool = False) -> bool:
    """Take the lock of an open file or folder (flock(2)); return False if others hold it for `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading; raise `OSError` for anything else, at once, with what it is."""
    # Before it is opened: opening a socket fails with a number that says nothing, and opening a tape may wind it.
    _check_regular(path, Path(path).stat().st_mode)
    # It may have been replaced since.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_regular(path, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def user_folder(kind: str, default: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder ``weighbridge`` in ``$XDG_<kind>_HOME``, else in `default` below this user's home."""
    # The XDG specification says to ignore a relative value.
    named = Path(environ.get(f"XDG_{kind}_HOME", ""))
    return (named if named.is_absolute() else Path(environ.get("HOME") or Path.home()) / default) / "weighbridge"


def real_path(path: Path) -> Path:
    """Return a path without symbolic links; one that leads round and round stays as it is, for who opens it."""
    return Path(os.path.realpath(path))


def read_regular(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file, with U+FFFD for what is not UTF-8; raise `OSError` like `open_regular`."""
    with open_regular(path) as file:
        return file.read().decode("utf-8", "replace")


def write_new(path: Path, text: str) -> None:
    """Write a text to a file that must not exist yet; of a text that cannot be written whole nothing is left.

    Raises `OSError`, `FileExistsError` among them.
    """
    with path.open("x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file: a kill leaves the one before, or this one. Raises `OSError`."""
    written = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with written.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def _check_regular(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    what = next((text for is_kind, text in _KINDS if is_kind(mode)), "is no file")
    raise OSError(errno.EINVAL, f"{what}, not a regular file", os.fspath(path))


def spool_stdin(limit: int) -> BinaryIO:
    """Copy standard input to a file without a name, which can be read several times; it is open and at its end.

    Raises `OSError` where it is larger than `limit` bytes, or cannot be copied.
    """
    spooled: Any = tempfile.TemporaryFile()  # noqa: SIM115  the caller keeps it
    try:
        while piece := sys.stdin.buffer.read(_PIECE_BYTES):
            limit -= len(piece)
            if limit < 0:
                raise OSError(errno.EFBIG, "is larger than what is read from a pipe; save it to a file and name that")
            spooled.write(piece)
        spooled.flush()
    except BaseException:
        spooled.close()
        raise
    opened: BinaryIO = spooled
    return opened


def descriptor_path(file: BinaryIO) -> Path:
    """Return a path that opens an open file once more, from its start."""
    return Path(f"/proc/self/fd/{file.fileno()}")
