"""Reads the two streams of a container, which Docker sends as frames on one connection.

A frame is a byte for the stream (1 stdout, 2 stderr), three zero bytes, the payload's length as a big-endian 32-bit
number, and the payload (Docker Engine API, "Attach to a container"). A terminal is never asked for, so there are
always frames.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from bench_worker.engines.output import Capture

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct(">BxxxL")
_STDERR = 2
_CHUNK_BYTES = 64 * 1024


class Readable(Protocol):
    """The body of an answer: `read` returns fewer bytes than asked for only at its end."""

    def read(self, amt: int, /) -> bytes:
        """Return up to `amt` bytes."""


def frames(body: Readable) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the stream and a piece of its bytes until the body ends, be it in the middle of a frame."""
    while len(header := body.read(_HEADER.size)) == _HEADER.size:
        stream, left = _HEADER.unpack(header)
        while left:
            piece = body.read(min(left, _CHUNK_BYTES))
            if not piece:
                return
            left -= len(piece)
            yield stream, piece


def capture(
    body: Readable, limit_bytes: int, *, drain: bool, stdout: Capture | None = None
) -> tuple[Capture, Capture]:
    """Return the beginnings of stdout and stderr, at most `limit_bytes` of each.

    With `drain` the body is read to its end all the same, because its end says something (a command that is over);
    without, reading stops at the first stream that is full. A `stdout` that is given is filled, and can be looked at
    meanwhile.
    """
    streams = stdout or Capture(limit_bytes), Capture(limit_bytes)
    for stream, piece in frames(body):
        kept = streams[1] if stream == _STDERR else streams[0]
        kept.add(piece)
        if kept.truncated and not drain:
            break
    return streams
