"""The guard of a master's connections, at real sockets: what an honest worker sends is never too much."""

import contextlib
import socket
import struct
import threading
from types import SimpleNamespace

import gevent
import pytest
import zmq
from deadlines import ANSWER_S, wait_until
from workspace import free_ports

from bench_common.messages import Results, encode
from bench_common.records import LOOP_BYTES
from bench_master.run.endpoints import Endpoints, Ports
from bench_master.run.sockets import Sockets
from bench_worker.outbox import split_results

EPOCH, TOKEN = 7, "t" * 40


@pytest.fixture
def served():
    """Sockets over TCP without keys, with a lane for epoch `EPOCH`, and what they received."""
    received = []
    receiver = SimpleNamespace(
        epoch_state=lambda epoch: "current" if epoch == EPOCH else "unknown",
        on_control=lambda *_: None,
        on_results=lambda _, message: received.append(message.sequence),
        on_broken=lambda *_: None,
    )
    ports = Ports(*free_ports(3))
    context = zmq.Context()
    with Endpoints("127.0.0.1", ports, insecure=True) as endpoints:
        sockets = Sockets(endpoints)
        sockets.open(receiver)
        sockets.open_lane(0, "w", EPOCH, TOKEN, local=False)
        push = context.socket(zmq.PUSH)
        push.sndhwm, push.linger = 0, 0
        push.plain_username, push.plain_password = str(EPOCH).encode(), TOKEN.encode()
        push.connect(f"tcp://127.0.0.1:{ports.results}")
        yield sockets, push, received
        push.close()
        sockets.close()
    context.destroy(0)


def wait(until):
    """Let the loop run until something holds."""
    wait_until(until, sleep=gevent.sleep)


def frames(sequence, size):
    """Return the frames of a batch of results of about this size."""
    rest = {"loop": bytes(LOOP_BYTES), "metrics": [], "errors": [], "outputs": []}
    made = Results(epoch=EPOCH, sequence=sequence, taken=0, treatment=0, trial=0, rows=bytes(size), **rest)
    return split_results(encode(made), EPOCH, sequence)


def test_all_that_a_worker_may_have_under_way_is_taken(served):
    """Twenty MiB at once, in parts, while the loop is busy: nobody is cut off, and each batch arrives whole."""
    sockets, push, received = served
    push.send(*frames(0, 800))
    wait(lambda: received == [0])
    for sequence in (1, 2):
        for frame in frames(sequence, 10 << 20):
            push.send(frame)
    for _ in range(30):
        # The loop does not run: only libzmq's thread and the guard's do.
        zmq.Poller().poll(30)
    wait(lambda: received == [0, 1, 2])
    assert not sockets.cut_off
    assert not sockets.dropped


def send_without_end(port):
    """Prove the epoch (RFC 24), then send frames with more to come until the connection ends."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as line:
        line.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00PLAIN" + bytes(47))
        hello = b"\x05HELLO" + b"".join(bytes([len(word)]) + word for word in (str(EPOCH).encode(), TOKEN.encode()))
        line.sendall(b"\x04" + bytes([len(hello)]) + hello)
        seen = b""
        while b"WELCOME" not in seen:
            seen += line.recv(1000)
        initiate = b"\x08INITIATE\x0bSocket-Type\x00\x00\x00\x04PUSH"
        line.sendall(b"\x04" + bytes([len(initiate)]) + initiate)
        while b"READY" not in seen:
            seen += line.recv(1000)
        while True:
            line.sendall(b"\x03" + struct.pack(">Q", 100_000) + bytes(100_000))


def test_a_message_without_end_ends_its_connection(served):
    """Of frames with more to come none reaches the loop: their sender is cut off and named, other workers are not."""
    sockets, push, received = served
    push.send(*frames(0, 800))
    wait(lambda: received == [0])
    sender = threading.Thread(target=send_without_end, args=(sockets._endpoints.ports.results,), daemon=True)
    sender.start()
    wait(lambda: sockets.cut_off)
    assert list(sockets.cut_off) == [("results", "127.0.0.1")]
    sender.join(ANSWER_S)
    assert not sender.is_alive()
    push.send(*frames(1, 800))
    wait(lambda: received == [0, 1])
    assert sockets.cut_off.total() == 1
