"""Samples what the threads of an engine's processes do: a program of its own, beside a traced trial alone.

It gets one JSON object on its command line, the fields of `Watch`, prints ``ready`` when it has begun, and what
it saw as one JSON object, a `Recording`, on SIGTERM. It imports the standard library
alone and reads ``/proc``. A thread that has not run since the last look (``schedstat``) waits where it did, so a look
at it costs one short read; what a thread waits in is read of those that have run: ``stat``, ``stack`` (root only,
else ``wchan``) and, for calls with a timeout, ``syscall``.

A process is watched if it is one of the engine's daemons, descends from one or from the worker, or has the name of a
shim. Processes and threads are found by their number, which the kernel gives in order (``/proc/loadavg`` has the last
one). One that lives for less than the interval is missed, and so is a child whose parent ended unseen. A container's
own program is counted, and not watched: it is in another PID namespace and no longer called as its runtime.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

MAX_LOOKS = 100_000
"""Looks that are kept at most: minutes."""
MAX_FUNCTIONS = 24
_PEEK_BYTES = 4096
_TIMED = {
    # Where the timeout of a call is among its arguments, by the function that the kernel waits in, and that it is
    # a number of milliseconds; those of futex, ppoll and select are in the process's memory, which is not read.
    "do_epoll_wait": 3,
    "ep_poll": 3,
    "do_sys_poll": 2,
}
_INT_BITS = 32


def _read(path: str) -> str:
    """Return a file of /proc; raise `OSError` where it is gone or forbidden."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, _PEEK_BYTES).decode("utf-8", "replace")
    finally:
        os.close(handle)


def functions_of(stack: str) -> tuple[str, ...]:
    """Return the kernel's functions of a ``stack``, the innermost first: ``[<0>] do_wait+0x5e/0x110``."""
    # Compilers add suffixes to parts of functions: poll_schedule_timeout.constprop.0.
    found = [line.split("] ", 1)[1].split("+", 1)[0].split(".", 1)[0] for line in stack.splitlines() if "] " in line]
    return tuple(found[:MAX_FUNCTIONS])


def timeout_of(functions: Sequence[str], call: str) -> int:
    """Return the timeout in ms of the call that a thread is in (``syscall``), -1 for none or an unknown one."""
    place = next((_TIMED[function] for function in functions if function in _TIMED), None)
    words = call.split()
    if place is None or len(words) < place + 2:
        return -1
    value = int(words[place + 1], 16) & ((1 << _INT_BITS) - 1)
    return -1 if value >> (_INT_BITS - 1) else value


def times_of(schedstat: bytes) -> tuple[int, int]:
    """Return how long a thread ran, and how long it was ready and waited for a CPU, in ns."""
    words = schedstat.split()
    return int(words[0]), int(words[1])


@dataclass
class Watch:
    """What to watch."""

    worker: int
    """The process whose descendants are watched; it is not."""
    daemons: list[int]
    """Processes that are watched, with their descendants."""
    shims: list[str]
    """Names of processes that belong to the engine whoever is their parent, if they are new."""
    runtimes: list[str]
    """How the names begin that runtimes have within the PID namespace of a container."""
    interval_s: float


@dataclass
class _Status:
    name: str
    group: int
    parent: int
    depth: int


def _status(pid: int) -> _Status | None:
    """Return the name, the process, its parent and how deep its PID namespace is, of a thread; None if it is gone."""
    try:
        text = _read(f"/proc/{pid}/status")
    except OSError:
        return None
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    try:
        depth = len(fields.get("NSpid", "0").split())
        return _Status(fields["Name"].strip(), int(fields["Tgid"]), int(fields["PPid"]), depth)
    except (KeyError, ValueError):
        return None


class _Thread:
    __slots__ = ("line", "name", "pid", "schedstat", "settled", "tid", "wait")

    def __init__(self, tid: int, pid: int, schedstat: int) -> None:
        self.tid = tid
        self.pid = pid
        self.schedstat = schedstat
        self.line = b""
        self.settled = False
        self.wait = -1
        self.name = ""


class ThreadSampler:
    """Looks at threads; `recording` returns what it saw."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._threads: dict[int, _Thread] = {}
        self._processes: dict[int, str] = {}
        """The processes that are, or were, watched, with the names they had first."""
        self._foreign: set[int] = set()
        """Programs of containers that are alive."""
        self._past_foreign: set[int] = set()
        own = _status(os.getpid())
        self._depth = own.depth if own is not None else 1
        self._waits: dict[tuple[str, str, tuple[str, ...], int], int] = {}
        self._looks: list[tuple[int, list[tuple[int, int, int, int]], int]] = []
        self._owners: dict[int, int] = {}
        self._last_pid = self._newest()
        self._stacks = True
        try:
            self._stacks = bool(functions_of(_read("/proc/self/stack")))
        except OSError:
            self._stacks = False
        self._find_all()
        self._first = sorted(self._processes)

    @staticmethod
    def _newest() -> int:
        return int(_read("/proc/loadavg").split()[-1])

    # -- who ----------------------------------------------------------------------------------------------------

    def _find_all(self) -> None:
        """Watch the daemons and all that descends from them and from the worker, by a look at every process."""
        statuses = {int(name): _status(int(name)) for name in os.listdir("/proc") if name.isdecimal()}  # noqa: PTH208
        known = {pid: one for pid, one in statuses.items() if one is not None}
        wanted = {self._watch.worker, *self._watch.daemons}
        while more := {pid for pid, one in known.items() if one.parent in wanted and pid not in wanted}:
            wanted |= more
        for pid in sorted(wanted):
            if pid in known and pid not in self._processes:
                self._take(pid, known[pid])

    def _find_new(self) -> None:
        """Watch what began since the last look."""
        newest = self._newest()
        if newest == self._last_pid:
            return
        if newest < self._last_pid:  # the numbers began again
            self._find_all()
        for pid in range(self._last_pid + 1, newest + 1):
            status = _status(pid)
            if status is None or pid == os.getpid():
                continue
            if status.group != pid:
                if status.group in self._processes:
                    self._add_thread(pid, status.group)
            elif self._is_ours(status):
                self._take(pid, status)
        self._last_pid = newest

    def _is_ours(self, status: _Status) -> bool:
        if status.parent in self._foreign or status.parent in self._past_foreign:
            return False
        parents = self._processes
        return status.parent in parents or status.parent == self._watch.worker or status.name in self._watch.shims

    def _take(self, pid: int, status: _Status) -> None:
        if pid in (self._watch.worker, os.getpid()):
            return
        if self._is_foreign(status):
            self._foreign.add(pid)
            return
        self._processes[pid] = status.name
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  half the time of a Path
                self._add_thread(int(name), pid)

    def _is_foreign(self, status: _Status) -> bool:
        """Return whether a process is a container's own program."""
        return status.depth > self._depth and not status.name.startswith(tuple(self._watch.runtimes))

    def _add_thread(self, tid: int, pid: int) -> None:
        if tid in self._threads:
            return
        with contextlib.suppress(OSError):
            handle = os.open(f"/proc/{pid}/task/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self._threads[tid] = _Thread(tid, pid, handle)
            self._owners[tid] = pid

    # -- what ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look at every thread, and keep what changed."""
        now_ns = time.monotonic_ns()
        self._find_new()
        changes: list[tuple[int, int, int, int]] = []
        for thread in list(self._threads.values()):
            try:
                line = os.pread(thread.schedstat, 80, 0)
                if thread.settled and line == thread.line:
                    continue
                wait = self._wait_of(thread)
            except OSError:
                wait = None
            if wait is None:
                self._drop(thread, changes)
                continue
            thread.line = line
            if wait != thread.wait:
                thread.wait = wait
                changes.append((thread.tid, wait, *times_of(line)))
        for pid in [pid for pid in self._foreign if not os.path.exists(f"/proc/{pid}")]:  # noqa: PTH110  as above
            self._foreign.discard(pid)
            self._past_foreign.add(pid)
        self._looks.append((now_ns, changes, len(self._foreign)))

    def _drop(self, thread: _Thread, changes: list[tuple[int, int, int, int]]) -> None:
        os.close(thread.schedstat)
        del self._threads[thread.tid]
        if thread.wait >= 0:
            changes.append((thread.tid, -1, *times_of(thread.line)))

    def _wait_of(self, thread: _Thread) -> int | None:
        """Return the number of what a thread is in; None if it is no longer watched."""
        base = f"/proc/{thread.pid}/task/{thread.tid}"
        stat = _read(f"{base}/stat")
        name, rest = stat.split("(", 1)[1].rsplit(")", 1)
        state = rest.split(None, 1)[0]
        if state in "ZX":
            return None
        if name != thread.name and thread.tid == thread.pid:
            thread.name = name
            status = _status(thread.pid)
            if status is not None and self._is_foreign(status):
                self._foreign.add(thread.pid)
                self._processes.pop(thread.pid, None)
                return None
        thread.settled = state != "R"
        functions: tuple[str, ...] = ()
        timeout = -1
        if state != "R":
            functions = self._functions(base)
            if not _TIMED.keys().isdisjoint(functions[:3]):
                with contextlib.suppress(OSError):
                    timeout = timeout_of(functions[:3], _read(f"{base}/syscall"))
        key = (state, name, functions, timeout)
        return self._waits.setdefault(key, len(self._waits))

    def _functions(self, base: str) -> tuple[str, ...]:
        if self._stacks:
            return functions_of(_read(f"{base}/stack"))
        where = _read(f"{base}/wchan")
        return () if where in ("", "0") else (where,)

    @property
    def full(self) -> bool:
        """Whether it keeps no more."""
        return len(self._looks) >= MAX_LOOKS

    def recording(self) -> dict[str, object]:
        """Return what it saw, as `bench_worker.explain.attribution.Recording` has it."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "waits": list(self._waits),
            "owners": list(self._owners.items()),
            "first": self._first,
            "looks": self._looks,
            "stacks": self._stacks,
            "cpu_s": used.ru_utime + used.ru_stime,
            "cut": self.full,
        }


def main() -> None:
    """Look until SIGTERM comes, or the parent ends."""
    watch = Watch(**json.loads(sys.argv[1]))
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sampler, parent = ThreadSampler(watch), os.getppid()
    sampler.look()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    due = time.monotonic()
    while not ended:
        # However long a look takes, others run in between.
        due = max(due + watch.interval_s, time.monotonic() + watch.interval_s / 4)
        time.sleep(max(0.0, due - time.monotonic()))
        if os.getppid() != parent:
            return
        if not sampler.full:
            sampler.look()
    json.dump(sampler.recording(), sys.stdout)


if __name__ == "__main__":
    main()
