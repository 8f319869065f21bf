"""Packs and unpacks the few messages of the CRI and of containerd in protobuf's wire format, by field numbers.

The format is small (`<https://protobuf.dev/programming-guides/encoding/>`_) and the numbers are fixed for ever by
their version 1, so there is no need of generated classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Value: TypeAlias = "int | str | bytes | Sequence[str | bytes] | Mapping[str, str] | None"
Fields: TypeAlias = "Mapping[int, Sequence[int | bytes]]"
"""An unpacked message: by field number, all values."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_MORE: Final = 0x80
_64_BITS: Final = (1 << 64) - 1


class MalformedMessage(ValueError):
    """Bytes that are no protobuf message."""


def pack(fields: Mapping[int, Value]) -> bytes:
    """Return a message with these fields by number; 0, False, empty text and None are left out, as the format has it.

    A sequence is a repeated field, a mapping a map of text to text, and bytes may be a message of their own.
    """
    packed = bytearray()
    for number, value in fields.items():
        if not value:
            continue
        if isinstance(value, int):
            packed += _varint(number << 3 | _VARINT) + _varint(value & _64_BITS)
        elif isinstance(value, Mapping):
            for key, text in value.items():
                packed += _chunk(number, pack({1: key, 2: text}))
        elif isinstance(value, str | bytes):
            packed += _chunk(number, value)
        else:
            for item in value:
                packed += _chunk(number, item)
    return bytes(packed)


def unpack(data: bytes) -> dict[int, list[int | bytes]]:
    """Return the fields of a message by number, each with all its values; raise `MalformedMessage`."""
    fields: dict[int, list[int | bytes]] = {}
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _read_varint(data, position)
        elif kind in {_BYTES, _FIXED32, _FIXED64}:
            size = {_FIXED32: 4, _FIXED64: 8}.get(kind, 0)
            if kind == _BYTES:
                size, position = _read_varint(data, position)
            if position + size > len(data):
                raise MalformedMessage(f"field {key >> 3} is cut short")
            value, position = data[position : position + size], position + size
        else:
            raise MalformedMessage(f"field {key >> 3} is of the unknown kind {kind}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def text(fields: Fields, number: int) -> str:
    """Return a field of text; empty where there is none."""
    return blob(fields, number).decode("utf-8", "replace")


def blob(fields: Fields, number: int) -> bytes:
    """Return a field of bytes, or a message in it; empty where there is none."""
    value = fields.get(number, (b"",))[-1]
    return value if isinstance(value, bytes) else b""


def number(fields: Fields, number: int) -> int:
    """Return a field that is a whole number with a sign; 0 where there is none."""
    value = fields.get(number, (0,))[-1]
    if not isinstance(value, int):
        return 0
    return value - (1 << 64) if value >> 63 else value


def texts(fields: Fields, number: int) -> dict[str, str]:
    """Return a field that is a map of text to text."""
    entries = [unpack(item) for item in fields.get(number, ()) if isinstance(item, bytes)]
    return {text(entry, 1): text(entry, 2) for entry in entries}


def _chunk(number: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    packed = bytearray()
    while value >= _MORE:
        packed.append(value & (_MORE - 1) | _MORE)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:  # noqa: PLR2004  the format's longest number has 64 bits
        byte = data[position]
        position += 1
        value |= (byte & (_MORE - 1)) << shift
        if byte < _MORE:
            return value, position
        shift += 7
    raise MalformedMessage("a number is cut short")
