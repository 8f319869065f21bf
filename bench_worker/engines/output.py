"""Keeps what a command printed within bounds, whichever engine ran it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

EXEC_OUTPUT_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""How much of each stream of an `exec` is kept; `Done.truncated` says when there was more."""


class Capture:
    """The beginning of a stream: at most `limit_bytes`, and whether there was more."""

    def __init__(self, limit_bytes: int) -> None:
        self._room = limit_bytes
        self._chunks: list[bytes] = []
        self.truncated = False

    def add(self, chunk: bytes) -> None:
        """Keep as much of `chunk` as there is room for."""
        kept = chunk[: self._room]
        self.truncated |= len(kept) < len(chunk)
        self._room -= len(kept)
        if kept:
            self._chunks.append(kept)

    @property
    def data(self) -> bytes:
        """What was kept."""
        return b"".join(self._chunks)


def read_beginning(path: Path, limit_bytes: int) -> tuple[bytes, bool]:
    """Return at most `limit_bytes` of a file (nothing where there is none) and whether there was more."""
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except FileNotFoundError:
        return b"", False
    return data[:limit_bytes], len(data) > limit_bytes
