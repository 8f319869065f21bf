"""Text laid out for a page of 80 columns: wrapped paragraphs, headings, and aligned tables.

`align_table` is a plain table, `wrap_last_column` wraps a long last column, and `fit_table` drops the
columns that a narrow page has no room for. For programs the same rows are `tab_separated`.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 80
"""Columns of the narrowest page and terminal that text is made for."""

_MINIMUM_NAME: Final = 10


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table that `fit_table` makes."""

    title: str
    left: bool = False
    """Whether its cells are aligned at the left."""
    droppable: bool = False
    """Whether it is left out, the last one first, where the page is too narrow for all."""


def paragraph(text: str, *, indent: int = 0, hanging: int | None = None, lines: int | None = None) -> list[str]:
    """Return text wrapped to the page, in at most `lines` lines; those after the first are indented by `hanging`."""
    first, rest = " " * indent, " " * (indent if hanging is None else hanging)
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, max_lines=lines, placeholder=" ...",
        break_on_hyphens=False,
    )  # fmt: skip


def field(name: str, text: str) -> list[str]:
    """Return a line of the head: a name in a narrow column, its text wrapped beside it."""
    return paragraph(f"{name:<11}{text}", indent=2, hanging=13)


def heading(text: str, rule: str) -> list[str]:
    """Return an underlined heading."""
    wrapped = paragraph(text)
    return [*wrapped, rule * max(map(len, wrapped), default=0)]


def align_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Return a head and rows as lines of aligned columns; those titled in `right` are aligned at the right."""
    columns = [Column(title, left=title not in right) for title in titles]
    lines = [list(titles), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [_align_cells(line, columns, widths, 2) for line in lines]


def wrap_last_column(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table whose last column is wrapped so that no line is longer than `WIDTH`."""
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles) - 1)]
    head = sum(widths) + 2 * len(widths)
    lines: list[Sequence[str]] = []
    for row in rows:
        first, *rest = textwrap.wrap(row[-1], max(20, WIDTH - head)) or [""]
        lines += [(*row[:-1], first), *((*("" for _ in row[:-1]), text) for text in rest)]
    return align_table(titles, lines)


def fit_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: int = 2) -> list[str]:
    """Return the lines of a table that fits the page; the first column names the row.

    Where it would not fit, the gaps narrow first; then names too long for their column get a line of their own; then
    spare columns are left out; at last the rows are wrapped like text.
    """
    kept = list(range(len(columns)))
    while True:
        widths = [max(len(columns[place].title), *(len(row[place]) for row in rows), 0) for place in kept]
        for gap in (2, 1):
            if indent + sum(widths) + gap * (len(widths) - 1) <= WIDTH:
                return _lines([columns[place] for place in kept], _select_columns(rows, kept), widths, gap, indent)
        name = WIDTH - indent - sum(widths[1:]) - (len(widths) - 1)
        spare = [place for place in kept if columns[place].droppable]
        if name >= max(_MINIMUM_NAME, len(columns[0].title)) or not spare:
            widths[0] = max(name, len(columns[0].title))
            return _lines([columns[place] for place in kept], _select_columns(rows, kept), widths, 1, indent)
        kept.remove(spare[-1])


def _select_columns(rows: Sequence[Sequence[str]], kept: Sequence[int]) -> list[list[str]]:
    return [[row[place] for place in kept] for row in rows]


def _lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], gap: int, indent: int
) -> list[str]:
    lines = _line([column.title for column in columns], columns, widths, gap, indent)
    for row in rows:
        if len(row[0]) > widths[0]:
            lines += paragraph(row[0], indent=indent, hanging=indent + 2)
            row = ["", *row[1:]]  # noqa: PLW2901
        lines += _line(row, columns, widths, gap, indent)
    return lines


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], gap: int, indent: int) -> list[str]:
    line = " " * indent + _align_cells(cells, columns, widths, gap)
    # The last resort for figures that no page has room for: broken, but whole.
    return [line] if len(line) <= WIDTH else paragraph(" ".join(cells), indent=indent, hanging=indent + 4)


def _align_cells(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], gap: int) -> str:
    aligned = (
        cell.ljust(width) if column.left else cell.rjust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    )
    return (" " * gap).join(aligned).rstrip()


def tab_separated(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines of cells with a tab in between; tabs and line ends within a cell become spaces."""
    return ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]


def choose_format(asked: str | None) -> str:
    """Return the format that was asked for; else ``table`` on a terminal and ``tsv`` elsewhere."""
    return asked or ("table" if sys.stdout.isatty() else "tsv")
