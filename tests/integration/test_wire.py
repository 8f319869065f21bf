"""The HTTP client of stores against the stub store and servers that send any bytes: faults, limits, stamps."""

import array
import contextlib
import fcntl
import socket
import termios
import time
from time import monotonic_ns

import gevent
import pytest
from attention import undisturbed
from busybox_image import skip_or_fail
from deadlines import ANSWER_S, FACTOR
from gevent.server import StreamServer
from stub_stores import ACCOUNT, TOKEN, start_stub

from bench_common.errors import UsageError
from bench_features.objects.worker.wire import KEPT_BYTES, KINDS, Request, Wire, WireError

STALL_S = 0.3 * FACTOR
"""How long a request may take whose answer never ends: long enough for the part that comes."""
TOKEN_LINE = f"X-Auth-Token: {TOKEN}\r\n".encode()


@pytest.fixture(scope="module")
def stub():
    with start_stub() as running:
        yield running


@pytest.fixture
def connect():
    """Return what opens a connection to a URL; all of them are closed at the end."""
    wires = []

    def connection(url, **options):
        wires.append(Wire(url, **options))
        return wires[-1].connection()

    yield connection
    for wire in wires:
        wire.close()


def ask(connection, target, method="GET", *, seconds=ANSWER_S, **more):
    return connection.exchange(Request(method, target, **more), monotonic_ns() + int(seconds * 1e9))


def failure(connection, target, method="GET", **more):
    """Return the error of an exchange that has to fail."""
    before_ns = monotonic_ns()
    with pytest.raises(WireError) as caught:
        ask(connection, target, method, **more)
    error = caught.value
    assert before_ns <= error.start_ns <= error.end_ns <= monotonic_ns()
    assert error.kind in KINDS
    assert not connection.is_open
    return error


@contextlib.contextmanager
def server_of(*connections, seen=None):
    """Serve connections one after the other: each a list with, for each request, the pieces of what is answered."""
    waiting = list(connections)

    def serve(sock, _):
        data = b""
        for pieces in waiting.pop(0) if waiting else []:
            while b"\r\n\r\n" not in data:
                more = sock.recv(65536)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            if seen is not None:
                seen.append(head)
            for piece in pieces:
                if callable(piece):
                    piece(sock)
                else:
                    sock.sendall(piece)
                    gevent.sleep(0.002)

    server = StreamServer(("127.0.0.1", 0), serve)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.stop(1)


def test_an_object_goes_there_and_comes_back(stub, connect):
    """With one connection for everything; a small body is sent with its head, a large one from where it lies."""
    connection = connect(stub.url)
    before = stub.counts()
    place = f"{ACCOUNT}/there-and-back"
    assert ask(connection, place, "PUT", headers=TOKEN_LINE).status == 201
    for size in (0, 1, 1000, 32 * 1024, 3_000_001):
        content = bytes(range(251)) * (size // 251 + 1)
        pieces = [memoryview(content)[at : min(at + 1_000_000, size)] for at in range(0, size, 1_000_000)]
        put = ask(connection, f"{place}/{size}", "PUT", headers=TOKEN_LINE, body=pieces)
        assert (put.status, put.received, put.body) == (201, 0, b"")
        got = []
        read = ask(connection, f"{place}/{size}", headers=TOKEN_LINE, sink=lambda piece: got.append(bytes(piece)))  # noqa: B023
        assert (read.status, read.received) == (200, size)
        assert b"".join(got) == content[:size]
        assert max(map(len, got), default=0) <= 64 * 1024
        head = ask(connection, f"{place}/{size}", "HEAD", headers=TOKEN_LINE)
        assert (head.status, head.headers[b"content-length"]) == (200, str(size).encode())
        assert (head.field(b"Content-Length"), head.field(b"etag")) == (str(size).encode(), b"")
        part = ask(connection, f"{place}/{size}", headers=TOKEN_LINE + b"Range: bytes=0-9\r\n")
        assert part.body == content[: min(size, 10)]
        assert ask(connection, f"{place}/{size}", "DELETE", headers=TOKEN_LINE).status == 204
    assert ask(connection, place, "DELETE", headers=TOKEN_LINE).status == 204
    after = stub.counts()
    assert after["requests"] - before["requests"] == 5 * 5 + 2
    assert after["connections"] - before["connections"] == 2, "one for us, one for asking"


def test_what_is_refused_does_not_reach_the_sink(stub, connect):
    """The body of a failure is no content of an object: it is kept, up to 1 MiB, with its answer."""
    got = []
    answer = ask(connect(stub.url), "/fixed/10?fault=503", sink=got.append)
    assert (answer.status, answer.body, got) == (503, b"fault", [])
    answer = ask(connect(stub.url), "/fixed/3000000")
    assert (answer.received, len(answer.body)) == (3_000_000, KEPT_BYTES)


FAULTS = [
    ("reset", "reset", False),
    ("close", "closed", False),
    ("reset-body", "reset", True),
    ("half", "truncated", True),
    ("stall", "timeout", False),
    ("stall-body", "timeout", True),
]


@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
@pytest.mark.parametrize(("fault", "kind", "begun"), FAULTS, ids=[each[0] for each in FAULTS])
def test_a_fault_has_a_kind(stub, connect, fault, kind, begun, used):
    """Also on a connection that was used before: a server that got the request and failed is told of, once."""

    def fail():
        connection = connect(stub.url)
        if used:
            ask(connection, "/fixed/10")
        before = stub.counts()["GET"]
        error = failure(connection, f"/fixed/20000?fault={fault}", seconds=STALL_S if kind == "timeout" else ANSWER_S)
        assert (error.kind, error.answer_begun) == (kind, begun)
        assert f"127.0.0.1:{stub.port}" in error.message
        if begun:
            assert "10000" in error.message
        if kind == "timeout":
            assert STALL_S <= (error.end_ns - error.start_ns) / 1e9 < ANSWER_S
        assert stub.counts()["GET"] - before == 1
        assert ask(connection, "/fixed/10").status == 200

    # What comes of an answer that never ends has to come in the time that it gets.
    undisturbed(fail, limit_s=STALL_S / 10)


def test_an_answer_that_dribbles_ends_at_the_deadline(stub, connect):
    """A deadline is for the whole answer; one that comes byte by byte in time is an answer."""
    connection = connect(stub.url)

    def fail():
        error = failure(connection, "/fixed/100000?fault=dribble", seconds=STALL_S)
        assert (error.kind, error.answer_begun) == ("timeout", True)

    undisturbed(fail, limit_s=STALL_S / 10)
    answer = ask(connection, "/fixed/100?fault=dribble")
    assert (answer.status, answer.received) == (200, 100)
    assert answer.first_ns < answer.last_ns


def test_a_server_may_close_an_idle_connection(stub, connect):
    """No failure and no retry is counted; the answer says that the request went out again, and went out once."""
    connection = connect(stub.url)
    for method in ("GET", "PUT"):
        ask(connection, "/fixed/10?fault=idle")
        before = stub.counts()
        answer = ask(connection, "/fixed/100000", method, body=[b"x" * 100_000] if method == "PUT" else ())
        assert (answer.status // 100, answer.retried_idle, answer.connect_ns > 0) == (2, True, True)
        assert stub.counts()[method] - before[method] == 1


def test_a_server_that_says_goodbye_is_believed(stub, connect):
    """After `Connection: close` the next exchange connects, and nothing was repeated."""
    connection = connect(stub.url)
    assert ask(connection, "/fixed/10?fault=goodbye").status == 200
    assert not connection.is_open
    answer = ask(connection, "/fixed/10")
    assert (answer.retried_idle, answer.connect_ns > 0) == (False, True)
    assert ask(connection, "/fixed/10").connect_ns == 0


def test_an_early_refusal_of_a_large_body_is_an_answer(stub, connect):
    """The server has not read the body and closes the connection, but it did say why."""
    connection = connect(stub.url)
    body = [memoryview(bytes(1 << 20))] * 64
    answer = ask(connection, "/fixed/10?fault=early", "PUT", body=body)
    assert answer.status == 413
    assert not connection.is_open


def test_no_request_follows_a_body_that_did_not_go_out_wholly(connect):
    """The server, which keeps the connection, would take it for the rest of the body."""
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    seen = []
    with server_of([[refusal], [good]], [[good]], seen=seen) as url:
        connection = connect(url)
        assert ask(connection, "/x", "PUT", body=[memoryview(bytes(1 << 20))] * 64).status == 403
        assert ask(connection, "/y").body == b"ok"
    assert seen[-1].startswith(b"GET /y HTTP/1.1\r\n")


def test_the_deadline_ends_a_send_that_nobody_reads(connect):
    """Sending counts as well."""
    listener = socket.create_server(("127.0.0.1", 0))
    connection = connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
    error = failure(connection, "/x", "PUT", body=[memoryview(bytes(1 << 20))] * 64, seconds=0.3)
    listener.close()
    assert (error.kind, error.answer_begun) == ("timeout", False)


def test_a_deadline_ends_a_connection_that_does_not_come_about(connect):
    """A server whose queue is full drops what would open another."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    others = [socket.socket() for _ in range(4)]
    for other in others:
        other.setblocking(False)
        other.connect_ex(listener.getsockname())
    error = failure(connect(f"http://127.0.0.1:{listener.getsockname()[1]}"), "/x", seconds=0.3)
    for one in (listener, *others):
        one.close()
    assert error.kind == "timeout"


def test_nobody_there(connect):
    """A port without a server, a name without an address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert failure(connect(f"http://127.0.0.1:{port}"), "/x").kind == "refused"
    error = failure(connect("http://nobody.invalid:80"), "/x")
    assert error.kind == "dns"
    assert "nobody.invalid" in error.message


def test_ipv6(stub, connect):
    """An address in brackets, and so in the Host header; localhost is whichever of the two answers."""
    connection = connect(f"http://[::1]:{stub.port}")
    try:
        assert ask(connection, "/fixed/10").received == 10
    except WireError as error:
        skip_or_fail(f"no IPv6 here: {error}")
    assert Wire(f"http://[::1]:{stub.port}").authority == f"[::1]:{stub.port}"
    assert Wire("http://store:80").authority == "store"
    assert ask(connect(f"http://localhost:{stub.port}"), "/fixed/10").received == 10


@pytest.mark.parametrize(
    "url", ["store:8080", "ftp://store", "http://", "http://user:secret@store", "http://store:port", "http://[::1"]
)
def test_a_url_that_is_none_is_refused(url):
    """The message says what was expected, and never a password."""
    with pytest.raises(UsageError) as caught:
        Wire(url)
    assert "secret" not in str(caught.value)


def test_a_target_is_quoted():
    """A name with a line end in it must not become a request of its own."""
    with pytest.raises(ValueError, match="quoted"):
        ask(Wire("http://127.0.0.1:9").connection(), "/a\r\nX: y")


OK = b"HTTP/1.1 200 OK\r\n"
ODD = {
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n", b"3;x=y\r\nefg\r\n0\r\nT: x\r\n\r\n"),
    "chunks, cut anywhere": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n0",
        b"7\r",
        b"\nabcdef",
        b"g\r\n0\r\n\r",
        b"\n",
    ),
    "until the end": (OK + b"\r\nabc", b"defg", lambda sock: sock.shutdown(socket.SHUT_WR)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\nabcdefg",),
    "LF alone": (b"HTTP/1.1 200 OK\nContent-Length: 7\n\nabcdefg",),
    "in small pieces": (b"HTTP/1.1 200 OK\r\nConte", b"nt-Length: 7\r", b"\n\r", b"\nabc", b"defg"),
    "odd spelling": (OK + b"CONTENT-length :   7 \r\nX-Folded: a\r\n  b\r\n\r\nabcdefg",),
    "interim answers": (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 102 P\r\n\r\n" + OK + b"Content-Length: 7\r\n\r\nabcdefg",
    ),
    "a long head": (OK + b"X-Long: " + b"x" * 30_000 + b"\r\nContent-Length: 7\r\n\r\nabcdefg",),
}


@pytest.mark.parametrize("pieces", ODD.values(), ids=ODD)
def test_odd_answers_are_understood(connect, pieces):
    """The content is the same whichever way its length is told, and the connection is used as long as it can be."""
    more = OK + b"Content-Length: 2\r\n\r\nok"
    with server_of([pieces, [more]], [[more]]) as url:
        connection, got = connect(url), []
        answer = ask(connection, "/x", sink=lambda piece: got.append(bytes(piece)))
        assert (answer.status, b"".join(got), answer.received) == (200, b"abcdefg", 7)
        assert answer.start_ns <= answer.first_ns <= answer.last_ns
        assert ask(connection, "/y").body == b"ok"


BROKEN = {
    "no HTTP": b"220 ftp ready\r\n\r\n",
    "a greeting, and nothing more": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a head without an end": OK + b"X: " + b"x" * 70_000,
    "two lengths": OK + b"Content-Length: 7\r\nContent-Length: 8\r\n\r\nabcdefgh",
    "no chunk": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
    "more than its length": OK + b"Content-Length: 2\r\n\r\nabcdefg",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_what_is_no_answer_is_refused(connect, answer):
    """It is the kind `protocol`, and its connection is of no more use."""
    with server_of([[answer]]) as url:
        error = failure(connect(url), "/x")
    assert error.kind == "protocol"


def test_a_body_that_never_was_is_not_waited_for(connect):
    """204, 304 and the answer to HEAD end with their heads, whatever length they tell of."""
    empty = [b"HTTP/1.1 %d X\r\nContent-Length: 10\r\n\r\n" % status for status in (204, 304, 200)]
    with server_of([[each] for each in empty]) as url:
        connection = connect(url)
        assert ask(connection, "/x", "DELETE").status == 204
        assert ask(connection, "/x").status == 304
        assert ask(connection, "/x", "HEAD").received == 0
        assert connection.is_open


def test_a_farewell_is_not_taken_for_an_answer(connect):
    """Some servers send 408 to an idle connection before they close it."""
    late = b"HTTP/1.1 408 Request Time-out\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    good = OK + b"Content-Length: 2\r\n\r\nok"
    gone = gevent.event.Event()

    def farewell(sock):
        sock.sendall(late)
        sock.close()
        gone.set()

    with server_of([[good, farewell]], [[good]]) as url:
        connection = connect(url)
        assert ask(connection, "/x").status == 200
        assert gone.wait(ANSWER_S)
        answer = ask(connection, "/x")
        assert (answer.status, answer.retried_idle) == (200, True)


def test_the_request_that_goes_out(connect):
    """Host, the given lines, and a length exactly where there is, or has to be, a body."""
    seen, good = [], [OK + b"Content-Length: 0\r\n\r\n"]
    with server_of([good] * 3, seen=seen) as url:
        connection = connect(url)
        ask(connection, "/a?b=c", headers=b"X-Y: z\r\n")
        ask(connection, "/a", "PUT")
        ask(connection, "/a", "DELETE")
    host = url.removeprefix("http://").encode()
    assert seen[0] == b"GET /a?b=c HTTP/1.1\r\nHost: " + host + b"\r\nX-Y: z"
    assert seen[1] == b"PUT /a HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 0"
    assert seen[2] == b"DELETE /a HTTP/1.1\r\nHost: " + host


def test_a_greenlet_that_is_killed_leaves_no_answer_behind(stub, connect):
    """The next exchange must not read what the last one asked for."""
    connection = connect(stub.url)
    ask(connection, "/fixed/5")
    running = gevent.spawn(ask, connection, "/fixed/5?first_us=2000000")
    gevent.sleep(0.01)
    running.kill()
    assert not connection.is_open
    assert ask(connection, "/fixed/7").received == 7


def test_a_connection_is_for_one_at_a_time(stub, connect):
    """Two answers would be mixed."""
    connection = connect(stub.url)
    running = gevent.spawn(ask, connection, "/fixed/5?first_us=100000")
    gevent.sleep(0)
    with pytest.raises(RuntimeError, match="one exchange"):
        ask(connection, "/fixed/5")
    assert running.get(timeout=ANSWER_S).received == 5


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


HALF = 2048
"""Of the body of an object of 4,096 bytes; what comes with either half is less."""


def hold_loop(connection):
    """Keep the loop busy until both halves of an answer lie in the socket, and for a moment; say when each did."""
    deadline = time.monotonic() + ANSWER_S
    seen = []
    for size in (HALF, 2 * HALF):
        while waiting_bytes(connection) < size:
            assert time.monotonic() < deadline, "the answer did not come, or before the loop was busy"
        seen.append(monotonic_ns())
    busy(0.005)
    return seen


def waiting_bytes(connection):
    count = array.array("i", [0])
    fcntl.ioctl(connection._tcp._sock.fileno(), termios.FIONREAD, count)
    return count[0]


def assert_stamps_hold(answer, seen):
    """Both stamps lie between the sending and the moment at which the bytes were seen, before the loop read them."""
    sent_ns, last_ns = int(answer.headers[b"x-sent-ns"]), int(answer.body[-20:])
    first_seen_ns, last_seen_ns = seen
    assert answer.start_ns < sent_ns < last_ns
    assert sent_ns <= answer.first_ns
    assert answer.first_ns - answer.first_uncertainty_ns <= first_seen_ns
    assert last_ns <= answer.last_ns
    assert answer.last_ns - answer.last_uncertainty_ns <= last_seen_ns, "that is when the loop read it"


def test_stamps_are_the_kernels(stub, connect):
    """While the loop is busy an answer comes in two parts; both are stamped when they came."""

    def answer_while_busy():
        connection = connect(stub.url)
        ask(connection, "/fixed/5")
        running = gevent.spawn(ask, connection, "/fixed/4096?first_us=100000&last_us=20000", seconds=ANSWER_S)
        gevent.sleep(0)  # it sends its request
        assert waiting_bytes(connection) == 0
        seen = hold_loop(connection)
        assert_stamps_hold(running.get(timeout=ANSWER_S), seen)

    undisturbed(answer_while_busy)


def test_a_first_byte_whose_segment_was_merged_is_not_said_to_be_sure(connect):
    """The kernel merged it with later ones, up to a number: of the two stamps of the answer neither is its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        connection.connect(monotonic_ns() + int(ANSWER_S * 1e9))
        server, _ = listener.accept()
        with server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pieces = [b"x" * 100] * 60
            head = OK + b"X-Long: " + b"x" * 100
            running = gevent.spawn(ask, connection, "/x")
            gevent.sleep(0)  # it asks, and from now on nobody waits for the answer but the kernel
            server.recv(65536)
            server.sendall(head)
            first_ns = monotonic_ns()
            busy(0.002)
            for piece in (b"\r\nContent-Length: %d\r\n\r\n" % (100 * len(pieces)), *pieces):
                server.sendall(piece)
            answer = running.get(timeout=ANSWER_S)
    assert answer.received == 100 * len(pieces)
    assert answer.first_ns < answer.last_ns
    assert answer.first_ns - answer.first_uncertainty_ns <= first_ns
