"""HTTP/1.1 as bytes: heads of answers, how long their bodies are, chunks. Pure: connections are elsewhere.

Sources: RFC 9112 (messages), RFC 9110 (fields). Servers are various, so this accepts what RFC 9112
allows a recipient to accept: names in any case, white space around values and before colons, folded lines, lines
that end with LF alone, HTTP/1.0. It refuses what would make the length of an answer ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

HEAD_LIMIT_BYTES: Final = 32 * 1024
"""A longer head of an answer is refused."""
LINE_LIMIT_BYTES: Final = 4 * 1024
"""A longer line between chunks is refused."""
CHUNKED: Final = -1
"""A length: the body comes in chunks."""
UNTIL_CLOSE: Final = -2
"""A length: the body ends with the connection."""

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?\r\n")
_CHUNK_SIZE: Final = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?", re.DOTALL)
_LENGTH: Final = re.compile(rb"\d{1,18}")
_LENGTH_DIGITS: Final = 18
_LENGTH_NAME: Final = len(b"content-length")
_FOLD: Final = re.compile(rb"[ \t]*\r\n[ \t]+")
_FRAMING: Final = re.compile(
    rb"\n(content-length|transfer-encoding|connection)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE
)
_UNRESERVED: Final = re.compile(r"[\w.~-]+", re.ASCII).fullmatch
"""Nearly every name is of these; `urllib` looks at each character of them."""
_CR: Final = 13
_ONE: Final = ord("1")
_MINOR_AT: Final = 7
"""Where a status line has the minor version."""
_NO_BODY: Final = (204, 304)


class ProtocolError(Exception):
    """What the server sent is not an answer of HTTP/1.1."""


def quoted(text: str, safe: str = "") -> str:
    """Return a part of a path as it stands in a request, with what is not `safe` in percent-encoding (RFC 3986)."""
    return text if _UNRESERVED(text) else quote(text, safe=safe)


def find_head_end(data: bytes | bytearray, have: int) -> int:
    """Return where the body begins in the first `have` bytes of `data`, 0 while the head is incomplete."""
    line = data.find(b"\n", 0, have)
    if line > 0 and data[line - 1] == _CR:
        end = data.find(b"\r\n\r\n", line - 1, have)
        return end + 4 if end >= 0 else 0
    end = data.find(b"\n\n", 0, have)
    mixed = data.find(b"\n\r\n", 0, have if end < 0 else end)
    return mixed + 3 if mixed >= 0 else end + 2 if end >= 0 else 0


def normal_head(raw: bytes) -> bytes:
    """Return a head with CRLF at the end of each line."""
    line = raw.find(b"\n")
    return raw if raw[line - 1] == _CR else raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def status_of(head: bytes) -> int:
    """Return the status of an answer; raise `ProtocolError` if its first line is none of HTTP/1."""
    found = _STATUS.match(head)
    if found is None:
        raise ProtocolError(f"the answer begins with {head[:40]!r}, not with a status line of HTTP/1.1")
    return int(found[2])


def fields_of(head: bytes) -> dict[bytes, bytes]:
    """Return the fields of a head by their names in lower case; values of a repeated name are joined with a comma."""
    fields: dict[bytes, bytes] = {}
    if b"\n " in head or b"\n\t" in head:
        head = _FOLD.sub(b" ", head)
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            key, text = name.strip().lower(), value.strip()
            fields[key] = b"%s, %s" % (fields[key], text) if key in fields else text
    return fields


def body_of(head: bytes, status: int, *, bodiless: bool) -> tuple[int, bool]:
    """Return the length of an answer's body (or `CHUNKED`, `UNTIL_CLOSE`), and whether the connection stays open.

    `bodiless`: the answer is to HEAD. Raises `ProtocolError` for a length that cannot be understood.
    """
    told = _FRAMING.findall(head)
    if len(told) == 1:  # nearly always: it is the length
        name, value = told[0]
        if len(name) == _LENGTH_NAME and value.isdigit() and len(value) <= _LENGTH_DIGITS:
            return 0 if bodiless or status in _NO_BODY else int(value), head[_MINOR_AT] == _ONE
    elif not told and status in _NO_BODY and b"\n " not in head and b"\n\t" not in head:
        return 0, head[_MINOR_AT] == _ONE
    fields = fields_of(head)
    tokens = {token.strip() for token in fields.get(b"connection", b"").lower().split(b",")}
    kept = b"close" not in tokens and (head[_MINOR_AT] == _ONE or b"keep-alive" in tokens)
    if bodiless or status in _NO_BODY:
        return 0, kept
    return _length(fields, kept=kept)


def length_in(text: bytes) -> int | None:
    """Return the bytes that a Content-Length tells; None for what is no length, or one beyond any object's."""
    return int(text) if _LENGTH.fullmatch(text) else None


def _length(fields: dict[bytes, bytes], *, kept: bool) -> tuple[int, bool]:
    coding = fields.get(b"transfer-encoding", b"").lower()
    if coding:
        # The length of a body in any other coding than chunks is known only when the connection ends (RFC 9112, 6.3).
        last = coding.rpartition(b",")[2].strip()
        if coding != last and last == b"chunked":
            raise ProtocolError(f"Transfer-Encoding: {coding.decode('latin-1')} was not asked for")
        return (CHUNKED, kept) if last == b"chunked" else (UNTIL_CLOSE, False)
    said = fields.get(b"content-length")
    if said is None:
        return UNTIL_CLOSE, False
    values = {value.strip() for value in said.split(b",")}
    length = length_in(values.pop()) if len(values) == 1 else None
    if length is None:
        raise ProtocolError(f"Content-Length: {said[:60].decode('latin-1')} is no length")
    return length, kept


class ChunkDecoder:
    """Takes the bytes of a body in chunks and gives its content; chunk extensions and trailers are dropped."""

    __slots__ = ("_left", "_line", "_state", "done", "received")

    def __init__(self) -> None:
        self.done = False
        """Whether the last chunk and its trailers have been read."""
        self.received = 0
        """Bytes of content so far."""
        self._state = self._size
        self._left = 0
        self._line = b""

    def feed(self, data: memoryview, sink: Callable[[memoryview], object]) -> int:
        """Take bytes, give pieces of the content to `sink`; return how many were used: fewer only at the end.

        Raises `ProtocolError` where the bytes are no chunks.
        """
        at, size = 0, len(data)
        while at < size and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                sink(piece)
                at += len(piece)
                self._left -= len(piece)
                self.received += len(piece)
            else:
                at += self._feed_line(bytes(data[at : at + LINE_LIMIT_BYTES]))
        return at

    def _feed_line(self, data: bytes) -> int:
        end = data.find(b"\n")
        self._line += data if end < 0 else data[:end]
        if len(self._line) > LINE_LIMIT_BYTES:
            raise ProtocolError(f"a line between chunks is longer than {LINE_LIMIT_BYTES} bytes")
        if end < 0:
            return len(data)
        line, self._line = self._line.removesuffix(b"\r"), b""
        self._state(line)
        return end + 1

    def _size(self, line: bytes) -> None:
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise ProtocolError(f"a chunk begins with {line[:40]!r}, not with its size")
        self._left = int(found[1], 16)
        self._state = self._end if self._left else self._trailer

    def _end(self, line: bytes) -> None:
        if line:
            raise ProtocolError(f"a chunk is followed by {line[:40]!r}, not by the end of a line")
        self._state = self._size

    def _trailer(self, line: bytes) -> None:
        self.done = not line
