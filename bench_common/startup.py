"""One heap for all threads of a process that is to stay small.

glibc gives each native thread a heap of its own, and each keeps what it once had: a thread that packs results for
the stats file is a few MB for good, on top of what the main thread keeps. The threads here mostly wait for the
interpreter or the kernel, so they do not get into each other's way on a single heap.

Ctrl-C while a program is still being loaded: nothing was begun, so it ends at once.

A `KeyboardInterrupt` in the middle of an import prints a traceback, or is lost in a callback, and the command would
then go on as if nobody had asked it to stop. This module is loaded before all others, so it imports next to nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Final, NoReturn

M_ARENA_MAX: Final = -8
"""The parameter of mallopt(3) that says how many heaps there may be, in all of glibc's versions."""


def limit_malloc_arenas() -> None:
    """Give threads that are started from here on the heap of the main thread; no other libc than glibc needs it."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _exit_on_sigint(number: int, frame: object) -> NoReturn:
    del number, frame
    os._exit(130)


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, with exit code 130; one that was told to ignore it goes on doing so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_on_sigint)


def restore_sigint() -> None:
    """Let Ctrl-C be a `KeyboardInterrupt` again: from here on there is something to clean up."""
    if signal.getsignal(signal.SIGINT) is _exit_on_sigint:
        signal.signal(signal.SIGINT, signal.default_int_handler)
