"""What the trials say of a measure, names at the ends of lines, and charts that a page leaves out."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from chart_runs import run_of_two_engines, with_everything
from msgspec.structs import replace

from bench_common.stats.reader import StatsFile
from bench_features.charts import CHART_MODULES, draw_chart
from bench_features.charts.labels import EndLabel, draw_end_labels
from bench_features.charts.layout import ChartSource
from bench_features.charts.picture import Frame, Picture
from bench_features.charts.scaling import spread_words
from bench_master.analysis.document import build_document
from bench_master.analysis.treatment_types import KneeReport
from bench_master.reports.html import HtmlReport
from bench_master.reports.html_tables import page_tables
from bench_master.reports.packing_text import each_text, host_text, knee_text
from bench_master.reports.palette import HUES, engine_hue
from bench_master.reports.text import lines
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.packed_hosts import add_host_slopes
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
    for name in ("trials", "scaling", "tail", "open"):
        wide, narrow = (draw_chart(name, source, width) for width in (760, 350))
        assert any(box.text.startswith("docker") and box.x0 > 600 for box in wide.boxes), name
        assert any(box.text == "docker" and box.x0 < 340 for box in narrow.boxes), name


def test_a_slope_of_memory_has_its_interval(run):
    """What each container takes stands with the ends of its interval."""
    stats, document = run
    caption = draw_chart("packing", ChartSource(with_everything(document), MeasuredRun(stats))).caption
    assert "For each: native " in caption
    assert " MiB [" in caption


def test_what_is_only_an_upper_limit_in_the_text_has_no_line_in_the_chart():
    """Chart and text say one thing: where the host's own changes are as large, how much each takes is not known."""
    packed = StatsFile(Path(__file__).parents[3] / "docs" / "data" / "packing.stats.gz")
    document = build_document(packed)
    limit = max(re.findall(r"(<[0-9.]+)MiB", "\n".join(lines(document))), key=lambda text: float(text[1:]))
    picture = draw_chart("packing", ChartSource(document, MeasuredRun(packed)), 760)
    assert [box.text for box in picture.boxes if "each" in box.text] == [f"docker: {limit} MiB each"]
    assert "For each:" not in picture.caption
    assert "not distinguishable from what the host's memory changed by itself" in picture.caption


def test_the_knee_of_the_chart_is_that_of_the_text():
    """Both have it from one function, and the chart draws what was fitted."""
    packed = StatsFile(Path(__file__).parents[3] / "docs" / "data" / "packing.stats.gz")
    document = build_document(packed)
    (entry,) = document.treatments
    starts = entry.packing.starts
    bent = replace(starts, knee=KneeReport(5.0, 4.0, 7.0, 0.001, 0.02), line=[(1.0, 0.2), (5.0, 0.2), (10.0, 0.3)])
    for one in (starts, bent):
        changed = replace(document, treatments=[replace(entry, packing=replace(entry.packing, starts=one))])
        caption = draw_chart("packing", ChartSource(changed, MeasuredRun(packed)), 760).caption
        text = " ".join(" ".join(lines(changed)).split())
        for said in (knee_text(one), each_text(entry.packing), host_text(entry.packing)):
            assert said
            assert said in caption
            assert said in text
    assert knee_text(bent) == (
        "Knee at 5 containers [4, 7]: each further one takes 1.00 ms more to start before it, 20.0 ms more after it."
    )
    picture = draw_chart("packing", ChartSource(document, MeasuredRun(packed)), 760)
    assert "time until a container is up" in [box.text for box in picture.boxes]


def test_packings_of_different_treatments_have_panels_of_their_own(run):
    """What one engine's containers take with one image is not pooled with what they take with another."""
    stats, document = run
    document = with_everything(document)
    treatments = []
    for place, each in enumerate(document.treatments):
        (trial,) = each.packing.trials
        each_bytes = (place // 2 + 1) * 2**20
        used = trial.memory_before_bytes + trial.containers * each_bytes
        steady = {"memory_used_bytes": replace(trial.steady["memory_used_bytes"], mean=used)}
        trial = replace(trial, steady=steady, memory_per_container_bytes=each_bytes)
        labels = {**each.treatment, "image": ("small", "large")[place // 2]}
        treatments.append(replace(each, packing=replace(each.packing, trials=[trial]), treatment=labels))
    picture = draw_chart(
        "packing", ChartSource(replace(document, treatments=add_host_slopes(treatments, {})), MeasuredRun(stats))
    )
    assert (
        "For each: image small: native 1 MiB [1 MiB to 1 MiB], docker 1 MiB [1 MiB to 1 MiB]; "
        "image large: native 2 MiB [2 MiB to 2 MiB], docker 2 MiB"
    ) in picture.caption
    headings = [box.text for box in picture.boxes if "memory in use" in box.text]
    assert [text.partition(":")[0] for text in headings] == ["image small", "image large"]


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
    if name in ("host", "phases", "packing"):
        assert "logarithmic" not in picture.caption or "Dots where" in picture.caption
        assert "at 0." in picture.caption or "Dots where" in picture.caption


def test_an_engine_keeps_its_colour_in_every_chart(run):
    """Whatever is drawn of an engine has its one hue, and no other engine has it."""
    stats, document = run
    source = ChartSource(with_everything(document), MeasuredRun(stats))
    native, docker = (engine_hue(engine) for engine in ("native", "docker"))
    assert native != docker
    for name in ("trials", "ecdf", "tail", "phases", "scaling", "packing", "open", "heat"):
        used = set(re.findall(r"var\(--(\w+)\)", draw_chart(name, source).svg())) & set(HUES)
        assert used == {native, docker}, name
