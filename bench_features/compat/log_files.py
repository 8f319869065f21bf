"""Finds runs in the output of a tool (plain or gzip), and reads the monitor logs of the study vm-docker-bench.

A workload's parser reads one run and rejects unknown lines. So a text is cut where runs begin, and each piece goes
to the parser; lines that it rejects after a complete run belong to something else. An incomplete run is a failed
run. Prefixes that log collectors add to each line (time, container name, syslog header) are removed.

The study's monitors logged the kernel's counters once a second, or every 15 seconds, without a time stamp. So shares
and amounts are computed, and rates only if the user states the interval. Logs of /proc/loadavg or ``uptime`` are read
like them.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import math
import re
import sys
import zlib
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.errors import NotARunOutput, ParseError, UsageError, did_you_mean
from bench_common.files import STDIN, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench_common.treatment import Scalar
    from bench_workloads.base import Workload

    Rows = Sequence[tuple[int, list[str]]]


_TIME: Final = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
_END: Final = r"(?: |$)"
_SENDER: Final = rf"[\w.-]{{1,128}} [^\s:]{{1,128}}:{_END}"
_PROCESS: Final = rf"[\w.-]{{1,128}} [^\s:\[]{{1,128}}\[\d{{1,9}}\]:{_END}"
"""Without the number of a process, a line of the tool itself may look like a sender."""
_PREFIX: Final = re.compile(
    rf"[\w.-]{{1,128}}(?:@[\w.-]{{1,128}})? +\|{_END}"  # Compose, `docker service logs`
    rf"|\[pod/[\w.-]{{1,253}}/[\w.-]{{1,63}}\]{_END}"  # `kubectl logs --prefix`
    rf"|{_TIME} {_PROCESS}"  # the journal with ISO times, syslog of rsyslog's newer format
    rf"|(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})? {_SENDER}"  # syslog, the journal
    rf"|\d{{9,11}}\.\d{{6}} {_PROCESS}"  # the journal with Unix times
    rf"|<\d{{1,3}}>1 {_TIME} \S{{1,255}} \S{{1,48}} \S{{1,128}} \S{{1,32}} -{_END}"  # syslog of RFC 5424
    # `docker logs -t`, kubectl's --timestamps, `ts`; a CRI's log
    rf"|{_TIME}{_END}(?:(?:stdout|stderr) [FP]{_END})?",
    re.ASCII,
)
_MOST_PREFIXES: Final = 3
"""Compose or kubectl with times, read through the journal, has as many."""
_LEAST_UNKNOWN: Final = 4
"""So many characters that all lines begin with are told as a prefix."""


def strip_prefixes(lines: Sequence[str]) -> list[str]:
    """Return the lines without the prefixes of log collectors; other lines stay unchanged."""
    return [_stripped(line) for line in lines]


def _stripped(line: str) -> str:
    for _ in range(_MOST_PREFIXES):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :]
    return line


def without_prefixes(workload: Workload, text: str) -> str:
    """Return one run without the prefixes of a log collector, if each of its lines has one and none begins a run."""
    lines = text.splitlines()
    filled = [line for line in lines if line.strip()]
    if (
        not filled
        or not all(map(_PREFIX.match, filled))
        or (workload.run_start_pattern and workload.run_starts(lines))
    ):
        return text
    return "\n".join(strip_prefixes(lines)) + "\n"


def common_beginning(text: str) -> str:
    """Return in words how all lines begin, as an unknown log collector adds it; nothing where they do not."""
    filled = [line for line in strip_prefixes(text.splitlines()) if line.strip()]
    # What the first and the last in order have in common, all between them have.
    first, last = (min(filled), max(filled)) if len(filled) > 1 else ("", "")
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    common = "".join(letter for letter, _ in same)
    if len(common.strip()) < _LEAST_UNKNOWN:
        return ""
    return f"every line begins with {common[:80]!r}; is that the prefix of a log collector? Remove it"


_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)

_MAX_RUN_STARTS: Final = 3
"""How many lines of one run may look like its first line."""


class ImportedRun(Struct, frozen=True):
    """One run in a text."""

    line: int
    """The line of the text where it begins, from 1."""
    text: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Values by metric; empty if the run is incomplete."""
    error: str = ""
    """Why it has no metrics."""
    stated_params: Mapping[str, Scalar] = field(default_factory=dict)
    """The parameters that the output states."""
    other: bool = False
    """Whether this is another output of the tool, such as its help, and no run of the workload."""


def split_runs(workload: Workload, text: str, metric: str | None = None, before: str = "") -> list[ImportedRun]:
    """Return the runs in a text, in its order; none if no run begins in it.

    `metric` names the metric of a text that has numbers on each line and nothing else, or by commas the metric of
    each column, where ``-`` leaves a column out; without it such a text raises `UsageError`. `before` is put in
    front of each run, such as the help of a tool that states its version nowhere else.
    """
    lines = text.splitlines()
    rows = list(_rows_of_numbers(lines, every=metric is not None))
    if rows and all(_is_number(word) for _, _, words in rows for word in words):
        names = _metrics_named(workload, metric, len(rows[0][2]))
        return [ImportedRun(number, line, _row_metrics(names, number, line, words)) for number, line, words in rows]
    if metric is not None:
        wrong_rows = ((number, line) for number, line, words in rows if not all(map(_is_number, words)))
        place, wrong = next(wrong_rows, (1, ""))
        raise UsageError(
            f"line {place} is no number: {wrong[:80]!r}; --metric applies only to a text with numbers on each line"
        )
    if not workload.run_starts(lines):
        lines = strip_prefixes(lines)
    return list(_runs(workload, lines, before.splitlines()))


def _rows_of_numbers(lines: Sequence[str], *, every: bool) -> Iterator[tuple[int, str, list[str]]]:
    """Yield number, text and words of each line that is neither blank nor a comment, to the first without numbers.

    With `every` the lines that follow it, too. A log of many runs has such a line soon, and can be long.
    """
    for number, line in enumerate(lines, start=1):
        text = line.strip(" \t\0\ufeff")
        if text and not text.startswith("#"):
            words = _COLUMN_END.split(text)
            yield number, text, words
            if not every and not all(map(_is_number, words)):
                return


def _is_number(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) and math.isfinite(float(word))


_COLUMN_END: Final = re.compile(r"[ \t]*[,;][ \t]*|[ \t]+")
_NO_METRIC: Final = "-"
"""In place of a metric's name, leaves out its column."""


def _metrics_named(workload: Workload, metric: str | None, columns: int) -> list[str]:
    """Return the metric of each column, as ``--metric`` names them; raise `UsageError` for others or too few."""
    known = [each.name for each in workload.metrics]
    if metric is None:
        if columns == 1:
            raise UsageError(f"these are plain numbers; name their metric with --metric, one of: {', '.join(known)}")
        raise UsageError(
            f"these are {columns} plain numbers on each line; name the metric of each column, with commas between, "
            f"as in --metric {','.join(known[:columns])} (-: leave a column out); "
            f"{workload.name} has: {', '.join(known)}"
        )
    names = [name.strip() for name in metric.split(",")]
    for name in names:
        if name not in known and not (name == _NO_METRIC and len(names) > 1):
            there = did_you_mean(name, known) or f"; it has: {', '.join(known)}"
            raise UsageError(f"{workload.name} has no metric {name!r}{there}")
    wanted = [name for name in names if name != _NO_METRIC]
    if not wanted or len(set(wanted)) != len(wanted):
        raise UsageError(f"--metric {metric}: name each metric once, and at least one")
    if len(names) != columns:
        raise UsageError(f"--metric {metric} names {len(names)} of {columns} columns; - leaves a column out")
    return names


def _row_metrics(names: Sequence[str], number: int, line: str, words: Sequence[str]) -> dict[str, float]:
    if len(words) != len(names):
        raise UsageError(f"line {number} has {len(words)} numbers, expected {len(names)}: {line[:80]!r}")
    return {name: float(word) for name, word in zip(names, words, strict=True) if name != _NO_METRIC}


def _runs(workload: Workload, lines: list[str], before: list[str]) -> Iterator[ImportedRun]:
    starts = workload.run_starts(lines)
    edges = [*starts, len(lines)]
    at = 0
    while at < len(starts):
        # A tool may print several lines that can begin a run, such as its help and then the run itself.
        found, taken = _run(workload, starts[at] + 1, lines[starts[at] : edges[at + 1]], before), 1
        for more in range(2, _MAX_RUN_STARTS + 1):
            if not found.error or at + more >= len(edges):
                break
            longer = _run(workload, starts[at] + 1, lines[starts[at] : edges[at + more]], before)
            if not longer.error:
                found, taken = longer, more
                break
        yield found
        at += taken


def _run(workload: Workload, line: int, lines: list[str], before: list[str]) -> ImportedRun:
    """Return the run that begins at 1-based `line` and has all of `lines`, or those before the first foreign one."""
    text = "\n".join([*before, *lines]) + "\n"
    try:
        return ImportedRun(line, text, workload.parse(text), stated_params=workload.stated_params(text))
    except ParseError as error:
        refused = error
    own_line = re.compile(workload.run_line_pattern) if workload.run_line_pattern else None
    cut_off = bool(own_line and own_line.match((refused.text or "").strip()))
    if refused.line is not None and refused.line > len(before) + 1 and not cut_off:
        own = "\n".join([*before, *lines][: refused.line - 1]) + "\n"
        try:
            return ImportedRun(line, own, workload.parse(own), stated_params=workload.stated_params(own))
        except ParseError:
            pass
    why = _located(refused, line - len(before))
    return ImportedRun(
        line, text, error=why, stated_params=workload.stated_params(text), other=isinstance(refused, NotARunOutput)
    )


def _located(error: ParseError, start: int) -> str:
    """Return a parser's message with the line number in the whole text."""
    if error.line is None:
        return str(error)
    return f"line {start + error.line - 1}: {str(error).removeprefix(f'line {error.line}: ')}"


LIMIT_BYTES: Final = 64 * 2**20
"""No benchmark prints more than this; it also stops a gzip bomb."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_OTHER_FORMATS: Final = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
"""The first bytes of compressed formats that are not supported."""


def read_bytes(name: str) -> tuple[str, bytes]:
    """Return the display name and the bytes of a file; ``-`` is standard input. Raises `UsageError`."""
    if name == STDIN:
        return "<stdin>", sys.stdin.buffer.read(LIMIT_BYTES + 1)
    try:
        with open_regular(name) as stream:
            return name, stream.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error} (- reads standard input)") from error


def decode_text(place: str, data: bytes) -> str:
    """Return `data` as text, decompressed if it is gzip; bytes that are not UTF-8 become escapes.

    UTF-16 with a byte order mark is what a Windows shell redirects into a file.

    Raises `UsageError` for damaged gzip, for other compressed formats, and for more than `LIMIT_BYTES`.
    """
    if data.startswith(_GZIP_MAGIC):
        data = _decompress(place, data)
    other = next((name for magic, name in _OTHER_FORMATS.items() if data.startswith(magic)), None)
    if other is not None:
        raise UsageError(f"{place}: compressed with {other}; decompress it first, or use gzip")
    if len(data) > LIMIT_BYTES:
        raise UsageError(
            f"{place}: longer than {LIMIT_BYTES >> 20} MiB, which no benchmark prints; is it the right file?"
        )
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    return data.decode(encoding, errors="backslashreplace")


def _decompress(place: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return stream.read(LIMIT_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{place}: damaged gzip: {error}") from error


MIB: Final = 2**20
SECTOR: Final = 512
"""Bytes of a sector in /proc/diskstats, whatever the disk's own size (Linux, Documentation/iostats)."""

_CPU: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_MEMORY: Final = ("total", "used", "free", "shared", "buffers", "cached")
_DISK: Final = ("major number", "minor number", "device name")
_LOAD: Final = re.compile(r"(\d{1,6}\.\d\d) (\d{1,6}\.\d\d) (\d{1,6}\.\d\d) \d{1,9}/\d{1,9} \d{1,12}", re.ASCII)
"""A line of /proc/loadavg (proc(5))."""
_UPTIME: Final = re.compile(
    r".{0,120}\bload averages?: (\d{1,6}[.,]\d\d),? (\d{1,6}[.,]\d\d),? (\d{1,6}[.,]\d\d)", re.ASCII
)
"""A line of ``uptime``, or the first of ``top`` and ``w``; some languages have a comma for the point."""
_CPU_COUNTERS: Final = re.compile(r"cpu(?:,\d{1,20}){8,10}", re.ASCII)
"""A line of /proc/stat, where the line that names the columns is missing."""
_BLANK: Final = " \t\0\ufeff"
_WHOLE: Final = re.compile(r"[0-9]{1,20}")
_READ, _WRITTEN = 5, 9
"""The columns of /proc/diskstats with the sectors read and written."""


class MonitorLog(Struct, frozen=True):
    """The readings in a monitor's log."""

    columns: Mapping[str, Sequence[float]]
    """Values by name; all columns have the same length."""
    units: Mapping[str, str]
    """The unit of each column."""
    caveats: tuple[str, ...] = ()
    """What is wrong with the readings, in words."""


def read_monitor(text: str) -> MonitorLog | None:
    """Return the readings in a monitor's log; None if the text is no such log.

    The first line that is not empty says which table it is. Raises `ParseError` for a line that does not fit it.
    """
    lines = text.lstrip("\ufeff").splitlines()
    above = next((at for at, line in enumerate(lines) if line.strip(_BLANK)), None)
    if above is None:
        return None
    try:
        read, begin = _monitor_reader(lines[above].strip(_BLANK))
        if read is None:
            return None
        begin += above
        rows = [(number, row) for number, row in enumerate(csv.reader(lines[begin:]), start=begin + 1) if any(row)]
    except csv.Error as error:
        raise ParseError(f"not a table: {error}") from error
    try:
        return read(rows)
    except ParseError as error:
        # A monitor runs until it is killed, which may be in the middle of a line.
        if text.endswith("\n") or not rows or error.line != rows[-1][0]:
            raise
        monitor = read(rows[:-1])
        caveat = f"the last reading was cut off and is left out: {error.text!r}"
        return replace(monitor, caveats=(*monitor.caveats, caveat))


def _monitor_reader(first: str) -> tuple[Callable[[Rows], MonitorLog] | None, int]:
    """Return what reads the log that begins with this line, if anything does, and how many lines name its columns."""
    if _LOAD.fullmatch(first) or _UPTIME.fullmatch(first):
        return _load, 0
    if _CPU_COUNTERS.fullmatch(first):
        return _cpu, 0
    head = tuple(cell.strip().lower() for cell in next(csv.reader([first]), ()))
    own = head[1:] if head[:1] == ("x",) else head
    return (_cpu if own[:8] == _CPU else _memory if head == _MEMORY else _disk if head[:3] == _DISK else None), 1


def _cpu(rows: Rows) -> MonitorLog:
    readings: list[list[int]] = []
    for number, row in rows:
        # The first version of the script logged all of /proc/stat: a line for each CPU, interrupts and so on.
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
    caveats = []
    if backwards:
        caveats.append(f"CPU counters ran backwards in {backwards} of {len(readings)} readings: left out there")
    return MonitorLog(
        {f"cpu_{name}_ticks": values for name, values in ticks.items()}
        | {f"cpu_{name}_percent": values for name, values in shares.items()},
        dict.fromkeys((f"cpu_{name}_ticks" for name in _CPU), "USER_HZ")
        | dict.fromkeys((f"cpu_{name}_percent" for name in _CPU), "%"),
        tuple(caveats),
    )


def _memory(rows: Rows) -> MonitorLog:
    """Return used memory without buffers and cache, which ``free`` counted as used at that time."""
    used = []
    for number, row in rows:
        if len(row) != len(_MEMORY):
            raise ParseError(f"expected {len(_MEMORY)} numbers", line=number, text=",".join(row))
        numbers = dict(zip(_MEMORY, (_parse_int(cell, number, row) for cell in row), strict=True))
        used.append(float(MIB * (numbers["used"] - numbers["buffers"] - numbers["cached"])))
    return MonitorLog({"memory_used_bytes": used}, {"memory_used_bytes": "B"})


def _disk(rows: Rows) -> MonitorLog:
    """Return the bytes read and written between readings, of whole disks: partitions would count twice."""
    counters: dict[str, list[tuple[int, int]]] = {}
    for number, row in rows:
        if len(row) <= _WRITTEN:
            raise ParseError("not a line of /proc/diskstats", line=number, text=",".join(row))
        pair = _parse_int(row[_READ], number, row), _parse_int(row[_WRITTEN], number, row)
        counters.setdefault(row[2], []).append(pair)
    disks = [name for name in counters if not any(name != other and name.startswith(other) for other in counters)]
    readings = {name: len(counters[name]) for name in disks}
    caveats: tuple[str, ...] = ()
    whole = min(readings.values(), default=0)
    # Disks are logged in the same order each time, so a log that ends within a reading misses the later disks.
    if (
        sorted(readings.values(), reverse=True) == list(readings.values())
        and max(readings.values(), default=0) == whole + 1
    ):
        caveats = ("the last reading misses disks and is left out",)
    elif len(set(readings.values())) > 1:
        raise ParseError(f"readings are missing: {', '.join(f'{name} has {n}' for name, n in readings.items())}")
    columns: dict[str, list[float]] = {}
    for place, column in enumerate(("disk_read_bytes", "disk_written_bytes")):
        sums = [
            sum(pair[place] for pair in pairs)
            for pairs in zip(*(counters[name][:whole] for name in disks), strict=True)
        ]
        columns[column] = [float(SECTOR * (now - before)) for before, now in itertools.pairwise(sums)]
    return MonitorLog(columns, dict.fromkeys(columns, "B"), caveats)


def _load(rows: Rows) -> MonitorLog:
    """Return the load averages of one, five and fifteen minutes, of /proc/loadavg or of ``uptime``."""
    columns: dict[str, list[float]] = {"load1": [], "load5": [], "load15": []}
    for number, row in rows:
        line = ",".join(row).strip(_BLANK)
        match = _LOAD.fullmatch(line) or _UPTIME.fullmatch(line)
        if match is None:
            raise ParseError("neither a line of /proc/loadavg nor of uptime", line=number, text=line)
        for values, word in zip(columns.values(), match.groups(), strict=True):
            values.append(float(word.replace(",", ".")))
    return MonitorLog(columns, dict.fromkeys(columns, "1"))


def _parse_int(cell: str, number: int, row: Sequence[str]) -> int:
    word = cell.strip()
    if not _WHOLE.fullmatch(word):
        raise ParseError(f"{word!r} is not a whole number", line=number, text=",".join(row))
    return int(word)
