"""Connections that are reset (a firewall, a broken tunnel): no attempt, no worker and hardly any time is lost."""

import contextlib

import zmq
from deadlines import ANSWER_S, START_S, wait_until
from live_run import LIFE, NATIVE
from test_disconnected_workers import Remote, assert_ended_cleanly

SCENARIO = {**NATIVE, "concurrency": 4, "iterations": 14}
"""112 jobs, 28 in turn of 0.3 s: about nine seconds."""
SLOW_S = 3.0
"""How long a job of `LONG` takes."""
LONG = {
    **NATIVE,
    "repeats": 1,
    "concurrency": 2,
    "iterations": 2,
    "job": {"operations": LIFE, "container": {"command": ["sleep", f"{SLOW_S:g}"]}},
}
CONTROL, RESULTS, LANE = range(3)


def assert_nothing_lost(live, jobs):
    """Assert that each job was done at the first attempt, and that no worker was missed for a moment."""
    assert live.end() == 0, live.err
    assert live.run.outcomes() == {"done": jobs}
    assert not any(job["attempt"] for job in live.run.jobs)
    kinds = {event["kind"] for event in live.run.blocks("event")}
    assert not kinds & {"worker-lost", "worker-reconnected", "late-results"}, kinds
    assert live.run.blocks("footer")[0]["dropped_messages"] == 0
    assert "INCOMPLETE" not in live.out


def test_every_connection_is_reset_and_nothing_is_lost(tmp_path):
    """Lane, results and control connection in turn, several times, the control connection twice within seconds."""
    with Remote(tmp_path / "live", SCENARIO, "--heartbeat-timeout", "20s", "--lease", "30s") as live:
        live.join("-c", 4, "far")
        live.wait_for_jobs()
        for socket in (LANE, CONTROL, RESULTS, CONTROL, LANE, RESULTS, LANE):
            shown = live.jobs_shown()
            wait_until(
                lambda socket=socket: live.network.reset(live.ports[socket]), ANSWER_S, "a connection to reset"
            )
            # Jobs go on: what was lost with the connection is sent again.
            wait_until(lambda shown=shown: live.jobs_shown() >= shown + 5, ANSWER_S, "jobs after a reset")
        assert_nothing_lost(live, 112)
        assert_ended_cleanly(live)


def test_orders_that_are_lost_with_a_lane_are_sent_again_at_once(tmp_path):
    """The lane is reset the moment jobs go out: they start about a second later, not after the limit of a job."""
    with Remote(tmp_path / "live", LONG, "--heartbeat-timeout", "20s", "--lease", "30s") as live:
        lane = live.ports[LANE]
        live.network.lose_messages(lane)
        live.join("-c", 2, "far")
        wait_until(lambda: live.network.connections_reset(lane) >= 3, START_S, "orders lost again and again")
        assert not live.job_processes()
        live.network.pass_messages(lane)
        wait_until(live.job_processes, ANSWER_S, "jobs whose orders were sent again")
        assert_nothing_lost(live, 4)
        assert_ended_cleanly(live)


def test_a_lane_without_keys_serves_its_worker_only(tmp_path):
    """A stranger, with a wrong token or with none, is handed nothing and costs nothing."""
    context = zmq.Context()
    with Remote(tmp_path / "live", SCENARIO | {"iterations": 4}) as live, contextlib.ExitStack() as stack:
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
        assert_nothing_lost(live, 32)
        assert not any(thief.poll(1) for thief in thieves)
        assert_ended_cleanly(live)
    context.term()
