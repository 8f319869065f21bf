"""Charts come from whatever is registered for them; without it reports have tables, and no option to draw."""

import io

import pytest
from chart_runs import run_of_two_engines

from bench_features.charts.chart_sums import ChartSums
from bench_master.cli import build_parser
from bench_master.reports import ReportSource, charts, parts_of, report_named

DRAWING = {"--chart", "--metric", "--by"}


@pytest.fixture
def no_charts(monkeypatch):
    """Let nothing be registered that draws."""
    monkeypatch.setattr(charts, "registered", lambda _group: [])
    charts.registered_charts.cache_clear()
    yield
    charts.registered_charts.cache_clear()


def page_of(stats):
    """Return the HTML report of a run."""
    out = io.StringIO()
    report_named("html").write(ReportSource(stats), out)
    return out.getvalue()


def flags():
    """Return the options of `report-scenario`."""
    return set(build_parser(["report-scenario"]).sub_commands()["report-scenario"]._option_string_actions)


def test_a_page_without_charts_has_tables_alone(no_charts, tmp_path):
    """Verdicts, tables and commands are there; nothing is read for charts."""
    page = page_of(run_of_two_engines(tmp_path / "r.stats.gz")[0])
    assert "<svg" not in page
    assert "<table" in page
    assert 'id="again"' in page
    assert parts_of(["html"]) == frozenset()


def test_without_charts_their_options_are_unknown(no_charts):
    """The others are there."""
    assert flags() & DRAWING == set()
    assert "--pctile" in flags()


def test_with_charts_a_page_has_them(tmp_path):
    """So has the command its options, and what they need is read with the rest."""
    page = page_of(run_of_two_engines(tmp_path / "r.stats.gz")[0])
    assert "<svg" in page
    assert flags() >= DRAWING
    assert {parts_of([name]) for name in ("html", "svg")} == {frozenset({ChartSums})}
