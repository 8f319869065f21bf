"""A local worker that is killed or stopped, wholly or in part: the run goes on, and no job is lost or doubled."""

import re
import signal
import threading
import time

import pytest
from deadlines import ANSWER_S, START_S, wait_until
from live_run import JOBS, LIFE, NATIVE, LiveRun, OverTcp

LONG = {
    **NATIVE,
    "repeats": 1,
    "concurrency": 2,
    "iterations": 1,
    "job": {"operations": LIFE, "container": {"command": ["sleep", "14"]}},
}
"""Two jobs, longer than silence is borne."""


@pytest.fixture
def live(tmp_path):
    # No job waits at the worker, so a loss costs those in flight alone.
    with LiveRun(tmp_path / "live", NATIVE, "--no-look-ahead") as live:
        live.wait_for_jobs()
        yield live


@pytest.mark.parametrize("victims", [("load",), ("agent",), ("agent", "load")], ids="+".join)
def test_a_killed_worker_costs_attempts_and_no_job(live, victims):
    """Whichever part of a worker is killed, its jobs are retried within seconds, and the run completes."""
    parts = {"agent": live.agents(), "load": live.load_processes()}
    live.signal([process for part in victims for process in parts[part]], signal.SIGKILL)
    wait_until(lambda: "was lost" in live.err, START_S, "the loss")
    wait_until(lambda: "is back" in live.err, START_S, "the worker's return")
    assert live.end() == 0
    assert live.run.outcomes() == {"done": JOBS}
    retried = [job for job in live.run.jobs if job["attempt"]]
    assert 0 < len(retried) <= 4, "the jobs that were in flight, and no others, had a second attempt"
    assert "SIGKILL" in live.run.details, "the report tells of the loss"
    assert "INCOMPLETE" not in live.out
    live.assert_clean()


@pytest.mark.parametrize("part", ["agent", pytest.param("load", marks=pytest.mark.slow)])
def test_a_worker_that_is_killed_for_ever_ends_the_run(tmp_path, part):
    """Killed each time it comes back, a worker's jobs are lost; the run ends, and its report is headed INCOMPLETE."""
    # Far more jobs than are done until the worker is killed for the first time.
    scenario = {**NATIVE, "repeats": 1, "iterations": 50, "concurrency": 2}
    with LiveRun(tmp_path / "live", scenario) as live:
        live.wait_for_jobs(2)
        over = threading.Event()

        def hunt():
            while not over.is_set():
                live.signal(live.agents() if part == "agent" else live.load_processes(), signal.SIGKILL)
                over.wait(0.05)

        hunter = threading.Thread(target=hunt, daemon=True)
        hunter.start()
        try:
            code = live.end()
        finally:
            over.set()
            hunter.join(ANSWER_S)
        assert code == 3
        outcomes = live.run.outcomes()
        assert set(outcomes) == {"done", "lost"}
        counts = live.run.document["totals"]
        # The only trial lost its worker, so it is in no figure.
        assert (counts["done"], counts["warmup"], counts["lost"]) == (0, outcomes["done"], 100 - outcomes["done"])
        assert counts["not_started"] == 100 - sum(outcomes.values())
        assert "INCOMPLETE" in live.out
        assert re.search(r"\d+ of the jobs lost", " ".join(live.out.split()))
        live.assert_clean()


@pytest.mark.slow
def test_a_worker_that_is_not_restarted_counts_as_lost(tmp_path):
    """A worker that was started by hand and killed has lost its jobs within twenty seconds, and the run ends."""
    with OverTcp(tmp_path / "live", NATIVE) as live:
        worker = live.join("-c", 4, "solo")
        live.wait_for_jobs()
        live.signal([live.load_processes()[0]], signal.SIGKILL)
        worker.process.kill()
        began = time.monotonic()
        wait_until(lambda: "did not come back" in live.err, ANSWER_S, "giving it up")
        assert live.end() == 3
        assert time.monotonic() - began < 25
        outcomes = live.run.outcomes()
        assert set(outcomes) == {"done", "lost"}
        assert outcomes["lost"] == 4
        assert "INCOMPLETE" in live.out
        # Nobody is left to tidy up after a worker that was killed whole; the next clean-up on its host does it.
        assert live.workspace.master("cleanup-containers", "--run", live.run.run_id).status == 0
        live.assert_clean()


@pytest.mark.slow
def test_a_load_process_that_is_stopped_for_good_is_replaced(live):
    """A load process that stays silent for ten seconds counts as dead; its jobs are retried."""
    live.signal(live.load_processes(), signal.SIGSTOP)
    wait_until(lambda: "sent nothing for" in live.err, ANSWER_S, "the loss")
    assert live.end() == 0
    assert live.run.outcomes() == {"done": JOBS}
    assert any(job["attempt"] for job in live.run.jobs)
    live.assert_clean()


@pytest.mark.slow
def test_an_agent_that_stands_still_while_results_come_is_not_missed(live):
    """Results are a sign of life: the jobs go on without the agent, which is missed only when they are over."""
    agents = live.agents()
    live.signal(agents, signal.SIGSTOP)
    wait_until(lambda: live.jobs_shown() == JOBS, ANSWER_S, "the last job")
    assert "was lost" not in live.err
    live.signal(agents, signal.SIGCONT)
    assert live.end() == 0
    assert not any(job["attempt"] for job in live.run.jobs)
    live.assert_clean()


@pytest.mark.slow
def test_an_agent_that_stays_silent_is_replaced(tmp_path):
    """A local agent that hangs is killed and restarted; its jobs are retried, and the run completes."""
    with LiveRun(tmp_path / "live", LONG) as live:
        wait_until(live.job_processes, ANSWER_S, "the first jobs")
        live.signal(live.agents(), signal.SIGSTOP)
        wait_until(lambda: "silent for" in live.err, START_S, "the loss")
        wait_until(lambda: "is back" in live.err, START_S, "the worker's return")
        assert live.end() == 0
        assert [(job["attempt"], job["outcome"]) for job in live.run.jobs] == [(1, "done")] * 2
        live.assert_clean()
