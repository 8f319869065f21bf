"""The statistics of verdicts, against reference values, and against noise that was made with a known answer."""

import math

import numpy as np
import pytest

from bench_master.verdicts.decision import Rules, TrialValues, compare
from bench_master.verdicts.planning import rounds_for_difference, rounds_for_same, smallest_effect
from bench_master.verdicts.reasons import Code, because
from bench_master.verdicts.signed_rank import (
    Pairs,
    critical_value,
    estimate,
    exact_interval,
    family_interval,
    look_interval,
    null_distribution,
    p_value,
    ratio_interval,
    student_interval,
)
from bench_master.verdicts.stopping import nominal_levels
from bench_master.verdicts.student import chi_squared_quantile, t_quantile, t_two_sided

LOGS = np.array([0.031, 0.012, 0.055, -0.004, 0.027, 0.041, 0.018, 0.063, 0.009, 0.036])
A = np.array([1.00, 1.02, 0.99, 1.10, 1.01, 0.98, 1.03, 1.05, 1.00, 1.04])
B = np.array([1.06, 1.07, 1.04, 1.18, 1.05, 1.04, 1.07, 1.13, 1.08, 1.06])


def exact(values):
    array = np.asarray(values, float)
    return TrialValues(array, array, array)


def near(*values):
    return pytest.approx(values, abs=5e-6)


# -- distributions ------------------------------------------------------------------------------------------------


def test_quantiles_and_tails():
    """As tables and scipy have them."""
    assert (t_quantile(0.975, 2), t_quantile(0.975, 9)) == pytest.approx((4.302652730, 2.262157163))
    assert t_quantile(0.025, 9) == -t_quantile(0.975, 9)
    assert t_two_sided(2.0, 7) == pytest.approx(0.08561932856297615, rel=1e-12)
    assert [chi_squared_quantile(0.2, df) for df in (1, 5, 9)] == pytest.approx(
        [0.0641847547, 2.3425343058, 5.3800532117]
    )


@pytest.mark.parametrize(
    ("alpha", "expected", "at_thirty"),
    [
        (0.05, [-1, 0, 2, 3, 5, 8, 10, 13, 17, 21, 25, 29, 34, 40, 46, 52], 137),
        (0.10, [0, 2, 3, 5, 8, 10, 13, 17, 21, 25, 30, 35, 41, 47, 53, 60], 151),
    ],
)
def test_critical_values_of_the_signed_rank(alpha, expected, at_thirty):
    """Those of published tables, for 5 to 20 rounds and for 30."""
    assert [critical_value(rounds, alpha) for rounds in range(5, 21)] == expected
    assert critical_value(30, alpha) == at_thirty


def test_the_null_distribution_counts_sign_patterns():
    """Of 64 for six rounds; and the approximation above 300 rounds continues the exact one."""
    assert list(null_distribution(6)[:4] * 64) == [1, 2, 3, 5]
    steps = [critical_value(rounds, 0.05) for rounds in (299, 300, 301, 302)]
    assert np.ptp(np.diff(steps)) <= 3


# -- one comparison -----------------------------------------------------------------------------------------------


def test_interval_estimate_and_p():
    """Ten differences, by hand and by scipy."""
    interval = exact_interval(LOGS, LOGS, 0.05)
    assert (interval.low, interval.high) == near(0.0135, 0.045)
    assert estimate(LOGS) == pytest.approx(0.029)
    assert p_value(LOGS) == 0.00390625


def test_a_difference():
    """With its size, interval, p and tipping point."""
    verdict = compare(exact(np.ones(10)), exact(np.exp(LOGS)), Rules())
    assert verdict.word == "slower"
    assert (verdict.ratio, verdict.low, verdict.high) == pytest.approx((1.0294, 1.0136, 1.0460), abs=5e-5)
    assert verdict.tipping_point == pytest.approx(0.0136, abs=5e-5)
    less = compare(exact(np.exp(LOGS)), exact(np.ones(10)), Rules())
    assert (less.word, less.tipping_point) == ("faster", pytest.approx(1 - less.high))
    assert compare(exact(np.ones(10)), exact(np.exp(LOGS)), Rules(lower_is_better=False)).word == "faster"


def test_a_family_holds_together():
    """Thirty comparisons have a wider interval each, by the rule for few rounds."""
    alone, one_of_thirty = (compare(exact(A), exact(B), Rules(comparisons=k)) for k in (1, 30))
    assert (alone.ratio, alone.low, alone.high) == near(1.055645, 1.039604, 1.068681)
    assert alone.p == 1 / 512
    assert (one_of_thirty.low, one_of_thirty.high) == near(1.028118, 1.081717)


def test_too_few_comparisons_are_named():
    """What one comparison shows and a hundred do not."""
    few = slice(0, 7)
    alone, of_many = (compare(exact(A[few]), exact(B[few]), Rules(comparisons=k, margin=0.001)) for k in (1, 5000))
    assert alone.word == "slower"
    assert (of_many.word, of_many.reason) == ("inconclusive", because(Code.NOT_ENOUGH_TOGETHER, comparisons=5000))


def test_the_same_within_the_margin():
    """Two one-sided tests; a difference that is real and below the margin is the same, too."""
    factors = np.array([1.01, 0.99, 1.005, 0.995, 1, 1.002, 0.998, 1.01, 0.99, 1])
    verdict = compare(exact(A), exact(A * factors), Rules())
    assert verdict.word == "same"
    assert (verdict.low, verdict.high) == near(0.994987, 1.004988)
    small = compare(exact(A), exact(A * (1 + factors / 200)), Rules())
    assert (small.word, small.reason) == ("same", because(Code.BELOW_MARGIN))


def test_what_is_not_known_exactly_decides():
    """A late clock, and a round without a number: the interval takes the worst ends, and the reason says so."""
    late = compare(exact(A), TrialValues(B, B - 0.06, B, "clock"), Rules())
    assert (late.word, late.reason) == ("inconclusive", because(Code.DEPENDS_ON_CLOCK))
    assert (late.low, late.high) == near(0.980581, 1.068681)
    one_lost = B.copy()
    one_lost[3] = np.nan
    lost = compare(exact(A), exact(one_lost), Rules())
    assert (lost.word, lost.reason, lost.rounds) == ("inconclusive", because(Code.DEPENDS_ON_FAILURES), 9)


def test_the_interval_of_a_ratio_needs_no_logarithm():
    """Its ends are where the signed rank of b - f a turns; without zeros it is close to that of the logarithms."""
    a, b = A, 2.0 * B
    found = compare(exact(np.append(a, 0.0)), exact(np.append(b, 0.0)), Rules(differences=True)).ratio_ends
    alone = Pairs(a, b)
    low, high = alone.exact_end(0.05, -1.0), alone.exact_end(0.05, 1.0)
    for end, step in ((low, -1e-6), (high, 1e-6)):
        outside, inside = (exact_interval(b - f * a, b - f * a, 0.05) for f in (end + step, end - step))
        assert (outside.excludes_zero(), inside.excludes_zero()) == (True, False)
    logs = compare(exact(a), exact(b), Rules())
    assert (low, high) == pytest.approx((logs.low, logs.high), rel=0.002)
    assert found[0] <= low <= high <= found[1] < 2.3
    family = ratio_interval(alone, alone, 0.05, 5000, is_look=False)
    assert family.low < low < high < family.high
    assert all(math.isnan(end) for end in compare(exact(a - 1.0), exact(b), Rules(differences=True)).ratio_ends)


def test_a_worse_clock_creates_no_word():
    """Lateness that would explain an outlier does not make the interval narrower: its ends are the worst of all."""
    d = np.array([0.05, 0.052, 0.048, 0.051, 0.049, 0.60])
    late = np.exp(d) * np.array([1, 1, 1, 1, 1, math.exp(-0.55)])
    rules = Rules(comparisons=2)
    sides = exact(np.ones(6)), exact(np.exp(d)), TrialValues(np.exp(d), late, np.exp(d), "clock")
    sure, banded = compare(sides[0], sides[1], rules), compare(sides[0], sides[2], rules)
    assert (sure.word, banded.word) == ("inconclusive", "inconclusive")
    assert banded.low <= sure.low < sure.high <= banded.high


def test_a_band_contains_the_interval_of_all_that_is_within_it():
    """Of few rounds all combinations of ends are tried: none has a wider interval."""
    generator = np.random.default_rng(9)
    for n in (5, 6, 7) * 20:
        high = 0.05 * generator.normal(size=n)
        low = high - 0.1 * generator.random(n) * (generator.random(n) < 0.5)
        found = student_interval(low, high, 0.01)
        corners = [np.where([place >> bit & 1 for bit in range(n)], low, high) for place in range(2**n)]
        means, errors = (np.array([f(one) for one in corners]) for f in (np.mean, lambda one: one.std(ddof=1)))
        reach = t_quantile(0.995, n - 1) * errors / math.sqrt(n)
        assert (found.low, found.high) == pytest.approx((min(means - reach), max(means + reach)), abs=1e-12)


# -- few rounds ---------------------------------------------------------------------------------------------------


def test_few_rounds_show_an_obvious_gap_only():
    """And never sameness, or an interval: the range of the ratios has its true level."""
    gap = compare(exact([1, 1.01, 0.99]), exact([2, 2.02, 2.01]), Rules())
    assert (gap.word, gap.rounds, gap.confidence) == ("slower", 3, 0.75)
    near_by = compare(exact(A[:5]), exact(B[:5]), Rules())
    assert near_by.word == "inconclusive"
    assert (near_by.ratio, near_by.low, near_by.high) == pytest.approx((1.0545, 1.0396, 1.0727), abs=5e-5)
    assert near_by.confidence == 0.9375
    equal = compare(exact([1, 1, 1]), exact([1, 1, 1]), Rules())
    assert equal.word == "inconclusive"
    for rounds in (0, 1, 2):
        assert compare(exact([1.0] * rounds), exact([9.0] * rounds), Rules()).word == "inconclusive"


def test_a_clear_gap_of_several_comparisons_is_wider():
    """By chance one of a dozen has a gap that alone would leave no doubt."""
    sides = exact([1, 1.01, 0.99, 1, 1]), exact([1.12, 1.13, 1.12, 1.12, 1.12])
    assert [compare(*sides, Rules(comparisons=k)).word for k in (1, 12)] == ["slower", "inconclusive"]
    obvious = exact([4.0, 4.1, 3.9, 4.0, 4.0]), exact([300.0, 303.0, 299.0, 300.0, 300.0])
    assert compare(*obvious, Rules(comparisons=12)).word == "slower"


def test_a_gap_of_two_values_shows_nothing_where_a_family_has_it_by_chance():
    """Of values that are one of two at random all are low on one side and high on the other in 2 of 4^n."""
    sides = exact([1.0] * 5), exact([1.6] * 5)
    for rounds, most in ((3, 1), (4, 6), (5, 25)):
        few = [exact(side.values[:rounds]) for side in sides]
        words = [compare(*few, Rules(comparisons=k)).word for k in (most, most + 1)]
        assert words == ["slower", "inconclusive"]


def test_rounds_that_are_few_as_others_are_lost_hang_on_these():
    """What is left of eight rounds is not five rounds: it is survivors."""
    values = np.ones(8)
    values[:3] = np.nan
    found = compare(exact(values), exact(np.ones(8)), Rules())
    assert (found.word, found.reason, found.rounds) == ("inconclusive", because(Code.DEPENDS_ON_FAILURES), 5)
    assert compare(exact(np.ones(5)), exact(np.ones(5)), Rules()).reason == because(Code.TOO_FEW_ROUNDS, rounds=5)


# -- planning -----------------------------------------------------------------------------------------------------


def test_rounds_that_an_answer_takes():
    """As simulated for trials that vary by 1, 2 and 5 %; more for several comparisons together."""
    spreads = [math.sqrt(2) * share for share in (0.01, 0.02, 0.05)]
    assert [rounds_for_difference(spread, math.log1p(0.03)) for spread in spreads] == [6, 10, 50]
    assert [rounds_for_same(spread, 0.0, math.log1p(0.03)) for spread in spreads] == [6, 11, 54]
    assert [rounds_for_difference(spread, math.log1p(0.03), 12) for spread in spreads] == [8, 18, 89]
    assert rounds_for_difference(1.0, 0.001) is None
    assert rounds_for_same(0.01, 0.05, 0.03) is None
    assert smallest_effect(1.0, 5) == math.inf


@pytest.mark.parametrize(
    ("rounds", "comparisons"),
    [(6, 1), (6, 12), (7, 2), (8, 4), (10, 1), (10, 5), (10, 12), (20, 4), (70, 1)],
)
def test_what_is_said_to_be_missed_in_one_run_of_five_is(rounds, comparisons):
    """Whatever the number of comparisons that hold together: their intervals are wider, and show less."""
    generator = np.random.default_rng(20140901)
    effect = smallest_effect(1.0, rounds, comparisons)
    made = generator.normal(size=(1000 if rounds < 30 else 300, rounds)) + effect
    found = np.mean([family_interval(own, own, 0.05, comparisons).low > 0.0 for own in made])
    assert 0.75 <= found <= 0.85


def test_what_a_run_with_looks_misses_is_more():
    """Its looks together find four in five by the last one; each look alone is judged at a part of the error."""
    generator = np.random.default_rng(5)
    effect, levels = (
        smallest_effect(1.0, 12, 2, 12),
        {rounds: nominal_levels(rounds, 12)[0] for rounds in range(6, 13)},
    )
    assert effect > smallest_effect(1.0, 12, 2)
    made = generator.normal(size=(400, 12)) + effect
    found = [
        any(look_interval(own[:n], own[:n], level, 2).low > 0.0 for n, level in levels.items() if level)
        for own in made
    ]
    assert 0.74 <= np.mean(found) <= 0.86


@pytest.mark.parametrize("comparisons", [1, 4, 12])
def test_more_rounds_keep_their_promise(comparisons):
    """After the rounds that were promised at least four comparisons in five are settled."""
    generator = np.random.default_rng(8)
    rules = Rules(comparisons=comparisons)
    promised = settled = 0
    while promised < 120:
        effect = generator.choice([0.0, 0.05])
        first = 0.04 * generator.normal(size=8) + effect
        verdict = compare(exact(np.ones(8)), exact(np.exp(first)), rules)
        if verdict.more_rounds is None:
            continue
        promised += 1
        later = 0.04 * generator.normal(size=verdict.more_rounds) + effect
        both = np.exp(np.concatenate([first, later]))
        settled += compare(exact(np.ones(len(both))), exact(both), rules).word != "inconclusive"
    assert settled / promised >= 0.8


# -- noise with a known answer --------------------------------------------------------------------------------------


def autocorrelated(generator, count, rho):
    noise = generator.normal(size=count)
    for place in range(1, count):
        noise[place] = rho * noise[place - 1] + math.sqrt(1 - rho * rho) * noise[place]
    return 0.03 * noise


def phases(generator, count):
    states = np.cumsum(generator.random(count) < 1 / 8) % 2
    return math.log(1.6) * states + 0.03 * generator.normal(size=count)


NOISES = {
    "white": lambda generator, count: 0.03 * generator.normal(size=count),
    "lognormal": lambda generator, count: 0.1 * np.exp(generator.normal(size=count)),
    "ar .3": lambda generator, count: autocorrelated(generator, count, 0.3),
    "ar .6": lambda generator, count: autocorrelated(generator, count, 0.6),
    "ar .9": lambda generator, count: autocorrelated(generator, count, 0.9),
    "drift": lambda generator, count: np.linspace(0, math.log(1.2), count) + 0.03 * generator.normal(size=count),
    "phases": phases,
    "outliers": lambda generator, count: (
        0.03 * generator.normal(size=count)
        + (generator.random(count) < 0.05) * np.log(generator.uniform(1.3, 3, count))
    ),
}
RUNS = 2000


def differences(generator, noise, rounds, *, blocked=False):
    """Return the differences of two equal treatments, in a drawn order or one block after the other."""
    series = noise(generator, 2 * rounds)
    if blocked:
        return series[rounds:] - series[:rounds]
    pairs = series.reshape(rounds, 2)
    swapped = generator.random(rounds) < 0.5
    return np.where(swapped, pairs[:, 0] - pairs[:, 1], pairs[:, 1] - pairs[:, 0])


def share_different(noise, rounds=10, effect=0.0, *, blocked=False):
    """Return the shares of runs that exclude zero, and of those whose interval holds the effect."""
    generator = np.random.default_rng(20140901)
    different = covered = 0
    for _ in range(RUNS):
        found = differences(generator, noise, rounds, blocked=blocked) + effect
        interval = exact_interval(found, found, 0.05)
        different += interval.excludes_zero()
        covered += interval.low <= effect <= interval.high
    return different / RUNS, covered / RUNS


@pytest.mark.parametrize("name", NOISES)
def test_equal_treatments_differ_as_often_as_the_level_says(name):
    """In a drawn order, whatever the noise; and the interval holds the truth."""
    assert 0.03 <= share_different(NOISES[name])[0] <= 0.07
    different, covered = share_different(NOISES[name], effect=math.log(1.05))
    assert covered >= 0.93
    assert different > 0.05


def test_blocks_deceive():
    """The same test on the same noise errs when one treatment runs after the other: the tests above can fail."""
    assert share_different(NOISES["ar .9"], blocked=True)[0] > 0.2


@pytest.mark.parametrize("comparisons", [3, 10])
def test_a_family_errs_as_seldom_as_one(comparisons):
    """Any wrong verdict among several treatments that equal the baseline."""
    generator = np.random.default_rng(5)
    wrong = 0
    for _ in range(RUNS // 2):
        trials = 0.03 * generator.normal(size=(comparisons + 1, 10))
        found = [family_interval(row - trials[0], row - trials[0], 0.05, comparisons) for row in trials[1:]]
        wrong += any(interval.excludes_zero() for interval in found)
    assert wrong / (RUNS // 2) <= 0.06
