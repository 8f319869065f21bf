"""The GitHub report: the Markdown report as a job summary, which has a limit.

A run of a workflow adds it to the page of its job by itself (`bench_master.options.report.job_summary`). GitHub drops
a summary of more than 1 MiB whole, so a longer one ends after its last line that fits, and says so.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Final, TextIO

from bench_common.safe_text import one_line, shorten
from bench_master.analysis.verdict_types import GateReport, VerdictsReport
from bench_master.formatting import Column, markdown_table
from bench_master.reports import ReportSource
from bench_master.reports.comparison import markdown_lines
from bench_master.reports.markdown import MarkdownReport

MAX_BYTES: Final = (1 << 20) - 4096
"""Of a summary, in UTF-8; what else the step writes into it needs some room, too."""
_CUT: Final = "\n> The report is longer than GitHub shows, and ends here; the stats file has all of it.\n"
_CELL_CHARS: Final = 300
"""How much of one text is shown in a cell of a table, in characters."""


class GithubReport:
    """Writes GitHub Flavored Markdown of less than 1 MiB; texts of the run cannot be markup, links or mentions."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the summary."""
        whole = io.StringIO()
        MarkdownReport().write(source, whole)
        # A report without verdicts names no gates.
        lines = _gate_lines(source.gates) if source.document.verdicts is None else ()
        _write_what_fits((*lines, *whole.getvalue().splitlines()), out)


def write_comparison(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write verdicts between runs as a summary: the answer first, then gates."""
    head = ("## Weighbridge: runs compared", "", *markdown_lines(verdicts))
    _write_what_fits((*head, *_gate_lines(verdicts.gates)), out)


def _write_what_fits(lines: Iterable[str], out: TextIO) -> None:
    """Write lines until GitHub would drop the summary, and say so."""
    room = MAX_BYTES - len(_CUT.encode())
    for line in lines:
        room -= len(line.encode("utf-8", "backslashreplace")) + 1
        if room < 0:
            out.write(_CUT)
            return
        out.write(f"{line}\n")


def _gate_lines(gates: Iterable[GateReport]) -> list[str]:
    """Return a table of gates by state, those that did not pass first; nothing without any."""
    order = ("failed", "undecided", "passed")
    rows = [
        (gate.state.upper(), gate.gate, gate.text) for gate in sorted(gates, key=lambda one: order.index(one.state))
    ]
    columns = [Column("state", left=True), Column("condition", left=True), Column("outcome", left=True)]
    cells = [[shorten(one_line(cell), _CELL_CHARS) for cell in row] for row in rows]
    return ["", "### Gates", "", *markdown_table(columns, cells), ""] if rows else []
