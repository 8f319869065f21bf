"""The statistics between runs, against reference values, and against runs that were made with a known answer."""

import math

import numpy as np
import pytest

from bench_master.verdicts.between_runs import (
    RunLevels,
    against_archive,
    anchor_helps,
    can_rank,
    new_runs_needed,
    next_run,
    of_groups,
    of_pairs,
    predict,
)
from bench_master.verdicts.decision import Rules
from bench_master.verdicts.rank_sum import rank_sum_p
from bench_master.verdicts.reasons import Code, because

ARCHIVE = RunLevels.exact([0, 0.01, -0.02, 0.015, -0.005, 0.01, 0, 0.02])
ROUNDS = 20


def exact(values):
    return RunLevels.exact(values)


# -- a new run against an archive -----------------------------------------------------------------------------------


def test_a_prediction():
    """Of one run by eight; by hand and by scipy."""
    found = predict(ARCHIVE, exact([0.06]))
    assert (found.difference, found.interval.low, found.interval.high) == pytest.approx(
        (0.05625, 0.02428, 0.08822), abs=5e-6
    )
    assert found.p == pytest.approx(0.00424, abs=5e-6)
    assert next_run(ARCHIVE) == pytest.approx(0.05625 - 0.02428, abs=5e-6)


def test_words_for_a_new_run():
    """As within a run: by the 95 % interval, and by the margin for sameness."""
    slower = against_archive(ARCHIVE, exact([0.06]), Rules())
    assert (slower.word, slower.reason, slower.rounds) == ("slower", because(Code.MAYBE_BELOW_MARGIN), 8)
    assert (slower.ratio, slower.low, slower.high) == pytest.approx(np.exp([0.05625, 0.02428, 0.08822]), abs=1e-5)
    assert against_archive(ARCHIVE, exact([0.06]), Rules(lower_is_better=False)).word == "faster"
    quiet = exact(ARCHIVE.values / 10)
    assert against_archive(quiet, exact([0.001]), Rules()).word == "same"
    unclear = against_archive(ARCHIVE, exact([0.02]), Rules())
    assert (unclear.word, unclear.more_rounds) == ("inconclusive", 6)
    # Of a hundred figures one may stand out so far by chance.
    of_many = against_archive(ARCHIVE, exact([0.06]), Rules(comparisons=100))
    assert (of_many.word, of_many.reason) == ("inconclusive", because(Code.NOT_ENOUGH_TOGETHER, comparisons=100))


def test_a_new_run_that_is_not_known_exactly():
    """Failed jobs that could have taken for ever leave the upper end open, and the lower end where it was."""
    band = RunLevels(np.array([0.06]), np.array([-0.2]), np.array([math.inf]))
    hangs = against_archive(ARCHIVE, band, Rules())
    assert (hangs.word, hangs.reason, hangs.high) == (
        "inconclusive",
        because(Code.DEPENDS_ON_FAILURES),
        math.inf,
    )


def test_an_archive_without_spread_predicts_nothing():
    """Equal values come from a measure in coarse steps: the first other value would be a wonder."""
    verdict = against_archive(exact([0.1] * 6), exact([0.11]), Rules())
    assert (verdict.word, verdict.low, verdict.high) == ("inconclusive", 0.0, math.inf)
    assert verdict.reason == because(Code.EARLIER_RUNS_ALIKE)


def test_new_runs_that_a_gate_takes():
    """Fewer with a longer archive and a quieter machine; none where the archive itself is too short for it."""
    noisy = [new_runs_needed(exact(np.tile(ARCHIVE.values, times)), math.log1p(0.03)) for times in (1, 3, 10)]
    assert noisy == [7, 3, 2]
    assert new_runs_needed(exact(ARCHIVE.values * 2), math.log1p(0.03)) is None
    assert new_runs_needed(exact(ARCHIVE.values / 3), math.log1p(0.03)) == 1


def runs(generator, count, spread, effect=0.0):
    """Return the levels of runs that differ by `spread`, each the median of rounds that vary by 3 %."""
    medians = np.median(0.03 * generator.normal(size=(count, ROUNDS)), axis=1)
    return spread * generator.normal(size=count) + medians + effect


def share_called_different(earlier, new, spread, effect=0.0, times=2000):
    generator = np.random.default_rng([20140901, earlier])
    different = 0
    for _ in range(times):
        archive, fresh = runs(generator, earlier, spread), runs(generator, new, spread, effect)
        different += predict(exact(archive), exact(fresh)).p < 0.05
    return different / times


@pytest.mark.parametrize("spread", [0.0, 0.02])
@pytest.mark.parametrize("earlier", [5, 8, 20])
def test_equal_runs_differ_as_often_as_the_level_says(earlier, spread):
    """Whatever runs differ by, and however few they are."""
    assert 0.038 <= share_called_different(earlier, 1, spread) <= 0.062


@pytest.mark.parametrize(
    ("earlier", "new", "least", "most"),
    [(5, 1, 0.32, 0.42), (8, 1, 0.41, 0.51), (20, 1, 0.53, 0.63), (8, 3, 0.77, 0.87), (20, 3, 0.90, 0.97)],
)
def test_power_of_a_prediction(earlier, new, least, most):
    """Of 3 % where runs differ by 1 %: one new run finds it half of the time, three most of the time."""
    assert least <= share_called_different(earlier, new, 0.01, 0.03, times=1500) <= most


# -- pairs and groups -----------------------------------------------------------------------------------------------


def test_pairs_of_runs():
    """Runs in turns: what both runs of a pair share does not count."""
    shared = np.linspace(0, 0.5, 8)
    a, b = shared + ARCHIVE.values / 4, shared + 0.1 + ARCHIVE.values[::-1] / 4
    assert of_pairs(exact(a), exact(b), Rules()).word == "slower"
    assert of_pairs(exact(a), exact(a + 0.001), Rules()).word == "same"
    assert of_groups(exact(a), exact(b), Rules()).word == "inconclusive"


def test_rank_sums():
    """Their p is that of tables; three against three never reach 5 %."""
    apart = [rank_sum_p(np.arange(float(n)), 10.0 + np.arange(n)) for n in (3, 4, 5)]
    assert apart == pytest.approx([2 / 20, 2 / 70, 2 / 252])
    assert rank_sum_p(np.array([1.0, 4, 6, 7, 9]), np.array([2.0, 8, 10, 11])) == pytest.approx(36 / 126)
    assert [can_rank(3, 3), can_rank(4, 4), can_rank(5, 3), can_rank(5, 1)] == [False, True, True, False]
    many = np.arange(50.0)
    assert rank_sum_p(many, many + 10.5) == pytest.approx(0.00121, rel=0.01)


def test_groups_of_runs():
    """Four against four that do not overlap differ; ties and overlaps do not."""
    a = exact([0, 0.01, -0.01, 0.005])
    apart = of_groups(a, exact([0.1, 0.11, 0.09, 0.12]), Rules())
    assert (apart.word, apart.rounds, apart.p) == ("slower", 4, pytest.approx(2 / 70))
    assert (apart.low, apart.high) == pytest.approx((math.exp(0.08), math.exp(0.13)))
    assert of_groups(a, exact([0.004, 0.011, -0.01, 0.0]), Rules()).word == "same"
    assert of_groups(a, exact([0.1, 0.11, 0.004, 0.12]), Rules()).word == "inconclusive"
    # Four against four have no exact interval for ten comparisons together: Student's widens it.
    assert of_groups(a, exact([0.1, 0.11, 0.09, 0.12]), Rules(comparisons=10)).low < apart.low


def test_equal_groups_differ_as_often_as_the_level_says():
    """Of runs without a difference."""
    generator = np.random.default_rng(3)
    times = 2000
    different = sum(rank_sum_p(*generator.normal(size=(2, 5))) <= 0.05 for _ in range(times))
    assert different / times <= 0.05


# -- anchor ---------------------------------------------------------------------------------------------------------


def test_an_anchor_only_where_it_helps():
    """A treatment that shares what makes runs differ; never one that varies on its own."""
    generator = np.random.default_rng(2)
    shared, own, other = 0.03 * generator.normal(size=(3, 12))
    assert anchor_helps(shared + own / 5, shared + other / 5)
    assert not anchor_helps(shared, own)
    assert not anchor_helps(shared[:4], shared[:4] + own[:4] / 50)
    wrong = sum(anchor_helps(*generator.normal(size=(2, 8))) for _ in range(500))
    assert wrong <= 5
