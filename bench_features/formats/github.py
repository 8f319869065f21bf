"""The GitHub report: a job summary in Markdown, with the verdict first, the table of effects and the warnings.

``--format github=$GITHUB_STEP_SUMMARY`` shows it on the page of a workflow run. GitHub drops a summary of more than
1 MiB whole, so a longer one ends after its last line that fits, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, TextIO

from bench_common.safe_text import one_line, shorten
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import Column, format_span, format_value, markdown_table
from bench_master.formatting import escape_markdown as escape
from bench_master.reports import ReportSource
from bench_master.reports.comparison import between_runs_of, markdown_lines
from bench_master.reports.markdown import notices
from bench_master.reports.side_by_side import treatment_names
from bench_master.reports.text_details import format_time, overview_cells, totals_text
from bench_master.reports.verdict_text import trust_sentences, verdict_tables, warnings

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
        room = MAX_BYTES - len(_CUT.encode())
        for line in _lines(source):
            room -= len(line.encode("utf-8", "backslashreplace")) + 1
            if room < 0:
                out.write(_CUT)
                return
            out.write(f"{line}\n")


def _lines(source: ReportSource) -> Iterator[str]:
    document = source.document
    yield f"## Weighbridge: {_escaped(str(document.scenario.name))}"
    yield ""
    yield from notices(document)
    verdicts = document.verdicts
    if verdicts is not None and verdicts.comparisons and verdicts.design.unit != "run":
        yield from _effects(document, verdicts)
    elif document.treatments:
        if document.no_verdict:
            yield _escaped(f"No verdict: {document.no_verdict}.")
            yield ""
        yield from markdown_table(*overview_cells(document, treatment_names(document)))
    between = between_runs_of(verdicts)
    if between is not None:
        yield ""
        yield from markdown_lines(between)
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
        remarks = [f"{row.name}: {row.remark}" for row in table.rows if row.remark]
        yield from _bullets([*remarks, *filter(None, [table.remark])])
    yield ""
    yield " ".join(map(_escaped, trust_sentences(document)))


def _checks(source: ReportSource) -> Iterator[str]:
    """Yield a table of gates and thresholds, those that did not pass first."""
    document = source.document
    rows = [(gate.state.upper(), gate.gate, gate.text) for gate in source.gates]
    for threshold in document.thresholds:
        state = document.threshold_state(threshold).upper()
        value = "" if threshold.passed and threshold.value is None else threshold.message
        rows.append((state, threshold.threshold, value or format_value(threshold.value, "")))
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
