"""Tables that put treatments side by side: a row for each measure, a column for each treatment that is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench_common.cost import HELD_UNITS
from bench_common.safe_text import one_line, shorten
from bench_master.analysis.document import percentile_name
from bench_master.analysis.report_types import ReportDocument
from bench_master.formatting import (
    Column,
    fit_table,
    format_percent,
    format_value,
    page_width,
    paragraph,
)
from bench_master.reports.table import Cell, Table, varying_labels
from bench_master.run_data.aggregate import JOB
from bench_master.run_data.treatment_types import OperationReport, TreatmentReport


def format_labels(labels: Mapping[str, Any]) -> str:
    """Return labels as ``engine=docker job=cpu``."""
    return one_line(" ".join(f"{key}={value}" for key, value in labels.items()))


_TITLE: Final = 24
"""Characters of a column's title at most."""


def side_tables(document: ReportDocument, *, full: bool) -> list[Table]:
    """Return a table for each set of treatments that are compared with each other, or have the same job.

    Rows are the medians of operations and metrics (`full`: of all metrics, else of the primary ones), and rates; no
    tables for a single treatment. What treatments are compared by has its value in the table of verdicts, which is
    the middle of the trials; one of all jobs would be a second value.
    """
    verdicts = document.verdicts
    judged = frozenset() if verdicts is None else frozenset(each.measure for each in verdicts.comparisons)
    groups = [group for group in _compared(document) if len(group) > 1]
    every = [entry for group in groups for entry in group]
    found = []
    for group in groups:
        columns = [Column("", left=True), *map(Column, _titles(group))]
        rows = [[*map(Cell, row)] for row in _measures(group, document.pctile, judged, full=full)]
        found.append(Table("Side by side", _common_text(group, every), columns, rows))
    return found


def _compared(document: ReportDocument) -> list[list[TreatmentReport]]:
    by_title = {entry.title: entry for entry in document.treatments}
    groups: dict[Any, list[TreatmentReport]] = {}
    if document.verdicts is not None:
        for each in document.verdicts.comparisons:
            sides = [by_title[title] for title in (each.a, each.b) if title in by_title]
            found = groups.setdefault((each.group, each.a), [])
            found += [side for side in sides if side not in found]
    if not groups:
        for entry in document.treatments:
            groups.setdefault(entry.treatment.get("job"), []).append(entry)
    # Each treatment once, whatever it is compared with.
    place = {id(entry): number for number, entry in enumerate(document.treatments)}
    return [sorted(group, key=lambda entry: place[id(entry)]) for group in groups.values()]


def _common_text(group: Sequence[TreatmentReport], every: Sequence[TreatmentReport]) -> str:
    """Return the labels that a group's treatments share and that not all treatments have."""
    if len(group) == len(every):
        return ""
    first = group[0].treatment
    shared = {
        key: value
        for key, value in first.items()
        if all(entry.treatment.get(key) == value for entry in group)
        and any(entry.treatment.get(key) != value for entry in every)
    }
    return format_labels(shared)


def _titles(group: Sequence[TreatmentReport]) -> list[str]:
    own = varying_labels([entry.treatment for entry in group])
    texts = [one_line(" ".join(str(entry.treatment.get(key, "-")) for key in own)) or "-" for entry in group]
    return [shorten(text, _TITLE) for text in texts]


def _measures(
    group: Sequence[TreatmentReport], pctile: float, judged: frozenset[str], *, full: bool
) -> list[list[str]]:
    chosen = percentile_name(pctile)
    operations = list(dict.fromkeys(name for entry in group for name in entry.operations))
    shown = [(name, "p50") for name in sorted(operations, key=lambda name: name == JOB)]
    shown += [(JOB, chosen)] if JOB in operations and chosen != "p50" else []
    rows = [
        [f"{name} {statistic}", *(_spaced(one.operations.get(name), statistic) for one in group)]
        for name, statistic in shown
        if f"{name}.{statistic}" not in judged
    ]
    for name in measured_metrics(group) if full else primary_metrics(group):
        if name in judged:
            continue
        found = [entry.metrics.get(name) for entry in group]
        rows.append([name, *("-" if one is None else format_value(one.median, one.unit) for one in found)])
    if "jobs_per_s" not in judged:
        rows.append(["jobs/s", *(format_value(one.jobs_per_s, "") for one in group)])
    if group[0].jobs_per_s and len({one.concurrency for one in group}) > 1:
        base, own = group[0].jobs_per_s, group[0].concurrency
        rates = [one.jobs_per_s for one in group]
        rows.append(
            [f"x that of {own} in flight", *("-" if rate is None else f"{rate / base:.2f}" for rate in rates)]
        )
    if full:
        rows.append(
            ["of the harness's own", *(format_percent(one.harness.share if one.harness else None) for one in group)]
        )
    rows.append(["MB/s", *(format_value(entry.objects.mb_per_s if entry.objects else None, "") for entry in group)])
    if any(entry.jobs.failed for entry in group):
        rows.append(["failed", *(f"{entry.jobs.failed:,} of {entry.jobs.total:,}" for entry in group)])
    return [row for row in rows if any(cell != "-" for cell in row[1:])]


def measured_metrics(treatments: Sequence[TreatmentReport]) -> list[str]:
    """Return the names of the metrics that have values."""
    return list(dict.fromkeys(name for entry in treatments for name, metric in entry.metrics.items() if metric.n))


def primary_metrics(treatments: Sequence[TreatmentReport]) -> list[str]:
    """Return the names of the metrics with values that a first page shows, in the order of their workloads.

    They are marked as such. A file in which none is, of an older version or another program, has the first of each
    treatment.
    """
    found: dict[str, None] = {}
    for entry in treatments:
        # What containers of a packing take has a table of its own.
        given = [name for name, metric in entry.metrics.items() if metric.n and name not in HELD_UNITS]
        found.update(dict.fromkeys([name for name in given if entry.metrics[name].primary] or given[:1]))
    return list(found)


def _spaced(operation: OperationReport | None, percentile: str) -> str:
    return format_value(None if operation is None else operation.percentiles_s[percentile], "s")


def side_lines(document: ReportDocument, *, full: bool) -> Iterator[str]:
    """Yield the tables of `side_tables` in text, each with as many treatments as the page has room for."""
    for number, table in enumerate(side_tables(document, full=full)):
        if number:
            yield ""
        if table.caption:
            yield from paragraph(table.caption, indent=2, hanging=4)
        texts = table.texts
        for start, end in _pages(table):
            places = (0, *range(start, end))
            shown = [[row[place] for place in places] for row in texts]
            yield from fit_table([table.columns[place] for place in places], shown)


def _pages(table: Table) -> Iterator[tuple[int, int]]:
    """Yield the first and the last but one of the columns that fit the page together, beside the first of all."""
    columns = zip([column.title for column in table.columns], *table.texts, strict=True)
    names, *widths = (max(map(len, column)) for column in columns)
    room, start, used = page_width() - 2 - names, 1, 0
    for place, width in enumerate(widths, 1):
        if place > start and used + 2 + width > room:
            yield start, place
            start, used = place, 0
        used += 2 + width
    yield start, len(table.columns)
