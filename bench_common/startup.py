"""What a program does first: one heap for all threads, Ctrl-C that ends it while it loads, no search for plug-ins.

glibc gives each native thread a heap of its own, which keeps what it once had: a few MB for a thread that packs
results. The threads here mostly wait for the interpreter or the kernel, so a single heap does not slow them down.

A `KeyboardInterrupt` in the middle of an import prints a traceback or is lost in a callback. Nothing has begun by
then, so the process ends at once. This module is loaded before all others, so it imports next to nothing.

Most of a start is the making of classes: `dataclass` writes six methods for each and compiles them one by one. Half
of all that a program loads is never compared, hashed or printed, so these methods are compiled when they are called.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

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


def skip_gevent_plugins() -> None:
    """Let gevent patch without asking all installed packages, at each of 25 steps, whether they want to know.

    That takes half of the time that the patch takes; nothing here subscribes to it.
    """
    import gevent.events

    vars(gevent.events)["notify_and_call_entry_points"] = vars(gevent.events)["notify"]


def skip_docker_ssh() -> None:
    """Let docker-py load without its transport over SSH, which it does without, unless ``DOCKER_HOST`` asks for it.

    What that transport imports takes as long to load as all else that docker-py does.
    """
    if not os.environ.get("DOCKER_HOST", "").startswith("ssh:"):
        absent: dict[str, Any] = {"docker.transport.sshconn": None}
        sys.modules.update(absent)


_COMPILED_AT_ONCE: Final = frozenset({"__init__"})
"""What every object of a class needs, and whose parameters others look up."""


def compile_on_demand() -> None:
    """Let `dataclass` compile a method other than ``__init__`` when it is first called.

    Python 3.13 compiles all methods of a class at once, which is cheap enough: there this does nothing.
    """
    make: Callable[..., Callable[..., Any]] | None = getattr(dataclasses, "_create_fn", None)
    if make is None:
        return

    def create(name: str, *source: Any, **scope: Any) -> Callable[..., Any]:
        if name in _COMPILED_AT_ONCE:
            return make(name, *source, **scope)
        compiled: Callable[..., Any] | None = None

        def method(*arguments: Any) -> Any:
            nonlocal compiled
            if compiled is None:
                compiled = make(name, *source, **scope)
            return compiled(*arguments)

        method.__name__ = name
        return method

    vars(dataclasses)["_create_fn"] = create


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
