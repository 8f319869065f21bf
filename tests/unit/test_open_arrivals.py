"""When jobs arrive: by rate, seed, trial and worker alone."""

from itertools import chain

import numpy as np
import pytest

from bench_common.treatment import OpenLoad
from bench_master.coordinator.share import DRAW_BLOCK, ArrivalSchedule

S = 1_000_000_000
FOR_EVER = 1e30


def arrivals(rate=100.0, process="constant", *, seed=(1, 2), part=0, parts=1, count=None, seconds=None):
    load = OpenLoad(rate, process)
    return ArrivalSchedule(load, seed=seed, part=part, parts=parts, count=count, seconds=seconds)


def test_constant_arrivals_are_evenly_spaced_over_all_workers():
    """The workers' parts interleave to one stream with the whole rate."""
    parts = [arrivals(part=part, parts=3, seconds=1).take(FOR_EVER, 10**6) for part in range(3)]
    assert sorted(chain(*parts)) == [k * S // 100 for k in range(100)]
    assert [len(part) for part in parts] == [34, 33, 33]


def test_poisson_arrivals_have_exponential_gaps_of_the_whole_rate():
    """Mean and spread of the gaps are those of the process; the seed fixes them."""
    one = arrivals(1000, "poisson", count=50_000).take(FOR_EVER, 10**6)
    gaps = np.diff([0, *one])
    assert gaps.mean() == pytest.approx(1e6, rel=0.02)
    assert gaps.std() == pytest.approx(1e6, rel=0.03)
    parts = [arrivals(1000, "poisson", part=p, parts=4, seconds=50).take(FOR_EVER, 10**6) for p in range(4)]
    merged = np.sort(np.concatenate(parts))
    assert len(merged) == pytest.approx(50_000, rel=0.02)
    assert np.diff(merged).std() == pytest.approx(1e6, rel=0.03)
    assert arrivals(1000, "poisson", count=50_000).take(FOR_EVER, 10**6) == one
    assert arrivals(1000, "poisson", seed=(1, 3), count=50_000).take(FOR_EVER, 10**6) != one


@pytest.mark.parametrize("process", ["constant", "poisson"])
def test_what_is_taken_bit_by_bit_is_what_is_taken_at_once(process):
    """By horizons, by numbers and over the edges of blocks: the same instants, each once."""
    whole = arrivals(process=process, count=2 * DRAW_BLOCK + 5).take(FOR_EVER, 10**6)
    assert len(whole) == 2 * DRAW_BLOCK + 5
    bits = arrivals(process=process, count=2 * DRAW_BLOCK + 5)
    taken = []
    horizon = 0
    while not bits.exhausted:
        horizon += S // 3
        taken += bits.take(horizon, 7)
        assert all(at < horizon for at in taken)
    assert taken == whole


def test_they_end_with_the_number_or_the_time():
    """Before the time is over, and none after; a number of 0 has none at all."""
    timed = arrivals(10, seconds=0.5)
    assert timed.take(FOR_EVER, 100) == [k * S // 10 for k in range(5)]
    assert timed.exhausted
    assert arrivals(count=0).exhausted
    assert arrivals(1e-3, seconds=60).take(FOR_EVER, 9) == [0]


def test_a_long_trial_draws_no_more_than_a_block_ahead():
    """Ten days at a hundred thousand a second cost what a second does."""
    long = arrivals(1e5, "poisson", seconds=864_000)
    assert len(long.take(S // 100, 10**6)) == pytest.approx(1000, rel=0.2)
    assert len(long._ready) <= DRAW_BLOCK
