"""The clock comparison: the true offset lies within the bound, whatever the network does."""

from hypothesis import assume, given
from hypothesis import strategies as st

from bench_common.clock import ClockOffsetEstimator, max_drift_ns

delays = st.integers(0, 10**9)


def test_nothing_is_known_before_the_first_exchange():
    """No exchange, no estimate."""
    assert ClockOffsetEstimator().best_offset(0) is None


@given(st.integers(-(10**12), 10**12), st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=40))
def test_the_true_offset_is_within_the_bound(offset, trips):
    """However lopsided the delays are, the estimate is off by no more than it says."""
    clock = ClockOffsetEstimator()
    now = 0
    for out, there, back in trips:
        clock.exchange(now, now + out + offset, now + out + there + offset, now + out + there + back)
        now += out + there + back + 1
    best = clock.best_offset(now)
    assert abs(best.offset_ns - offset) <= best.uncertainty_ns + 1
    newest = trips[-32:]
    longest = sum(out + there + back + 1 for out, there, back in newest)
    assert best.uncertainty_ns <= min((out + back + 1) // 2 for out, _, back in newest) + max_drift_ns(longest)


@given(st.integers(-100, 100), st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=40))
def test_the_bound_holds_for_clocks_that_drift(ppm, trips):
    """Clocks that part by up to 100 parts in a million are still told apart to within the bound."""
    clock = ClockOffsetEstimator()

    def there(now):
        return now + now * ppm // 1_000_000

    now = 0
    for out, stay, back in trips:
        end = now + out + stay + back
        clock.exchange(now, there(now + out), there(now + out + stay), end)
        now = end + 1
    best = clock.best_offset(now)
    assume(best is not None)  # what drift makes shorter than no time at all is dropped
    rounding = 3 + max_drift_ns(max(sum(trip) for trip in trips))
    assert abs(best.offset_ns - (there(now) - now)) <= best.uncertainty_ns + rounding


def test_a_clock_that_stood_still_is_compared_again():
    """An exchange that contradicts all before it voids them, however short their round trips were."""
    clock = ClockOffsetEstimator()
    for second in range(5):
        now = second * 10**9
        clock.exchange(now, now + 7_000, now + 7_000, now + 2_000)
    now = 6 * 10**9
    clock.exchange(now, now - 3 * 10**9, now - 3 * 10**9, now + 900_000)
    assert clock.best_offset(now + 900_000).offset_ns == -3 * 10**9 - 450_000


def test_impossible_exchanges_are_dropped():
    """An answer that came before it was asked for, or took less than no time, says nothing."""
    clock = ClockOffsetEstimator()
    clock.exchange(100, 0, 0, 50)
    clock.exchange(0, 0, 100, 50)
    assert clock.best_offset(100) is None
