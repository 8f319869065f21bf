"""The HTML page of verdicts between runs: the answer, how far to trust it, the table, and what it rests on.

It has the style and the policy of a run's page: it loads nothing and needs no script.
"""

from __future__ import annotations

from typing import TextIO

from bench_common import __version__
from bench_common.safe_text import one_line
from bench_master.analysis.trust import judge_verdicts
from bench_master.analysis.verdict_types import VerdictsReport, change_text, interval_text
from bench_master.formatting import MISSING, Column, format_value
from bench_master.reports.comparison import flag_lines, remark_lines
from bench_master.reports.html import hash_source, page_environment, page_style, template_text
from bench_master.reports.table import Cell, Table


def write_html(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write the page."""
    style, script = page_style(), template_text("page.js")
    flags = list(flag_lines(verdicts))
    tables = (_comparisons(verdicts), _gates(verdicts), _differences(verdicts))
    page = page_environment().get_template("comparison.html.j2")
    out.write(
        page.render(
            title=one_line(verdicts.question),
            answer=one_line(verdicts.answer),
            trust=judge_verdicts(verdicts).sentence,
            warnings=flags,
            tables=[table for table in tables if table.rows],
            remarks=[line for line in remark_lines(verdicts) if line not in flags],
            version=__version__,
            policy=f"default-src 'none'; style-src {hash_source(style)}; script-src {hash_source(script)}; "
            "img-src data:; base-uri 'none'; form-action 'none'",
            style=style,
            script=script,
        )
    )


def _comparisons(verdicts: VerdictsReport) -> Table:
    columns = [Column("treatment", left=True), Column("verdict", left=True), Column("earlier"), Column("new")]
    columns += [Column("difference"), Column("interval"), Column("measure", left=True)]
    rows = [
        [
            Cell(one_line(each.name), left=True),
            Cell(each.word, left=True),
            Cell(_shown(format_value(each.a_value, each.unit)), each.a_value),
            Cell(_shown(format_value(each.b_value, each.unit)), each.b_value),
            Cell(_shown(change_text(each)), each.ratio),
            Cell(_shown(interval_text(each)), each.low),
            Cell(one_line(each.measure), left=True),
        ]
        for each in verdicts.comparisons
    ]
    return Table("Comparisons", "Each treatment against itself in the earlier runs.", columns, rows)


def _gates(verdicts: VerdictsReport) -> Table:
    columns = [Column("gate", left=True), Column("state", left=True), Column("outcome", left=True)]
    rows = [[Cell(one_line(text), left=True) for text in (one.gate, one.state, one.text)] for one in verdicts.gates]
    return Table("Gates", "What the exit code depends on.", columns, rows)


def _differences(verdicts: VerdictsReport) -> Table:
    columns = [Column("property", left=True), Column("values", left=True), Column("what follows", left=True)]
    rows = [
        [Cell(one_line(text), left=True) for text in (each.name, " -> ".join(each.values.values()), each.level)]
        for each in verdicts.environment.differences
    ]
    return Table("What differs between the sides", "Besides what is compared.", columns, rows)


def _shown(text: str) -> str:
    return MISSING if text == "-" else text
