"""One block of a stats file and its frame: a separate gzip member with checksums.

Inside the member: magic (4 bytes), length (u32 LE) and CRC-32 (u32 LE) of the payload, then the payload, which is
msgpack ``[kind, body]``. A member is complete or it is nothing, so a file that was cut anywhere is readable up to the
last whole block, and ``zcat`` reads it like any other gzip file. What reads a file takes little memory, whatever it
holds: a member is inflated up to the length that it announces, and `blocks` decodes within limits.
"""

from __future__ import annotations

import importlib
import io
import mmap
import os
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack  # type: ignore[import-untyped]

from bench_common.files import open_regular
from bench_common.stats.blocks import Body, decode, split

MAGIC: Final = b"WBB\x01"
MAX_PAYLOAD: Final = 64 << 20
"""Bytes; a frame that claims more is damage or malice, and is never unpacked."""

_HEAD: Final = struct.Struct("<4sII")
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MEMBER_START: Final = b"\x1f\x8b\x08"
_TAIL: Final = 64 << 10
_GZIP_WBITS: Final = 31
_LEVEL: Final = 1
"""Level 1 takes a quarter of the time of the default for a few per cent more bytes."""
_READ_BYTES: Final = 64 << 10


class FrameError(ValueError):
    """Bytes that are not a whole block; the message says what is wrong with them."""


class NotABlockError(FrameError):
    """Bytes that never were a block: not gzip at all, or gzip of something else."""


class TruncatedError(FrameError):
    """The bytes end before the block does."""


class OddBlockError(FrameError):
    """A whole block whose content is not what its kind declares; the next block can be read."""

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        super().__init__(reason)


def _fastest_zlib() -> Any:
    """Return isal's zlib, which compresses about ten times faster, if it is installed; else Python's.

    They have the same functions and the same format, and read each other's files.
    """
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


_zlib = _fastest_zlib()


def pack_payload(kind: str, body: dict[str, Any]) -> bytes:
    """Return the payload of a block; raise `TypeError` for values that msgpack has no type for.

    Text that is no Unicode (a file name or a tool's message, decoded with surrogates) is written with its escapes.
    """
    payload: bytes = msgpack.packb([kind, body], use_bin_type=True, unicode_errors="backslashreplace")
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a {kind} block of {len(payload)} bytes: at most {MAX_PAYLOAD} expected")
    return payload


def encode_frame(payload: bytes) -> bytes:
    """Return the gzip member of a payload."""
    plain = _HEAD.pack(MAGIC, len(payload), _zlib.crc32(payload)) + payload
    member: bytes = _zlib.compress(plain, _LEVEL, _GZIP_WBITS)
    return member


class FrameReader:
    """Reads member after member from a binary file, holding one block and one piece of the file at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""
        self.offset = 0
        """Where the next member begins, in bytes from the start of the file."""

    def read(self, kinds: Collection[str] | None = None) -> tuple[str, Body | None] | None:
        """Return kind and body of the next block, None at the end of the file.

        The body is None where it is of none of the `kinds`, which are all where that is None. Raises `OddBlockError`
        for a whole block with content that its kind does not have, any other `FrameError` for a damaged one, after
        which nothing can be read.
        """
        payload = self._payload()
        if payload is None:
            return None
        kind = ""
        try:
            kind, encoded = split(payload)
            return kind, decode(kind, encoded) if kinds is None or kind in kinds else None
        except ValueError as error:
            raise OddBlockError(kind, str(error)) from error

    def _payload(self) -> memoryview | None:
        piece = self._rest or self._file.read(_READ_BYTES)
        if not piece:
            return None
        if not piece.startswith(_GZIP_MAGIC[: len(piece)]):
            raise NotABlockError("no gzip member begins here")
        plain, consumed, rest = self._member(piece)
        payload = memoryview(plain)[_HEAD.size :]
        if _zlib.crc32(payload) != _HEAD.unpack_from(plain)[2]:
            raise FrameError("the block's checksum is wrong")
        self._rest = rest
        self.offset += consumed
        return payload

    def _member(self, piece: bytes) -> tuple[bytearray, int, bytes]:
        """Inflate the member that begins with `piece`: its content, its size in the file, and what follows it."""
        inflater = _zlib.decompressobj(_GZIP_WBITS)
        plain, consumed, done = bytearray(), 0, False
        total: int | None = None
        while not done:
            if not piece:
                raise TruncatedError("the file ends within a block")
            # One byte more than is announced, so that a member that holds more is noticed and never inflated.
            limit = (_HEAD.size if total is None else total + 1) - len(plain)
            try:
                plain += inflater.decompress(piece, limit)
            except _zlib.error as error:
                raise FrameError(f"the gzip member is damaged ({error})") from error
            done = inflater.eof
            # At the end of a member zlib leaves what follows in both of its tails.
            tail = inflater.unused_data if done else inflater.unconsumed_tail
            consumed += len(piece) - len(tail)
            if total is None:
                total = _declared_size(plain, complete=done)
            if total is not None and len(plain) > total:
                raise FrameError("the block is longer than it says")
            piece = tail if tail or done else self._file.read(_READ_BYTES)
        if len(plain) != total:
            raise FrameError("the block is shorter than it says")
        return plain, consumed, piece


def _declared_size(plain: bytearray, *, complete: bool) -> int | None:
    """Return how many bytes the member holds by its own head; None while the head is not yet there."""
    if not MAGIC.startswith(plain[: len(MAGIC)]) or (complete and len(plain) < _HEAD.size):
        raise NotABlockError("gzip of something else, not a block")
    if len(plain) < _HEAD.size:
        return None
    length = _HEAD.unpack_from(plain)[1]
    if length > MAX_PAYLOAD:
        raise FrameError(f"the block says that it is {length} bytes long: at most {MAX_PAYLOAD} expected")
    return int(length) + _HEAD.size


def last_block(path: Path) -> tuple[str, Body]:
    """Return kind and body of the block that the file ends with; ("", {}) where it is none, or no small one."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            tail = file.read()
    except OSError:
        return "", {}
    start = tail.rfind(_MEMBER_START)
    while start >= 0:
        reader = FrameReader(io.BytesIO(tail[start:]))
        try:
            pair = reader.read()
        except FrameError:
            pair = None
        if pair is not None and pair[1] is not None and start + reader.offset == len(tail):
            return pair[0], pair[1]
        start = tail.rfind(_MEMBER_START, 0, start)
    return "", {}


def block_follows(path: Path, offset: int) -> bool:
    """Say whether a whole block begins anywhere after the byte `offset`, which does not begin one itself."""
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_MEMBER_START, offset + 1)
        while start >= 0:
            file.seek(start)
            try:
                FrameReader(file).read()
            except OddBlockError:
                return True
            except FrameError:
                start = content.find(_MEMBER_START, start + 1)
            else:
                return True
    return False
