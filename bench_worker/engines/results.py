"""Results and failures of operations that end with a process, or that change files: what several engines share."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn

import gevent

from bench_common.eventloop import gil_wait_ns
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.timing.processes import (
    STATUS_LOST,
    CommandNotFound,
    Exit,
    NotExecutable,
    Process,
    SpawnFailed,
    WaitTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SIGNALLED = 128
"""What a shell and every engine add to a signal's number to make an exit code."""

_MAX_FEW_FILES = 16
_SMALL_BYTES = 64 << 10

PULL_KIND_PATTERNS: Final = (
    (
        "image-missing",
        re.compile(
            r"manifest .*unknown|repository .*not found|access .*denied|name unknown|resolve reference .*not found",
            re.IGNORECASE,
        ),
    ),
    (
        "unreachable",
        re.compile(
            r"connection refused|no such host|no route to host|i/o timeout|network is unreachable", re.IGNORECASE
        ),
    ),
)
"""What engines report of a registry that has no such image, or does not answer; the first match wins."""


def raise_operation_failed(kind: str, message: str, start_ns: int) -> NoReturn:
    """Raise the failure of an operation that began at `start_ns` and ends now."""
    raise OperationFailed(kind, message, start_ns=start_ns, end_ns=time.monotonic_ns())


@contextmanager
def disk_errors_as_failures(start_ns: int) -> Iterator[None]:
    """Turn errors of the file system into failures of the operation that began at `start_ns`."""
    try:
        yield
    except FileExistsError as error:
        raise OperationFailed(
            "conflict", f"the name is taken: {error.filename}", start_ns=start_ns, end_ns=time.monotonic_ns()
        ) from error
    except OSError as error:
        text = f"{error.filename}: {error.strerror}"
        raise OperationFailed(
            _disk_failure_kind(error), text, start_ns=start_ns, end_ns=time.monotonic_ns()
        ) from error


def spawn_failure_kind(error: SpawnFailed) -> str:
    """Return the kind of failure (see `OperationFailed`) that a failed spawn is."""
    if isinstance(error, CommandNotFound):
        return "command-not-found"
    return "not-executable" if isinstance(error, NotExecutable) else _disk_failure_kind(error.__cause__)


def _disk_failure_kind(error: BaseException | None) -> str:
    full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
    return "disk-full" if full else "engine"


def wait_exit(process: Process, start_ns: int, deadline: float, *, kill_late: bool = False) -> Exit:
    """Return how a process ended, by `deadline` (monotonic seconds); with `kill_late` it does not outlive that."""
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except WaitTimeout as error:
        failed_ns = time.monotonic_ns()
        if kill_late:
            process.signal_group(signal.SIGKILL)
        raise OperationFailed("timeout", str(error), start_ns=start_ns, end_ns=failed_ns) from error


def wait_result(process: Process, start_ns: int, deadline: float, *, kill_late: bool = False) -> OperationResult:
    """Wait for the end of a process, whose stamp is the reaper's, and return its exit code as an engine would."""
    ended = wait_exit(process, start_ns, deadline, kill_late=kill_late)
    if ended.code == STATUS_LOST:
        text = f"the exit status of process {process.pid} is lost: another SIGCHLD handler reaped it"
        raise OperationFailed("engine", text, start_ns=start_ns, end_ns=max(start_ns, ended.end_ns))
    code = ended.code if ended.code >= 0 else _SIGNALLED - ended.code
    return result_at_exit(start_ns, ended, exit_code=code)


def result_at_exit(start_ns: int, ended: Exit, *, exit_code: int | None = None) -> OperationResult:
    """Return the end of a process as that of an operation begun at `start_ns`, when it may have been over."""
    end_ns = max(start_ns, ended.end_ns)
    return OperationResult(
        start_ns, end_ns, exit_code=exit_code, end_uncertainty_ns=min(ended.end_uncertainty_ns, end_ns - start_ns)
    )


def delete_directory(directory: Path, *, last: str = "") -> tuple[int, int]:
    """Delete a directory with all that is in it; return its stamp and its uncertainty. A missing one is no error.

    The file `last` goes last: if it has the labels, a clean-up finds what a killed worker had not deleted yet.

    What is more than a few small files is done by a native thread: a benchmark's files may take the disk a while, and
    the loop must turn. Those few take less time than the thread waits for the interpreter, at each of its calls.
    """
    if _delete_few(directory, last):
        return time.monotonic_ns(), 0
    stamp: tuple[int, int] = gevent.get_hub().threadpool.apply(_delete, (directory, last))
    return stamp


def _delete_few(directory: Path, last: str) -> bool:
    """Delete a directory of a few small files and empty directories; say whether it was one, and is gone."""
    with suppress(FileNotFoundError):
        with os.scandir(directory) as entries:
            found = list(islice(entries, _MAX_FEW_FILES + 1))
        if len(found) > _MAX_FEW_FILES:
            return False
        try:
            for entry in sorted(found, key=lambda entry: entry.name == last):
                path = directory / entry.name
                if entry.is_dir(follow_symlinks=False):
                    path.rmdir()  # only if it is empty
                elif entry.stat(follow_symlinks=False).st_size > _SMALL_BYTES:
                    return False
                else:
                    path.unlink()
            directory.rmdir()
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            return False
    return True


def _delete(directory: Path, last: str) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            if path.name != last and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != last:
                path.unlink()
        shutil.rmtree(directory)
    end_ns = time.monotonic_ns()
    # The thread may have waited for the interpreter since it deleted the last file.
    return end_ns, gil_wait_ns(end_ns)
