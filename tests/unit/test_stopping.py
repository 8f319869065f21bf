"""Runs that stop when their question is settled: the looks, how often they err, and when the run ends."""

import math
import sys

import numpy as np
import pytest
from places import ROOT

from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.decision import Rules, TrialValues, compare
from bench_master.verdicts.signed_rank import NO_INTERVAL, critical_value, exact_interval
from bench_master.verdicts.stopping import (
    critical_values,
    error_with_earlier_ends,
    extension_level,
    last_look,
    nominal_levels,
)
from bench_master.verdicts.student import t_quantile

sys.path.insert(0, str(ROOT / "benchmarks"))
import stopping_tables

RUNS = 20_000
LAST = 30


@pytest.mark.parametrize(
    ("last", "first", "expected"),
    [
        (10, 7, [0, 2, 4, 6]),
        (15, 7, [0, 0, 2, 4, 6, 8, 12, 15, 20]),
        (20, 8, [0, 2, 3, 4, 7, 10, 13, 17, 22, 26, 32, 37, 43]),
        (30, 9, [1, 2, 3, 5, 7, 11, 14, 17, 22, 26, 32, 37, 43, 50, 57, 65, 72, 81, 89, 99, 109, 119]),
    ],
)
def test_critical_values_of_the_looks(last, first, expected):
    """As the reference has them; before the first no conclusion is drawn."""
    assert list(critical_values(last)) == [NO_INTERVAL] * first + expected


def test_the_stored_critical_values_are_those_of_the_script():
    """Simulated again for one last look: those of a difference, and those of *same*."""
    found = [list(critical_values(LAST, same=same)) for same in (False, True)]
    expected = [0, 2, 3, 5, 8, 10, 14, 18, 22, 27, 32, 38, 44, 51, 59, 66, 74, 83, 92, 102, 113, 123, 135]
    assert found[1] == [NO_INTERVAL] * 8 + expected
    assert found == stopping_tables.simulate(LAST)
    assert {len(critical_values(last)) for last in range(6, 61)} == set(range(7, 62))
    with pytest.raises(ValueError, match="a last look after 6 to 60 rounds"):
        critical_values(61)


def test_a_budget_fixes_the_last_look():
    """By the length of one round; never fewer rounds than have an interval, and no more than have a table."""
    assert [last_look(30, budget_s, 60.0) for budget_s in (None, 7200.0, 600.0, 60.0)] == [30, 30, 10, 6]
    assert last_look(60, 1e9, 1.0) == 60


def histories(noise, comparisons, seed):
    """Differences by round, run and comparison, without an effect: all comparisons share their baseline."""
    generator = np.random.default_rng(seed)
    trials = noise(generator, (LAST, RUNS // comparisons, comparisons + 1))
    return trials[..., 1:] - trials[..., :1]


def looks(differences):
    """Yield after each round its number, the smaller signed rank statistics, and Student's t."""
    statistic = np.zeros(differences.shape[1:], np.int64)
    for n in range(1, len(differences) + 1):
        statistic += (differences[:n] + differences[n - 1] > 0).sum(axis=0)
        if n >= 6:
            so_far = differences[:n]
            t = so_far.mean(axis=0) / so_far.std(axis=0, ddof=1) * np.sqrt(n)
            yield n, np.minimum(statistic, n * (n + 1) // 2 - statistic), t


def white(generator, shape):
    return generator.normal(size=shape)


def outliers(generator, shape):
    return generator.normal(size=shape) + 8.0 * (generator.random(shape) < 0.05)


def alike(generator, shape):
    """Each trial is much like the one before; the order within a round is drawn."""
    rounds, runs, treatments = shape
    in_order = generator.normal(size=(rounds * treatments, runs))
    for place in range(1, len(in_order)):
        in_order[place] = 0.9 * in_order[place - 1] + 0.436 * in_order[place]
    drawn = in_order.reshape(rounds, treatments, runs).swapaxes(1, 2)
    return generator.permuted(drawn, axis=2)


@pytest.mark.parametrize("noise", [white, outliers, alike])
def test_looking_after_every_round_errs_no_more_often(noise):
    """Of 20,000 runs without a difference; the same looks at 5 % each err four times as often."""
    by_spending, naive = np.zeros((RUNS, 1), bool), np.zeros((RUNS, 1), bool)
    for n, smaller, _ in looks(histories(noise, 1, 11)):
        by_spending |= smaller <= critical_values(LAST)[n]
        naive |= smaller <= critical_value(n, 0.05)
    assert 0.035 <= by_spending.mean() <= 0.055
    assert naive.mean() > 0.15


@pytest.mark.parametrize("comparisons", [4, 12])
def test_a_family_that_is_looked_at_errs_no_more_often(comparisons):
    """Any wrong verdict in all looks at several treatments that equal the baseline."""
    wrong = np.zeros(RUNS // comparisons, bool)
    for n, smaller, t in looks(histories(white, comparisons, 5)):
        level = nominal_levels(n, LAST)[0]
        if level:
            found = (smaller <= critical_values(LAST)[n]) & (
                np.abs(t) > t_quantile(1 - level / comparisons / 2, n - 1)
            )
            wrong |= found.any(axis=1)
    assert wrong.mean() <= 0.0625


def test_a_look_decides_by_these_levels():
    """The words of a comparison at a look are those of the critical values; before the first there is none."""
    generator = np.random.default_rng(3)
    for comparisons in (1, 4):
        for n in (6, 8, 9, 12, 30):
            for _ in range(20):
                differences = 0.01 * generator.normal(size=(n, 1)) + 0.01
                (*_, (_, smaller, t)) = looks(np.vstack([differences]))
                a, b = np.ones(n), np.exp(differences[:, 0])
                rules = Rules(comparisons=comparisons, margin=1e-9, look=nominal_levels(n, LAST))
                found = compare(TrialValues(a, a, a), TrialValues(b, b, b), rules)
                level = rules.look[0]
                shown = bool(level) and smaller[0] <= critical_values(LAST)[n]
                if shown and comparisons > 1:
                    shown = abs(t[0]) > t_quantile(1 - level / comparisons / 2, n - 1)
                assert (found.word in ("faster", "slower")) is bool(shown)
                assert found.confidence == 0.95


def test_a_clear_answer_comes_early():
    """10 % at a noise of 1.5 %: the first look that may conclude does; and *same* is found at the second."""
    generator = np.random.default_rng(9)
    for effect, words, latest in ((0.1, {"slower"}, 9), (0.0, {"same"}, 13)):
        for _ in range(20):
            logs = 0.015 * generator.normal(size=(2, LAST)) + [[0.0], [math.log1p(effect)]]
            found = None
            for n in range(6, LAST + 1):
                rules = Rules(look=nominal_levels(n, LAST))
                found = compare(*(RunLevels.exact(own[:n]).trials() for own in logs), rules)
                if found.word != "inconclusive":
                    break
            assert found.word in words
            assert n <= latest + 4


def test_extensions_err_in_less_than_a_tenth_however_many():
    """The levels of all ends add up to less than twice the first, which nothing takes back."""
    assert [extension_level(number) for number in range(3)] == [0.05, 0.025, 0.0125]
    assert [error_with_earlier_ends(number) for number in (1, 2)] == pytest.approx([0.075, 0.0875])
    assert error_with_earlier_ends(50) <= 0.1
    generator, wrong = np.random.default_rng(5), 0
    for _ in range(2000):
        rounds = generator.normal(size=20)
        ends = ((rounds[:10], 0.05), (rounds, extension_level(1)))
        wrong += any(exact_interval(own, own, level).excludes_zero() for own, level in ends)
    assert 0.05 < wrong / 2000 <= 0.075
