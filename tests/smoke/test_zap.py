"""CURVE and ZAP on real sockets over loopback TCP: who gets in, and that nothing else does."""

import time
from contextlib import ExitStack

import gevent
import pytest
import zmq
from deadlines import ANSWER_S, wait_until

from bench_common.curve import ZAP_ENDPOINT, RateLimitedLog, ZapHandler, ZapVerdict, secure_client, secure_server
from bench_common.errors import InfrastructureError
from bench_common.keys import CONTROL_DOMAIN, AllowList, KeyPair, add_worker, lane_domain, revoke_worker

KEPT_OUT_FOR_S = 0.4
MASTER, BLADE, OTHER, STRANGER = (KeyPair.generate() for _ in range(4))


@pytest.fixture
def sockets():
    """Return a maker of plain sockets, by type, of one context; all are closed in the end."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())

        def make(kind):
            socket = stack.enter_context(context.socket(kind))
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.HANDSHAKE_IVL, 2000)
            return socket

        make.context = context
        yield make


@pytest.fixture
def allow_file(tmp_path):
    path = tmp_path / "authorized_workers"
    add_worker(path, BLADE.public, "blade")
    add_worker(path, OTHER.public, "other")
    return path


@pytest.fixture
def errors():
    return []


@pytest.fixture
def handler(sockets, allow_file, errors):
    with ZapHandler(sockets.context, AllowList(allow_file).admit, rejection_log=RateLimitedLog(errors.append)) as zap:
        yield zap


def bound(socket):
    return f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


def secured(sockets, kind=zmq.PULL, domain=CONTROL_DOMAIN, keys=MASTER):
    server = sockets(kind)
    secure_server(server, keys, domain)
    return server, bound(server)


def received(socket, within_s):
    """Return the frames of the next message, or None if none comes in time; lets the event loop run."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            return socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            gevent.sleep(0.002)
    return None


def knock(sockets, address, keys=None, server_public=MASTER.public):
    """Connect as `keys` (None: in plain text) and send one message that waits until the door opens."""
    client = sockets(zmq.PUSH)
    if keys is not None:
        secure_client(client, keys, server_public)
    client.connect(address)
    client.send(b"let me in", zmq.NOBLOCK)
    return client


def test_known_key_enters_under_its_name(sockets, handler):
    """A key on the list gets in, and every frame that it sends carries its owner's name."""
    server, address = secured(sockets)
    knock(sockets, address, BLADE)
    frames = received(server, ANSWER_S)
    assert frames is not None
    assert frames[0].bytes == b"let me in"
    assert frames[0].get("User-Id") == "blade"
    assert handler.counts[ZapVerdict.ADMITTED] == 1


def test_name_cannot_be_claimed(sockets, handler):
    """Two keys on one socket are told apart by key, whatever their messages say."""
    server, address = secured(sockets)
    clients = [knock(sockets, address, keys) for keys in (BLADE, OTHER)]
    names = {received(server, ANSWER_S)[0].get("User-Id") for _ in clients}
    assert names == {"blade", "other"}


@pytest.mark.parametrize(
    ("keys", "server_public"),
    [
        pytest.param(STRANGER, MASTER.public, id="unknown-key"),
        pytest.param(None, MASTER.public, id="plain-text"),
        pytest.param(BLADE, STRANGER.public, id="wrong-server-key"),
    ],
)
def test_unknown_keys_are_refused(sockets, handler, keys, server_public):
    """Neither an unknown key, nor plain text, nor a known key with the wrong server key gets a message through."""
    server, address = secured(sockets)
    knock(sockets, address, keys, server_public)
    assert received(server, KEPT_OUT_FOR_S) is None
    knock(sockets, address, BLADE)
    frames = received(server, ANSWER_S)
    assert frames is not None
    assert frames[0].get("User-Id") == "blade"


def test_stranger_is_named_in_the_log(sockets, handler, errors):
    """The complaint about an unknown key says which key, from where and to what, so that it can be added."""
    server, address = secured(sockets)
    knock(sockets, address, STRANGER)
    wait_until(lambda: errors, what="the complaint", sleep=gevent.sleep)
    assert received(server, KEPT_OUT_FOR_S) is None
    assert handler.counts[ZapVerdict.REFUSED] >= 1
    assert STRANGER.public.decode() in errors[0]
    assert "127.0.0.1" in errors[0]
    assert CONTROL_DOMAIN in errors[0]


def test_client_of_a_plain_server_sends_nothing(sockets, handler):
    """A worker with keys does not talk to a server without: an impostor on the port hears nothing."""
    server = sockets(zmq.PULL)
    knock(sockets, bound(server), BLADE)
    assert received(server, KEPT_OUT_FOR_S) is None


def test_revoked_key_is_shut_out_without_restart(sockets, handler, allow_file):
    """After its line is deleted, a key that was admitted before is refused at its next connection."""
    server, address = secured(sockets)
    first = knock(sockets, address, BLADE)
    assert received(server, ANSWER_S) is not None
    first.close()
    revoke_worker(allow_file, "blade")
    knock(sockets, address, BLADE)
    assert received(server, KEPT_OUT_FOR_S) is None
    knock(sockets, address, OTHER)
    assert received(server, ANSWER_S) is not None


def test_lane_opens_for_its_worker_only(sockets, handler):
    """The lane of one worker hands nothing to another worker, though both are on the list."""
    lane, address = secured(sockets, zmq.PUSH, lane_domain("blade"))
    thief = sockets(zmq.PULL)
    secure_client(thief, OTHER, MASTER.public)
    thief.connect(address)
    gevent.sleep(KEPT_OUT_FOR_S)
    with pytest.raises(zmq.Again):
        lane.send(b"job", zmq.NOBLOCK)
    owner = sockets(zmq.PULL)
    secure_client(owner, BLADE, MASTER.public)
    owner.connect(address)
    deadline = time.monotonic() + ANSWER_S
    while not lane.getsockopt(zmq.EVENTS) & zmq.POLLOUT and time.monotonic() < deadline:
        gevent.sleep(0.002)
    lane.send(b"job", zmq.NOBLOCK)
    assert received(owner, ANSWER_S)[0].bytes == b"job"
    assert received(thief, 0.05) is None


def test_handler_survives_garbage(sockets, handler):
    """Requests of any shape are answered 400, one reply each, and the next good key still gets in."""
    talker = sockets(zmq.DEALER)
    talker.connect(ZAP_ENDPOINT)
    shapes = [
        [b""],
        [b"1.0"],
        [b"9.9", b"7", b"d", b"a", b"i", b"CURVE", bytes(32)],
        [b"1.0", b"7", b"\xff\xfe", b"\xff", b"", b"CURVE", b"short"],
        [b"1.0", b"7", b"d", b"a", b"i", b"CURVE"],
        [b"1.0", b"7", b"d", b"a", b"i", b"CURVE", bytes(32), b"more"],
        [b"1.0", b"7", b"d", b"a", b"i", b"PLAIN", b"user", b"word"],
        [bytes(100_000)] * 20,
    ]
    for shape in shapes:
        talker.send_multipart([b"", *shape], zmq.NOBLOCK)
        reply = received(talker, ANSWER_S)
        assert reply is not None, shape[:3]
        assert reply[3].bytes == b"400"
    talker.send(b"no envelope at all", zmq.NOBLOCK)
    server, address = secured(sockets)
    knock(sockets, address, BLADE)
    assert received(server, ANSWER_S) is not None


def test_raw_bytes_on_the_port_do_no_harm(sockets, handler):
    """A peer that speaks no ZMTP at all is dropped, and the door still works."""
    import socket as plain

    server, address = secured(sockets)
    with plain.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=ANSWER_S) as peer:
        peer.sendall(bytes(range(256)) * 64)
        assert received(server, 0.1) is None
    knock(sockets, address, BLADE)
    assert received(server, ANSWER_S) is not None


def test_broken_allow_function_refuses(sockets, errors):
    """An `allow` that raises keeps everybody out, is reported, and the handler lives on."""
    calls = []

    def allow(domain, key):
        calls.append(key)
        if len(calls) == 1:
            raise OSError("disk on fire")
        return "blade"

    with ZapHandler(sockets.context, allow, rejection_log=RateLimitedLog(errors.append)) as zap:
        server, address = secured(sockets)
        first = knock(sockets, address, BLADE)
        deadline = time.monotonic() + ANSWER_S
        while not zap.counts[ZapVerdict.BROKEN] and time.monotonic() < deadline:
            gevent.sleep(0.002)
        first.close()
        assert zap.counts[ZapVerdict.BROKEN] == 1
        assert "disk on fire" in errors[0]
        knock(sockets, address, BLADE)
        assert received(server, ANSWER_S) is not None


def test_no_handler_no_secured_socket(sockets):
    """Without a ZAP handler a socket is not secured but refused: CURVE alone admits every key."""
    with pytest.raises(InfrastructureError, match="ZapHandler"):
        secure_server(sockets(zmq.PULL), MASTER, CONTROL_DOMAIN)


def test_second_handler_is_refused(sockets, handler, allow_file):
    """A context has one doorkeeper; a second one is an error, not a silent rival."""
    with pytest.raises(InfrastructureError, match="already"):
        ZapHandler(sockets.context, AllowList(allow_file).admit).start()


def test_stopped_handler_leaves_the_door_shut(sockets, allow_file):
    """Once the handler has stopped, not even a known key gets in; stopping twice is fine."""
    zap = ZapHandler(sockets.context, AllowList(allow_file).admit)
    zap.start()
    server, address = secured(sockets)
    zap.stop()
    zap.stop()
    knock(sockets, address, BLADE)
    assert received(server, KEPT_OUT_FOR_S) is None
