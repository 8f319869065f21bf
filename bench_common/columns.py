"""Columns: an array of numbers as few bytes as gzip can make of it, and strictly back.

A column is stored as differences (`DELTA`, for what mostly grows: tickets, instants) or as distances from its
smallest value (`OFFSET`, for the rest), and its bytes are shuffled into planes (all lowest bytes, then all second
bytes ...) of which only those that hold anything are kept. Planes of a kind compress several times better than whole
integers.

Layout: mode (u8), planes (u8), base (i64 LE), then ``planes * rows`` bytes. In `DELTA` the base is the first value
and the rest are zigzag-coded wrapping differences, the first being 0; in `OFFSET` the base is the minimum; in `FLOAT`
the base is 0 and the eight planes are those of little-endian IEEE doubles.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

OFFSET: Final = 0
DELTA: Final = 1
FLOAT: Final = 2

MAX_ROWS: Final = 65_536
"""The most rows that one column, and so one block, may have."""

_HEAD: Final = struct.Struct("<BBq")
_WORD: Final = 8
_HALF: Final = 4

Column: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.float64]


class ColumnError(ValueError):
    """Bytes that are no column of the rows that were announced."""


def encode_column(values: npt.NDArray[np.generic], mode: int) -> bytes:
    """Return the bytes of up to `MAX_ROWS` values: any integers in `OFFSET` or `DELTA`, doubles in `FLOAT`.

    Unsigned 64-bit integers keep their bits and come back as signed ones.
    """
    if values.ndim != 1 or len(values) > MAX_ROWS:
        raise ValueError(f"a column is one-dimensional and has at most {MAX_ROWS} rows, not {values.shape}")
    if mode == FLOAT:
        return _packed_planes(FLOAT, 0, values.astype("<f8").view(np.uint64), _WORD)
    if values.dtype.kind not in "iub":
        raise ValueError(f"integers expected, not {values.dtype}")
    words = values.astype(np.int64)
    if not len(words):
        return _packed_planes(mode, 0, words.view(np.uint64), 0)
    if mode == DELTA:
        base = int(words[0])
        steps = np.diff(words, prepend=words[:1])
        codes = (steps << 1 ^ steps >> 63).view(np.uint64)
    else:
        base = int(words.min())
        codes = words.view(np.uint64) - words.min().view(np.uint64)
    planes = -(-int(codes.max()).bit_length() // _WORD)
    return _packed_planes(mode, base, codes, planes)


def _packed_planes(mode: int, base: int, codes: npt.NDArray[np.uint64], planes: int) -> bytes:
    shuffled = codes.astype("<u8").view(np.uint8).reshape(len(codes), _WORD).T[:planes]
    return _HEAD.pack(mode, planes, base) + shuffled.tobytes()


def check_column(data: bytes, rows: int) -> tuple[int, int, int]:
    """Return mode, planes and base of a column; raise `ColumnError` unless it is one of so many rows.

    What passes can be decoded.
    """
    if not 0 <= rows <= MAX_ROWS:
        raise ColumnError(f"{rows} rows: 0 to {MAX_ROWS} expected")
    if len(data) < _HEAD.size:
        raise ColumnError(f"a column has at least {_HEAD.size} bytes, not {len(data)}")
    mode, planes, base = _HEAD.unpack_from(data)
    if mode not in (OFFSET, DELTA, FLOAT) or planes > _WORD or (mode == FLOAT and (planes, base) != (_WORD, 0)):
        raise ColumnError(f"unknown column: mode {mode}, {planes} planes, base {base}")
    if len(data) != _HEAD.size + planes * rows:
        raise ColumnError(f"{planes} planes of {rows} rows are {planes * rows} bytes, not {len(data) - _HEAD.size}")
    return mode, planes, base


def decode_column(data: bytes, rows: int) -> Column:
    """Return the column of `rows` values; raise `ColumnError` unless the bytes are exactly that."""
    mode, planes, base = check_column(data, rows)
    shuffled = np.frombuffer(data, np.uint8, offset=_HEAD.size).reshape(planes, rows)
    # Half the width where the codes fit it is half the time.
    codes = _gathered(shuffled, np.dtype(np.uint32) if planes <= _HALF else np.dtype(np.uint64))
    if mode == FLOAT:
        return codes.view(np.float64)
    if mode == OFFSET:
        words = codes.astype(np.uint64, copy=False)
        words += np.array(base, dtype=np.int64).view(np.uint64)
        return words.view(np.int64)
    signs = codes & codes.dtype.type(1)
    codes >>= codes.dtype.type(1)
    codes ^= np.negative(signs, out=signs)
    values = np.cumsum(codes.view(f"i{codes.itemsize}"), dtype=np.int64)
    values += np.int64(base)
    return values


def _gathered(shuffled: npt.NDArray[np.uint8], word: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the codes, one `word` each, whose bytes are in the planes, the lowest first."""
    planes, rows = shuffled.shape
    if not planes:
        return np.zeros(rows, dtype=word)
    codes: npt.NDArray[Any] = shuffled[-1].astype(word)
    for plane in shuffled[-2::-1]:
        codes <<= word.type(_WORD)
        codes |= plane
    return codes
