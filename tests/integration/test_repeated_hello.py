"""Hellos that queued up while no master listened arrive together, and must not cost the first jobs."""

import signal
import subprocess
import sys

import pytest
import zmq
from deadlines import ANSWER_S, END_S, START_S
from workspace import free_ports

from bench_common.clock import clock_id
from bench_common.curve import plain_client
from bench_common.messages import FROM_MASTER, WORK, DefineTreatment, Hello, Jobs, Welcome, WorkerDied, encode


@pytest.fixture
def ports():
    return free_ports(3)


@pytest.fixture
def master(tmp_path, ports):
    """A master that waits for one worker on the loopback."""
    program = [sys.executable, "-m", "bench_master", "run-scenario", "-f", "noop", "--noop"]
    flags = ["--zmq-control-port", ports[0], "--zmq-results-port", ports[1], "--zmq-work-port", ports[2]]
    flags += ["--zmq-bind-ip", "127.0.0.1", "--insecure"]
    process = subprocess.Popen(
        [*program, "--expect", "1", "-R", "-q", *map(str, flags)], cwd=tmp_path, stdin=subprocess.DEVNULL
    )
    yield process
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(ANSWER_S)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def connect():
    """Give sockets whose every receive has a deadline."""
    context = zmq.Context()
    sockets = []

    def connected(kind, port, welcome=None):
        made = context.socket(kind)
        if welcome is not None:
            plain_client(made, welcome.epoch, welcome.token)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVTIMEO, int(1000 * START_S))
        made.connect(f"tcp://127.0.0.1:{port}")
        sockets.append(made)
        return made

    yield connected
    for made in sockets:
        made.close()
    context.term()


def test_a_worker_that_asks_twice_gets_the_jobs_of_its_first_welcome(master, ports, connect):
    """Both welcomes name the same lane, and the first jobs are on it."""
    control = connect(zmq.DEALER, ports[0])
    hello = encode(
        Hello(epoch=0, worker_id="eager", environment="e", slots=24, sent_ns=1, info={"boot_id": clock_id()})
    )
    for _ in range(3):
        control.send(hello)
    welcomes = [FROM_MASTER.decode(control.recv()) for _ in range(3)]
    assert {type(message) for message in welcomes} == {Welcome}
    assert len({(message.epoch, message.lane_endpoint) for message in welcomes}) == 1
    lane = connect(zmq.PULL, welcomes[0].lane_endpoint.rpartition(":")[2], welcomes[0])
    received = [type(WORK.decode(lane.recv())) for _ in range(2)]
    assert received == [DefineTreatment, Jobs]
    control.send(encode(WorkerDied(epoch=welcomes[0].epoch, worker_id="eager", reason="the test is over", number=1)))
    assert master.poll() is None


def test_a_hello_that_is_too_large_to_send_ends_the_worker():
    """A worker that cannot say who it is says why, once, and ends with 3 instead of trying for ever."""
    labels = [word for number in range(20) for word in ("--label", f"k{number}={'x' * 100_000}")]
    command = [sys.executable, "-m", "bench_worker", *labels]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=False)
    assert ended.returncode == 3
    assert ended.stderr.count("this worker cannot send its hello to a master: ") == 1
    assert "Traceback" not in ended.stderr
