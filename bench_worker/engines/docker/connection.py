"""One connection to a Docker Engine and the answers on it, read without a layer that costs more than a system call.

Sockets are the plain ones of the C library, with watchers of the gevent loop that live as long as the connection: a
request is one system call, a wait two (for the loop), and the head of an answer is looked at, not taken apart. What
is timed, and until when somebody waits, is in the request (`bench_worker.engines.docker.http.TimedRequest`).
"""

from __future__ import annotations

import _socket
import select
import socket
from typing import TYPE_CHECKING, Any, Final

from gevent import get_hub, getcurrent
from gevent.monkey import get_original

from bench_worker.http import (
    CHUNKED,
    HEAD_LIMIT_BYTES,
    ChunkDecoder,
    ProtocolError,
    body_of,
    find_head_end,
    status_of,
)
from bench_worker.timing.socket_stamps import SOCKET_ARRIVALS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from bench_worker.engines.docker.http import TimedRequest

_READ: Final = 1
_WRITE: Final = 2
_PIECE_BYTES: Final = 64 * 1024
_CONTINUE: Final = 100
ANSWER_LIMIT_BYTES: Final = 32 << 20
"""A longer answer is refused where it is wanted whole: a list of ten thousand containers has a fifth of that."""
LINE_LIMIT_BYTES: Final = 1 << 20
"""A longer line of an answer that is read by lines is refused."""

_poll: Any = get_original("select", "poll")


class Connection:
    """A connection that is open; for one request at a time."""

    def __init__(self, opened: socket.socket) -> None:
        self._sock = _socket.socket(fileno=opened.detach())
        self._sock.setblocking(False)
        self._fd = self._sock.fileno()
        self._hub: Any = get_hub()
        self._readable: Any = self._hub.loop.io(self._fd, _READ)

    def close(self) -> None:
        """Close it."""
        self._readable.close()
        self._sock.close()

    def adopt(self) -> None:
        """Let the thread that calls use it: each has a loop of its own where nothing is patched."""
        hub: Any = get_hub()
        if hub is not self._hub:
            self._readable.close()
            self._hub, self._readable = hub, hub.loop.io(self._fd, _READ)

    def is_quiet(self) -> bool:
        """Say whether there is nothing to read where nothing was asked: the end, as a rule. Never waits."""
        poll = _poll()
        poll.register(self._fd, select.POLLIN)
        return not poll.poll(0)

    def send(self, data: bytes, timed: TimedRequest) -> None:
        """Send all of it before the deadline."""
        timed.note_sent()
        sent = self._send(data)
        if sent < len(data):
            writable = self._hub.loop.io(self._fd, _WRITE)
            try:
                while sent < len(data):
                    self._wait(writable, timed)
                    sent += self._send(memoryview(data)[sent:])
            finally:
                writable.close()

    def receive(self, timed: TimedRequest) -> bytes:
        """Return what comes in next, nothing at the end of the connection; note when it came."""
        with SOCKET_ARRIVALS.watch_socket(self._fd) as arrival:
            if arrival.expected_ns:
                self._wait(self._readable, timed)
            while True:
                try:
                    data = self._sock.recv(_PIECE_BYTES)
                except BlockingIOError:
                    self._wait(self._readable, timed)
                else:
                    timed.note_received(arrival, len(data))
                    return data

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0

    def _wait(self, watcher: Any, timed: TimedRequest) -> None:
        # What `gevent.Timeout` and `Hub.wait` do, without their objects, which cost more than the wait itself.
        me = getcurrent()
        timer = self._hub.loop.timer(timed.remaining_s())
        watcher.start(me.switch)
        timer.start(me.throw, TimeoutError, update=True)  # the loop's clock stood while it did not run
        try:
            self._hub.switch()
        finally:
            watcher.stop()
            timer.stop()
            timer.close()


class TlsConnection(Connection):
    """A connection through TLS, whose layer waits by itself."""

    def __init__(self, opened: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._tls = context.wrap_socket(opened, server_hostname=host)
        self._fd = self._tls.fileno()

    def close(self) -> None:
        """Close it."""
        self._tls.close()

    def adopt(self) -> None:
        """Let the thread that calls use it: it waits by no loop of its own."""

    def send(self, data: bytes, timed: TimedRequest) -> None:
        """Send all of it before the deadline."""
        self._tls.settimeout(timed.remaining_s())
        timed.note_sent()
        self._tls.sendall(data)

    def receive(self, timed: TimedRequest) -> bytes:
        """Return what comes in next, nothing at the end of the connection; note when it came."""
        self._tls.settimeout(timed.remaining_s())
        with SOCKET_ARRIVALS.watch_socket(self._fd) as arrival:
            data = self._tls.recv(_PIECE_BYTES)
            timed.note_received(arrival, len(data))
        return data


class Answer:
    """The answer to a request, whose head has come in: its body is read as it comes, or whole.

    One to HEAD is `bodiless`, whatever length it tells.

    Raises `ProtocolError` for what is not HTTP/1.1, and `ConnectionError` where the connection ends before it does.
    """

    def __init__(self, connection: Connection, timed: TimedRequest, *, bodiless: bool = False) -> None:
        self._connection = connection
        self._timed = timed
        self.status = _CONTINUE
        data = b""
        while self.status == _CONTINUE:
            self.head, data = self._read_head(data)
            self.status = status_of(self.head)
        length, self._keeps = body_of(self.head, self.status, bodiless=bodiless)
        self._chunks = ChunkDecoder() if length == CHUNKED else None
        self._missing = length
        """How many bytes of the body have not come in; negative: nobody knows."""
        self._buffer = bytearray()
        self._ended = length == 0
        self._add(data)

    @property
    def reusable(self) -> bool:
        """Whether it was received to its end, after which its connection is of use for another request."""
        return self._ended and self._keeps

    def read(self, amount: int = -1) -> bytes:
        """Return so many bytes of the body, fewer only at its end; all that is left without an amount.

        All that is left may be `ANSWER_LIMIT_BYTES` at most, and is not waited for where it is said to be more.
        """
        while not self._ended and (amount < 0 or len(self._buffer) < amount):
            if amount < 0 and max(self._missing, 0) + len(self._buffer) > ANSWER_LIMIT_BYTES:
                raise ProtocolError(f"the engine's answer is longer than {ANSWER_LIMIT_BYTES >> 20} MiB")
            self._receive()
        return self._take(len(self._buffer) if amount < 0 else amount)

    def readline(self) -> bytes:
        """Return the next line of the body with its end, nothing at the end of the body."""
        end = self._buffer.find(b"\n")
        while end < 0 and not self._ended:
            seen = len(self._buffer)
            if seen > LINE_LIMIT_BYTES:
                raise ProtocolError(f"a line of the engine's answer is longer than {LINE_LIMIT_BYTES >> 20} MiB")
            self._receive()
            end = self._buffer.find(b"\n", seen)
        return self._take(end + 1 if end >= 0 else len(self._buffer))

    def __iter__(self) -> Iterator[bytes]:
        """Return the lines of the body."""
        return iter(self.readline, b"")

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _receive(self) -> None:
        data = self._connection.receive(self._timed)
        if data:
            self._add(data)
        elif self._chunks is None and self._missing < 0:
            self._ended = True
        else:
            raise ConnectionAbortedError("the engine closed the connection in the middle of an answer")

    def _add(self, data: bytes) -> None:
        """Add what has come in of the body."""
        if self._chunks is not None:
            used = self._chunks.feed(memoryview(data), self._buffer.extend)
            self._ended = self._chunks.done
            excess = len(data) - used
        else:
            self._buffer += data
            excess = 0
            if self._missing >= 0:
                self._missing -= len(data)
                self._ended, excess = self._missing <= 0, -self._missing
        if excess > 0:
            raise ProtocolError(f"the engine sent {excess} bytes more than its answer has")

    def _read_head(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the next head, and what has come in of what follows it."""
        while not (end := find_head_end(data, len(data))):
            if len(data) > HEAD_LIMIT_BYTES:
                raise ProtocolError(f"the head of the answer is longer than {HEAD_LIMIT_BYTES} bytes")
            more = self._connection.receive(self._timed)
            if not more:
                raise ConnectionResetError("the engine closed the connection without an answer")
            data += more
        return data[:end], data[end:]


def open_unix(path: str, timeout_s: float) -> Connection:
    """Connect to a Unix socket."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.settimeout(timeout_s)
        opened.connect(path)
    except OSError:
        opened.close()
        raise
    return Connection(opened)


def open_tcp(host: str, port: int, timeout_s: float, tls: ssl.SSLContext | None) -> Connection:
    """Connect to a port, through TLS if there is a context for it."""
    opened = socket.create_connection((host, port), timeout_s)
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(opened) if tls is None else TlsConnection(opened, tls, host)
    except BaseException:
        opened.close()
        raise
