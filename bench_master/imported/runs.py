"""Reads files with outputs of a tool, plain or gzip, and finds the runs in them.

A workload's parser reads one run and rejects unknown lines. So a text is cut where runs begin, and each piece goes
to the parser; lines that it rejects after a complete run belong to something else. An incomplete run is a failed
run. Prefixes that log collectors add to each line (time, container's name, syslog's head) are removed if a text's
lines begin with them.
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import re
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_common.errors import NotARunOutput, ParseError, UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_common.treatment import Scalar
    from workloads.base import Workload

_TIME: Final = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
_END: Final = r"(?: |$)"
_PREFIX: Final = re.compile(
    rf"[\w.-]{{1,128}} +\|{_END}(?:{_TIME}{_END})?"  # Compose, with times or without
    rf"|{_TIME}{_END}(?:(?:stdout|stderr) [FP]{_END})?"  # `docker logs -t`, `ts`; a CRI's log
    rf"|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \S{{1,128}} [^\s:]{{1,128}}:{_END}",  # syslog, the journal
    re.ASCII,
)


def strip_prefixes(lines: Sequence[str]) -> list[str]:
    """Return the lines less what a collector put in front of them; lines that have no such thing stay as they are."""
    return [_PREFIX.sub("", line, count=1) if _PREFIX.match(line) else line for line in lines]


_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)

_MAX_RUN_STARTS: Final = 3
"""How many lines of one run may look like the first of one."""


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """One run in a text: where it begins (1-based `line`), what was printed, and its metrics, or why it has none.

    `stated` is what it says of how it was run. With `other` it is an output of the tool, and no run of the workload.
    """

    line: int
    text: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    stated_params: Mapping[str, Scalar] = field(default_factory=dict)
    other: bool = False


def split_runs(workload: Workload, text: str, metric: str | None = None, before: str = "") -> list[ImportedRun]:
    """Return the runs in a text, in its order; none where no run begins in it.

    `metric` says what the numbers are in a text that has one number a line and nothing else: without it such a text
    is refused (`UsageError`), as nobody can know. `before` stands in front of each run, such as the help of a tool
    that does not say elsewhere which version it is.
    """
    lines = text.splitlines()
    stripped = ((number, line.strip(" \t\0\ufeff")) for number, line in enumerate(lines, start=1))
    numbers = [(number, word) for number, word in stripped if word and not word.startswith("#")]
    if numbers and all(_is_number(word) for _, word in numbers):
        name = _metric_named(workload, metric)
        return [ImportedRun(number, word, {name: float(word)}) for number, word in numbers]
    if metric is not None:
        place, wrong = next(((number, word) for number, word in numbers if not _is_number(word)), (1, ""))
        raise UsageError(
            f"line {place} is no number: {wrong[:80]!r}; a metric is named for texts of one number a line alone"
        )
    if not workload.run_starts(lines):
        lines = strip_prefixes(lines)
    return list(_runs(workload, lines, before.splitlines()))


def _is_number(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) and math.isfinite(float(word))


def _metric_named(workload: Workload, metric: str | None) -> str:
    names = [each.name for each in workload.metrics]
    if metric is None:
        raise UsageError(f"these are plain numbers: say with --metric which of {', '.join(names)} they are")
    if metric not in names:
        there = did_you_mean(metric, names) or f"; it has: {', '.join(names)}"
        raise UsageError(f"{workload.name} has no metric {metric!r}{there}")
    return metric


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
    """Return a run that begins at 1-based `line` and has all of `lines`, or some of them with a stranger's behind."""
    text = "\n".join([*before, *lines]) + "\n"
    try:
        return ImportedRun(line, text, workload.parse(text), stated_params=workload.stated_params(text))
    except ParseError as error:
        refused = error
    ours = re.compile(workload.run_line_pattern) if workload.run_line_pattern else None
    cut_off = bool(ours and ours.match((refused.text or "").strip()))
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
    """Return a parser's message with the line of the whole text that it is about."""
    if error.line is None:
        return str(error)
    return f"line {start + error.line - 1}: {str(error).removeprefix(f'line {error.line}: ')}"


LIMIT_BYTES: Final = 64 * 2**20
"""No benchmark prints more; a larger file is not an output, and a gzip bomb stops here."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_OTHER_FORMATS: Final = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
"""How files begin that are packed in ways that are not undone here."""


def read_bytes(name: str) -> tuple[str, bytes]:
    """Return what to call the source, and its bytes; ``-`` is standard input. Raises `UsageError`."""
    if name == "-":
        return "<stdin>", sys.stdin.buffer.read(LIMIT_BYTES + 1)
    try:
        with Path(name).open("rb") as stream:
            return name, stream.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error


def decode_text(place: str, data: bytes) -> str:
    """Return `data` as text, unpacked if it is gzip; bytes that are no UTF-8 stay visible as escapes.

    A text that a Windows shell redirected into a file is UTF-16, and begins with a mark that says so.

    Raises `UsageError` for damaged gzip, for what is packed otherwise, and for what is longer than `LIMIT_BYTES`.
    """
    if data.startswith(_GZIP_MAGIC):
        data = _decompress(place, data)
    other = next((name for magic, name in _OTHER_FORMATS.items() if data.startswith(magic)), None)
    if other is not None:
        raise UsageError(f"{place}: packed by {other}; unpack it first, or pack it by gzip")
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
