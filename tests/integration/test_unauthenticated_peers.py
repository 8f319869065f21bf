"""What a stranger can make a socket hold before it has shown a key: no more than the largest message that fits it."""

import contextlib
import re
import socket
import struct
import time
from pathlib import Path

import pytest
import zmq
from deadlines import ANSWER_S, wait_until

from bench_common.channel import FRAME_OVERHEAD, configure_socket
from bench_common.fields import MAX_FRAME
from bench_common.messages import FROM_WORKER, RESULTS

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
"""What a peer of ZMTP 3 with keys says first (RFC 23); a command of any size may follow, before keys are shown."""
STRANGERS = 12
PIECE = bytes(1 << 20)


def resident():
    """Return how much memory this process has resident, in bytes."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


@pytest.fixture
def door():
    """A port of a server with keys whose largest message is `largest`: open one, and what it costs is given back."""
    context = zmq.Context()
    keys = context.socket(zmq.REP)
    keys.bind("inproc://zeromq.zap.01")
    servers = []

    def open_door(largest):
        servers.append(server := context.socket(zmq.PULL))
        configure_socket(server, largest)
        _, server.curve_secretkey = zmq.curve_keypair()
        server.curve_server = True
        return server.bind_to_random_port("tcp://127.0.0.1")

    yield open_door
    context.destroy(0)


def held_for(port, size):
    """Let strangers begin a hello of `size` bytes; return how much that costs us, and how many might go on."""
    before = resident()
    with contextlib.ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S))
            for _ in range(STRANGERS)
        ]
        let_on = 0
        for stranger in strangers:
            with contextlib.suppress(OSError):
                stranger.sendall(GREETING + b"\x06" + struct.pack(">Q", size) + b"\x05HELLO")
                for _ in range(size // len(PIECE) - 1):
                    stranger.sendall(PIECE)
                    time.sleep(0.001)
                let_on += 1
        return resident() - before, let_on


def test_an_unauthenticated_peer_cannot_fill_memory(door):
    """Every port closes on a hello that is larger than whatever workers say there; results come in parts."""
    for largest in (FROM_WORKER.max_bytes, RESULTS.max_bytes):
        grown, let_on = held_for(door(largest), MAX_FRAME - 1)
        assert let_on == 0
        assert grown < STRANGERS << 20


def test_the_limit_is_what_keeps_it_out(door):
    """Where as much may come, as much is taken in: so the ports are given no more than they need."""
    grown, let_on = held_for(door(MAX_FRAME), MAX_FRAME - 1)
    assert let_on == STRANGERS
    assert grown > STRANGERS * (MAX_FRAME >> 2)


def test_the_largest_message_fits_with_its_wrapping(door):
    """Encrypted it is some bytes larger than it was encoded: a worker could say it again and again in vain."""
    context = zmq.Context()
    try:
        keys = context.socket(zmq.REP)
        keys.bind("inproc://zeromq.zap.01")
        server, client = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        public, server.curve_secretkey = zmq.curve_keypair()
        server.curve_server = True
        client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
        client.curve_serverkey = public
        configure_socket(server, 1000)
        configure_socket(client)
        port = server.bind_to_random_port("tcp://127.0.0.1")
        client.connect(f"tcp://127.0.0.1:{port}")
        assert keys.poll(int(1000 * ANSWER_S))
        asked = keys.recv_multipart()
        keys.send_multipart([*asked[:2], b"200", b"OK", b"blade", b""])
        client.send(bytes(1000))
        assert server.poll(int(1000 * ANSWER_S))
        assert len(server.recv()) == 1000
        client.send(bytes(1000 + FRAME_OVERHEAD))
        wait_until(lambda: keys.poll(0) or not server.poll(0), ANSWER_S, "the refusal")
        assert not server.poll(500)
    finally:
        context.destroy(0)
