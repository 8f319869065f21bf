"""What runs record on this host for clean-up: that they are alive (leases), and which engines they use.

A worker holds a lease for as long as it works for a run: a file that names the run, locked (flock) by the process.
The kernel releases the lock when the process ends, however it ends: nothing has to time out, and a stale file cannot
pass for a live run. Users share engines, and each one's clean-up must know the others' runs, so every user can read
all leases; only the user can make, rename or delete them (`bench_common.directories`). So a stranger can keep
leftovers with an invented lease, and never have those of a live run removed. A mount namespace may hide a lease: then
the label of each leftover says whether its run is alive (`bench_worker.owner`).

A record of use is a file whose name has a run, an engine and the process that uses it; it is empty but for a label,
whose program or address it has. It exists before the run opens the engine and survives a reboot, as containers do; a
clean-up that finds nothing left of the run deletes it. So clean-up opens only the engines that runs used: to ask
every installed one takes a dozen processes, and for Podman a service of its own. A user's clean-up believes its own
records and root's; root's those of everybody, but for the places of labels, since it would run a program there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, unquote

from msgspec import Struct

from bench_common.argument_types import InvalidValue
from bench_common.directories import (
    opened,
    runtime_directories,
    runtime_directory,
    state_directories,
    state_directory,
)
from bench_common.engine_traits import EngineLabel, parse_engine_label
from bench_common.errors import InfrastructureError
from bench_worker.owner import own_label

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LEASES: Final = "."
"""Leases are in the user's directory itself."""
USES: Final = "used-engines"
"""The name of the directories with records of use."""
MAX_FILES: Final = 4096
"""How many files of one user are read at most."""

_SUFFIX = ".lease"
_LARGEST_BYTES = 4096


class RunLease:
    """Marks a run as alive on this host while it is held, as a context manager or by `acquire` and `release`."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._fd: int | None = None
        self._path: Path | None = None

    def acquire(self) -> None:
        """Take the lease; raise `InfrastructureError` when no directory for it can be made."""
        if self._fd is not None:
            return
        directory = runtime_directory(LEASES, readable=True)
        name = secrets.token_hex(8)
        fresh, path = directory / f".{name}.new", directory / f"{name}{_SUFFIX}"
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InfrastructureError(f"cannot keep a lease in {directory}: {error.strerror}") from error
        try:
            # Locked and complete before it gets the name that others search for.
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, json.dumps({"run": self.run_id, "pid": os.getpid()}).encode())
            os.fchmod(fd, 0o644)
            fresh.rename(path)
        except OSError:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        self._fd, self._path = fd, path

    def release(self) -> None:
        """Release the lease; a second time does nothing."""
        if self._fd is None or self._path is None:
            return
        with suppress(OSError):
            self._path.unlink()
        os.close(self._fd)
        self._fd = self._path = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()


def live_runs() -> frozenset[str]:
    """Return the ids of the runs that a live worker on this host holds a lease for; clear stale leases away.

    Call this *after* listing what might be removed: a run takes its lease before it makes anything, so everything on
    the list belongs to a run that is found here or to one that has ended.
    """
    found = set()
    for directory, owner in runtime_directories(LEASES):
        with opened(directory, owner) as folder:
            for name in _names(folder):
                if name.endswith(_SUFFIX) and (run_id := _run_id_if_held(folder, name, owner)) is not None:
                    found.add(run_id)
    return frozenset(found)


def _names(folder: int | None) -> list[str]:
    """Return the names of the files in a directory, at most `MAX_FILES`."""
    if folder is None:
        return []
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.name for entry in islice(entries, MAX_FILES))
    return []


def _run_id_if_held(folder: int | None, name: str, owner: int) -> str | None:
    """Return the run of a lease that is held, or None; a lease that nobody holds is deleted."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            return None
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
            return None
        return _read_run_id(fd)
    else:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        return None
    finally:
        os.close(fd)


def _read_run_id(fd: int) -> str | None:
    try:
        return str(json.loads(os.pread(fd, _LARGEST_BYTES, 0))["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


class EngineUse(Struct, frozen=True):
    """A record that a run has used an engine on this host."""

    run_id: str
    engine: str
    """The name of the engine."""
    process: str
    """The label of the process that uses it (`bench_worker.owner`)."""
    label: EngineLabel | None
    """What that is, where it is a label."""
    path: Path
    """The file that records it."""
    owner: int
    """The user whose file it is."""


def record_engine_use(run_id: str, engine: str, label: EngineLabel | None = None) -> None:
    """Record that this process uses an engine for a run, which may be a label.

    Raises `InfrastructureError` where that is impossible.
    """
    name = f"{quote(run_id, safe='')}:{quote(engine, safe='')}:{own_label()}"
    try:
        path = state_directory(USES, readable=True) / name
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, b"" if label is None else str(label).encode(), 0)
        finally:
            os.close(fd)
    except (OSError, InfrastructureError) as error:
        raise InfrastructureError(
            f"cannot record that engine {engine} is used, which clean-up needs to know: {error}"
        ) from error


def recorded_uses(run_id: str | None = None) -> list[EngineUse]:
    """Return the records of one run, or of all."""
    found = []
    for directory, owner in state_directories(USES):
        if os.geteuid() not in (0, owner) and owner != 0:
            continue
        with opened(directory, owner) as folder:
            for name in _names(folder):
                run, _, engine = name.partition(":")
                engine, colon, process = engine.partition(":")
                if colon and run_id in (None, unquote(run)):
                    label = _recorded_label(folder, name, owner)
                    found.append(EngineUse(unquote(run), unquote(engine), process, label, directory / name, owner))
    return found


def _recorded_label(folder: int | None, name: str, owner: int) -> EngineLabel | None:
    """Return the label in a record, which names a program to run: only in this user's records and in root's."""
    if owner not in (0, os.geteuid()):
        return None
    with suppress(OSError, ValueError, InvalidValue):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            facts = os.fstat(fd)
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == owner and facts.st_size:
                return parse_engine_label(os.pread(fd, _LARGEST_BYTES, 0).decode())
        finally:
            os.close(fd)
    return None


def delete_records(uses: Iterable[EngineUse]) -> None:
    """Delete records; those of another user stay, unless this is root."""
    for use in uses:
        with opened(use.path.parent, use.owner) as folder, suppress(OSError):
            if folder is not None:
                os.unlink(use.path.name, dir_fd=folder)
