"""Tables on the screen: aligned for a person, tab-separated for a program."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 80
"""Columns of the narrowest terminal that output is made for."""


def align_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Return a head and rows as lines of aligned columns; those titled in `right` are aligned at the right."""
    lines = [list(titles), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            cell.rjust(width) if title in right else cell.ljust(width)
            for title, cell, width in zip(titles, line, widths, strict=True)
        )
        for line in lines
    ]
    return [line.rstrip() for line in aligned]


def tab_separated(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines of cells with a tab in between; tabs and line ends within a cell become spaces."""
    return ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]


def wrap_last_column(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table whose last column is wrapped so that no line is longer than `WIDTH`."""
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles) - 1)]
    head = sum(widths) + 2 * len(widths)
    lines: list[Sequence[str]] = []
    for row in rows:
        first, *rest = textwrap.wrap(row[-1], max(20, WIDTH - head)) or [""]
        lines += [(*row[:-1], first), *((*("" for _ in row[:-1]), text) for text in rest)]
    return align_table(titles, lines)


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 trial`` or ``6 trials``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def choose_format(asked: str | None) -> str:
    """Return the format that was asked for; else ``table`` on a terminal and ``tsv`` elsewhere."""
    return asked or ("table" if sys.stdout.isatty() else "tsv")
