"""Calls gRPC services on a Unix socket, with the time of each call taken at the socket, as for Docker's API.

gRPC's own library brings an event loop in threads, which gevent's patches break. Little of it is needed here: one
call at a time on each connection, over HTTP/2 (`the protocol
<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>`_; `bench_worker.engines.http2`).
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.http2 import Http2Connection, Http2Error, encode_headers
from bench_worker.timing.socket_stamps import SOCKET_ARRIVALS

_CHUNK_BYTES: Final = 1 << 16
_PREFIX: Final = struct.Struct(">BI")
"""What precedes each message: whether it is compressed, and its length."""

_PONG_NS: Final = 1_000_000_000
"""How often pings are answered on a connection, at most.

Go's services measure the network with a ping at each request that follows an answer. It would wake us up once more in
each call. A ping that checks whether we are alive comes after hours of silence, and is answered at once.
"""

TIMED_OUT: Final = 4
_NOT_FOUND: Final = 5
UNIMPLEMENTED: Final = 12
_INTERNAL: Final = 13
_UNAVAILABLE: Final = 14

KIND_BY_CODE: Final = {
    TIMED_OUT: "timeout",
    _NOT_FOUND: "not-found",
    6: "conflict",
    9: "conflict",
    UNIMPLEMENTED: "unsupported",
    _UNAVAILABLE: "unreachable",
}
"""The kind of failure (see `OperationFailed`) that a gRPC code means by itself."""
ERROR_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("unreachable", r"failed to dial|connection refused|error while dialing"),
        ("timeout", r"context deadline exceeded"),
        ("refused", r"rlimit"),
        ("disk-full", r"no space left on device|disk quota exceeded"),
        ("not-executable", r"exec:.*(permission denied|exec format error|is a directory)"),
        ("command-not-found", r"executable file not found|exec:.*no such file or directory"),
        ("image-missing", r"image .*not found"),
        ("conflict", r"is in CONTAINER_[A-Z]+ state|already exists|already finished"),
        ("conflict", r"cannot (pause|resume|exec)|must be stopped|not running"),
        ("not-found", r"not found"),
    )
)
"""What the messages of containerd and of CRI runtimes mean; most of their failures have the code UNKNOWN."""

Reply = TypeVar("Reply", bound=Message)


class GrpcError(Exception):
    """A call that failed: `code` is gRPC's, the message the service's own or why it could not be reached."""

    def __init__(self, code: int, message: str, *, start_ns: int, end_ns: int) -> None:
        super().__init__(message)
        self.code = code
        self.start_ns = start_ns
        self.end_ns = end_ns


class GrpcUnreachable(GrpcError):
    """A call to which nothing answered: there is no socket, nobody listens, or the connection broke."""

    def __init__(self, message: str, *, start_ns: int, end_ns: int) -> None:
        super().__init__(_UNAVAILABLE, message, start_ns=start_ns, end_ns=end_ns)


@dataclass(frozen=True, slots=True)
class GrpcReply(Generic[Reply]):
    """What a call returned, in nanoseconds of CLOCK_MONOTONIC."""

    messages: Sequence[Reply]
    """One message, or those of a stream."""
    start_ns: int
    """Just before the first byte of the request left."""
    end_ns: int
    """The latest instant at which the last byte of the reply can have arrived."""
    end_uncertainty_ns: int
    """How much earlier that may have been."""


class _Connection:
    """One connection, with one call on it at a time."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.http = Http2Connection()
        self.start_ns = 0
        """When the first byte of the present call left; 0 before that."""
        self._next_pong_ns = 0
        try:
            self.socket.settimeout(timeout_s)
            self.socket.connect(path)
        except BaseException:
            self.socket.close()
            raise

    def send(self, headers: bytes, requests: Iterable[Message], deadline: float) -> bool:
        """Send a call as fast as the service takes it; return False where it replies before all of it is sent."""
        http = self.http
        self.start_ns = 0
        http.begin(headers)
        waiting = iter(requests)
        request = next(waiting, None)
        while request is not None:
            following = next(waiting, None)
            message = request.SerializeToString()
            body = _PREFIX.pack(0, len(message)) + message
            while body := body[http.send(body, is_last=following is None) :]:
                self.flush()
                self.receive(deadline)
                if http.finished or http.broken:
                    return False
            request = following
        self.flush()
        return True

    def flush(self) -> None:
        """Send what is ready."""
        data = self.http.take_output()
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_pong_ns and (pongs := self.http.take_pongs()):
            data += pongs
            self._next_pong_ns = now_ns + _PONG_NS
        if data:
            self.start_ns = self.start_ns or now_ns
            self.socket.sendall(data)

    def receive(self, deadline: float) -> tuple[int, int]:
        """Wait for bytes and handle them; return the latest and the earliest instant of their arrival."""
        http = self.http
        self.socket.settimeout(max(0.001, deadline - time.monotonic()))
        with SOCKET_ARRIVALS.watch_socket(self.socket.fileno()) as arrival:
            data = self.socket.recv(_CHUNK_BYTES)
            read_ns = time.monotonic_ns()
            stamp = arrival.latest_at(read_ns, len(data)), arrival.earliest_at(read_ns)
        if not data:
            http.broken = "the service closed the connection"
            return stamp
        http.receive(data)
        if not http.finished:
            # After the reply nobody is in a hurry: the next call takes it along.
            self.flush()
        return stamp

    def is_open(self) -> bool:
        """Take in what came while the connection was idle; return whether the service still takes calls on it."""
        self.socket.settimeout(0)
        try:
            while data := self.socket.recv(_CHUNK_BYTES):
                self.http.receive(data)
        except BlockingIOError:
            return self.http.takes_calls
        except (OSError, Http2Error):
            return False
        return False

    def close(self) -> None:
        """Close it."""
        self.socket.close()


def _messages(body: bytearray, kind: type[Reply]) -> list[Reply]:
    """Return the messages of a reply; raise `DecodeError`."""
    found, position = [], 0
    while position + _PREFIX.size <= len(body):
        _, size = _PREFIX.unpack_from(body, position)
        position += _PREFIX.size
        if position + size > len(body):
            raise DecodeError("the message is truncated")
        message = kind()
        message.ParseFromString(bytes(body[position : position + size]))
        found.append(message)
        position += size
    return found


class GrpcChannel:
    """The services at a socket. Calls from several greenlets go over connections of their own.

    `package` precedes the name of each method; each call carries the headers `metadata`.
    """

    def __init__(self, path: str, package: str, metadata: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._package = package
        self._metadata = encode_headers((metadata or {}).items())
        self._headers: dict[str, bytes] = {}
        self._idle: list[_Connection] = []

    def call(
        self,
        method: str,
        requests: Iterable[Message],
        reply: type[Reply],
        *,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> GrpcReply[Reply]:
        """Call a method such as ``RuntimeService/Version`` and return its replies; raise `GrpcError`.

        There is one request, or those of a stream; all of them are sent before a reply is expected.
        """
        deadline = time.monotonic() + timeout_s
        path = f"/{self._package}.{method}"
        headers = (
            self._headers_of(path)
            + self._metadata
            + encode_headers((("grpc-timeout", f"{max(1, int(timeout_s * 1000))}m"), *metadata))
        )
        start_ns = begun_ns = time.monotonic_ns()
        connection: _Connection | None = None
        try:
            connection = self._idle_connection(timeout_s) or _Connection(self.path, timeout_s)
            sent = connection.send(headers, requests, deadline)
            start_ns = end_ns = earliest_ns = connection.start_ns
            http = connection.http
            while not http.finished and not http.broken:
                end_ns, earliest_ns = connection.receive(deadline)
        except TimeoutError as error:
            start_ns = _close_failed(connection, begun_ns)
            raise _error(TIMED_OUT, f"{path} did not answer within {timeout_s:.3g} s", start_ns) from error
        except (OSError, Http2Error) as error:
            start_ns = _close_failed(connection, begun_ns)
            text = f"{self.path}: {getattr(error, 'strerror', None) or error}"
            raise GrpcUnreachable(text, start_ns=start_ns, end_ns=time.monotonic_ns()) from error
        except BaseException:
            # This greenlet was killed in its wait: the next call would get this one's reply.
            _close_failed(connection, begun_ns)
            raise
        end_ns = max(start_ns, end_ns)
        if http.broken:
            connection.close()
            raise GrpcUnreachable(f"{self.path}: {http.broken}", start_ns=start_ns, end_ns=end_ns)
        if sent and http.takes_calls:
            self._idle.append(connection)
        else:
            connection.close()
        code = int(http.headers.get("grpc-status", "2"))
        if code:
            text = unquote(http.headers.get("grpc-message", "")) or f"{path} failed with gRPC code {code}"
            raise _error(code, text, start_ns, end_ns)
        try:
            messages = _messages(http.body, reply)
        except DecodeError as error:
            text = f"{self.path}: the reply to {path} is not valid: {error}"
            raise _error(_INTERNAL, text, start_ns, end_ns) from error
        return GrpcReply(messages, start_ns, end_ns, end_ns - max(start_ns, earliest_ns))

    def _headers_of(self, path: str) -> bytes:
        """Return the headers of each call of a method."""
        found = self._headers.get(path)
        if found is None:
            found = self._headers[path] = encode_headers(
                (
                    (":method", "POST"),
                    (":scheme", "http"),
                    (":path", path),
                    (":authority", "localhost"),
                    ("te", "trailers"),
                    ("content-type", "application/grpc"),
                )
            )
        return found

    def _idle_connection(self, timeout_s: float) -> _Connection | None:
        """Return a connection that the service has not closed; None where there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open():
                connection.socket.settimeout(timeout_s)
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close all connections that are not in use."""
        while self._idle:
            self._idle.pop().close()


@dataclass
class CallSequence:
    """The calls of one operation, which lasts from the first one's request to the last one's reply; one deadline."""

    channel: GrpcChannel
    timeout_s: float
    kinds: Sequence[tuple[str, re.Pattern[str]]] = ()
    """What messages mean that say more than gRPC's code."""
    metadata: Sequence[tuple[str, str]] = ()
    """Headers of each call, beside the channel's."""
    begun: float = field(default_factory=time.monotonic)
    """When its time began to run, in seconds of CLOCK_MONOTONIC."""
    start_ns: int = 0
    """When the first request left; 0 before that."""
    last_start_ns: int = 0
    """When the last request left."""
    end_ns: int = 0
    """When the last reply arrived."""
    end_uncertainty_ns: int = 0
    """How much earlier that may have been."""

    def call(self, method: str, request: Message, reply: type[Reply]) -> Reply:
        """Call a method and return its only reply; raise `OperationFailed`."""
        messages = self.stream(method, [request], reply)
        return messages[0] if messages else reply()

    def do(self, method: str, request: Message) -> None:
        """Call a method whose reply says nothing; raise `OperationFailed`."""
        self.call(method, request, Empty)

    def do_if_present(self, method: str, request: Message) -> None:
        """Call a method that removes something; it is no error if that is gone already."""
        with suppress(NotFound):
            self.do(method, request)

    def stream(self, method: str, requests: Iterable[Message], reply: type[Reply]) -> Sequence[Reply]:
        """Call a method with one request or several and return all of its replies; raise `OperationFailed`."""
        left_s = self.remaining_s()
        try:
            got = self.channel.call(method, requests, reply, timeout_s=left_s, metadata=self.metadata)
        except GrpcError as error:
            self.start_ns = self.start_ns or error.start_ns
            self.end_ns = max(error.end_ns, self.start_ns)
            raise self._failed(error) from error
        self.start_ns = self.start_ns or got.start_ns
        self.last_start_ns, self.end_ns = got.start_ns, got.end_ns
        self.end_uncertainty_ns = got.end_uncertainty_ns
        return got.messages

    def result(self, **values: Any) -> OperationResult:
        """Return the operation as finished, with its times and `values`."""
        now_ns = time.monotonic_ns()
        if not self.start_ns:
            return OperationResult(now_ns, now_ns, **values)
        return OperationResult(self.start_ns, self.end_ns, end_uncertainty_ns=self.end_uncertainty_ns, **values)

    def failure(self, kind: str, text: str) -> OperationFailed:
        """Return a failure of this operation that happens now."""
        now_ns = time.monotonic_ns()
        return OperationFailed(kind, text, start_ns=self.start_ns or now_ns, end_ns=now_ns)

    def remaining_s(self) -> float:
        """Return the time left in seconds; raise the failure ``timeout`` when there is none."""
        left_s = self.begun + self.timeout_s - time.monotonic()
        if left_s <= 0:
            raise self.failure("timeout", f"the operation did not finish within {self.timeout_s:.3g} s")
        return left_s

    def _failed(self, error: GrpcError) -> OperationFailed:
        text = str(error)
        if isinstance(error, GrpcUnreachable):
            return OperationFailed("unreachable", text, start_ns=self.start_ns, end_ns=self.end_ns)
        kind = kind_of_message(text, self.kinds) or KIND_BY_CODE.get(error.code) or kind_of_message(text) or "engine"
        failure = NotFound if error.code == _NOT_FOUND or kind == "not-found" else OperationFailed
        return failure(kind, text, start_ns=self.start_ns, end_ns=self.end_ns)


class NotFound(OperationFailed):
    """An operation on something that does not exist."""


def kind_of_message(text: str, kinds: Sequence[tuple[str, re.Pattern[str]]] = ERROR_KINDS) -> str:
    """Return the kind of failure that a message means; empty where no pattern matches."""
    return next((kind for kind, pattern in kinds if pattern.search(text)), "")


def _error(code: int, text: str, start_ns: int, end_ns: int = 0) -> GrpcError:
    return GrpcError(code, text, start_ns=start_ns, end_ns=end_ns or time.monotonic_ns())


def _close_failed(connection: _Connection | None, begun_ns: int) -> int:
    """Close the connection of a failed call; return when the first byte of that left, or else when it began."""
    if connection is None:
        return begun_ns
    connection.close()
    return connection.start_ns or begun_ns
