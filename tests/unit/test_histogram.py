"""The histogram: exact counts, bounded error."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_common.histogram import MAX_VALUE_NS, RELATIVE_ERROR, Histogram, bucket_bounds, bucket_of, nearest_rank

durations = st.integers(min_value=0, max_value=MAX_VALUE_NS)
DAY_NS = 86_400 * 10**9


def histogram_of(values):
    histogram = Histogram()
    histogram.record(np.array(values, dtype=np.int64))
    return histogram


@given(durations)
def test_a_value_is_within_the_bounds_of_its_bucket(value):
    """Every value is inside its own bucket, and the bucket is narrow enough for the promised error."""
    low, high = bucket_bounds(int(bucket_of(value)))
    assert low <= value <= high
    assert (high - low) / 2 <= RELATIVE_ERROR * max(low, 1)


@given(st.integers(min_value=0, max_value=11_000))
def test_buckets_meet_without_gap_or_overlap(index):
    """A bucket ends right before the next one begins, and both of its bounds map back to it."""
    low, high = bucket_bounds(index)
    assert bucket_bounds(index + 1)[0] == high + 1
    assert bucket_of([low, high]).tolist() == [index, index]


@given(st.lists(durations, min_size=1, max_size=200), st.fractions(0, 1))
def test_a_quantile_is_within_the_documented_error_of_the_true_one(values, q):
    """The quantile is never further from the nearest-rank value than RELATIVE_ERROR says."""
    truth = sorted(values)[nearest_rank(len(values), q) - 1]
    assert abs(histogram_of(values).quantile(q) - truth) <= RELATIVE_ERROR * truth


@given(st.lists(durations, min_size=1, max_size=100))
def test_count_extremes_and_mean_are_exact(values):
    """n, min, max and mean carry no bucket error."""
    histogram = histogram_of(values)
    assert (histogram.n, histogram.min, histogram.max) == (len(values), min(values), max(values))
    assert histogram.mean == sum(values) / len(values)


def test_a_million_values_agree_with_numpy():
    """On realistic latencies each percentile is within 0.2 % of the sorted truth, in a few kilobytes."""
    values = np.random.default_rng(3).lognormal(16, 0.7, 300_000).astype(np.int64)
    histogram = histogram_of(values)
    values.sort()
    for percentile in (1, 50, 95, 99, 99.9):
        truth = values[nearest_rank(len(values), Fraction(str(percentile)) / 100) - 1]
        assert math.isclose(histogram.quantile(percentile / 100), truth, rel_tol=RELATIVE_ERROR)
    assert histogram._counts.nbytes < 64_000


def test_values_out_of_range_are_counted_and_their_extremes_are_exact():
    """A negative or absurd duration loses no count, and min and max are the recorded values."""
    histogram = histogram_of([-5, 3 * DAY_NS, 2**63 - 1])
    assert (histogram.n, histogram.min, histogram.max) == (3, -5, 2**63 - 1)
    assert histogram.total == 3 * DAY_NS + 2**63 - 6


def test_an_empty_histogram_has_no_measures():
    """Nothing recorded means None, never zero."""
    histogram = Histogram()
    histogram.record([])
    assert (histogram.n, histogram.mean, histogram.quantile(0.5), histogram.counts()) == (0, None, None, {})


@pytest.mark.parametrize(
    ("q", "n", "rank"), [(0.07, 100, 7), (0.95, 20, 19), (0.5, 1, 1), (0, 9, 1), (1, 9, 9), (0.999, 1000, 999)]
)
def test_nearest_rank_is_not_moved_by_rounding(q, n, rank):
    """A quantile that is a whole rank when written in decimals is that rank."""
    assert nearest_rank(n, q) == rank


@pytest.mark.parametrize(("n", "q"), [(0, 0.5), (5, -0.1), (5, 1.1)])
def test_nearest_rank_refuses_invalid_arguments(n, q):
    """No values, or a quantile outside 0 to 1, is an error."""
    with pytest.raises(ValueError, match="no rank"):
        nearest_rank(n, q)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60))
def test_locate_leads_to_every_rank(values):
    """For each rank the bucket that holds it, and the place within that bucket, are those of the sorted values."""
    histogram, ordered = histogram_of(values), sorted(values)
    for rank in range(1, len(values) + 1):
        index, within, count = histogram.locate(rank)
        low, high = bucket_bounds(index)
        bucket = [value for value in ordered if low <= value <= high]
        assert (bucket[within - 1], len(bucket)) == (ordered[rank - 1], count)
