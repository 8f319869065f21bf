"""Samples of a host during a run: what its CPUs, memory, disks and network did, once for each interval.

A sample costs a few reads of /proc and no fork. The caller drives; where it comes late, that shows in the longer
`interval_ns` of the next row, and nothing is filled in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from bench_common.errors import InfrastructureError
from bench_worker.devices import outer_interfaces, physical_disks
from bench_worker.host.procfs import (
    CpuTicks,
    DiskCounters,
    MemoryUse,
    NetCounters,
    ProcStat,
    parse_diskstats,
    parse_loadavg,
    parse_meminfo,
    parse_net_dev,
    parse_stat,
)
from bench_worker.host_files import HostFiles, LiveFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row: TypeAlias = dict[str, int | float]
Parsed = TypeVar("Parsed")

CPU_COLUMNS: Final = ("user", "system", "iowait", "steal", "idle")
DISK_COUNTERS: Final = ("read_bytes", "written_bytes", "read_operations", "write_operations")
NET_COUNTERS: Final = ("received_bytes", "sent_bytes")

UNITS: Final[Mapping[str, str]] = {
    "time_ns": "ns",
    "interval_ns": "ns",
    **{f"cpu_{name}_ticks": "USER_HZ" for name in CPU_COLUMNS},
    **{f"cpu_{name}_percent": "%" for name in CPU_COLUMNS},
    "cpu_negative_deltas": "1",
    "running_processes": "1",
    "memory_used_bytes": "B",
    "memory_available_bytes": "B",
    "swap_used_bytes": "B",
    "disk_read_bytes": "B",
    "disk_written_bytes": "B",
    "disk_read_operations": "1",
    "disk_write_operations": "1",
    "net_received_bytes": "B",
    "net_sent_bytes": "B",
    "counter_resets": "1",
    "load1": "1",
}
"""Unit of every column. `time_ns` is CLOCK_MONOTONIC at the reading of the CPU counters.

Ticks, bytes and operations of CPU, disk and network are since the previous row, that is within `interval_ns`.
Percents are of all CPUs together; nice and guests are in user, interrupts in system. The kernel's iowait (and on
some kernels idle) can run backwards: the ticks keep what it said, the percent counts it as 0, and
`cpu_negative_deltas` says for how many columns that was done. Percents are NaN where no tick passed.
`counter_resets` counts disk and network counters that ran backwards (wrapped, or the device was replaced); they
are taken as 0 once. Memory, swap, load and running processes (the sampler's own among them) are of the instant.
"""

COLUMNS: Final = tuple(UNITS)
"""Every column in order; a host whose /proc lacks a file gives fewer, see `HostSampler.columns`."""

_CPU: Final = frozenset(name for name in COLUMNS if name.startswith("cpu_")) | {"running_processes"}
_SOURCES: Final[Mapping[str, frozenset[str]]] = {
    "/proc/stat": _CPU,
    "/proc/meminfo": frozenset({"memory_used_bytes", "memory_available_bytes", "swap_used_bytes"}),
    "/proc/diskstats": frozenset(name for name in COLUMNS if name.startswith("disk_")),
    "/proc/net/dev": frozenset({"net_received_bytes", "net_sent_bytes"}),
    "/proc/loadavg": frozenset({"load1"}),
}


def cpu_row(before: CpuTicks, after: CpuTicks) -> Row:
    """Return the CPU columns for two readings, as `UNITS` explains them."""
    deltas = {name: getattr(after, name) - getattr(before, name) for name in CPU_COLUMNS}
    counted = {name: max(0, delta) for name, delta in deltas.items()}
    total = sum(counted.values())
    row: Row = {f"cpu_{name}_ticks": delta for name, delta in deltas.items()}
    row |= {f"cpu_{name}_percent": 100.0 * part / total if total else float("nan") for name, part in counted.items()}
    row["cpu_negative_deltas"] = sum(delta < 0 for delta in deltas.values())
    return row


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one moment's files said; None where the host has no such file, devices only those that are counted."""

    time_ns: int
    stat: ProcStat | None
    memory: MemoryUse | None
    load1: float | None
    disks: Mapping[str, DiskCounters]
    interfaces: Mapping[str, NetCounters]


class HostSampler:
    """Reads a host's counters and gives a row for each call of `sample`.

    The first reading is taken on construction, so the first row is of the time since then. `columns` are those that
    this host can give. `clock` is a monotonic clock in ns.
    """

    units = UNITS

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, files: HostFiles | None = None) -> None:
        """Take the first reading; raise `InfrastructureError` when /proc is not what it should be."""
        self._clock = clock
        self._files: HostFiles = files or LiveFiles()
        self._chosen: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._present = frozenset(path for path in _SOURCES if self._files.text(path))
        hidden = frozenset[str]().union(*(_SOURCES[path] for path in _SOURCES.keys() - self._present))
        self.columns = tuple(name for name in COLUMNS if name not in hidden)
        self._previous = self._read()

    def sample(self) -> Row:
        """Return one row: a value for each of `columns`.

        Raises `InfrastructureError` when /proc no longer gives what it gave at the start.
        """
        before, now = self._previous, self._read()
        self._previous = now
        row: Row = {"time_ns": now.time_ns, "interval_ns": now.time_ns - before.time_ns}
        if before.stat and now.stat:
            row |= cpu_row(before.stat.cpu, now.stat.cpu)
            row["running_processes"] = now.stat.running
        if now.memory:
            row["memory_used_bytes"] = now.memory.used
            row["memory_available_bytes"] = now.memory.available
            row["swap_used_bytes"] = now.memory.swap_used
        if now.load1 is not None:
            row["load1"] = now.load1
        disks, disk_resets = _grown(before.disks, now.disks)
        interfaces, interface_resets = _grown(before.interfaces, now.interfaces)
        for name in DISK_COUNTERS:
            row[f"disk_{name}"] = disks.get(name, 0)
        for name in NET_COUNTERS:
            row[f"net_{name}"] = interfaces.get(name, 0)
        row["counter_resets"] = disk_resets + interface_resets
        return {name: row[name] for name in self.columns}

    def _read(self) -> _Reading:
        try:
            time_ns = self._clock()
            stat = self._parsed("/proc/stat", parse_stat)
            disks = self._parsed("/proc/diskstats", parse_diskstats) or {}
            interfaces = self._parsed("/proc/net/dev", parse_net_dev) or {}
            memory = self._parsed("/proc/meminfo", parse_meminfo)
            load1 = self._parsed("/proc/loadavg", parse_loadavg)
        except ValueError as error:
            raise InfrastructureError(f"cannot sample this host: {error}") from error
        counted_disks = self._choose(physical_disks, frozenset(disks))
        counted_interfaces = self._choose(outer_interfaces, frozenset(interfaces))
        return _Reading(
            time_ns,
            stat,
            memory,
            load1,
            {name: disks[name] for name in counted_disks},
            {name: interfaces[name] for name in counted_interfaces},
        )

    def _parsed(self, path: str, parse: Callable[[str], Parsed]) -> Parsed | None:
        if path not in self._present:
            return None
        text = self._files.text(path)
        if not text:
            raise ValueError(f"{path} gives nothing any more")
        return parse(text)

    def _choose(
        self, choice: Callable[[HostFiles, frozenset[str]], frozenset[str]], names: frozenset[str]
    ) -> frozenset[str]:
        # sysfs is asked again only when a device came or went: a container's veth, a disk that was plugged in.
        seen, chosen = self._chosen.get(choice.__name__, (None, frozenset[str]()))
        if seen != names:
            chosen = choice(self._files, names)
            self._chosen[choice.__name__] = (names, chosen)
        return chosen


def _grown(
    before: Mapping[str, DiskCounters] | Mapping[str, NetCounters],
    after: Mapping[str, DiskCounters] | Mapping[str, NetCounters],
) -> tuple[dict[str, int], int]:
    """Return by how much each counter grew over the devices of both readings, and how many ran backwards."""
    grown: dict[str, int] = {}
    resets = 0
    for device in before.keys() & after.keys():
        for counter in type(after[device]).__slots__:
            delta = getattr(after[device], counter) - getattr(before[device], counter)
            resets += delta < 0
            grown[counter] = grown.get(counter, 0) + max(0, delta)
    return grown, resets
