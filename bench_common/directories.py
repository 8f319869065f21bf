"""Directories of this user: where others can neither create, rename nor delete anything, whatever they did before.

In ``/tmp`` and ``/var/tmp`` everybody can take any name first. So a name there proves nothing: a directory is used
only if it is a directory and no symbolic link, belongs to this user, and is writable to nobody else. Otherwise it is
named in the log and avoided: the user gets another one, with a name that nobody can predict, and finds it again by
its owner.

``$XDG_RUNTIME_DIR`` is not used: it is deleted when its user logs out, and a run in tmux or nohup goes on. Nor is the
home directory, which several hosts may share.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

RUNTIME: Final = (Path("/run"), Path("/tmp"))  # noqa: S108  every use of it is checked
"""Where root's and other users' directories are that a reboot may empty."""
STATE: Final = (Path("/var/lib"), Path("/var/tmp"))  # noqa: S108  likewise
"""Where root's and other users' directories are that survive a reboot."""
STEM: Final = "weighbridge"

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_warned: set[Path] = set()


def runtime_directory(name: str, *, readable: bool = False) -> Path:
    """Return the directory `name` of this user that a reboot may empty; make it if it does not exist.

    ``/run/weighbridge/NAME`` for root, else ``/tmp/weighbridge-UID/NAME`` (short enough for sockets). Others can read
    in it if `readable`, else not even enter it. The name "." means the directory that holds the others; it is
    readable. Raises `InfrastructureError` where none can be made.
    """
    return _directory(RUNTIME, name, readable=readable)


def state_directory(name: str, *, readable: bool = False) -> Path:
    """Return the directory `name` of this user that survives a reboot, as `runtime_directory` does."""
    return _directory(STATE, name, readable=readable)


def _directory(places: tuple[Path, Path], name: str, *, readable: bool) -> Path:
    mode = 0o755 if readable else 0o700
    root_place, shared_place = places
    if os.geteuid() == 0:
        # Nobody but root can write there; it may be read-only.
        with suppress(OSError):
            home = root_place / STEM
            if _claim(home, 0o755) is None and _claim(home / name, mode) is None:
                return home / name
    home = own_directory(shared_place, STEM, mode=0o755)
    try:
        reason = _claim(home / name, mode)
    except OSError as error:
        raise InfrastructureError(f"cannot make {home / name}: {error.strerror}") from error
    if reason is not None:
        raise InfrastructureError(f"{home / name} {reason}: remove it, then try again")
    return home / name


def own_directory(parent: Path, stem: str, *, mode: int = 0o700) -> Path:
    """Return this user's directory ``STEM-UID`` in a directory that everybody may write to; make it if necessary.

    A stranger's is named in the log, and avoided. Raises `InfrastructureError` where `parent` cannot be used.
    """
    user = os.geteuid()
    usual = parent / f"{stem}-{user}"
    try:
        _check_parent(parent)
        reason = _claim(usual, mode)
        if reason is None:
            return usual
        before = (path for path, owner in own_directories(parent, stem) if owner == user and path != usual)
        path = next(before, None) or Path(tempfile.mkdtemp(prefix=f"{stem}-{user}-", dir=parent))
        _claim(path, mode)
    except OSError as error:
        raise InfrastructureError(f"cannot make {usual}: {error.strerror}; make {parent} writable") from error
    if usual not in _warned:
        _warned.add(usual)
        log.warning("%s %s: using %s instead", usual, reason, path)
    return path


def own_directories(parent: Path, stem: str) -> list[tuple[Path, int]]:
    """Return the directories that `own_directory` made here, of all users, each with its owner; make none."""
    pattern = re.compile(rf"{re.escape(stem)}-(\d{{1,10}})(-.+)?")
    found = []
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is None:
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if int(match[1]) == status.st_uid and _refusal(status, status.st_uid) is None:
                    found.append((Path(entry.path), status.st_uid))
    return sorted(found)


def runtime_directories(name: str) -> list[tuple[Path, int]]:
    """Return the directories `name` of all users that `runtime_directory` made, with their owners. See `opened`."""
    return _directories(RUNTIME, name)


def state_directories(name: str) -> list[tuple[Path, int]]:
    """Return the directories `name` of all users that `state_directory` made, with their owners. See `opened`."""
    return _directories(STATE, name)


def _directories(places: tuple[Path, Path], name: str) -> list[tuple[Path, int]]:
    root_place, shared_place = places
    homes = [(root_place / STEM, 0), *own_directories(shared_place, STEM)]
    return [(home / name, owner) for home, owner in homes]


@contextmanager
def opened(path: Path, owner: int) -> Iterator[int | None]:
    """Open a directory of a user who is not trusted; give its descriptor, or None if it is no directory of theirs.

    With the descriptor as ``dir_fd``, what happens there is bounded to the directory, whatever its owner renames.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor if _refusal(os.fstat(descriptor), owner) is None else None
    finally:
        os.close(descriptor)


def _check_parent(parent: Path) -> None:
    """Raise `InfrastructureError` for a directory in which others could replace ours."""
    status = parent.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise InfrastructureError(f"{parent} belongs to {_user(status.st_uid)}, who can replace what is in it")
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        raise InfrastructureError(f"{parent} lets everybody replace what others have in it: chmod +t {parent}")


def _claim(path: Path, mode: int) -> str | None:
    """Make a directory, or check the one that exists; return why it cannot be used, or None. Raises `OSError`.

    A directory that exists is never opened to more users than it was, except for one that was made here and closed.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    reason = _refusal(status, os.geteuid())
    if reason is not None:
        return reason
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        reason = _refusal(status, os.geteuid())
        if reason is None and stat.S_IMODE(status.st_mode) != mode:
            # Without what the umask may have taken, and without what a private one has too much.
            os.fchmod(descriptor, mode)
        return reason
    finally:
        os.close(descriptor)


def _refusal(status: os.stat_result, owner: int) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return f"is a symbolic link of {_user(status.st_uid)}"
    if not stat.S_ISDIR(status.st_mode):
        return f"is not a directory (it belongs to {_user(status.st_uid)})"
    if status.st_uid != owner:
        return f"belongs to {_user(status.st_uid)}, not to {_user(owner)}"
    if status.st_mode & _OTHERS_WRITE:
        return f"is writable to others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
