"""Settings of this host's kernel while a run needs other ones: set, read back, and put back by whoever is left.

What a setting was before is in a record, a file that exists before the setting is changed and until it is as it was.
Whoever needs the setting holds a shared lock on the record (flock(2)), which the kernel takes away when a process
ends, however it ends. Who leaves and can lock it alone is the last one, and puts the setting back; where nobody
could, because all were killed, the next start of a worker or a clean-up finds a record that nobody holds. A record of
an earlier boot says nothing: these settings do not outlive the kernel. Workers of one run share records, and the
latest value holds, as the trials of a run come one after the other; two runs cannot have one setting.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from bench_common.errors import InfrastructureError, did_you_mean
from bench_common.host_settings import GOVERNOR, PATTERNS, choices, chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RECORDS: Final = "host-settings"
"""The name of the directory with records (`bench_common.directories.state_directory`)."""
ROOTS: Final = ("/sys/", "/proc/sys/")
_LOCK: Final = ".lock"
_SUFFIX: Final = ".setting"


class SettingError(InfrastructureError):
    """A host setting cannot be read, set or put back."""


class SettingRefused(SettingError):
    """The kernel does not take a value."""


def files_of(name: str) -> list[str]:
    """Return the files of a setting, by the name of records; raise `SettingError` where there is none."""
    pattern = PATTERNS.get(name)
    paths = sorted(map(str, Path("/").glob(pattern.removeprefix("/")))) if pattern else [f"/{name}"]
    if not paths:
        raise SettingError(f"host setting {name}: this kernel manages no frequency (there is no {pattern})")
    for path in paths:
        if not os.path.realpath(path).startswith(ROOTS):
            raise SettingError(f"host setting {name}: {path} is outside of /sys and /proc/sys")
        if not Path(path).is_file():
            raise SettingError(f"host setting {name}: there is no file {path} on this host")
    return paths


def unusable_reason(name: str) -> str:
    """Return why a setting cannot be changed by this process; empty where it can."""
    try:
        for path in files_of(name):
            _read(name, path)
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except SettingError as error:
        return str(error)
    except OSError as error:
        root = "" if os.geteuid() == 0 else "; run the worker as root"
        return f"host setting {name}: {error.filename} cannot be written: {error.strerror}{root}"
    return ""


def offered(name: str) -> tuple[str, ...]:
    """Return the values that a setting has to be chosen from; empty where any may do. Raises `SettingError`."""
    if name == GOVERNOR:
        first = files_of(name)[0].replace("scaling_governor", "scaling_available_governors")
        with suppress(OSError):
            return tuple(Path(first).read_text("utf-8").split())
        return ()
    return choices(_read(name, files_of(name)[0]))


def current(name: str) -> str:
    """Return the value that a setting has; several of unlike files are joined by commas. Raises `SettingError`."""
    return ",".join(dict.fromkeys(chosen(_read(name, path)) for path in files_of(name)))


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError as error:
        raise SettingError(f"host setting {name}: {path} cannot be read: {error.strerror}") from error


def _write(name: str, path: str, value: str) -> None:
    """Write a value and read it back; raise `SettingError` where the kernel has another one then."""
    try:
        # As a shell opens it: the kernel's files do not care, others get no longer.
        file = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(file, f"{value}\n".encode())
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT}:
            raise SettingError(f"host setting {name}: {path} cannot be written: {error.strerror}") from error
        text = _read(name, path)
        known = f"; expected one of: {', '.join(choices(text))}" if choices(text) else f"; it is {chosen(text)!r} now"
        raise SettingRefused(f"host setting {name}: the kernel refuses {value!r}: {error.strerror}{known}") from error
    found = chosen(_read(name, path))
    if found != " ".join(value.split()):
        raise SettingRefused(f"host setting {name}: the kernel made {found!r} of {value!r}: write it so")


class SettingClaim:
    """The right of a process to settings of this host, for a run, until `release`.

    `directory` has the records. Where a value is None, the setting is what it was before the run.
    """

    def __init__(self, directory: Path, run_id: str) -> None:
        self._directory = directory
        self._run_id = run_id
        self._held: dict[str, int] = {}

    def acquire(self, settings: Mapping[str, str | None]) -> None:
        """Set and read back; raise `SettingError`, with everything as it was, where one cannot be set."""
        try:
            with _locked(self._directory):
                for name, value in settings.items():
                    self._acquire(name, value)
        except BaseException:
            self.release()
            raise

    def _acquire(self, name: str, value: str | None) -> None:
        record = _record(self._directory, name)
        held = _open_if_held(record)
        if held is None:
            if record.exists():
                _restore(record)
            if value is None:
                return
            held = _new_record(self._run_id, name, record)
        self._held[name] = held
        known = _read_record(record)
        if known is None or known.run != self._run_id:
            os.close(self._held.pop(name))
            raise SettingError(f"host setting {name}: {_taken(known)}")
        for path, before in known.before.items():
            _write(name, path, before if value is None else value)

    def release(self) -> None:
        """Put back what nobody else needs; raise `SettingError` where something could not be. Twice does nothing."""
        if not self._held:
            return
        problems = []
        with _locked(self._directory):
            for name, file in self._held.items():
                record = _record(self._directory, name)
                os.close(file)
                try:
                    other = _open_if_held(record)
                    if other is not None:
                        os.close(other)
                    else:
                        _restore(record)
                except SettingError as error:
                    problems.append(str(error))
            self._held.clear()
        if problems:
            raise SettingError("; ".join(problems))


class _Record(Struct, frozen=True):
    """What a setting was before a run changed it."""

    boot: str
    """The id of the kernel's boot."""
    run: str
    setting: str
    """The setting, by the name of records."""
    before: dict[str, str]


def _taken(record: _Record | None) -> str:
    return f"run {record.run if record else 'unknown'} on this host has set it: wait for its end"


def _record(directory: Path, name: str) -> Path:
    return directory / f"{quote(name, safe='')}{_SUFFIX}"


def _new_record(run_id: str, name: str, record: Path) -> int:
    """Note what a setting is, for a run; return the record with a shared lock on it."""
    before = {path: chosen(_read(name, path)) for path in files_of(name)}
    content = msgspec.json.encode(_Record(_boot_id(), run_id, name, before))
    fresh = record.with_name(f".{secrets.token_hex(8)}.new")
    file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        # Locked and complete before it gets the name that others search for.
        fcntl.flock(file, fcntl.LOCK_SH)
        os.write(file, content)
        fresh.rename(record)
    except OSError:
        os.close(file)
        fresh.unlink(missing_ok=True)
        raise
    return file


class AbandonedSetting(Struct, frozen=True):
    """A setting whose users have all ended, and that none of them has put back."""

    name: str
    run_id: str
    """The run that had changed it."""
    problem: str = ""
    """Why it could not be put back; empty where it was, or was not to be."""


def restore_abandoned(directory: Path, *, run_id: str | None = None, dry_run: bool = False) -> list[AbandonedSetting]:
    """Put back the settings whose users have all ended, of one run or of all; return them.

    What cannot be put back keeps its record: the next call tries again. With `dry_run` nothing is put back.
    """
    found: list[AbandonedSetting] = []
    if not directory.is_dir():
        return found
    with _locked(directory):
        for path in sorted(directory.glob(f"*{_SUFFIX}")):
            held = _open_if_held(path)
            if held is not None:
                os.close(held)
                continue
            record = _read_record(path)
            if record is None or record.boot != _boot_id():
                path.unlink(missing_ok=True)
            elif run_id in (None, record.run):
                problem = ""
                try:
                    if not dry_run:
                        _restore(path)
                except SettingError as error:
                    problem = str(error)
                found.append(AbandonedSetting(record.setting, record.run, problem))
    return found


def try_values(directory: Path, name: str, values: Iterable[str]) -> tuple[str, str] | None:
    """Set a setting to each of these values, and back; return the first that it cannot have, and why not.

    Raises `SettingError` where it cannot be read or written at all.
    """
    known = offered(name)
    value = ""
    with _locked(directory):
        record = _record(directory, name)
        held = _open_if_held(record)
        if held is not None:
            os.close(held)
            return value, _taken(_read_record(record))
        if record.exists():
            _restore(record)
        os.close(_new_record("(preflight)", name, record))
        try:
            for value in values:
                if known and value not in known:
                    hint = did_you_mean(value, known)
                    return value, f"it is none of its values{hint}; one of: {', '.join(known)}"
                for path in files_of(name):
                    _write(name, path, value)
        except SettingRefused as error:
            return value, str(error).removeprefix(f"host setting {name}: ")
        finally:
            _restore(record)
    return None


def _restore(path: Path) -> None:
    """Put back what a record says, and delete it; raise `SettingError`."""
    record = _read_record(path)
    for file, value in record.before.items() if record is not None and record.boot == _boot_id() else ():
        # A CPU may be off line by now, and its governor with it.
        known = os.path.realpath(file).startswith(ROOTS) and Path(file).exists()
        if known and record is not None and chosen(_read(record.setting, file)) != value:
            _write(record.setting, file, value)
    path.unlink(missing_ok=True)


def _read_record(path: Path) -> _Record | None:
    """Return what is in a record; None for one that is no record of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Record)
    except (OSError, msgspec.MsgspecError):
        return None


def _open_if_held(record: Path) -> int | None:
    """Return a record with a shared lock on it, if somebody else holds one; None where nobody does."""
    try:
        file = os.open(record, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_SH)
        return file
    os.close(file)
    return None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let nobody else look at records or change them meanwhile."""
    file = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
