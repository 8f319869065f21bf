"""What stands for a container in the native engine, and how its processes are waited for, frozen and cleared away."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import gevent

from bench_common.errors import InfrastructureError
from bench_common.eventloop import gil_wait_ns
from bench_worker.engines.base import Container, OperationFailed, OperationResult
from bench_worker.engines.native import labels as native_labels
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
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_SIGNALLED = 128
"""What a shell and every engine add to a signal's number to make an exit code."""

_STATE_POLL_S = 0.0002
_STRAGGLER_ROUNDS = 5
_MAX_FEW_FILES = 16
_SMALL_BYTES = 64 << 10


@dataclass(slots=True)
class NativeContainer:
    """What stands for a container: its private directory and the processes started in it."""

    directory: Path
    main: Process | None = None
    exec_processes: list[Process] = field(default_factory=list)
    paused: bool = False
    """Whether it was paused by us: seen from outside, a process on its way out of vfork may not show it."""

    @property
    def work(self) -> Path:
        """The directory that the processes run in."""
        return self.directory / "work"

    def processes(self) -> list[Process]:
        """Every process that was started in it, dead or alive."""
        return [process for process in (self.main, *self.exec_processes) if process is not None]


def get_native_container(container: Container) -> NativeContainer:
    """Return what `create` made for this container; fail with ``not-found`` where there is none."""
    if not isinstance(container.handle, NativeContainer):
        raise_operation_failed("not-found", f"{container.name} does not exist", time.monotonic_ns())
    return container.handle


def running_process(container: Container) -> Process:
    """Return the main process; fail with ``conflict`` when it does not run."""
    main = get_native_container(container).main
    if main is None or main.exit is not None:
        raise_operation_failed("conflict", f"{container.name} is not running", time.monotonic_ns())
    return main


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
        text = f"the exit status of process {process.pid} was taken by a SIGCHLD handler of this program"
        raise OperationFailed("engine", text, start_ns=start_ns, end_ns=max(start_ns, ended.end_ns))
    code = ended.code if ended.code >= 0 else _SIGNALLED - ended.code
    return result_at_exit(start_ns, ended, exit_code=code)


def result_at_exit(start_ns: int, ended: Exit, *, exit_code: int | None = None) -> OperationResult:
    """Return the end of a process as that of an operation begun at `start_ns`, when it may have been over."""
    end_ns = max(start_ns, ended.end_ns)
    return OperationResult(
        start_ns, end_ns, exit_code=exit_code, end_uncertainty_ns=min(ended.end_uncertainty_ns, end_ns - start_ns)
    )


def is_stopped(main: Process) -> bool:
    """Say whether a process is stopped.

    One that has just called vfork waits for its child's exec without taking signals: when the child was stopped
    before that, the parent shows ``D`` for as long as the child is stopped, and runs no more than it.
    """
    state = native_labels.state_of(main.pid)
    return state == "T" or (state == "D" and "T" in native_labels.states_of_group(main.pid))


def signal_and_confirm(
    container: Container, number: signal.Signals, timeout_s: float, *, stopped: bool
) -> OperationResult:
    """Send SIGSTOP or SIGCONT to the group and return when the main process is seen stopped, or no longer so."""
    main = running_process(container)
    start_ns = time.monotonic_ns()
    if is_stopped(main) is stopped:
        raise_operation_failed("conflict", f"{container.name} is {'already' if stopped else 'not'} paused", start_ns)
    if not main.signal_group(number):
        raise_operation_failed("conflict", f"{container.name} is not running", start_ns)
    deadline_ns = start_ns + int(timeout_s * 1e9)
    # It was not so when last looked at, and is when looked at now.
    seen_ns = start_ns
    looked_ns = time.monotonic_ns()
    while is_stopped(main) is not stopped:
        if main.exit is not None:
            raise_operation_failed("conflict", f"{container.name} ended meanwhile", start_ns)
        if time.monotonic_ns() > deadline_ns:
            raise_operation_failed(
                "timeout", f"{container.name} did not take {number.name} in {timeout_s:g} s", start_ns
            )
        seen_ns = looked_ns
        gevent.sleep(_STATE_POLL_S)
        looked_ns = time.monotonic_ns()
    end_ns = time.monotonic_ns()
    return OperationResult(start_ns, end_ns, end_uncertainty_ns=end_ns - seen_ns)


def _group_exists(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_stragglers(stock: NativeContainer, labels: Mapping[str, str], start_ns: int) -> None:
    """Kill what is left in the groups of leaders that have ended: found by label, never by a number alone."""
    for _ in range(_STRAGGLER_ROUNDS):
        if not any(_group_exists(process.pid) for process in stock.processes()):
            return
        # A process that was just forked by one that is killed here is found in the next round.
        found = [
            process for process in native_labels.labelled_processes() if process.labels.items() <= labels.items()
        ]
        if not found:
            return
        for process in found:
            try:
                native_labels.kill_labelled(process)
            except InfrastructureError as error:
                raise_operation_failed("engine", str(error), start_ns)


def delete_directory(directory: Path) -> tuple[int, int]:
    """Delete a directory with all that is in it; return the stamp of it and its bound. One that is gone is no error.

    What is more than a few small files is done by a native thread: a benchmark's files may take the disk a while, and
    the loop must turn. Those few take less time than the thread waits for the interpreter, at each of its calls.
    """
    if _delete_few(directory):
        return time.monotonic_ns(), 0
    stamp: tuple[int, int] = gevent.get_hub().threadpool.apply(_delete, (directory,))
    return stamp


def _delete_few(directory: Path) -> bool:
    """Delete a directory of a few small files and empty directories; say whether it was one, and is gone."""
    with suppress(FileNotFoundError):
        with os.scandir(directory) as entries:
            found = list(islice(entries, _MAX_FEW_FILES + 1))
        if len(found) > _MAX_FEW_FILES:
            return False
        try:
            for entry in found:
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


def _delete(directory: Path) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)
    end_ns = time.monotonic_ns()
    # The thread may have waited for the interpreter since the last file was gone.
    return end_ns, gil_wait_ns(end_ns)


def spawn_failure_kind(error: SpawnFailed) -> str:
    """Return the kind of failure (see `OperationFailed`) that a failed spawn is."""
    if isinstance(error, CommandNotFound):
        return "command-not-found"
    return "not-executable" if isinstance(error, NotExecutable) else _disk_failure_kind(error.__cause__)


def _disk_failure_kind(error: BaseException | None) -> str:
    full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
    return "disk-full" if full else "engine"


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


def raise_operation_failed(kind: str, message: str, start_ns: int) -> NoReturn:
    """Raise the failure of an operation that began at `start_ns` and ends now."""
    raise OperationFailed(kind, message, start_ns=start_ns, end_ns=time.monotonic_ns())
