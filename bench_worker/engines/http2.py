"""The part of HTTP/2 (RFC 9113) that a gRPC client needs: one call at a time on a connection, without I/O.

A complete implementation such as the package h2 keeps the state of both sides for any number of streams, which costs
several times the CPU of all else in a call. This one handles only the frames that a service can send here. The
service is told to keep no table of headers: then equal blocks of headers mean the same, and are decoded once.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hpack import Decoder, HPACKError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_FRAME: Final = struct.Struct(">HBBBI")
"""Length (two bytes and one), type, flags, stream."""
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = (
    0, 1, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_SETTING: Final = struct.Struct(">HI")
_NUMBER: Final = struct.Struct(">I")
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _INITIAL_WINDOW_SIZE, _MAX_FRAME_SIZE = 1, 2, 4, 5
_WINDOW: Final = 65535
"""The size of a window unless a setting says otherwise."""
_MAX_WINDOW: Final = (1 << 31) - 1
_MAX_FRAME_BYTES: Final = 1 << 14
_MAX_HEADERS_BYTES: Final = 1 << 17
BODY_LIMIT_BYTES: Final = 32 << 20
"""A longer reply is refused: services send files in pieces, and gRPC itself takes 4 MiB in one message."""
_MAX_PONGS_BYTES: Final = 1 << 12
"""Answers to more pings than nobody takes are not kept."""
_LAST_STREAM: Final = (1 << 31) - 1


class Http2Error(Exception):
    """The service broke the rules of HTTP/2: the connection is of no more use."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _FRAME.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


_PREFACE: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(
        _SETTINGS,
        0,
        0,
        _SETTING.pack(_HEADER_TABLE_SIZE, 0)
        + _SETTING.pack(_ENABLE_PUSH, 0)
        + _SETTING.pack(_INITIAL_WINDOW_SIZE, _MAX_WINDOW),
    )
    + _frame(_WINDOW_UPDATE, 0, 0, (_MAX_WINDOW - _WINDOW).to_bytes(4))
)


def encode_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Return headers as literals (RFC 7541, 6.2.2), which need no table on either side."""
    return b"".join(b"\0" + _encode_text(name) + _encode_text(value) for name, value in headers)


_SEVEN_BITS, _MORE = 0x7F, 0x80
"""How lengths are encoded (RFC 7541, 5.1): seven bits in a byte, and whether more bytes follow."""


def _encode_text(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    if size < _SEVEN_BITS:
        return bytes((size,)) + data
    encoded = bytearray((_SEVEN_BITS,))
    size -= _SEVEN_BITS
    while size > _SEVEN_BITS:
        encoded.append(size & _SEVEN_BITS | _MORE)
        size >>= 7
    encoded.append(size)
    return bytes(encoded) + data


@lru_cache(maxsize=64)
def _decode_headers(block: bytes) -> Mapping[str, str]:
    decoder = Decoder()
    decoder.max_allowed_table_size = decoder.header_table_size = 0
    return {str(name): str(value) for name, value in decoder.decode(block)}


class Http2Connection:
    """The client's side of a connection: what to send for a call, and what has arrived of its reply."""

    def __init__(self) -> None:
        self._out = bytearray(_PREFACE)
        self._pongs = bytearray()
        self._rest = b""
        self._stream = -1
        self._block: bytes | None = None
        """Headers of which more is to come."""
        self._ends_with_block = False
        self._received_bytes = 0
        self._headers_bytes = 0
        """Those of the present reply, encoded."""
        self._connection_window = self._initial_window = self._stream_window = _WINDOW
        self._max_frame_bytes = _MAX_FRAME_BYTES
        self._last_stream = _LAST_STREAM - 2
        """The number of the last call that the service takes."""
        self._handlers: Mapping[int, Callable[[int, int, bytes], None]] = {
            _DATA: self._handle_data,
            _HEADERS: self._handle_headers,
            _RST_STREAM: self._handle_reset,
            _SETTINGS: self._handle_settings,
            _PUSH_PROMISE: self._handle_push,
            _PING: self._handle_ping,
            _GOAWAY: self._handle_end,
            _WINDOW_UPDATE: self._handle_window,
            _CONTINUATION: self._handle_continuation,
        }
        """What is done with the frames of each type; others are ignored, as the RFC wants it."""
        self.body = bytearray()
        self.headers: dict[str, str] = {}
        """Those before and after the body."""
        self.finished = False
        """Whether the reply is complete."""
        self.broken = ""
        """Why there is no complete reply."""

    @property
    def takes_calls(self) -> bool:
        """Whether one more call can be made."""
        return self._stream < self._last_stream

    def begin(self, headers: bytes) -> None:
        """Begin a call with encoded headers."""
        self._stream += 2
        self._stream_window = self._initial_window
        self.body, self.headers, self.finished, self.broken = bytearray(), {}, False, ""
        self._headers_bytes = 0
        first, rest = headers[: self._max_frame_bytes], headers[self._max_frame_bytes :]
        self._out += _frame(_HEADERS, 0 if rest else _END_HEADERS, self._stream, first)
        while rest:
            first, rest = rest[: self._max_frame_bytes], rest[self._max_frame_bytes :]
            self._out += _frame(_CONTINUATION, 0 if rest else _END_HEADERS, self._stream, first)

    def send(self, body: bytes, *, is_last: bool) -> int:
        """Send as much of a part of the call's body as the service takes now; return how many bytes that is."""
        sent = 0
        while sent < len(body):
            room = min(self._stream_window, self._connection_window, self._max_frame_bytes, len(body) - sent)
            if room <= 0:
                break
            self._stream_window -= room
            self._connection_window -= room
            piece = body if room == len(body) else body[sent : sent + room]
            sent += room
            self._out += _frame(_DATA, _END_STREAM if is_last and sent == len(body) else 0, self._stream, piece)
        return sent

    def take_output(self) -> bytes:
        """Return what is to be written to the socket."""
        data = bytes(self._out)
        self._out.clear()
        return data

    def take_pongs(self) -> bytes:
        """Return the answers to the service's pings."""
        data = bytes(self._pongs)
        self._pongs.clear()
        return data

    def receive(self, data: bytes) -> None:
        """Handle bytes from the socket; raise `Http2Error`."""
        received, position = self._rest + data, 0
        while len(received) - position >= _FRAME.size:
            high, low, kind, flags, stream = _FRAME.unpack_from(received, position)
            size = high << 8 | low
            if size > _MAX_FRAME_BYTES:
                raise Http2Error(f"a frame of {size} bytes, where {_MAX_FRAME_BYTES} are allowed")
            end = position + _FRAME.size + size
            if end > len(received):
                break
            self._handle(kind, flags, stream & _MAX_WINDOW, received[position + _FRAME.size : end])
            position = end
        self._rest = received[position:]

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if (self._block is None) == (kind == _CONTINUATION):
            raise Http2Error("headers whose parts are not together")
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(flags, stream, payload)

    def _handle_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._received_bytes += len(payload)
        if self._received_bytes > _MAX_WINDOW // 2:
            self._out += _frame(_WINDOW_UPDATE, 0, 0, self._received_bytes.to_bytes(4))
            self._received_bytes = 0
        if stream == self._stream:
            self.body += _without_padding(flags, payload)
            if len(self.body) > BODY_LIMIT_BYTES:
                raise Http2Error(f"the service's reply is longer than {BODY_LIMIT_BYTES >> 20} MiB")
            self.finished |= bool(flags & _END_STREAM)

    def _handle_headers(self, flags: int, stream: int, payload: bytes) -> None:
        payload = _without_padding(flags, payload)
        self._block = payload[5:] if flags & _PRIORITY else payload
        self._ends_with_block = bool(flags & _END_STREAM)
        self._finish_headers(flags, stream)

    def _handle_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        self._block = (self._block or b"") + payload
        if len(self._block) > _MAX_HEADERS_BYTES:
            raise Http2Error(f"headers of more than {_MAX_HEADERS_BYTES} bytes")
        self._finish_headers(flags, stream)

    def _finish_headers(self, flags: int, stream: int) -> None:
        if self._block is None or not flags & _END_HEADERS:
            return
        block, self._block = self._block, None
        try:
            headers = _decode_headers(block)
        except HPACKError as error:
            raise Http2Error(f"headers that are not valid: {error}") from error
        if stream == self._stream:
            self._headers_bytes += len(block)
            if self._headers_bytes > _MAX_HEADERS_BYTES:
                raise Http2Error(f"headers of more than {_MAX_HEADERS_BYTES} bytes")
            self.headers |= headers
            self.finished |= self._ends_with_block

    def _handle_reset(self, _flags: int, stream: int, payload: bytes) -> None:
        if stream == self._stream and not self.finished:
            self.broken = f"the service reset the call (HTTP/2 error {_number(payload)})"

    def _handle_push(self, _flags: int, _stream: int, _payload: bytes) -> None:
        raise Http2Error("the service pushes, which it was told not to do")

    def _handle_ping(self, flags: int, _stream: int, payload: bytes) -> None:
        if not flags & _ACK and len(self._pongs) < _MAX_PONGS_BYTES:
            self._pongs += _frame(_PING, _ACK, 0, payload)

    def _handle_end(self, _flags: int, _stream: int, payload: bytes) -> None:
        self._last_stream = -1
        if _number(payload) < self._stream and not self.finished:
            self.broken = "the service ended the connection"

    def _handle_window(self, _flags: int, stream: int, payload: bytes) -> None:
        more = _number(payload)
        if not stream:
            self._connection_window += more
        elif stream == self._stream:
            self._stream_window += more

    def _handle_settings(self, flags: int, _stream: int, payload: bytes) -> None:
        if flags & _ACK:
            return
        if len(payload) % _SETTING.size:
            raise Http2Error("settings that are cut short")
        for name, value in _SETTING.iter_unpack(payload):
            if name == _INITIAL_WINDOW_SIZE:
                self._stream_window += value - self._initial_window
                self._initial_window = value
            elif name == _MAX_FRAME_SIZE:
                self._max_frame_bytes = value
        self._out += _frame(_SETTINGS, _ACK, 0, b"")


def _number(payload: bytes) -> int:
    """Return the number of 31 bits that a frame begins with."""
    try:
        number: int = _NUMBER.unpack_from(payload)[0]
    except struct.error as error:
        raise Http2Error("a frame that is cut short") from error
    return number & _MAX_WINDOW


def _without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error("a frame with more padding than it has")
    return payload[1 : len(payload) - payload[0]]
