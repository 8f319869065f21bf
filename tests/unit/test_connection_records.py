"""How the guard of connections tells the messages of one connection from those of another with the same number."""

import socket
import struct
from types import SimpleNamespace

import pytest
import zmq

from bench_master.run.connections import ConnectionGuard, Traffic, _Watched


@pytest.fixture
def watched():
    """A guard whose thread does not run, and a watched socket."""
    guard = ConnectionGuard(SimpleNamespace(), lambda _: None)
    channel = SimpleNamespace(emptied=0)
    yield guard, _Watched("results", SimpleNamespace(), Traffic(), channel)
    guard.close()


class Monitor:
    """What libzmq reports of a socket's connections: a single event."""

    def __init__(self, kind, number):
        self.frames = [struct.pack("=Hi", kind, number)]

    def getsockopt(self, _option):
        return zmq.POLLIN if self.frames else 0

    def recv_multipart(self):
        return [self.frames.pop(), b"tcp://127.0.0.1:1"]


@pytest.fixture
def accepted():
    """One accepted TCP connection, and its other end."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        line, _ = server.accept()
        with line:
            yield line, client


def test_a_worker_whose_first_message_was_read_early_is_no_stranger(watched, accepted):
    """The loop may read its first message before the guard learns of the connection."""
    guard, one = watched
    line, _ = accepted
    one.traffic.consumed[line.fileno()] = 900
    one.traffic.workers.add(line.fileno())
    guard._begin(one, line.fileno())
    assert one.traffic.workers == {line.fileno()}
    assert one.connections[line.fileno()].base == 0
    guard._end(one, line.fileno())
    # The next connection with this number has sent nothing yet.
    guard._begin(one, line.fileno())
    assert one.traffic.workers == set()
    assert one.connections[line.fileno()].base == 900
    guard._end(one, line.fileno())


def test_an_accepted_connection_keeps_what_was_read_of_it_by_then(watched, accepted):
    """Only the one before it with this number has ended."""
    guard, one = watched
    line, _ = accepted
    number = line.fileno()
    for consumed, base in ((900, 0), (1800, 900)):
        one.traffic.consumed[number] = consumed
        one.traffic.workers.add(number)
        one.monitor = Monitor(zmq.EVENT_ACCEPTED, number)
        guard._take_events(one)
        assert one.traffic.workers == {number}
        assert one.connections[number].base == base
        one.monitor = Monitor(zmq.EVENT_DISCONNECTED, number)
        guard._take_events(one)
        assert one.connections == {}


def test_what_a_local_connection_sent_is_not_counted_for_the_next_one(watched, accepted):
    """A Unix socket is not guarded; its number may be a stranger's next."""
    guard, one = watched
    line, _ = accepted
    one.traffic.consumed[line.fileno()] = 5_000_000
    guard._end(one, line.fileno())
    guard._begin(one, line.fileno())
    assert one.connections[line.fileno()].base == 5_000_000
    guard._end(one, line.fileno())


def test_what_a_closed_connection_left_is_not_the_next_ones(watched, accepted):
    """Until the loop has read what was left; what can never be read is forgotten then."""
    guard, one = watched
    line, client = accepted
    number = line.fileno()
    guard._begin(one, number)
    client.sendall(bytes(300_000))
    line.recv(300_000, socket.MSG_WAITALL)
    guard._end(one, number)
    left = one.left_by[number]
    assert left > 290_000
    guard._begin(one, number)
    assert one.connections[number].base == left
    guard._end(one, number)
    one.left_by.clear()
    one.traffic.consumed[number] = 100
    guard._begin(one, number)
    assert one.connections[number].base == 100
    guard._end(one, number)
