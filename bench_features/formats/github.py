"""The GitHub report: a job summary in Markdown, with the verdict first, the table of effects and the warnings.

A run of a workflow adds it to the page of its job by itself (`bench_master.options.report.job_summary`). GitHub drops
a summary of more than 1 MiB whole, so a longer one ends after its last line that fits, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, TextIO

from bench_common.safe_text import one_line, shorten
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import Column, format_span, markdown_table
from bench_master.formatting import escape_markdown as escape
from bench_master.reports import ReportSource
from bench_master.reports.comparison import between_runs_of, markdown_lines
from bench_master.reports.markdown import notices
from bench_master.reports.table import markdown_of
from bench_master.reports.tables import overview
from bench_master.reports.text_details import format_time, totals_text
from bench_master.reports.values_text import only_value
from bench_master.reports.verdict_text import (
    neighbour_text,
    no_verdict_text,
    trust_sentences,
    verdict_tables,
    warnings,
)

MAX_BYTES: Final = (1 << 20) - 4096
"""Of a summary, in UTF-8; what else the step writes into it needs some room, too."""
_CUT: Final = "\n> The report is longer than GitHub shows, and ends here; the stats file has all of it.\n"
_ERRORS: Final = 20
_MESSAGE_CHARS: Final = 300
_NAME_CHARS: Final = 2000
_CELL_CHARS: Final = 300
"""How much of one text of a run is shown, and in a cell of a table, in characters."""


class GithubReport:
    """Writes GitHub Flavored Markdown of less than 1 MiB; texts of the run cannot be markup, links or mentions."""

    name: ClassVar[str] = "github"
    needs_times: ClassVar[bool] = False

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the summary."""
        _write_what_fits(_lines(source), out)


def write_comparison(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write verdicts between runs as a summary: the answer first, then gates."""
    _write_what_fits(_comparison_lines(verdicts), out)


def _write_what_fits(lines: Iterator[str], out: TextIO) -> None:
    """Write lines until GitHub would drop the summary, and say so."""
    room = MAX_BYTES - len(_CUT.encode())
    for line in lines:
        room -= len(line.encode("utf-8", "backslashreplace")) + 1
        if room < 0:
            out.write(_CUT)
            return
        out.write(f"{line}\n")


def _comparison_lines(verdicts: VerdictsReport) -> Iterator[str]:
    yield "## Weighbridge: runs compared"
    yield ""
    yield from markdown_lines(verdicts)
    yield from _conditions([(gate.state.upper(), gate.gate, gate.text) for gate in verdicts.gates])


def _lines(source: ReportSource) -> Iterator[str]:
    document = source.document
    yield f"## {_escaped(document.scenario.subject or f'Weighbridge: {document.scenario.name}')}"
    yield ""
    yield from notices(document)
    verdicts = document.verdicts
    between = between_runs_of(verdicts)
    if between is not None:
        # Who names an earlier run asks this first.
        yield from markdown_lines(between)
        yield ""
    if verdicts is not None and verdicts.comparisons and verdicts.design.unit != "run":
        yield from _effects(document, verdicts)
    elif document.treatments:
        if value := only_value(document):
            yield f"**{_escaped(value)}**"
            yield ""
        if why := no_verdict_text(document):
            yield _escaped(f"No verdict: {why}.")
            yield ""
        yield from markdown_of(overview(document))
        yield from ("", _escaped(document.trust.sentence))
    yield from _checks(source)
    yield from _section("Warnings", [*warnings(document), *document.warnings])
    errors = [
        f"{group.count:,} x {group.operation}: {group.kind}, such as: "
        f"{shorten(one_line(group.message), _MESSAGE_CHARS)}"
        for group in document.errors[:_ERRORS]
    ]
    yield from _section("Errors", errors)
    yield ""
    run, totals = document.run, document.totals
    when = "imported" if run.imported else f"{format_time(run.created)}, took {format_span(totals.duration_s)}"
    yield _escaped(f"Run {run.run_id}, {when}: {totals_text(totals, document.treatments)}.")


def _effects(document: ReportDocument, verdicts: VerdictsReport) -> Iterator[str]:
    """Yield the answer, the effects of the treatments, and how far to trust them."""
    yield f"**{_escaped(verdicts.answer)}**"
    yield ""
    yield _escaped(verdicts.question)
    for table in verdict_tables(document):
        yield ""
        if table.caption:
            yield f"{_escaped(table.caption)}:"
            yield ""
        cells = [[shorten(cell, _CELL_CHARS) for cell in row.cells] for row in table.rows]
        yield from markdown_table(table.columns, cells)
        yield from _bullets(table.notes(table.rows))
    if text := neighbour_text(verdicts):
        yield ""
        yield _escaped(text)
    yield ""
    yield " ".join(map(_escaped, trust_sentences(document)))


def _checks(source: ReportSource) -> Iterator[str]:
    """Yield a table of gates, claims, and the thresholds that do not hold; those that did not pass first."""
    document = source.document
    rows = [(gate.state.upper(), gate.gate, gate.text) for gate in source.gates]
    claims = document.verdicts.claims if document.verdicts is not None else None
    states = {"kept": "PASSED", "broken": "FAILED", "undecided": "UNDECIDED"}
    rows += [
        (states[claim.state], f"claim {claim.name}: {claim.says} ({claim.measure})", claim.text)
        for claim in (claims.claims if claims is not None else ())
    ]
    rows += [
        (document.threshold_state(one).upper(), one.threshold, one.message)
        for one in document.thresholds
        if not one.passed
    ]
    yield from _conditions(rows)


def _conditions(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a table of conditions by state, those that did not pass first; nothing without any."""
    if not rows:
        return
    yield ""
    yield "### Gates and thresholds"
    yield ""
    columns = [Column("state", left=True), Column("condition", left=True), Column("outcome", left=True)]
    rows.sort(key=lambda row: ("FAILED", "UNDECIDED", "PASSED").index(row[0]))
    yield from markdown_table(columns, [[shorten(one_line(cell), _CELL_CHARS) for cell in row] for row in rows])


def _section(title: str, texts: Iterable[str]) -> Iterator[str]:
    lines = list(_bullets(dict.fromkeys(texts)))
    if lines:
        yield ""
        yield f"### {title}"
        yield from lines


def _bullets(texts: Iterable[str]) -> Iterator[str]:
    shown = [f"- {_escaped(text)}" for text in texts]
    if shown:
        yield ""
    yield from shown


def _escaped(text: str) -> str:
    return escape(shorten(one_line(text), _NAME_CHARS))
