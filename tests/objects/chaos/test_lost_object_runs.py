"""Runs on a real object store that are interrupted or killed, in part or wholly, leave nothing in the store."""

import signal

import pytest
from deadlines import START_S, wait_until
from live_run import LEASE_S, SHORT_LEASE, LiveRun
from real_store import RealStore

SCENARIO = {
    "engines": ["swift"],
    "repeats": 2,
    "concurrency": 4,
    "operation_count": 150,
    "job": {
        "objects": {
            "sizes": {"min": 10, "max": 9000},
            "population": 60,
            "mix": {"create": 3, "read": 2, "update": 2, "delete": 1},
            "containers": {"count": 2},
            "verify": "full",
        }
    },
}
JOBS = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with RealStore(tmp_path_factory.mktemp("store") / "home") as started:
        yield started


@pytest.fixture
def live(tmp_path, store):
    with LiveRun(tmp_path / "live", SCENARIO, "--no-look-ahead", *SHORT_LEASE, **store.swift_variables) as live:
        live.wait_for_jobs(3)
        assert left_in(store), "there is something to clean up"
        yield live


def left_in(store):
    """Return the containers of runs, with their numbers of objects."""
    return {name: len(store.objects(name)) for name in store.containers() if name.startswith("weighbridge-")}


def test_an_interrupted_run_leaves_nothing_in_the_store(live, store):
    """After Ctrl-C no operation begins, and what the run made is deleted before it ends."""
    live.signal([live.master], signal.SIGINT)
    assert live.end() == 130
    assert left_in(store) == {}
    assert live.run.document["treatments"][0]["population"][-1]["phase"] == "clear"


@pytest.mark.parametrize(
    "victims", [pytest.param(("load",), marks=pytest.mark.slow), ("agent", "load")], ids="+".join
)
def test_a_worker_that_is_killed_leaves_nothing_in_the_store(live, store, victims):
    """It makes its part of the population anew, and what its predecessor created is found by listing."""
    parts = {"agent": live.agents(), "load": live.load_processes()}
    live.signal([process for part in victims for process in parts[part]], signal.SIGKILL)
    wait_until(lambda: "is back" in live.err, START_S, "the worker's return")
    assert live.end() == 0
    assert live.run.outcomes() == {"done": JOBS}
    assert left_in(store) == {}
    filled = [row for row in live.run.document["treatments"][0]["population"] if row["phase"] == "populate"]
    assert [row["objects"] for row in filled] == [60, 60]


def test_a_worker_that_is_stopped_leaves_the_objects_of_the_others(tmp_path, store):
    """The run goes on with them, and none of their operations misses an object."""
    scenario = {**SCENARIO, "operation_count": 250}
    with LiveRun(tmp_path / "two", scenario, workers=2, **store.swift_variables) as live:
        live.wait_for_jobs(3)
        live.signal(live.agents()[:1], signal.SIGTERM)
        assert live.end() in (0, 3), live.err
        assert live.run.outcomes() == {"done": 500}, live.run.document
    assert left_in(store) == {}


def test_workers_clear_the_store_after_a_master_that_was_killed(live, store):
    """They give it up after its lease, delete what they made, and end."""
    live.signal([live.master], signal.SIGKILL)
    wait_until(lambda: not live.alive(), LEASE_S + START_S, "the end of the workers")
    assert left_in(store) == {}


def test_what_is_left_when_everything_is_killed_is_listed_and_then_deleted(live, store):
    """Nobody is left to clear the store; the command does it later, from anywhere."""
    live.signal([live.master, *live.agents(), *live.load_processes()], signal.SIGKILL)
    wait_until(lambda: not live.alive(), START_S, "the end of all processes")
    left = left_in(store)
    assert sum(left.values()) > 50
    words = ("cleanup-containers", "--store", "swift", "--run", live.run.run_id)
    listed = live.workspace.master(*words)
    assert listed.status == 0, listed.err
    assert all(name in listed.out for name in left)
    assert left_in(store) == left, "it lists, and deletes nothing"
    deleted = live.workspace.master(*words, "--yes")
    assert deleted.status == 0, deleted.err
    assert left_in(store) == {}
