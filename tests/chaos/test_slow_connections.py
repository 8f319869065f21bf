"""One of a worker's three connections is slow, each in turn: nobody is lost for it, and each job counts once."""

import pytest
from live_run import NATIVE
from test_disconnected_workers import Remote, assert_ended_cleanly

FEW = {**NATIVE, "concurrency": 4, "iterations": 3}
"""24 jobs in two trials."""
LATE_S = 2
"""By how much bytes are late, in either direction: less than the five seconds of silence that are borne.

A connection takes seven times as long until it carries its first message.
"""


def ports_of(live, name):
    """Return the ports of one of the connections; that for work may be any of the lanes."""
    control, results, work = live.ports
    return {"control": [control], "results": [results], "work": range(work, work + 4)}[name]


@pytest.mark.parametrize(
    "name", [pytest.param("control", marks=pytest.mark.slow), "results", pytest.param("work", marks=pytest.mark.slow)]
)
def test_a_connection_that_is_slow_all_the_time_loses_nothing(tmp_path, name):
    """Heartbeats, results or jobs come seconds late, and all come: the run is only longer."""
    with Remote(tmp_path / "live", FEW) as live:
        live.network.delay(ports_of(live, name), LATE_S)
        live.join("-c", 4, "far")
        assert live.end() == 0
        assert live.run.outcomes() == {"done": 24}
        assert not any(job["attempt"] for job in live.run.jobs)
        assert "was lost" not in live.err
        assert_ended_cleanly(live)


@pytest.mark.slow
def test_a_control_connection_that_becomes_slow_makes_a_worker_missed_and_taken_back(tmp_path):
    """Eight seconds late from one moment on: silence for longer than is borne, after which each job is done once."""
    with Remote(tmp_path / "live", {**NATIVE, "concurrency": 4, "iterations": 6}, "--lease", "30s") as live:
        live.join("-c", 4, "far")
        live.wait_for_jobs()
        live.network.delay(ports_of(live, "control"), 8)
        assert live.end() == 0
        assert live.run.outcomes() == {"done": 48}
        assert {job["attempt"] for job in live.run.jobs} <= {0, 1}
        assert_ended_cleanly(live)
