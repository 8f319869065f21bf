"""Calls a gRPC service on a unix socket, and takes the stamps at the socket, as for Docker's API.

gRPC's own library brings an event loop of its own, in threads that gevent's patches break. What is needed of it here
is little: one call at a time on each connection, over HTTP/2 (`the protocol
<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>`_), which the package h2 speaks without doing I/O.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from bench_worker.timing.socket_stamps import ARRIVALS

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHUNK_BYTES: Final = 1 << 16
_PREFIX: Final = struct.Struct(">BI")
_TIMED_OUT: Final = 4
_UNAVAILABLE: Final = 14


class CallFailed(Exception):
    """A call that failed: `code` is gRPC's, the text the service's own or why it could not be reached."""

    def __init__(self, code: int, message: str, *, start_ns: int, end_ns: int) -> None:
        super().__init__(message)
        self.code = code
        self.start_ns = start_ns
        self.end_ns = end_ns


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call returned: the message, when its first byte went out, when the last one of the answer came in."""

    message: bytes
    start_ns: int
    end_ns: int
    end_bound_ns: int


@dataclass
class _Call:
    """What has come in of the answer to one call."""

    stream: int
    body: bytearray = field(default_factory=bytearray)
    headers: dict[str, str] = field(default_factory=dict)
    over: bool = False
    broken: str = ""

    def take(self, event: h2.events.Event) -> None:
        """Take in an event of the connection."""
        if isinstance(event, h2.events.ConnectionTerminated):
            self.broken = "the service has ended the connection"
        elif isinstance(event, h2.events.StreamReset) and event.stream_id == self.stream:
            self.broken = f"the service has broken off the call (HTTP/2 error {event.error_code})"
        elif getattr(event, "stream_id", None) != self.stream:
            return
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            self.headers |= {_text(name): _text(value) for name, value in event.headers or ()}
        elif isinstance(event, h2.events.DataReceived):
            self.body += event.data or b""
        elif isinstance(event, h2.events.StreamEnded):
            self.over = True


class _Connection:
    """One connection, with one call on it at a time."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.http.initiate_connection()
        try:
            self.socket.settimeout(timeout_s)
            self.socket.connect(path)
            self.flush()
        except BaseException:
            self.socket.close()
            raise

    def flush(self) -> None:
        """Send what the protocol has to say."""
        data = self.http.data_to_send()
        if data:
            self.socket.sendall(data)

    def receive(self, call: _Call) -> tuple[int, int]:
        """Wait for bytes and take them in; return when they came in and the earliest instant of that."""
        with ARRIVALS.expecting(self.socket.fileno()) as arrival:
            data = self.socket.recv(_CHUNK_BYTES)
            read_ns = time.monotonic_ns()
            stamp = arrival.by(read_ns, len(data)), arrival.since(read_ns)
        if not data:
            call.broken = "the service has closed the connection"
            return stamp
        for event in self.http.receive_data(data):
            if isinstance(event, h2.events.DataReceived) and event.flow_controlled_length:
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id or 0)
            call.take(event)
        self.flush()
        return stamp

    def close(self) -> None:
        """Close it."""
        self.socket.close()


class Channel:
    """A service at a socket. Calls from several greenlets go over connections of their own.

    Each call carries `metadata`, headers by name, beside those that the protocol asks for.
    """

    def __init__(self, path: str, metadata: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._metadata = tuple((metadata or {}).items())
        self._idle: list[_Connection] = []

    def call(self, method: str, message: bytes, *, timeout_s: float) -> Reply:
        """Call a method such as ``/runtime.v1.RuntimeService/Version``; raise `CallFailed`."""
        deadline = time.monotonic() + timeout_s
        start_ns = time.monotonic_ns()
        connection: _Connection | None = None
        try:
            connection = self._idle.pop() if self._idle else _Connection(self.path, timeout_s)
            call = self._ask(connection, method, message, timeout_s)
            start_ns = time.monotonic_ns()
            connection.flush()
            end_ns = earliest_ns = start_ns
            while not call.over and not call.broken:
                connection.socket.settimeout(max(0.001, deadline - time.monotonic()))
                end_ns, earliest_ns = connection.receive(call)
        except TimeoutError as error:
            _drop(connection)
            text = f"{method} had no answer after {timeout_s:.3g} s"
            raise CallFailed(_TIMED_OUT, text, start_ns=start_ns, end_ns=time.monotonic_ns()) from error
        except (OSError, h2.exceptions.H2Error) as error:
            _drop(connection)
            text = f"{self.path}: {getattr(error, 'strerror', None) or error}"
            raise CallFailed(_UNAVAILABLE, text, start_ns=start_ns, end_ns=time.monotonic_ns()) from error
        except BaseException:
            # This greenlet was thrown out of its wait: what comes now would be taken for the next call's answer.
            _drop(connection)
            raise
        end_ns = max(start_ns, end_ns)
        if call.broken:
            _drop(connection)
            raise CallFailed(_UNAVAILABLE, f"{self.path}: {call.broken}", start_ns=start_ns, end_ns=end_ns)
        self._idle.append(connection)
        code = int(call.headers.get("grpc-status", "2"))
        if code:
            said = unquote(call.headers.get("grpc-message", "")) or f"{method} failed with code {code}"
            raise CallFailed(code, said, start_ns=start_ns, end_ns=end_ns)
        return Reply(bytes(call.body[_PREFIX.size :]), start_ns, end_ns, end_ns - max(start_ns, earliest_ns))

    def close(self) -> None:
        """Close all connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def _ask(self, connection: _Connection, method: str, message: bytes, timeout_s: float) -> _Call:
        http = connection.http
        call = _Call(http.get_next_available_stream_id())
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-timeout", f"{max(1, int(timeout_s * 1000))}m"),
            *self._metadata,
        ]
        http.send_headers(call.stream, headers)
        http.send_data(call.stream, _PREFIX.pack(0, len(message)) + message, end_stream=True)
        return call


def _drop(connection: _Connection | None) -> None:
    if connection is not None:
        connection.close()


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
