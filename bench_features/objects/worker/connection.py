"""One TCP connection to a store, without blocking: what goes out, what comes in, and when the kernel received it.

Sockets are the plain ones of the C library, with watchers of the gevent loop: no layer is between a request and its
system call. Each wait ends when the sweeper of `wire` shuts the socket down at its deadline.
"""

from __future__ import annotations

import _socket
import errno
import os
import re
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Final

from gevent import get_hub, getcurrent

from bench_worker.timing.kernel_stamps import ANCILLARY_BYTES, RECEIVE_CLOCK, enable_stamps

_READ: Final = 1
_WRITE: Final = 2
_PARTS_AT_ONCE: Final = 64
"""How many pieces of a body one system call gets; the kernel takes up to 1,024."""
_TCP_INFO: Final = struct.Struct("@120xQ24xI")
"""Of `struct tcp_info` (linux/tcp.h, since Linux 4.6): tcpi_bytes_acked and tcpi_data_segs_in."""
FIRST_READ_BYTES: Final = 96
"""The kernel's stamp is that of the last segment that a read touches: the first byte needs a read of its own."""
_PEEK_BYTES: Final = 10
_NO_TCP_INFO: Final = (OSError, AttributeError, struct.error)
"""What asking for it raises where the kernel has none, or a shorter one."""
_INTERIM: Final = re.compile(rb"HTTP/1\.\d 1")
_BURST_BYTES: Final = 8 << 20
"""After so much sent or received without a wait, others get their turn."""


class TcpConnection:
    """An open connection. After `receive`, `stamp_ns` is when the last of the bytes arrived (or `late_ns` earlier).

    After `receive_first`, `first_ns` and `first_late_ns` are the same of the first byte.
    """

    __slots__ = (
        "_hub",
        "_readable",
        "_sock",
        "_writable",
        "counted",
        "first_late_ns",
        "first_ns",
        "late_ns",
        "sent_bytes",
        "stamp_ns",
    )

    def __init__(self, sock: _socket.socket) -> None:
        self._sock = sock
        self._hub: Any = get_hub()
        loop: Any = self._hub.loop
        self._readable = loop.io(sock.fileno(), _READ)
        self._writable = loop.io(sock.fileno(), _WRITE)
        enable_stamps(sock)
        self.sent_bytes = 0
        self.counted = 0
        """Segments with data that had come in; -1: not counted since the last of them."""
        self.stamp_ns = self.late_ns = 0
        self.first_ns = self.first_late_ns = 0

    def close(self) -> None:
        """Close it."""
        self._readable.close()
        self._writable.close()
        self._sock.close()

    def abort(self) -> None:
        """End every wait for it: reads find its end, writes fail. From any greenlet."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def greet(self) -> None:
        """Do what comes before the first request."""

    def _wait(self, watcher: Any) -> None:
        # What `Hub.wait` does, without its waiter, which costs more than the wait itself: no other watcher and nobody
        # else switches to a greenlet that is in here, except with an exception.
        watcher.start(getcurrent().switch)
        try:
            self._hub.switch()
        finally:
            watcher.stop()

    def wait_connected(self) -> None:
        """Wait until it is connected; raise `OSError` where it is not to be."""
        self._wait(self._writable)
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, errno.errorcode.get(code, "?"))

    def wait_readable(self) -> None:
        """Wait until there is something to read, or the end."""
        self._wait(self._readable)

    def send(self, data: bytes) -> bool:
        """Send one piece; say whether all of it went out, as `send_parts` does."""
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        self.sent_bytes += sent
        if sent < len(data):
            self._wait(self._writable)
            return TcpConnection.send_parts(self, (memoryview(data)[sent:],))
        return True

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> bool:
        """Send pieces in order, as many as fit with one system call; say whether all went out.

        False where the server answers before it has got everything: there is something to read.
        """
        at = burst = 0
        left: list[bytes | memoryview] = []
        while True:
            if len(left) < _PARTS_AT_ONCE // 2 and at < len(parts):
                left += parts[at : at + _PARTS_AT_ONCE]
                at += _PARTS_AT_ONCE
            if not left:
                return True
            try:
                sent = self._sock.sendmsg(left)
            except BlockingIOError:
                if self._answers_early():
                    return False
                burst = 0
                continue
            self.sent_bytes += sent
            burst += sent
            left = _after(left, sent)
            if burst > _BURST_BYTES:
                burst = 0
                self._wait(self._writable)

    def receive(self, into: memoryview) -> int:
        """Read what is there, or wait for something; return how many bytes, 0 at the end."""
        while True:
            try:
                count, ancillary, _, _ = self._sock.recvmsg_into((into,), ANCILLARY_BYTES)
            except BlockingIOError:
                self._wait(self._readable)
            else:
                break
        now_ns = monotonic_ns()
        stamp_ns = RECEIVE_CLOCK.stamp(ancillary, now_ns) if ancillary else 0
        if stamp_ns:
            self.stamp_ns = stamp_ns
            self.late_ns = RECEIVE_CLOCK.uncertainty_ns
        elif count:
            self.stamp_ns = now_ns
            self.late_ns = max(0, now_ns - RECEIVE_CLOCK.earliest_ns())
        return count

    def receive_first(self, view: memoryview) -> int:
        """Read the beginning of an answer, and note when its first byte arrived."""
        count = self.receive(view[:FIRST_READ_BYTES])
        self.first_ns, self.first_late_ns = self.stamp_ns, self.late_ns
        return count

    def closed_before(self, sent_before: int, start_ns: int) -> bool:  # noqa: ARG002  TLS needs it
        """Say whether the server had closed the connection before anything of a request arrived.

        The request was sent from `start_ns` on, after the first `sent_before` bytes. The kernel of the server
        acknowledges what arrives at an open connection, and not what arrives at one that it has closed.
        """
        try:
            acked, _ = _TCP_INFO.unpack(self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
        except _NO_TCP_INFO:
            return True
        # The opening of the connection counts as one byte.
        return bool(acked <= sent_before + 1)

    def count_segments(self) -> int:
        """Count the segments that came in with data; return how many since the last count, 0 where nobody knows."""
        before = self.counted
        try:
            data = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            _, self.counted = _TCP_INFO.unpack(data)
        except _NO_TCP_INFO:
            self.counted = -1
            return 0
        return self.counted - before if before >= 0 else 0

    def _answers_early(self) -> bool:
        """Wait until more can be sent, or until the server has sent an answer; say whether it has."""
        either: Any = self._hub.loop.io(self._sock.fileno(), _READ | _WRITE)
        try:
            self._wait(either)
        finally:
            either.close()
        return self._is_answer()

    def _is_answer(self) -> bool:
        """Say whether what lies there, if anything does, is the beginning of an answer."""
        try:
            begin = self._sock.recv(_PEEK_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        if not _INTERIM.match(begin):
            return True
        self._wait(self._writable)  # 100 Continue and its like
        return False


def start_connecting(family: int, address: Any, make: Callable[[_socket.socket], TcpConnection]) -> TcpConnection:
    """Return a connection that is being opened; raise `OSError` where it is refused at once."""
    sock = _socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(address)
        if code not in {0, errno.EINPROGRESS}:
            raise OSError(code, os.strerror(code))
        return make(sock)
    except BaseException:
        sock.close()
        raise


def _after(parts: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """Return what is left of some pieces after the first `sent` bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
