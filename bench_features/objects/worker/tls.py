"""TLS 1.2 and 1.3 of a connection to a store, on top of our own reads, so that the kernel's stamps are kept.

A socket of the `ssl` module reads by itself and drops the stamps. Here records are read as any bytes are and given to
OpenSSL through memory. The first byte of an answer is the first byte of the record that its first byte is in; what
else a server sends, such as the session tickets of TLS 1.3, is in records of its own and does not count.
"""

from __future__ import annotations

import _socket
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from bench_common.errors import UsageError
from bench_features.objects.worker.connection import TcpConnection

_RECORD_HEAD_BYTES: Final = 5
_PLAIN_BYTES: Final = 16 * 1024
"""The most that a record has of content (RFC 8446, 5.1)."""
_RAW_BYTES: Final = 64 * 1024
_SENT_AT_ONCE_BYTES: Final = 256 * 1024
"""So much of a body is encrypted before it is sent."""


def tls_context(ca_file: str | None, *, verify: bool) -> ssl.SSLContext:
    """Return the settings of TLS 1.2 and 1.3: certificates are verified unless `verify` is false."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the CA file {ca_file} cannot be used: {error}; it has to be PEM") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class TlsConnection(TcpConnection):
    """An open connection whose bytes are encrypted."""

    __slots__ = ("_early", "_ended", "_incoming", "_outgoing", "_raw", "_tls")

    def __init__(self, sock: _socket.socket, context: ssl.SSLContext, host: str) -> None:
        super().__init__(sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._raw = memoryview(bytearray(_RAW_BYTES))
        self._ended = False
        """Whether the server has said that it closes the connection."""
        self._early = b""
        """Content that came while a body was still being sent."""

    def greet(self) -> None:
        """Agree on keys with the server and verify it; raise `ssl.SSLError` or another `OSError` where that fails."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._take_in(self._raw)
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()  # the alert tells the server why
                raise
            else:
                self._flush()
                self.counted = -1
                return

    def close(self) -> None:
        """Close it; the server is told, if that is possible at once."""
        with suppress(OSError):
            self._tls.unwrap()
        with suppress(OSError):
            self._sock.send(self._outgoing.read())
        super().close()

    def wait_readable(self) -> None:
        """Wait until there is something to read, or the end."""
        if not (self._early or self._incoming.pending or self._tls.pending()):
            super().wait_readable()

    def send(self, data: bytes) -> bool:
        """Send one piece; say whether all of it went out."""
        self._tls.write(data)
        return super().send(self._outgoing.read())

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> bool:
        """Send pieces in order; say whether all went out."""
        for part in parts:
            for at in range(0, len(part), _SENT_AT_ONCE_BYTES):
                self._tls.write(memoryview(part)[at : at + _SENT_AT_ONCE_BYTES])
                if not super().send_parts((self._outgoing.read(),)):
                    return False
        return True

    def receive(self, into: memoryview) -> int:
        """Read what is there, or wait for something; return how many bytes, 0 at the end."""
        while True:
            count = self._decrypt(into)
            if count >= 0:
                return count
            self._take_in(self._raw)

    def receive_first(self, view: memoryview) -> int:
        """Read the beginning of an answer, and note when its first byte arrived."""
        while True:
            count = self._decrypt(view)
            if count >= 0:
                return count
            # Record by record, until one has something of the answer in it.
            head = self._take_in(self._raw[:_RECORD_HEAD_BYTES])
            self.first_ns, self.first_late_ns = self.stamp_ns, self.late_ns
            while 0 < head < _RECORD_HEAD_BYTES:
                more = self._take_in(self._raw[head:_RECORD_HEAD_BYTES])
                head = head + more if more else 0
            left = int.from_bytes(self._raw[3:_RECORD_HEAD_BYTES], "big") if head else 0
            while left > 0:
                count = self._take_in(self._raw[: min(left, _RAW_BYTES)])
                left = left - count if count else 0

    def closed_before(self, sent_before: int, start_ns: int) -> bool:
        """Say whether the server had closed the connection before anything of a request arrived."""
        # The last that came in may be its word that it closes.
        return (self._ended and self.stamp_ns < start_ns) or super().closed_before(sent_before, start_ns)

    def _decrypt(self, into: memoryview) -> int:
        """Return how many bytes of content were there, 0 at the end, -1 where more has to come in."""
        if self._early:
            count = min(len(self._early), len(into))
            into[:count] = self._early[:count]
            self._early = self._early[count:]
            return count
        try:
            count = int(self._tls.read(len(into), into))  # type: ignore[arg-type]
        except ssl.SSLWantReadError:
            return -1
        except ssl.SSLEOFError:
            return 0
        except ssl.SSLZeroReturnError:
            count = 0
        self._ended = not count
        return count

    def _take_in(self, room: memoryview) -> int:
        """Read bytes into `room` and give them to OpenSSL; return how many, 0 at the end."""
        count = super().receive(room)
        if count:
            self._incoming.write(room[:count])
        else:
            self._incoming.write_eof()
        return count

    def _flush(self) -> None:
        if data := self._outgoing.read():
            super().send(data)

    def _is_answer(self) -> bool:
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        self._take_in(self._raw)
        room = memoryview(bytearray(_PLAIN_BYTES))
        count = self._decrypt(room)
        if count < 0:
            return False  # session tickets and their like
        self._early = bytes(room[:count])
        return True
