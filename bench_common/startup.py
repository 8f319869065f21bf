"""What a program does first: one heap for all threads, and Ctrl-C that ends it while it loads.

glibc gives each native thread a heap of its own, which keeps what it once had: a few MB for a thread that packs
results. The threads here mostly wait for the interpreter or the kernel, so a single heap does not slow them down.

A `KeyboardInterrupt` in the middle of an import prints a traceback or is lost in a callback. Nothing has begun by
then, so the process ends at once. This module is loaded before all others, so it imports next to nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from contextlib import suppress
from typing import Final, NoReturn

M_ARENA_MAX: Final = -8
"""The parameter of mallopt(3) for the largest number of heaps, in all versions of glibc."""


STAGE_LOADING: Final = "starting its load process and loading modules"
STAGE_ENGINES: Final = "asking engines"
STAGE_LEFTOVERS: Final = "removing what dead runs left"
STAGE_LOAD_PROCESS: Final = "waiting for its load process"
STAGE_JOINING: Final = "asking its master to join"
"""What a worker does, in this order, before it takes part in a run; it tells a master on the same machine."""


def limit_malloc_arenas() -> None:
    """Let threads started from here on share the main thread's heap. Only glibc needs this."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _exit_on_sigint(number: int, frame: object) -> NoReturn:
    del number, frame
    os._exit(130)


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process at once with exit code 130, unless the process ignores SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_on_sigint)


def hold_collector() -> None:
    """Collect no garbage while modules load: what they make stays, and each pass over it takes time."""
    gc.disable()


def release_collector() -> None:
    """Collect garbage from now on, but never again look at what was loaded so far."""
    gc.freeze()
    gc.enable()


def restore_sigint() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again: from here on there may be something to clean up."""
    if signal.getsignal(signal.SIGINT) is _exit_on_sigint:
        signal.signal(signal.SIGINT, signal.default_int_handler)
