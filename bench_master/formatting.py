"""Text as people read it: figures, plurals, and pages as wide as the place that shows them.

A page has 80 columns (`DEFAULT_WIDTH`). Where a terminal shows it, the command line sets the terminal's width for all
that it formats (`page_of`), and nothing else does: a text in a file or a pipe is the same everywhere.

A measured value has a fixed number of digits and its unit, spelled as in `bench_common.units`. None, a value that
does not exist, is a dash. `align_table` makes a plain table, `wrap_last_column` wraps a long last column, and
`fit_table` drops the columns that a narrow page has no room for. For programs the same rows are `tab_separated`.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from bench_common.safe_text import flat_line, one_line, shorten
from bench_common.units import format_duration

_TIME: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_THOUSANDS: Final = ("", "k", "M", "G", "T", "P")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DASH: Final = "-"
MISSING: Final = "n/a"
"""What a table of a report has in place of a dash: a value that was not measured, or that nothing gave."""
MISSING_MEANS: Final = "not measured, or no job gave a value"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 trial``, ``6 trials``, ``2 processes`` or ``2 series``."""
    if number == 1 or noun == "series":
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch')) else 's'}"


def listed(names: Sequence[str], most: int, rest: str = " and {more} more") -> str:
    """Return names with commas; `rest` tells how many more than `most` there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (rest.format(more=more) if more > 0 else "")


def format_seconds(value: float | None, digits: int = 4) -> str:
    """Return a duration with `digits` significant digits and its unit: ``1.234s``, ``51.20ms``, ``980ns``."""
    return _DASH if value is None else "".join(_split_seconds(value, digits))


def _split_seconds(value: float, digits: int) -> tuple[str, str]:
    """Return the number and the unit of a duration."""
    if value == 0:
        return "0", "s"
    size = abs(value)
    # What would be rounded up to 1000 of a unit is 1 of the next.
    scale, unit = next((pair for pair in _TIME if size >= pair[0] * (1 - 0.5 * 10**-digits)), _TIME[-1])
    number = value / scale
    # A clock tells whole nanoseconds, of which no decimals are invented; a figure of a tool's may have some.
    if unit == "ns":
        return f"{number:.0f}" if number.is_integer() or abs(number) >= 100 else f"{number:.3g}", unit  # noqa: PLR2004
    power = int(f"{abs(number):.{digits - 1}e}".partition("e")[2])
    return f"{number:.{max(0, digits - 1 - power)}f}", unit


def format_span(value: float | None) -> str:
    """Return a duration to three digits, from a minute on in two units: ``31.5ms``, ``42.3s``, ``1m3s``, ``3d4h``."""
    if value is None:
        return _DASH
    value = max(0.0, value)
    if value < 60:  # noqa: PLR2004
        return format_duration(float(f"{value:.3g}"))
    unit = next(unit for unit, limit in ((1, 3600), (60, 86400), (3600, float("inf"))) if value < limit - unit / 2)
    return format_duration(round(value / unit) * unit)


def format_elapsed(seconds: float | None) -> str:
    """Return a duration as a running clock shows it: ``0:42`` or ``1:02:03``; ``-:--`` for None."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_bytes(value: float | None) -> str:
    """Return bytes with a binary unit: ``7.81GiB``."""
    return _DASH if value is None else "".join(_split_bytes(value))


def _split_bytes(value: float) -> tuple[str, str]:
    """Return the number and the unit of an amount of bytes."""
    power = 0
    while abs(value) >= 1024 and power < len(_BINARY) - 1:  # noqa: PLR2004
        value, power = value / 1024, power + 1
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}", _BINARY[power]  # noqa: PLR2004


def format_percent(value: float | None) -> str:
    """Return a share (0..1) in percent."""
    return _DASH if value is None else f"{100 * value:.1f}%"


def format_count(value: float) -> str:
    """Return a count, shortened from ten million on: ``9999999``, ``12.35M``."""
    if abs(value) < 1e7:  # noqa: PLR2004
        return f"{value:.0f}"
    power = min((len(f"{abs(value):.0f}") - 1) // 3, len(_THOUSANDS) - 1)
    return f"{value / 1000**power:.4g}{_THOUSANDS[power]}"


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
    return f"{value:.4g}" if size >= 1e-4 else f"{value:.2e}"  # noqa: PLR2004


def format_number(value: float) -> str:
    """Return a number of 0 or more with about three digits, and whole from 100 on: ``0.012``, ``9.83``, ``1,234``."""
    if 0 < value < 0.0995:  # noqa: PLR2004  two decimals would be one digit, or none
        return f"{value:.3g}"
    for digits, limit in ((2, 9.995), (1, 99.95)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def format_value(value: float | None, unit: str) -> str:
    """Return a measure in the unit that a person would use: ``3.86 ms``, ``1.5 GiB/s``, ``2,895/s``, ``42 events/s``.

    Times come in seconds (``s``) and have three digits, sizes in bytes (``B``, ``bytes``, ``B/s`` ...).
    """
    if value is None or not math.isfinite(value):
        return _DASH
    if unit == "s":
        return " ".join(_split_seconds(value, 3))
    size, slash, per = unit.partition("/")
    if size in ("B", "bytes"):
        return " ".join(_split_bytes(value)) + slash + per
    number = f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else format_significant(value)  # noqa: PLR2004
    if unit in ("", "1"):
        return number
    return f"{number}/{per}" if size == "1" and slash else f"{number} {unit}"


def format_change(ratio: float | None, *, sided: bool = False) -> str:
    """Return a ratio as a change: in percent below twofold, else as a factor: ``+21.0 %``, ``79.6x``.

    With `sided` a word beside it says whether it is more or less: else it is ``79.6x less``.
    """
    if ratio is None or not math.isfinite(ratio) or ratio <= 0:
        return _DASH
    if not _in_times(ratio):
        return f"{_percent(ratio, 1)} %"
    return f"{format_number(max(ratio, 1 / ratio))}x{'' if sided or ratio > 1 else ' less'}"


def format_change_interval(low: float | None, high: float | None, ratio: float) -> str:
    """Return the ends of a ratio's interval in the form of its change: ``[+18.2, +23.9]``, ``[172, open]``."""
    ends = [end if end is not None and math.isfinite(end) and end > 0 else None for end in (low, high)]
    if _in_times(ratio):
        if ratio < 1:
            ends = [None if end is None else 1 / end for end in reversed(ends)]
        texts = [_OPEN if end is None else format_number(end) for end in ends]
    else:
        known = [end for end in ends if end is not None]
        digits = 2 if len(known) == 2 and abs(known[1] - known[0]) < 0.002 else 1  # noqa: PLR2004  a tenth would hide it
        texts = [_OPEN if end is None else _percent(end, digits) for end in ends]
    return f"[{', '.join(texts)}]"


_OPEN: Final = "open"
"""An end of an interval that the data do not limit."""


def _in_times(ratio: float) -> bool:
    return ratio >= 2 or ratio <= 1 / 2  # noqa: PLR2004


def _percent(ratio: float, digits: int) -> str:
    change = 100 * (ratio - 1)
    text = f"{change:+,.0f}" if abs(change) >= 100 else f"{change:+.{digits}f}"  # noqa: PLR2004
    return text if text.strip("+-0.,") else text[1:]


def format_share(value: float | None) -> str:
    """Return a share (0..1) in percent, or as a factor from twofold on: ``1.4 %``, ``2.60x``."""
    if value is None or not math.isfinite(value):
        return _DASH
    if value >= 1:
        return f"{format_number(1 + value)}x"
    return f"{100 * value:.1f} %"


DEFAULT_WIDTH: Final = 80
"""Columns of a page that no terminal shows."""

_page_width: ContextVar[int] = ContextVar("page_width", default=DEFAULT_WIDTH)


def page_width() -> int:
    """Return how many columns the page has."""
    return _page_width.get()


@contextmanager
def page_of(width: int) -> Iterator[None]:
    """Format all text within this block for a page of `width` columns."""
    before = _page_width.set(width)
    try:
        yield
    finally:
        _page_width.reset(before)


_MINIMUM_NAME: Final = 10
_MINIMUM_WORDS: Final = 30
_LONG_NAME: Final = 24
"""Shorter names are worth more than a spare column."""
_NOTHING: Final = re.compile(r"-|(?:0(?:\.0+)?)?(?: ?(?:%|s|ns|B|/s))?")
_SHORTEN_BY: Final = 4
"""How many characters more are left out of a text that does not fit its lines."""


class Column(NamedTuple):
    """A column of a table that `fit_table` makes."""

    title: str
    left: bool = False
    """Whether its cells are aligned at the left."""
    droppable: bool = False
    """Whether it is left out, the last one first, where the page is too narrow for all."""
    optional: bool = False
    """Whether it is left out where it says nothing: every row has a zero or a dash in it."""


def paragraph(text: str, *, indent: int = 0, hanging: int | None = None, lines: int | None = None) -> list[str]:
    """Return text wrapped to the page; lines after the first are indented by `hanging`.

    Of a text of more than `lines` lines the middle is left out: an error names its reason at either end.
    """
    first, rest = " " * indent, " " * (indent if hanging is None else hanging)
    room = None if lines is None else lines * (page_width() - len(rest))
    while True:
        # A number and its percent sign stay on one line.
        wrapped = textwrap.wrap(
            (text if room is None else shorten(text, room)).replace(" %", "\0%"),
            page_width(),
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
        )
        if lines is None or room is None or len(wrapped) <= lines:
            return [line.replace("\0", " ") for line in wrapped]
        room -= _SHORTEN_BY


def field(name: str, text: str) -> list[str]:
    """Return a line of the head: a name in a narrow column, its text wrapped beside it."""
    return paragraph(f"{name:<11}{text}", indent=2, hanging=13)


def heading(text: str, rule: str) -> list[str]:
    """Return an underlined heading; a further line of it is indented, as a line of ours is not."""
    wrapped = paragraph(text, hanging=2)
    return [*wrapped, rule * max(map(len, wrapped), default=0)]


def align_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Return a head and rows as lines of aligned columns; those titled in `right` are aligned at the right."""
    columns = [Column(title, left=title not in right) for title in titles]
    lines = [list(titles), *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [_align_cells(line, columns, widths, 2) for line in lines]


def wrap_last_column(titles: Sequence[str], rows: Sequence[Sequence[str]], least: int = 20) -> list[str]:
    """Return a table whose last column is wrapped so that no line is longer than the page is wide.

    It has `least` characters, whatever the others leave of the page.
    """
    rows = [_cells(row) for row in rows]
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles) - 1)]
    head = sum(widths) + 2 * len(widths)
    return align_table(titles, _wrapped_rows(rows, max(least, page_width() - head)))


def _wrapped_rows(rows: Iterable[Sequence[str]], room: int) -> list[Sequence[str]]:
    """Return rows of which no last cell is wider; what else it has is in rows of its own."""
    lines: list[Sequence[str]] = []
    for row in rows:
        first, *rest = textwrap.wrap(row[-1], room) or [""]
        lines += [(*row[:-1], first), *((*("" for _ in row[:-1]), text) for text in rest)]
    return lines


def says_nothing(cells: Iterable[str]) -> bool:
    """Return whether all cells of a column are zero, a dash or empty."""
    return all(_NOTHING.fullmatch(cell) for cell in cells)


def fit_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: int = 2) -> list[str]:
    """Return the lines of a table that fits the page; the first column names the row.

    Where it would not fit, the gaps narrow first; then long names get a line of their own; then spare columns are
    left out; at last a column of words is wrapped, or the rows are like text.
    """
    rows = [_cells(row) for row in rows]
    kept = _told_columns(columns, rows)
    rows = [without_dashes(row) for row in rows]
    while True:
        widths = _widths(columns, rows, kept)
        for gap in (2, 1):
            if indent + sum(widths) + gap * (len(widths) - 1) <= page_width():
                return _lines([columns[place] for place in kept], _select_columns(rows, kept), widths, gap, indent)
        name = page_width() - indent - sum(widths[1:]) - (len(widths) - 1)
        spare = [place for place in kept if columns[place].droppable]
        room = page_width() - indent - sum(widths[:-1]) - 2 * (len(widths) - 1)
        if not spare and len(kept) > 1 and columns[kept[-1]].left and room >= _MINIMUM_WORDS:
            wrapped = _wrapped_rows(_select_columns(rows, kept), room)
            return _lines([columns[place] for place in kept], wrapped, [*widths[:-1], room], 2, indent)
        if (widths[0] > _LONG_NAME and name >= max(_MINIMUM_NAME, len(columns[0].title))) or not spare:
            widths[0] = max(name, len(columns[0].title))
            return _lines([columns[place] for place in kept], _select_columns(rows, kept), widths, 1, indent)
        kept.remove(spare[-1])


def has_room(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the page has room for each row of a table on one line, with every column that says anything."""
    rows = [_cells(row) for row in rows]
    widths = _widths(columns, [without_dashes(row) for row in rows], _told_columns(columns, rows))
    return 2 + sum(widths) + len(widths) - 1 <= page_width()


def _told_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        place
        for place, column in enumerate(columns)
        if not (column.optional and rows and says_nothing(row[place] for row in rows))
    ]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> list[int]:
    return [max(len(columns[place].title), *(len(row[place]) for row in rows), 0) for place in kept]


def _cells(row: Sequence[str]) -> list[str]:
    """Return cells that have one line each, and keep their indentation."""
    return [flat_line(cell) for cell in row]


def without_dashes(row: Iterable[str]) -> list[str]:
    """Return cells that say that a value is missing, instead of a bare dash."""
    return [MISSING if cell == _DASH else cell for cell in row]


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
    return [line] if len(line) <= page_width() else paragraph(" ".join(cells), indent=indent, hanging=indent + 4)


def _align_cells(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], gap: int) -> str:
    aligned = (
        cell.ljust(width) if column.left else cell.rjust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    )
    return (" " * gap).join(aligned).rstrip()


def tab_separated(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines of cells with a tab in between; tabs and line ends within a cell become spaces."""
    return ["\t".join(map(one_line, row)) for row in rows]


def table_cell(text: str) -> str:
    """Return a text as a cell of CSV: one line, and behind an apostrophe where a spreadsheet would compute it.

    That is a text that begins as a formula does (``=``, ``+``, ``-``, ``@``) and is no number.
    """
    text = flat_line(text)
    if text[:1] not in ("=", "+", "-", "@"):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def choose_format(asked: str | None) -> str:
    """Return the format that was asked for; else ``table`` on a terminal and ``tsv`` elsewhere."""
    return asked or ("table" if sys.stdout.isatty() else "tsv")


# -- Markdown that texts of others cannot break out of --------------------------------------------------------------

_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>#|~$&@]|:(?=//)")
_PLAIN: Final = re.compile(
    r"""(?:[\w .,;:/()=%+'"-]|\[[-+\d., a-z]+\](?!\()|!(?=[ =])|(?<= )[<>]=?(?= ))*""", re.ASCII
)
"""What is no markup: words and numbers, the interval of a difference, comparisons of numbers."""
_LINK: Final = re.compile(r"://|www\.", re.IGNORECASE)


def escape_markdown(text: str) -> str:
    """Return a text of others as Markdown that shows it, whatever it contains, on one line."""
    line = one_line(text)
    if _PLAIN.fullmatch(line) and not _LINK.search(line):
        # Underscores within words are no markup; those at their ends are.
        return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)
    escaped = _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line)
    # A comment keeps a name from being told, and an address from being linked, where entities do not.
    return re.sub(r"(&#64;|www)", r"\1<!-- -->", escaped, flags=re.IGNORECASE)


def markdown_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table whose source is aligned, too."""
    lines = [
        [escape_markdown(column.title) for column in columns],
        *([escape_markdown(cell) for cell in without_dashes(row)] for row in rows),
    ]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = [
        f":{'-' * (width - 1)}" if column.left else f"{'-' * (width - 1)}:"
        for column, width in zip(columns, widths, strict=True)
    ]
    for line in (lines[0], rule, *lines[1:]):
        cells = [
            cell.ljust(width) if column.left else cell.rjust(width)
            for cell, column, width in zip(line, columns, widths, strict=True)
        ]
        yield f"| {' | '.join(cells)} |"
