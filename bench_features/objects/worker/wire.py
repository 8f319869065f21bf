"""The HTTP/1.1 client of object stores: lean, keep-alive, stamped by the kernel, with one deadline for a request.

A `Wire` is a place (scheme, host, port), a `Connection` one user's connection to it, which opens itself when there is
something to send. An exchange sends head and body together, and reads the answer into a buffer of its own: bodies go
to a sink piece by piece and are never kept whole.

Stamps are nanoseconds of CLOCK_MONOTONIC: the start is taken just before connecting or sending, first and last byte
by the kernel as they come in (`bench_worker.timing.kernel_stamps`), however late the loop is. One sweeper per process
ends the exchanges that are past their deadline, so an exchange costs no timer.

A server may close an idle connection at any time. Where it had done so before a request arrived, the request is sent
once more on a new connection and no failure is told of.
"""

from __future__ import annotations

import _socket
import errno
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, Final
from urllib.parse import urlsplit

import gevent
from gevent import get_hub

from bench_common.errors import UsageError
from bench_features.objects.worker.connection import FIRST_READ_BYTES, TcpConnection, start_connecting
from bench_features.objects.worker.tls import TlsConnection, tls_context
from bench_features.objects.worker.wire_errors import KINDS, Ended, WireError, failure_of
from bench_worker.http import (
    CHUNKED,
    HEAD_LIMIT_BYTES,
    ChunkDecoder,
    ProtocolError,
    body_of,
    fields_of,
    find_head_end,
    normal_head,
    status_of,
)
from bench_worker.timing.kernel_stamps import RECEIVE_CLOCK

__all__ = ["KINDS", "Answer", "Connection", "Request", "Wire", "WireError"]

BUFFER_BYTES: Final = 64 * 1024
"""The memory of a connection, and the largest piece that a sink gets."""
KEPT_BYTES: Final = 1 << 20
"""How much of a body is kept where there is no sink, or the answer is no success."""
_SMALL_BODY_BYTES: Final = 32 * 1024
"""A body up to this size is copied behind its head, which is cheaper than two pieces."""
_BURST_BYTES: Final = 4 << 20
"""After so much received without a wait, others get their turn."""
_HTTP: Final = b"HTTP/"
_SHOWN_BYTES: Final = 40
"""How much is shown of what is no answer."""
_IDLE_NS: Final = 1_000_000_000
"""No server closes a connection that was used more recently for being idle."""
_SWEEP_S: Final = 0.05
_PORTS: Final = {"http": 80, "https": 443}
_WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH"})
_SWITCHING: Final = 101
_FINAL: Final = 200
_REDIRECTED: Final = 300


@dataclass(slots=True)
class Request:
    """What is asked for."""

    method: str
    """GET, PUT, ..."""
    target: str
    """Path and query, quoted."""
    headers: bytes = b""
    """Complete lines; Host and Content-Length are added."""
    body: Sequence[memoryview | bytes] = ()
    """The content, in pieces of bytes; it is sent from where it lies."""
    sink: Callable[[memoryview], None] | None = None
    """Gets each piece of a success's body, valid during the call only; None: the first MiB is kept."""


_SEARCHES: Final[dict[bytes, Callable[[bytes], re.Match[bytes] | None]]] = {}
"""What finds a field in a head, by its name: a program asks for few of them."""


@dataclass(slots=True)
class Answer:
    """What came back. Instants are nanoseconds of CLOCK_MONOTONIC."""

    status: int
    head: bytes
    """The head as it came, with CRLF after each line."""
    body: bytes
    """What was kept of the body: nothing where a sink got it, else 1 MiB at most."""
    received: int
    """Bytes of the body."""
    start_ns: int
    """When the exchange began: before it connected, else before it sent its first byte."""
    first_ns: int
    """When the first byte arrived (of a GET; otherwise with `first_uncertainty_ns`)."""
    last_ns: int
    """When the last byte arrived."""
    first_uncertainty_ns: int
    """The first byte arrived at most this long before `first_ns`."""
    last_uncertainty_ns: int
    """The last byte arrived at most this long before `last_ns`."""
    connect_ns: int
    """How much of the exchange was spent on connecting; 0: the connection was there."""
    retried_idle: bool
    """Whether it was sent again since the server had closed the idle connection before."""
    _headers: dict[bytes, bytes] | None = field(default=None, repr=False)

    def field(self, name: bytes) -> bytes:
        """Return one field of the head by its name, empty where there is none: cheaper than `headers` for a few."""
        search = _SEARCHES.get(name)
        if search is None:
            pattern = rb"(?i)\n" + re.escape(name) + rb"[ \t]*:[ \t]*([^\r\n]*)"
            search = _SEARCHES[name] = re.compile(pattern).search
        found = search(self.head)
        return found[1].rstrip() if found else b""

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The fields of the head by their names in lower case."""
        if self._headers is None:
            self._headers = fields_of(self.head)
        return self._headers


class Wire:
    """A place that answers HTTP, such as ``https://store:8080``; a path in the URL is not used here.

    Raises `UsageError` for a URL that is none, has a user in it, or another scheme than http and https.
    """

    def __init__(
        self, url: str, *, verify: bool = True, ca_file: str | None = None, block_bytes: int = BUFFER_BYTES
    ) -> None:
        self.block_bytes = block_bytes
        """How much of a body is received at once."""
        self.scheme, self.host, self.port = _place(url)
        default = self.port == _PORTS[self.scheme]
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = host if default else f"{host}:{self.port}"
        """What the Host header says, which some signatures cover."""
        self.name = f"{host}:{self.port}"
        self.tls = tls_context(ca_file, verify=verify) if self.scheme == "https" else None
        self._connections: list[Connection] = []
        self._addresses: list[tuple[int, Any]] = []

    def make(self, sock: _socket.socket) -> TcpConnection:
        """Return what speaks over a socket."""
        return TcpConnection(sock) if self.tls is None else TlsConnection(sock, self.tls, self.host)

    def connection(self) -> Connection:
        """Return a connection, which opens with its first exchange."""
        made = Connection(self)
        self._connections.append(made)
        _SWEEPER.add(made)
        return made

    def close(self) -> None:
        """Close every connection."""
        while self._connections:
            self._connections[-1].close()

    def forget(self, connection: Connection) -> None:
        """Let go of a connection that is closed for good."""
        _SWEEPER.remove(connection)
        if connection in self._connections:
            self._connections.remove(connection)

    def addresses(self, deadline_ns: int) -> list[tuple[int, Any]]:
        """Return the families and addresses of the place, in the resolver's order; they are looked up once.

        Raises `OSError`: `socket.gaierror` for a name that has none, `TimeoutError` past the deadline.
        """
        if not self._addresses:
            found: Any
            try:
                numeric = socket.AI_NUMERICHOST
                found = _socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM, 0, numeric)
            except socket.gaierror:
                left_s = max(0.001, (deadline_ns - monotonic_ns()) / 1e9)
                with gevent.Timeout(left_s, TimeoutError(f"no address of {self.host} in {left_s:.3g} s")):
                    found = get_hub().resolver.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)
            self._addresses = [(family, address) for family, _, _, _, address in found]
        return self._addresses

    def forget_addresses(self) -> None:
        """Look the place up anew when it is connected to next."""
        self._addresses = []


class Connection:
    """One user's connection to a place, for one exchange at a time."""

    __slots__ = (
        "_begun",
        "_block",
        "_buffer",
        "_connect_ns",
        "_got",
        "_more_waits",
        "_tail",
        "_tcp",
        "_used_ns",
        "_view",
        "_wire",
        "deadline_ns",
        "expired",
    )

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._tail = f" HTTP/1.1\r\nHost: {wire.authority}\r\n"
        self._tcp: TcpConnection | None = None
        self._buffer = bytearray(max(BUFFER_BYTES, wire.block_bytes))
        self._view = memoryview(self._buffer)
        self._block = self._view[: wire.block_bytes]
        self._begun = self._more_waits = False
        self._connect_ns = self._got = self._used_ns = 0
        self.deadline_ns = 0
        """When the exchange in progress has to be over; 0: there is none."""
        self.expired = False

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._tcp is not None

    def drop(self) -> None:
        """Close the connection; the next exchange opens another."""
        if self._tcp is not None:
            self._tcp.close()
            self._tcp = None

    def close(self) -> None:
        """Close the connection for good."""
        if self.deadline_ns:
            self.abort()
        else:
            self.drop()
        self._wire.forget(self)

    def abort(self) -> None:
        """End the exchange in progress, whose deadline has passed. For the sweeper."""
        self.expired = True
        if self._tcp is not None:
            self._tcp.abort()

    def connect(self, deadline_ns: int) -> tuple[int, int]:
        """Open the connection where it is not; return when that began and ended. Raises `WireError`."""
        start_ns = monotonic_ns()
        self._begin(deadline_ns)
        try:
            if self._tcp is None:
                self._open()
        except Exception as error:
            raise self._failure(error, start_ns) from error
        finally:
            self.deadline_ns = 0
        return start_ns, monotonic_ns()

    def exchange(self, request: Request, deadline_ns: int) -> Answer:
        """Send a request and return its answer, whatever its status; raise `WireError` where there is none.

        `deadline_ns` (CLOCK_MONOTONIC) holds for connecting, sending and the whole answer.
        """
        head, body = self._request_bytes(request)
        if self._tcp is not None and self._tcp.counted < 0 and request.method == "GET":
            self._tcp.count_segments()
        start_ns = monotonic_ns()
        self._begin(deadline_ns)
        retried = done = False
        try:
            while True:
                reused = self._tcp is not None
                tcp = self._tcp or self._open()
                before = tcp.sent_bytes
                try:
                    whole = _send_large(tcp, head, body) if body else tcp.send(head)
                    answer = self._read_answer(tcp, request, start_ns)
                except (Ended, ConnectionError) as error:
                    if not reused or not self._had_been_closed(tcp, before, error, start_ns):
                        raise
                    self.drop()
                    retried = True
                    continue
                if not whole:
                    self.drop()  # the server would take the next request for what is left of the body
                answer.retried_idle = retried
                self._used_ns = answer.last_ns
                done = True
                return answer
        except (OSError, Ended, ProtocolError) as error:
            raise self._failure(error, start_ns) from error
        finally:
            self.deadline_ns = 0
            if not done:
                self.drop()

    def _begin(self, deadline_ns: int) -> None:
        if self.deadline_ns:
            raise RuntimeError("a connection is for one exchange at a time")
        self.deadline_ns = deadline_ns
        self.expired = self._begun = False
        self._connect_ns = self._got = 0

    def _had_been_closed(self, tcp: TcpConnection, before: int, error: Exception, start_ns: int) -> bool:
        """Say whether the server had closed the connection before a request, of which nothing came back, arrived.

        It acknowledged nothing then. Nor has it always of what it did read, if it resets the connection at once; so
        a reset counts as a failure, but for one of a connection that nobody had used for a while.
        """
        if self._begun or self.expired or not tcp.closed_before(before, start_ns):
            return False
        return not isinstance(error, ConnectionResetError) or start_ns - self._used_ns > _IDLE_NS

    def _request_bytes(self, request: Request) -> tuple[bytes, Sequence[memoryview | bytes]]:
        """Return what goes out first, and the pieces of a body that is too large to be copied behind it."""
        target, body = request.target, request.body
        if not target.isprintable() or " " in target:
            raise ValueError(f"a target has to be quoted: {target!r}")
        head = f"{request.method} {target}{self._tail}".encode("ascii") + request.headers
        if not body:
            return head + (b"Content-Length: 0\r\n\r\n" if request.method in _WITH_BODY else b"\r\n"), ()
        length = sum(map(len, body))
        head += b"Content-Length: %d\r\n\r\n" % length
        return (head, body) if length > _SMALL_BODY_BYTES else (b"".join((head, *body)), ())

    def _read_head(self, tcp: TcpConnection, start_ns: int, *, timed: bool) -> tuple[bytes, int, int, int]:
        """Return the head of the answer, its status, where its body begins in the buffer, and how much is there."""
        view, buffer = self._view, self._buffer
        have = size = 0
        self._more_waits = False
        while True:
            while not size:
                have += self._read_more(tcp, have, start_ns, timed=timed)
                size = find_head_end(buffer, have)
            head = normal_head(bytes(view[:size]))
            status = status_of(head)
            if status >= _FINAL:
                return head, status, size, have
            if status == _SWITCHING:
                raise ProtocolError("the server switches to a protocol that nobody asked for")
            have -= size
            view[:have] = bytes(view[size : size + have])
            size = find_head_end(buffer, have)

    def _read_more(self, tcp: TcpConnection, have: int, start_ns: int, *, timed: bool) -> int:
        """Read more of a head of which `have` bytes are there; return how many."""
        if have > HEAD_LIMIT_BYTES:
            raise ProtocolError(f"the head of the answer is longer than {HEAD_LIMIT_BYTES} bytes")
        if not self._more_waits:
            tcp.wait_readable()
        if have:
            count = tcp.receive(self._view[have:])
            self._more_waits = False
        elif timed:
            count = tcp.receive_first(self._view)
            self._more_waits = count == FIRST_READ_BYTES
        else:
            count = tcp.receive(self._view)
            tcp.first_ns = tcp.stamp_ns
        if not count:
            if have and not (begin := bytes(self._view[: min(have, _SHOWN_BYTES)])).startswith(_HTTP[:have]):
                raise ProtocolError(f"it sent {have} bytes that begin with {begin!r}, and closed the connection")
            raise Ended
        if not have:
            if tcp.first_ns + tcp.late_ns < start_ns and not self._connect_ns:
                raise Ended  # sent before anything was asked: a server's farewell to an idle connection
            self._begun = True
        return count

    def _read_answer(self, tcp: TcpConnection, request: Request, start_ns: int) -> Answer:
        method, view = request.method, self._view
        timed = method == "GET"
        head, status, size, have = self._read_head(tcp, start_ns, timed=timed)
        first_ns, first_late_ns = tcp.first_ns, tcp.first_late_ns
        first_ns = max(first_ns, start_ns)
        last_ns, last_late_ns = max(tcp.stamp_ns, first_ns), tcp.late_ns
        if not timed:
            first_late_ns = first_ns - start_ns
            tcp.counted = -1
        else:
            apart = last_ns - first_ns > first_late_ns + last_late_ns
            if tcp.count_segments() != 1 + apart:
                # More segments than stamps: the kernel may have merged the first ones, and kept the last one's stamp.
                first_late_ns = min(first_ns - start_ns, max(first_late_ns, first_ns - RECEIVE_CLOCK.earliest_ns()))
        length, kept = body_of(head, status, bodiless=method == "HEAD")
        body = b""
        self._got = got = have - size
        if length or got:
            sink = request.sink
            if sink is None or status >= _REDIRECTED:
                if 0 <= length == got <= KEPT_BYTES:
                    body = bytes(view[size:have])  # most answers without a sink end here
                else:
                    pieces: list[bytes] = []
                    kept = self._read_body(tcp, view[size:have], length, _keep_in(pieces)) and kept
                    body = b"".join(pieces)
            else:
                kept = self._read_body(tcp, view[size:have], length, sink) and kept
            if tcp.stamp_ns > last_ns:
                tcp.counted = -1
                last_ns, last_late_ns = tcp.stamp_ns, tcp.late_ns
        if not kept:
            self.drop()
        return Answer(
            status,
            head,
            body,
            self._got,
            start_ns,
            first_ns,
            last_ns,
            first_late_ns,
            min(last_late_ns, last_ns - start_ns),
            self._connect_ns,
            False,
        )

    def _read_body(
        self, tcp: TcpConnection, begin: memoryview, length: int, sink: Callable[[memoryview], object]
    ) -> bool:
        """Give a body to a sink, whose first bytes are there; say whether the connection is still of use."""
        if length >= 0:
            self._read_length(tcp, begin, length, sink)
            return True
        if length == CHUNKED:
            return self._read_chunks(tcp, begin, sink)
        view, count = self._block, 1
        if begin:
            sink(begin)
        while count:
            tcp.wait_readable()
            count = tcp.receive(view)
            if count:
                self._got += count
                sink(view[:count])
        return False

    def _read_length(
        self, tcp: TcpConnection, begin: memoryview, length: int, sink: Callable[[memoryview], object]
    ) -> None:
        view, got = self._block, self._got
        if got > length:
            raise ProtocolError(f"the server sent {got - length} bytes more than the {length} of its Content-Length")
        if got:
            sink(begin)
        burst, filled = 0, False
        while got < length:
            if not filled:
                tcp.wait_readable()
            into = view if length - got >= len(view) else view[: length - got]
            count = tcp.receive(into)
            if not count:
                raise Ended(length)
            self._got = got = got + count
            sink(into[:count])
            burst = burst + count if (filled := count == len(into)) and burst < _BURST_BYTES else 0
            filled = burst > 0

    def _read_chunks(self, tcp: TcpConnection, begin: memoryview, sink: Callable[[memoryview], object]) -> bool:
        decoder, data = ChunkDecoder(), begin
        self._got = 0
        while True:
            used = decoder.feed(data, sink) if data else 0
            self._got = decoder.received
            if decoder.done:
                return used == len(data)
            tcp.wait_readable()
            count = tcp.receive(self._block)
            if not count:
                raise Ended
            data = self._block[:count]

    def _open(self) -> TcpConnection:
        """Connect to the first address of the place that takes it. Raises `OSError`."""
        begun_ns = monotonic_ns()
        failure: OSError = OSError(errno.EADDRNOTAVAIL, "the name has no address")
        for family, address in self._wire.addresses(self.deadline_ns):
            try:
                self._tcp = tcp = start_connecting(family, address, self._wire.make)
                tcp.wait_connected()
                tcp.greet()
            except OSError as error:
                self.drop()
                failure = error
            else:
                self._connect_ns += max(1, monotonic_ns() - begun_ns)
                return tcp
            if self.expired:
                break
        self._wire.forget_addresses()
        raise failure

    def _failure(self, error: Exception, start_ns: int) -> WireError:
        name, got, begun = self._wire.name, self._got, self._begun
        return failure_of(error, name, start_ns=start_ns, got=got, answer_begun=begun, expired=self.expired)


class _Sweeper:
    """Ends the exchanges that are past their deadline: one timer for all connections of the process."""

    def __init__(self) -> None:
        self._connections: set[Connection] = set()
        self._timer: Any = None

    def add(self, connection: Connection) -> None:
        """Look after a connection."""
        self._connections.add(connection)
        if self._timer is None:
            self._timer = get_hub().loop.timer(_SWEEP_S, _SWEEP_S, ref=False)
            self._timer.start(self._sweep)

    def remove(self, connection: Connection) -> None:
        """Look after it no longer."""
        self._connections.discard(connection)
        if not self._connections and self._timer is not None:
            self._timer.close()
            self._timer = None

    def _sweep(self) -> None:
        now_ns = monotonic_ns()
        for connection in self._connections:
            if 0 < connection.deadline_ns < now_ns and not connection.expired:
                connection.abort()


_SWEEPER: Final = _Sweeper()


def _send_large(tcp: TcpConnection, head: bytes, body: Sequence[memoryview | bytes]) -> bool:
    """Send a head and a body from where it lies; say whether all went out."""
    before = tcp.sent_bytes
    try:
        return tcp.send_parts((head, *body))
    except ConnectionError:
        # A server may refuse a large body with an answer and close the connection: then the answer is there to read.
        if tcp.sent_bytes == before:
            raise
        return False


def _keep_in(pieces: list[bytes]) -> Callable[[memoryview], None]:
    """Return a sink that keeps the beginning of a body."""
    left = KEPT_BYTES

    def keep(piece: memoryview) -> None:
        nonlocal left
        if left:
            pieces.append(bytes(piece[:left]))
            left -= len(pieces[-1])

    return keep


def _place(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL."""
    wanted = "expected http://HOST[:PORT] or https://HOST[:PORT]"
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
        secret = parts.username is not None or parts.password is not None
    except ValueError as error:
        raise UsageError(f"a store's URL cannot be understood ({error}); {wanted}") from None
    if secret:
        raise UsageError(f"the URL of {host} has a user in it, which any list of processes shows; give it by itself")
    if scheme not in _PORTS or not host:
        raise UsageError(f"{url!r} is no URL of a store; {wanted}")
    return scheme, host, port or _PORTS[scheme]
