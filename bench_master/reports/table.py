"""A table of a report: made once, written by every format that has tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, TypeVar

from bench_common.safe_text import one_line
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.trust import short_names
from bench_master.formatting import (
    MISSING,
    MISSING_MEANS,
    Column,
    escape_markdown,
    fit_table,
    format_bytes,
    format_percent,
    format_significant,
    format_value,
    has_room,
    markdown_table,
    paragraph,
    says_nothing,
)
from bench_master.run_data.treatment_types import TreatmentReport

MOST_OPEN_ROWS: Final = 60
"""Rows of a table that a page shows at once; a longer one is folded."""

_DOUBTFUL: Final = "?: a p99 of fewer than 1,000 values"

Row = TypeVar("Row")
Key = TypeVar("Key")


class Cell(NamedTuple):
    """A cell of a table; `value` is what it is sorted by, None for its text."""

    text: str
    value: float | None = None
    left: bool = False
    link: str = ""
    """The address that it leads to."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, and what explains it."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    folded: bool = False
    """Whether a page shows it only when a reader opens it."""
    leads: bool = False
    """Whether it belongs to the answer, above the charts of a page."""
    sortable: bool = True
    """Whether a script may sort it: not where it is a part of a longer one."""
    labels: int = 0
    """How many of its first columns tell treatments apart."""

    @property
    def texts(self) -> list[list[str]]:
        """The cells as texts."""
        return [[cell.text for cell in row] for row in self.rows]

    def without(self, titles: Collection[str]) -> Table:
        """Return it without some of its columns."""
        kept = [place for place, column in enumerate(self.columns) if column.title not in titles]
        rows = [[row[place] for place in kept] for row in self.rows]
        return replace(self, columns=[self.columns[place] for place in kept], rows=rows)

    def shown(self) -> Table:
        """Return it without optional columns that say nothing, and with words for a bare dash and for its signs."""
        kept = [
            place
            for place, column in enumerate(self.columns)
            if not (column.optional and says_nothing(row[place].text for row in self.rows))
        ]
        cells = [[row[place] for place in kept] for row in self.rows]
        rows = [[cell._replace(text=MISSING) if cell.text == "-" else cell for cell in row] for row in cells]
        notes = list(self.notes)
        if any(cell.text.endswith("?") and not cell.left for row in rows for cell in row):
            notes.append(_DOUBTFUL)
        if any(cell.text == MISSING for row in rows for cell in row):
            notes.append(f"{MISSING}: {MISSING_MEANS}")
        columns, labels = [self.columns[place] for place in kept], sum(place < self.labels for place in kept)
        return replace(self, columns=columns, rows=rows, notes=notes, labels=labels)


def table_text(table: Table) -> Iterator[str]:
    """Yield a table as text: its caption, its rows as far as the page has room for them, its notes.

    Where the page has no room for all columns, the labels of treatments that have several rows stand above them.
    """
    table = table.shown()
    yield from paragraph(one_line(table.caption), indent=2)
    shown = list(_rows_of(table))
    yield from shown
    for note in table.notes:
        # The page may have had no room for the column.
        if note != _DOUBTFUL or any("?" in line for line in shown):
            yield from paragraph(one_line(note), indent=2, hanging=4)


def _rows_of(table: Table) -> Iterator[str]:
    if _is_flat(table):
        yield from fit_table(table.columns, table.texts) if table.rows else ()
    else:
        names = [column.title for column in table.columns[: table.labels]]
        for own, rows in groupby(table.texts, key=lambda row: row[: table.labels]):
            labels = " ".join(f"{name}={text}" for name, text in zip(names, own, strict=True))
            yield from paragraph(labels, indent=2, hanging=4)
            yield from fit_table(table.columns[table.labels :], [row[table.labels :] for row in rows], indent=4)


def markdown_of(table: Table) -> Iterator[str]:
    """Yield a table in Markdown, and its notes as a list."""
    table = table.shown()
    yield from markdown_table(table.columns, table.texts)
    yield from markdown_list(table.notes)


def markdown_list(texts: Collection[str]) -> Iterator[str]:
    """Yield texts as a list in Markdown, below what there is; nothing without any."""
    yield from [""] if texts else []
    yield from (f"- {escape_markdown(text)}" for text in texts)


def _is_flat(table: Table) -> bool:
    if not table.labels or has_room(table.columns, table.texts):
        return True
    return len({tuple(row[: table.labels]) for row in table.texts}) == len(table.rows)


# -- columns ---------------------------------------------------------------------------------------------------------


class Field(NamedTuple, Generic[Row]):
    """A column, and how its cell is made of a row."""

    column: Column
    cell: Callable[[Row], Cell]


def words(title: str, get: Callable[[Row], object], **column: bool) -> Field[Row]:
    """Return a column of words."""
    return Field(
        Column(title, left=True, **column),
        lambda row: Cell("-" if (text := get(row)) is None or text == "" else one_line(str(text)), left=True),
    )


def numbers(
    title: str, get: Callable[[Row], float | None], form: Callable[[float], str], **column: bool
) -> Field[Row]:
    """Return a column of numbers in a form of their own."""
    return Field(
        Column(title, **column), lambda row: Cell("-" if (value := get(row)) is None else form(value), value)
    )


def count(title: str, get: Callable[[Row], int | None], **column: bool) -> Field[Row]:
    """Return a column of whole numbers."""
    return numbers(title, get, lambda value: f"{value:,.0f}", **column)


def number(title: str, get: Callable[[Row], float | None], **column: bool) -> Field[Row]:
    """Return a column of numbers without a unit, or with that of the title."""
    return numbers(title, get, format_significant, **column)


def seconds(title: str, get: Callable[[Row], float | None], **column: bool) -> Field[Row]:
    """Return a column of durations in seconds."""
    return numbers(title, get, lambda value: format_value(value, "s"), **column)


def share(title: str, get: Callable[[Row], float | None], **column: bool) -> Field[Row]:
    """Return a column of shares, which are shown in percent."""
    return numbers(title, get, format_percent, **column)


def amount(title: str, get: Callable[[Row], float | None], **column: bool) -> Field[Row]:
    """Return a column of bytes."""
    return numbers(title, get, format_bytes, **column)


def measured(
    title: str, get: Callable[[Row], float | None], unit: Callable[[Row], str], **column: bool
) -> Field[Row]:
    """Return a column of values with a unit of each row."""
    return Field(Column(title, **column), lambda row: Cell(format_value(value := get(row), unit(row)), value))


def doubtful(field: Field[Row], marked: Callable[[Row], bool]) -> Field[Row]:
    """Return a column whose cells have a question mark where they depend on few values."""

    def cell(row: Row) -> Cell:
        found = field.cell(row)
        return found._replace(text=f"{found.text}?") if marked(row) and found.text != "-" else found

    return Field(field.column, cell)


def table_of(
    name: str,
    caption: str,
    fields: Sequence[Field[Row]],
    rows: Iterable[Row],
    notes: Sequence[str] = (),
    *,
    folded: bool = False,
) -> Table:
    """Return a table of rows that are no treatments."""
    cells = [[field.cell(row) for field in fields] for row in rows]
    return Table(name, caption, [field.column for field in fields], cells, notes, folded)


def treatment_table(
    treatments: Sequence[TreatmentReport],
    name: str,
    caption: str,
    fields: Sequence[Field[Row]],
    rows: Iterable[tuple[TreatmentReport, Row]],
    notes: Sequence[str] = (),
    **shown: bool,
) -> Table:
    """Return a table whose rows belong to treatments of a run, with a column for each label that varies."""
    labels = varying_labels([entry.treatment for entry in treatments])
    columns = [*(Column(one_line(label), left=True) for label in labels), *(field.column for field in fields)]
    cells = [
        [*(_label(entry.treatment.get(label)) for label in labels), *(field.cell(row) for field in fields)]
        for entry, row in rows
    ]
    return Table(name, caption, columns, cells, notes, labels=len(labels), **shown)


def _label(value: object) -> Cell:
    if isinstance(value, bool):
        return Cell(str(value).lower(), left=True)
    number_ = float(value) if isinstance(value, int | float) else None
    return Cell("-" if value is None else one_line(str(value)), number_, left=True)


def named_treatments(document: ReportDocument) -> list[tuple[str, TreatmentReport]]:
    """Return each treatment with the short name that tells it from the others."""
    return list(zip(short_names(document.treatments), document.treatments, strict=True))


def by_treatment(document: ReportDocument, get: Callable[[TreatmentReport], Iterable[str]]) -> list[str]:
    """Return the texts of each treatment, with its name where there are several."""
    several = len(document.treatments) > 1
    found = ((name, text) for name, entry in named_treatments(document) for text in get(entry))
    return [f"{name}: {text}" if several else text for name, text in found]


def grouped(items: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Return items by a key, both in their order."""
    found: dict[Key, list[Row]] = {}
    for one in items:
        found.setdefault(key(one), []).append(one)
    return found


def varying_labels(every: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the labels that tell treatments apart, in their order."""
    names = dict.fromkeys(name for labels in every for name in labels)
    return [name for name in names if len({repr(labels.get(name)) for labels in every}) > 1]
