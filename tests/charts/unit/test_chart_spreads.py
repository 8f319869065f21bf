"""What the trials say of a measure, names at the ends of lines, and charts that a page leaves out."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from chart_runs import run_of_two_engines, with_everything
from msgspec.structs import replace

from bench_features.charts import CHART_MODULES, draw_chart
from bench_features.charts.labels import EndLabel, draw_end_labels
from bench_features.charts.layout import ChartSource
from bench_features.charts.picture import Frame, Picture
from bench_features.charts.scaling import spread_words
from bench_master.reports.html import HtmlReport
from bench_master.reports.html_tables import page_tables
from bench_master.reports.palette import HUES, engine_hue
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


def test_captions_say_what_bars_are():
    """An interval is not called a range, and a range no interval."""
    six, five = spread_of([1, 2, 3, 4, 5, 6], log=False), spread_of([1, 2, 3, 4, 5], log=False)
    assert spread_words([six]) == "Solid bar: 95 % interval over the trials (signed ranks)."
    assert spread_words([five]) == "Dashed bar: range of the trials, too few for an interval."
    assert spread_words([]) == ""


def test_names_at_the_ends_of_lines_do_not_cover_each_other():
    """Lines that end at one place have their names one below the other, in the order of the lines, in the frame."""
    picture = Picture("x", 300)
    picture.extend(100)
    frame = Frame(40, 200, 10, 90)
    draw_end_labels(picture, frame, [EndLabel(80.0, f"name {place}", "blue") for place in range(5)])
    assert [box.text for box in picture.boxes] == [f"name {place}" for place in range(5)]
    for place, box in enumerate(picture.boxes):
        assert box.x0 > frame.right
        assert box.y1 <= frame.bottom + 7
        assert not any(box.covers(other) for other in picture.boxes[:place])


def test_wide_charts_name_their_lines_and_narrow_ones_have_a_key(run):
    """On a narrow screen there is no room at the right."""
    stats, document = run
    source = ChartSource(with_everything(document), MeasuredRun(stats))
    for name in ("trials", "scaling"):
        wide, narrow = (draw_chart(name, source, width) for width in (760, 350))
        assert any(box.text.startswith("docker") and box.x0 > 600 for box in wide.boxes), name
        assert any(box.text == "docker" and box.x0 < 340 for box in narrow.boxes), name


def test_a_table_has_a_column_for_each_label_that_varies(run):
    """Treatments are told apart by their labels, and what is the same in all rows is said once."""
    _, document = run
    tables = {table.name: table for table in page_tables(document)}
    assert [head.text for head in tables["Treatments"].heads][:3] == ["engine", "concurrency", "trials"]
    comparisons = tables["Comparisons"]
    assert "Baseline: native. Measure: job p50." in comparisons.caption
    assert [head.text for head in comparisons.heads][:3] == ["engine", "concurrency", "verdict"]
    for table in tables.values():
        assert {len(row) for row in table.rows} == {len(table.heads)}


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


def test_an_engine_keeps_its_colour_in_every_chart(run):
    """Whatever is drawn of an engine has its one hue, and no other engine has it."""
    stats, document = run
    source = ChartSource(with_everything(document), MeasuredRun(stats))
    native, docker = (engine_hue(engine) for engine in ("native", "docker"))
    assert native != docker
    for name in ("trials", "ecdf", "phases", "scaling"):
        used = set(re.findall(r"var\(--(\w+)\)", draw_chart(name, source).svg())) & set(HUES)
        assert used == {native, docker}, name
