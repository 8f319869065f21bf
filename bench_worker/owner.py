"""Who made what a run leaves on a host: a label that names a process, and whether that process is alive.

A lease is a file, and mount namespaces hide files: those of a private ``/tmp`` or ``/run``, or of a container with
the engine's socket. Containers and processes are found from everywhere all the same. So each carries, in a label, the
process that works for it: the load process, which serves one run and ends with it. The label has the boot, the
number of the process in its PID namespace, its start in clock ticks since boot, and its PID and mount namespaces.

A host's ``/proc`` shows the processes of all PID namespaces below its own (pid_namespaces(7)), each with its number
in the innermost one (``NSpid``, proc(5)) and the same start. So there it can be proved that the process is alive, or
that it has ended. From within a namespace nothing is known of those outside of it: then nothing is proved.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from enum import Enum
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""The inode number of the namespace that all others are below (``PROC_PID_INIT_INO`` of ``linux/proc_ns.h``)."""
CLOCK_TOLERANCE_S: Final = 5
"""How far apart an instant of this boot and its beginning may be, since clocks are set; in seconds."""

_PRIVATE_BOOT: Final = "private-"
_PATTERN: Final = re.compile(r"((?:private-)?[0-9a-f-]+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)", re.ASCII)
_NAMESPACE: Final = re.compile(r"[a-z]+:\[(\d+)\]")
_START_FIELD: Final = 19
"""Position in /proc/PID/stat after the command's name (proc(5): field 22)."""
_ENDED: Final = frozenset("ZXx")
"""States of a process that has ended and is not reaped yet."""


class Owner(Struct, frozen=True):
    """The process that works for what carries its label."""

    boot: str
    """The id of the kernel's boot; it begins with ``private-`` where a container was given an id of its own."""
    noted_s: int
    """When the label was made, in seconds since 1970."""
    pid: int
    """Its number in its own PID namespace."""
    start_ticks: int
    """When it started, in clock ticks since the boot: tells it from a later process with the same number."""
    pid_namespace: int
    """The inode number of its PID namespace."""
    mount_namespace: int
    """That of its mount namespace."""

    def __str__(self) -> str:
        """Return the label's text."""
        numbers = (self.noted_s, self.pid, self.start_ticks, self.pid_namespace, self.mount_namespace)
        return ".".join((self.boot, *map(str, numbers)))

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the owner that a label names; None for what is no such label."""
        match = _PATTERN.fullmatch(text)
        return None if match is None else cls(match[1], *(int(word) for word in match.groups()[1:]))


class State(Enum):
    """What is known of an owner."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class Judgement(Struct, frozen=True):
    """What is known of an owner, and why: words for users."""

    state: State
    """Alive or dead, if it is proved."""
    reason: str
    """Which process that is, or why nothing is proved, and where to look."""


def own_label() -> str:
    """Return the label of this process; empty where ``/proc`` does not show who it is."""
    return _label_of(os.getpid())


@cache
def _label_of(pid: int) -> str:
    # By its number: what was forked after the first call is another process.
    proc = Path("/proc")
    try:
        return str(
            Owner(
                boot_id(proc),
                int(time.time()),
                pid,
                start_ticks(proc / "self" / "stat") - boottime_offset_ticks(proc),
                _namespace(proc / "self" / "ns" / "pid"),
                _namespace(proc / "self" / "ns" / "mnt"),
            )
        )
    except (OSError, ValueError):
        return ""


def boot_id(proc: Path) -> str:
    """Return the id of the boot, marked if it is not the kernel's own; raise `OSError`.

    systemd-nspawn and LXC mount a file of their own over the kernel's.
    """
    path = proc / "sys" / "kernel" / "random" / "boot_id"
    found = path.read_text("ascii").strip()
    return found if path.stat().st_dev == path.parent.stat().st_dev else f"{_PRIVATE_BOOT}{found}"


def start_ticks(stat: Path) -> int:
    """Return the start in a file such as /proc/PID/stat; raise `OSError` and `ValueError`."""
    return int(_stat_fields(stat)[_START_FIELD])


def boottime_offset_ticks(proc: Path) -> int:
    """Return how far the clock of this process's time namespace is ahead of the host's, in clock ticks.

    The starts of all processes that it reads are later by that much (time_namespaces(7)).
    """
    with suppress(OSError, ValueError):
        for line in (proc / "self" / "timens_offsets").read_text("ascii").splitlines():
            clock, seconds, nanoseconds = line.split()
            if clock == "boottime":
                return round((int(seconds) + int(nanoseconds) / 1e9) * os.sysconf("SC_CLK_TCK"))
    return 0


def process_exists(pid: int) -> bool:
    """Return whether there is a process with this number in our PID namespace: it may be hidden in ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class OwnerJudge:
    """Says of owners whether they are alive; it reads the processes of the host once, when that is needed first.

    So make one after everything that it is to judge was found. `booted_s` is when this kernel started, in seconds
    since 1970; `exists` says whether a process of our PID namespace exists, whatever `proc` hides.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        *,
        booted_s: float | None = None,
        exists: Callable[[int], bool] = process_exists,
    ) -> None:
        self._proc = proc
        self._booted_s = booted_s
        self._exists = exists
        self._judged: dict[str, Judgement] = {}

    def judge(self, label: str) -> Judgement:
        """Return what is known of the owner that a label names; an empty one names none."""
        found = self._judged.get(label)
        if found is None:
            found = self._judged[label] = self._judge(label)
        return found

    def _judge(self, label: str) -> Judgement:
        owner = Owner.parse(label)
        if owner is None:
            return Judgement(State.UNKNOWN, "it does not say which process works for it")
        here = self._here
        if here is None:
            return Judgement(State.UNKNOWN, f"{self._proc} does not show the processes of this PID namespace")
        if owner.boot != here.boot:
            return self._judge_other_boot(owner, here)
        if owner.pid_namespace == here.pid_namespace and here.numbers_are_ours:
            return self._judge_neighbour(owner)
        return self._judge_elsewhere(owner, here)

    def _judge_other_boot(self, owner: Owner, here: _Here) -> Judgement:
        if _PRIVATE_BOOT in owner.boot + here.boot:
            return Judgement(State.UNKNOWN, "its worker runs, or ran, in a container that has a boot id of its own")
        if owner.noted_s > here.booted_s + CLOCK_TOLERANCE_S:
            return Judgement(State.UNKNOWN, "its worker runs, or ran, on another machine or kernel than this one")
        return Judgement(State.DEAD, "this host was booted since")

    def _judge_neighbour(self, owner: Owner) -> Judgement:
        """Judge a process of our own PID namespace."""
        try:
            fields = _stat_fields(self._proc / str(owner.pid) / "stat")
        except (FileNotFoundError, ProcessLookupError):
            if not self._hides_processes or self._exists(owner.pid) is False:
                return Judgement(State.DEAD, f"process {owner.pid} has ended")
            return Judgement(State.UNKNOWN, f"{self._proc} hides process {owner.pid}")
        except OSError:
            return Judgement(State.UNKNOWN, f"{self._proc} hides process {owner.pid}")
        if self._is_alive(owner, fields):
            return Judgement(State.ALIVE, f"its worker is alive (process {owner.pid}{self._where(owner)})")
        return Judgement(State.DEAD, f"process {owner.pid} has ended")

    def _judge_elsewhere(self, owner: Owner, here: _Here) -> Judgement:
        """Judge a process of another PID namespace: below ours, or out of sight."""
        seen: set[int] = set()
        for process in self._processes:
            seen.add(process.namespace)
            if process.inner_pid != owner.pid or process.namespace not in {owner.pid_namespace, 0}:
                continue
            with suppress(OSError, ValueError, IndexError):
                if self._is_alive(owner, _stat_fields(self._proc / str(process.pid) / "stat")):
                    where = f"process {process.pid}, {owner.pid} in its own PID namespace"
                    return Judgement(State.ALIVE, f"its worker is alive ({where})")
        # All namespaces are below the first one; of one with a process that is seen here, all processes are seen.
        if not self._hides_processes and (here.sees_all or owner.pid_namespace in seen):
            return Judgement(State.DEAD, f"process {owner.pid} of PID namespace {owner.pid_namespace} has ended")
        return Judgement(
            State.UNKNOWN,
            f"its worker is process {owner.pid} of PID namespace {owner.pid_namespace}, which is not seen from here",
        )

    def _is_alive(self, owner: Owner, fields: list[str]) -> bool:
        ticks = int(fields[_START_FIELD]) - self._offset_ticks
        # The kernel rounds after it has added an offset.
        return fields[0] not in _ENDED and abs(ticks - owner.start_ticks) <= bool(self._offset_ticks)

    def _where(self, owner: Owner) -> str:
        here = self._here
        return "" if here is None or here.mount_namespace == owner.mount_namespace else ", in another mount namespace"

    @cached_property
    def _offset_ticks(self) -> int:
        return boottime_offset_ticks(self._proc)

    @cached_property
    def _here(self) -> _Here | None:
        """Where this process is; None where ``/proc`` is that of namespaces without it."""
        own = self._proc / "self"
        try:
            pid_namespace = _namespace(own / "ns" / "pid")
            # The number in the innermost namespace, and that in the namespace whose processes are shown here.
            ours = _inner_pid(own / "status") == int(own.readlink().name)
            booted_s = self._booted_s
            if booted_s is None:
                uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self._offset_ticks / os.sysconf("SC_CLK_TCK")
                booted_s = time.time() - uptime_s
            return _Here(
                boot_id(self._proc),
                booted_s,
                pid_namespace,
                _namespace(own / "ns" / "mnt"),
                ours,
                self._shows_all(pid_namespace if ours else 0),
            )
        except (OSError, ValueError):
            return None

    def _shows_all(self, pid_namespace: int) -> bool:
        """Return whether ``/proc`` is that of the initial namespace: ours, or (root can see that) its first one's."""
        with suppress(OSError, ValueError):
            pid_namespace = pid_namespace or _namespace(self._proc / "1" / "ns" / "pid")
        return pid_namespace == INITIAL_PID_NAMESPACE

    @cached_property
    def _hides_processes(self) -> bool:
        """Whether processes of others are not shown (``hidepid``, proc(5)): then the first one is not."""
        try:
            _stat_fields(self._proc / "1" / "stat")
        except OSError:
            return True
        return False

    @cached_property
    def _processes(self) -> list[_Process]:
        """All processes that are shown; the namespace of another user's is 0."""
        found = []
        for entry in self._proc.iterdir():
            if not entry.name.isdecimal():
                continue
            with suppress(OSError, ValueError):
                inner = _inner_pid(entry / "status")
                try:
                    namespace = _namespace(entry / "ns" / "pid")
                except PermissionError:
                    namespace = 0
                found.append(_Process(int(entry.name), inner, namespace))
        return found


class _Here(Struct, frozen=True):
    """Where the process is that judges."""

    boot: str
    booted_s: float
    pid_namespace: int
    mount_namespace: int
    numbers_are_ours: bool
    sees_all: bool


class _Process(Struct, frozen=True):
    """A process of ``/proc``: its number there and in its own PID namespace, and that namespace."""

    pid: int
    inner_pid: int
    namespace: int


def _stat_fields(path: Path) -> list[str]:
    """Return what follows the command's name; the first is the state. Raises `OSError`."""
    return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _namespace(link: Path) -> int:
    match = _NAMESPACE.fullmatch(str(link.readlink()))
    if match is None:
        raise ValueError(f"{link}: not a namespace")
    return int(match[1])


def _inner_pid(status: Path) -> int:
    """Return a process's number in its innermost PID namespace; raise `OSError` and `ValueError`."""
    for line in status.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise ValueError(f"{status}: no NSpid")
