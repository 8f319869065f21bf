"""Calls a gRPC service on a unix socket, and takes the stamps at the socket, as for Docker's API.

gRPC's own library brings an event loop of its own, in threads that gevent's patches break. What is needed of it here
is little: one call at a time on each connection, over HTTP/2 (`the protocol
<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>`_), which the package h2 speaks without doing I/O.

Packs and unpacks the few messages of the CRI and of containerd in protobuf's wire format, by field numbers.

The format is small (`<https://protobuf.dev/programming-guides/encoding/>`_) and the numbers are fixed for ever by
their version 1, so there is no need of generated classes.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from bench_worker.timing.socket_stamps import SOCKET_ARRIVALS

_CHUNK_BYTES: Final = 1 << 16
_PREFIX: Final = struct.Struct(">BI")
_TIMED_OUT: Final = 4
_UNAVAILABLE: Final = 14


class GrpcError(Exception):
    """A call that failed: `code` is gRPC's, the text the service's own or why it could not be reached."""

    def __init__(self, code: int, message: str, *, start_ns: int, end_ns: int) -> None:
        super().__init__(message)
        self.code = code
        self.start_ns = start_ns
        self.end_ns = end_ns


@dataclass(frozen=True, slots=True)
class GrpcReply:
    """What a call returned: the message, when its first byte went out, when the last one of the answer came in."""

    message: bytes
    start_ns: int
    end_ns: int
    end_uncertainty_ns: int


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
        with SOCKET_ARRIVALS.watch_socket(self.socket.fileno()) as arrival:
            data = self.socket.recv(_CHUNK_BYTES)
            read_ns = time.monotonic_ns()
            stamp = arrival.latest_at(read_ns, len(data)), arrival.earliest_at(read_ns)
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


class GrpcChannel:
    """A service at a socket. Calls from several greenlets go over connections of their own.

    Each call carries `metadata`, headers by name, beside those that the protocol asks for.
    """

    def __init__(self, path: str, metadata: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._metadata = tuple((metadata or {}).items())
        self._idle: list[_Connection] = []

    def call(self, method: str, message: bytes, *, timeout_s: float) -> GrpcReply:
        """Call a method such as ``/runtime.v1.RuntimeService/Version``; raise `GrpcError`."""
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
            _close_quietly(connection)
            text = f"{method} had no answer after {timeout_s:.3g} s"
            raise GrpcError(_TIMED_OUT, text, start_ns=start_ns, end_ns=time.monotonic_ns()) from error
        except (OSError, h2.exceptions.H2Error) as error:
            _close_quietly(connection)
            text = f"{self.path}: {getattr(error, 'strerror', None) or error}"
            raise GrpcError(_UNAVAILABLE, text, start_ns=start_ns, end_ns=time.monotonic_ns()) from error
        except BaseException:
            # This greenlet was thrown out of its wait: what comes now would be taken for the next call's answer.
            _close_quietly(connection)
            raise
        end_ns = max(start_ns, end_ns)
        if call.broken:
            _close_quietly(connection)
            raise GrpcError(_UNAVAILABLE, f"{self.path}: {call.broken}", start_ns=start_ns, end_ns=end_ns)
        self._idle.append(connection)
        code = int(call.headers.get("grpc-status", "2"))
        if code:
            said = unquote(call.headers.get("grpc-message", "")) or f"{method} failed with code {code}"
            raise GrpcError(code, said, start_ns=start_ns, end_ns=end_ns)
        return GrpcReply(bytes(call.body[_PREFIX.size :]), start_ns, end_ns, end_ns - max(start_ns, earliest_ns))

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


def _close_quietly(connection: _Connection | None) -> None:
    if connection is not None:
        connection.close()


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


Value: TypeAlias = "int | str | bytes | Sequence[str | bytes] | Mapping[str, str] | None"
Fields: TypeAlias = "Mapping[int, Sequence[int | bytes]]"
"""An unpacked message: by field number, all values."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_MORE: Final = 0x80
_64_BITS: Final = (1 << 64) - 1


class MalformedMessage(ValueError):
    """Bytes that are no protobuf message."""


def pack(fields: Mapping[int, Value]) -> bytes:
    """Return a message with these fields by number; 0, False, empty text and None are left out, as the format has it.

    A sequence is a repeated field, a mapping a map of text to text, and bytes may be a message of their own.
    """
    packed = bytearray()
    for number, value in fields.items():
        if not value:
            continue
        if isinstance(value, int):
            packed += _varint(number << 3 | _VARINT) + _varint(value & _64_BITS)
        elif isinstance(value, Mapping):
            for key, text in value.items():
                packed += _chunk(number, pack({1: key, 2: text}))
        elif isinstance(value, str | bytes):
            packed += _chunk(number, value)
        else:
            for item in value:
                packed += _chunk(number, item)
    return bytes(packed)


def unpack(data: bytes) -> dict[int, list[int | bytes]]:
    """Return the fields of a message by number, each with all its values; raise `MalformedMessage`."""
    fields: dict[int, list[int | bytes]] = {}
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _read_varint(data, position)
        elif kind in {_BYTES, _FIXED32, _FIXED64}:
            size = {_FIXED32: 4, _FIXED64: 8}.get(kind, 0)
            if kind == _BYTES:
                size, position = _read_varint(data, position)
            if position + size > len(data):
                raise MalformedMessage(f"field {key >> 3} is cut short")
            value, position = data[position : position + size], position + size
        else:
            raise MalformedMessage(f"field {key >> 3} is of the unknown kind {kind}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def text(fields: Fields, number: int) -> str:
    """Return a field of text; empty where there is none."""
    return blob(fields, number).decode("utf-8", "replace")


def blob(fields: Fields, number: int) -> bytes:
    """Return a field of bytes, or a message in it; empty where there is none."""
    value = fields.get(number, (b"",))[-1]
    return value if isinstance(value, bytes) else b""


def number(fields: Fields, number: int) -> int:
    """Return a field that is a whole number with a sign; 0 where there is none."""
    value = fields.get(number, (0,))[-1]
    if not isinstance(value, int):
        return 0
    return value - (1 << 64) if value >> 63 else value


def texts(fields: Fields, number: int) -> dict[str, str]:
    """Return a field that is a map of text to text."""
    entries = [unpack(item) for item in fields.get(number, ()) if isinstance(item, bytes)]
    return {text(entry, 1): text(entry, 2) for entry in entries}


def _chunk(number: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    packed = bytearray()
    while value >= _MORE:
        packed.append(value & (_MORE - 1) | _MORE)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:  # noqa: PLR2004  the format's longest number has 64 bits
        byte = data[position]
        position += 1
        value |= (byte & (_MORE - 1)) << shift
        if byte < _MORE:
            return value, position
        shift += 7
    raise MalformedMessage("a number is cut short")
