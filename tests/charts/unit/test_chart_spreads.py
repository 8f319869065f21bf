"""What the trials say of a measure, names at the ends of lines, and charts that a page leaves out."""

import math
import xml.etree.ElementTree as ET

import pytest
from chart_runs import run_of_two_engines, with_everything
from msgspec.structs import replace

from bench_features.charts import CHART_MODULES, draw_chart
from bench_features.charts.layout import ChartSource
from bench_master.reports.html import HtmlReport, first_tables, page_tables
from bench_master.run_data.measured import MeasuredRun
from bench_master.verdicts.spread import spread_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of_two_engines(tmp_path_factory.mktemp("charts") / "run.stats.gz")


def test_six_trials_have_an_exact_interval_and_five_a_range():
    """With six values the 95 % interval of signed ranks is from the smallest to the largest; five are too few."""
    six = spread_of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], log=False)
    assert (six.middle, six.low, six.high, six.is_interval) == (3.5, 1.0, 6.0, True)
    five = spread_of([5.0, 1.0, 2.0, 3.0, 4.0], log=False)
    assert (five.middle, five.low, five.high, five.is_interval) == (3.0, 1.0, 5.0, False)
    many = spread_of([float(value) for value in range(1, 21)], log=False)
    assert many.is_interval
    assert 1.0 < many.low < many.middle < many.high < 20.0


def test_rates_are_compared_as_ratios():
    """With a logarithm the middle of 1 and 100 is 10; what is not positive has no ratio."""
    assert spread_of([1.0, 100.0], log=True).middle == pytest.approx(10.0)
    assert spread_of([0.0, math.nan], log=True) is None
    assert spread_of([], log=False) is None


def test_a_table_has_a_column_for_each_label_that_varies(run):
    """Treatments are told apart by their labels, and what is the same in all rows is said once."""
    _, document = run
    tables = {table.name: table for table in page_tables(document)}
    assert [column.title for column in tables["Treatments"].columns][:3] == ["engine", "concurrency", "trials"]
    # The first screen has them all.
    assert "Comparisons" not in tables
    (comparisons,) = first_tables(document)
    assert [column.title for column in comparisons.columns][:3] == ["engine", "concurrency", "verdict"]
    for table in tables.values():
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_page_of_more_than_forty_treatments_has_the_forest_and_tables(run, tmp_path):
    """The other charts could not be read; the page says how to have them."""
    _, document = run
    many = replace(
        document,
        treatments=[
            replace(each, title=f"{each.title} {place}", treatment={**each.treatment, "engine": f"e{place}"})
            for place, each in enumerate([*document.treatments] * 11)
        ],
    )

    class Source:
        document = many
        run = None

    path = tmp_path / "page.html"
    with path.open("w") as out:
        HtmlReport().write(Source, out)
    text = path.read_text()
    assert [name for name in CHART_MODULES if f'<h2 id="{name}">' in text] == ["forest"]
    assert "With more than 40 treatments" in text
    assert text.count("<table") >= 3
    assert len(text.encode()) < 2_000_000


@pytest.mark.parametrize("name", CHART_MODULES)
def test_what_misleads_is_not_drawn(run, name):
    """No curve is smoothed, nothing shines or has a third dimension, and what is filled begins at 0."""
    stats, document = run
    picture = draw_chart(name, ChartSource(with_everything(document), MeasuredRun(stats)), theme="paper")
    root = ET.fromstring(picture.svg())
    tags = {child.tag.rpartition("}")[2] for child in root.iter()}
    assert tags <= {"svg", "title", "desc", "text", "path", "rect"}
    paths = [each.get("d", "") for each in root.iter() if each.tag.endswith("path")]
    assert not [path for path in paths if set(path) & set("CcSsQqTt")]
    # Areas: of the CPU and its strips, bars of phases, the band around a slope; all on axes from 0.
    if name in ("host", "phases"):
        assert "logarithmic" not in picture.caption or "Dots where" in picture.caption
        assert "at 0." in picture.caption or "Dots where" in picture.caption
