"""Samples an engine's own processes: memory and CPU time of its daemons, shims and monitors, or of a control group.

An engine's class declares which processes are its own (`DaemonProcesses`). Each sample finds them again, because
shims and sandboxes come and go with containers. Those that exist before the first sample serve other users'
containers and do not count.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from bench_worker.engines.base import DaemonProcesses
from bench_worker.host.procfs import HostFiles, LiveHostFiles, ProcessStat, parse_pss, read_processes
from bench_worker.host.sampler import CgroupSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench_worker.host.sampler import Sampler

Row: TypeAlias = dict[str, int | float]
ProcessKey: TypeAlias = tuple[int, int]
"""A process: its number, and when it was started."""

UNITS: Final[Mapping[str, str]] = {
    "time_ns": "ns",
    "interval_ns": "ns",
    "processes": "1",
    "rss_bytes": "B",
    "pss_bytes": "B",
    "cpu_ns": "ns",
}
"""Unit of every column. `rss_bytes` counts a page that processes share once for each of them, `pss_bytes` once
in all; it is NaN where it may not be read. `cpu_ns` is CPU time within `interval_ns`, of all threads, in whole
ticks.
"""

PSS_INTERVAL_FACTOR: Final = 50
"""The kernel walks a process's whole memory for its PSS: what that takes may be one part of so many of the time."""

_ADDRESS_OPTION: Final = "-address"
_STATE_OPTION: Final = "--root"
_SELF_EXE_NAME: Final = "exe"
"""What the kernel calls a program that was started as ``/proc/self/exe``."""
_NAME_LENGTH: Final = 15
_CONNECT_S: Final = 0.5


def listening_pid(path: str) -> int | None:
    """Return the process that listens on a Unix socket; None where there is none, or it may not be asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(path)
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    pid: int = struct.unpack("3i", peer)[0]
    return pid or None


class DaemonSampler:
    """Gives a row for each call of `sample`, of the processes that `side` describes.

    The first reading is taken on construction, so the first row is of the time since then.
    """

    units = UNITS

    def __init__(
        self,
        side: DaemonProcesses,
        files: HostFiles | None = None,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        listener: Callable[[str], int | None] = listening_pid,
    ) -> None:
        self._declared = side
        self._files: HostFiles = files or LiveHostFiles()
        self._clock = clock
        self._listener = listener
        self._tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._roots: list[ProcessKey] = []
        self._command_lines: dict[ProcessKey, tuple[str, ...]] = {}
        self._addresses: dict[str, ProcessKey] = {}
        self._pss_due_ns = 0
        self._time_ns = clock()
        table = self._table()
        self._seen = frozenset(table)
        self._sandboxes = frozenset(
            name[:_NAME_LENGTH] for name in (*side.sandboxes, _SELF_EXE_NAME) if side.sandboxes
        )
        self._helper_names = side.shims | self._sandboxes
        self._preexisting = frozenset(key for key, one in table.items() if one.name in self._helper_names)
        self._before = self._members(table)

    @property
    def found(self) -> bool:
        """Whether the last reading found any process."""
        return bool(self._before)

    @property
    def pids(self) -> frozenset[int]:
        """The processes of the last reading, by number."""
        return frozenset(pid for pid, _ in self._before)

    def sample(self) -> Row | None:
        """Return a row, of the time since the one before; None while there is no such process.

        Where nothing but sandboxes belongs to the engine, none of them is no gap: it costs nothing then.
        """
        now_ns, table = self._clock(), self._table()
        members, before, seen = self._members(table), self._before, self._seen
        self._before, self._seen = members, frozenset(table)
        if not members and self._declared.names:
            return None
        interval_ns, self._time_ns = now_ns - self._time_ns, now_ns
        return {
            "time_ns": now_ns,
            "interval_ns": interval_ns,
            "processes": len(members),
            "rss_bytes": sum(one.rss_pages for one in members.values()) * self._page_bytes,
            "pss_bytes": self._pss_bytes(members),
            "cpu_ns": self._cpu_ticks(before, members, seen) * self._tick_ns,
        }

    # -- which processes ------------------------------------------------------------------------------------------

    def _table(self) -> dict[ProcessKey, ProcessStat]:
        return {(one.pid, one.start_ticks): one for one in read_processes(self._files).values()}

    def _members(self, table: Mapping[ProcessKey, ProcessStat]) -> dict[ProcessKey, ProcessStat]:
        keys = {one.pid: key for key, one in table.items()}
        if not self._roots or not all(root in table for root in self._roots):
            self._roots = list(self._find_roots(table, keys))
            self._addresses.clear()
        members = self._descendants(self._roots, table)
        for companion in self._declared.companion_daemons:
            if self._roots and all(one.name != companion.name for one in members.values()):
                address = self._option(self._roots[0], companion.option) or companion.socket
                there = keys.get(self._listener(address) or 0)
                if there is not None and table[there].name == companion.name:
                    # A root from now on, so that it is not asked for again.
                    self._roots.append(there)
                    members |= self._descendants([there], table)
        shims = self._declared.shims
        for key, one in table.items():
            if one.name in shims and key not in self._preexisting and self._is_own_shim(key, members, keys):
                members[key] = one
        return members | self._sandboxes_in(table, members)

    def _find_roots(
        self, table: Mapping[ProcessKey, ProcessStat], keys: Mapping[int, ProcessKey]
    ) -> Iterator[ProcessKey]:
        side = self._declared
        pids = [self._listener(path) or 0 for path in side.sockets]
        pids += [int(text) for path in side.pid_files if (text := self._files.text(path) or "").isdecimal()]
        found = {keys[pid] for pid in pids if pid in keys and table[keys[pid]].name in side.names}
        yield from found or [key for key, one in table.items() if one.name in side.roots]

    def _descendants(
        self, roots: list[ProcessKey], table: Mapping[ProcessKey, ProcessStat]
    ) -> dict[ProcessKey, ProcessStat]:
        """Return the roots and those of their descendants that are called right; a container's own are not."""
        members = {root: table[root] for root in roots if root in table}
        children: dict[int, list[ProcessKey]] = {}
        for key, one in table.items():
            if one.name in self._declared.names:
                children.setdefault(one.parent, []).append(key)
        ahead = list(members)
        while ahead:
            for child in children.get(ahead.pop()[0], ()):
                if child not in members:
                    members[child] = table[child]
                    ahead.append(child)
        return members

    def _is_own_shim(
        self, key: ProcessKey, members: Mapping[ProcessKey, ProcessStat], keys: Mapping[int, ProcessKey]
    ) -> bool:
        if not self._words(key)[0]:
            return False  # it has ended, and nobody has collected it yet: whose it was can not be told
        address = self._option(key, _ADDRESS_OPTION)
        if address is None:
            return True
        if address not in self._addresses:
            # Asked once for each socket: whoever listens there does so for longer than a shim lives.
            there = keys.get(self._listener(address) or 0)
            if there is None:
                return False
            self._addresses[address] = there
        return self._addresses[address] in members

    def _sandboxes_in(
        self, table: Mapping[ProcessKey, ProcessStat], members: Mapping[ProcessKey, ProcessStat]
    ) -> dict[ProcessKey, ProcessStat]:
        side, found = self._declared, {}
        shims = {key[0] for key, one in members.items() if one.name in side.shims}
        for key, one in table.items():
            if (
                one.name not in self._sandboxes
                or key in self._preexisting
                or self._words(key)[0] not in side.sandboxes
            ):
                continue
            if one.parent in shims or (side.state and self._option(key, _STATE_OPTION) == side.state):
                found[key] = one
        return found

    def _words(self, key: ProcessKey) -> tuple[str, ...]:
        """Return a process's command line; one empty word where there is none."""
        if key not in self._command_lines:
            text = self._files.text(f"/proc/{key[0]}/cmdline")
            if not text:
                return ("",)  # not kept: one that is about to run its program has one soon
            self._command_lines = {old: words for old, words in self._command_lines.items() if old in self._seen}
            self._command_lines[key] = tuple(text.split("\0"))
        return self._command_lines[key]

    def _option(self, key: ProcessKey, option: str) -> str | None:
        """Return what a process's command line says after an option, ``--option X`` or ``--option=X``."""
        words = self._words(key)
        for word, following in zip(words, (*words[1:], ""), strict=True):
            if word == option:
                return following.removeprefix("unix://") or None
            if word.startswith(f"{option}="):
                return word.removeprefix(f"{option}=").removeprefix("unix://")
        return None

    # -- how much -------------------------------------------------------------------------------------------------

    def _cpu_ticks(
        self,
        before: Mapping[ProcessKey, ProcessStat],
        now: Mapping[ProcessKey, ProcessStat],
        seen: frozenset[ProcessKey],
    ) -> int:
        """Return the ticks used since the reading before.

        A shim or a sandbox waits for its container's processes, whose time is none of the engine's; a daemon waits
        for its helpers.
        """
        ticks = 0
        for key, one in now.items():
            if key in before:
                ticks += self._ticks(one) - self._ticks(before[key])
            elif key not in seen:
                ticks += self._ticks(one)
        daemons = {key[0] for key, one in now.items() if one.name not in self._helper_names}
        for key, one in before.items():
            if key not in now and one.parent in daemons:
                # Its parent has waited for it and has its time now, of which this much was counted already.
                ticks -= self._ticks(one)
        return max(0, ticks)

    def _ticks(self, one: ProcessStat) -> int:
        return one.own_ticks + (0 if one.name in self._helper_names else one.waited_ticks)

    def _pss_bytes(self, members: Mapping[ProcessKey, ProcessStat]) -> float:
        begun_ns = self._clock()
        if begun_ns < self._pss_due_ns:
            return float("nan")
        total = 0
        for pid, _ in members:
            pss = parse_pss(self._files.text(f"/proc/{pid}/smaps_rollup") or "")
            if pss is None:
                # Gone meanwhile, or not to be seen by this user; half a sum would be no sum.
                return float("nan")
            total += pss
        took_ns = self._clock() - begun_ns
        self._pss_due_ns = begun_ns + PSS_INTERVAL_FACTOR * took_ns
        return total


def engine_samplers(
    engines: Mapping[str, str],
    declared: Callable[[str], DaemonProcesses | None],
    complain: Callable[[str], None],
) -> dict[str, Sampler]:
    """Return what to read of engines, by source: ``engine:NAME``.

    `engines` gives a control group's path by engine, empty: its processes, which are those that its class has
    `declared`. `complain(text)` gets what cannot be read.
    """
    samplers = {name: _sampler(name, cgroup, declared, complain) for name, cgroup in engines.items()}
    return {f"engine:{name}": sampler for name, sampler in samplers.items() if sampler is not None}


def _sampler(
    name: str, cgroup: str, declared: Callable[[str], DaemonProcesses | None], complain: Callable[[str], None]
) -> Sampler | None:
    if cgroup:
        group = CgroupSampler(cgroup)
        if not group.found:
            complain(f"the overhead of {name} is unknown: there is no control group {cgroup}")
            return None
        return group
    side = declared(name)
    if side is None:
        complain(
            f"the overhead of {name} is unknown: it does not declare which processes are its own here; "
            f"name its control group under overhead.cgroups.{name}"
        )
    if not side:
        return None
    processes = DaemonSampler(side)
    if not processes.found and side.sockets:
        complain(f"the overhead of {name} is unknown: none of its processes was found")
    return processes
