"""The text report, for a person in front of a terminal: the answer first, and how far it can be trusted.

The first page fits a screen: what is missing, the verdicts, what they rest on, thresholds, gates, warnings, errors.
With ``-v`` all other figures follow it (`text_details`); with ``-q`` there is only the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, Final, TextIO

from bench_common.safe_text import escape_lines, one_line
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.trust import short_names
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import field, fit_table, format_span, heading, paragraph, plural
from bench_master.reports import ReportSource
from bench_master.reports.comparison import answers, between_runs_of, text_lines
from bench_master.reports.side_by_side import side_lines
from bench_master.reports.store_tables import population, store_operations
from bench_master.reports.table import table_text
from bench_master.reports.tables import figures, overhead, overview, packings, published
from bench_master.reports.text_details import details, format_time, incomplete_text, notices, section, totals_text
from bench_master.reports.traced import why_lines
from bench_master.reports.values_text import only_value, value_sentences
from bench_master.reports.verdict_text import (
    MOST_NEIGHBOURS,
    VerdictTable,
    claim_lines,
    gate_lines,
    looked_for,
    neighbour_text,
    no_verdict_text,
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

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write as much of the report as the source wants."""
        if source.detail == "answer":
            found = brief_lines(source.document)
        else:
            found = lines(source.document, full=source.detail == "full")
        out.writelines(line + "\n" for line in found)


def brief_lines(document: ReportDocument) -> Iterator[str]:
    """Yield the answer alone, the sentence of the first page; figures where there is nothing to compare."""
    if document.incomplete:
        yield f"{document.run_state.upper()}: {incomplete_text(document)}"
    yield from answer_lines(document)


def answer_lines(document: ReportDocument) -> Iterator[str]:
    """Yield the answer as the first page has it, whether the run is complete or not; figures where there is none."""
    if found := answers(document.verdicts):
        yield from found
        return
    yield from value_sentences(document)


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
    if full or len(page) + len(ending) > _SCREEN:
        yield from _answer_again(document)


_SCREEN: Final = 30
"""Rows of a terminal."""


def _answer_again(document: ReportDocument) -> Iterator[str]:
    """Yield the answer once more: of so many lines a terminal shows the last ones."""
    verdicts = document.verdicts
    if answer := only_value(document) if verdicts is None else verdicts.answer if verdicts.comparisons else "":
        yield ""
        yield from paragraph(answer, hanging=2)


def _first_page(document: ReportDocument, *, full: bool) -> Iterator[str]:
    subject, name = document.scenario.subject, one_line(str(document.scenario.name))
    yield from heading(subject or f"Weighbridge report: {name}", "=")
    for notice in notices(document):
        yield from ["", *paragraph(f"*** {notice}", hanging=4)]
    verdicts = document.verdicts
    between = between_runs_of(verdicts)
    if between is not None:
        # Who names an earlier run asks this first.
        yield from section("Against earlier runs", text_lines(between, verbose=full))
    if verdicts is not None and verdicts.comparisons and verdicts.design.unit != "run":
        if between is not None:
            yield ""
            yield from heading("Within this run", "-")
        yield from _verdicts(document, verdicts, full=full)
    else:
        yield from _measures(document, full=full)
        yield from paragraph(one_line(document.trust.sentence), indent=2, hanging=4)
    names = short_names(document.treatments)
    if not full:
        if len(names) > 1:
            # What the containers take is what a packing is for, and what a store does what its load is for.
            for table in (packings(document), store_operations(document, full=False)):
                if 0 < len(table.rows) <= _ROWS:
                    yield from section(table.name, table_text(replace(table, caption="")))
        # Who has treatments traced asks for it.
        yield from section("Why", why_lines(document, names, most=_ITEMS))
    most = None if full else _ITEMS
    yield from section("Claims", claim_lines(None if verdicts is None else verdicts.claims))
    yield from section("Thresholds", _thresholds(document, full=full))
    # Those on earlier runs stand below their verdicts.
    gates = [] if verdicts is None else [one for one in verdicts.gates if between is None or one not in between.gates]
    yield from section("Gates", gate_lines(gates))
    yield from section("Warnings", _items(map(one_line, document.warnings), most))
    yield from section("Errors", _errors(document, full=full))


def _measures(document: ReportDocument, *, full: bool) -> Iterator[str]:
    """Yield the figures of a run that has nothing to compare."""
    names = short_names(document.treatments)
    yield ""
    if value := only_value(document):
        yield from paragraph(value, indent=2, hanging=4)
        yield ""
    if names and (why := no_verdict_text(document)):
        yield from paragraph(f"No verdict: {why}.")
        yield ""
    if len(names) > 1 and not full:
        yield from [*table_text(overview(document)), ""]
    elif names and not full:
        for table in figures(document):
            # A note that stands above it already is not said again.
            rest = replace(table, caption="", notes=[note for note in table.notes if note not in value])
            yield from [*table_text(rest), ""]


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
    yield from paragraph(neighbour_text(verdicts, None if full else MOST_NEIGHBOURS), indent=2, hanging=4)
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
    if not table.fits():
        table = table.merged()
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
    several = len(document.treatments) > 1
    remarks = [line for one in document.remarks for line in paragraph(f"{one_line(one)}.", indent=2, hanging=4)]
    # A verdict says what limits it; else remarks are all that does.
    found = [("Remarks", [] if document.verdicts is not None else remarks)]
    tables = [population(document), overhead(document)]
    if several:
        found += [("Side by side", list(side_lines(document, full=False)))]
        long = (packings(document), store_operations(document, full=False))
        tables = [*(table for table in long if len(table.rows) > _ROWS), *tables]
    found += [(table.name, list(table_text(table))) for table in tables if table.rows]
    return [*found, ("Published figures", [line for table in published(document) for line in table_text(table)])]


def _ending(document: ReportDocument) -> Iterator[str]:
    """Yield which run this is, and its jobs."""
    run, totals = document.run, document.totals
    if document.scenario.subject:
        yield from field("scenario", one_line(str(document.scenario.name)))
    if run.imported:
        yield from field("imported", f"{run.run_id}, {format_time(run.imported.at)}")
    else:
        yield from field("run", f"{run.run_id}, {format_time(run.created)}, took {format_span(totals.duration_s)}")
    if run.resumes:
        yield from field("resumed", "once" if len(run.resumes) == 1 else f"{len(run.resumes)} times")
    yield from field("jobs", totals_text(totals, document.treatments))


def _thresholds(document: ReportDocument, *, full: bool) -> Iterator[str]:
    """Yield each threshold that does not hold; with `full` those that do, too."""
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
    for text in passed if full else ():
        yield from paragraph(text, indent=2, hanging=10)


def _errors(document: ReportDocument, *, full: bool) -> Iterator[str]:
    names = short_names(document.treatments)
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
