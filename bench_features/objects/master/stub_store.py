"""An object store in memory that answers at once, in Swift's protocol and in S3's: what it takes is the harness.

It is for jobs that create, read and delete small objects, and checks neither signatures nor tokens. It runs as a
process of its own, prints its port, and ends when its standard input does.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from bench_common.errors import InfrastructureError

AUTH_PATH: Final = "/auth/v1.0"
ACCOUNT: Final = "/v1/AUTH_stub"
NO_BUCKETS: Final = b"<ListAllMyBucketsResult><Buckets></Buckets></ListAllMyBucketsResult>"
NO_KEYS: Final = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
START_S: Final = 30.0
"""How long it may take to start."""
_HEAD_END: Final = b"\r\n\r\n"
_PIECE_BYTES: Final = 1 << 16
_REASONS: Final = {200: "OK", 201: "Created", 204: "No Content", 404: "Not Found"}


class StubObjects:
    """The objects, and what is answered to each request; `base` is the store's URL."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._objects: dict[str, bytes] = {}
        self._containers: set[str] = set()

    def answer(self, method: str, target: str, body: bytes) -> bytes:
        """Return the answer to a request, as it is sent."""
        path = urlsplit(target).path
        if path == AUTH_PATH:
            return _answer(200, headers=f"X-Storage-Url: {self._base}{ACCOUNT}\r\nX-Auth-Token: stub\r\n")
        own = path.removeprefix(ACCOUNT).strip("/")
        if not own:
            return _answer(200, b"[]" if path.startswith(ACCOUNT) else NO_BUCKETS, method=method)
        if "/" not in own:
            return self._of_container(method, own, b"[]" if path.startswith(ACCOUNT) else NO_KEYS)
        if method == "PUT":
            self._objects[own] = body
            return _answer(201 if path.startswith(ACCOUNT) else 200)
        if method == "DELETE":
            return _answer(404 if self._objects.pop(own, None) is None else 204)
        found = self._objects.get(own)
        return _answer(404, method=method) if found is None else _answer(200, found, method=method)

    def _of_container(self, method: str, name: str, names: bytes) -> bytes:
        if method == "PUT":
            self._containers.add(name)
            return _answer(201 if names == b"[]" else 200)
        if method == "DELETE":
            self._containers.discard(name)
            return _answer(204)
        return _answer(200, names, method=method) if name in self._containers else _answer(404, method=method)


def _answer(status: int, body: bytes = b"", *, method: str = "GET", headers: str = "") -> bytes:
    length = "" if status == 204 else f"Content-Length: {len(body)}\r\n"  # noqa: PLR2004  which has no body
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\n{length}{headers}\r\n".encode()
    return head if method == "HEAD" else head + body


def take_request(received: bytearray) -> tuple[str, str, bytes] | None:
    """Take method, target and body of the first whole request off what was received; None without one."""
    end = received.find(_HEAD_END)
    if end < 0:
        return None
    first, *lines = received[:end].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    start = end + len(_HEAD_END)
    whole = start + int(headers.get("content-length", 0))
    if len(received) < whole:
        return None
    body = bytes(received[start:whole])
    del received[:whole]
    return method, target, body


def serve(listener: socket.socket, owner: int) -> None:
    """Answer all connections until the descriptor `owner` is at its end."""
    host, port = listener.getsockname()[:2]
    objects, ready = StubObjects(f"http://{host}:{port}"), selectors.DefaultSelector()
    ready.register(owner, selectors.EVENT_READ)
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fd == owner:
                return
            if key.data is None:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ready.register(connection, selectors.EVENT_READ, (connection, bytearray()))
                continue
            connection, received = key.data
            try:
                piece = connection.recv(_PIECE_BYTES)
                received += piece
                while request := take_request(received):
                    connection.sendall(objects.answer(*request))
            except (OSError, ValueError):
                piece = b""
            if not piece:
                ready.unregister(connection)
                connection.close()


@contextmanager
def stub_store() -> Iterator[dict[str, str]]:
    """Run the store; give the variables of the environment by which workers find it, under either protocol."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            readable, _, _ = select.select([process.stdout], [], [], START_S)
            port = process.stdout.readline().strip().decode() if readable else ""
            if not port:
                raise InfrastructureError("the stub store did not start")
            url = f"http://127.0.0.1:{port}"
            yield {
                "ST_AUTH": f"{url}{AUTH_PATH}",
                "ST_USER": "stub:stub",
                "ST_KEY": "stub",
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "stub",
                "AWS_SECRET_ACCESS_KEY": "stub",
            }
        finally:
            process.stdin.close()


def main() -> None:
    """Serve at a free port of this host, and print it."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        serve(listener, os.dup(sys.stdin.fileno()))


if __name__ == "__main__":
    main()
