"""What runs record on this host for clean-up: that they are alive (leases), and which engines they use.

A worker holds a lease for as long as it works for a run: a file that names the run, locked (flock) by the process.
The kernel releases the lock when the process ends, however it ends: nothing has to time out, and a stale file cannot
pass for a live run. Every user of the host can read the leases: users share engines, and each one's clean-up must
know the others' runs. (That rules $XDG_RUNTIME_DIR out.)

A record of use is an empty file that names a run and an engine. It exists before the run opens the engine and
survives a reboot, as containers do; a clean-up that finds nothing left of the run deletes it. So clean-up opens only
the engines that runs used: to ask every installed one takes a dozen processes, and for Podman a service of its own.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, unquote

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT_LEASES_DIRECTORY: Final = Path("/run/weighbridge")
"""Where root's leases are; other users can read there."""
SHARED_LEASES_DIRECTORY: Final = Path("/tmp/weighbridge-leases")  # noqa: S108  sticky, and only ever read by others
"""Where other users' leases are: a directory like /tmp itself, in which each one owns his files."""

ROOT_USES_DIRECTORY: Final = Path("/var/lib/weighbridge-used")
"""Where root's records are."""
SHARED_USES_DIRECTORY: Final = Path("/var/tmp/weighbridge-used")  # noqa: S108  sticky; others' records do no harm
"""Where other users' records are, and root's where the other directory cannot be written."""

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
        directory = _own_directory()
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
    for path in _leases():
        run_id = _run_id_if_held(path)
        if run_id is not None:
            found.add(run_id)
    return frozenset(found)


def _leases() -> Iterator[Path]:
    for directory in (ROOT_LEASES_DIRECTORY, SHARED_LEASES_DIRECTORY):
        with suppress(OSError):
            yield from sorted(directory.glob(f"*{_SUFFIX}"))


def _run_id_if_held(path: Path) -> str | None:
    """Return the run of a lease that is held, or None; a lease that nobody holds is deleted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
            return None
        return _read_run_id(fd)
    else:
        with suppress(OSError):
            path.unlink()
        return None
    finally:
        os.close(fd)


def _read_run_id(fd: int) -> str | None:
    try:
        return str(json.loads(os.pread(fd, _LARGEST_BYTES, 0))["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _own_directory() -> Path:
    if os.geteuid() == 0:
        with suppress(OSError):
            ROOT_LEASES_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
            return ROOT_LEASES_DIRECTORY
    try:
        make_shared_directory(SHARED_LEASES_DIRECTORY)
    except OSError as error:
        raise InfrastructureError(f"cannot keep leases in {SHARED_LEASES_DIRECTORY}: {error.strerror}") from error
    return SHARED_LEASES_DIRECTORY


def make_shared_directory(directory: Path) -> None:
    """Make a directory in which every user may make files and none may touch another's. Raises `OSError`."""
    directory.mkdir(exist_ok=True)
    if directory.stat().st_uid == os.geteuid():
        directory.chmod(0o1777)  # mkdir applies the umask


@dataclass(frozen=True, slots=True)
class EngineUse:
    """A record that a run has used an engine on this host."""

    run_id: str
    """The run."""
    engine: str
    """The name of the engine."""
    path: Path
    """The file that records it."""


def record_engine_use(run_id: str, engine: str) -> None:
    """Record that a run uses an engine on this host. Raises `InfrastructureError` where that is impossible."""
    name = f"{quote(run_id, safe='')}:{quote(engine, safe='')}"
    for directory in _use_directories():
        with suppress(OSError):
            if directory == SHARED_USES_DIRECTORY:
                make_shared_directory(directory)
            else:
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            os.close(os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
            return
    raise InfrastructureError(
        f"cannot record in {' or '.join(map(str, _use_directories()))} that engine {engine} is used, which clean-up "
        "needs to know; make one of them writable"
    )


def recorded_uses(run_id: str | None = None) -> list[EngineUse]:
    """Return the records of one run, or of all."""
    found = []
    for directory in (ROOT_USES_DIRECTORY, SHARED_USES_DIRECTORY):
        with suppress(OSError):
            for path in sorted(directory.iterdir()):
                run, colon, engine = path.name.partition(":")
                if colon and run_id in (None, unquote(run)):
                    found.append(EngineUse(unquote(run), unquote(engine), path))
    return found


def delete_records(uses: Iterable[EngineUse]) -> None:
    """Delete records; those of another user stay."""
    for use in uses:
        with suppress(OSError):
            use.path.unlink()


def _use_directories() -> tuple[Path, ...]:
    return (ROOT_USES_DIRECTORY, SHARED_USES_DIRECTORY) if os.geteuid() == 0 else (SHARED_USES_DIRECTORY,)
