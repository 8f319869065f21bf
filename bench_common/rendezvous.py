"""Where the programs of one user on one machine meet without keys or ports: a directory that no other user may enter.

A master that listens on no TCP port binds a socket here, named after its control port, and a worker of the same user
finds it there. Who can enter the directory is decided by the kernel; the worker checks owner, mode and kind of
directory and socket before it connects.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Self
from urllib.parse import quote

from bench_common.directories import runtime_directory
from bench_common.errors import InfrastructureError


def private_directory() -> Path:
    """Return this user's directory for sockets, made if needed; raise `InfrastructureError` where none can be."""
    return runtime_directory("masters")


def control_socket(port: int) -> Path:
    """Return where a master of this user that listens on no TCP port has its control socket."""
    return private_directory() / f"control-{port}"


def run_claim(run_id: str) -> Claim:
    """Return the claim of the master that works on a run: there may be copies of its stats file."""
    path = runtime_directory("runs") / quote(run_id, safe="")
    return Claim(path, f"works on run {run_id}, with this stats file or a copy of it; wait for its end")


def check_socket(path: Path) -> None:
    """Raise `InfrastructureError` unless a socket's directory, and the socket if it exists, are this user's alone."""
    try:
        _check_private(path.parent)
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if not stat.S_ISSOCK(found.st_mode):
                raise PermissionError(0, "is no socket")
            _check_owner(found)
    except OSError as error:
        raise InfrastructureError(
            f"{path}: not connected: the directory or the socket {error.strerror}; whoever owns it could start "
            "containers and processes here. A master of another user is reached over TCP with keys "
            "(docs/security.rst)"
        ) from error


class Claim:
    """The right to a path of this user: held by one process at a time, until `release` or the end of the process.

    `meaning` completes the sentence about a process that has it, such as ``waits for workers at ...``.
    """

    def __init__(self, path: Path, meaning: str) -> None:
        self.path = path
        self._meaning = meaning
        self._lock = path.with_name(f"{path.name}.lock")
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> Self:
        """Take it; raise `InfrastructureError` that names the process that has it."""
        while True:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current(descriptor):
                    os.truncate(descriptor, 0)
                    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                    self._descriptor = descriptor
                    return self
            except BlockingIOError as error:
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace") or "unknown"
                os.close(descriptor)
                raise InfrastructureError(
                    f"another master of this user (process {holder}) {self._meaning}"
                ) from error
            except BaseException:
                os.close(descriptor)
                raise
            # Its holder removed it between our open and our lock.
            os.close(descriptor)

    def release(self) -> None:
        """Give it up, and remove what is at the path; a second time does nothing."""
        if self._descriptor < 0:
            return
        for path in (self.path, self._lock):
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._lock.lstat())
        except FileNotFoundError:
            return False


def _check_private(directory: Path) -> None:
    """Raise `OSError` unless a path is a directory, and no link to one, that only this user may enter."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(0, "is no directory (or a symbolic link)")
    _check_owner(found)
    if found.st_mode & 0o077:
        raise PermissionError(0, f"has mode {stat.S_IMODE(found.st_mode):04o}: others may enter it")


def _check_owner(found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise PermissionError(0, f"belongs to user {found.st_uid}, and this program runs as user {os.geteuid()}")
