"""Finds the runs of a tool in a text: one or many, with lines of others before, between and after them.

A workload's parser reads one run and refuses every line that it does not know. So a text is cut where runs begin,
and each piece is given to the parser; what it refuses behind a run that is complete belongs to somebody else. A run
that is not complete is a failed run, never a missing one. An output of the tool that is no run at all, such as what
it prints when it makes its files, is neither.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench_common.errors import NoRun, ParseError, UsageError, did_you_mean
from bench_master.imported.prefixes import without_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench_common.treatment import Scalar
    from workloads.base import Workload

_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)

_MOST_BEGINNINGS: Final = 3
"""How many lines of one run may look like the first of one."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run in a text: where it begins (1-based `line`), what was printed, and its metrics, or why it has none.

    `stated` is what it says of how it was run. With `other` it is an output of the tool, and no run of the workload.
    """

    line: int
    text: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    stated: Mapping[str, Scalar] = field(default_factory=dict)
    other: bool = False


def split_runs(workload: Workload, text: str, metric: str | None = None, before: str = "") -> list[Run]:
    """Return the runs in a text, in its order; none where no run begins in it.

    `metric` says what the numbers are in a text that has one number a line and nothing else: without it such a text
    is refused (`UsageError`), as nobody can know. `before` stands in front of each run, such as the help of a tool
    that does not say elsewhere which version it is.
    """
    lines = text.splitlines()
    stripped = ((number, line.strip(" \t\0\ufeff")) for number, line in enumerate(lines, start=1))
    numbers = [(number, word) for number, word in stripped if word and not word.startswith("#")]
    if numbers and all(_is_number(word) for _, word in numbers):
        name = _named(workload, metric)
        return [Run(number, word, {name: float(word)}) for number, word in numbers]
    if metric is not None:
        place, wrong = next(((number, word) for number, word in numbers if not _is_number(word)), (1, ""))
        raise UsageError(
            f"line {place} is no number: {wrong[:80]!r}; a metric is named for texts of one number a line alone"
        )
    if not workload.beginnings(lines):
        lines = without_prefixes(lines)
    return list(_runs(workload, lines, before.splitlines()))


def _is_number(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) and math.isfinite(float(word))


def _named(workload: Workload, metric: str | None) -> str:
    names = [each.name for each in workload.metrics]
    if metric is None:
        raise UsageError(f"these are plain numbers: say with --metric which of {', '.join(names)} they are")
    if metric not in names:
        there = did_you_mean(metric, names) or f"; it has: {', '.join(names)}"
        raise UsageError(f"{workload.name} has no metric {metric!r}{there}")
    return metric


def _runs(workload: Workload, lines: list[str], before: list[str]) -> Iterator[Run]:
    starts = workload.beginnings(lines)
    edges = [*starts, len(lines)]
    at = 0
    while at < len(starts):
        # A tool may print several lines that can begin a run, such as its help and then the run itself.
        found, taken = _run(workload, starts[at] + 1, lines[starts[at] : edges[at + 1]], before), 1
        for more in range(2, _MOST_BEGINNINGS + 1):
            if not found.error or at + more >= len(edges):
                break
            longer = _run(workload, starts[at] + 1, lines[starts[at] : edges[at + more]], before)
            if not longer.error:
                found, taken = longer, more
                break
        yield found
        at += taken


def _run(workload: Workload, line: int, lines: list[str], before: list[str]) -> Run:
    """Return a run that begins at 1-based `line` and has all of `lines`, or some of them with a stranger's behind."""
    text = "\n".join([*before, *lines]) + "\n"
    try:
        return Run(line, text, workload.parse(text), stated=workload.stated(text))
    except ParseError as error:
        refused = error
    ours = re.compile(workload.run_line) if workload.run_line else None
    cut_off = bool(ours and ours.match((refused.text or "").strip()))
    if refused.line is not None and refused.line > len(before) + 1 and not cut_off:
        own = "\n".join([*before, *lines][: refused.line - 1]) + "\n"
        try:
            return Run(line, own, workload.parse(own), stated=workload.stated(own))
        except ParseError:
            pass
    why = _located(refused, line - len(before))
    return Run(line, text, error=why, stated=workload.stated(text), other=isinstance(refused, NoRun))


def _located(error: ParseError, start: int) -> str:
    """Return a parser's message with the line of the whole text that it is about."""
    if error.line is None:
        return str(error)
    return f"line {start + error.line - 1}: {str(error).removeprefix(f'line {error.line}: ')}"
