"""Samples a host, a control group and an engine during a run: CPU, memory, disk and network for each interval; speed.

A sample costs a few reads of /proc and no fork. The caller drives; a late sample shows in the longer `interval_ns`
of its row, and no gap is filled in. A control group counts everything that ran in it and in the groups below it,
however briefly, under version 1 and 2 of the kernel's interface.

Two hosts whose properties agree may still differ in speed, and one host may change its own without changing a
property. Only work that is always the same shows it: `measure_speed`, before each trial.

Sources: Documentation/admin-guide/cgroup-v1/{memory,cpuacct}.rst and cgroup-v2.rst of the Linux kernel.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from time import monotonic, monotonic_ns, thread_time_ns
from typing import Final, Protocol, TypeAlias, TypeVar

import gevent
from gevent.event import Event
from msgspec import Struct

from bench_common.errors import InfrastructureError
from bench_worker.host.procfs import (
    CpuTicks,
    DiskCounters,
    HostFiles,
    LiveHostFiles,
    MemoryUse,
    NetCounters,
    ProcStat,
    parse_diskstats,
    parse_loadavg,
    parse_meminfo,
    parse_net_dev,
    parse_stat,
    physical_disks,
    physical_interfaces,
)

log = logging.getLogger(__name__)


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
some kernels idle) can run backwards: the ticks keep its value, the percent counts it as 0, and
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


class _HostCounters(Struct, frozen=True):
    """The values of one moment's files; None where the host has no such file, devices only those that are counted."""

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
        self._files: HostFiles = files or LiveHostFiles()
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
        disks, disk_resets = _counter_growth(before.disks, now.disks)
        interfaces, interface_resets = _counter_growth(before.interfaces, now.interfaces)
        for name in DISK_COUNTERS:
            row[f"disk_{name}"] = disks.get(name, 0)
        for name in NET_COUNTERS:
            row[f"net_{name}"] = interfaces.get(name, 0)
        row["counter_resets"] = disk_resets + interface_resets
        return {name: row[name] for name in self.columns}

    def _read(self) -> _HostCounters:
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
        counted_interfaces = self._choose(physical_interfaces, frozenset(interfaces))
        return _HostCounters(
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
        # sysfs is asked again only when a device comes or goes: a container's veth, a disk that was plugged in.
        seen, chosen = self._chosen.get(choice.__name__, (None, frozenset[str]()))
        if seen != names:
            chosen = choice(self._files, names)
            self._chosen[choice.__name__] = (names, chosen)
        return chosen


def _counter_growth(
    before: Mapping[str, DiskCounters] | Mapping[str, NetCounters],
    after: Mapping[str, DiskCounters] | Mapping[str, NetCounters],
) -> tuple[dict[str, int], int]:
    """Return by how much each counter grew over the devices of both readings, and how many ran backwards."""
    grown: dict[str, int] = {}
    resets = 0
    for device in before.keys() & after.keys():
        for counter in type(after[device]).__struct_fields__:
            delta = getattr(after[device], counter) - getattr(before[device], counter)
            resets += delta < 0
            grown[counter] = grown.get(counter, 0) + max(0, delta)
    return grown, resets


ROOT: Final = "/sys/fs/cgroup"

CGROUP_UNITS: Final[Mapping[str, str]] = {"time_ns": "ns", "interval_ns": "ns", "cgroup_bytes": "B", "cpu_ns": "ns"}
"""Unit of every column. `cgroup_bytes` is what is charged to the group less file pages that it has not used
lately, which is what container engines show; `cpu_ns` is CPU time within `interval_ns`. A controller that is
not there gives NaN.
"""

_UNIFIED: Final = "unified"
"""Where version 2 is on a host that has both: without controllers, but with the CPU time of each group."""
_V1_MEMORY: Final = ("memory",)
_V1_CPU: Final = ("cpuacct", "cpu,cpuacct", "cpuacct,cpu")


class CgroupSampler:
    """Gives a row for each call of `sample`; the first reading is taken now.

    `path` is the group's, as /proc/PID/cgroup has it, or with ``/sys/fs/cgroup`` and a controller in front of it.
    """

    units = CGROUP_UNITS

    def __init__(
        self, path: str, files: HostFiles | None = None, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._files: HostFiles = files or LiveHostFiles()
        self._clock = clock
        self._path = _inner(path)
        self._time_ns = clock()
        self._cpu_ns = self._cpu()

    @property
    def found(self) -> bool:
        """Whether there is such a group."""
        return self._cpu() is not None or self._memory() is not None

    def sample(self) -> Row | None:
        """Return a row, of the time since the one before; None while there is no such group."""
        now_ns, cpu_ns, memory = self._clock(), self._cpu(), self._memory()
        before_ns, self._cpu_ns = self._cpu_ns, cpu_ns
        if cpu_ns is None and memory is None:
            return None
        interval_ns, self._time_ns = now_ns - self._time_ns, now_ns
        nan = float("nan")
        return {
            "time_ns": now_ns,
            "interval_ns": interval_ns,
            "cgroup_bytes": nan if memory is None else memory,
            # A recreated group begins at 0 again.
            "cpu_ns": nan if cpu_ns is None or before_ns is None else max(0, cpu_ns - before_ns),
        }

    def _memory(self) -> int | None:
        for places, usage, idle in (
            (("",), "memory.current", "inactive_file"),
            (_V1_MEMORY, "memory.usage_in_bytes", "total_inactive_file"),
        ):
            for place in places:
                charged = _number(self._read(place, usage))
                if charged is not None:
                    return max(0, charged - (_field(self._read(place, "memory.stat"), idle) or 0))
        return None

    def _cpu(self) -> int | None:
        used_us = _field(self._read("", "cpu.stat"), "usage_usec")
        if used_us is not None:
            return used_us * 1000
        found = (_number(self._read(place, "cpuacct.usage")) for place in _V1_CPU)
        used_ns = next((value for value in found if value is not None), None)
        if used_ns is None:
            used_us = _field(self._read(_UNIFIED, "cpu.stat"), "usage_usec")
        return used_ns if used_us is None else used_us * 1000

    def _read(self, controller: str, name: str) -> str | None:
        parts = (ROOT, controller, self._path, name)
        return self._files.text("/".join(part for part in parts if part))


def _inner(path: str) -> str:
    """Return the group's path below its hierarchy's root, without slashes around it."""
    inner = path.strip("/")
    root = ROOT.strip("/")
    if inner != root and not inner.startswith(f"{root}/"):
        return inner
    inner = inner[len(root) :].strip("/")
    first, _, rest = inner.partition("/")
    return rest if first in (*_V1_MEMORY, *_V1_CPU, _UNIFIED, "cpu") else inner


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _field(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value)
    return None


SEND_S: Final = 2.0
"""How often, at most, what was gathered is sent."""

SendSamples: TypeAlias = Callable[[str, dict[str, list[int | float]], dict[str, str]], None]


class Sampler(Protocol):
    """What can be read again and again. `units` are those of a row's columns, the same in every row."""

    units: Mapping[str, str]

    def sample(self) -> Row | None:
        """Return a row, or None while there is nothing."""


class Sampling:
    """The samples of one run, until `end`. `send(source, columns, units)` gets what was gathered of a source."""

    def __init__(self, send: SendSamples) -> None:
        self._send = send
        self._columns: dict[str, dict[str, list[int | float]]] = {}
        self._units: dict[str, dict[str, str]] = {}
        self._sent_at = monotonic()
        self._over = Event()
        self.on_host_row: Callable[[Row], None] | None = None
        """Gets each row of the host, if set."""

    def start_host_sampling(self, interval_s: float) -> None:
        """Read this host, as ``host``, from now on, in a greenlet; where its /proc cannot be read, that is logged."""
        gevent.spawn(self._read_host, interval_s)

    def start_sampling(self, samplers: Mapping[str, Sampler], interval_s: float) -> None:
        """Read each of some sources, by name, from now on, in a greenlet."""
        if samplers:
            gevent.spawn(self._read, samplers, interval_s)

    def add(self, source: str, row: Mapping[str, int | float], units: Mapping[str, str]) -> None:
        """Gather a row of a source that reports by itself."""
        columns = self._columns.setdefault(source, {})
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
        self._units[source] = dict(units)

    def flush(self) -> None:
        """Send what was gathered."""
        gathered, self._columns = self._columns, {}
        self._sent_at = monotonic()
        for source, columns in gathered.items():
            self._send(source, columns, self._units[source])

    def end(self) -> None:
        """Read and send no more."""
        self._over.set()

    def _read_host(self, interval_s: float) -> None:
        try:
            self._read({"host": HostSampler()}, interval_s)
        except InfrastructureError as error:
            log.error("this host cannot be sampled any more: %s", error)  # noqa: TRY400  it says where

    def _read(self, samplers: Mapping[str, Sampler], interval_s: float) -> None:
        for _ in _ticks(interval_s, self._over):
            for source, sampler in samplers.items():
                row = sampler.sample()
                if row is None:
                    continue
                self.add(source, row, sampler.units)
                if source == "host" and self.on_host_row is not None:
                    self.on_host_row(row)
            if monotonic() - self._sent_at >= SEND_S and not self._over.is_set():
                self.flush()


def _ticks(interval_s: float, over: Event) -> Iterator[None]:
    """Yield at each multiple of an interval until it is over: late once is not late for ever."""
    begun, count = monotonic(), 0
    while True:
        count += 1
        if over.wait(max(0.0, begun + count * interval_s - monotonic())):
            return
        yield
        count = max(count, int((monotonic() - begun) / interval_s))


_CHUNK: Final = bytes(64 * 1024)
"""Fits the cache next to the CPU, so that the memory's speed does not count."""
_CHUNKS: Final = 950
"""Never to be changed: figures of other releases would no longer compare."""


class SpeedReading(Struct, frozen=True):
    """How long the fixed work took."""

    time_ns: int
    wall_ns: int
    """How long it took; a CPU that was shared with others makes it longer."""
    cpu_ns: int
    """How much CPU time it took; a slower CPU makes it longer."""


def measure_speed() -> SpeedReading:
    """Do the fixed work and time it. It runs on the calling thread and blocks it."""
    digest = hashlib.blake2b()
    began_ns, cpu_ns = monotonic_ns(), thread_time_ns()
    for _ in range(_CHUNKS):
        digest.update(_CHUNK)
    cpu_ns = thread_time_ns() - cpu_ns
    ended_ns = monotonic_ns()
    return SpeedReading(ended_ns, ended_ns - began_ns, cpu_ns)
