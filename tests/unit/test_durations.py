"""Lanes get the files of tests longest first, and none is queued behind a long one while another lane is free."""

import json
from types import SimpleNamespace

import pytest
from durations import DurationRecorder, Durations, Lanes, LaneScheduling

RECORD = {"tests/unit/test_a.py": 0.5, "tests/chaos/test_b.py": 40.0, "tests/chaos/test_c.py": 20.0}


def test_tests_of_the_longest_file_come_first():
    """A file without a record counts as its folder's median, one of an unknown folder comes last; no file is torn."""
    files = ["tests/unit/test_a.py", "tests/new/test_e.py", "tests/chaos/test_c.py", "tests/chaos/test_d.py"]
    tests = [f"{file}::test_{number}" for file in [*files, "tests/chaos/test_b.py"] for number in (2, 1)]
    ordered = Durations(RECORD).longest_first(tests)
    assert [test.split("test_")[1][0] for test in ordered] == list("bbddccaaee")
    assert [test[-1] for test in ordered] == ["2", "1"] * 5


def test_without_a_record_tests_are_sorted_by_file(tmp_path):
    """All lanes must have the same order, whatever else there is."""
    durations = Durations.read(tmp_path / "none.json")
    assert durations.longest_first(["b::2", "a::2", "a::1", "b::1"]) == ["a::2", "a::1", "b::2", "b::1"]


class Lane:
    """Stands in for a lane's process: what it was given, and whether it was told that nothing more comes."""

    def __init__(self, name):
        self.gateway = SimpleNamespace(id=name)
        self.given, self.shutting_down = [], False

    def send_runtest_some(self, tests):
        """Take tests, by their places in the collection."""
        self.given += tests

    def shutdown(self):
        """Take the word."""
        self.shutting_down = True


@pytest.fixture
def scheduling():
    """Return a scheduling of two lanes: a file of three tests, one of two, and three of one."""
    option = SimpleNamespace(tx=["popen", "popen"], loadscopereorder=False)
    config = SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name))
    tests = ["a::1", "a::2", "a::3", "b::1", "b::2", "c::1", "d::1", "e::1"]
    made, lanes = LaneScheduling(config), [Lane("gw0"), Lane("gw1")]
    for lane in lanes:
        made.add_node(lane)
    for lane in lanes:
        made.add_node_collection(lane, tests)
    made.schedule()
    return made, lanes


def test_a_file_is_handed_out_when_a_lane_waits_with_its_last_test(scheduling):
    """Not before: the tests that are left might take long, and another lane be free."""
    made, (first, second) = scheduling
    assert (first.given, second.given) == ([0, 1, 2], [3, 4])
    made.mark_test_complete(second, 3)
    assert second.given == [3, 4, 5]
    made.mark_test_complete(first, 0)
    assert first.given == [0, 1, 2]
    made.mark_test_complete(second, 4)
    assert second.given == [3, 4, 5, 6]
    made.mark_test_complete(first, 1)
    assert first.given == [0, 1, 2, 7]
    assert not first.shutting_down


def test_lanes_end_when_no_file_is_left(scheduling):
    """Each is told once with what it has still to do; every test was given to one of them."""
    made, lanes = scheduling
    done = set()
    while made.has_pending:
        for lane in lanes:
            for test in lane.given:
                if test not in done:
                    made.mark_test_complete(lane, test)
                    done.add(test)
                    break
    assert sorted(lanes[0].given + lanes[1].given) == list(range(8)) == sorted(done)
    assert all(lane.shutting_down for lane in lanes)


def test_a_lane_that_is_lost_leaves_its_file_to_the_others(scheduling):
    """The test at which it was lost is told; what it had still to do is done by another lane."""
    made, (first, second) = scheduling
    assert made.remove_node(first) == "a::1"
    for test in range(3, 8):
        made.mark_test_complete(second, test)
    assert second.given == [3, 4, 5, 6, 7, 0, 1, 2]


@pytest.mark.parametrize(("dist", "ours"), [("loadfile", True), ("load", False), ("no", False)])
def test_only_lanes_of_files_are_scheduled_here(dist, ours):
    """With another word after `--dist` xdist does as it always does."""
    option = SimpleNamespace(dist=dist, tx=["popen"])
    config = SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name))
    assert isinstance(Lanes().pytest_xdist_make_scheduler(config, None), LaneScheduling) == ours


def phase(test, taken_s, *, failed=False):
    return SimpleNamespace(nodeid=test, duration=taken_s, failed=failed)


def test_a_record_is_brought_up_to_date(tmp_path):
    """Set-up counts; files that are gone leave it, files that did not run or failed keep their figures."""
    path = tmp_path / "durations.json"
    path.write_text(json.dumps({"gone": 1.0, "failed": 2.0, "not_run": 3.0, "ran": 4.0}))
    for name in ("failed", "not_run", "ran", "new"):
        (tmp_path / name).touch()
    recorder = DurationRecorder(tmp_path, path)
    for report in [
        phase("ran::1", 1.0),
        phase("ran::1", 0.26),
        phase("new::1", 0.04),
        phase("failed::1", 180.0, failed=True),
        phase("failed::2", 1.0),
    ]:
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert json.loads(path.read_text()) == {"failed": 2.0, "new": 0.0, "not_run": 3.0, "ran": 1.3}
