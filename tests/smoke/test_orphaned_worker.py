"""A load process that lost its agent: it ends, cleans up, and reports nothing that the master did not ask for."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
import zmq
from deadlines import ANSWER_S

from bench_common.messages import DefineTreatment, Jobs, encode
from bench_master.run.dispatcher import JobBatches
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_worker.leases import RunLease
from bench_worker.pipe_channel import LoadStatus, Ready, RunContext, StartRun, ToAgent

SLEEPER = "name: a\nengines: [native]\njob: {operations: [run, wait, remove], container: {command: [sleep, '97']}}\n"
EPOCH = 7


@pytest.fixture
def sockets():
    """The master's ends of lane and results, with their endpoints."""
    context = zmq.Context()
    with (
        tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp") as folder,
        context.socket(zmq.PUSH) as lane,
        context.socket(zmq.PULL) as results,
    ):
        for one, name in ((lane, "lane"), (results, "results")):
            one.setsockopt(zmq.LINGER, 0)
            one.bind(f"ipc://{folder}/{name}")
        yield lane, results, folder
    context.term()


@pytest.fixture
def run_id():
    """A run that is alive, as it is while an agent holds its lease: nobody else's clean-up ends its processes."""
    name = f"orphan-{os.getpid()}"
    with RunLease(name):
        yield name


@pytest.fixture
def load_process():
    """A load process and the agent's end of the line to it."""
    ours, theirs = socket.socketpair()
    ours.settimeout(ANSWER_S)
    command = [sys.executable, "-m", "bench_worker", "--load-process", str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()
    yield process, ours
    ours.close()
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


def say(line, message):
    """Send the load process a message."""
    packed = msgspec.msgpack.encode(message)
    line.sendall(struct.pack("<I", len(packed)) + packed)


def received(line):
    """Return the next message of the load process."""
    (length,) = struct.unpack("<I", line.recv(4, socket.MSG_WAITALL))
    return msgspec.msgpack.decode(line.recv(length, socket.MSG_WAITALL), type=ToAgent)


def wait_until(line, true):
    """Wait until the load process says something of which `true` holds."""
    deadline = time.monotonic() + ANSWER_S
    while not true(received(line)):
        assert time.monotonic() < deadline


def sleeping(run_id):
    """Return the pids of what a run started and nobody has ended yet."""
    label = f"WEIGHBRIDGE_RUN={run_id}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if label in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found


def test_an_orphan_ends_cleans_up_and_reports_no_abort(sockets, load_process, run_id):
    """Jobs that it aborts because its agent died are not reported as results: the master retries them."""
    lane, results, folder = sockets
    process, line = load_process
    wait_until(line, lambda message: isinstance(message, Ready))
    context = RunContext(run_id, "w", 2, noop=False, keep=False, allow_host_mounts=False, allow_native=True)
    endpoints = {"lane_endpoint": f"ipc://{folder}/lane", "results_endpoint": f"ipc://{folder}/results"}
    say(line, StartRun(context, EPOCH, **endpoints, profile=False, keys=None))
    treatment = parse_scenario(Source("s.yaml", SLEEPER)).treatments[0]
    orders = JobBatches(1).fresh(range(2))
    lane.send(encode(DefineTreatment(epoch=EPOCH, number=1, treatment=treatment)))
    lane.send(encode(Jobs(epoch=EPOCH, number=2, treatment=0, trial=0, concurrency=2, batch=1, rows=orders)))
    wait_until(line, lambda message: isinstance(message, LoadStatus) and message.running == 2)
    deadline = time.monotonic() + ANSWER_S
    while len(sleeping(run_id)) < 2:
        assert time.monotonic() < deadline, "the jobs did not begin"
        time.sleep(0.05)
    line.close()
    assert process.wait(ANSWER_S) == 0
    assert sleeping(run_id) == []
    assert not results.poll(200)
