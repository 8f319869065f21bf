"""How much of what a command printed is kept: of a long output its beginning and its end, where results stand."""

from __future__ import annotations

from typing import Final

OUTPUT_LIMIT_BYTES: Final = 4 << 20
"""How much of each stream of a command is kept; of a longer one this much of both ends together."""
OUTPUT_GAP: Final = "[... the middle of this output was too long to be kept ...]"
"""The line between them."""


def join_ends(head: bytes, tail: bytes, limit_bytes: int) -> bytes:
    """Return the whole lines of the beginning of `head` and of the end of `tail`, and `OUTPUT_GAP` between them."""
    half = limit_bytes // 2
    head, start = head[:half], max(0, len(tail) - half)
    # Half a line could be read as a whole one.
    end, cut = head.rfind(b"\n") + 1, tail.find(b"\n", max(0, start - 1)) + 1
    return head[:end] + f"{OUTPUT_GAP}\n".encode() + (tail[cut:] if cut else b"")


def keep_ends(data: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    """Return an output, or both ends of one that is longer than `limit_bytes`, and whether it is."""
    return (join_ends(data, data, limit_bytes), True) if len(data) > limit_bytes else (data, False)
