"""Tables that put treatments side by side: a row for each measure, a column for each treatment that is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from bench_common.cost import HELD_UNITS
from bench_common.safe_text import one_line, shorten
from bench_master.analysis.document import percentile_name
from bench_master.analysis.report_types import ReportDocument
from bench_master.formatting import Column, fit_table, format_percent, format_value, page_width, paragraph
from bench_master.reports.table import Cell, Table, grouped, varying_labels
from bench_master.run_data.aggregate import JOB
from bench_master.run_data.treatment_types import TreatmentReport


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
        groups = grouped(document.treatments, lambda entry: entry.treatment.get("job"))
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
    rows: list[tuple[str, Callable[[TreatmentReport], str]]] = [
        (f"{name} {statistic}", partial(_time, name, statistic))
        for name, statistic in shown
        if f"{name}.{statistic}" not in judged
    ]
    metrics = measured_metrics(group) if full else primary_metrics(group)
    rows += [(name, partial(_median, name)) for name in metrics if name not in judged]
    if "jobs_per_s" not in judged:
        rows.append(("jobs/s", lambda one: format_value(one.jobs_per_s, "")))
    base = group[0].jobs_per_s
    if base and len({one.concurrency for one in group}) > 1:
        title = f"x that of {group[0].concurrency} in flight"
        rows.append((title, lambda one: "-" if one.jobs_per_s is None else f"{one.jobs_per_s / base:.2f}"))
    if full:
        rows.append(("of the harness's own", lambda one: format_percent(one.harness.share if one.harness else None)))
    rows.append(("MB/s", lambda one: format_value(one.objects.mb_per_s if one.objects else None, "")))
    if any(entry.jobs.failed for entry in group):
        rows.append(("failed", lambda one: f"{one.jobs.failed:,} of {one.jobs.total:,}"))
    texts = [[title, *map(text, group)] for title, text in rows]
    return [row for row in texts if any(cell != "-" for cell in row[1:])]


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


def _time(name: str, percentile: str, one: TreatmentReport) -> str:
    return format_value(one.operations[name].percentiles_s[percentile] if name in one.operations else None, "s")


def _median(name: str, one: TreatmentReport) -> str:
    return format_value(one.metrics[name].median, one.metrics[name].unit) if name in one.metrics else "-"


def side_lines(document: ReportDocument, *, full: bool) -> Iterator[str]:
    """Yield the tables of `side_tables` in text, each with as many treatments as the page has room for."""
    for number, table in enumerate(side_tables(document, full=full)):
        if number:
            yield ""
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
