"""The Markdown report: the answer and its tables, to paste into an issue, a pull request or a chat.

Tables are aligned, so that they read well where Markdown is not rendered, too. Texts of scenarios and workers cannot
be markup, HTML, a link or a mention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TextIO

from bench_common.safe_text import one_line, shorten
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import escape_markdown as escape
from bench_master.formatting import format_span, markdown_table
from bench_master.reports import ReportSource
from bench_master.reports.comparison import answers, between_runs_of, markdown_lines
from bench_master.reports.side_by_side import side_tables
from bench_master.reports.store_tables import store_operations
from bench_master.reports.table import markdown_list, markdown_of
from bench_master.reports.tables import overview, packings
from bench_master.reports.text import format_time, notices, totals_text
from bench_master.reports.values_text import only_value
from bench_master.reports.verdict_text import (
    MOST_NEIGHBOURS,
    claim_line,
    looked_for,
    neighbour_text,
    no_verdict_text,
    notes,
    trust_sentences,
    verdict_tables,
    warnings,
)

_ERRORS: Final = 5
_MESSAGE_CHARS: Final = 300
"""How much of an error's text is shown, in characters."""
_COLUMNS: Final = 11
"""Wider tables are only shown with ``-v``."""


class MarkdownReport:
    """Writes GitHub Flavored Markdown: the answer with ``-q``, the first page, and with ``-v`` its notes."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the report."""
        document = source.document
        if source.detail == "answer" and document.verdicts is not None:
            found: Iterable[str] = (*_quoted_notices(document), *map(escape, answers(document.verdicts)))
        else:
            found = _lines(document, full=source.detail == "full")
        out.writelines(f"{line}\n" for line in found)


def _lines(document: ReportDocument, *, full: bool) -> Iterator[str]:
    yield f"### {escape(document.scenario.subject or f'Weighbridge: {document.scenario.name}')}"
    yield ""
    yield from _quoted_notices(document)
    between = between_runs_of(document.verdicts)
    if between is not None:
        # Who names an earlier run asks this first.
        yield from markdown_lines(between)
        yield ""
    if document.verdicts is not None and document.verdicts.comparisons and document.verdicts.design.unit != "run":
        yield from _verdicts(document, document.verdicts, full=full)
    elif document.treatments:
        if value := only_value(document):
            yield f"**{escape(value)}**"
            yield ""
        if why := no_verdict_text(document):
            yield escape(f"No verdict: {why}.")
            yield ""
        yield from markdown_of(overview(document))
        yield from ("", escape(one_line(document.trust.sentence)))
    missed = [one for one in document.thresholds if not one.passed]
    states = [document.threshold_state(one).upper() for one in missed]
    yield from markdown_list(
        [f"{each} {one.threshold}: {one.message}" for each, one in zip(states, missed, strict=True)]
    )
    for side in side_tables(document, full=full):
        if len(side.columns) > _COLUMNS and not full:
            continue
        yield ""
        yield escape(f"Side by side{f', {side.caption}' if side.caption else ''}:")
        yield ""
        yield from markdown_table(side.columns, side.texts)
    for table in (packings(document), store_operations(document, full=False)):
        if table.rows:
            yield from ("", f"{escape(table.name)}:", "")
            yield from markdown_of(table)
    texts = [f"! {warning}" for warning in document.warnings]
    texts += [
        f"! {group.count:,} x {group.operation}: {group.kind}, such as: "
        f"{shorten(one_line(group.message), _MESSAGE_CHARS)}"
        for group in document.errors[:_ERRORS]
        if group.message.strip()
    ]
    yield from markdown_list(texts)
    yield ""
    run, totals = document.run, document.totals
    when = "imported" if run.imported else f"{format_time(run.created)}, took {format_span(totals.duration_s)}"
    yield escape(f"Run {run.run_id}, {when}: {totals_text(totals, document.treatments)}.")


def _verdicts(document: ReportDocument, verdicts: VerdictsReport, *, full: bool) -> Iterator[str]:
    yield escape(verdicts.question)
    yield ""
    yield f"**{escape(verdicts.answer)}**"
    for table in verdict_tables(document):
        yield ""
        if table.caption:
            yield f"{escape(table.caption)}:"
            yield ""
        yield from markdown_table(table.columns, [row.cells for row in table.rows])
        yield from markdown_list([*table.notes(table.rows), *filter(None, [table.remark])])
    if text := neighbour_text(verdicts, None if full else MOST_NEIGHBOURS):
        yield ""
        yield escape(text)
    yield ""
    yield " ".join(map(escape, trust_sentences(document)))
    yield ""
    yield from (f"- {escape(f'! {warning}')}" for warning in warnings(document))
    if full:
        yield from (f"- {escape(note)}" for note in notes(document))
        if text := looked_for(verdicts):
            yield f"- {escape(text)}"
    if verdicts.claims is not None:
        for claim in verdicts.claims.claims:
            yield f"- {escape(f'{claim.state.upper()} claim {claim_line(claim)}')}"
        yield f"- {escape(f'claims registered before the first job, sha256 {verdicts.claims.sha256}')}"
    for gate in verdicts.gates:
        yield f"- {escape(f'{gate.state.upper()} {gate.gate}: {gate.text}')}"


def _quoted_notices(document: ReportDocument) -> Iterator[str]:
    for notice in notices(document):
        yield from (f"> {escape(notice)}", "")
