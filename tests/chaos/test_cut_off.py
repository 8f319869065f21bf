"""A worker on another host that is cut off for a moment, for longer, or for good; rebooted; or out of disk."""

import re
import signal
from itertools import count

import pytest
from arena import JOBS, LIFE, NATIVE, OverTcp, marked
from severed import ADDRESS, Relay
from test_foreign_conditions import _fill, tiny_disk  # noqa: F401  a fixture
from weighing import until

LEASE_S = 15
SHORT = {**NATIVE, "concurrency": 4, "iterations": 12}
"""96 jobs in about eight seconds."""


class Remote(OverTcp):
    """A run whose worker reaches its master through a network that can be cut."""

    def __enter__(self):
        # A lane that is opened anew may get the next port.
        self.network = Relay([*self.ports, *range(self.ports[2] + 1, self.ports[2] + 4)])
        return self

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self.network.__exit__(*exception)

    def join(self, *words):
        """Start a worker on the far side of the relay."""
        ports = ("--zmq-host", ADDRESS, "--zmq-control-port", self.ports[0])
        return self.started("bench-worker", *ports, *words)


def nothing_left(arena):
    """Assert that no job of the run is left; its workers are there, and end when they are told to."""
    until(lambda: marked(arena.run.run_id) == [], 30, "the end of the jobs")
    arena.signal(arena._roots[1:], signal.SIGTERM)
    arena.nothing_left()


def test_a_worker_that_is_cut_off_for_a_moment_loses_nothing(tmp_path):
    """Results that were spooled while nothing passed are accepted once, and no job has a second attempt."""
    # How long a moment is depends on the machine; what is borne is far longer.
    with Remote(tmp_path / "arena", SHORT, "--heartbeat-timeout", "20s", "--lease", "30s") as arena:
        arena.join("-c", 4, "far")
        arena.under_way()
        arena.network.cut()
        until(lambda: len(arena.naps()) == 0, 15, "the end of what the worker held")
        arena.network.heal()
        assert arena.end() == 0
        assert arena.run.outcomes() == {"done": 96}
        assert not any(job["attempt"] for job in arena.run.jobs)
        assert "was lost" not in arena.said
        nothing_left(arena)


def test_a_worker_that_is_cut_off_for_longer_comes_back_under_a_new_epoch(tmp_path):
    """Missed after five seconds, then back: jobs are tried anew, and what comes of the old attempts is refused."""
    with Remote(tmp_path / "arena", SHORT) as arena:
        arena.join("-c", 4, "far")
        arena.under_way()
        arena.network.cut()
        until(lambda: "silent for" in arena.said, 30, "the loss")
        arena.network.heal()
        until(lambda: "is back" in arena.said, 30, "the worker's return")
        assert arena.end() == 0
        assert arena.run.outcomes() == {"done": 96}
        retried = [job for job in arena.run.jobs if job["attempt"]]
        assert {job["attempt"] for job in retried} == {1}
        assert 4 <= len(retried) <= 8, "what the worker held, and no others"
        refused = arena.run.blocks("footer")[0]["refused_results"]
        assert refused > 0, "results of the attempts that no longer counted, or that nobody could acknowledge"
        assert re.search(rf"\b{refused} results?\s+refused", arena.out)
        nothing_left(arena)


@pytest.mark.slow
def test_a_worker_that_is_cut_off_for_good_has_lost_its_jobs(tmp_path):
    """The run ends within twenty seconds with the counts; the worker's host is clean after its lease."""
    with Remote(tmp_path / "arena", NATIVE) as arena:
        worker = arena.join("-c", 4, "far")
        arena.under_way()
        arena.network.sever()
        until(lambda: "did not come back" in arena.said, 20, "giving it up")
        assert arena.end(10) == 3
        document = arena.run.document
        lost = arena.run.outcomes()["lost"]
        missing = JOBS - arena.run.outcomes()["done"]
        assert (lost, document["totals"]["missing"]) == (4, missing)
        assert f"INCOMPLETE: {missing} of {JOBS} planned jobs are missing" in arena.out
        assert "4 of the jobs lost" in arena.out
        until(lambda: marked(arena.run.run_id) == [], LEASE_S + 10, "the clean-up of the worker")
        assert worker.process.poll() is None, "it waits for the next run"


@pytest.mark.slow
def test_a_worker_whose_host_was_rebooted_joins_again(tmp_path):
    """Everything of it is gone at once, without a word; started again under its name it takes its jobs up anew."""
    with OverTcp(tmp_path / "arena", NATIVE, "--reconnect-timeout", "60s") as arena:
        arena.join("-c", 4, "solo")
        arena.under_way()
        running = arena.look()
        arena.signal(running, signal.SIGKILL)
        arena.signal(arena._roots[1:], signal.SIGKILL)
        arena.join("-c", 4, "solo")
        until(lambda: "is back" in arena.said, 50, "the worker's return")
        assert arena.end() == 0
        assert arena.run.outcomes() == {"done": JOBS}
        assert {job["attempt"] for job in arena.run.jobs} == {0, 1}
        nothing_left(arena)


@pytest.mark.slow
def test_a_worker_that_is_frozen_whole_is_awaited(tmp_path):
    """Agent and load process stand still together, longer than silence is borne: missed, then back, nothing lost."""
    with OverTcp(tmp_path / "arena", SHORT) as arena:
        worker = arena.join("-c", 4, "solo")
        arena.under_way()
        frozen = [*arena.loads(), arena._roots[1]]
        arena.signal(frozen, signal.SIGSTOP)
        until(lambda: "silent for" in arena.said, 30, "the loss")
        arena.signal(frozen, signal.SIGCONT)
        until(lambda: "is back" in arena.said, 30, "the worker's return")
        assert arena.end() == 0
        assert arena.run.outcomes() == {"done": 96}
        assert worker.process.poll() is None
        nothing_left(arena)


def test_a_worker_whose_disk_is_full_fails_its_jobs(tmp_path, tiny_disk):  # noqa: F811
    """What needs space fails, each job once and with a reason; the run ends, and the worker is not lost."""
    write = ["sh", "-c", "head -c 1000 /dev/zero > zeros && sleep 0.2"]
    scenario = {**SHORT, "job": {"operations": LIFE, "container": {"command": write}}}
    with OverTcp(tmp_path / "arena", scenario) as arena:
        arena.weighing.environ["TMPDIR"] = str(tiny_disk)
        arena.join("-c", 4, "solo")
        arena.under_way()
        names = (tiny_disk / f"ballast-{number}" for number in count())
        # What a job that ends leaves free is taken too, until one has failed.
        until(lambda: _fill(next(names)) or re.search(r"^  [.]*X", arena.said, re.MULTILINE), 20, "a failed job")
        assert arena.end() == 0
        outcomes = arena.run.outcomes()
        assert set(outcomes) == {"done", "failed"}
        assert sum(outcomes.values()) == 96
        failed = [job for job in arena.run.jobs if job["outcome"] == "failed"]
        assert all(job["error"]["message"] for job in failed)
        assert "was lost" not in arena.said
