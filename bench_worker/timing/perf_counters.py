"""Counts what a process costs with perf_event_open(2): the time that it ran on CPUs, its cycles and instructions.

The events belong to a thread that does nothing but start the program: the program inherits them, and all that it
starts, and they count from its exec on. It is a thread of its own because whatever else it started would inherit
them as well; they outlive it. Where a CPU has fewer counters than events, the kernel lets them take turns, and a
count is scaled up by the time in which it was due.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import platform
import struct
from functools import cache
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from gevent.monkey import get_original

from bench_common.cost import CPU_FREQUENCY, CYCLES, INSTRUCTIONS, TASK_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

_native_lock = get_original("_thread", "allocate_lock")
_native_thread = get_original("_thread", "start_new_thread")
_close: Any = get_original("os", "close")

_SYSCALLS: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _SOFTWARE = 0, 1
EVENTS: Final = {TASK_CLOCK: (_SOFTWARE, 1), CYCLES: (_HARDWARE, 0), INSTRUCTIONS: (_HARDWARE, 1)}
"""What is counted: the kernel's type and number of each event."""

_DISABLED, _INHERIT, _ENABLE_ON_EXEC = 1 << 0, 1 << 1, 1 << 12
_TOTAL_TIMES: Final = 1 | 2
"""The format of a reading: the count, the time in which it was due, and the time in which it was counted, in ns."""
_READING: Final = struct.Struct("QQQ")
_CLOSE_ON_EXEC: Final = 8
_THIS_THREAD, _ANY_CPU, _NO_GROUP = 0, -1, -1
_PARANOID: Final = Path("/proc/sys/kernel/perf_event_paranoid")
_NS: Final = 1e9


class _Attributes(ctypes.Structure):
    """The kernel's struct perf_event_attr, of the size that Linux 4.1 and newer know (112 bytes)."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("unused", ctypes.c_uint64 * 8),
    )


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _open_event(kind: int, number: int) -> int:
    """Open an event of this thread, which counts nothing but what executes a program; raise `OSError`."""
    call = _SYSCALLS.get(platform.machine())
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    asked = _Attributes(
        type=kind,
        size=ctypes.sizeof(_Attributes),
        config=number,
        read_format=_TOTAL_TIMES,
        flags=_DISABLED | _INHERIT | _ENABLE_ON_EXEC,
    )
    found: int = _libc().syscall(call, ctypes.byref(asked), _THIS_THREAD, _ANY_CPU, _NO_GROUP, _CLOSE_ON_EXEC)
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


@cache
def unavailable() -> Mapping[str, str]:
    """Return which measures cannot be had on this host, and why."""
    found = {}
    for name, event in EVENTS.items():
        try:
            _close(_open_event(*event))
        except OSError as error:
            found[name] = _reason(error)
    missing = [name for name in (CYCLES, TASK_CLOCK) if name in found]
    return found | ({CPU_FREQUENCY: found[missing[0]]} if missing else {})


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "the CPU has no such counter that this kernel can use; most virtual machines have none"
    if error.errno in (errno.EACCES, errno.EPERM):
        try:
            level = _PARANOID.read_text("ascii").strip()
        except OSError:
            level = "unknown"
        return (
            f"the kernel does not permit it to this user (perf_event_paranoid is {level}): run the worker as root or "
            "with CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=1`"
        )
    return f"perf_event_open: {error.strerror}"


class Counters:
    """The events of one program and of all that it started."""

    def __init__(self, files: Mapping[str, int]) -> None:
        self._files = dict(files)
        self._found: dict[str, tuple[int, int, int]] = {}

    def add(self, name: str, file: int) -> None:
        """Add an open event."""
        self._files[name] = file

    def readings(self) -> Mapping[str, tuple[int, int, int]]:
        """Return of each event the count, how long it was due and how long it was counted, in ns; the last ones."""
        for name, file in self._files.items():
            self._found[name] = _READING.unpack(os.read(file, _READING.size))
        self.close()
        return self._found

    def close(self) -> None:
        """Count no more."""
        while self._files:
            _close(self._files.popitem()[1])

    def __del__(self) -> None:
        self.close()


class CountedStart:
    """Starts a program from a thread of its own, so that it has counters: a `launch` of `posix_spawn.spawn`.

    Events that cannot be had are left out.
    """

    def __init__(self) -> None:
        self.counters = Counters({})
        """The counters of the program, once it runs."""
        self.waited_ns = 0
        """How long the thread and the events took to make before it was started."""
        self.running_ns = 0
        """When it ran (monotonic)."""

    def __call__(self, start: Callable[[], int]) -> int:
        """Call `start` there; return, or raise, what it does."""
        asked_ns = monotonic_ns()
        done = _native_lock()
        done.acquire()
        outcome: list[int | BaseException] = []

        def run() -> None:
            try:
                missing = unavailable()
                for name, event in EVENTS.items():
                    if name not in missing:
                        self.counters.add(name, _open_event(*event))
                self.waited_ns = monotonic_ns() - asked_ns
                outcome.append(start())
                self.running_ns = monotonic_ns()
            except BaseException as error:  # noqa: BLE001  it is raised again in the other thread
                outcome.append(error)
            finally:
                done.release()

        _native_thread(run, ())
        done.acquire()
        (found,) = outcome
        if isinstance(found, BaseException):
            self.counters.close()
            raise found
        return found


def totals(counted: Iterable[Counters]) -> dict[str, float]:
    """Return the sums over several programs, by the names of `bench_common.cost`; scaled where events took turns.

    What was not counted of each of them is left out.
    """
    each = [one.readings() for one in counted]
    found = {
        name: sum(_scaled(*one[name]) for one in each) / (_NS if name == TASK_CLOCK else 1.0)
        for name in EVENTS
        if each and all(name in one and (one[name][2] or not one[name][1]) for one in each)
    }
    if any(due_ns > counted_ns > 0 for one in each for _, due_ns, counted_ns in one.values()):
        _tell_turns()
    if found.get(TASK_CLOCK) and found.get(CYCLES):
        found[CPU_FREQUENCY] = found[CYCLES] / found[TASK_CLOCK]
    return found


def _scaled(count: int, due_ns: int, counted_ns: int) -> float:
    return count * (due_ns / counted_ns) if counted_ns else 0.0


@cache
def _tell_turns() -> None:
    log.warning(
        "the CPU has fewer counters than are in use: they took turns, and %s and %s are scaled up by the time in "
        "which they were due",
        CYCLES,
        INSTRUCTIONS,
    )
