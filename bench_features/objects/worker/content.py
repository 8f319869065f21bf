"""What objects contain, and whether what a store returns is that.

The content of an object follows from its path and generation (how often it was written), so whoever reads it knows
it without keeping it. It begins with a header that states both, so that no two objects are equal and a wrong one can
be named; the rest is a walk through one pseudo-random pattern of 1 MiB, each MiB from another place. Nothing is
copied: a body is a list of views of the pattern. Compressors do not make it smaller unless they look back for more
than 1 MiB; a store that deduplicates finds next to nothing in blocks of 128 KiB and more.

Pure: no socket and no clock.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import Final
from zlib import crc32

from bench_features.objects.common.job import VerifyLevel

PATTERN_BYTES: Final = 1 << 20
_MASK: Final = PATTERN_BYTES - 1
_TAIL_BYTES: Final = 1 << 16
"""The pattern's first bytes stand behind its end once more, so that most pieces of a body lie in one stretch."""
EDGE_BYTES: Final = 1024
"""How much is checked at each end of a body at the level `edges`."""
DIGEST_BYTES: Final = 8192
"""Up to this size an upload's ETag is compared with the MD5 of its content at the level `full`. Larger objects would
cost more to hash than to send; comparing what is read back is the cheaper check."""

_STEP: Final = 0x9E3779B1
"""2**32 divided by the golden ratio: its multiples are spread evenly."""
_WORD: Final = (1 << 32) - 1
_MD5: Final = re.compile(r"[0-9a-f]{32}")
_HEADER: Final = re.compile(rb"weighbridge (\S+) (\d+)\n")


@cache
def _pattern() -> bytes:
    once = hashlib.shake_256(b"weighbridge").digest(PATTERN_BYTES)
    return once + once[:_TAIL_BYTES]


@cache
def _view() -> memoryview:
    return memoryview(_pattern())


def _header(path: str, generation: int) -> bytes:
    return b"weighbridge %b %d\n" % (path.encode(), generation)


def _place(key: int, position: int) -> int:
    """Return where in the pattern the byte at `position` behind the header is."""
    turn = (key + (position >> 20) * _STEP) & _WORD
    return (turn >> 12) + position & _MASK


def content_of(path: str, generation: int, size: int) -> list[memoryview | bytes]:
    """Return the content of the object at `path` (container/name), in pieces of `size` bytes together."""
    header = _header(path, generation)
    if size <= len(header):
        return [header[:size]] if size else []
    pieces: list[memoryview | bytes] = [header]
    key, view, position, left = crc32(header), _view(), 0, size - len(header)
    while left:
        place = _place(key, position)
        length = min(left, PATTERN_BYTES - (position & _MASK), len(view) - place)
        pieces.append(view[place : place + length])
        position += length
        left -= length
    return pieces


def content_md5(path: str, generation: int, size: int) -> str:
    """Return the MD5 of an object's content, in hex: its ETag, in most stores."""
    digest = hashlib.md5(usedforsecurity=False)
    for piece in content_of(path, generation, size):
        digest.update(piece)
    return digest.hexdigest()


def is_md5(etag: str) -> bool:
    """Return whether an ETag has the form of an MD5; that of an object in parts has not."""
    return _MD5.fullmatch(etag) is not None


class Checker:
    """Compares the body of an answer with what it must be, piece by piece: call it with each piece, in order.

    `size` is the size of the object; a ranged read has its bytes from `begin`, so many as `length`.
    """

    __slots__ = ("_at", "_begin", "_end", "_header", "_key", "_level", "_wrong")

    def __init__(
        self,
        level: VerifyLevel,
        path: str,
        generation: int,
        size: int,
        *,
        begin: int = 0,
        length: int | None = None,
    ) -> None:
        self._level = level
        self._at = self._begin = begin
        self._end = size if length is None else min(size, begin + length)
        self._wrong: str | None = None
        self._header = b"" if level == "length" else _header(path, generation)
        self._key = crc32(self._header)

    def __call__(self, piece: memoryview) -> None:
        """Check the next piece."""
        at, length = self._at, len(piece)
        self._at = at + length
        if self._wrong is not None or self._level == "length" or self._at > self._end:
            return
        if self._level == "full":
            self._compare(piece, at)
            return
        first = self._begin + EDGE_BYTES - at
        if first > 0:
            self._compare(piece[:first], at)
        last = self._end - EDGE_BYTES - at
        if last < length and self._wrong is None:
            last = max(0, last)
            self._compare(piece[last:], at + last)

    def restart(self) -> None:
        """Begin anew: the answer broke off, and the object is read once more."""
        self._at, self._wrong = self._begin, None

    @property
    def received(self) -> int:
        """How many bytes have come."""
        return self._at - self._begin

    def verdict(self) -> tuple[str, str] | None:
        """Return the kind of failure and its message; None if the body is right."""
        if self._at != self._end:
            return "wrong-length", f"{self.received} bytes instead of {self._end - self._begin}"
        return None if self._wrong is None else ("wrong-content", self._wrong)

    def _compare(self, piece: memoryview, at: int) -> None:
        """Compare a piece that begins `at` a byte of the object; note what is wrong with it."""
        # `startswith` compares the memory of both and copies nothing, while views are compared byte by byte.
        header, pattern, done, length = self._header, _pattern(), 0, len(piece)
        while done < length:
            position = at + done - len(header)
            if position < 0:
                expected, place = header, at + done
                count = min(length - done, -position)
            else:
                expected, place = pattern, _place(self._key, position)
                count = min(length - done, PATTERN_BYTES - (position & _MASK), len(pattern) - place)
            part = piece if count == length else piece[done : done + count]
            if not expected.startswith(part, place):
                self._describe(part, expected[place : place + count], at + done)
                return
            done += count

    def _describe(self, found: memoryview, expected: bytes, at: int) -> None:
        first = next(place for place, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        self._wrong = f"byte {at + first} of the object differs"
        other = _HEADER.match(bytes(found[:EDGE_BYTES])) if at == 0 else None
        if other is not None and other[0] != self._header:
            self._wrong += (
                f": this is the content of {other[1].decode('utf-8', 'replace')}, generation {int(other[2])}"
            )
