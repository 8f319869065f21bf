"""Connections that are reset (a firewall, a broken tunnel): no attempt, no worker and hardly any time is lost."""

import contextlib

import pytest
import zmq
from deadlines import ANSWER_S, START_S, wait_until
from live_run import LIFE, NATIVE
from test_disconnected_workers import Remote, assert_ended_cleanly
from workspace import UNHURRIED, held_until, naps_until

CONTROL, RESULTS, LANE = range(3)


@pytest.fixture
def over(tmp_path):
    """A file that says that the connections have had what the test is about."""
    return tmp_path / "over"


def one_trial(jobs, command):
    """Return a trial of so many jobs, four at a time."""
    job = {"operations": LIFE, "container": {"command": command}}
    return {**NATIVE, "repeats": 1, "iterations": jobs // 4, "job": job}


def wait_for_more(live, jobs):
    """Wait until five more of so many jobs are done, or all but the one that is held."""
    live.wait_for_jobs(min(live.jobs_shown() + 5, jobs - 1))


def assert_nothing_lost(live, jobs):
    """Assert that each job was done at the first attempt, and that no worker was missed for a moment."""
    assert live.end() == 0, live.err
    assert live.run.outcomes() == {"done": jobs}
    assert not any(job["attempt"] for job in live.run.jobs)
    kinds = {event["kind"] for event in live.run.blocks("event")}
    assert not kinds & {"worker-lost", "worker-reconnected", "late-results"}, kinds
    assert live.run.blocks("footer")[0].dropped_messages == 0
    assert "INCOMPLETE" not in live.out


def test_every_connection_is_reset_and_nothing_is_lost(tmp_path, over):
    """Lane, results and control connection in turn, several times, the control connection twice within seconds."""
    with Remote(tmp_path / "live", one_trial(112, naps_until(over)), *UNHURRIED) as live:
        live.join("-c", 4, "far")
        live.wait_for_jobs()
        for socket in (LANE, CONTROL, RESULTS, CONTROL, LANE, RESULTS, LANE):
            wait_until(
                lambda socket=socket: live.network.reset(live.ports[socket]), ANSWER_S, "a connection to reset"
            )
            # Jobs go on: what was lost with the connection is sent again.
            wait_for_more(live, 112)
        over.touch()
        assert_nothing_lost(live, 112)
        assert_ended_cleanly(live)


def test_orders_that_are_lost_with_a_lane_are_sent_again_at_once(tmp_path, over):
    """The lane is reset the moment jobs go out: they start about a second later, not after the limit of a job."""
    with Remote(tmp_path / "live", one_trial(4, held_until(over)), *UNHURRIED) as live:
        lane = live.ports[LANE]
        live.network.lose_messages(lane)
        live.join("-c", 4, "far")
        wait_until(lambda: live.network.connections_reset(lane) >= 3, START_S, "orders lost again and again")
        assert not live.job_processes()
        live.network.pass_messages(lane)
        wait_until(live.job_processes, ANSWER_S, "jobs whose orders were sent again")
        over.touch()
        assert_nothing_lost(live, 4)
        assert_ended_cleanly(live)


def test_a_lane_without_keys_serves_its_worker_only(tmp_path, over):
    """A stranger, with a wrong token or with none, is handed nothing and costs nothing."""
    context = zmq.Context()
    scenario = one_trial(32, naps_until(over))
    with Remote(tmp_path / "live", scenario, *UNHURRIED) as live, contextlib.ExitStack() as stack:
        live.join("-c", 4, "far")
        live.wait_for_jobs()
        thieves = []
        for credentials in ((), (b"1", b"wrong")):
            thief = stack.enter_context(context.socket(zmq.PULL))
            thief.linger = 0
            if credentials:
                thief.plain_username, thief.plain_password = credentials
            thief.connect(f"tcp://127.0.0.1:{live.ports[LANE]}")
            thieves.append(thief)
        wait_for_more(live, 32)
        over.touch()
        assert_nothing_lost(live, 32)
        assert not any(thief.poll(1) for thief in thieves)
        assert_ended_cleanly(live)
    context.term()
