"""Trends as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from bench_common.safe_text import one_line
from bench_features.archive.trend_types import TrendChange, TrendReport, minute
from bench_master.analysis.report_types import as_json
from bench_master.formatting import (
    Column,
    fit_table,
    format_change,
    format_change_interval,
    format_value,
    paragraph,
    plural,
)
from bench_master.reports.table import Cell, Field, Table, count, table_of, table_text, words

_MARKS: Final = {"step": "", "confirmed": " +", "unconfirmed": " *"}


def trend_tables(trends: Sequence[TrendReport]) -> Iterator[Table]:
    """Yield a table of the series of each scenario, with the last change of each."""
    for scenario in dict.fromkeys(one.scenario for one in trends):
        own = [(one, one.changes[-1] if one.changes else None) for one in trends if one.scenario == scenario]
        yield table_of(one_line(scenario or "unnamed scenario"), "", _FIELDS, own)


_FIELDS: Final[Sequence[Field[tuple[TrendReport, TrendChange | None]]]] = (
    Field(Column("series", left=True), lambda row: _series_cell(row[0])),
    words("measure", lambda row: row[0].measure),
    count("runs", lambda row: len(row[0].runs)),
    words("last change", lambda row: _change_words(row[1]) if row[1] else "none"),
    words("since", lambda row: _since(*row)),
    words("hosts", lambda row: row[0].hosts, droppable=True),
)


def _series_cell(trend: TrendReport) -> Cell:
    text = f"{trend.series}  {one_line(trend.treatment)}"
    return Cell(text, left=True, link=f"#{trend.series}" if len(trend.runs) > 1 else "")


def _change_words(change: TrendChange) -> str:
    return f"{change.word.upper()} {format_change(change.ratio, sided=True)}"


def _since(trend: TrendReport, change: TrendChange | None) -> str:
    if change is None:
        return minute(trend.runs[0].created) if trend.runs else ""
    return f"{minute(change.created)}{_MARKS[change.kind]}"


def list_lines(trends: Sequence[TrendReport]) -> Iterator[str]:
    """Yield the tables of series, and what their signs mean."""
    for table in trend_tables(trends):
        yield table.name
        yield from table_text(table)
        yield ""
    yield from _legend([change for one in trends for change in one.changes[-1:]])


def lines(trend: TrendReport) -> Iterator[str]:
    """Yield one trend: since when, each change and break, and what the next run may show."""
    yield one_line(
        f"{trend.treatment}, {trend.measure}, of {trend.scenario or 'an unnamed scenario'} on {trend.hosts}"
    )
    yield ""
    yield from paragraph(one_line(f"{trend.answer[:1].upper()}{trend.answer[1:]}."), indent=2, hanging=4)
    if trend.runs:
        first, last = trend.runs[0], trend.runs[-1]
        text = f"{plural(len(trend.runs), 'run')} from {minute(first.created)} to {minute(last.created)} (UTC)"
        yield from paragraph(f"{text}; margin {100 * trend.margin:.3g} %; {trend.direction} is better.", indent=2)
    if trend.changes or trend.breaks:
        yield ""
        yield from _events(trend)
    yield ""
    yield from _legend(trend.changes)
    if trend.next_low is not None and trend.next_high is not None:
        ends = f"{format_value(trend.next_low, trend.unit)} and {format_value(trend.next_high, trend.unit)}"
        yield from paragraph(f"The next run is expected between {ends} (95 %).", indent=2)
    else:
        text = "Fewer than five runs of the present level: they do not say how much runs differ."
        yield from paragraph(text, indent=2)
    yield from paragraph(f"series {trend.series}", indent=2)


def _events(trend: TrendReport) -> Iterator[str]:
    columns = [Column("since (UTC)", left=True), Column("verdict", left=True), Column("difference")]
    columns += [Column("interval", left=True), Column("runs"), Column("first run", left=True)]
    columns += [Column("version", left=True, droppable=True)]
    rows = [(one.first, _change_row(one)) for one in trend.changes]
    rows += [(one.first, [minute(one.created), "BREAK", "-", "-", "-", one.run, "-"]) for one in trend.breaks]
    yield from fit_table(columns, [row for _, row in sorted(rows, key=lambda pair: pair[0])])
    for one in trend.breaks:
        text = f"BREAK {minute(one.created)}: the machine changed ({one.text}); nothing is compared across."
        yield from paragraph(one_line(text), indent=2, hanging=4)


def _change_row(change: TrendChange) -> list[str]:
    return [
        minute(change.created),
        f"{change.word.upper()}{_MARKS[change.kind]}{' a' if change.acknowledged else ''}",
        format_change(change.ratio, sided=True),
        format_change_interval(change.low, change.high, change.ratio),
        str(change.runs),
        change.run,
        change.version,
    ]


def _legend(changes: Sequence[TrendChange]) -> Iterator[str]:
    kinds = {change.kind for change in changes}
    if "unconfirmed" in kinds:
        yield from paragraph("* unconfirmed: the next run must agree (interval at 99.9 %).", indent=2)
    if "confirmed" in kinds:
        yield from paragraph("+ confirmed by a second run; too new to be a step of the history.", indent=2)
    if any(change.acknowledged for change in changes):
        yield from paragraph("a acknowledged: later runs are judged by the new level.", indent=2)


def write_json(trends: Sequence[TrendReport], out: TextIO, *, alone: bool) -> None:
    """Write ``weighbridge-trend``: one object, or a list of them."""
    json.dump(as_json(trends[0]) if alone else [as_json(one) for one in trends], out, indent=2, ensure_ascii=False)
    out.write("\n")
