"""Trends of a series: changes and breaks of made-up runs, and the chart of them."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from bench_common.thresholds import Primary
from bench_features.archive.trend_chart import draw_trend
from bench_features.archive.trend_report import list_lines
from bench_features.archive.trends import build_trend
from bench_features.archive.types import ArchivedTreatment, Series, TrendPoint
from bench_features.charts import NARROW, WIDE
from bench_master.run_data.treatment_types import MetricReport
from bench_master.verdicts import signed_rank

HOSTILE = ("<script>alert(1)</script>", "]]>", "\u202egnp.exe", "w" * 10_000, "a&b\"'", "\x00\x1b[2J")
DAY_S = 86_400.0
KERNEL = {"machine_id": "m1", "kernel": "6.1.0", "cpu_governor": "performance"}


JOB_TIME = Primary("job.p50", "duration", "s", "lower", "job", 0.5)


def series(title="docker life", **more):
    about = {
        "key": "00c0ffee", "scenario": "nightly", "title": title, "labels": {"engine": "docker"},
        "measure": JOB_TIME, "hosts": "blade-1", "members": (),
    }  # fmt: skip
    return Series(**{**about, **more})


def points(levels, *, seed=4, sd=0.01, machine=KERNEL, since=0, trials=8, version="27.0"):
    """Return runs a day apart whose levels are these shares above 0.3 s, and differ by `sd` from run to run."""
    generator = np.random.default_rng(seed)
    found = []
    for place, level in enumerate(levels, since):
        value = 0.3 * math.exp(level + sd * generator.normal())
        own = tuple(value * math.exp(x) for x in np.linspace(-0.02, 0.02, trials))
        found.append(TrendPoint(f"{place:012x}", 1.79e9 + DAY_S * place, version, value, own, machine))
    return found


def test_since_when():
    """The run since when, the size with its interval, and where the next run is expected."""
    trend = build_trend(series(), points([0] * 30 + [0.08] * 20))
    (change,) = trend.changes
    assert (change.kind, change.word, change.first, change.run, change.runs) == (
        "step", "slower", 30, f"{30:012x}", 20,
    )  # fmt: skip
    assert change.low < change.ratio < change.high
    assert change.low < math.exp(0.08) < change.high
    assert trend.answer.startswith("SLOWER docker life +8.")
    assert "since 2026-10-21 14:13 (run" in trend.answer
    assert trend.next_low < 0.3 * math.exp(0.08) < trend.next_high
    assert (trend.state, trend.breaks) == ("steady", [])
    run = trend.runs[0]
    assert (run.trials, run.low < run.value < run.high) == (8, True)
    assert build_trend(series(), points([0], trials=5)).runs[0].low is None


def test_a_confirmed_change_stays_while_its_level_becomes_the_current_one():
    """The history shows it only some runs later."""
    for count in range(2, 12):
        trend = build_trend(series(), points([0] * 6 + [1.4] * count))
        (change,) = trend.changes
        assert (change.word, change.kind) == ("slower", change.kind if count > 8 else "confirmed")
        assert change.low < math.exp(1.4) < change.high
        assert abs(change.first - 6) <= 2
    twice = build_trend(series(), points([0] * 5 + [1.4] * 5 + [0.5] * 6)).changes
    found = [(one.kind, one.first, one.runs, round(math.log(one.ratio), 1)) for one in twice]
    assert found == [("confirmed", 5, 5, 1.4), ("confirmed", 10, 6, -0.9)]


def test_a_measure_of_which_more_is_better():
    """A fall is slower, or worse where it is no rate."""
    fallen = points([0] * 20 + [-0.1] * 10)
    words = [
        build_trend(series(), fallen, measure=Primary("score", "metric", unit, "higher")).changes[0].word
        for unit in ("events/s", "points")
    ]
    assert words == ["slower", "worse"]


def test_a_measure_that_declares_no_direction_is_judged_like_the_primary_one():
    """The primary measure by its name is the primary one; of others more per second is better, of the rest less."""
    reports = {
        name: MetricReport(unit=unit, direction=None, primary=False, n=1, median=1.0, mean=1.0, stddev=None, min=1.0,
                           percentiles={}, max=1.0, worst_job=0)
        for name, unit in (("events_per_second", "events/s"), ("rows", "rows/s"), ("lag", "ms"))
    }  # fmt: skip
    primary = Primary("events_per_second", "metric", "events/s", "higher")
    treatment = ArchivedTreatment(
        title="", series="", labels={}, engine_version="", failed=0, measure=primary, trials=[2.0], operations={},
        metrics=reports,
    )  # fmt: skip
    measures = treatment.measures()
    assert measures["events_per_second"] == (primary, 2.0)
    assert {name: one.direction for name, (one, _) in measures.items()} == {
        "events_per_second": "higher", "rows": "higher", "lag": "lower",
    }  # fmt: skip


def test_a_series_breaks_where_the_machine_changed():
    """It says which fact; the jump is no change, and the new machine begins with few runs."""
    newer = {**KERNEL, "kernel": "6.8.0", "hypervisor": "kvm"}
    trend = build_trend(series(), [*points([0] * 20), *points([0.3] * 4, machine=newer, since=20)])
    (found,) = trend.breaks
    assert (found.first, found.text, trend.changes) == (20, "kernel 6.1.0 -> 6.8.0", [])
    assert (trend.state, trend.next_low) == ("few", None)
    assert trend.answer == "no change of docker life in 24 runs"


def test_the_newest_runs():
    """One is unconfirmed, two are confirmed; an acknowledged change is listed and no alarm."""
    levels = [0] * 20 + [0.1, 0.1]
    first, second = (build_trend(series(), points(levels[:count])) for count in (21, 22))
    assert [(one.kind, one.runs) for one in first.changes] == [("unconfirmed", 1)]
    assert [(one.kind, one.runs, one.first) for one in second.changes] == [("confirmed", 2, 20)]
    assert (first.state, second.state) == ("unconfirmed", "confirmed")
    assert "one more run must confirm it" in first.answer
    known = build_trend(series(), points(levels), acknowledged={f"{20:012x}"})
    assert (known.state, known.changes[0].acknowledged) == ("few", True)


def test_runs_without_a_level():
    """They are left out; a series of nothing is no error, and has no chart."""
    zero = TrendPoint("0" * 12, 1.79e9, "27", 0.0, (0.0,), KERNEL)
    trend = build_trend(series(), [zero])
    assert (trend.runs, trend.state, trend.answer) == ([], "few", "no change of docker life in 0 runs")
    assert any("none" in line for line in list_lines([trend]))


def many_kinds():
    """Return series of all shapes."""
    step = [*points([0] * 30 + [0.08] * 20), *points([0.5] * 20 + [0.7, 0.7], since=50, machine={"kernel": "6.8"})]
    hostile = [
        TrendPoint(text, 1.79e9 + place * DAY_S, text, 0.3, (0.3,), {text: text, "kernel": str(place)})
        for place, text in enumerate(HOSTILE)
    ]
    many = points([0.01 * (place % 7) for place in range(900)])
    each_day = [*points([0.2 * place] * 5 for place in range(0)), *points(list(np.repeat([0, 0.2, 0.1, 0.4, 0], 12)))]
    return {
        "steps": build_trend(series(), step),
        "one": build_trend(series(), points([0])),
        "hostile": build_trend(series(HOSTILE[0], labels={"engine": HOSTILE[1]}, hosts=HOSTILE[3]), hostile),
        "many": build_trend(series(), many),
        "changes": build_trend(series(), each_day),
        "same second": build_trend(series(), [points([0])[0]] * 3),
    }


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_leaves_the_chart_or_covers_another(width):
    """At both widths, of all kinds of series; what is drawn is SVG."""
    for name, trend in many_kinds().items():
        picture = draw_trend(trend, width, "paper")
        tree = ET.fromstring(picture.svg(standalone=True))
        assert tree.tag.endswith("svg")
        for box in picture.boxes:
            assert (box.x0 >= 0, box.x1 <= width, box.y0 >= 0, box.y1 <= picture.height) == (True,) * 4, (name, box)
        covered = [
            (a.text, b.text) for place, a in enumerate(picture.boxes) for b in picture.boxes[:place] if a.covers(b)
        ]
        assert covered == [], name
        assert "<script" not in picture.svg()


def test_intervals_of_many_runs_are_those_of_each():
    """Runs of some numbers of trials, judged together; few trials, or one that is 0, have none."""
    generator = np.random.default_rng(8)
    made = [
        TrendPoint(f"{place:012x}", 1.79e9 + place, "1", 0.1, tuple(np.exp(generator.normal(size=size))), KERNEL)
        for place, size in enumerate([5, 6, 10, 6, 31, 10])
    ]
    made.append(TrendPoint("f" * 12, 1.8e9, "1", 0.1, (0.0,) * 10, KERNEL))
    for run, point in zip(build_trend(series(), made).runs, made, strict=True):
        if len(point.trials) < 6 or not min(point.trials):
            assert (run.low, run.high) == (None, None)
            continue
        logs = np.log(point.trials)
        ends = signed_rank.exact_interval(logs, logs, 0.05)
        assert run.low == pytest.approx(min(0.1, math.exp(ends.low)))
        assert run.high == pytest.approx(max(0.1, math.exp(ends.high)))
