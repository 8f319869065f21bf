"""From the rows of a stats file to one number with its band for each trial, and from those to verdicts."""

import itertools
import math
from statistics import median

import numpy as np
import pytest
from builders import MS, S
from rounds import RATE, A, B, Rounds

from bench_common.errors import UsageError
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import parse_primary
from bench_master.run_data import trial_values
from bench_master.run_data.measured import MeasuredRun
from bench_master.scenario.model import AGAIN
from bench_master.verdicts.quantiles import enough_jobs, quantile, quantiles


@pytest.fixture
def rounds(tmp_path):
    count = itertools.count()
    return lambda *args, **changes: Rounds(tmp_path / f"run{next(count)}.stats.gz", *args, **changes)


def about(*values):
    return pytest.approx(values, abs=6e-6)


# -- the number of a trial ----------------------------------------------------------------------------------------


def test_quantiles_of_a_trial_are_median_unbiased():
    """Type 8 of Hyndman and Fan, as numpy has it; zeros and infinite values stand at the ends."""
    values = np.array([7, 1, 5, 9, 2, 8])
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert quantile(values, q) == pytest.approx(np.quantile(values, q, method="median_unbiased"))
        assert quantiles(values, (q,), zeros=2)[0] == pytest.approx(
            np.quantile([0, 0, *values], q, method="median_unbiased")
        )
    assert quantiles(values, (0.95,), infinite=1)[0] == math.inf
    assert quantiles(values, (0.5,), infinite=1)[0] == 7.0
    assert math.isnan(quantile(values[:0], 0.5))


def test_a_quantile_needs_a_job_beyond_it():
    """p95 takes 20 jobs, p99 and p1 100; a median takes one."""
    assert [enough_jobs(19, 0.95), enough_jobs(20, 0.95), enough_jobs(20, 0.05)] == [False, True, True]
    assert [enough_jobs(99, 0.99), enough_jobs(100, 0.99), enough_jobs(1, 0.5)] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "name", "unit", "direction"),
    [
        ("job.p50", "job.p50", "s", "lower"),
        ("operations.start.p99.9_s", "start.p99.9", "s", "lower"),
        ("response.mean", "response.mean", "s", "lower"),
        ("metrics.events_per_second", "events_per_second", "1/s", "higher"),
        ("jobs_per_s", "jobs_per_s", "1/s", "higher"),
        ("containers", "containers", "1", "higher"),
    ],
)
def test_primary_measures(text, name, unit, direction):
    """Durations, metrics, rates and counts, also as thresholds write them."""
    measure = parse_primary(text, ["start"], RATE)
    assert (measure.name, measure.unit, measure.direction) == (name, unit, direction)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jop.p50", "did you mean 'job.p50'?"),
        ("event_per_second", "did you mean 'events_per_second'?"),
        ("job.median", "did you mean 'job.p50'?"),
        ("start.p0", "expected pNN"),
        ("start", "did you mean 'start.p50'?"),
    ],
)
def test_unknown_primary_measures(text, words):
    """The error has the nearest spelling."""
    with pytest.raises(ValueError, match=r"unknown measure|is no measure") as refused:
        parse_primary(text, ["start"], RATE)
    assert words in str(refused.value)


# -- verdicts of a file -------------------------------------------------------------------------------------------


def test_a_life_cycle_is_compared_by_its_median_job(rounds):
    """The specification's example, with three jobs in each trial around its value."""
    found = rounds().write(*([[t * 0.9, t, t * 1.3] for t in side] for side in (A, B))).only()
    assert (found.verdict, found.measure, found.unit, found.name) == ("slower", "job.p50", "s", "podman")
    assert (found.ratio, found.low, found.high) == about(1.055645, 1.039604, 1.068681)
    assert (found.p, found.rounds, found.lost, found.confidence) == (1 / 512, 10, 0, 0.95)
    assert found.tipping == pytest.approx(0.039604, abs=6e-6)
    assert (found.a_value, found.b_value) == pytest.approx((median(A), median(B)))
    assert found.per_round[0] == pytest.approx(1.06)
    assert (found.jobs_per_trial, found.band) == (3.0, None)


def test_the_answer_and_the_question(rounds):
    """A sentence for each word, the best first."""
    sides = [A, B, [each / 80 for each in A], A]
    found = rounds(("docker", "podman", "native", "crun")).write(*sides).verdicts()
    assert found.question == "Engines against docker: job time (p50 of a trial), margin 3 %"
    assert found.answer == (
        "Faster than docker (1.02 s): native (12.7 ms, 80.0x as fast). Slower: podman (1.06 s, +5.6 %). "
        "Same within 3 %: crun (1.02 s)."
    )
    assert [each.verdict for each in found.comparisons] == ["slower", "faster", "same"]
    assert (found.family.comparisons, found.design.grade, found.refused) == (3, "A", [])
    faster = rounds(("docker", "native")).write(A, [each / 80 for each in A]).verdicts()
    assert faster.answer == "Faster than docker (1.02 s): native (12.7 ms, 80.0x as fast)."


def test_a_late_clock_is_a_band(rounds):
    """A verdict that depends on how exactly ends were stamped is none; its interval is that without the band."""
    found = rounds().write(A, B, lateness=(0.0, 0.06)).only()
    assert (found.verdict, found.reason) == ("inconclusive", "depends on how exactly the clock was read")
    assert (found.low, found.high) == about(0.980581, 1.068681)
    assert (found.band.low, found.band.high) == about(1.039604, 1.068681)
    assert found.band.why == "clock"
    assert found.more_rounds is None


def test_a_lost_trial_may_have_had_any_value(rounds):
    """Ten rounds bear none; survivors alone are judged only where that is asked for."""
    run = rounds().write(A, B, lost={(1, 3)})
    found = run.only()
    assert (found.verdict, found.reason) == ("inconclusive", "depends on how failed jobs are counted")
    assert (found.rounds, found.lost, found.per_round[3], found.band.why) == (9, 1, None, "failed")
    assert "1 of 10 jobs failed; the interval allows for whatever they would have given" in found.flags[0].text


def test_more_rounds_bear_a_lost_one(rounds):
    """Twelve bear one, and eleven none."""
    sides = [[*A, 1.01, 1.02], [1.2 * each for each in (*A, 1.01, 1.02)]]
    assert rounds().write(*sides, lost={(1, 3)}).only().verdict == "slower"
    assert rounds().write(*[side[:11] for side in sides], lost={(1, 3)}).only().verdict == "inconclusive"


def test_a_trial_that_a_killed_run_was_at_does_not_count(rounds):
    """Its first jobs say nothing of the whole trial, and it is no failure of its treatment."""
    found = rounds().write(A, B, killed=True).only()
    assert (found.rounds, found.lost, found.verdict) == (9, 0, "slower")


def test_failed_jobs_count_as_the_worst_both_ways(rounds):
    """One of four jobs failed in each trial of one side: the median may be the next job's time on either side."""
    sides = [[[t * 0.98, t, t * 1.02] for t in side] for side in (A, B)]
    run = rounds().write(*sides, failed={(1, block) for block in range(10)})
    found = run.only()
    assert found.band.why == "failed"
    assert found.low < found.band.low < found.band.high < found.high
    survivors = run.only(failures="at-random")
    assert (survivors.low, survivors.high) == about(1.039604, 1.068681)
    assert "left out" in survivors.flags[0].text


def test_metrics_have_their_own_direction(rounds):
    """More events per second are faster; a measure in coarse steps has a band of half a step."""
    metrics = ([100.0 + k for k in range(10)], [120.0 + k for k in range(10)])
    found = rounds(wire={"job": {"kind": "guest"}}).write(A, B, metrics=metrics).only()
    assert (found.verdict, found.measure, found.direction) == ("faster", "events_per_second", "higher")
    coarse = ([0.4, 0.5] * 5, [0.5, 0.5] * 5)
    stepped = rounds(wire={"job": {"kind": "guest"}}).write(A, B, metrics=coarse).only()
    assert stepped.band.why == "quantised"


def test_a_margin_below_what_the_measure_can_tell(rounds):
    """A measure in steps of 20 % shows no sameness within 3 %; the least sensible margin is given."""
    metrics = ([0.5, 0.5, 0.6] * 4, [0.5, 0.5, 0.6] * 4)
    times = [1.0] * 12
    run = rounds(wire={"job": {"kind": "guest"}}).write(times, times, metrics=metrics)
    found = run.only()
    assert found.verdict == "inconclusive"
    assert "a margin of 3 % is less than events_per_second can tell here" in found.flags[0].text
    assert found.flags[0].text.endswith("the least sensible one is 100 %")
    assert "margin" not in [flag.kind for flag in rounds().write(A, A).only().flags]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (5_123_456.0, 7_234_567.0, "faster"),
        (80.0, 40.0, "slower"),
        (5_123_456.0, 5_123_456.0, "same"),
        (1_234_567_890.0, 1_234_567_890.0, "same"),
        (1_296_296_284.0, 1_234_567_890.0, "slower"),
        (1_234_567_890.0, 2_469_135_780.0, "faster"),
        (3.03424e-08, 3.03424e-08, "same"),
    ],
)
def test_measures_that_never_vary_get_words(rounds, a, b, verdict):
    """Counts and computed figures are known to their last digit; their distance is the difference, and no step."""
    constant = ([a] * 10, [b] * 10)
    run = rounds(wire={"job": {"kind": "guest"}}).write(A, B, metrics=constant)
    assert (run.only().verdict, [flag.kind for flag in run.only().flags]) == (verdict, [])
    assert run.only().ratio == pytest.approx(b / a)
    assert run.verdicts(fail_on=("slower by 1%",)).exit_code == (verdict == "slower")


def test_the_last_digit_of_a_small_figure_is_its_step(rounds):
    """One digit says no more with an exponent than without: 3e-05 and 0.3 are known to a sixth."""
    for scale in (1.0, 1e-4, 1e-7):
        run = rounds(wire={"job": {"kind": "guest"}}).write(A, B, metrics=([0.3 * scale] * 10,) * 2)
        assert (run.only().verdict, run.only().band.why) == ("inconclusive", "quantised")


def test_the_larger_of_two_trials_is_cut_to_the_jobs_of_the_smaller_one(rounds):
    """With heavy tails a quantile of few jobs is biased, and by their number: equal treatments would differ."""
    draw = np.random.default_rng(7)
    few, many = ([draw.lognormal(0.0, 0.5, jobs).tolist() for _ in range(10)] for jobs in (20, 60))
    run = rounds(wire={"primary": "job.p95"}).write(few, many)
    table = MeasuredRun(StatsFile(run.path)).trials("worst")
    _, _, whole = table.paired(0, 1)
    _, small, cut = table.paired(0, 1, alike=True)
    assert [{one.jobs for one in side} for side in (small, cut, whole)] == [{20}, {20}, {60}]
    assert all(min(jobs) <= one.value <= max(jobs) + 1e-9 for one, jobs in zip(cut, many, strict=True))
    assert [one.value for one in cut] != [one.value for one in whole]
    assert run.only().verdict != "refused"
    assert run.only().b_value == pytest.approx(float(np.median([one.value for one in cut])))
    assert run.only() == run.only()  # drawn by the run's seed


def test_too_few_jobs_for_the_quantile_refuse_every_word(rounds):
    """Of fewer jobs it is the largest of them."""
    short = rounds(wire={"primary": "job.p95"}).write(*[[[1.0 + k / 100 for k in range(19)]] * 10] * 2)
    assert short.only().reason == "job.p95 needs 20 jobs in each trial; the smallest has 19"


def test_a_metric_that_was_not_measured_gives_way(rounds):
    """Of a tool whose version decides which of its metrics there are."""
    wire = {"job": {"kind": "guest"}, "metrics": {"old_score": {"unit": "points", "direction": "higher"}, **RATE}}
    run = rounds(wire=wire).write(A, B, metrics=([100.0 + k for k in range(10)], [50.0 + k for k in range(10)]))
    assert (run.only().measure, run.only().verdict) == ("events_per_second", "slower")


def test_a_cost_that_nobody_told_gives_way_to_no_other(rounds):
    """Who asks for instructions and gets a verdict on CPU time has been told something else."""
    asked = {"instructions": {"unit": "1", "direction": "lower"}}
    run = rounds(wire={"job": {"kind": "guest"}, "primary": "instructions", "metrics": {**asked, **RATE}}).write(
        A, B, metrics=([100.0 + k for k in range(10)], [50.0 + k for k in range(10)])
    )
    assert (run.only().measure, run.only().verdict) == ("instructions", "inconclusive")


def test_a_measure_of_zero_has_no_ratio(rounds):
    """Differences are compared instead, in the measure's unit, and nothing is called the same."""
    found = rounds().write([0.0, *A[1:]], [each + 0.5 for each in A]).only()
    assert (found.scale, found.verdict) == ("difference", "slower")
    assert (found.ratio, found.mde) == (pytest.approx(0.5), None)
    assert rounds().write([0.0] * 10, [0.0] * 10).only().verdict == "inconclusive"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"order": "blocked"}, "not interleaved"),
        ({"noop": True}, "no-op"),
        ({"wire": {"primary": "job.p95"}}, "job.p95 needs 20 jobs in each trial; the smallest has 1"),
        ({"labels": [{"environment": "a"}, {"environment": "b"}]}, "different hosts (1 on one side)"),
    ],
)
def test_what_the_design_cannot_carry_is_refused(rounds, changes, reason):
    """Numbers and the tipping point are given, and no word."""
    found = rounds(**changes).write(A, B).verdicts()
    (only,) = found.comparisons
    assert only.verdict == "refused"
    assert reason in only.reason
    assert only.tipping == pytest.approx(0.039604, abs=6e-6)
    assert found.refused == [only.reason]
    assert found.answer.startswith("Refused against ")


def test_a_side_that_never_ran_was_on_no_other_host(rounds):
    """An interrupted run says that rounds are missing, and nothing of hosts, of which it had one."""
    labels = [{"environment": "bare-metal", "engine": engine} for engine in ("docker", "podman")]
    (only,) = rounds(labels=labels).write([1.0], [1.0], killed=True).verdicts().comparisons
    assert (only.verdict, [one.code for one in only.reasons]) == ("inconclusive", ["too-few-rounds"])


def test_an_optional_side_that_failed_is_judged_as_any_other(rounds):
    """It is left out only where something that it needs is missing."""
    lost = [(1, block) for block in range(len(A))]
    assert rounds(wire={"optional": True}).write(A, B, lost=lost).only().word == "FAILED"


def test_an_order_that_was_not_drawn_is_a_lower_grade(rounds):
    """Without a treatment that ran twice nobody knows what its place in a round does; with one there is a remark."""
    alone = rounds(order="as-written").write(A, B).verdicts()
    assert (alone.design.grade, alone.comparisons[0].verdict) == ("D", "refused")
    engines = [{"engine": "docker"}, {"engine": "podman"}, {"engine": "docker", AGAIN: "again"}]
    found = rounds(order="as-written", labels=engines).write(A, B, A).verdicts()
    assert (found.design.grade, found.comparisons[0].verdict) == ("B", "slower")


# -- what is compared with what -----------------------------------------------------------------------------------

GRID = [{"engine": engine, "storage": storage} for engine in ("docker", "podman") for storage in ("image", "volume")]


def test_the_first_label_that_varies_is_compared_per_level_of_the_others(rounds):
    """Each group has its own baseline; the groups are named."""
    found = rounds(labels=GRID).write(A, B, B, A).verdicts()
    assert [(each.name, each.group, each.verdict) for each in found.comparisons] == [
        ("podman", "storage=image", "slower"),
        ("podman", "storage=volume", "faster"),
    ]
    assert found.answer == (
        "Faster than docker: podman (storage=volume, 1.02 s against 1.06 s, -5.3 %). "
        "Slower: podman (storage=image, 1.06 s against 1.02 s, +5.6 %)."
    )


def test_any_label_can_be_the_baseline(rounds):
    """Of another factor, or of several: then the rest of the labels must agree."""
    run = rounds(labels=GRID).write(A, B, B, A)
    found = run.verdicts(baseline={"storage": "volume"})
    assert [(each.name, each.group) for each in found.comparisons] == [
        ("image", "engine=docker"),
        ("image", "engine=podman"),
    ]
    both = run.verdicts(baseline={"engine": "podman", "storage": "volume"})
    assert [each.name for each in both.comparisons] == ["docker image", "docker volume", "podman image"]


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        ({"engin": "docker"}, "unknown label 'engin' (did you mean 'engine'?)"),
        ({"engine": "dokcer"}, "did you mean 'docker'?"),
        ({"engine": "docker", "storage": "tmpfs"}, "storage is one of: image, volume"),
    ],
)
def test_a_baseline_that_nothing_matches(rounds, baseline, words):
    """One error with the nearest spelling."""
    run = rounds(labels=GRID).write(A, B, B, A)
    with pytest.raises(UsageError) as refused:
        run.verdicts(baseline=baseline)
    assert words in str(refused.value)


def test_one_treatment_has_no_verdicts(rounds):
    """There is nothing to compare it with."""
    assert rounds(("docker",)).write(A).verdicts() is None


def test_very_many_jobs_leave_a_histogram(rounds, monkeypatch):
    """Its error of 0.2 % is in the band."""
    monkeypatch.setattr(trial_values, "MAX_JOBS", 50)
    draw = np.random.default_rng(7)
    sides = [[t * draw.lognormal(0.0, 0.02, 100) for t in side] for side in (A[:6], B[:6])]
    found = rounds().write(*sides).only()
    assert found.band.why == "quantised"
    exact = [np.quantile(trial, 0.5, method="median_unbiased") for trial in sides[0]]
    assert found.a_value == pytest.approx(median(exact), rel=0.004)
    assert found.low < found.band.low


def test_a_trial_in_milliseconds_keeps_its_unit(rounds):
    """Times are in seconds, whatever their size."""
    found = rounds().write([3 * MS / S] * 6, [4 * MS / S] * 6).only()
    assert (found.a_value, found.b_value, found.verdict) == (0.003, 0.004, "slower")
