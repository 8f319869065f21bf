"""A run judged by the trend of its series: every verdict, from earlier runs that are made up."""

import io
import math

import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire
from levelled_runs import a_run

from bench_common.records import Outcome, ticket_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.gates import judge_gates, requested_gates
from bench_master.analysis.trend_source import PastSeries
from bench_master.analysis.trend_verdicts import add_trend
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import RunFileReport
from bench_master.reports import ReportSource, report_named
from bench_master.run_data.measured import MeasuredRun
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.reasons import Code, because


class Past:
    """Earlier runs whose levels are these shares above 100 ms."""

    def __init__(self, shares, since=None):
        self.series = PastSeries(
            RunLevels.exact([math.log(0.1) + share for share in shares]),
            [RunFileReport(f"{place:012x}", None, f"2026-01-{1 + place % 28:02}") for place in range(len(shares))],
            since,
        )
        self.asked = []

    def check(self):
        pass

    def past(self, run):
        self.asked.append(run)
        return dict.fromkeys(run.treatments, self.series)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return stats files of runs of 100 ms and of 110 ms."""
    folder = tmp_path_factory.mktemp("runs")
    return {level: a_run(folder / f"{level}.stats.gz", level, spread=0.001) for level in (100, 103.5, 110)}


def test_a_run_near_the_harness_own_rate_has_no_word(tmp_path):
    """Whatever the trend is."""
    path = a_run(tmp_path / "near.stats.gz", 110, spread=0.001, harness=(20.0, 0.0, 1.0))
    _, found = judged(path, Past(QUIET / 10))
    assert (found.verdict, [one.code for one in found.reasons]) == ("refused", [Code.LIMITED_BY_HARNESS])


def judged(path, past, **options):
    report = add_trend(None, MeasuredRun(StatsFile(path)), VerdictOptions(trend=past, **options))
    return report, report.comparisons[0]


QUIET = 0.01 * np.random.default_rng(5).normal(size=20)


def test_each_verdict(runs):
    """Like before, standing out, confirmed, and what is too small to matter."""
    report, found = judged(runs[100], Past(QUIET / 10))
    assert (found.verdict, found.unconfirmed, found.confidence) == ("same", False, 0.999)
    _, found = judged(runs[110], Past(QUIET))
    assert (found.verdict, found.unconfirmed) == ("inconclusive", True)
    assert found.reason.endswith("unconfirmed: run it again; a second run that agrees confirms it")
    report, found = judged(runs[110], Past([*QUIET, 0.1]))
    assert (found.verdict, found.confidence, found.a, found.rounds) == ("slower", 0.95, "earlier runs", 20)
    assert found.reason == "confirmed by 2 runs since 2026-01-21 (000000000014)"
    assert found.low < 1.1 < found.high
    assert (report.answer[:6], report.family.control, report.archive.runs) == ("Slower", "second-run", 21)
    _, found = judged(runs[103.5], Past(QUIET / 50), margin=0.05)
    assert (found.verdict, found.unconfirmed) == ("same", False)
    _, found = judged(runs[103.5], Past(QUIET / 3), margin=0.036)
    assert (found.verdict, found.reason) == ("inconclusive", "may be less than the margin")


def test_what_is_refused(runs, tmp_path):
    """Too few runs, and why; a run that does not count asks for nothing."""
    for past, why in (
        (Past([]), "no earlier run of this kind; 5 are needed"),
        (
            Past([], because(Code.WHICH_RUNS, kind="hosts", here="blade-2", there="blade-1")),
            "no earlier run on blade-2",
        ),
        (
            Past(
                QUIET[:4],
                because(Code.WHICH_RUNS, kind="since", here="kernel 1 -> 2", there="0"),
            ),
            "only 4 earlier runs since the machine changed",
        ),
    ):
        _, found = judged(runs[100], past)
        assert (found.verdict, why in found.reason) == ("refused", True), found.reason
    past = Past(QUIET)
    _, found = judged(a_run(tmp_path / "cut.stats.gz", 100, foot=False), past)
    assert (found.verdict, past.asked) == ("refused", [])
    assert "was killed" in found.reason


def test_a_treatment_without_a_value(tmp_path):
    """It has no verdict, and no gate on it passes."""
    treatments = [treatment_wire(0, {"engine": "docker"}, ("run",))]
    builder = StatsBuilder(tmp_path / "none.stats.gz", header(treatments, [(0, 0, False)])).add("host", host(0))
    row = {"ticket": ticket_of(0), "treatment": 0, "trial": 0, "start_ns": S, "end_ns": 2 * S}
    builder.add_jobs(row | {"outcome": Outcome.FAILED})
    _, found = judged(builder.close(footer()), Past(QUIET))
    assert (found.verdict, found.reason) == ("refused", "no value, or 0")


def test_gates_wait_for_a_second_run(runs):
    """An unconfirmed run fails no gate, with a size or without; and shows nothing that must be shown."""
    outcome = {}
    for name, past in (("first", Past(QUIET)), ("second", Past([*QUIET, 0.1]))):
        _, found = judged(runs[110], past)
        options = VerdictOptions(fail_on=("slower", "slower by 5%"), require=("not slower by 5%",))
        outcome[name] = [each.exit_code for each in judge_gates(requested_gates(options, ()), [found])]
    assert outcome == {"first": [0, 0, 4], "second": [1, 1, 1]}


def test_runs_that_resemble_their_neighbours(runs):
    """A machine that changes by the hour gets a warning: its alarms say less."""
    slow = 0.03 * np.sin(np.arange(40) / 2)
    _, found = judged(runs[100], Past(slow))
    assert [flag.kind for flag in found.flags] == ["neighbours"]
    assert "runs resemble the ones before them (autocorrelation 0.8" in found.flags[0].text
    assert judged(runs[100], Past(QUIET))[1].flags == []


def test_reports_show_the_trend(runs):
    """Below the run's own figures, with the level of the interval."""
    for form in ("text", "markdown", "github"):
        out = io.StringIO()
        report_named(form).write(ReportSource(StatsFile(runs[110]), 95.0, VerdictOptions(trend=Past(QUIET))), out)
        text = " ".join(out.getvalue().split())
        assert "99.9 % interval" in text
        assert "unconfirmed: run it again" in text
        assert "confidence for" not in text
