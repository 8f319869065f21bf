"""A socket or a program that answers without end: whoever asked gives up with a reason, and keeps some MiB of it."""

import json
import socket
import struct
import subprocess
import sys
import threading

import pytest
from deadlines import ANSWER_S, END_S

PIECE = b"x" * 65536
GROWTH_BYTES = 160 << 20
"""What a client may need beyond what it began with: the limit of an answer, its copies, and modules that it loads."""
MOST_BYTES = 4 << 30
"""What a client without a limit gets of the machine's memory."""
OK = b"HTTP/1.1 200 OK\r\n"


def grpc_frame(kind, flags, payload, stream=1):
    return struct.pack(">HBBBI", len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def header_block(number):
    name = b"x%d" % number
    value = b"y" * 100
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def endless_headers():
    """Give header frames whose names never repeat."""
    number = 0
    while True:
        number += 1
        block = b"".join(header_block(number * 100 + place) for place in range(100))
        yield grpc_frame(1, 4, block)


def repeated(first, piece):
    yield first
    while True:
        yield piece


DOCKER = {
    "headers": lambda: repeated(OK, b"X-Filler: " + b"y" * 1000 + b"\r\n"),
    "one header": lambda: repeated(OK + b"X-Filler: ", PIECE),
    "body with a length": lambda: repeated(OK + b"Content-Length: 900000000000000\r\n\r\n", PIECE),
    "body without a length": lambda: repeated(OK + b"\r\n", PIECE),
    "one chunk": lambda: repeated(OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffff\r\n", PIECE),
    "chunks": lambda: repeated(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n"),
    "refusal": lambda: repeated(b"HTTP/1.1 500 No\r\n\r\n", PIECE),
    "line": lambda: repeated(OK + b"\r\n", PIECE),
}
DOCKER_PY = {name: DOCKER[name] for name in DOCKER if name not in ("line", "headers", "one header")}
DOCKER_PY["message"] = lambda: repeated(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n")
DOCKER_PY["refused message"] = DOCKER["refusal"]
DOCKER_PY["redirection"] = lambda: repeated(b"HTTP/1.1 301 No\r\nLocation: /v1.41/version\r\n\r\n", PIECE)
GRPC = {
    "data": lambda: repeated(grpc_frame(4, 0, b"", 0), grpc_frame(0, 0, b"z" * 16384)),
    "headers": endless_headers,
    "parts of headers": lambda: repeated(grpc_frame(1, 0, b"a" * 100), grpc_frame(9, 0, b"b" * 16384)),
}
REASONS = {
    ("docker", "headers"): "the head of the answer is longer than",
    ("docker", "one header"): "the head of the answer is longer than",
    ("docker", "line"): "a line of the engine's answer is longer than 1 MiB",
    ("docker-py", "message"): "a line of the engine's answer is longer than 1 MiB",
    ("grpc", "data"): "the service's reply is longer than 32 MiB",
    ("grpc", "headers"): "headers of more than",
    ("grpc", "parts of headers"): "headers of more than",
}
"""Of the others: the engine's answer is longer than 32 MiB."""

ANSWERS = {
    "docker": DOCKER,
    "docker-py": DOCKER_PY,
    "image": {"body without a length": DOCKER["body without a length"]},
    "grpc": GRPC,
}

CLIENT = f"""
import json, resource, sys
from bench_common.errors import InfrastructureError
from bench_master import worker_query
from bench_worker.engines.docker.client import bounded_client
from bench_worker.engines.oci.images import ImageUnavailable, docker_client
from docker.errors import DockerException
from google.protobuf.empty_pb2 import Empty
from bench_worker.engines.base import OperationFailed
from bench_worker.engines.docker.errors import docker_operation
from bench_worker.engines.docker.http import DockerHttp
from bench_worker.engines.grpc import CallSequence, GrpcChannel

def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

kind, name, path = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_AS, ({MOST_BYTES}, {MOST_BYTES}))
before = peak_bytes()
try:
    if kind == "grpc":
        CallSequence(GrpcChannel(path, "p"), {ANSWER_S}).do("S/M", Empty())
    elif kind == "worker":
        endless = "while True: print('x' * 65536)"
        worker_query.worker_command = lambda: [sys.executable, "-c", endless]
        worker_query.query_worker("--x", timeout_s={ANSWER_S})
    elif kind == "docker-py":
        client = bounded_client(base_url=f"unix://{{path}}", version="1.41", timeout={ANSWER_S})
        if name.endswith("message"):
            list(client.pull("x", tag="y", stream=True, decode=True))
        else:
            client.version()
    elif kind == "image":
        with docker_client("image x"):
            pass
    else:
        with docker_operation(DockerHttp(f"unix://{{path}}", "1.41"), {ANSWER_S}) as timed:
            if name == "line":
                with timed.stream("GET", "info") as answer:
                    answer.readline()
            else:
                timed.get("info")
    reason = "none"
except (OperationFailed, InfrastructureError, DockerException, ImageUnavailable) as error:
    reason = str(error)
print(json.dumps({{"reason": reason, "grew": peak_bytes() - before}}))
"""


class EndlessServer:
    """Answers whoever connects to a socket, without end."""

    def __init__(self, path, pieces):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._pieces = pieces
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self):
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        with connection:
            try:
                connection.recv(65536)
                for piece in self._pieces():
                    connection.sendall(piece)
            except OSError:
                return


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, answers in ANSWERS.items() for name in answers],
)
def test_an_answer_without_end_is_given_up(tmp_path, monkeypatch, kind, name):
    """Before its deadline, with the limit in the reason; the memory of the client stays within bounds."""
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    with EndlessServer("s", ANSWERS[kind][name]):
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, kind, name, str(tmp_path / "s")],
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert REASONS.get((kind, name), "the engine's answer is longer than 32 MiB") in told["reason"]
    assert told["grew"] < GROWTH_BYTES, f"{told['grew'] >> 20} MiB"


def test_a_worker_that_prints_without_end_is_ended():
    """A query of this machine is answered in some lines: the master kills what prints more, and says so."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, "worker", "", ""], capture_output=True, text=True, timeout=END_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["reason"] == "bench-worker --x printed more than 32 MiB: ended"
    assert told["grew"] < GROWTH_BYTES, f"{told['grew'] >> 20} MiB"
