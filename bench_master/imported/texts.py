"""Reads files that hold what a tool printed: plain or gzip, of a size that such a thing can have."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import Final

from bench_common.errors import UsageError

LIMIT_BYTES: Final = 64 * 2**20
"""No benchmark prints more; a larger file is not an output, and a gzip bomb stops here."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_OTHERS: Final = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
"""How files begin that are packed in ways that are not undone here."""


def read_bytes(name: str) -> tuple[str, bytes]:
    """Return what to call the source, and its bytes; ``-`` is standard input. Raises `UsageError`."""
    if name == "-":
        return "<stdin>", sys.stdin.buffer.read(LIMIT_BYTES + 1)
    try:
        with Path(name).open("rb") as stream:
            return name, stream.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error


def text_of(place: str, data: bytes) -> str:
    """Return `data` as text, unpacked if it is gzip; bytes that are no UTF-8 stay visible as escapes.

    A text that a Windows shell redirected into a file is UTF-16, and begins with a mark that says so.

    Raises `UsageError` for damaged gzip, for what is packed otherwise, and for what is longer than `LIMIT_BYTES`.
    """
    if data.startswith(_GZIP_MAGIC):
        data = _unpacked(place, data)
    other = next((name for magic, name in _OTHERS.items() if data.startswith(magic)), None)
    if other is not None:
        raise UsageError(f"{place}: packed by {other}; unpack it first, or pack it by gzip")
    if len(data) > LIMIT_BYTES:
        raise UsageError(
            f"{place}: longer than {LIMIT_BYTES >> 20} MiB, which no benchmark prints; is it the right file?"
        )
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    return data.decode(encoding, errors="backslashreplace")


def _unpacked(place: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return stream.read(LIMIT_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{place}: damaged gzip: {error}") from error
