"""The text report, for a person in front of a terminal: the answer first, and how far it can be trusted.

The first page fits a screen: what is missing, the verdicts, what they rest on, thresholds, gates, warnings, errors.
With ``-v`` all other figures follow it (`text_details`); with ``-q`` there are only the verdicts, one on each line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final, TextIO

from bench_common.safe_text import escape_lines, one_line
from bench_master.analysis.report_types import ReportDocument, TotalsReport
from bench_master.analysis.verdict_types import VerdictsReport, verdict_lines
from bench_master.formatting import field, fit_table, format_span, format_value, heading, paragraph, plural
from bench_master.reports import ReportSource
from bench_master.reports.comparison import answer_lines, between_runs_of, text_lines
from bench_master.reports.side_by_side import common_labels, scaling_tables, side_lines, treatment_names
from bench_master.reports.text_details import (
    details,
    format_time,
    overview_table,
    section,
    totals_text,
    treatment_block,
)
from bench_master.reports.text_sections import overhead_table, packing_table, population_table, published_lines
from bench_master.reports.verdict_text import (
    VerdictTable,
    gate_lines,
    looked_for,
    notes,
    trust_sentences,
    verdict_tables,
    warnings,
)

PAGE: Final = 40
"""Lines of a screen: what is not the answer is on the first page only as far as they go."""

_ROWS: Final = 20
"""Rows of verdicts on the first page at most; of more than that it shows the first `_FIRST_ROWS`."""
_FIRST_ROWS: Final = 12
_ITEMS: Final = 5
"""Warnings and kinds of errors on the first page."""
_SHORT_MESSAGE: Final = 2
_MESSAGE_LINES: Final = 6


class TextReport:
    """Writes the report for people: plain text without colours, for the terminal, paper and mail alike."""

    name: ClassVar[str] = "text"
    needs_times: ClassVar[bool] = False

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write as much of the report as the source wants."""
        if source.detail == "verdicts":
            found = brief_lines(source.document)
        else:
            found = lines(source.document, full=source.detail == "full")
        out.writelines(line + "\n" for line in found)


def brief_lines(document: ReportDocument) -> Iterator[str]:
    """Yield the verdicts alone, one on each line; figures where there is nothing to compare."""
    if document.incomplete:
        yield one_line(f"INCOMPLETE {_missing(document.totals)}{'; '.join(document.incomplete)}")
    verdicts = document.verdicts
    between = between_runs_of(verdicts)
    if verdicts is not None and verdicts.comparisons:
        if verdicts is not between:
            yield from map(one_line, verdict_lines(verdicts.comparisons))
        if between is not None:
            yield from (f"against earlier runs: {line}" for line in answer_lines(between))
        return
    for entry, name in zip(document.treatments, treatment_names(document), strict=True):
        job = entry.operations.get("job")
        time = "" if job is None or not job.n else f"job p50 {format_value(job.percentiles_s['p50'], 's')}, "
        yield one_line(f"{name}: {time}{entry.jobs.done:,} done, {entry.jobs.failed:,} failed")


def lines(document: ReportDocument, *, full: bool = False) -> Iterator[str]:
    """Yield the report's first page, and with `full` all else; no line is longer than the page is wide."""
    page = list(_first_page(document, full=full))
    ending = list(_ending(document))
    hidden = []
    if not full:
        for title, body in _extras(document):
            if len(page) + len(body) + len(ending) + 4 <= PAGE:
                page += section(title, body)
            elif body:
                hidden.append(title.lower())
    yield from page
    if full:
        yield from details(document)
    else:
        yield ""
        yield from ending
        hidden += ["each treatment"] if len(document.treatments) > 1 else []
        yield from paragraph(f"More with -v: {', '.join([*hidden, 'hosts', 'harness', 'notes'])}.", hanging=2)


def _first_page(document: ReportDocument, *, full: bool) -> Iterator[str]:
    yield from heading(f"Weighbridge report: {one_line(str(document.scenario.name))}", "=")
    yield from _warning_banners(document)
    verdicts = document.verdicts
    if verdicts is not None and verdicts.comparisons and verdicts.design.unit != "run":
        yield from _verdicts(document, verdicts, full=full)
    else:
        yield from _figures(document, full=full)
    between = between_runs_of(verdicts)
    if between is not None:
        yield from section("Against earlier runs", text_lines(between, verbose=full))
    most = None if full else _ITEMS
    yield from section("Thresholds", _thresholds(document, full=full))
    yield from section("Gates", gate_lines(() if verdicts is None else verdicts.gates))
    yield from section("Warnings", _items(map(one_line, document.warnings), most))
    yield from section("Errors", _errors(document, full=full))


def _figures(document: ReportDocument, *, full: bool) -> Iterator[str]:
    """Yield the figures of a run that has nothing to compare."""
    names = treatment_names(document)
    yield ""
    if names and document.no_verdict:
        yield from paragraph(f"No verdict: {one_line(document.no_verdict)}.")
        yield ""
    if len(names) == 1:
        yield from heading(names[0], "-")
        yield from treatment_block(document.treatments[0], document, full=full)
    elif names:
        yield from overview_table(document, names)


def _verdicts(document: ReportDocument, verdicts: VerdictsReport, *, full: bool) -> Iterator[str]:
    """Yield the answer, the table behind it, and how far to trust it."""
    yield ""
    yield from paragraph(one_line(verdicts.question), hanging=2)
    yield ""
    yield from paragraph(verdicts.answer, indent=2, hanging=4)
    tables = verdict_tables(document)
    room = _ROWS if sum(len(table.rows) for table in tables) <= _ROWS else _FIRST_ROWS
    hidden, limit = 0, ""
    for table in tables:
        shown = len(table.rows) if full else min(len(table.rows), room)
        room -= shown
        if not shown:
            hidden += len(table.rows)
            continue
        if table.remark != limit:
            yield from paragraph(limit, indent=2, hanging=4)
        limit = table.remark
        yield ""
        yield from _verdict_table(table, shown)
    # What limits one table after the other alike is said once, after the last of them.
    yield from paragraph(limit, indent=2, hanging=4)
    if hidden:
        yield f"  ... and {hidden} in other tables with -v"
    yield ""
    yield from paragraph(" ".join(trust_sentences(document)), indent=2)
    yield from _items(warnings(document), None if full else _ITEMS)
    if full:
        for note in notes(document):
            yield from paragraph(f"- {note}", indent=2, hanging=4)
    if text := looked_for(verdicts):
        yield from paragraph(text, indent=2, hanging=4)


def _verdict_table(table: VerdictTable, shown: int) -> Iterator[str]:
    """Yield the first rows of a table, with what limits a verdict under its row."""
    if table.caption:
        yield from paragraph(table.caption, indent=2, hanging=4)
    rows = table.rows[:shown]
    shared = table.shared_remarks()
    # The title and each row is one line of the aligned table, or several where the page is too narrow.
    aligned = fit_table(table.columns, [row.cells for row in rows])
    if len(aligned) == len(rows) + 1:
        yield aligned[0]
        for line, row in zip(aligned[1:], rows, strict=True):
            yield line
            if row.remark and row.remark not in shared:
                yield from paragraph(row.remark, indent=6, hanging=6)
    else:
        yield from aligned
        for row in rows:
            if row.remark and row.remark not in shared:
                yield from paragraph(f"{row.name}: {row.remark}", indent=4, hanging=6)
    for remark, names in shared.items():
        yield from paragraph(f"{names}: {remark}", indent=4, hanging=6)
    if shown < len(table.rows):
        yield f"  ... and {len(table.rows) - shown} more with -v"


def _items(texts: Iterable[str], most: int | None) -> Iterator[str]:
    """Yield what to be careful about; at most so many items, and how many more there are."""
    found = list(texts)
    shown = found if most is None or len(found) <= most + 1 else found[:most]
    for text in shown:
        yield from paragraph(f"! {text}", indent=2, hanging=4)
    if len(shown) < len(found):
        yield f"  ! {len(found) - len(shown)} more with -v"


def _extras(document: ReportDocument) -> list[tuple[str, list[str]]]:
    """Return sections that are on the first page if it has room for them."""
    names = treatment_names(document)
    several = len(names) > 1
    remarks = [line for one in document.remarks for line in paragraph(f"{one_line(one)}.", indent=2, hanging=4)]
    found = [("Remarks", remarks)]
    if several:
        found += [("Scaling", list(scaling_tables(document, common_labels(document))))]
        found += [("Side by side", list(side_lines(document, full=False)))]
        found += [("Packings", list(_packings(document, names)))]
    found += [("Objects", population_table(document, names))]
    found += [("Engine overhead", overhead_table(document, names))]
    found += [("Published figures", list(published_lines(document.published)))]
    return found


def _packings(document: ReportDocument, names: Sequence[str]) -> Iterator[str]:
    for entry, name in zip(document.treatments, names, strict=True):
        table = list(packing_table(entry))
        if table:
            yield from paragraph(name, indent=2, hanging=4)
            yield from table[1:]


def _ending(document: ReportDocument) -> Iterator[str]:
    """Yield which run this is, and its jobs."""
    run, totals = document.run, document.totals
    if run.imported:
        yield from field("imported", f"{run.run_id}, {format_time(run.imported.at)}")
    else:
        yield from field("run", f"{run.run_id}, {format_time(run.created)}, took {format_span(totals.duration_s)}")
    if run.resumes:
        yield from field("resumed", "once" if len(run.resumes) == 1 else f"{len(run.resumes)} times")
    yield from field("jobs", totals_text(totals, document.treatments))


def _missing(totals: TotalsReport) -> str:
    if not totals.missing:
        return ""
    return f"{totals.missing:,} of {totals.planned:,} planned jobs are missing; "


def _warning_banners(document: ReportDocument) -> Iterator[str]:
    """Yield what to know before reading any figure."""
    run = document.run
    if run.noop:
        yield from _banner(
            "NO-OP", "nothing was executed. The figures show the harness's own maximum, not an engine."
        )
    if run.imported:
        yield from _banner("IMPORTED", "measured elsewhere. Only what the files below contain is known.")
    if document.incomplete:
        yield from _banner("INCOMPLETE", one_line(f"{_missing(document.totals)}{'; '.join(document.incomplete)}"))
    for entry in document.treatments:
        if entry.skipped:
            yield from _banner("SKIPPED", one_line(f"{entry.title} (optional): {entry.skipped}"))


def _banner(word: str, text: str) -> list[str]:
    return ["", *paragraph(f"*** {word}{': ' if text else ''}{text}", hanging=4)]


def _thresholds(document: ReportDocument, *, full: bool) -> Iterator[str]:
    passed = []
    for threshold in dict.fromkeys(verdict.threshold for verdict in document.thresholds):
        verdicts = [verdict for verdict in document.thresholds if verdict.threshold == threshold]
        missed = [verdict for verdict in verdicts if not verdict.passed]
        if not missed:
            passed.append(f"passed  {one_line(threshold)}  ({plural(len(verdicts), 'treatment')})")
            continue
        has_failed = any(document.threshold_state(verdict) == "failed" for verdict in missed)
        word = "FAILED" if has_failed else "UNDECIDED"
        yield from paragraph(f"{word}  {one_line(threshold)}", indent=2, hanging=10)
        for verdict in missed if full else missed[:_ITEMS]:
            yield from paragraph(one_line(verdict.message), indent=10, hanging=12)
        if not full and len(missed) > _ITEMS:
            yield f"          {len(missed) - _ITEMS} more with -v"
    if not full and len(passed) > _ITEMS:
        passed = [f"passed  {plural(len(passed), 'threshold')}"]
    for text in passed:
        yield from paragraph(text, indent=2, hanging=10)


def _errors(document: ReportDocument, *, full: bool) -> Iterator[str]:
    names = treatment_names(document)
    short = {entry.title: name for entry, name in zip(document.treatments, names, strict=True)}
    groups = document.errors if full or len(document.errors) <= _ITEMS else document.errors[:_ITEMS]
    most = _MESSAGE_LINES if full else _SHORT_MESSAGE
    for group in groups:
        where = "; ".join(short[title] for title in group.treatments)
        warmup = f", {group.warmup:,} of them in warm-up" if group.warmup else ""
        head = f"{group.count:,} x {group.operation}: {group.kind}{warmup} ({where})"
        yield from paragraph(one_line(f"{head}, such as job {group.job}:"), indent=2, hanging=4, lines=4)
        shown = [line for line in escape_lines(group.message).splitlines() if line.strip()]
        # The reason of a failure is as often in its last line as in its first.
        last = shown[-1:] if len(shown) > most else []
        for line in shown[: most - len(last)]:
            yield from paragraph(line.strip(), indent=6, hanging=8, lines=2)
        if last:
            yield f"      ... {len(shown) - most} more lines in the stats file"
        for line in last:
            yield from paragraph(line.strip(), indent=6, hanging=8, lines=2)
    if len(groups) < len(document.errors):
        yield f"  {len(document.errors) - len(groups)} more kinds of errors with -v"
