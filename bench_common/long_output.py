"""How much of what a command printed is kept: of a long output its beginning and its end, where results stand."""

from __future__ import annotations

from typing import Final

OUTPUT_LIMIT_BYTES: Final = 4 << 20
"""How much of each stream of a command is kept; of a longer one this much of both ends together."""
OUTPUT_GAP: Final = "[... the middle of this output was too long to be kept ...]"
_GAP_LINE: Final = f"{OUTPUT_GAP}\n".encode()


def join_ends(head: bytes, tail: bytes, limit_bytes: int) -> bytes:
    """Return the whole lines of the beginning of `head` and of the end of `tail`, and `OUTPUT_GAP` between them.

    Each end has half of `limit_bytes`. A line that is longer than that is cut: no tool prints figures on it.
    """
    half = limit_bytes // 2
    head, start = head[:half], max(0, len(tail) - half)
    # Half a line could be read as a whole one.
    end, cut = head.rfind(b"\n") + 1, tail.find(b"\n", max(0, start - 1)) + 1
    return (head[:end] or head + b"\n") + _GAP_LINE + tail[cut or start :]


def keep_ends(data: bytes, limit_bytes: int) -> tuple[bytes, bool]:
    """Return an output, or `limit_bytes` at most of both ends of one that is longer, and whether it is."""
    if len(data) <= limit_bytes:
        return data, False
    room = limit_bytes - len(_GAP_LINE) - 1
    return join_ends(data, data, room) if room > 0 else b"", True
