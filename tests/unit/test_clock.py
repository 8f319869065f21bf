"""The clock comparison: the true offset lies within the bound, whatever the network does."""

from hypothesis import given
from hypothesis import strategies as st

from bench_common.clock import ClockComparison

delays = st.integers(0, 10**9)


def test_nothing_is_known_before_the_first_exchange():
    """No exchange, no estimate."""
    assert ClockComparison().best is None


@given(st.integers(-(10**12), 10**12), st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=40))
def test_the_true_offset_is_within_the_bound(offset, trips):
    """However lopsided the delays are, the estimate is off by no more than it says."""
    clock = ClockComparison()
    now = 0
    for out, there, back in trips:
        clock.exchange(now, now + out + offset, now + out + there + offset, now + out + there + back)
        now += out + there + back + 1
    assert abs(clock.best.offset_ns - offset) <= clock.best.bound_ns + 1
    assert clock.best.bound_ns <= min((out + back + 1) // 2 for out, _, back in trips[-32:])


def test_impossible_exchanges_are_dropped():
    """An answer that came before it was asked for, or took less than no time, says nothing."""
    clock = ClockComparison()
    clock.exchange(100, 0, 0, 50)
    clock.exchange(0, 0, 100, 50)
    assert clock.best is None
