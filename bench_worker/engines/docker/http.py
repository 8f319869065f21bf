"""Makes timed requests to a Docker Engine: HTTP/1.1 on its socket, stamped and bounded there.

docker-py spends about a millisecond of Python on each call, which is none of the engine's. So whatever a verb does
goes this way: its start is stamped just before the first byte of a request goes out, its end when the last bytes of
the answer came in, be they read at once or later (see `bench_worker.timing.socket_stamps`), and one deadline holds
for connecting, sending and every read. What nobody times and few runs need (building, importing,
copying and removing) is docker-py's (`docker_client`), which takes longer to load than all else of an engine.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import struct
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import gevent

from bench_common.errors import EngineUnavailable
from bench_worker.engines.base import OperationResult
from bench_worker.engines.docker.client import bounded_client
from bench_worker.engines.docker.connection import Answer, Connection, open_tcp, open_unix
from bench_worker.engines.docker.context import endpoint
from bench_worker.engines.output import Capture
from bench_worker.http import fields_of, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    import docker

    from bench_worker.timing.socket_stamps import SocketArrival


_HEADERS: Final = "Host: localhost\r\nUser-Agent: weighbridge\r\n"
_OK: Final = 400
"""Answers with this status, or a higher one, are refusals."""
_NOT_FOUND: Final = 404
_STORE_WRITTEN: Final = re.compile(r"locating image with ID .*: image not known")
_POLL_S: Final = 0.02
_TLS_PORT: Final = 2376
_PORT: Final = 2375
_SPARE_CONNECTIONS: Final = 4
"""Beyond one per slot: clean-up and probes do not wait for a slot's connection."""


class DockerApiError(Exception):
    """The engine refused a request: `status` is that of HTTP, the message the engine's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TimedRequest:
    """The requests of one operation: when the first byte was sent, when the last one arrived, and their deadline.

    All instants are nanoseconds of CLOCK_MONOTONIC, 0 until there is one.
    """

    def __init__(self, engine: DockerHttp, timeout_s: float) -> None:
        self._engine = engine
        self.timeout_s = timeout_s
        self.restart()

    def restart(self) -> None:
        """Begin the next operation on a stream that goes on: stamps and deadline start again."""
        self.begun_ns = time.monotonic_ns()
        self.deadline_ns = self.begun_ns + int(self.timeout_s * 1e9)
        self.sent_ns = 0
        self.received_ns = 0
        self.last_sent_ns = 0
        self.earliest_received_ns = 0
        self._gap_start_ns = 0

    @property
    def start_ns(self) -> int:
        """When the operation began: the first byte sent, or the attempt itself when nothing could be sent.

        Later by the time that `exclude_gap` leaves out.
        """
        return self.sent_ns or self.begun_ns

    @property
    def end_ns(self) -> int:
        """When the operation ended: the last byte received."""
        return max(self.received_ns, self.start_ns)

    @property
    def end_uncertainty_ns(self) -> int:
        """How much earlier the last byte may have been there."""
        return max(0, self.end_ns - max(self.earliest_received_ns, self.start_ns))

    def note_sent(self) -> None:
        """Note that bytes are about to go out."""
        self.last_sent_ns = time.monotonic_ns()
        if not self.sent_ns:
            self.sent_ns = self.last_sent_ns
        elif self._gap_start_ns:
            self.sent_ns += self.last_sent_ns - self._gap_start_ns
            self._gap_start_ns = 0

    def exclude_gap(self) -> None:
        """Leave out what passes from the last answer until the next request goes out: it is our own time.

        Where the loop is busy that may be more than what the engine takes. The deadline does not wait.
        """
        self._gap_start_ns = self.received_ns

    def note_received(self, arrival: SocketArrival, count: int) -> None:
        """Note that `count` bytes, whose arrival is `arrival`, have been read just now."""
        read_ns = time.monotonic_ns()
        self.received_ns = arrival.latest_at(read_ns, count)
        # No answer comes before its question, and no byte before the one in front of it.
        self.earliest_received_ns = max(self.earliest_received_ns, arrival.earliest_at(read_ns), self.last_sent_ns)

    def result(self, **given: Any) -> OperationResult:
        """Return the result of an operation that succeeded: its stamps and the fields `given`."""
        return OperationResult(self.start_ns, self.end_ns, end_uncertainty_ns=self.end_uncertainty_ns, **given)

    def now_ns(self) -> int:
        """Return the present instant on the clock of the stamps."""
        return time.monotonic_ns()

    def expired(self) -> bool:
        """Say whether the deadline has passed."""
        return time.monotonic_ns() >= self.deadline_ns

    def remaining_s(self) -> float:
        """Return the time left in seconds; raise `TimeoutError` when there is none."""
        left_ns = self.deadline_ns - time.monotonic_ns()
        if left_ns <= 0:
            raise TimeoutError(f"no answer in {self.timeout_s:g} s")
        return left_ns / 1e9

    def post(self, *path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """POST to an API path such as ``containers, ID, start``; return the JSON of the answer, None without one."""
        answer = self.read("POST", *path, content=_json(body), **query)
        return json.loads(answer) if answer else None

    def get(self, *path: str, **query: Any) -> Any:
        """GET an API path; return the JSON of the answer."""
        return json.loads(self.read("GET", *path, **query))

    def find(self, *path: str) -> Any:
        """GET an API path; return the JSON of the answer, None where there is no such thing."""
        try:
            return self.get(*path)
        except DockerApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def find_image(self, name: str) -> Any:
        """GET what the engine has of an image, None where it has none of that name.

        Podman looks up the name, lets go of its store, and fails where another process writes that just then: it does
        not know the identity that it has just found. It is asked again within the deadline.
        """
        while True:
            try:
                return self.find("images", name, "json")
            except DockerApiError as error:
                if self.expired() or not _STORE_WRITTEN.search(str(error)):
                    raise
                gevent.sleep(_POLL_S)

    def has(self, *path: str, **query: Any) -> bool:
        """Ask by HEAD whether there is such a thing."""
        try:
            self.read("HEAD", *path, **query)
        except DockerApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True

    def delete(self, *path: str, **query: Any) -> None:
        """DELETE an API path."""
        self.read("DELETE", *path, **query)

    def header(self, name: str, *path: str) -> str | None:
        """GET an API path; return a header of the answer, None where it has none of that name."""
        head, _ = self._engine.fetch(self, "GET", path, {}, None)
        value = fields_of(head).get(name.lower().encode())
        return None if value is None else value.decode("latin-1")

    def read(
        self,
        method: str,
        *path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> bytes:
        """Make a request and return the whole answer; raise `DockerApiError` where the engine refuses it."""
        return self._engine.fetch(self, method, path, query, content, headers)[1]

    def stream(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> AbstractContextManager[Answer]:
        """Make a request whose answer is read while it comes in; its connection is not used again."""
        return self._engine.stream(self, method, path, query, _json(body), headers)


class DockerHttp:
    """The connections to one engine, for any number of greenlets: each request has its own, idle ones are kept."""

    def __init__(self, address: str, version: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self.version = version
        self._tls = tls
        self._idle: deque[Connection] = deque()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def fetch(
        self,
        timed: TimedRequest,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any],
        content: bytes | None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[bytes, bytes]:
        """Send a request and return head and body of its answer; raise `DockerApiError` for a refusal."""
        connection = self._idle_connection() or self._connect(timed)
        try:
            connection.send(self._request(method, path, query, content, headers), timed)
            answer = Answer(connection, timed, bodiless=method == "HEAD")
            body = answer.read()
        except TimeoutError as error:
            connection.close()
            raise TimeoutError(f"no answer in {timed.timeout_s:g} s") from error
        except BaseException:
            connection.close()
            raise
        if answer.reusable:
            self._idle.append(connection)
        else:
            connection.close()
        if answer.status >= _OK:
            raise DockerApiError(answer.status, _message(body, answer.status))
        return answer.head, body

    @contextmanager
    def stream(
        self,
        timed: TimedRequest,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any],
        content: bytes | None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Answer]:
        """Send a request on a connection that no other one uses afterwards, and give its answer.

        Raises `DockerApiError` for a refusal.
        """
        connection = self._idle_connection() or self._connect(timed)
        try:
            connection.send(self._request(method, path, query, content, headers), timed)
            answer = Answer(connection, timed)
            if answer.status >= _OK:
                raise DockerApiError(answer.status, _message(answer.read(), answer.status))
            yield answer
        except TimeoutError as error:
            raise TimeoutError(f"no answer in {timed.timeout_s:g} s") from error
        finally:
            connection.close()

    def _request(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any],
        content: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> bytes:
        # A path that begins with a slash names its version itself.
        prefix = f"/v{self.version}/" if self.version and not path[0].startswith("/") else ""
        target = prefix + "/".join([quoted(part, "/" if part.startswith("/") else "") for part in path])
        if query:
            target += "?" + "&".join([f"{name}={quoted(str(value))}" for name, value in query.items()])
        head = f"{method} {target} HTTP/1.1\r\n{_HEADERS}"
        if headers is not None:
            head += "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        elif content is not None:
            head += "Content-Type: application/json\r\n"
        if method != "GET":
            head += f"Content-Length: {len(content or b'')}\r\n"
        return f"{head}\r\n".encode("ascii") + (content or b"")

    def _idle_connection(self) -> Connection | None:
        """Return a connection that is open as far as one can see: the engine may have been restarted meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet():
                connection.adopt()
                return connection
            connection.close()
        return None

    def _connect(self, timed: TimedRequest) -> Connection:
        path = socket_path(self.address)
        if path is not None:
            return open_unix(path, timed.remaining_s())
        place = urlsplit(self.address)
        host, port = place.hostname or "localhost", place.port or (_PORT if self._tls is None else _TLS_PORT)
        return open_tcp(host, port, timed.remaining_s(), self._tls)


def socket_path(address: str) -> str | None:
    """Return the path of the socket at `address`, or None when the engine is reached over TCP."""
    return "/" + address.removeprefix("unix://").lstrip("/") if address.startswith("unix://") else None


def connect(timeout_s: float, address: str | None = None) -> DockerHttp:
    """Return the way to the engine at `address` (None: `endpoint`), after it has answered once.

    Raises `EngineUnavailable` for an address that cannot be timed and for a server that is no Docker Engine, and
    `OSError`, `http.client.HTTPException` and `DockerException` where nothing answers or the TLS settings are wrong.
    """
    address = address or endpoint()
    if address.startswith(("ssh://", "npipe://")):
        raise EngineUnavailable(f"{address}: the tunnel's time would be measured too; run bench-worker on that host")
    if not address.startswith(("unix://", "tcp://", "http://", "https://")):
        raise EngineUnavailable(f"{address}: expected unix:///PATH or tcp://HOST:PORT")
    encrypted = address.startswith("https://") or (
        address.startswith("tcp://") and "tls" in _client_settings(address)
    )
    engine = DockerHttp(address, tls=_tls_context() if encrypted else None)
    try:
        engine.version = _api_version(TimedRequest(engine, timeout_s))
    except (ValueError, KeyError, TypeError, DockerApiError) as error:
        engine.close()
        raise EngineUnavailable(f"the server at {address} is not a Docker Engine: {error}") from error
    return engine


def _api_version(timed: TimedRequest) -> str:
    version = timed.header("Api-Version", "/_ping")
    # Podman asks the package manager for its full answer to /version, which takes ten times as long as the rest.
    return version or str(timed.get("/version")["ApiVersion"])


def docker_client(engine: DockerHttp, timeout_s: float, connections: int = 1) -> docker.APIClient:
    """Return docker-py's client of an engine, for what is not timed; `timeout_s` bounds each wait for an answer.

    `connections` is how many requests may be under way. Raises `DockerException` where its settings are wrong.
    """
    settings: dict[str, Any] = {**_client_settings(engine.address), "base_url": engine.address}
    settings |= {"version": engine.version, "timeout": timeout_s}
    client = bounded_client(**settings, max_pool_size=connections + _SPARE_CONNECTIONS)
    # Proxies and .netrc are for web sites, not for an engine.
    client.trust_env = False
    return client


_FRAME: Final = struct.Struct(">BxxxL")
_STDERR: Final = 2
_CHUNK_BYTES: Final = 64 * 1024
TAIL_LINES: Final = "4096"
"""How many lines are asked for to have the end of a log, which an engine finds without reading all of it."""
_MOST_TAIL_BYTES: Final = 64 << 20
"""So much are as many lines at most: the log driver splits longer ones."""


class Readable(Protocol):
    """The body of an answer: `read` returns fewer bytes than asked for only at its end."""

    def read(self, amt: int, /) -> bytes:
        """Return up to `amt` bytes."""


def frames(body: Readable) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the stream and a piece of its bytes until the body ends, be it in the middle of a frame.

    A frame is a byte for the stream (1 stdout, 2 stderr), three zero bytes, the payload's length as a big-endian
    32-bit number, and the payload (Docker Engine API, "Attach to a container"). There are always frames, since no
    terminal is ever asked for.
    """
    while len(header := body.read(_FRAME.size)) == _FRAME.size:
        stream, left = _FRAME.unpack(header)
        while left:
            piece = body.read(min(left, _CHUNK_BYTES))
            if not piece:
                return
            left -= len(piece)
            yield stream, piece


def capture(
    body: Readable, limit_bytes: int, *, drain: bool, stdout: Capture | None = None
) -> tuple[Capture, Capture]:
    """Return both ends of stdout and stderr, at most about `limit_bytes` of each.

    With `drain` the body is read to its end all the same, because its end means something (the command has ended);
    without, reading stops at the first stream that is full. A `stdout` that is given is filled, and can be read
    meanwhile.
    """
    streams = stdout or Capture(limit_bytes), Capture(limit_bytes)
    for stream, piece in frames(body):
        kept = streams[1] if stream == _STDERR else streams[0]
        kept.add(piece)
        if kept.truncated and not drain:
            break
    return streams


def capture_end(body: Readable, streams: tuple[Capture, Capture]) -> None:
    """Add the end of a log to captures that have its beginning."""
    for each in streams:
        each.skip_to_end()
    left = _MOST_TAIL_BYTES
    for stream, piece in frames(body):
        streams[1 if stream == _STDERR else 0].add(piece)
        left -= len(piece)
        # The log of a container that never stops printing may have no end.
        if left < 0:
            break


def _client_settings(address: str) -> dict[str, Any]:
    """Return docker-py's settings from the environment, which are for the engine that the environment names."""
    return environment_settings() if address == endpoint() else {}


def environment_settings() -> dict[str, Any]:
    """Return docker-py's settings for the engine at `endpoint`."""
    from docker.utils import kwargs_from_env

    return {"base_url": endpoint(), **kwargs_from_env()}


def _json(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _message(refusal: bytes, status: int) -> str:
    try:
        return str(json.loads(refusal)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {status}"


def _tls_context() -> ssl.SSLContext:
    """Return the context of DOCKER_CERT_PATH, as docker-py has it."""
    folder = Path(os.environ.get("DOCKER_CERT_PATH") or "~/.docker").expanduser()
    verify = bool(os.environ.get("DOCKER_TLS_VERIFY"))
    context = ssl.create_default_context(cafile=str(folder / "ca.pem") if verify else None)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
