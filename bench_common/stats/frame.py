"""One block of a stats file and its frame: a separate gzip member with checksums.

Inside the member: magic (4 bytes), length and CRC-32 of the payload, the block's number and the running CRC-32 (u32
LE each), then the payload, which is msgpack ``[kind, body]``. A member is complete or it is nothing, so a file that
was cut anywhere is readable up to the last whole block, and ``zcat`` reads it like any other gzip file. Number and
running CRC-32 tie each block to all before it: see `Chain`. What reads a file takes little memory and time, whatever
it holds: a member is inflated up to the length that it announces, which its kind limits, and `blocks` decodes within
limits.
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
from bench_common.stats.blocks import KIND_BYTES, MAX_PAYLOAD, Body, decode, kind_at_start, most_bytes, split

MAGIC: Final = b"WBB\x02"
LOOSE_MAGIC: Final = b"WBB\x01"
"""Begins a block of an older file, which has neither number nor running checksum."""

_LOOSE_HEAD: Final = struct.Struct("<4sII")
_HEAD: Final = struct.Struct("<4sIIII")
_LINK: Final = struct.Struct("<III")
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


class ChainError(FrameError):
    """A whole block that does not follow the one before it: blocks were removed, repeated, moved or replaced."""


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


class Chain:
    """Ties the blocks of a file together: each has its number and a checksum that runs over all blocks so far.

    The running checksum is the CRC-32 of length, payload's CRC-32 and number of every block, so a block that is
    missing, there twice, elsewhere or another one shows, whatever its kind. Blocks of an older file state neither;
    those that are added to it do, and vouch for the older ones as well.
    """

    def __init__(self, number: int = 0, crc: int = 0, *, is_stated: bool = False) -> None:
        self.number = number
        """The number of the next block; that of the first is 0."""
        self._crc = crc
        self._is_stated = is_stated

    def copy(self) -> Chain:
        """Return another chain that continues at the same block."""
        return Chain(self.number, self._crc, is_stated=self._is_stated)

    def add(self, length: int, payload_crc: int) -> tuple[int, int]:
        """Take the next block; return its number and the running checksum."""
        number, self.number = self.number, self.number + 1
        self._crc = _zlib.crc32(_LINK.pack(length, payload_crc, number), self._crc)
        self._is_stated = True
        return number, self._crc

    def follow(self, length: int, payload_crc: int, stated: tuple[int, int] | None) -> None:
        """Take the next block of a file with what it states of itself; raise `ChainError` where it is another one."""
        if stated is None:
            if self._is_stated:
                raise ChainError(f"block {self.number} has no number, as the blocks before it have")
            self.add(length, payload_crc)
            self._is_stated = False
        elif stated[0] != self.number:
            why = "blocks are missing" if stated[0] > self.number else "blocks are there twice, or in another order"
            raise ChainError(f"this is block {stated[0]}, where block {self.number} is expected: {why}")
        elif self.add(length, payload_crc) != stated:
            raise ChainError(f"block {stated[0]} does not follow these blocks: one of them was changed or replaced")


def encode_frame(payload: bytes, chain: Chain) -> bytes:
    """Return the gzip member of a payload, which becomes the next block of the chain."""
    payload_crc = _zlib.crc32(payload)
    plain = _HEAD.pack(MAGIC, len(payload), payload_crc, *chain.add(len(payload), payload_crc)) + payload
    member: bytes = _zlib.compress(plain, _LEVEL, _GZIP_WBITS)
    return member


class FrameReader:
    """Reads member after member from a binary file, holding one block and one piece of the file at a time.

    Blocks must follow each other as those of a whole file do, unless they `may_begin_anywhere`.
    """

    def __init__(self, file: BinaryIO, *, may_begin_anywhere: bool = False) -> None:
        self._file = file
        self._rest = b""
        self._follows = not may_begin_anywhere
        self.chain = Chain()
        """What the next block follows."""
        self.offset = 0
        """Where the next member begins, in bytes from the start of the file."""
        self.payload_bytes = 0
        """The length of the last block's payload."""

    def read(self, kinds: Collection[str] | None = None) -> tuple[str, Body | None] | None:
        """Return kind and body of the next block, None at the end of the file.

        The body is None where it is of none of the `kinds`, which are all where that is None. Raises `OddBlockError`
        for a whole block with content that its kind does not have, any other `FrameError` for a damaged one or one
        that does not follow the last one, after which nothing can be read.
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
        head = _head_of(plain)
        payload = memoryview(plain)[head.size :]
        _, length, crc, *stated = head.unpack_from(plain)
        if _zlib.crc32(payload) != crc:
            raise FrameError("the block's checksum is wrong")
        if self._follows:
            self.chain.follow(length, crc, (stated[0], stated[1]) if stated else None)
        self._rest = rest
        self.offset += consumed
        self.payload_bytes = length
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
            limit = (_START_BYTES if total is None else total + 1) - len(plain)
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


_START_BYTES: Final = _HEAD.size + KIND_BYTES
"""So much of a member says what it is."""


def _head_of(plain: bytearray) -> struct.Struct:
    return _LOOSE_HEAD if plain.startswith(LOOSE_MAGIC) else _HEAD


def _declared_size(plain: bytearray, *, complete: bool) -> int | None:
    """Return how many bytes the member holds by its own head; None while its start is not yet there.

    Raises `FrameError` where that is more than a block of its kind has, before the rest is inflated.
    """
    start = bytes(plain[: len(MAGIC)])
    head = _head_of(plain)
    if not (MAGIC.startswith(start) or LOOSE_MAGIC.startswith(start)) or (complete and len(plain) < head.size):
        raise NotABlockError("gzip of something else, not a block")
    if len(plain) < (head.size if complete else _START_BYTES):
        return None
    length = int(head.unpack_from(plain)[1])
    if length > MAX_PAYLOAD:
        raise FrameError(f"the block says that it is {length} bytes long: at most {MAX_PAYLOAD} expected")
    try:
        kind = kind_at_start(plain[head.size : head.size + length])
    except ValueError as error:
        raise FrameError(f"the member holds no block: {error}") from error
    if length > most_bytes(kind):
        raise FrameError(
            f"a block of kind {kind!r} says that it is {length} bytes long: at most {most_bytes(kind)} expected"
        )
    return length + head.size


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
        reader = FrameReader(io.BytesIO(tail[start:]), may_begin_anywhere=True)
        try:
            pair = reader.read()
        except FrameError:
            pair = None
        if pair is not None and pair[1] is not None and start + reader.offset == len(tail):
            return pair[0], pair[1]
        start = tail.rfind(_MEMBER_START, 0, start)
    return "", {}


def block_follows(path: Path, offset: int) -> bool:
    """Say whether a whole block begins at the byte `offset`, or anywhere after it."""
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_MEMBER_START, offset)
        while start >= 0:
            file.seek(start)
            try:
                FrameReader(file, may_begin_anywhere=True).read()
            except OddBlockError:
                return True
            except FrameError:
                start = content.find(_MEMBER_START, start + 1)
            else:
                return True
    return False
