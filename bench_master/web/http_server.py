"""The HTTP server of our pages: gevent's, with limits and deadlines that it lacks.

A client that sends slowly, sends too much or reads nothing costs one of a few connections for some seconds, and no
more. Nothing is logged: a log would keep who looked at what.
"""

from __future__ import annotations

import socket
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Any, Final

import gevent
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

MAX_CONNECTIONS: Final = 32
"""Further ones wait until one of these ends."""
REQUEST_TIMEOUT_S: Final = 5.0
"""How long a request may take to arrive, and a connection may be idle."""
SEND_TIMEOUT_S: Final = 10.0
"""How long a client may take to read a piece of an answer."""
MAX_REQUEST_BYTES: Final = 16 * 1024
"""Of the first line, the headers and the body."""
UNSENT_BYTES: Final = 64 * 1024
"""What the kernel holds for a client that does not read."""


class TooLong(ValueError):
    """A request with more bytes than any of our pages sends."""


class _LimitedReader:
    """The part of a file that the handler uses, which ends after so many bytes of one request."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MAX_REQUEST_BYTES

    def begin_request(self) -> None:
        self._left = MAX_REQUEST_BYTES

    def readline(self, size: int = -1) -> bytes:
        limit = self._left + 1
        return self._take(self._file.readline(limit if size < 0 else min(size, limit)))

    def read(self, size: int = -1) -> bytes:
        limit = self._left + 1
        return self._take(self._file.read(limit if size < 0 else min(size, limit)))

    def _take(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise TooLong(f"more than {MAX_REQUEST_BYTES} bytes")
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Handler(WSGIHandler):
    """Serves one connection."""

    def __init__(self, sock: Any, address: Any, server: Any, rfile: Any = None) -> None:
        sock.settimeout(SEND_TIMEOUT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_BYTES)
        super().__init__(sock, address, server, rfile)  # type: ignore[call-arg]
        self.rfile: Any = _LimitedReader(self.rfile)

    def handle_one_request(self) -> Any:
        """Serve a request that arrives in time; end the connection otherwise."""
        self.rfile.begin_request()
        self._deadline = gevent.Timeout.start_new(REQUEST_TIMEOUT_S)
        try:
            return super().handle_one_request()
        except gevent.Timeout as late:
            if late is not self._deadline:
                raise
            return None
        except (TooLong, OSError):
            return None
        finally:
            self._deadline.close()

    def read_requestline(self) -> Any:
        """Read the first line; a connection that ends before it is no error."""
        try:
            return super().read_requestline()
        except TooLong:
            return ""

    def read_request(self, raw_requestline: Any) -> Any:
        """Parse the first line and the headers; too many of them are a fault of the client."""
        try:
            return super().read_request(raw_requestline)
        except HTTPException as error:
            raise ValueError(str(error)) from error

    def handle_one_response(self) -> None:
        """Answer: small bodies are read in time as well, and what is sent has a deadline of its own."""
        if self.command in ("GET", "HEAD"):
            self._deadline.close()
        super().handle_one_response()

    def handle_error(self, kind: Any, error: Any, trace: Any) -> None:
        """End the connection of a client that is late, gone or sends too much; anything else is a fault of ours."""
        if issubclass(kind, (gevent.Timeout, OSError, TooLong)):
            self.close_connection = True
        else:
            super().handle_error(kind, error, trace)  # type: ignore[no-untyped-call]

    def log_request(self) -> None:
        """Keep no log."""

    def log_error(self, msg: str, *args: Any) -> None:
        """Keep no log of what clients do wrong, either."""


def make_server(listener: Any, application: WSGIApplication) -> WSGIServer:
    """Return a server of an application on a socket that listens; `start` starts it."""
    return WSGIServer(
        listener, application, handler_class=Handler, spawn=Pool(MAX_CONNECTIONS), log=None, error_log=None
    )
