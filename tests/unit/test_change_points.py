"""When a series of runs changed, against series whose truth is known; seeded."""

import numpy as np
import pytest

from bench_master.verdicts import change_points
from bench_master.verdicts.between_runs import RunLevels, predict
from bench_master.verdicts.change_points import (
    NEWEST,
    TREND_P,
    critical_value,
    find_steps,
    judge_newest,
    standing_out,
)

MARGIN = 0.03
exact = RunLevels.exact


def share_of_series(make, times=300):
    generator = np.random.default_rng(60)
    return sum(bool(find_steps(make(generator), MARGIN)) for _ in range(times)) / times


def step_after(generator, run, size):
    return 0.02 * generator.normal(size=60) + size * (np.arange(60) >= run)


def with_outliers(generator, levels):
    return levels + (generator.random(60) < 0.05) * np.log(generator.uniform(1.3, 3, 60))


# -- the past -------------------------------------------------------------------------------------------------------


def test_a_step_in_the_history():
    """Its place, size and interval; what is below the margin is none; eight runs or fewer have none."""
    generator = np.random.default_rng(1)
    levels = 0.02 * generator.normal(size=60) + np.repeat([0, 0.1, 0.02], 20)
    first, second = find_steps(levels, MARGIN)
    assert (abs(first.first - 20) <= 2, abs(second.first - 40) <= 2) == (True, True)
    assert first.difference == pytest.approx(0.1, abs=0.02)
    assert second.difference == pytest.approx(-0.08, abs=0.02)
    for step, truth in ((first, 0.1), (second, -0.08)):
        assert step.interval.low < step.difference < step.interval.high
        assert step.interval.low < truth < step.interval.high
    assert find_steps(levels, 0.2) == []
    for short in ([0] * 4 + [1] * 4, [0.0], [], np.zeros(50)):
        assert find_steps(np.array(short, float), MARGIN) == []


def test_no_step_across_a_break():
    """A new machine is slower from its first run on: that is no change of what is measured. Steps after it are."""
    generator = np.random.default_rng(2)
    levels = 0.01 * generator.normal(size=60) + np.repeat([0, 0.3, 0.4], 20)
    assert [step.first for step in find_steps(levels, MARGIN)] == [20, 40]
    assert [step.first for step in find_steps(levels, MARGIN, breaks=[20])] == [40]
    assert find_steps(levels, MARGIN, breaks=[20, 40]) == []


def test_critical_values():
    """A few of the table's against fresh permutations: chance exceeds them once in a thousand, or seldomer."""
    generator = np.random.default_rng(5)
    for n, times in ((12, 4000), (31, 4000), (100, 4000)):
        series = generator.permuted(np.tile(np.arange(n, dtype=float), (times, 1)), axis=1)
        large = sum(change_points.diagnosis.largest_sum(one, 4)[1] > critical_value(n) for one in series)
        assert large <= 12  # 4 expected
    values = [critical_value(n) for n in range(8, 6000)]
    assert values == sorted(values)


def test_a_quiet_history_has_no_steps():
    """In sixty runs that differ by 2 %, with outliers or without."""
    assert share_of_series(lambda generator: step_after(generator, 0, 0.0)) <= 0.01
    assert share_of_series(lambda generator: with_outliers(generator, step_after(generator, 0, 0.0))) <= 0.01


def test_steps_are_found():
    """Also among outliers, which hide them from other tests."""
    assert share_of_series(lambda generator: step_after(generator, 40, 0.06)) >= 0.95
    assert share_of_series(lambda generator: with_outliers(generator, step_after(generator, 40, 0.06))) >= 0.9


# -- the newest runs ------------------------------------------------------------------------------------------------


def test_the_newest_runs():
    """One stands out seldom by chance; three together show a change that the history cannot show yet."""
    generator = np.random.default_rng(40)
    times, found = 300, {count: [0, 0] for count in NEWEST}
    for _ in range(times):
        levels = 0.02 * generator.normal(size=43)
        for count in NEWEST:
            changed = levels + 0.06 * (np.arange(43) >= 43 - count)
            for effect, series in enumerate((levels, changed)):
                found[count][effect] += predict(exact(series[:-count]), exact(series[-count:]), TREND_P).p < TREND_P
    assert [found[count][0] / times for count in NEWEST] == pytest.approx([0, 0], abs=0.01)
    assert found[1][1] / times == pytest.approx(0.30, abs=0.1)
    assert found[3][1] / times == pytest.approx(0.91, abs=0.06)
    assert standing_out(exact([*np.zeros(4), 1, 1, 1]), 0, MARGIN) is None


def series(*more, runs=20, seed=3):
    """Return levels that differ by 1 %, and those of newer runs behind them."""
    quiet = 0.01 * np.random.default_rng(seed).normal(size=runs)
    return exact([*quiet, *more])


def test_an_alarm_needs_a_second_run():
    """The first slow run is an alarm, the second one confirms it; one that is as fast as before takes it back."""
    assert judge_newest(series(0.005), MARGIN).state == "steady"
    first = judge_newest(series(0.1), MARGIN)
    assert (first.state, first.first, first.regime) == ("unconfirmed", 20, tuple(range(20)))
    second = judge_newest(series(0.1, 0.09), MARGIN)
    assert (second.state, second.first, second.regime) == ("confirmed", 20, tuple(range(20)))
    for other in (0.0, -0.1):
        assert judge_newest(series(0.1, other), MARGIN).state != "confirmed"
    assert judge_newest(series(0.1, 0.0, 0.1), MARGIN).state != "confirmed"


def test_a_change_of_the_size_of_the_margin_is_no_alarm():
    """However quiet the machine is."""
    assert judge_newest(exact([*np.linspace(-0.001, 0.001, 20), 0.02, 0.02]), MARGIN).state == "steady"


def test_repeating_a_run_does_not_make_a_gate_green():
    """It stays confirmed until the new level has five runs; then that is the current one."""
    states = [
        judge_newest(series(*[0.1, 0.104, 0.098, 0.095, 0.1, 0.102][:more]), MARGIN).state for more in range(1, 7)
    ]
    assert states == ["unconfirmed", "confirmed", "confirmed", "confirmed", "confirmed", "steady"]
    settled = judge_newest(series(0.1, 0.104, 0.098, 0.095, 0.1, 0.102), MARGIN)
    assert settled.regime == tuple(range(20, 25))


def test_a_change_that_was_undone_is_over():
    """Its runs do not count as the current level; neither do they keep the next change from being seen."""
    undone = judge_newest(series(0.1, 0.1, 0.002), MARGIN)
    assert (undone.state, undone.regime) == ("steady", tuple(range(20)))
    again = judge_newest(series(0.1, 0.1, 0.002, 0.1), MARGIN)
    assert (again.state, again.first, again.regime) == ("unconfirmed", 23, (*range(20), 22))


def test_three_runs_show_what_one_does_not():
    """A change of twice the spread: an alarm with the third run, confirmed by the fourth."""
    quiet = exact([0.02 * (-1) ** n for n in range(40)])
    more = [0.06, 0.055, 0.06, 0.058]
    states = [judge_newest(exact([*quiet.values, *more[:count]]), MARGIN).state for count in range(1, 5)]
    assert states == ["steady", "steady", "unconfirmed", "confirmed"]
    assert standing_out(exact([*quiet.values, *more[:3]]), 0, MARGIN).new == 3


def test_a_change_that_creeps_past_the_newest_runs():
    """Each run alone stands out too little: the history shows it, and it is confirmed for four runs, not for ever."""
    for seed in (3, 7, 9):
        levels = 0.02 * np.random.default_rng(seed).normal(size=62)
        levels[40:] += 0.045
        states = [judge_newest(exact(levels[:count]), MARGIN).state for count in range(41, 63)]
        assert "confirmed" in states[5:]
        assert states[-1] == "steady"
        if seed == 3:  # no alarm at all
            assert states == ["steady"] * 6 + ["confirmed"] * 4 + ["steady"] * 12


def test_too_few_runs_and_an_acknowledged_change():
    """Five runs of the current level are the least; an acknowledged change begins a new one."""
    assert judge_newest(series(0.1, runs=4), MARGIN).state == "few"
    assert judge_newest(series(0.3, runs=5), MARGIN).state == "unconfirmed"
    assert judge_newest(series(0.1, 0.1), MARGIN, start=20).state == "few"
    assert judge_newest(series(0.1, 0.102, 0.098, 0.1, 0.104, 0.1), MARGIN, start=20).state == "steady"


def test_gates_of_unchanged_runs_do_not_fail():
    """250 runs, one after the other, with outliers or without: alarms are rare, failures rarer."""
    generator = np.random.default_rng(9)
    for noise in (0.0, 0.05):
        found = {"few": 0, "steady": 0, "unconfirmed": 0, "confirmed": 0}
        for _ in range(5):
            levels = 0.02 * generator.normal(size=60)
            levels += (generator.random(60) < noise) * np.log(generator.uniform(1.3, 3, 60))
            for last in range(10, 60):
                found[judge_newest(exact(levels[: last + 1]), MARGIN).state] += 1
        assert found["confirmed"] <= 1
        assert found["unconfirmed"] <= (3 if not noise else 25)


def test_a_level_that_became_the_current_one_is_told_before_the_history_shows_it():
    """Else a change that was confirmed would be none for as long as it takes to be a step."""
    series = np.concatenate([np.full(6, 2.3), np.full(9, 3.7)]) + 0.01 * np.tile([1, -1, 0], 5)
    for runs in range(12, len(series) + 1):
        found = judge_newest(exact(series[:runs]), MARGIN)
        assert (found.state, found.regime[0], found.adopted) == ("steady", 6, [(0, 6)])
