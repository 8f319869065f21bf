"""How a text report is laid out: aligned tables that fit the page, wrapped lines, figures with their units."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 80
"""Columns of a page; no line of a report is longer."""

_MINIMUM_NAME: Final = 10
_TIME: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_THOUSANDS: Final = ("", "k", "M", "G", "T", "P")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DASH: Final = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `spare` columns are left out, the last first, where the page is too narrow for all."""

    title: str
    left: bool = False
    droppable: bool = False


def format_significant(value: float) -> str:
    """Return a number with four significant digits, whole from 1000 on: ``0.01234``, ``12.34``, ``123456``."""
    if value == 0:
        return "0"
    size = abs(value)
    # Counts are counts: nobody wants to read 100.0 processes.
    if size >= 1000:  # noqa: PLR2004
        return f"{value:.0f}" if size < 1e7 else format_count(value)  # noqa: PLR2004
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.4g}" if size >= 1e-4 else f"{value:.1e}"  # noqa: PLR2004


def format_count(value: float) -> str:
    """Return a count, shortened from ten million on: ``9999999``, ``12.35M``."""
    if abs(value) < 1e7:  # noqa: PLR2004
        return f"{value:.0f}"
    power = min((len(f"{abs(value):.0f}") - 1) // 3, len(_THOUSANDS) - 1)
    return f"{value / 1000**power:.4g}{_THOUSANDS[power]}"


def format_seconds(value: float | None, digits: int = 4) -> str:
    """Return a duration with `digits` significant digits and its unit: ``1.234s``, ``51.20ms``, ``980ns``."""
    if value is None:
        return _DASH
    if value == 0:
        return "0s"
    size = abs(value)
    # What would be rounded up to 1000 of a unit is 1 of the next.
    scale, unit = next((pair for pair in _TIME if size >= pair[0] * (1 - 0.5 * 10**-digits)), _TIME[-1])
    number = value / scale
    # A nanosecond is the smallest there is: no invented decimals.
    if unit == "ns":
        return f"{number:.0f}ns"
    power = int(f"{abs(number):.{digits - 1}e}".partition("e")[2])
    return f"{number:.{max(0, digits - 1 - power)}f}{unit}"


def format_percent(value: float | None) -> str:
    """Return a share (0..1) in percent."""
    return _DASH if value is None else f"{100 * value:.1f}%"


def format_bytes(value: float | None) -> str:
    """Return bytes with a binary unit: ``7.81 GiB``."""
    if value is None:
        return _DASH
    power = 0
    while abs(value) >= 1024 and power < len(_BINARY) - 1:  # noqa: PLR2004
        value, power = value / 1024, power + 1
    return f"{value:.3g} {_BINARY[power]}" if abs(value) < 1000 else f"{value:.0f} {_BINARY[power]}"  # noqa: PLR2004


def format_run_time(value: float | None) -> str:
    """Return how long a run took: ``31.5 ms``, ``42.3 s``, ``1 min 3 s``, ``2 h 5 min``."""
    if value is None:
        return _DASH
    if value < 1:
        return f"{value * 1000:.1f} ms"
    if value < 60:  # noqa: PLR2004
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


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
    aligned = [
        cell.ljust(width) if column.left else cell.rjust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    line = (" " * indent + (" " * gap).join(aligned)).rstrip()
    # The last resort for figures that no page has room for: broken, but whole.
    return [line] if len(line) <= WIDTH else paragraph(" ".join(cells), indent=indent, hanging=indent + 4)
