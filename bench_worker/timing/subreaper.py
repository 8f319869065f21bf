"""Adopts processes whose parent has ended, so that the end and the exit code of a detached container are not lost.

A command line such as ``runc create`` makes a process and leaves it behind. The kernel hands such an orphan to the
nearest ancestor that asked for it (PR_SET_CHILD_SUBREAPER, prctl(2)), or else to process 1, where its exit code is
lost. So this process asks for it. `adopt` then has the container's first process stamped and reaped like any other
child; the rest (helpers of the engine, commands that lost their parent) is reaped by a native thread as it ends: an
engine that waits for a process to disappear would wait for a zombie for ever.

What ends before it can be adopted is remembered for a while, with its stamp.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final

import gevent
from gevent.monkey import get_original

from bench_worker.timing.processes import Exit, Process, is_watched, spawn_lock, watch_process
from bench_worker.timing.stamps import WaitTimer

_native_thread = get_original("_thread", "start_new_thread")
_native_sleep = get_original("time", "sleep")

_PR_SET_CHILD_SUBREAPER: Final = 36
_IDLE_POLL_S: Final = 0.02
_WATCHED_POLL_S: Final = 0.002
"""How long to leave the reaper of `bench_worker.timing.processes` to its work before the next check, in seconds."""
_PARENT_TIMEOUT_S: Final = 5.0
_PARENT_POLL_S: Final = 0.0005
_MAX_REMEMBERED_EXITS: Final = 1024


class _Subreaper:
    """The native thread that reaps what nobody watches, while somebody wants it to."""

    def __init__(self) -> None:
        self._ends: OrderedDict[int, Exit] = OrderedDict()
        self._wanted = 0
        self._running = False

    def open(self) -> None:
        """Become the heir of all orphans below this process."""
        self._wanted += 1
        if self._wanted == 1:
            _set_child_subreaper(orphans=True)
            if not self._running:
                self._running = True
                _native_thread(self._reap_all, ())

    def close(self) -> None:
        """Undo one `open`; the last one leaves later orphans to whom they went before, and all children alone."""
        self._wanted -= 1
        if not self._wanted:
            _set_child_subreaper(orphans=False)

    def adopt(self, pid: int, start_ns: int) -> Process | None:
        """Return the process as one that can be waited for; None while it is still somebody else's child."""
        with spawn_lock:
            try:
                # The cheapest way to learn whether it is a child of this process, alive or dead.
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                if _state_of(pid)[1]:
                    return None
                end = self._ends.pop(pid, None)
            else:
                # What may be remembered under this number was another process.
                self._ends.pop(pid, None)
                return watch_process(pid, start_ns=start_ns)
        if end is None or end.end_ns < start_ns:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), f"process {pid}")
        process = Process(pid, start_ns=start_ns, running_ns=max(start_ns, end.end_ns - end.end_uncertainty_ns))
        process.ended(end)
        return process

    def _reap_all(self) -> None:
        rounds = WaitTimer()
        while True:
            rounds.enter()
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                found = None
            end_ns, earliest_ns = rounds.stamp()
            if found is None or not self._wanted:
                _native_sleep(_IDLE_POLL_S)
            elif is_watched(found.si_pid):
                _native_sleep(_WATCHED_POLL_S)
            elif not self._reap(found.si_pid, end_ns, earliest_ns):
                # It stands before all others until its owner has seen it.
                dead = _dead_children()
                # One of them may have begun and ended while they were listed: after the stamp above.
                listed_ns = time.monotonic_ns()
                for pid in dead:
                    self._reap(pid, listed_ns, earliest_ns)
                _native_sleep(_IDLE_POLL_S)

    def _reap(self, pid: int, end_ns: int, earliest_ns: int) -> bool:
        """Reap a child that has ended, unless another reaper does; return whether it was ours to do.

        All that descends from a program that `processes.spawn` started is in another session than this process;
        what is in the same one was started by other means (`subprocess`), and is waited for by those.
        """
        with spawn_lock:
            try:
                if is_watched(pid) or os.getsid(pid) == os.getsid(0):
                    return False
                _, status, usage = os.wait4(pid, os.WNOHANG)
            except (ChildProcessError, ProcessLookupError):
                return False
            code = os.waitstatus_to_exitcode(status)
            self._ends[pid] = Exit(code, end_ns, usage, end_ns - earliest_ns)
            while len(self._ends) > _MAX_REMEMBERED_EXITS:
                self._ends.popitem(last=False)
        return True


def _set_child_subreaper(*, orphans: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl(PR_SET_CHILD_SUBREAPER)")


def _dead_children() -> list[int]:
    children = []
    for entry in os.listdir("/proc"):  # noqa: PTH208  names are wanted
        if entry.isdecimal():
            state, parent = _state_of(int(entry))
            if state == "Z" and parent == os.getpid():
                children.append(int(entry))
    return children


_subreaper = _Subreaper()


def become_subreaper() -> None:
    """Have this process inherit all orphans below it, until `release_subreaper` was called as often.

    Raises `OSError` where the kernel does not do that.
    """
    _subreaper.open()


def release_subreaper() -> None:
    """Undo one `become_subreaper`. What was adopted stays so."""
    _subreaper.close()


def adopt_orphan(pid: int, *, start_ns: int) -> Process:
    """Return the orphan with this number, made after `start_ns` (monotonic), as a process that can be waited for.

    It may still have a parent that is about to end: some runtimes fork twice. Raises `ProcessLookupError` when there
    is no such process and none that ended of late, and `TimeoutError` when its parent stays.
    """
    deadline = time.monotonic() + _PARENT_TIMEOUT_S
    while (process := _subreaper.adopt(pid, start_ns)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"process {pid} still has its parent after {_PARENT_TIMEOUT_S:g} s")
        gevent.sleep(_PARENT_POLL_S)
    return process


def _state_of(pid: int) -> tuple[str, int]:
    """Return the kernel's letter for the state of a process and the number of its parent; 0 where it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X", 0
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)
