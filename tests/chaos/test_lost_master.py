"""The master is killed outright: its workers see to their host by themselves, and the stats file is good."""

import signal
import time

import pytest
from arena import DOCKER, LEASE_S, NATIVE, SHORT_LEASE, Arena, marked
from weighing import PROGRAMS, containers_of, until


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch):
    monkeypatch.setitem(PROGRAMS, "bench-master", SHORT_LEASE)


@pytest.mark.docker
def test_workers_clean_up_after_a_master_that_was_killed(tmp_path):
    """After the lease the workers remove their containers and end; what is on disk can be reported."""
    with Arena(tmp_path / "arena", DOCKER) as arena:
        arena.under_way(3)
        run_id = arena.run.run_id
        assert containers_of(arena.docker, run_id), "there is something to clean up"
        arena.signal([arena.master], signal.SIGKILL)
        until(lambda: not arena.alive(), LEASE_S + 60, "the end of the workers")
        assert containers_of(arena.docker, run_id) == []
        assert marked(run_id) == []
        report = arena.report()
        assert "INCOMPLETE" in report
        assert "the run was killed or is still running" in report
        assert arena.run.outcomes()["done"] >= 2
        left = arena.directories
        assert left
    with Arena(tmp_path / "next", NATIVE) as following:
        until(following.agents, 30, "the next run's worker")
        assert not any(directory.exists() for directory in left), "the next master removes the sockets' directory"


@pytest.mark.slow
def test_a_master_that_is_stopped_for_longer_than_the_lease_loses_its_workers(tmp_path):
    """Workers give a silent master up; when it goes on, it starts them again and the run is complete."""
    with Arena(tmp_path / "arena", {**NATIVE, "iterations": 30}, "--reconnect-timeout", "60s") as arena:
        arena.under_way()
        arena.signal([arena.master], signal.SIGSTOP)
        until(lambda: not arena.alive(), LEASE_S + 60, "the end of the workers")
        arena.signal([arena.master], signal.SIGCONT)
        assert arena.end(60) == 0
        assert arena.run.outcomes() == {"done": 240}
        assert "was lost" in arena.out, "the report warns of it"
        arena.nothing_left()


def test_a_machine_that_stands_still_for_longer_than_silence_is_borne_loses_nothing(tmp_path):
    """Nobody is taken for dead who could not be heard; that the times of then are too long is said in the report."""
    with Arena(tmp_path / "arena", {**NATIVE, "repeats": 1}, "--heartbeat-timeout", "4s") as arena:
        arena.under_way()
        frozen = [arena.master, *arena.agents(), *arena.loads()]
        arena.signal(frozen, signal.SIGSTOP)
        time.sleep(7)
        arena.signal(frozen, signal.SIGCONT)
        assert arena.end() == 0
        assert arena.run.outcomes() == {"done": 24}
        assert not any(job["attempt"] for job in arena.run.jobs)
        assert "was lost" not in arena.said
        assert "the master did not run for" in " ".join(arena.out.split())
        arena.nothing_left()


@pytest.mark.slow
def test_a_master_that_is_held_up_for_a_moment_loses_nothing(tmp_path):
    """A stop of three seconds costs neither a worker nor a job."""
    with Arena(tmp_path / "arena", {**NATIVE, "repeats": 1}) as arena:
        arena.under_way()
        arena.signal([arena.master], signal.SIGSTOP)
        time.sleep(3)
        arena.signal([arena.master], signal.SIGCONT)
        assert arena.end() == 0
        assert arena.run.outcomes() == {"done": 24}
        arena.nothing_left()
