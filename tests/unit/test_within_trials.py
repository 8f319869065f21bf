"""What trials are made of: the shift function, hosts, alike jobs, failures."""

import itertools

import numpy as np
import pytest
from rounds import A, B, Rounds

from bench_master.verdicts.quantiles import intraclass_correlation, quantile, summarise_logs
from bench_master.verdicts.signed_rank import p_value, swap_p_value


@pytest.fixture
def rounds(tmp_path):
    count = itertools.count()
    return lambda *args, **changes: Rounds(tmp_path / f"run{next(count)}.stats.gz", *args, **changes)


def lognormal(sides, jobs, tail=1.0):
    """Draw jobs around each trial's level; `tail` stretches the slowest tenth of the last side."""
    draw = np.random.default_rng(5)
    found = [[level * draw.lognormal(0.0, 0.05, jobs) for level in side] for side in sides]
    for trial in found[-1]:
        trial[trial > np.quantile(trial, 0.9)] *= tail
    return found


def test_the_shift_function_shows_where_treatments_differ(rounds):
    """Equal medians and a slower tail; quantiles without a job beyond them are left out."""
    found = rounds().write(*lognormal((A, A), 60, tail=1.5)).only()
    assert found.verdict == "same"
    assert [each.q for each in found.quantiles] == [0.05, 0.25, 0.5, 0.75, 0.95]
    by_q = {each.q: each for each in found.quantiles}
    assert by_q[0.5].low < 1.0 < by_q[0.5].high
    assert by_q[0.95].low > 1.2
    assert rounds().write(A, B).only().quantiles == []


def test_quantiles_of_a_trial_hold_together(rounds):
    """Five intervals that hold together are wider than that of the primary measure, which is one of them."""
    found = rounds().write(*lognormal((A, B), 40)).only()
    (median,) = [each for each in found.quantiles if each.q == 0.5]
    assert median.ratio == pytest.approx(found.ratio)
    assert median.low <= found.low <= found.high <= median.high


def test_jobs_of_a_trial_are_worth_fewer(rounds):
    """The reference value; and jobs that share their trial's seconds count as about one."""
    trials = [summarise_logs(np.array(each)) for each in ((1, 1.1, 1.05), (1.3, 1.35, 1.4), (0.9, 0.95, 1))]
    assert intraclass_correlation(trials) == pytest.approx(0.93758, abs=5e-6)
    alike = rounds().write(*([[t * 0.999, t, t * 1.001] for t in side] for side in (A, B))).only()
    assert alike.effective_jobs == pytest.approx(1.0, abs=0.01)
    (note,) = [each for each in alike.flags if each.kind == "clusters"]
    assert (note.level, "longer trials will not help" in note.text) == ("note", True)
    assert rounds().write(A, B).only().effective_jobs is None


def test_the_side_whose_jobs_are_worth_less_counts(rounds):
    """Of engines whose jobs are unlike alike both together would say nothing of either."""
    draw = np.random.default_rng(7)
    alike = [[t * (1 + 0.001 * k) for k in range(5)] for t in np.exp(0.05 * draw.normal(size=20))]
    loose = [np.exp(0.2 * draw.normal(size=5)).tolist() for _ in range(20)]
    found = rounds().write(alike, loose).only()
    assert found.effective_jobs == pytest.approx(1.0, abs=0.05)
    (note,) = [each for each in found.flags if each.kind == "clusters"]
    assert (note.where, note.size) == (found.a, pytest.approx(1.0, abs=0.05))
    assert rounds().write(loose, loose[::-1]).only().effective_jobs > 3.5


def test_several_hosts_share_a_trial_and_show_their_own_effects(rounds):
    """The verdict is over all jobs; hosts whose intervals are disjoint are named."""
    draw = np.random.default_rng(3)

    def trials(level, ratios):
        return [[level * ratio * draw.normal(1.0, 0.01) for _ in range(10) for ratio in ratios] for _ in range(10)]

    run = rounds().write(trials(1.0, (1.0, 1.0)), trials(1.0, (1.05, 1.3)), hosts=("blade1", "blade2"))
    found = run.only()
    assert [(each.host, each.rounds) for each in found.per_host] == [("blade1", 10), ("blade2", 10)]
    assert [each.ratio for each in found.per_host] == pytest.approx([1.05, 1.3], rel=0.02)
    (flag,) = [each for each in found.flags if each.kind == "hosts"]
    assert flag.text.startswith("the hosts disagree: blade1 +")
    assert run.verdicts().design.scope == "on hosts blade1, blade2, in this run"


def test_swapping_names_within_rounds_is_exact():
    """As counted over all patterns of signs, ties and rounds without a difference included."""
    draw = np.random.default_rng(1)
    for count in (3, 6, 10):
        differences = draw.integers(-2, 5, count) / 30
        observed = abs(differences.sum()) - 1e-12
        patterns = np.array(list(itertools.product((1, -1), repeat=count)))
        assert swap_p_value(differences) == pytest.approx((abs(patterns @ abs(differences)) >= observed).mean())
    assert swap_p_value(np.full(10, 0.1)) == 2 / 1024


def test_shares_of_failed_jobs_are_compared(rounds):
    """One treatment of which a job fails in each round fails more often; one failure among many is nothing."""
    sides = [[[t] * 9 for t in side] for side in (A, A)]
    often = rounds().write(*sides, failed={(1, block) for block in range(10)}).only()
    (flag,) = [each for each in often.flags if each.kind == "failure-share"]
    assert (flag.p, flag.size) == pytest.approx((2 / 1024, 0.1))
    assert flag.text.startswith("engine=podman fails more often: 10 % of the jobs of a trial, against 0 %")
    once = rounds().write(*sides, failed={(1, 4)}).only()
    assert [each.kind for each in once.flags if each.level != "note"] == ["failures"]


def test_type_8_holds_where_trials_have_unequal_numbers_of_jobs():
    """p95 of 20 against 60 jobs, nothing else different: a nearest rank finds a difference in a third of all runs."""
    draw = np.random.default_rng(11)
    runs, rounds_each = 300, 20
    called = {"nearest": 0, "type 8": 0}
    for _ in range(runs):
        few, many = (draw.lognormal(0.0, 0.1, (rounds_each, jobs)) for jobs in (20, 60))
        nearest = [np.sort(side, axis=1)[:, int(np.ceil(0.95 * side.shape[1])) - 1] for side in (few, many)]
        type8 = [np.array([quantile(trial, 0.95) for trial in side]) for side in (few, many)]
        for name, (a, b) in (("nearest", nearest), ("type 8", type8)):
            called[name] += p_value(np.log(b) - np.log(a)) < 0.05
    assert called["nearest"] / runs > 0.15
    assert called["type 8"] / runs < 0.09
