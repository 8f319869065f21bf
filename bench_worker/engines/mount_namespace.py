"""A mount namespace of our own, in which programs are started and file systems mounted that nobody else sees.

Two things need one. The writable layers of containers are overlays: mounted here they vanish with this process,
however it ends, and clutter no table of the host. And where cgroup v1 is mounted together with an empty v2 hierarchy
("hybrid"), crun and youki take the machine for a v2 one; here that hierarchy is hidden from them.

A mount namespace belongs to a thread, not to a process, so one native thread lives in it and does all of that. Mounts
that the host makes later show up here; those that are made here do not show up there.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from gevent.threadpool import ThreadPool

from bench_worker.timing.processes import spawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench_worker.timing.processes import Process

_CLONE_NEWNS: Final = 0x00020000
_MS_REC: Final = 0x4000
_MS_SLAVE: Final = 1 << 19
_MNT_DETACH: Final = 2
"""Values of <sched.h> and <sys/mount.h>."""

_HYBRID: Final = "/sys/fs/cgroup/unified"


class MountNamespace:
    """The namespace and its thread. Every method blocks the greenlet that calls it, never the loop."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)
        self._entered = False

    def enter(self) -> None:
        """Make the namespace; raise `OSError` where this process may not (root without CAP_SYS_ADMIN, say)."""
        if not self._entered:
            self._call(_unshare)
            self._entered = True

    def spawn(self, argv: tuple[str, ...], **how: Any) -> Process:
        """Start a program in the namespace; otherwise like `bench_worker.timing.processes.spawn`."""
        process: Process = self._call(lambda: spawn(argv, **how))
        return process

    def overlay(self, target: Path, *, lower: Path, upper: Path, work: Path) -> None:
        """Mount the directory `lower` at `target` so that changes go to `upper`; raise `OSError`."""
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        self._call(lambda: _mount("overlay", str(target), "overlay", 0, options))

    def unmount(self, target: Path) -> None:
        """Undo a mount; one that is not there is no error."""
        self._call(lambda: _unmount(str(target)))

    def close(self) -> None:
        """End the thread; the namespace goes when the last program in it ends."""
        if self._entered:
            self._pool.kill()

    def _call(self, do: Callable[[], Any]) -> Any:
        return self._pool.apply(do)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _unshare() -> None:
    _check(_libc().unshare(_CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    _mount(None, "/", None, _MS_REC | _MS_SLAVE, None)
    with suppress(OSError):
        _unmount(_HYBRID)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(_libc().mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), target)


def _unmount(target: str) -> None:
    if _libc().umount2(os.fsencode(target), _MNT_DETACH):
        number = ctypes.get_errno()
        if number not in {errno.EINVAL, errno.ENOENT}:
            raise OSError(number, os.strerror(number), target)


def _check(code: int, what: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
