"""What the reports of recorded runs have and have not: no bare dash for a value, no verdict on a single packing."""

import gzip
import html
import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench_common.stats.reader import StatsFile
from bench_master.formatting import MISSING, Column, fit_table, markdown_table
from bench_master.reports import ReportSource
from bench_master.reports.html import HtmlReport
from bench_master.reports.markdown import MarkdownReport
from bench_master.reports.text import lines

RECORDED = sorted((Path(__file__).parents[2] / "docs" / "data").glob("*.stats.gz"))
PAGES = sorted((Path(__file__).parents[1] / "data" / "pages").glob("*.stats.gz"))
PACKING = next(path for path in RECORDED if "packing" in path.name)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_a_run_that_documents_show_names_no_folder_of_where_it_was_recorded(path):
    """Whatever a block says: what is published tells how to make the run again, not on whose machine it was made."""
    text = gzip.decompress(path.read_bytes())
    assert not re.findall(rb"/(?:home|root|tmp|work|Users|var/folders)/[\w./-]*", text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name.partition(".")[0])
def test_a_run_that_tests_read_names_no_home_or_checkout(path):
    """Folders below /tmp are those of nobody; whose machine it was made on is no part of what a test needs."""
    text = gzip.decompress(path.read_bytes())
    assert not re.findall(rb"/(?:home|root|work|srv|mnt|Users|var/folders)/[\w./-]*", text)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_no_table_has_a_bare_dash_for_a_value(path):
    """Neither the whole text, nor Markdown, nor the page; a table of the page says what is missing."""
    source = ReportSource(StatsFile(path), detail="full")
    assert not [line for line in lines(source.document, full=True) if re.search(r"  -(?:  |$)", line)]
    written = {}
    for report in (MarkdownReport(), HtmlReport()):
        out = io.StringIO()
        report.write(source, out)
        written[report.name] = html.unescape(out.getvalue())
    assert not re.search(r"\| +- +\|", written["markdown"])
    assert not re.search(r"<td[^>]*>-</td>", written["html"])
    if re.search(rf"<td[^>]*>{MISSING}</td>", written["html"]):
        assert f"{MISSING}: not measured" in written["html"]


def test_a_dash_among_the_cells_of_a_table_is_a_missing_value():
    """A column that is spare and has nothing else is left out; titles and longer cells stay."""
    columns = [Column("run", left=True), Column("-"), Column("spare", optional=True)]
    rows = [["a - b", "-", "-"], ["c", "1", "-"]]
    assert fit_table(columns, rows) == ["  run      -", "  a - b  n/a", "  c        1"]
    row = list(markdown_table(columns[:2], [row[:2] for row in rows]))[2]
    assert row.split() == ["|", "a", "-", "b", "|", "n/a", "|"]


def test_the_page_of_a_single_packing_does_not_ask_for_a_comparison():
    """What the containers take is what a packing is for; JSON still says why there is no verdict."""
    source = ReportSource(StatsFile(PACKING))
    assert source.document.no_verdict
    assert not [line for line in lines(source.document) if line.startswith("No verdict")]
    for written in (MarkdownReport(), HtmlReport()):
        out = io.StringIO()
        written.write(source, out)
        assert "only one treatment" not in out.getvalue(), written.name
        assert "Each container: " in out.getvalue(), written.name
    alone = replace(source.document, treatments=[replace(source.document.treatments[0], packing=None)])
    assert [line for line in lines(alone) if line.startswith("No verdict: only one treatment ran")]
