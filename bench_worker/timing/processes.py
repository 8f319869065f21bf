"""Runs plain processes with stamps that are true: the start beside the spawn, the end beside the reaping.

One native thread waits for the ends of all processes on their pidfds, stamps each, and only then wakes the greenlet
that waits. So a busy event loop delays the greenlet but not the stamp (by more than the interpreter's switch
interval, 5 ms at most, while Python code runs elsewhere); how late it may be all the same goes with it (see
`bench_worker.timing.ready_waiter`). SIGCHLD is not used: libev's handler for it reaps every child of the process and
drops exit codes. The same code works with and without gevent's patches.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import signal
import time
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.monkey import get_original
from msgspec import Struct

from bench_common.errors import InfrastructureError, WeighbridgeError
from bench_worker.timing import perf_counters, posix_spawn
from bench_worker.timing.ready_waiter import IN, ReadyWaiter, prioritize_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench_worker.timing.perf_counters import Counters

_native_lock = get_original("_thread", "allocate_lock")
_native_thread = get_original("_thread", "start_new_thread")
_native_poll = get_original("select", "poll")

_NOT_EXECUTABLE = frozenset({errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.ETXTBSY, errno.ELIBBAD})
_NOT_FOUND = frozenset({errno.ENOENT, errno.ENOTDIR})


class SpawnFailed(InfrastructureError):
    """A process could not be started; `start_ns` and `end_ns` (monotonic) bracket the attempt."""

    def __init__(self, message: str, *, start_ns: int, end_ns: int) -> None:
        super().__init__(message)
        self.start_ns = start_ns
        self.end_ns = end_ns


class CommandNotFound(SpawnFailed):
    """There is no such program (a shell's exit code 127)."""


class NotExecutable(SpawnFailed):
    """The file is there and cannot be run (a shell's exit code 126)."""


class WaitTimeout(WeighbridgeError):
    """A process had not ended in time; it goes on running."""


class Exit(Struct, frozen=True):
    """How a process ended: `code` is its exit code, or minus the signal that ended it.

    `end_ns` is CLOCK_MONOTONIC at the reaping; `usage` what it and the children that it waited for have used, as
    getrusage(2) says it, None where that is lost. It ended no more than `end_uncertainty_ns` before that.
    """

    code: int
    end_ns: int
    usage: resource.struct_rusage | None
    end_uncertainty_ns: int = 0

    @property
    def cpu_s(self) -> tuple[float, float]:
        """The CPU time in user mode and in the kernel, in seconds; zero where it is lost."""
        return (0.0, 0.0) if self.usage is None else (self.usage.ru_utime, self.usage.ru_stime)


class Process:
    """A process that `spawn` started: the leader of its own session and process group.

    `start_ns` was taken just before the spawn, `running_ns` just after the program had replaced the spawner.
    """

    def __init__(self, pid: int, *, start_ns: int, running_ns: int) -> None:
        self.pid = pid
        self.start_ns = start_ns
        self.running_ns = running_ns
        self.counters: Counters | None = None
        """The hardware's and the scheduler's counters of it, where they were asked for."""
        self._alive_ns = start_ns
        self._watched_ns: float = math.inf
        self._lock = _native_lock()
        self._exit: Exit | None = None
        self._watchers: list[Any] = []

    @property
    def exit(self) -> Exit | None:
        """How it ended, or None while it runs."""
        return self._exit

    def wait(self, timeout_s: float | None = None) -> Exit:
        """Block this greenlet until the process has ended; raise `WaitTimeout` after `timeout_s` seconds."""
        watcher = gevent.get_hub().loop.async_()
        ended = Event()
        watcher.start(ended.set)
        with self._lock:
            if self._exit is None:
                self._watchers.append(watcher)
            else:
                ended.set()
        try:
            ended.wait(timeout_s)
        finally:
            # Under the lock, so that the reaper never wakes a watcher that is closed.
            with self._lock:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)
                watcher.close()
        if self._exit is None:
            raise WaitTimeout(f"process {self.pid} did not end within {round(timeout_s or 0.0, 3):g} s")
        return self._exit

    def signal_group(self, number: int) -> bool:
        """Send a signal to the process and all of its group; return False when its leader has ended already.

        The lock keeps the leader from being reaped meanwhile, so its number cannot have become another's.
        """
        with self._lock:
            if self._exit is not None:
                return False
            os.killpg(self.pid, number)
            return True

    def mark_watched(self, alive_ns: int) -> None:
        """Note that its end is waited for from now on, and that it was alive at `alive_ns`. For the reaper."""
        self._alive_ns = alive_ns
        self._watched_ns = time.monotonic_ns()

    def reap(self, end_ns: int, earliest_ns: int) -> None:
        """Collect the exit status of the process, which ended by `end_ns`, and wake who waits. For the reaper.

        It did not end before `earliest_ns`; if it was not watched by then, not before it was known to be alive.
        """
        if earliest_ns <= self._watched_ns:
            earliest_ns = self._alive_ns
        with self._lock:
            try:
                _, status, usage = os.wait4(self.pid, 0)
                code = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                # Somebody else in this process reaped it (a SIGCHLD handler): the true status is lost.
                code, usage = STATUS_LOST, None
            self._exit = Exit(code, end_ns, usage, end_ns - earliest_ns)
            for watcher in self._watchers:
                watcher.send()

    def ended(self, exit_: Exit) -> None:
        """Note that it was reaped already, before anybody could wait for it. For `bench_worker.timing.subreaper`."""
        self._exit = exit_


STATUS_LOST = -(signal.NSIG + 1)
"""An `Exit.code` that no process can have: something else in this program took the exit status.

A patched process that uses `subprocess` does that, since gevent then reaps every child on SIGCHLD.
"""


class _Reaper:
    """The native thread that waits for the end of every process."""

    def __init__(self) -> None:
        self._processes: dict[int, Process] = {}
        self._by_pid: dict[int, Process] = {}
        self._lock = _native_lock()
        self._waiter: ReadyWaiter | None = None
        """Made with the thread: before that this process may be copied, and the copy would take its events."""

    def watches(self, pid: int) -> bool:
        """Say whether the child with this number is reaped here."""
        return pid in self._by_pid

    def watch(self, process: Process) -> None:
        """Have `process` stamped and reaped at its end."""
        pidfd = os.pidfd_open(process.pid)
        self._by_pid[process.pid] = process
        with self._lock:
            if self._waiter is None:
                self._waiter = ReadyWaiter()
                _native_thread(self._reap_all, (self._waiter,))
        self._processes[pidfd] = process
        polled_ns = time.monotonic_ns()
        poll = _native_poll()
        poll.register(pidfd, IN)
        alive_ns = process.start_ns if poll.poll(0) else polled_ns
        self._waiter.register(pidfd, IN)
        process.mark_watched(alive_ns)

    def _reap_all(self, waiter: ReadyWaiter) -> None:
        prioritize_thread()
        while True:
            ended = waiter.wait()
            # One stamp for all: each had ended when the wait was over, and reaping takes time.
            end_ns, earliest_ns = time.monotonic_ns(), waiter.earliest_ns
            for pidfd in ended:
                process = self._processes.pop(pidfd)
                waiter.unregister(pidfd)
                os.close(pidfd)
                process.reap(end_ns, earliest_ns)
                if self._by_pid.get(process.pid) is process:
                    del self._by_pid[process.pid]


_reaper = _Reaper()

spawn_lock = _native_lock()
"""Held while a child is made and not watched yet; whoever holds it sees no child of ours that is not watched."""


def is_watched(pid: int) -> bool:
    """Say whether the child with this number is one that `spawn` started or `watch_process` knows."""
    return _reaper.watches(pid)


def watch_process(pid: int, *, start_ns: int) -> Process:
    """Have a process that somebody else made stamped at its end, and reaped if it is our child by then.

    It was made after `start_ns` (monotonic). Hold `starting` meanwhile. The code of a process that is not ours is
    `STATUS_LOST`. Raises `ProcessLookupError` when there is no such process.
    """
    process = Process(pid, start_ns=start_ns, running_ns=time.monotonic_ns())
    _reaper.watch(process)
    return process


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    stdout_path: str = os.devnull,
    stderr_path: str = os.devnull,
    cpus: Iterable[int] | None = None,
    counted: bool = False,
) -> Process:
    """Start a program in its own session, with exactly `env`, in the directory `cwd`, on the CPUs `cpus`.

    If it is `counted`, the process gets the counters
    of `perf_counters` that this host has; making the thread that they take is not part of its start.

    A bare name is looked up on the PATH of `env`. Raises `CommandNotFound`, `NotExecutable` or `SpawnFailed`.
    """
    start_ns = time.monotonic_ns()
    try:
        path = find_program(argv[0], env.get("PATH", os.defpath), cwd)
        wanted = frozenset(cpus or ())
        allowed = os.sched_getaffinity(0) if wanted else frozenset[int]()
        start_ns = time.monotonic_ns()
        if wanted:
            # A child inherits the affinity of the thread that makes it, and no other thread sees this one's.
            os.sched_setaffinity(0, wanted)
        try:
            with spawn_lock:
                counting = perf_counters.CountedStart() if counted else None
                start_ns = time.monotonic_ns()
                pid = posix_spawn.spawn(
                    path,
                    argv,
                    env=env,
                    cwd=cwd,
                    stdout=stdout_path,
                    stderr=stderr_path,
                    launch=counting,
                )
                running_ns = time.monotonic_ns()
                if counting is not None:
                    start_ns, running_ns = start_ns + counting.waited_ns, counting.running_ns
                process = Process(pid, start_ns=start_ns, running_ns=running_ns)
                process.counters = None if counting is None else counting.counters
                _reaper.watch(process)
        finally:
            if wanted:
                os.sched_setaffinity(0, allowed)
    except OSError as error:
        end_ns = time.monotonic_ns()
        kind, message = _spawn_failure(error, argv[0], cwd)
        raise kind(message, start_ns=start_ns, end_ns=end_ns) from error
    return process


def find_program(name: str, search_path: str, cwd: str) -> str:
    """Return the file that `name` means in `cwd` with this PATH; raise `OSError` (ENOENT, EACCES) as exec would."""
    if "/" in name:
        return os.path.join(cwd, name)  # noqa: PTH118  text in, text out
    found_but = errno.ENOENT
    for folder in search_path.split(":") if name else ():
        candidate = os.path.join(cwd, folder, name)  # noqa: PTH118
        if os.path.isfile(candidate):  # noqa: PTH113
            if os.access(candidate, os.X_OK):
                return candidate
            found_but = errno.EACCES
    raise OSError(found_but, os.strerror(found_but), name)


def _spawn_failure(error: OSError, name: str, cwd: str) -> tuple[type[SpawnFailed], str]:
    opening = f"cannot start {name!r}"
    if not os.path.isdir(cwd):  # noqa: PTH112
        return SpawnFailed, f"{opening}: its working directory {cwd} does not exist"
    if error.filename is None or os.path.basename(error.filename) != os.path.basename(name):  # noqa: PTH119
        return SpawnFailed, f"{opening}: {error.filename or 'posix_spawn'}: {error.strerror}"
    if error.errno in _NOT_FOUND:
        if "/" not in error.filename:
            return CommandNotFound, f"{opening}: no such program on PATH (install it, or give its whole path)"
        return (
            CommandNotFound,
            f"{opening}: {error.strerror} (the file, or the interpreter in its first line)",
        )
    return (NotExecutable if error.errno in _NOT_EXECUTABLE else SpawnFailed), f"{opening}: {error.strerror}"
