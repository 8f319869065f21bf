"""Tells a process that a busy machine starves from one that hangs: the kernel counts what each gets and waits for."""

from __future__ import annotations

import os
from typing import Final

_STATE_FIELD: Final = 0
_USER_FIELD: Final = 11
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def activity_ns(pid: int) -> int | None:
    """Return for how long the main thread of a process ran or waited for a CPU, in ns; None where it is gone.

    This stands still while the process sleeps or is stopped. The kernel adds a wait when it is over (see
    `wants_to_run`), and one without scheduler statistics counts only what the process ran.
    """
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:  # noqa: PTH123  read often
            ran, waited, *_ = file.read().split()
        return int(ran) + int(waited)
    except (OSError, ValueError):
        return cpu_time_ns(pid)


def cpu_time_ns(pid: int) -> int | None:
    """Return the CPU time of a process and of its children that have ended, in ns; None where it is gone."""
    fields = _stat_fields(pid)
    return None if fields is None else sum(map(int, fields[_USER_FIELD : _USER_FIELD + 4])) * _TICK_NS


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; None where the process is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if fields and fields[_STATE_FIELD] not in "ZX" else None


def process_state(pid: int) -> str:
    """Return the state of a process as a letter of proc(5), such as ``S`` or ``T``; empty where it is gone."""
    fields = _stat_fields(pid)
    return "" if fields is None else fields[_STATE_FIELD]


def wants_to_run(pid: int) -> bool:
    """Return whether the main thread of a process runs or waits for a CPU at this moment."""
    return process_state(pid) == "R"


def child_pids(pid: int) -> list[int]:
    """Return the processes that the main thread of a process has started; none where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


MIN_ACTIVITY_NS: Final = 1_000_000
"""A process that only waits wakes for less than this now and then."""


class ActivityWatch:
    """Says whether a process, or with `children` one that it has started, wanted to run lately."""

    def __init__(self, pid: int, *, children: bool = False) -> None:
        self._pid = pid
        self._children = children
        self._last = self._read()

    def is_active(self) -> bool:
        """Return whether any of them ran or waited for a CPU since the last call, or does now."""
        before, self._last = self._last, self._read()
        return any(map(wants_to_run, self._last)) or any(
            now - before.get(pid, now - MIN_ACTIVITY_NS) >= MIN_ACTIVITY_NS for pid, now in self._last.items()
        )

    def _read(self) -> dict[int, int]:
        pids = [self._pid, *(child_pids(self._pid) if self._children else ())]
        return {pid: now for pid in pids if (now := activity_ns(pid)) is not None}


def describe_load() -> str:
    """Return the load of this machine, for a message."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
