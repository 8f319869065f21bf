"""One heap for all threads of a process that is to stay small.

glibc gives each native thread a heap of its own, and each keeps what it once had: a thread that packs results for
the stats file is a few MB for good, on top of what the main thread keeps. The threads here mostly wait for the
interpreter or the kernel, so they do not get into each other's way on a single heap.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

M_ARENA_MAX: Final = -8
"""The parameter of mallopt(3) that says how many heaps there may be, in all of glibc's versions."""


def share_heap() -> None:
    """Give threads that are started from here on the heap of the main thread; no other libc than glibc needs it."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
