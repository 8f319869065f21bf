"""The curves of the live page: points that grow coarser without an average of percentiles; gaps stay gaps."""

from itertools import pairwise

from bench_features.live.history import MAX_POINTS, History


def state(elapsed_s, done, failed=0, window=()):
    return {"elapsed_s": elapsed_s, "done": done, "failed": failed, "window": window}


def test_a_point_is_what_happened_between_two_snapshots():
    history = History()
    assert history.add(state(10.0, 100, 1, [[0, [[9.0, 9]]]])) == 0
    assert history.rows() == []  # what was before somebody looked is in no point
    assert history.add(state(11.0, 104, 2, [[0, [[0.1, 3], [0.2, 1]]]])) == 0
    assert history.add(state(12.5, 104, 1, [])) == 1
    assert history.rows() == [[10.0, 11.0, 4, 1, [[0, 4, 0.1, 0.2]]], [11.0, 12.5, 0, 0, []]]
    assert history.rows(1) == [[11.0, 12.5, 0, 0, []]]


def test_where_nobody_looked_is_a_gap():
    history = History()
    history.add(state(1.0, 0))
    history.add(state(2.0, 5))
    history.pause()
    history.add(state(50.0, 100))
    history.add(state(51.0, 103))
    assert [row[:3] for row in history.rows()] == [[1.0, 2.0, 5], [50.0, 51.0, 3]]


def test_the_clock_of_a_run_that_begins_starts_anew():
    history = History()
    history.add(state(5.0, 0))
    history.add(state(6.0, 0))
    assert history.add(state(0.5, 0)) == 0
    assert history.rows() == []
    history.add(state(1.5, 2))
    assert [row[:3] for row in history.rows()] == [[0.5, 1.5, 2]]


def test_many_points_become_few_with_exact_counts_and_quantiles_of_all_values():
    history, shown = History(), []
    history.add(state(0.0, 0))
    count = 4 * MAX_POINTS + 17
    for second in range(1, count + 1):
        # Each second has nine short jobs and a long one: a mean of percentiles would not see which share is long.
        begin = history.add(state(float(second), 10 * second, 0, [[1, [[0.001, 9], [float(second), 1]]]]))
        shown[begin:] = history.rows(begin)
        assert len(shown) <= MAX_POINTS + 1
    assert shown == history.rows()
    assert MAX_POINTS // 4 < len(shown) <= MAX_POINTS
    assert sum(row[2] for row in shown) == 10 * count
    assert all(one[1] == other[0] for one, other in pairwise(shown))
    for begin, end, done, _, ((treatment, n, p50, p95),) in shown:
        assert (treatment, n, p50) == (1, done, 0.001)
        assert begin < p95 <= end


def test_a_page_that_was_opened_and_closed_a_thousand_times_keeps_the_newest():
    history = History()
    for visit in range(1000):
        history.pause()
        history.add(state(10.0 * visit, visit))
        history.add(state(10.0 * visit + 1, visit + 1))
        assert history.size <= MAX_POINTS + 1
    assert history.rows()[-1][:2] == [9990.0, 9991.0]
