"""A local worker that is killed or stopped, wholly or in part: the run goes on, and no job is lost or doubled."""

import re
import signal
import threading
import time

import pytest
from arena import JOBS, LIFE, NATIVE, Arena, OverTcp
from weighing import until

LONG = {
    **NATIVE,
    "repeats": 1,
    "concurrency": 2,
    "iterations": 1,
    "job": {"operations": LIFE, "container": {"command": ["sleep", "14"]}},
}
"""Two jobs, longer than silence is borne."""


@pytest.fixture
def arena(tmp_path):
    # No job waits at the worker, so a loss costs those in flight alone.
    with Arena(tmp_path / "arena", NATIVE, "--no-look-ahead") as arena:
        arena.under_way()
        yield arena


@pytest.mark.parametrize("victims", [("load",), ("agent",), ("agent", "load")], ids="+".join)
def test_a_killed_worker_costs_attempts_and_no_job(arena, victims):
    """Whichever part of a worker is killed, its jobs are tried anew within seconds and the run is complete."""
    parts = {"agent": arena.agents(), "load": arena.loads()}
    arena.signal([process for part in victims for process in parts[part]], signal.SIGKILL)
    until(lambda: "was lost" in arena.said, 30, "the loss")
    until(lambda: "is back" in arena.said, 30, "the worker's return")
    assert arena.end() == 0
    assert arena.run.outcomes() == {"done": JOBS}
    retried = [job for job in arena.run.jobs if job["attempt"]]
    assert 0 < len(retried) <= 4, "the jobs that were in flight, and no others, had a second attempt"
    assert "SIGKILL" in arena.out, "the report tells of the loss"
    assert "INCOMPLETE" not in arena.out
    arena.nothing_left()


@pytest.mark.parametrize("part", ["agent", pytest.param("load", marks=pytest.mark.slow)])
def test_a_worker_that_is_killed_for_ever_ends_the_run(tmp_path, part):
    """Killed each time it comes back, a worker's jobs are lost; the run ends, and its report is headed INCOMPLETE."""
    scenario = {**NATIVE, "repeats": 1, "iterations": 3, "concurrency": 2}
    with Arena(tmp_path / "arena", scenario) as arena:
        arena.under_way(2)
        over = threading.Event()

        def hunt():
            while not over.is_set():
                arena.signal(arena.agents() if part == "agent" else arena.loads(), signal.SIGKILL)
                over.wait(0.05)

        hunter = threading.Thread(target=hunt, daemon=True)
        hunter.start()
        try:
            code = arena.end(90)
        finally:
            over.set()
            hunter.join(10)
        assert code == 3
        outcomes = arena.run.outcomes()
        assert set(outcomes) == {"done", "lost"}
        counts = arena.run.document["totals"]
        assert (counts["done"], counts["not_started"]) == (outcomes["done"], 6 - sum(outcomes.values()))
        assert "INCOMPLETE" in arena.out
        assert re.search(r"\d+ of the jobs lost", arena.out)
        arena.nothing_left()


@pytest.mark.slow
def test_a_worker_that_nobody_starts_again_is_given_up(tmp_path):
    """A worker that was started by hand and killed has lost its jobs within twenty seconds, and the run ends."""
    with OverTcp(tmp_path / "arena", NATIVE) as arena:
        worker = arena.join("-c", 4, "solo")
        arena.under_way()
        arena.signal([arena.loads()[0]], signal.SIGKILL)
        worker.process.kill()
        began = time.monotonic()
        until(lambda: "did not come back" in arena.said, 20, "giving it up")
        assert arena.end(10) == 3
        assert time.monotonic() - began < 25
        outcomes = arena.run.outcomes()
        assert set(outcomes) == {"done", "lost"}
        assert outcomes["lost"] == 4
        assert "INCOMPLETE" in arena.out
        # Nobody is left to tidy up after a worker that was killed whole; the next clean-up on its host does it.
        assert arena.weighing.master("cleanup-containers", "--run", arena.run.run_id).status == 0
        arena.nothing_left()


@pytest.mark.slow
def test_a_load_process_that_is_held_up_for_a_moment_loses_nothing(arena):
    """A stop of three seconds delays the jobs and costs no attempt."""
    loads = arena.loads()
    arena.signal(loads, signal.SIGSTOP)
    time.sleep(3)
    arena.signal(loads, signal.SIGCONT)
    assert arena.end() == 0
    assert arena.run.outcomes() == {"done": JOBS}
    assert not any(job["attempt"] for job in arena.run.jobs)
    assert "was lost" not in arena.said
    arena.nothing_left()


@pytest.mark.slow
def test_a_load_process_that_is_stopped_for_good_is_replaced(arena):
    """A load process that says nothing is taken for dead after ten seconds; what it ran is tried anew."""
    arena.signal(arena.loads(), signal.SIGSTOP)
    until(lambda: "said nothing for" in arena.said, 15, "the loss")
    assert arena.end() == 0
    assert arena.run.outcomes() == {"done": JOBS}
    assert any(job["attempt"] for job in arena.run.jobs)
    arena.nothing_left()


@pytest.mark.slow
def test_an_agent_that_stands_still_while_results_come_is_not_missed(arena):
    """Results are a sign of life: the jobs go on without the agent, which is missed only when they are over."""
    agents = arena.agents()
    arena.signal(agents, signal.SIGSTOP)
    until(lambda: arena.shown() == JOBS, 20, "the last job")
    assert "was lost" not in arena.said
    arena.signal(agents, signal.SIGCONT)
    assert arena.end() == 0
    assert not any(job["attempt"] for job in arena.run.jobs)
    arena.nothing_left()


@pytest.mark.slow
def test_an_agent_that_was_silent_comes_back_and_no_result_counts_twice(tmp_path):
    """An agent is missed after five seconds of silence; when it goes on it joins again, and the run is complete."""
    with Arena(tmp_path / "arena", LONG) as arena:
        until(arena.naps, 20, "the first jobs")
        agents = arena.agents()
        arena.signal(agents, signal.SIGSTOP)
        until(lambda: "silent for" in arena.said, 30, "the loss")
        arena.signal(agents, signal.SIGCONT)
        until(lambda: "is back" in arena.said, 30, "the worker's return")
        assert arena.end() == 0
        assert [(job["attempt"], job["outcome"]) for job in arena.run.jobs] == [(1, "done")] * 2
        arena.nothing_left()


@pytest.mark.slow
def test_an_agent_that_stays_silent_is_replaced(tmp_path):
    """A local agent that does not go on is killed and started again; its jobs are tried anew, the run is complete."""
    with Arena(tmp_path / "arena", LONG) as arena:
        until(arena.naps, 20, "the first jobs")
        arena.signal(arena.agents(), signal.SIGSTOP)
        until(lambda: "silent for" in arena.said, 30, "the loss")
        until(lambda: "is back" in arena.said, 30, "the worker's return")
        assert arena.end(90) == 0
        assert [(job["attempt"], job["outcome"]) for job in arena.run.jobs] == [(1, "done")] * 2
        arena.nothing_left()
