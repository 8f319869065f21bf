"""The knee of a curve: found where two lines meet, with an interval, and not where one line is enough."""

import numpy as np
import pytest

from bench_master.verdicts.knee import FEWEST_GROUPS, LEVEL, MOST_GROUPS, fit_curve

LOADS = np.tile(np.arange(1.0, 101.0), 3)


def bent(rng, at=60.0, slope=0.005, noise=0.1, loads=LOADS):
    """Return times that are level up to a load and grow from there on, each with an error of its own."""
    return (0.3 + slope * np.maximum(0.0, loads - at)) * np.exp(noise * rng.standard_normal(len(loads)))


def test_the_knee_is_where_the_curve_bends():
    """Its interval has the true place, and the slopes are those of both parts."""
    rng = np.random.default_rng(1)
    knees = [fit_curve(LOADS, bent(rng)).knee for _ in range(40)]
    assert all(knees)
    covered = sum(knee.low <= 60.0 <= knee.high for knee in knees)
    assert covered >= 34
    assert np.median([knee.at for knee in knees]) == pytest.approx(60.0, abs=4.0)
    assert np.median([knee.after for knee in knees]) == pytest.approx(0.005, rel=0.2)
    assert abs(np.median([knee.before for knee in knees])) < 0.0005


def test_odd_ones_are_no_knee():
    """Each group counts as its median: a container in fifty that takes ten times as long changes little."""
    rng = np.random.default_rng(2)
    times = bent(rng)
    times[::50] *= 10.0
    assert fit_curve(LOADS, times).knee.at == pytest.approx(60.0, abs=6.0)
    level = bent(rng, slope=0.0)
    level[::50] *= 10.0
    assert fit_curve(LOADS, level).knee is None


def correlated(rng, count):
    """Return noise of which each value has half of the one before it."""
    noise = rng.standard_normal(count)
    for place in range(1, count):
        noise[place] += 0.5 * noise[place - 1]
    return noise


@pytest.mark.parametrize("kind", ["level", "rising", "correlated"])
def test_one_line_has_no_knee(kind):
    """Up to one in a hundred, of independent deviations; of correlated ones not many more."""
    rng = np.random.default_rng(3)
    found, curves = 0, 120
    for _ in range(curves):
        noise = correlated(rng, len(LOADS)) if kind == "correlated" else rng.standard_normal(len(LOADS))
        line = 0.3 + (0.003 if kind == "rising" else 0.0) * LOADS
        order = np.argsort(LOADS, kind="stable")
        times = np.empty_like(LOADS)
        times[order] = line[order] * (1.0 + 0.15 * noise)
        found += fit_curve(LOADS, times).knee is not None
    assert found <= curves * LEVEL + (3 if kind != "correlated" else 6)


def test_a_curve_that_flattens_has_no_knee():
    """Nor has one whose second line rises too little to matter."""
    rng = np.random.default_rng(4)
    flat = 0.3 + 0.01 * np.minimum(LOADS, 40.0) + 0.001 * rng.standard_normal(len(LOADS))
    assert fit_curve(LOADS, flat).knee is None
    assert fit_curve(LOADS, bent(rng, slope=0.0003, noise=0.0001)).knee is None


def test_the_line_goes_through_the_knee():
    """What charts draw: its ends are those of the loads, and with a knee there is one more point."""
    curve = fit_curve(LOADS, bent(np.random.default_rng(5), noise=0.02))
    first, knee, last = curve.line
    assert knee[0] == curve.knee.at
    assert (knee[1] - first[1]) / (knee[0] - first[0]) == pytest.approx(curve.knee.before)
    assert (last[1] - knee[1]) / (last[0] - knee[0]) == pytest.approx(curve.knee.after)
    assert len(curve.points) == MOST_GROUPS
    assert len(fit_curve(LOADS, 0.3 + 0.0 * LOADS).line) == 2


@pytest.mark.parametrize("count", [0, 1, 2, 3, 3 * FEWEST_GROUPS - 1])
def test_too_few_values_are_not_fitted(count):
    """Four numbers would explain them all."""
    curve = fit_curve(np.arange(1.0, count + 1), np.ones(count))
    assert (curve.line, curve.knee) == ((), None)
    assert len(curve.points) == count // 3


def test_few_loads_of_many_packings_are_enough():
    """Eight containers at a time have eight loads; the values of one load are in one group."""
    loads = np.tile(np.arange(1.0, 9.0), 6)
    curve = fit_curve(loads, 0.1 * loads)
    assert [load for load, _ in curve.points] == list(range(1, 9))
    assert curve.knee is None
    assert curve.line[-1][1] == pytest.approx(0.8)
