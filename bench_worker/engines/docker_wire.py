"""The short way to an engine's API: HTTP/1.1 on its socket, for the calls of which a life cycle is made.

docker-py prepares a request, a session and a response object for each call, at about half a millisecond of CPU; that
is CPU which the engine on the same host then lacks. Here a call is a request of `http.client` on a connection that is
used again, stamped and bounded like all others (`docker_transport`). Set-up, images, logs and statistics stay with
docker-py.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import ssl
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from gevent.monkey import get_original

from bench_worker.engines.docker.http import (
    PlainConnection,
    PlainTlsConnection,
    current_exchange,
    socket_path,
    unix_socket,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import docker

_HEADERS: Final = {"Host": "localhost", "User-Agent": "weighbridge"}
_JSON: Final = {**_HEADERS, "Content-Type": "application/json"}
_OK: Final = 400
"""Answers with this status, or a higher one, are refusals."""
_TLS_PORT: Final = 2376
_PORT: Final = 2375

_poll: Any = get_original("select", "poll")


class EngineRefusal(Exception):
    """The engine answered that it will not: `status` is that of HTTP, the message the engine's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Wire:
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
                    raise EngineRefusal(answer.status, _message(answer.read(), answer.status))
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
            raise EngineRefusal(answer.status, _message(told, answer.status))
        return json.loads(told) if told else None

    def _connection(self) -> http.client.HTTPConnection:
        """Return a connection that is open as far as one can see: the engine may have been restarted meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.sock is not None and not _readable(connection.sock.fileno()):
                connection.sock.settimeout(_time_left())
                return connection
            connection.close()
        return self._connected()

    def _connected(self) -> http.client.HTTPConnection:
        timeout = _time_left()
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


def _time_left() -> float | None:
    exchange = current_exchange()
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
