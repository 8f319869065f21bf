"""The charts of a run: no text leaves its picture, captions say what was drawn, and colours can be told apart."""

import io
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from builders import StatsBuilder, header, lifecycle_run, treatment_wire, write_report
from chart_runs import HOSTILE, run_of_two_engines, with_everything
from msgspec.structs import replace

from bench_common.errors import UsageError
from bench_common.stats.reader import StatsFile
from bench_features.charts import CHART_MODULES, NARROW, WIDE, draw_chart
from bench_features.charts.chart_sums import MOST_JOBS, MOST_QUANTILES, TIME_BINS, ChartSums
from bench_features.charts.effects import turn
from bench_features.charts.layout import ChartSource, NoChartError
from bench_features.charts.picture import cut_text, text_width, wrap_text
from bench_features.charts.scales import Scale, linear, log_if_wide
from bench_features.charts.svg import report_chart
from bench_master.analysis.document import build_document
from bench_master.cli import run_command_line
from bench_master.reports import ReportSource
from bench_master.run_data.measured import MeasuredRun

ONE_ROUND = Path(__file__).parents[2] / "data" / "pages" / "one-round.stats.gz"
"""A comparison of a single round."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run and its document."""
    return run_of_two_engines(tmp_path_factory.mktemp("charts") / "run.stats.gz")


def assert_fits(picture):
    """No text leaves the picture, none covers another, and the SVG is well-formed, with and without its caption."""
    for place, box in enumerate(picture.boxes):
        assert box.x0 >= 0, box
        assert box.x1 <= picture.width, box
        assert box.y0 >= 0, box
        assert box.y1 <= picture.height, box
        assert [other for other in picture.boxes[:place] if box.covers(other)] == [], box
    for standalone in (False, True):
        root = ET.fromstring(picture.svg(standalone=standalone))
        assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]
        assert all(child.text for child in root[:2])


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", CHART_MODULES)
def test_every_chart_fits_its_box(run, name, width):
    """Each chart is drawn at both widths, and no text leaves it or covers another."""
    stats, document = run
    picture = draw_chart(name, ChartSource(with_everything(document), MeasuredRun(stats)), width)
    assert picture.caption
    assert picture.title
    assert_fits(picture)


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("name", CHART_MODULES)
def test_names_of_a_run_cannot_steer_a_picture(run, name, words):
    """A label of any kind is text, escaped and cut to its box."""
    stats, document = run
    document = with_everything(document)
    hostile = replace(
        document,
        treatments=[
            replace(
                each, title=words, treatment={**each.treatment, "job": words, "environment": f"{words}{place % 2}"}
            )
            for place, each in enumerate(document.treatments)
        ],
        verdicts=replace(
            document.verdicts,
            comparisons=[
                replace(each, name=words, group=words, measure=words) for each in document.verdicts.comparisons
            ],
        ),
    )
    picture = draw_chart(name, ChartSource(hostile, MeasuredRun(stats)), NARROW)
    assert_fits(picture)
    assert "<script" not in picture.svg(standalone=True)
    assert "\u202e" not in picture.svg(standalone=True)


def test_charts_of_an_unfinished_run_say_so(run):
    """The caption begins with the state of the run."""
    stats, document = run
    picture = draw_chart("ecdf", ChartSource(replace(document, run_state="incomplete"), MeasuredRun(stats)))
    assert picture.caption.startswith("The run is incomplete. ")


def test_an_effect_is_turned_so_that_right_is_worse(run):
    """A rate that halves is drawn at 2, as a time that doubles is; its words are those of the table."""
    stats, document = run
    (first, *_) = document.verdicts.comparisons
    rate = replace(
        first, direction="higher", ratio=0.5, low=0.4, high=0.8, confidence=0.95, a_value=100.0, unit="1/s"
    )
    rate = replace(rate, verdict="slower", rounds=10)
    verdicts = replace(document.verdicts, comparisons=[rate])
    picture = draw_chart("forest", ChartSource(replace(document, verdicts=verdicts), MeasuredRun(stats)))
    assert turn(rate, document.treatments).ratio == 2.0
    assert any(box.text == "2.00x as slow [1.25, 2.50]" for box in picture.boxes)
    assert "same" in [box.text for box in picture.boxes]


def test_the_forest_of_a_single_round_has_no_ends():
    """A ratio without a range: one that begins and ends at the ratio itself passed for an exact one."""
    stats = StatsFile(ONE_ROUND)
    document = build_document(stats)
    (only,) = document.verdicts.comparisons
    picture = draw_chart("forest", ChartSource(document, MeasuredRun(stats)))
    (text,) = [box.text for box in picture.boxes if "less" in box.text]
    assert only.low == only.high == only.ratio
    assert text == "255x less"
    assert "Dashed bar" not in picture.caption
    assert "[" not in picture.description


def test_a_factor_of_an_uncertain_baseline_is_hollow_and_marked(run):
    """A timing error of more than a tenth of the baseline's median is in the chart and its caption."""
    stats, document = run
    treatments = [replace(each, timing_error_p99_s=1.0) for each in document.treatments]
    picture = draw_chart("forest", ChartSource(replace(document, treatments=treatments), MeasuredRun(stats)))
    assert "the interval allows for it" in picture.caption
    assert any("\u2020" in box.text for box in picture.boxes)
    clean = [replace(each, timing_error_p99_s=0.0) for each in document.treatments]
    assert (
        "the interval allows"
        not in draw_chart("forest", ChartSource(replace(document, treatments=clean), MeasuredRun(stats))).caption
    )


def test_what_a_run_lacks_is_not_drawn(tmp_path):
    """Each chart whose data does not exist is refused with the reason."""
    stats = StatsFile(lifecycle_run(tmp_path / "run.stats.gz"))
    source = ChartSource(ReportSource(stats).document, MeasuredRun(stats))
    reasons = {}
    for name in CHART_MODULES:
        try:
            draw_chart(name, source)
        except NoChartError as error:
            reasons[name] = str(error)
    assert reasons == {
        "ecdf": "no operation has 20 measured values",
        "why": "no treatment was traced (--explain)",
        "host": "no host was sampled (--sampling-interval)",
        "overhead": "the engines' own processes were not sampled (--overhead)",
        "rate": "a rate over time needs trials of 8 steps of 10 jobs each; the chart trials needs less",
        "scaling": "the scenario varies none of concurrency, threads, clients",
    }


def test_the_data_of_charts_does_not_grow_with_the_jobs(run):
    """A line has at most 120 points, a trial 16 jobs, a host 240 bins, whatever the number of jobs."""
    stats, document = run
    source = ChartSource(document, MeasuredRun(stats))
    data = source.data
    assert {each.n for each in data.distributions()} == {3000}
    assert max(len(each.shares) for each in data.distributions()) <= MOST_QUANTILES
    assert {len(mark.jobs) for mark in source.trials} == {MOST_JOBS}
    assert {len(column) for each in data.hosts() for column in each.columns.values()} == {TIME_BINS}
    assert {counts.shape for counts in data.done.values()} == {(TIME_BINS,)}
    assert {int(counts.sum()) for counts in data.done.values()} == {3000}
    assert [each.negative_iowait for each in data.hosts()] == [1]


def test_quantiles_are_those_of_the_values(run):
    """The median of the chart's data is within 0.2 % of the report's."""
    stats, document = run
    for each in MeasuredRun(stats).part(ChartSums).distributions():
        median = next(value for share, value in zip(each.shares, each.seconds, strict=True) if share >= 0.5)
        exact = document.treatments[each.treatment].operations[each.operation].percentiles_s["p50"]
        assert median == pytest.approx(exact, rel=0.02)
        assert each.seconds[-1] == document.treatments[each.treatment].operations[each.operation].max_s


def test_a_trial_is_measured_by_the_measure_of_its_verdict(tmp_path):
    """Its metric where treatments are compared by it, its failed jobs counted, its begin since the run began."""
    stats = StatsFile(lifecycle_run(tmp_path / "run.stats.gz"))
    document = ReportSource(stats).document
    by_metric = replace(
        document,
        treatments=[
            replace(each, metrics={name: replace(metric, primary=True) for name, metric in each.metrics.items()})
            for each in document.treatments
        ],
        verdicts=None,
    )
    marks = ChartSource(by_metric, MeasuredRun(stats)).trials
    assert [mark.value for mark in marks] == [500.0, 501.0, 502.0, 503.0, 504.0, 505.0, None, 507.0]
    assert [mark.failed for mark in marks] == [0, 0, 0, 0, 0, 0, 1, 0]
    assert [mark.warmup for mark in marks][:3] == [True, True, False]


def test_a_scale_puts_values_where_they_belong():
    """Ends at the ends, the geometric mean in the middle of a logarithmic one, what is outside at its end."""
    scale = Scale(1.0, 100.0, 10.0, 110.0, log=True)
    assert (scale(1.0), scale(10.0), scale(100.0), scale(1e9)) == (10.0, pytest.approx(60.0), 110.0, 110.0)
    assert log_if_wide([1.0, 2.0], 0, 1).log is False
    assert log_if_wide([1.0, 5.0], 0, 1).log is True
    assert log_if_wide([0.0, 5.0], 0, 1).log is False
    assert linear([math.nan], 0, 1).high > 0


def test_texts_are_cut_and_wrapped_to_their_room():
    """No line is wider than its room, also of one long word, of wide letters and of none."""
    for words in (*HOSTILE, "\u4e2d" * 200, "short", ""):
        assert text_width(cut_text(words, 90.0)) <= 90.0
        assert all(text_width(line) <= 90.0 for line in wrap_text(words, 90.0))
    assert cut_text("short", 90.0) == "short"
    assert text_width("W") > text_width("i")


def test_the_report_is_one_svg_file(run):
    """Without a name it is the first chart that there is; title and caption are in it."""
    stats, _ = run
    out = io.StringIO()
    write_report(stats.path, out, "svg")
    words = " ".join(ET.fromstring(out.getvalue()).itertext())
    assert "Ratio to" in words
    assert "Each row is turned so that right is worse" in words


def test_a_chart_that_there_is_not_is_refused_with_those_that_there_are(tmp_path, capsys):
    """A usage error says what to ask for instead; likewise a format that shows no single chart."""
    path = lifecycle_run(tmp_path / "run.stats.gz")
    other = tmp_path / "other.svg"
    other.write_text("kept")
    command = ["report-scenario", "-s", str(path)]
    assert run_command_line([*command, "--format", "svg", "--chart", "ecdf", "-f", str(other)]) == 2
    said = capsys.readouterr().err
    assert "no chart ecdf: no operation has 20 measured values" in said
    assert "there are: forest, trials, metrics, phases" in said
    assert other.read_text() == "kept"
    assert run_command_line([*command, "--format", "csv", "--chart", "forest"]) == 2
    assert "add --format svg" in capsys.readouterr().err


def test_an_empty_run_gives_a_picture_that_says_so(tmp_path):
    """A file with no job has a report in this format, too."""
    builder = StatsBuilder(
        tmp_path / "run.stats.gz", header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)])
    )
    picture = report_chart(ReportSource(StatsFile(builder.close())))
    assert "no data for any chart" in picture.caption
    assert_fits(picture)


def test_an_unknown_chart_has_the_nearest_right_spelling(run):
    """As everywhere, a wrong name gets the right one."""
    stats, document = run
    with pytest.raises(UsageError, match="forest"):
        draw_chart("forrest", ChartSource(document, MeasuredRun(stats)))


def test_drivers_of_a_definition_are_in_one_panel(run):
    """Jobs that only their engine tells apart are compared on one axis; jobs of other work are not."""
    stats, document = run
    drivers = [
        replace(each, treatment={**each.treatment, "job": f"{each.treatment['engine']} driver"})
        for each in document.treatments
    ]

    def panels(treatments):
        source = ChartSource(replace(document, treatments=treatments), MeasuredRun(stats))
        return [panel.treatments for panel in source.panels(range(4), ("concurrency",))]

    assert panels(drivers) == [[0, 1, 2, 3]]
    assert panels([replace(drivers[0], operations={}), *drivers[1:]]) == [[0, 2], [1, 3]]
    picture = draw_chart("scaling", ChartSource(replace(document, treatments=drivers), MeasuredRun(stats)))
    assert sum("jobs per second" in box.text for box in picture.boxes) == 1
