"""A mount namespace of our own, in which programs start and file systems are mounted that nobody else sees.

Two things need one. The writable layers of containers are overlays: mounted here they vanish with this process,
however it ends, and clutter no table of the host. And where cgroup v1 is mounted together with an empty v2
hierarchy ("hybrid"), crun and youki take the machine for a v2 one; here that hierarchy is hidden from them.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bench_worker.engines.native_thread import NativeThread
from bench_worker.timing.processes import spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_worker.timing.processes import Process

ResultT = TypeVar("ResultT")

_CLONE_FS: Final = 0x00000200
_CLONE_NEWNS: Final = 0x00020000
_MS_REC: Final = 0x4000
_MS_SLAVE: Final = 1 << 19
_MNT_DETACH: Final = 2
"""Values of <sched.h> and <sys/mount.h>."""

_HYBRID: Final = "/sys/fs/cgroup/unified"


class MountNamespace:
    """The namespace, and the two native threads that live in it: a namespace belongs to a thread, not to a process.

    One starts programs and does nothing else, so that no start waits for a disk. The other mounts, unmounts and does
    other work on files. Mounts that the host makes later appear here; mounts made here do not appear there. Every
    method blocks the greenlet that calls it, never the loop.
    """

    def __init__(self) -> None:
        self._starter = NativeThread()
        self._files = NativeThread()
        self._entered = False
        self._deferred: list[Callable[[], object]] = []

    def enter(self) -> None:
        """Make the namespace; raise `OSError` where this process may not (root without CAP_SYS_ADMIN, say)."""
        if not self._entered:
            namespace = self._starter.call(new_namespace)
            try:
                self._files.call(lambda: join_namespace(namespace))
            finally:
                os.close(namespace)
            self._entered = True

    def spawn(self, argv: tuple[str, ...], **how: Any) -> Process:
        """Start a program in the namespace; otherwise like `bench_worker.timing.processes.spawn`.

        While it runs, what was deferred is done.
        """
        process = self._starter.call(lambda: spawn(argv, **how))
        self._do_deferred()
        return process

    def call(self, do: Callable[[], ResultT]) -> ResultT:
        """Run `do`, which works on files, in the namespace, after all that was deferred, and return its result."""
        self._do_deferred()
        return self._files.call(do)

    def defer(self, do: Callable[[], object]) -> None:
        """Run `do`, which works on files and handles its own errors, in the namespace while the next program runs.

        Nobody waits for it. What is deferred is done in its order.
        """
        self._deferred.append(do)

    def close(self) -> None:
        """End the threads when they have done their work; the namespace goes when the last program in it ends."""
        self._do_deferred()
        self._files.close()
        self._starter.close()
        self._entered = False

    def _do_deferred(self) -> None:
        for do in self._deferred:
            self._files.post(do)
        self._deferred.clear()


def mount_overlay(target: str, *, lower: str, upper: str, work: str) -> None:
    """Mount the directory `lower` at `target` so that changes go to `upper`; raise `OSError`.

    Only for what `MountNamespace.call` and `defer` run.
    """
    _mount("overlay", target, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}")


def unmount(target: str) -> None:
    """Undo a mount; one that is not there is no error. Only for what `MountNamespace.call` and `defer` run."""
    if _libc().umount2(os.fsencode(target), _MNT_DETACH):
        number = ctypes.get_errno()
        if number not in {errno.EINVAL, errno.ENOENT}:
            raise OSError(number, os.strerror(number), target)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def new_namespace() -> int:
    """Put this thread into a namespace of its own and return a descriptor of that."""
    _check(_libc().unshare(_CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    _mount(None, "/", None, _MS_REC | _MS_SLAVE, None)
    with suppress(OSError):
        unmount(_HYBRID)
    return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def join_namespace(namespace: int) -> None:
    """Put this thread into another one's namespace; for that it must not share its directories with other threads."""
    _check(_libc().unshare(_CLONE_FS), "unshare(CLONE_FS)")
    _check(_libc().setns(namespace, _CLONE_NEWNS), "setns(CLONE_NEWNS)")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(_libc().mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), target)


def _check(code: int, what: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
