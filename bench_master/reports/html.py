"""The HTML report: one page to look at and to forward, which loads nothing and needs no script.

Verdicts come first, then what limits belief in them, the charts that the run has the data of, tables, and how to run
it again. Each chart is there at two widths, of which CSS shows one. Every text of a run is hostile input: the
template escapes all but our own SVG, style and script, and the page's policy forbids any other.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TextIO

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bench_common import __version__
from bench_common.safe_text import one_line, shorten
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.trust import judge_verdicts
from bench_master.analysis.verdict_types import GateReport, PropertyReport, VerdictsReport
from bench_master.reports import ReportSource
from bench_master.reports.charts import registered_charts
from bench_master.reports.comparison import changes_table, comparisons_table, flag_lines, remark_lines
from bench_master.reports.palette import css_variables
from bench_master.reports.table import Cell, Field, Table, table_of, words
from bench_master.reports.tables import claims, comparisons, conditions, tables
from bench_master.reports.text import format_time, host_facts, notices, totals_text
from bench_master.reports.values_text import only_value
from bench_master.reports.verdict_text import (
    VerdictRow,
    VerdictTable,
    neighbour_text,
    no_verdict_text,
    trust_sentences,
    verdict_tables,
    warnings,
)

LONGEST_TEXT: Final = 2000
"""Characters of one text of a run; of a longer one the middle is left out."""
_FOLDER: Final = "bench_master.reports:templates"
MOST_WARNINGS: Final = 4
"""Of more the others, which weigh less, are folded."""
MOST_ERRORS: Final = 10
"""Groups of errors that are shown, the largest first."""


class HtmlReport:
    """Writes one page with charts, which loads nothing."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the page."""
        out.write(render_page("page.html.j2", **_parts(source)))


def _parts(source: ReportSource) -> dict[str, Any]:
    document, drawing = source.document, registered_charts()
    few, how_to_read = ("", "") if drawing is None else drawing.remarks(document)
    found, tables = list(dict.fromkeys(_warnings(document))), page_tables(document)
    return {
        "document": document,
        "title": document.scenario.subject or document.scenario.name or "Results",
        "answer": _answer(document),
        "neighbours": neighbour_text(document.verdicts),
        "created": format_time(document.run.created) if document.run.created else "",
        "totals": totals_text(document.totals, document.treatments),
        "first": first_tables(document),
        "trust": " ".join(trust_sentences(document)),
        "warnings": found[:MOST_WARNINGS],
        "more_warnings": found[MOST_WARNINGS:],
        "charts": [] if drawing is None else list(drawing.of_page(document, source.run)),
        "few": few,
        "leading": [table for table in tables if table.leads],
        "tables": [table for table in tables if not table.leads],
        "machines": [host_facts(each.fingerprint or {}) for each in document.hosts],
        "remarks": [f"{remark[:1].upper()}{remark[1:]}." for remark in document.remarks],
        "methods": [
            *(f"Certificate {one_line(each.sentence)}." for each in document.run.certificates),
            *_METHODS,
            *filter(None, [how_to_read]),
            _SLOTS,
        ],
        "stats_file": Path(document.stats_file).name,
        "commands": _commands(document),
    }


_METHODS: Final = (
    "Failed jobs and operations enter no duration; they are counted beside each figure.",
    "Percentiles are of the nearest rank, and never averaged.",
)
_SLOTS: Final = "Unless jobs arrive at a rate, a slot begins its next job when the last one ends."


def _warnings(document: ReportDocument) -> Iterator[str]:
    """Yield what limits belief in the figures, the gravest first."""
    yield from notices(document)
    yield from warnings(document)
    yield from document.warnings
    for each in document.thresholds:
        state = document.threshold_state(each)
        if state != "passed":
            yield f"Threshold {state}: {each.message}"
    for error in document.errors[:MOST_ERRORS]:
        yield f"{error.count:,} errors of {error.operation} ({error.kind}), such as: {error.message}"


def _answer(document: ReportDocument) -> str:
    if document.verdicts is None:
        words = no_verdict_text(document)
        return " ".join(filter(None, (only_value(document), f"{words[:1].upper()}{words[1:]}." if words else "")))
    return document.verdicts.answer


_FIRST_ROWS: Final = 12


def first_tables(document: ReportDocument) -> list[Table]:
    """Return the tables of the first screen: those of the text report, with each baseline among its treatments.

    Of many rows it has the first ones; all comparisons are in a table further down.
    """
    room, found = _FIRST_ROWS, []
    for table in verdict_tables(document):
        rows = table.rows[:room]
        room -= len(rows)
        if rows:
            found.append(_first_table(table, rows).shown())
    return found


def _first_table(table: VerdictTable, rows: Sequence[VerdictRow]) -> Table:
    """Return rows of verdicts as a table of the page; a column that is empty in all of them is left out."""
    lefts = [column.left for column in table.columns]
    cells = [[Cell(text, left=left) for text, left in zip(row.cells, lefts, strict=True)] for row in rows]
    notes = [*table.notes(rows), *filter(None, [table.remark])]
    notes += [f"{len(table.rows) - len(rows)} more below"] * (len(rows) < len(table.rows))
    return Table(table.caption or "Verdicts", "", table.columns, cells, notes, sortable=False)


def page_tables(document: ReportDocument) -> list[Table]:
    """Return the tables of a page that have rows, verdicts and what the exit code depends on before the others.

    The verdicts are among them where the first screen has not all.
    """
    is_cut = sum(len(table.rows) for table in verdict_tables(document)) > _FIRST_ROWS
    found = [*([comparisons(document)] if is_cut else []), claims(document), conditions(document)]
    first = [table for table in found if table.rows]
    return [table.shown() for table in (*first, *tables(document))]


def _commands(document: ReportDocument) -> list[str]:
    # Whoever reads the page has the file, if at all, in another folder.
    stats = shlex.quote(one_line(Path(document.stats_file).name or "run.stats.gz"))
    argv = list(document.run.argv)
    seeded = any(word == "--seed" or word.startswith("--seed=") for word in argv)
    if argv and document.run.seed is not None and not seeded:
        argv += ["--seed", str(document.run.seed)]
    return [
        *([shorten(one_line(shlex.join(argv)), LONGEST_TEXT)] if argv else []),
        f"bench-master report-scenario -s {stats} -v",
        f"bench-master report-scenario -s {stats} --format html -f report.html",
        f"bench-master report-scenario -s {stats} --format jsonl",
    ]


# -- what other pages have as well ----------------------------------------------------------------------------------


def render_page(name: str, *folders: str, **parts: Any) -> str:
    """Return a page by its template, which may be in other folders (``PACKAGE:FOLDER``): it loads nothing else."""
    style, script = _template_text("page.css"), _template_text("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash_source(style)}; script-src {_hash_source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = _environment((*folders, _FOLDER)).get_template(name)
    return page.render(**parts, policy=policy, style=style, script=script)


@cache
def _environment(folders: tuple[str, ...]) -> Environment:
    return Environment(
        loader=ChoiceLoader([PackageLoader(*folder.split(":")) for folder in folders]),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else _shown_text(value),
    )


def _shown_text(value: Any) -> str:
    """Return a value of a run as one printable line of a bounded length."""
    return "" if value is None else shorten(one_line(str(value)), LONGEST_TEXT)


@cache
def _template_text(name: str) -> str:
    package, folder = _FOLDER.split(":")
    text = files(package).joinpath(folder, name).read_text("utf-8")
    return text.replace("LIGHT", css_variables("light")).replace("DARK", css_variables("dark"))


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


# -- verdicts between runs -------------------------------------------------------------------------------------------


def write_comparison(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write the page."""
    flags = list(flag_lines(verdicts))
    tables = (comparisons_table(verdicts), changes_table(verdicts.archive), _gates(verdicts), _differences(verdicts))
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
