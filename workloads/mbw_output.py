"""Parses the output of mbw 1.x and 2.x, strictly.

mbw has three methods: MEMCPY, DUMB (a plain loop) and MCBLOCK (memcpy a block at a time). Releases up to 1.2.2, which
Debian and Ubuntu shipped for a decade, **swap** the labels MEMCPY and DUMB, and their MCBLOCK copies the same block
again and again, so that its source stays in the cache; 1.4 fixed both. The output of a run names no version. Only
``mbw -h`` does: since 1.4 in its first line; up to 1.2.2 it has none, and its third method reads ``-t2 :``. So the
help before a run determines the labels; without it they are unknown.

In a log of many runs, a run may begin with the help, with the line about its memory, or (``mbw -q``) with its first
row; each of these may also be inside a run. The line above decides.

Where only the averages were kept, the lines of several mbw that ran side by side are mixed: each prints its methods
in their order, so as many of each method as there were processes are one run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from bench_common.errors import ParseError
from bench_workloads.line_reader import LineReader, OutputLine, clean_line, read_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

Labels = Literal["swapped", "right", "unknown"]

METHODS: Final = ("MEMCPY", "DUMB", "MCBLOCK")
"""The methods under the names, and in the order, in which they are printed."""

_VERSION: Final = re.compile(r"mbw memory benchmark v(\d{1,4})\.(\d{1,4})[\w.-]*, .*", re.ASCII)
_FIRST_RIGHT: Final = (1, 4)
VERSION_BEGINS: Final = "mbw memory benchmark v"
OLD_HELP: Final = "Usage: mbw [options] array_size_in_MiB"
"""How the help begins; up to 1.2.2 without the version above."""
_HELP_BEGINS: Final = OLD_HELP
_HELP_ENDS: Final = "The default is to run all tests available."
_HELP: Final = re.compile(
    r"Options:|-[a-z]\d? ?:.*|-b <size>:.*|\(will then use two arrays.*\)|'Bandwidth' is amount of data.*", re.ASCII
)
_OLD_METHOD: Final = re.compile(r"-t2 :.*")
_ALLOCATING: Final = re.compile(
    r"Long uses \d+ bytes\. Allocating 2\*(\d{1,18}) elements = \d{1,19} bytes of memory\.", re.ASCII
)
_BLOCKS: Final = re.compile(r"Using \d+ bytes as blocks for memcpy block copy test\.", re.ASCII)
_BUSINESS: Final = re.compile(r"Getting down to business\.\.\. Doing (\d{1,9}) runs per test\.", re.ASCII)
_RUN: Final = re.compile(
    # A terminal that the text was copied from has made blanks of its tabs.
    r"(\d{1,9}|AVG)[\t ]+Method: (MEMCPY|DUMB|MCBLOCK)[\t ]+Elapsed: (\d{1,9}\.\d{5})[\t ]+"
    r"MiB: (\d{1,9}\.\d{5})[\t ]+Copy: (\d{1,12}\.\d{3}|inf) MiB/s",
    re.ASCII,
)
_FAILED: Final = re.compile(r"(?:Error|mbw): .*")
_HALF_A_STEP_S: Final = 0.5e-5 * 1.01
"""How far an elapsed time printed with five decimals may be from the one the rate was made of."""


class MethodRates(Struct, frozen=True):
    """What one method printed, in MiB/s: the rate of each run, and their mean as mbw takes it (by time)."""

    runs: tuple[float, ...]
    average: float


class MbwResult(Struct, frozen=True):
    """One run of mbw: which `labels` it prints, the size of each array, and a table for each method as printed."""

    labels: Labels
    array_mib: float
    tables: dict[str, MethodRates]


def read_output(text: str) -> MbwResult:
    """Return what one complete run of mbw printed, with the help in front of it or without.

    Raises `ParseError` with the offending line when the text is anything else.
    """
    return _Output(text).output()


class _Output(LineReader):
    """The help or not, what mbw allocates or not, and a table for each method."""

    explanations = (
        (_FAILED, "mbw failed"),
        (re.escape(_HELP_BEGINS), "a second text begins here; give one run at a time"),
        (_VERSION, "a second text begins here; give one run at a time"),
        (_ALLOCATING, "a second run begins here, or its runs are out of order; give one run at a time"),
        (_RUN, "a second run begins here, or its runs are out of order; give one run at a time"),
    )

    def __init__(self, text: str) -> None:
        super().__init__("mbw", read_lines(text))
        self.end_reason = "the run was cut off, or says why on stderr"
        self._runs: int | None = None
        """The announced number of runs of each method."""
        self._unannounced: list[tuple[OutputLine, int]] = []
        """The last line and the runs of each method that has neither an average nor an announced number of runs."""

    def output(self) -> MbwResult:
        labels = self._labels()
        elements, blocks = self._header()
        tables: dict[str, MethodRates] = {}
        sizes: set[str] = set()
        averaged: set[bool] = set()
        for method in METHODS:
            rows = self._rows(method)
            if rows:
                tables[method] = self._table(rows)
                sizes |= {row[4] for _, row in rows}
                averaged.add(rows[-1][1][1] == "AVG")
        self.expect_end("a run of the next method, or the end")
        if not tables:
            self.refuse("the first run")
        if blocks and "MCBLOCK" not in tables:
            self.refuse("the runs of MCBLOCK, which were announced")
        if len(averaged) != 1:
            self.refuse("an average for each method or for none")
        self._check_unannounced_rows()
        if len(sizes) != 1:
            raise ParseError(f"runs with arrays of different size: {', '.join(sorted(sizes))} MiB")
        array_mib = float(sizes.pop())
        if elements is not None and abs(elements * 8 / 2**20 - array_mib) > 1 and elements * 4 / 2**20 != array_mib:
            raise ParseError(f"{elements} elements do not make arrays of {array_mib:g} MiB")
        return MbwResult(labels, array_mib, tables)

    def _labels(self) -> Labels:
        """Pass over the help, if there is one, and return what it says about the labels of what follows."""
        version = self.accept(_VERSION)
        start = self.position
        if not self.accept(re.escape(_HELP_BEGINS)):
            if version:
                self.refuse(f"'{_HELP_BEGINS}'")
            return "unknown"
        self.skip((_HELP,))
        self.expect(re.escape(_HELP_ENDS), f"the help of mbw, to its end, '{_HELP_ENDS}'")
        old = any(_OLD_METHOD.fullmatch(line.text) for line in self.lines[start : self.position])
        if self.line is None:
            self.fail("only the help is here: mbw refused its arguments, or got no other arguments")
        if version and (int(version[1]), int(version[2])) >= _FIRST_RIGHT and not old:
            return "right"
        if version or not old:
            self.fail(
                "a version of mbw whose labels are unverified (verified: up to 1.2.2, and since 1.4)",
                self.lines[start],
            )
        return "swapped"

    def _header(self) -> tuple[int | None, bool]:
        """Pass over what ``-q`` switches off; return the elements of an array, and whether blocks are announced."""
        allocating = self.accept(_ALLOCATING)
        if not allocating:
            return None, False
        blocks = self.accept(_BLOCKS)
        self._runs = int(self.expect(_BUSINESS, "'Getting down to business...'")[1])
        return int(allocating[1]), blocks is not None

    def _rows(self, method: str) -> list[tuple[OutputLine, re.Match[str]]]:
        rows: list[tuple[OutputLine, re.Match[str]]] = []
        while self.line is not None and (row := _RUN.fullmatch(self.line.text)) and row[2] == method:
            rows.append((self.line, row))
            self.advance()
            if row[1] == "AVG":
                break
        return rows

    def _table(self, rows: Sequence[tuple[OutputLine, re.Match[str]]]) -> MethodRates:
        runs = [pair for pair in rows if pair[1][1] != "AVG"]
        for expected, (line, row) in enumerate(runs):
            if int(row[1]) != expected:
                self.fail(f"expected run {expected} of {row[2]} here", line)
            self._check_rate(line, row)
        where, last = rows[-1]
        averaged = last[1] == "AVG"
        if self._runs is None and not averaged:
            self._unannounced.append((where, len(runs)))
        if not runs or (self._runs is not None and len(runs) != self._runs):
            wanted = "at least one" if self._runs is None else str(self._runs)
            self.fail(f"{len(runs)} runs of {last[2]}, expected {wanted}: cut off", where)
        rates = tuple(float(row[5]) for _, row in runs)
        # The array is the same in each run, so that all data over all time is the harmonic mean.
        mean = len(rates) / sum(1 / rate for rate in rates)
        if not averaged:
            return MethodRates(rates, mean)
        self._check_rate(where, last)
        average = float(last[5])
        if abs(average - mean) > 1e-3 * mean + 0.001:
            self.fail(f"the average of these runs is {mean:.3f} MiB/s", where)
        return MethodRates(rates, average)

    def _check_unannounced_rows(self) -> None:
        """Refuse what may have been cut off: runs that are not all of the three methods, as many of each."""
        counts = [count for _, count in self._unannounced]
        if counts and counts != counts[:1] * len(METHODS):
            line, count = self._unannounced[-1]
            self.fail(f"the text ends after {count} runs, without averages: the intended number is unknown", line)

    def _check_rate(self, line: OutputLine, row: re.Match[str]) -> None:
        if row[5] == "inf":
            self.fail("the copy was shorter than the clock's resolution; use larger arrays", line)
        elapsed, size, rate = (float(row[group]) for group in (3, 4, 5))
        if not rate or abs(size / rate - elapsed) > _HALF_A_STEP_S + 1e-3 * elapsed / rate:
            self.fail(f"{size:g} MiB in {elapsed:g} s are not {rate:g} MiB/s", line)


PROCESS: Final = re.compile(r"process (\d{1,5}) of (\d{1,5})", re.ASCII)
"""What our own script prints before the output of each mbw."""
STARTING: Final = re.compile(r"Starting test on (\d{1,5}) cores", re.ASCII)
WAITING: Final = "Waiting for tests to finish"
"""What the script of the study vm-docker-bench prints before the figures of all of its mbw."""


class Averages(Struct, frozen=True):
    """The averages of several mbw that ran side by side, or of one: `labels`, the array, MiB/s by method."""

    labels: Labels
    array_mib: float
    rates: dict[str, tuple[float, ...]]


def read_averages(text: str) -> Averages | None:
    """Return the averages of one run, with the help in front or without; None if the text has other rows, or none.

    Raises `ParseError` where a method is missing, and where the lines may also be of runs one after the other.
    """
    return _AveragesOutput(text).output()


class _AveragesOutput(_Output):
    """The help or not, the number of processes or not, and lines of averages alone."""

    def output(self) -> Averages | None:  # type: ignore[override]
        rows = [row for line in self.lines if (row := _RUN.fullmatch(line.text))]
        if (
            not rows
            or any(row[1] != "AVG" for row in rows)
            or any(PROCESS.fullmatch(each.text) for each in self.lines)
        ):
            return None
        labels = self._labels()
        starting = self.accept(STARTING)
        if starting:
            self.accept(re.escape(WAITING))
        if self._header()[0] is not None:
            return None
        rates: dict[str, list[float]] = {method: [] for method in METHODS}
        order: list[str] = []
        sizes: set[str] = set()
        while self.line and (row := _RUN.fullmatch(self.line.text)):
            self._check_rate(self.line, row)
            rates[row[2]].append(float(row[5]))
            order.append(row[2])
            sizes.add(row[4])
            self.advance()
        self.expect_end("an average, or the end")
        where = self.lines[-1]
        counts = {len(values) for values in rates.values()}
        if len(counts) != 1:
            found = ", ".join(f"{len(values)} of {method}" for method, values in rates.items())
            self.fail(f"each mbw prints an average of each method, and here are {found}: cut off", where)
        if len(sizes) != 1:
            raise ParseError(f"runs with arrays of different size: {', '.join(sorted(sizes))} MiB")
        count = counts.pop()
        if starting and int(starting[1]) != count:
            self.fail(f"averages of {count} mbw, where {starting[1]} were started", where)
        if not starting and len(_averages_cut(order)) > 1:
            self.fail(
                f"averages of {count} mbw, side by side or one after the other; where they ran side by side, put "
                f"'Starting test on {count} cores' in front",
                where,
            )
        return Averages(labels, float(sizes.pop()), {method: tuple(values) for method, values in rates.items()})


def _averages_cut(order: Sequence[str]) -> list[int]:
    """Return where runs begin among averages that follow one another: after as many of each method as of the others.

    Cuts that would leave runs of different numbers of processes are none: then the first place is the only one.
    """
    starts, counts = [0], dict.fromkeys(METHODS, 0)
    sizes = set()
    for at, method in enumerate(order, start=1):
        counts[method] += 1
        if len(set(counts.values())) == 1:
            sizes.add(counts[method])
            starts.append(at)
            counts = dict.fromkeys(METHODS, 0)
    whole = not any(counts.values())
    return [start for start in starts if start < len(order)] if whole and len(sizes) == 1 else [0]


_AVERAGE: Final = re.compile(rf"AVG[\t ]+Method: ({'|'.join(METHODS)})[\t ].*", re.ASCII)
_NUMBERED: Final = re.compile(rf"\d{{1,9}}[\t ]+Method: (?:{'|'.join(METHODS)})[\t ].*", re.ASCII)


def _average_starts(lines: Sequence[str]) -> list[int]:
    """Return the places of those averages that begin a run, in blocks without other rows."""
    places: list[int] = []
    block: list[tuple[int, str]] = []
    above = before = ""
    for at, line in enumerate([*lines, ""]):
        text = clean_line(line)
        average = _AVERAGE.fullmatch(text)
        if average:
            if not block:
                before = above
            block.append((at, average[1]))
        elif block:
            # Rows in front are of the same mbw, and what the script of the study says is of the same run.
            if STARTING.fullmatch(before) or before in {WAITING, _HELP_ENDS} or _NUMBERED.fullmatch(before):
                block = []
            places += [block[start][0] for start in _averages_cut([method for _, method in block])] if block else []
            block = []
        above = text
    return places


_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        ("version", r"mbw memory benchmark v\d.*"),
        ("usage", r"Usage: mbw \[.*"),
        ("helped", r"The default is to run all tests available\."),
        ("process", PROCESS.pattern),
        ("header", r"Long uses \d+ bytes\..*|Using \d+ bytes as blocks .*|Getting down to business\.\.\..*"),
        ("sums", STARTING.pattern),
        ("row", rf"(?:\d{{1,9}}|AVG)[\t ]+Method: (?:{'|'.join(METHODS)})[\t ].*"),
    )
)
_FIRST: Final = {
    "version": re.compile(r".*"),
    "usage": re.compile(r".*"),
    "process": re.compile(r"process 1 of .*"),
    "header": re.compile(r"Long uses .*"),
    "sums": re.compile(r".*"),
    "row": re.compile(r"0[\t ].*"),
}
"""What a line of each kind looks like that can be a run's first."""
_WITHIN: Final = {
    "usage": ("version",),
    "process": ("helped",),
    "header": ("helped", "process"),
    "row": ("helped", "process", "header"),
}
"""What may precede a line of each kind inside a run."""


def run_starts(lines: Sequence[str]) -> list[int]:
    """Return the places, from 0, of the lines that a run begins with."""
    places = []
    above, method_above = "", ""
    for at, line in enumerate(lines):
        text = clean_line(line)
        if not text:
            continue
        kind = next((kind for kind, pattern in _KINDS if pattern.fullmatch(text)), "")
        method = text.split()[2] if kind == "row" else ""
        within = above in _WITHIN.get(kind, ()) or _follows(method, method_above)
        if kind in _FIRST and _FIRST[kind].fullmatch(text) and not within:
            places.append(at)
        above, method_above = kind, method
    return sorted({*places, *_average_starts(lines)})


def _follows(method: str, above: str) -> bool:
    """Return whether rows of one method follow those of another in the same run."""
    return bool(method and above) and METHODS.index(method) > METHODS.index(above)
