"""The HTML page of verdicts between runs: the answer, how far to trust it, the table, and what it rests on.

It has the style and the policy of a run's page: it loads nothing and needs no script.
"""

from __future__ import annotations

from typing import TextIO

from bench_common import __version__
from bench_common.safe_text import one_line
from bench_master.analysis.trust import judge_verdicts
from bench_master.analysis.verdict_types import GateReport, PropertyReport, VerdictsReport
from bench_master.reports.comparison import changes_table, comparisons_table, flag_lines, remark_lines
from bench_master.reports.html import render_page
from bench_master.reports.table import Field, Table, table_of, words


def write_html(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write the page."""
    flags = list(flag_lines(verdicts))
    tables = (
        comparisons_table(verdicts),
        changes_table(verdicts.archive),
        _gates(verdicts),
        _differences(verdicts),
    )
    out.write(
        render_page(
            "comparison.html.j2",
            title=one_line(verdicts.question),
            answer=one_line(verdicts.answer),
            trust=judge_verdicts(verdicts).sentence,
            warnings=flags,
            tables=[table.shown() for table in tables if table.rows],
            remarks=[line for line in remark_lines(verdicts) if line not in flags],
            version=__version__,
        )
    )


def _gates(verdicts: VerdictsReport) -> Table:
    fields: list[Field[GateReport]] = [
        words("gate", lambda one: one.gate),
        words("state", lambda one: one.state),
        words("outcome", lambda one: one.text),
    ]
    return table_of("Gates", "What the exit code depends on.", fields, verdicts.gates)


def _differences(verdicts: VerdictsReport) -> Table:
    fields: list[Field[PropertyReport]] = [
        words("property", lambda one: one.name),
        words("values", lambda one: " -> ".join(one.values.values())),
        words("what follows", lambda one: one.level),
    ]
    caption = "Besides what is compared."
    return table_of("What differs between the sides", caption, fields, verdicts.environment.differences)
