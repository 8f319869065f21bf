"""The curves of the live page: points that grow coarser without an average of percentiles; gaps stay gaps."""

from itertools import pairwise

from places import ROOT

from bench_common.stats.reader import StatsFile
from bench_features.live.history import MAX_POINTS, History
from bench_features.live.past import past_points


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


def test_a_gap_is_filled_from_the_stats_file(tmp_path):
    """With the jobs that ended in it, up to the last one; each gap once, and what was seen stays."""
    path = ROOT / "docs" / "data" / "weigh.stats.gz"
    began_ns = StatsFile(path).began_ns
    points = past_points(path, began_ns, (0.0, 60.0))
    assert sum(point.done for point in points) == 22
    assert sum(sum(counts.values()) for point in points for counts in point.latencies.values()) == 20, "no warm-up"
    assert [point.begin_s for point in points] == [float(second) for second in range(len(points))]
    later = past_points(path, began_ns, (4.0, 6.0))
    assert 0 < sum(point.done for point in later) < 22
    assert (later[0].begin_s, later[-1].end_s <= 6.0) == (4.0, True)
    assert past_points(tmp_path / "none", 0, (0.0, 1.0)) == []
    history = History()
    history.add(state(3.0, 9))
    history.add(state(4.0, 10))
    assert history.gap == (0.0, 3.0)
    history.fill(points[:3])
    history.fill(points)
    assert [row[:2] for row in history.rows()] == [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    history.pause()
    history.add(state(9.0, 20))
    assert history.gap == (4.0, 9.0)


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
