"""Talks to a Docker Engine with docker-py, and takes the stamps at the socket.

docker-py spends about a millisecond of Python on each call, which is none of the engine's. So an operation is timed
where its bytes are: its start just before the first byte of a request goes out, its end when the last bytes of the
answer came in, be they read at once or later (see `bench_worker.timing.socket_stamps`). The same place holds every
read to the operation's deadline, body included. `TimedRequest` carries both, in a context variable: each greenlet and
each thread has its own, patched or not.

The short way to an engine's API: HTTP/1.1 on its socket, for the calls of which a life cycle is made.

docker-py prepares a request, a session and a response object for each call, at about half a millisecond of CPU;
that is CPU which the engine on the same host then lacks. Here a call is a request of `http.client` on a connection
that is used again, stamped and bounded like all others (`docker_transport`). Set-up, images, logs and statistics
stay with docker-py.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import select
import socket
import ssl
import time
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import docker
import requests
import requests.adapters
import urllib3
from docker.constants import MINIMUM_DOCKER_API_VERSION
from docker.utils import kwargs_from_env
from gevent.monkey import get_original
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from bench_common.errors import EngineUnavailable
from bench_worker.engines.base import OperationResult
from bench_worker.timing.socket_stamps import SOCKET_ARRIVALS, SocketArrival

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"

_SPARE_CONNECTIONS = 4
"""Beyond one per slot: clean-up and probes do not wait for a slot's connection."""


class TimedRequest:
    """The requests of one operation: when its first byte went out, when its last one came in, and its deadline.

    `sent_ns` and `heard_ns` are nanoseconds of CLOCK_MONOTONIC, 0 until there is one. `asked_ns` is when the last
    request went out, and `heard_from_ns` the earliest instant at which the last byte can have come in.
    """

    def __init__(self, timeout_s: float) -> None:
        self.begun_ns = time.monotonic_ns()
        self.deadline_ns = self.begun_ns + int(timeout_s * 1e9)
        self.timeout_s = timeout_s
        self.sent_ns = 0
        self.heard_ns = 0
        self.last_sent_ns = 0
        self.earliest_received_ns = 0
        self._paused_ns = 0

    @property
    def start_ns(self) -> int:
        """When the operation began: the first byte sent, or the attempt itself when nothing could be sent.

        It is later by what was left out, see `pause`.
        """
        return self.sent_ns or self.begun_ns

    @property
    def end_ns(self) -> int:
        """When the operation ended: the last byte heard."""
        return max(self.heard_ns, self.start_ns)

    @property
    def end_uncertainty_ns(self) -> int:
        """How much earlier the last byte may have been there."""
        return max(0, self.end_ns - max(self.earliest_received_ns, self.start_ns))

    def send(self) -> None:
        """Note that bytes are about to go out."""
        self.last_sent_ns = time.monotonic_ns()
        if not self.sent_ns:
            self.sent_ns = self.last_sent_ns
        elif self._paused_ns:
            self.sent_ns += self.last_sent_ns - self._paused_ns
            self._paused_ns = 0

    def pause(self) -> None:
        """Leave out what passes from the last answer until the next request goes out: it is our own time.

        Where the loop is busy that may be more than what the engine takes. The deadline does not wait.
        """
        self._paused_ns = self.heard_ns

    def note_received(self, arrival: SocketArrival, count: int) -> None:
        """Note that `count` bytes, of which `arrival` tells, have been read just now."""
        read_ns = time.monotonic_ns()
        self.heard_ns = arrival.latest_at(read_ns, count)
        # No answer comes before its question, and no byte before the one in front of it.
        self.earliest_received_ns = max(self.earliest_received_ns, arrival.earliest_at(read_ns), self.last_sent_ns)

    def done(self, **gave: Any) -> OperationResult:
        """Return the operation as one that is done, with its stamps and what it `gave`."""
        return OperationResult(self.start_ns, self.end_ns, end_uncertainty_ns=self.end_uncertainty_ns, **gave)

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


_current: ContextVar[TimedRequest | None] = ContextVar("docker_exchange", default=None)


def current_request() -> TimedRequest | None:
    """Return the exchange that requests made here belong to."""
    return _current.get()


def unix_socket(path: str, timeout_s: float | None) -> socket.socket:
    """Return a socket that is connected to the one at `path`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


@contextmanager
def timed_request(timeout_s: float) -> Iterator[TimedRequest]:
    """Stamp, and bound by `timeout_s` in all, the requests that are made inside."""
    made = TimedRequest(timeout_s)
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


class _TimedReader(io.RawIOBase):
    """Reads a connection's answer: stamps what comes in, and gives up at the deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # A file of its own keeps the socket open until the answer is read, whatever becomes of the connection.
        self._file = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        current = _current.get()
        if current is None:
            return self._file.readinto(buffer)
        self._connection.settimeout(current.remaining_s())
        with SOCKET_ARRIVALS.watch_socket(self._connection.fileno()) as arrival:
            count = self._file.readinto(buffer)
            current.note_received(arrival, count or 0)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        timed: Any = io.BufferedReader(_TimedReader(sock))
        self.fp.close()
        self.fp = timed


class _TimedMixin:
    """What makes a class of connections a stamped one, when it is put in front of it."""

    response_class: Any = _TimedResponse
    sock: Any

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()  # type: ignore[attr-defined]
        current = _current.get()
        if current is not None:
            current.send()
        super().send(data)  # type: ignore[misc]


class _TimedConnection(_TimedMixin, HTTPConnection):
    pass


class _TimedTlsConnection(_TimedMixin, HTTPSConnection):
    pass


class PlainConnection(_TimedMixin, http.client.HTTPConnection):
    """The standard library's connection, stamped and bounded."""


class PlainTlsConnection(_TimedMixin, http.client.HTTPSConnection):
    """The same, encrypted."""


class _UnixConnection(_TimedConnection):
    def __init__(self, *arguments: Any, socket_path: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._socket_path = socket_path

    def connect(self) -> None:
        timeout: Any = self.timeout
        self.sock = unix_socket(self._socket_path, timeout)


class _UnixPool(HTTPConnectionPool):
    ConnectionCls = _UnixConnection


class _TimedPool(HTTPConnectionPool):
    ConnectionCls = _TimedConnection


class _TimedTlsPool(HTTPSConnectionPool):
    ConnectionCls = _TimedTlsConnection


class _BoundedAdapter(requests.adapters.HTTPAdapter):
    """An adapter whose every request has what is left of the current exchange as its timeout."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _TimedPool, "https": _TimedTlsPool}

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        current = _current.get()
        if current is not None:
            options["timeout"] = current.remaining_s()
        return super().send(request, *arguments, **options)


class _UnixAdapter(_BoundedAdapter):
    """Reaches the engine over its Unix socket; one pool for all paths, so that connections are used again."""

    def __init__(self, socket_path: str, connections: int) -> None:
        super().__init__()
        self._pool = _UnixPool("localhost", maxsize=connections, socket_path=socket_path)

    def get_connection_with_tls_context(self, *_arguments: Any, **_options: Any) -> urllib3.HTTPConnectionPool:
        return self._pool

    get_connection = get_connection_with_tls_context

    def request_url(self, request: requests.PreparedRequest, _proxies: Any) -> str:
        return request.path_url

    def close(self) -> None:
        self._pool.close()
        super().close()


def endpoint() -> str:
    """Return the engine's address: DOCKER_HOST, or the usual socket."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_ENDPOINT


def socket_path(address: str) -> str | None:
    """Return the path of the socket at `address`, or None when the engine is reached over TCP."""
    return "/" + address.removeprefix("unix://").lstrip("/") if address.startswith("unix://") else None


def connect(connections: int, timeout_s: float, address: str | None = None) -> docker.APIClient:
    """Return docker-py's client of the engine at `address`, stamped and bounded, after it has answered once.

    None is the address that `endpoint` gives. `connections` is how many requests may be under way. Raises docker-py's
    and requests' own errors, and `EngineUnavailable` for an address that cannot be timed.
    """
    address = address or endpoint()
    if address.startswith(("ssh://", "npipe://")):
        raise EngineUnavailable(
            f"{address}: through a tunnel its time would be measured too; run bench-worker on that host"
        )
    if not address.startswith(("unix://", "tcp://", "http://", "https://")):
        raise EngineUnavailable(f"{address}: expected unix:///PATH or tcp://HOST:PORT")
    size = connections + _SPARE_CONNECTIONS
    with timed_request(timeout_s):
        # docker-py would ask for the version through its own transport, with no deadline. Any version will do to ask.
        first = _client(address, MINIMUM_DOCKER_API_VERSION, size)
        try:
            # Podman asks the package manager for its full answer, which takes ten times as long as the rest.
            version = first.get(f"{first.base_url}/_ping").headers.get("Api-Version")
            if not version:
                answer = first.get(f"{first.base_url}/version")
                answer.raise_for_status()
                version = str(answer.json()["ApiVersion"])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineUnavailable(f"what answers at {address} is no Docker Engine: {error}") from error
        finally:
            first.close()
        return _client(address, version, size)


def _client(address: str, version: str, size: int) -> docker.APIClient:
    settings: dict[str, Any] = {
        **(kwargs_from_env() if address == endpoint() else {}),
        "base_url": address,
        "version": version,
    }
    client = docker.APIClient(**settings, max_pool_size=size)
    # Proxies and .netrc are for web sites; looking for them costs each request a scan of the environment.
    client.trust_env = False
    path = socket_path(address)
    if path is not None:
        client.mount("http+docker://", _UnixAdapter(path, size))
    else:
        for scheme in ("http://", "https://"):
            client.mount(scheme, _BoundedAdapter(pool_connections=1, pool_maxsize=size))
    return client


def url(client: docker.APIClient, *parts: str) -> str:
    """Return the address of an API path, such as ``url(client, "containers", name, "wait")``."""
    path = "/".join(quote(part, safe="") for part in parts)
    return f"{client.base_url}/v{client.api_version}/{path}"


_HEADERS: Final = {"Host": "localhost", "User-Agent": "weighbridge"}
_JSON: Final = {**_HEADERS, "Content-Type": "application/json"}
_OK: Final = 400
"""Answers with this status, or a higher one, are refusals."""
_TLS_PORT: Final = 2376
_PORT: Final = 2375

_poll: Any = get_original("select", "poll")


class DockerApiError(Exception):
    """The engine answered that it will not: `status` is that of HTTP, the message the engine's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class DockerHttp:
    """Calls of one engine, from any number of greenlets; each uses a connection of its own, idle ones are kept.

    `client` is docker-py's of the same engine at `address`: its version of the API and its certificates are used.
    """

    def __init__(self, client: docker.APIClient, address: str) -> None:
        self._version = f"/v{client.api_version}"
        self._address = address
        self._tls = _tls_context() if str(client.base_url).startswith("https://") else None
        self._idle: deque[http.client.HTTPConnection] = deque()

    def post(self, *path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """POST to an API path such as ``containers, ID, start``; return the JSON of the answer, None without one."""
        return self._call("POST", path, query, body)

    def get(self, *path: str, **query: Any) -> Any:
        """GET an API path; return the JSON of the answer."""
        return self._call("GET", path, query, None)

    def delete(self, *path: str, **query: Any) -> None:
        """DELETE an API path."""
        self._call("DELETE", path, query, None)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def stream(self, *path: str, body: Mapping[str, Any]) -> Iterator[http.client.HTTPResponse]:
        """POST to an API path, and give the answer to be read while it comes in; its connection is not used again."""
        connection = self._connection()
        try:
            with self._asked(connection, "POST", path, {}, body) as answer:
                if answer.status >= _OK:
                    raise DockerApiError(answer.status, _message(answer.read(), answer.status))
                yield answer
        finally:
            connection.close()

    def _asked(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None,
    ) -> http.client.HTTPResponse:
        address = "/".join((self._version, *(quote(part, safe="") for part in path)))
        if query:
            address += f"?{urlencode(query)}"
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, address, content, _HEADERS if content is None else _JSON)
        return connection.getresponse()

    def _call(
        self, method: str, path: tuple[str, ...], query: Mapping[str, Any], body: Mapping[str, Any] | None
    ) -> Any:
        connection = self._connection()
        try:
            answer = self._asked(connection, method, path, query, body)
            told = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        if answer.status >= _OK:
            raise DockerApiError(answer.status, _message(told, answer.status))
        return json.loads(told) if told else None

    def _connection(self) -> http.client.HTTPConnection:
        """Return a connection that is open as far as one can see: the engine may have been restarted meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.sock is not None and not _readable(connection.sock.fileno()):
                connection.sock.settimeout(_remaining_s())
                return connection
            connection.close()
        return self._connected()

    def _connected(self) -> http.client.HTTPConnection:
        timeout = _remaining_s()
        path = socket_path(self._address)
        if path is not None:
            connection = PlainConnection("localhost", timeout=timeout)
            connection.sock = unix_socket(path, timeout)
            return connection
        place = urlsplit(self._address)
        host = place.hostname or "localhost"
        if self._tls is not None:
            return PlainTlsConnection(host, place.port or _TLS_PORT, timeout=timeout, context=self._tls)
        return PlainConnection(host, place.port or _PORT, timeout=timeout)


def _remaining_s() -> float | None:
    exchange = current_request()
    return None if exchange is None else exchange.remaining_s()


def _readable(descriptor: int) -> bool:
    """Say whether there is something to read where nothing was asked: the end, as a rule. Never waits."""
    poll = _poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _message(told: bytes, status: int) -> str:
    try:
        return str(json.loads(told)["message"])
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
