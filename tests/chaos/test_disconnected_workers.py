"""A worker on another host that is cut off for a moment, for longer, or for good; rebooted; or out of disk."""

import re
import signal

import pytest
from deadlines import ANSWER_S, START_S, wait_until
from live_run import JOBS, LIFE, NATIVE, OverTcp, children, cmdline, processes_of
from relay import ADDRESS, Relay

LEASE_S = 15
SHORT = {**NATIVE, "concurrency": 4, "iterations": 12}
"""96 jobs in about eight seconds."""


class Remote(OverTcp):
    """A run whose worker reaches its master through a network that can be cut."""

    def __enter__(self):
        # A reopened lane may get the next port.
        self.network = Relay([*self.ports, *range(self.ports[2] + 1, self.ports[2] + 4)])
        return self

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self.network.__exit__(*exception)

    def join(self, *words):
        """Start a worker on the far side of the relay."""
        ports = ("--zmq-host", ADDRESS, "--zmq-control-port", self.ports[0], "--insecure")
        return self.started("bench-worker", *ports, "--allow-native", *words)


def suspend_during_a_job(live, root, frozen):
    """Stop a worker, but not what its jobs run; go on and return False if none of them runs anything right now."""
    frozen[:] = [root, *(process for process in children(root) if cmdline(process)[:1] != ["sleep"])]
    live.signal(frozen, signal.SIGSTOP)
    if any(cmdline(process)[:1] == ["sleep"] for process in children(root)):
        return True
    live.signal(frozen, signal.SIGCONT)
    return False


def assert_ended_cleanly(live):
    """Assert that no job of the run is left, and that its workers are there and end on request."""
    wait_until(lambda: processes_of(live.run.run_id) == [], START_S, "the end of the jobs")
    live.signal(live._roots[1:], signal.SIGTERM)
    live.assert_clean()


def test_a_worker_that_is_cut_off_for_a_moment_loses_nothing(tmp_path):
    """Results that were spooled while nothing passed are accepted once, and no job has a second attempt."""
    # How long a moment is depends on the machine; what is borne is far longer.
    with Remote(tmp_path / "live", SHORT, "--heartbeat-timeout", "20s", "--lease", "30s") as live:
        live.join("-c", 4, "far")
        live.wait_for_jobs()
        live.network.cut()
        wait_until(lambda: len(live.job_processes()) == 0, ANSWER_S, "the end of what the worker held")
        live.network.heal()
        assert live.end() == 0
        assert live.run.outcomes() == {"done": 96}
        assert not any(job["attempt"] for job in live.run.jobs)
        assert "was lost" not in live.err
        assert_ended_cleanly(live)


def test_a_worker_that_is_cut_off_for_longer_comes_back_under_a_new_epoch(tmp_path):
    """Missed after five seconds, then back: its jobs are retried, and results of the old attempts are discarded."""
    with Remote(tmp_path / "live", SHORT) as live:
        live.join("-c", 4, "far")
        live.wait_for_jobs()
        live.network.cut()
        wait_until(lambda: "silent for" in live.err, START_S, "the loss")
        live.network.heal()
        wait_until(lambda: "is back" in live.err, START_S, "the worker's return")
        assert live.end() == 0
        assert live.run.outcomes() == {"done": 96}
        retried = [job for job in live.run.jobs if job["attempt"]]
        assert {job["attempt"] for job in retried} == {1}
        assert 4 <= len(retried) <= 8, "what the worker held, and no others"
        refused = live.run.blocks("footer")[0].refused_results
        assert refused > 0, "results of the attempts that no longer counted, or that nobody could acknowledge"
        assert re.search(rf"\b{refused} late or duplicate results? discarded", live.run.details)
        assert_ended_cleanly(live)


@pytest.mark.slow
def test_a_worker_that_is_cut_off_for_good_has_lost_its_jobs(tmp_path):
    """The run ends with the counts; the worker's host is clean after its lease."""
    with Remote(tmp_path / "live", NATIVE) as live:
        worker = live.join("-c", 4, "far")
        live.wait_for_jobs()
        live.network.sever()
        wait_until(lambda: "did not come back" in live.err, ANSWER_S, "giving it up")
        assert live.end() == 3
        document = live.run.document
        lost = live.run.outcomes()["lost"]
        missing = JOBS - live.run.outcomes()["done"]
        assert (lost, document["totals"]["missing"]) == (4, missing)
        report = " ".join(live.out.split())
        assert f"INCOMPLETE: {missing} of {JOBS} planned jobs are missing" in report
        assert "4 of the jobs lost" in report
        wait_until(lambda: processes_of(live.run.run_id) == [], LEASE_S + START_S, "the clean-up of the worker")
        assert worker.process.poll() is None, "it waits for the next run"


@pytest.mark.slow
def test_a_worker_whose_host_was_rebooted_joins_again(tmp_path):
    """Everything of it is gone at once, without a word; started again under its name it takes its jobs up again."""
    with OverTcp(tmp_path / "live", NATIVE, "--reconnect-timeout", f"{START_S:g}s") as live:
        live.join("-c", 4, "solo")
        live.wait_for_jobs()
        running = live.refresh()
        live.signal(running, signal.SIGKILL)
        live.signal(live._roots[1:], signal.SIGKILL)
        live.join("-c", 4, "solo")
        wait_until(lambda: "is back" in live.err, START_S, "the worker's return")
        assert live.end() == 0
        assert live.run.outcomes() == {"done": JOBS}
        assert {job["attempt"] for job in live.run.jobs} == {0, 1}
        assert_ended_cleanly(live)


def test_a_worker_that_is_suspended_for_too_long_has_lost_its_jobs_and_its_late_results(tmp_path):
    """Given up while it stands still; then its results are dropped, it joins again and does the next trial.

    The other worker goes on all the time. Each job ends once: done, or lost for good.
    """
    job = {"operations": LIFE, "container": {"command": ["sleep", "0.8"]}}
    short = ("--heartbeat-timeout", "4s", "--reconnect-timeout", "2s", "--lease", "4s")  # subject: they run out
    with OverTcp(tmp_path / "live", {**NATIVE, "iterations": 12, "job": job}, *short, workers=2) as live:
        live.join("-c", 4, "one")
        live.join("-c", 4, "two")
        live.wait_for_jobs()
        frozen = []
        wait_until(lambda: suspend_during_a_job(live, live._roots[2], frozen), START_S, "a job of its own")
        wait_until(lambda: "did not come back" in live.err, START_S, "giving it up")
        live.signal(frozen, signal.SIGCONT)
        wait_until(lambda: "two on" in live.err and "is back" in live.err, START_S, "the worker's return")
        assert live.end() == 3
        rows = live.run.jobs
        assert {(row["worker"], row["outcome"]) for row in rows} >= {
            ("one", "done"),
            ("two", "done"),
            ("two", "lost"),
        }
        assert {row["outcome"] for row in rows if row["worker"] == "one"} == {"done"}
        assert live.run.outcomes()["lost"] == 4, "what it held"
        assert live.run.blocks("footer")[0].refused_results > 0, "jobs that ended while it stood still"
        assert_ended_cleanly(live)
