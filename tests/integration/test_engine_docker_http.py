"""The stamps and deadlines of requests to a Docker Engine, against a server that notes when it answered."""

import json
import socket
import tempfile
import threading
import time

import pytest
from busybox_image import run_patched
from deadlines import ANSWER_S

from bench_common.errors import EngineUnavailable
from bench_worker.engines.base import OperationFailed
from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker.errors import docker_operation

LATENCY_S = 0.05


class Server:
    """A Unix socket that answers requests as it was told, and keeps its own stamps of each."""

    def __init__(self, path):
        self.answers = {"/_ping": b"OK", "/version": b'{"ApiVersion": "1.41"}'}
        self.received_ns = []
        self.answered_ns = []
        self.connections = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            while request := lines.readline():
                length = 0
                while line := lines.readline().strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                lines.read(length)
                self.received_ns.append(time.monotonic_ns())
                answer = self.answers[request.split()[1].decode().removeprefix("/v1.41")]
                try:
                    if callable(answer):
                        answer(connection)
                        return
                    time.sleep(LATENCY_S)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
                    self.answered_ns.append(time.monotonic_ns())
                    connection.sendall(answer)
                except OSError:
                    return

    def close(self):
        self._listener.close()


@pytest.fixture
def server(monkeypatch):
    # A socket's path is limited to 107 bytes, which pytest's own directories may well exceed.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        served = Server(f"{directory}/engine.sock")
        monkeypatch.setenv("DOCKER_HOST", f"unix://{directory}/engine.sock")
        yield served
        served.close()


@pytest.fixture
def engine(server):
    connected = docker_http.connect(5.0)
    yield connected
    connected.close()


def test_the_stamps_enclose_the_servers_own_and_leave_our_work_out(server, engine):
    """The start is before the server receives, the end after it replied; building and parsing are outside."""
    server.answers["/slow"] = json.dumps({"x": ["y"] * 200_000}).encode()
    server.received_ns.clear()
    server.answered_ns.clear()
    with docker_operation(engine, 5.0) as timed:
        time.sleep(0.1)
        timed.get("slow")
        time.sleep(0.1)
    assert timed.begun_ns + 0.1e9 <= timed.start_ns <= server.received_ns[0] <= server.answered_ns[0] <= timed.end_ns
    assert timed.end_ns <= time.monotonic_ns() - 0.1e9


def test_several_requests_are_one_operation(server, engine):
    """The operation lasts from the first byte of the first to the last byte of the last."""
    server.answers["/a"] = server.answers["/b"] = b"{}"
    server.received_ns.clear()
    with docker_operation(engine, 5.0) as timed:
        timed.get("a")
        timed.get("b")
    assert timed.start_ns <= server.received_ns[0]
    assert timed.end_ns >= server.answered_ns[-1]
    assert timed.end_ns - timed.start_ns >= 2 * LATENCY_S * 1e9


def test_our_own_time_between_two_requests_can_be_left_out(server, engine):
    """Of an operation that pauses there is left what its requests took; its end stays where it was."""
    server.answers["/a"] = server.answers["/b"] = b"{}"
    begun_ns = time.monotonic_ns()
    with docker_operation(engine, 5.0) as timed:
        timed.get("a")
        timed.exclude_gap()
        time.sleep(20 * LATENCY_S)
        timed.get("b")
    rest_ns = time.monotonic_ns() - begun_ns - 20 * LATENCY_S * 1e9
    assert timed.end_ns >= server.answered_ns[-1]
    assert 2 * LATENCY_S * 1e9 <= timed.end_ns - timed.start_ns <= rest_ns


def test_a_deadline_counts_from_the_request_and_not_from_when_the_event_loop_last_ran(server, engine):
    """The loop of a thread that does other things has an old idea of the time."""
    server.answers["/a"] = b"{}"
    for timeout_s, pause_s in ((5.0, 3), (2.5, 0)):
        with docker_operation(engine, timeout_s) as timed:
            assert timed.get("a") == {}
        time.sleep(pause_s)


def test_connections_are_used_again(server, engine):
    """Whatever the path, an operation does not pay for a connection of its own."""
    server.answers["/a"] = server.answers["/b"] = b"{}"
    before = server.connections
    for path in ("a", "b", "a", "b"):
        with docker_operation(engine, 5.0) as timed:
            timed.get(path)
    assert server.connections - before <= 1


def refusal(connection):
    connection.sendall(b'HTTP/1.1 409 Conflict\r\nContent-Length: 25\r\n\r\n{"message": "is paused"} ')


def test_a_stream_is_read_while_it_comes_in(server, engine):
    """It is the operation's to its last byte, bounded where that is read late; its connection serves no other."""
    ended_ns = []

    def piece_by_piece(connection):
        """An answer of no length that was told, as that of a command's output is: its end is the connection's."""
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\none ")
        time.sleep(4 * LATENCY_S)
        connection.sendall(b"two")
        connection.shutdown(socket.SHUT_WR)
        ended_ns.append(time.monotonic_ns())

    server.answers["/exec/x/start"], server.answers["/exec/x/json"] = piece_by_piece, b"7"
    with docker_operation(engine, 5.0) as timed:
        with timed.stream("POST", "exec", "x", "start", body={"Detach": False}) as answer:
            assert answer.read(4) == b"one "
            time.sleep(8 * LATENCY_S)
            assert answer.read(4) == b"two"
        from_ns, last_ns = timed.end_ns - timed.end_uncertainty_ns, timed.end_ns
        connections = server.connections
        assert timed.get("exec", "x", "json") == 7
    assert server.connections == connections + 1
    assert from_ns <= ended_ns[0]
    assert last_ns - timed.start_ns >= 8 * LATENCY_S * 1e9


@pytest.mark.parametrize(
    ("answer", "kind", "timeout_s"),
    [(refusal, "conflict", ANSWER_S), (lambda connection: connection.recv(1), "timeout", 0.3)],
    ids=["refused", "silent"],
)
def test_a_stream_that_does_not_come_says_why(server, engine, answer, kind, timeout_s):
    """The engine's own words, or that there were none in time."""
    server.answers["/exec/x/start"] = answer
    with (
        pytest.raises(OperationFailed) as caught,
        docker_operation(engine, timeout_s) as timed,
        timed.stream("POST", "exec", "x", "start", body={}),
    ):
        pytest.fail("there is no such stream")
    assert caught.value.kind == kind


def silent(connection):
    connection.recv(1)


def trickle(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


@pytest.mark.parametrize("answer", [silent, trickle])
def test_the_deadline_is_of_the_whole_operation(server, engine, answer):
    """Neither silence nor a byte now and then keeps an operation going beyond its time."""
    server.answers["/late"] = answer
    begun = time.monotonic()
    with pytest.raises(OperationFailed) as caught, docker_operation(engine, 0.3) as timed:
        timed.get("late")
    assert caught.value.kind == "timeout"
    assert time.monotonic() - begun >= 0.3


def hang_up(connection):
    connection.close()


def babble(connection):
    connection.sendall(b"\x00\xff not http at all\r\n\r\n")


@pytest.mark.parametrize("answer", [hang_up, babble])
def test_an_engine_that_breaks_off_is_unreachable(server, engine, answer):
    """A daemon that dies in the middle of an answer, and one that is none, are failures of their own kind."""
    server.answers["/broken"] = answer
    with pytest.raises(OperationFailed) as caught, docker_operation(engine, 5.0) as timed:
        timed.get("broken")
    assert caught.value.kind == "unreachable"
    assert "engine.sock" in str(caught.value)


def test_greetings_of_another_service_are_no_engine(server):
    """A server that speaks HTTP and is no Docker Engine is refused as such."""
    server.answers["/version"] = b'{"hello": "world"}'
    with pytest.raises(EngineUnavailable, match="not a Docker Engine"):
        docker_http.connect(5.0)


@pytest.mark.parametrize("address", ["ssh://somewhere", "npipe:////./pipe/docker_engine"])
def test_a_tunnel_is_never_on_a_measured_path(monkeypatch, address):
    """The time of an SSH connection is none of the engine's."""
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(EngineUnavailable, match="run bench-worker on that host"):
        docker_http.connect(1.0)


@pytest.mark.parametrize("address", ["unix:/run/docker.sock", "/run/docker.sock", "fd://", "docker"])
def test_an_address_of_no_known_kind_is_refused(monkeypatch, address):
    """Rather than reached by a way that takes no stamps."""
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(EngineUnavailable, match="expected unix:///PATH or tcp://HOST:PORT"):
        docker_http.connect(1.0)


def test_an_engine_over_tcp_is_stamped_too(monkeypatch):
    """DOCKER_HOST=tcp://... takes the same stamps and deadlines; its greeting has the version."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        answer = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nConnection: close\r\nContent-Length: 2\r\n\r\nOK"
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.getsockname()[1]}")
    engine = docker_http.connect(5.0)
    try:
        with docker_operation(engine, 5.0) as timed:
            timed.read("GET", "x")
        assert 0 < timed.sent_ns < timed.received_ns
    finally:
        engine.close()
        listener.close()
        thread.join(ANSWER_S)


@pytest.mark.slow
@pytest.mark.unpatched
def test_this_holds_in_a_patched_process(tmp_path):
    """The worker patches the standard library: the same tests pass there."""
    done = run_patched(__file__, tmp_path, "not patched")
    assert done.returncode == 0, done.stdout + done.stderr
