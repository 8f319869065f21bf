"""Reads what the study vm-docker-bench logged of its hosts: tables of CPU, memory and disk, one reading a line.

Its monitors wrote the kernel's counters once a second, or every 15 seconds, without a time stamp. So what follows
from two readings alone (shares of CPU time, amounts) is given, and rates are only where the user says how long an
interval was.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bench_common.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Rows = Sequence[tuple[int, list[str]]]

MIB: Final = 2**20
SECTOR: Final = 512
"""Bytes of a sector of /proc/diskstats, whatever the disk's own are (Linux, Documentation/iostats)."""

_CPU: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_MEMORY: Final = ("total", "used", "free", "shared", "buffers", "cached")
_DISK: Final = ("major number", "minor number", "device name")
_WHOLE: Final = re.compile(r"[0-9]{1,20}")
_READ, _WRITTEN = 5, 9
"""Where a row of /proc/diskstats has the sectors read and written."""


@dataclass(frozen=True, slots=True)
class MonitorLog:
    """Readings as columns of equal length, with their units; `doubts` is what a reader should know of them."""

    columns: Mapping[str, Sequence[float]]
    units: Mapping[str, str]
    caveats: tuple[str, ...] = ()


def read_monitor(text: str) -> MonitorLog | None:
    """Return the readings in a monitor's log; None where the text is none.

    Raises `ParseError` for a line that does not belong into the table that the first line announces.
    """
    lines = text.lstrip("\ufeff").splitlines()
    try:
        head = tuple(cell.strip().lower() for cell in next(csv.reader(lines), ()))
        own = head[1:] if head[:1] == ("x",) else head
        read = _cpu if own[:8] == _CPU else _memory if head == _MEMORY else _disk if head[:3] == _DISK else None
        if read is None:
            return None
        rows = [(number, row) for number, row in enumerate(csv.reader(lines[1:]), start=2) if any(row)]
    except csv.Error as error:
        raise ParseError(f"not a table: {error}") from error
    try:
        return read(rows)
    except ParseError as error:
        # A monitor runs until it is killed, which may be in the middle of a line.
        if text.endswith("\n") or not rows or error.line != rows[-1][0]:
            raise
        monitor = read(rows[:-1])
        doubt = f"the last reading was cut off, and is left out: {error.text!r}"
        return replace(monitor, caveats=(*monitor.caveats, doubt))


def _cpu(rows: Rows) -> MonitorLog:
    readings: list[list[int]] = []
    for number, row in rows:
        # The first of the scripts logged all of /proc/stat: a line for each CPU, interrupts and so on.
        if row[0] == "cpu":
            readings.append([_parse_int(cell, number, row) for cell in row[1 : 1 + len(_CPU)]])
        elif row[0].strip().isdigit():
            readings.append([_parse_int(cell, number, row) for cell in row[: len(_CPU)]])
        elif not re.fullmatch(r"cpu\d+|intr|ctxt|btime|processes|procs_running|procs_blocked|softirq", row[0]):
            raise ParseError("not a line of /proc/stat", line=number, text=",".join(row))
        if readings and len(readings[-1]) != len(_CPU):
            raise ParseError(f"expected {len(_CPU)} counters", line=number, text=",".join(row))
    ticks: dict[str, list[float]] = {name: [] for name in _CPU}
    shares: dict[str, list[float]] = {name: [] for name in _CPU}
    backwards = 0
    for before, now in itertools.pairwise(readings):
        grown = [later - earlier for earlier, later in zip(before, now, strict=True)]
        backwards += any(each < 0 for each in grown)
        total = sum(each for each in grown if each > 0)
        for name, each in zip(_CPU, grown, strict=True):
            ticks[name].append(float(each) if each >= 0 else math.nan)
            shares[name].append(100 * each / total if each >= 0 and total else math.nan)
    doubts = []
    if backwards:
        doubts.append(f"CPU counters ran backwards in {backwards} of {len(readings)} readings: left out there")
    return MonitorLog(
        {f"cpu_{name}_ticks": values for name, values in ticks.items()}
        | {f"cpu_{name}_percent": values for name, values in shares.items()},
        dict.fromkeys((f"cpu_{name}_ticks" for name in _CPU), "USER_HZ")
        | dict.fromkeys((f"cpu_{name}_percent" for name in _CPU), "%"),
        tuple(doubts),
    )


def _memory(rows: Rows) -> MonitorLog:
    """Return used memory without buffers and cache, which ``free`` of that time counted as used."""
    used = []
    for number, row in rows:
        if len(row) != len(_MEMORY):
            raise ParseError(f"expected {len(_MEMORY)} numbers", line=number, text=",".join(row))
        figures = dict(zip(_MEMORY, (_parse_int(cell, number, row) for cell in row), strict=True))
        used.append(float(MIB * (figures["used"] - figures["buffers"] - figures["cached"])))
    return MonitorLog({"memory_used_bytes": used}, {"memory_used_bytes": "B"})


def _disk(rows: Rows) -> MonitorLog:
    """Return what was read and written between readings, of whole disks: partitions would count twice."""
    counters: dict[str, list[tuple[int, int]]] = {}
    for number, row in rows:
        if len(row) <= _WRITTEN:
            raise ParseError("not a line of /proc/diskstats", line=number, text=",".join(row))
        pair = _parse_int(row[_READ], number, row), _parse_int(row[_WRITTEN], number, row)
        counters.setdefault(row[2], []).append(pair)
    disks = [name for name in counters if not any(name != other and name.startswith(other) for other in counters)]
    readings = {name: len(counters[name]) for name in disks}
    doubts: tuple[str, ...] = ()
    whole = min(readings.values(), default=0)
    # Disks come in the same order each time, so that a log that ends within a reading lacks the later ones of them.
    if (
        sorted(readings.values(), reverse=True) == list(readings.values())
        and max(readings.values(), default=0) == whole + 1
    ):
        doubts = ("the last reading lacks disks, and is left out",)
    elif len(set(readings.values())) > 1:
        raise ParseError(f"readings are missing: {', '.join(f'{name} has {n}' for name, n in readings.items())}")
    columns: dict[str, list[float]] = {}
    for place, column in enumerate(("disk_read_bytes", "disk_written_bytes")):
        sums = [
            sum(pair[place] for pair in pairs)
            for pairs in zip(*(counters[name][:whole] for name in disks), strict=True)
        ]
        columns[column] = [float(SECTOR * (now - before)) for before, now in itertools.pairwise(sums)]
    return MonitorLog(columns, dict.fromkeys(columns, "B"), doubts)


def _parse_int(cell: str, number: int, row: Sequence[str]) -> int:
    word = cell.strip()
    if not _WHOLE.fullmatch(word):
        raise ParseError(f"{word!r} is no whole number", line=number, text=",".join(row))
    return int(word)
