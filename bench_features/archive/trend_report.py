"""Trends as text, CSV and JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from bench_common.safe_text import one_line
from bench_features.archive.trend_types import TrendChange, TrendReport
from bench_master.analysis.report_types import as_json
from bench_master.formatting import (
    Column,
    fit_table,
    format_change,
    format_change_interval,
    format_value,
    paragraph,
    plural,
    table_cell,
)

CSV_FIELDS: Final = (
    "series", "scenario", "treatment", "hosts", "measure", "unit", "run", "created", "version", "value", "low",
    "high", "trials", "change", "verdict", "ratio", "ratio_low", "ratio_high", "acknowledged", "machine_change",
)  # fmt: skip
"""The columns of the CSV output: a row for each run."""
_MARKS: Final = {"step": "", "confirmed": " +", "unconfirmed": " *"}


def list_lines(trends: Sequence[TrendReport]) -> Iterator[str]:
    """Yield a table of series, with the last change of each."""
    columns = [
        Column("series", left=True),
        Column("measure", left=True),
        Column("runs"),
        Column("last change", left=True),
    ]
    columns += [Column("since", left=True), Column("hosts", left=True, droppable=True)]
    for scenario in dict.fromkeys(one.scenario for one in trends):
        yield one_line(scenario or "unnamed scenario")
        rows = []
        for one in trends:
            if one.scenario == scenario:
                last = one.changes[-1] if one.changes else None
                change = "-" if last is None else f"{last.word.upper()} {format_change(last.ratio, sided=True)}"
                since = "-" if last is None else f"{_minute(last.created)}{_MARKS[last.kind]}"
                name = f"{one.series}  {one.treatment}"
                rows.append([name, one.measure, str(len(one.runs)), change, since, one.hosts])
        yield from fit_table(columns, rows)
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
        text = f"{plural(len(trend.runs), 'run')} from {_minute(first.created)} to {_minute(last.created)} (UTC)"
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
    rows += [(one.first, [_minute(one.created), "BREAK", "-", "-", "-", one.run, "-"]) for one in trend.breaks]
    yield from fit_table(columns, [row for _, row in sorted(rows, key=lambda pair: pair[0])])
    for one in trend.breaks:
        text = f"BREAK {_minute(one.created)}: the machine changed ({one.text}); nothing is compared across."
        yield from paragraph(one_line(text), indent=2, hanging=4)


def _change_row(change: TrendChange) -> list[str]:
    return [
        _minute(change.created),
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


def _minute(created: str) -> str:
    return created[:16].replace("T", " ")


def write_json(trends: Sequence[TrendReport], out: TextIO, *, alone: bool) -> None:
    """Write ``weighbridge-trend``: one object, or a list of them."""
    json.dump(as_json(trends[0]) if alone else [as_json(one) for one in trends], out, indent=2, ensure_ascii=False)
    out.write("\n")


def write_csv(trends: Sequence[TrendReport], out: TextIO) -> None:
    """Write one row for each run."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    for trend in trends:
        changes = {one.first: one for one in trend.changes}
        breaks = {one.first: one.text for one in trend.breaks}
        about = [trend.series, trend.scenario, trend.treatment, trend.hosts, trend.measure, trend.unit]
        for place, run in enumerate(trend.runs):
            row: list[object] = [*about, run.run, run.created, run.version, run.value, run.low, run.high, run.trials]
            change = changes.get(place)
            if change is None:
                row += [None] * 6
            else:
                known = "yes" if change.acknowledged else "no"
                row += [change.kind, change.word, change.ratio, change.low, change.high, known]
            row.append(breaks.get(place))
            cells = (table_cell(cell) if isinstance(cell, str) else cell for cell in row)
            writer.writerow(["" if cell is None else cell for cell in cells])
