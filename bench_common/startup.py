"""What a program does first: one heap for all threads, Ctrl-C that ends it while it loads, no search for plug-ins.

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
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def standard_library_only() -> Iterator[None]:
    """Let only the standard library be on `sys.path` for a while, for gevent to patch it.

    At each of 25 steps gevent asks all packages on that path whether they have a plug-in for it, which takes four
    times as long as the patch. What gevent itself needs of other packages is loaded before.
    """
    import gevent.events  # noqa: F401  takes what it needs of zope along

    library = os.path.dirname(os.__file__)  # noqa: PTH120  pathlib is not loaded yet
    whole = sys.path[:]
    sys.path[:] = [library, f"{library}/lib-dynload"]
    try:
        yield
    finally:
        sys.path[:] = whole


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
