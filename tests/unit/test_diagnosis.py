"""The tests of a series, against reference values and against noise that was made with a known answer."""

import itertools
import math

import numpy as np
import pytest

from bench_master.verdicts import diagnosis
from bench_master.verdicts.rank_sum import rank_sum_p

MARGIN = math.log(1.03)
NOISE = np.array([0.031, 0.012, 0.055, -0.004, 0.027, 0.041, 0.018, 0.063, 0.009, 0.036])
RISING = np.log([10, 10.2, 10.1, 10.4, 10.3, 10.6, 10.5, 10.8, 10.7, 11, 10.9, 11.2])


def kinds(series, margin=MARGIN):
    return {found.kind for found in diagnosis.find(series, margin)}


# -- reference values ---------------------------------------------------------------------------------------------


def test_drift_has_its_p_and_its_size():
    """Mann and Kendall's p with ties and continuity, and the change from the first to the last measurement."""
    rising, noise = diagnosis.drift(RISING), diagnosis.drift(NOISE)
    assert rising.p == pytest.approx(1.6e-4, abs=5e-6)
    assert rising.size == pytest.approx(0.1038, abs=5e-5)
    assert noise.p == pytest.approx(0.85803, abs=5e-6)
    assert diagnosis.drift(np.zeros(20)) is None


def test_the_von_neumann_ratio_of_ranks():
    """One-sided: alternating neighbours are no finding, rising ones are."""
    p, correlation = diagnosis.von_neumann(NOISE)
    assert (p, correlation) == pytest.approx((0.98906, -0.68182), abs=5e-6)
    assert diagnosis.von_neumann(RISING)[0] == pytest.approx(0.00107, abs=5e-6)
    assert diagnosis.neighbours(np.ones(20)) is None


def test_the_table_of_steps_is_exact_for_short_series():
    """For seven measurements all 5,040 orders can be counted; the table of drawn ones must agree."""
    scale = math.sqrt(2.0) * 2.0
    sums = (np.abs(np.cumsum(np.array(order) - 3)[2:4]).max() / scale for order in itertools.permutations(range(7)))
    exact, drawn = np.array(list(sums)), diagnosis._step_table(7)
    for value in np.unique(exact.round(6)):
        assert (drawn > value - 1e-3).mean() == pytest.approx((exact > value - 1e-3).mean(), abs=0.015)


# -- what is found, and where -------------------------------------------------------------------------------------


def test_a_step_is_placed():
    """From the 15th measurement on everything takes 10 % longer."""
    noise = np.random.default_rng(3).normal(0, 0.01, 30)
    noise[14:] += math.log(1.1)
    step = diagnosis.step(noise)
    assert 13 <= step.at <= 15
    assert step.p < 0.001
    assert math.exp(step.size) == pytest.approx(1.1, abs=0.01)


def test_regimes_are_described():
    """Two levels, how far apart they are, and how often the series changed between them."""
    noise = np.random.default_rng(4).normal(0, 0.01, 40)
    noise[[*range(10, 15), *range(20, 24), *range(30, 33)]] += math.log(1.21)
    (regimes,) = [found for found in diagnosis.find(noise, MARGIN) if found.kind == "regimes"]
    assert math.exp(regimes.size) == pytest.approx(1.21, abs=0.01)
    assert regimes.switches == 6
    assert regimes.modes == pytest.approx((0.0, math.log(1.21)), abs=0.01)


def test_steps_of_the_measure_are_no_regimes():
    """A measure in two or three steps has gaps and no regimes; one that jumps over many has."""
    draw = np.random.default_rng(5)
    coarse = np.log(0.49 + 0.02 * draw.integers(0, 3, 40))
    assert diagnosis.regimes(coarse, MARGIN) is None
    assert diagnosis.resolution_step([0.49, 0.51, 0.49, 0.53]) == 0.0
    assert diagnosis.resolution_step([0.49, 0.51, 0.49, 0.51]) == pytest.approx(0.02)
    assert diagnosis.resolution_step([1.0] * 8) == 0.0
    two_levels = np.log(np.where(np.arange(40) % 20 < 7, 1.5, 1.0) + 0.01 * draw.integers(0, 3, 40))
    assert diagnosis.regimes(two_levels, MARGIN).size == pytest.approx(math.log(1.5), abs=0.01)


def test_regimes_need_a_wider_gap_among_many_series():
    """Of a skewed noise one series in hundreds has a gap; of many that are looked at together one would."""
    draw = np.random.default_rng(8)
    gaps = [diagnosis.regimes(0.1 * draw.exponential(size=20), MARGIN, of=3) for _ in range(600)]
    assert not any(gaps)
    series = 0.02 * draw.normal(size=40)
    series[::3] += 0.19
    assert diagnosis.regimes(series, MARGIN) is not None
    assert diagnosis.regimes(series, MARGIN, of=1000) is None


def test_a_finding_needs_size_too():
    """A drift that is certain and below the margin is none."""
    rising = np.arange(30) * 0.0005
    assert diagnosis.drift(rising).p < 1e-6
    assert kinds(rising) == set()
    assert "drift" in kinds(rising, math.log(1.01))


def test_long_series_are_judged_by_their_neighbours_medians():
    """A run of 100 treatments and 200 rounds is no matter of minutes; its step is placed to within a group."""
    noise = np.random.default_rng(6).normal(0, 0.03, 20_000)
    assert kinds(noise) == set()
    noise[15_000:] += 0.1
    (step,) = [found for found in diagnosis.find(noise, MARGIN) if found.kind == "step"]
    assert abs(step.at - 15_000) <= 10


def test_outliers_and_short_warm_ups():
    """Outliers are named by their place and never dropped; eight treatments are the fewest that show a warm-up."""
    noise = np.random.default_rng(7).normal(0, 0.01, 20)
    noise[4] = 0.3
    assert diagnosis.outliers(noise) == [4]
    assert diagnosis.outliers([1.0] * 9 + [2.0]) == []
    assert diagnosis.warm_up_too_short([True] * 5 + [False] * 3)
    assert not diagnosis.warm_up_too_short([True] * 4 + [False] * 4)
    assert not diagnosis.warm_up_too_short([True] * 7)


# -- error rates --------------------------------------------------------------------------------------------------

NOISES = {
    "white": lambda draw, n: draw.normal(0, 0.03, n),
    "lognormal": lambda draw, n: 0.1 * draw.lognormal(0, 0.6, n),
    "t3": lambda draw, n: 0.03 * draw.standard_t(3, n),
    "uniform": lambda draw, n: draw.uniform(0, 0.1, n),
    "quantised": lambda draw, n: np.log(np.round(draw.normal(10, 0.5, n)) / 10),
}


@pytest.mark.parametrize("noise", NOISES)
def test_false_alarms(noise):
    """Independent measurements: each test finds something in 2.6 % of 400 series at most, any of them in 4.5 %."""
    draw = np.random.default_rng(11)
    for n in (10, 20, 40, 120):
        found = [kinds(NOISES[noise](draw, n)) for _ in range(400)]
        for kind in ("drift", "step", "neighbours", "regimes"):
            assert sum(kind in one for one in found) <= 0.026 * 400, (kind, n)
        assert sum(bool(one) for one in found) <= 0.045 * 400, n


def drifting(draw, n):
    return draw.normal(0, 0.03, n) + np.linspace(0, math.log(1.2), n)


def stepping(draw, n):
    return draw.normal(0, 0.03, n) + math.log(1.1) * (np.arange(n) >= n // 2)


def autoregressive(share):
    def make(draw, n):
        noise = np.empty(n)
        level = draw.normal(0, 0.03)
        for place, shock in enumerate(draw.normal(0, 0.03 * math.sqrt(1 - share**2), n)):
            noise[place] = level = share * level + shock
        return noise

    return make


def phases(draw, n):
    switch = draw.random(n) < 1 / 8
    return draw.normal(0, 0.03, n) + math.log(1.6) * (np.cumsum(switch) % 2)


def two_modes(draw, n):
    return draw.normal(0, 0.03, n) + math.log(1.6) * (draw.random(n) < 0.3)


@pytest.mark.parametrize(
    ("make", "kind", "least"),
    [
        (drifting, "drift", {20: 99}),
        (stepping, "step", {10: 75, 20: 97}),
        (autoregressive(0.6), "neighbours", {20: 35, 40: 72}),
        (autoregressive(0.9), "neighbours", {40: 68, 120: 97}),
        (phases, "regimes", {20: 62, 40: 84, 120: 97}),
        (two_modes, "regimes", {20: 82, 40: 90, 120: 98}),
    ],
)
def test_power(make, kind, least):
    """Each test finds what it is for, in at least so many percent of 200 series."""
    draw = np.random.default_rng(12)
    for n, percent in least.items():
        found = sum(kind in kinds(make(draw, n)) for _ in range(200))
        assert found >= percent / 100 * 200, (n, found)


def carried(draw, rounds, effect):
    """Return the residuals of trials that open a round, after a and after b; what follows a takes longer."""
    after = {"a": [], "b": []}
    last = None
    trials = []
    for _ in range(rounds):
        for place, name in enumerate(draw.permutation(["a", "b"])):
            value = draw.normal(0, 0.03) + (effect if last == "a" else 0.0)
            trials.append((name, value, last if place == 0 else None))
            last = name
    medians = {name: np.median([value for mine, value, _ in trials if mine == name]) for name in "ab"}
    for name, value, before in trials:
        if before is not None:
            after[before].append(value - medians[name])
    return diagnosis.carry_over(after["a"], after["b"])


def test_carry_over():
    """A treatment that slows down what follows it by 10 % is found; without one hardly any run is flagged."""
    draw = np.random.default_rng(13)
    none = [found for _ in range(400) if (found := carried(draw, 20, 0.0)) is not None]
    assert sum(found.p <= 0.01 for found in none) <= 0.025 * 400
    strong = [found for _ in range(100) if (found := carried(draw, 20, 0.1)) is not None]
    assert sum(found.p <= 0.01 for found in strong) >= 78
    assert np.median([found.shift for found in strong]) == pytest.approx(0.1, abs=0.015)
    assert diagnosis.carry_over([0.1, 0.2], [0.0] * 9) is None
    assert rank_sum_p(np.zeros(5), np.zeros(5)) == 1.0
