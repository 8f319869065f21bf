"""The master is killed outright: its workers see to their host by themselves, and the stats file is good."""

import signal
import time

import pytest
from deadlines import ANSWER_S, START_S, wait_until
from live_run import DOCKER, JOBS, LEASE_S, NATIVE, SHORT_LEASE, Gate, LiveRun, processes_of
from workspace import containers_of

from bench_common.stats.reader import StatsFile


@pytest.fixture
def gate(tmp_path):
    """Four jobs pass it; the run cannot be over before it is open."""
    made = Gate(tmp_path / "gate")
    made.admit(4)
    return made


@pytest.mark.docker
def test_workers_clean_up_after_a_master_that_was_killed(tmp_path, gate):
    """After the lease the workers remove their containers and end; what is on disk can be reported."""
    with LiveRun(tmp_path / "live", gate.holds(DOCKER), *SHORT_LEASE) as live:
        live.wait_for_jobs()
        written = StatsFile(live.stats)
        wait_until(lambda: sum(map(len, written.iter_jobs())) == 4, ANSWER_S, "jobs in the file")
        run_id = live.run.run_id
        assert containers_of(live.docker, run_id), "there is something to clean up"
        live.signal([live.master], signal.SIGKILL)
        wait_until(lambda: not live.alive(), LEASE_S + START_S, "the end of the workers")
        assert containers_of(live.docker, run_id) == []
        assert processes_of(run_id) == []
        report = live.report()
        assert "the run was killed or is still running" in report
        assert live.run.outcomes()["done"] == 4
        left = live.directories
        assert left
    with LiveRun(tmp_path / "next", gate.holds(NATIVE)) as following:
        wait_until(following.agents, START_S, "the next run's worker")
        assert not any(directory.exists() for directory in left), "the next master removes the sockets' directory"


@pytest.mark.slow
def test_a_master_that_is_stopped_for_longer_than_the_lease_loses_its_workers(tmp_path, gate):
    """Workers give a silent master up; when it goes on, it starts them again and the run is complete."""
    flags = (*SHORT_LEASE, "--reconnect-timeout", f"{START_S:g}s")
    with LiveRun(tmp_path / "live", gate.holds(NATIVE), *flags) as live:
        live.wait_for_jobs()
        live.signal([live.master], signal.SIGSTOP)
        wait_until(lambda: not live.alive(), LEASE_S + START_S, "the end of the workers")
        gate.open()
        live.signal([live.master], signal.SIGCONT)
        assert live.end() == 0
        assert live.run.outcomes() == {"done": JOBS}
        assert "was lost" in live.run.details, "the report warns of it"
        live.assert_clean()


def test_a_machine_that_is_suspended_beyond_every_limit_loses_nothing(tmp_path, gate):
    """Neither worker nor master counts as gone while all stood still; the report warns that times are inflated."""
    limits = ("--heartbeat-timeout", "4s", "--lease", "4s", "--reconnect-timeout", "2s")
    with LiveRun(tmp_path / "live", gate.holds({**NATIVE, "repeats": 1}), *limits) as live:
        live.wait_for_jobs()
        frozen = [live.master, *live.agents(), *live.load_processes()]
        live.signal(frozen, signal.SIGSTOP)
        time.sleep(7)
        live.signal(frozen, signal.SIGCONT)
        gate.open()
        assert live.end() == 0
        assert live.run.outcomes() == {"done": 24}
        assert not any(job["attempt"] for job in live.run.jobs)
        assert "was lost" not in live.err
        assert "the master did not run for" in live.run.details
        live.assert_clean()
