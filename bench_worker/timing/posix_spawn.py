"""Starts a program by libc's posix_spawn: no fork in Python, a working directory, and the GIL released meanwhile.

Why not the standard library's: `subprocess` forks in Python (several milliseconds, with the event loop held);
`os.posix_spawn` knows no working directory, keeps the GIL until the program runs, and is replaced by gevent with a
version that reaps children on SIGCHLD. libc's own call has none of this and reports a failed exec by its errno.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections import UserDict
from contextlib import ExitStack
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Values of <spawn.h>, the same in glibc and musl.
_SETSIGDEF = 0x04
_SETSIGMASK = 0x08
_SETSID = 0x80

# The libc structures are opaque and at most 336 bytes long in glibc and musl; room to spare costs nothing.
_OPAQUE_BYTES = 1024

_CREATE_MODE = 0o600


class FixedEnvironment(UserDict[str, str]):
    """An environment that many programs get, encoded for the C library once. It does not change."""

    @cached_property
    def block(self) -> ctypes.Array[ctypes.c_char_p]:
        """The environment as posix_spawn takes it."""
        return _environment_block(self.data)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def missing_feature() -> str | None:
    """Return what this machine's libc or kernel lacks for `spawn` and its caller, or None when nothing is missing."""
    if not hasattr(_libc(), "posix_spawn_file_actions_addchdir_np"):
        return "the C library has no posix_spawn_file_actions_addchdir_np (glibc 2.29 or newer, or musl 1.1.24)"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"the kernel has no pidfd_open (Linux 5.3 or newer): {error.strerror}"
    return None


def spawn(
    path: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    stdout: str,
    stderr: str,
    launch: Callable[[Callable[[], int]], int] | None = None,
) -> int:
    """Start the program at `path` in its own session and return its pid; it runs when this returns.

    stdin is empty; `stdout` and `stderr` are files to be made, or cut. Every signal is
    back at its default: an interpreter ignores SIGPIPE, and a program must not inherit that. Raises `OSError` with
    exec's own errno and `path` as its file name, or with the file name of an output that cannot be written.
    `launch` calls what it gets, which starts the program, and returns what that returned: from another thread, say.
    """
    with ExitStack() as opened:
        files = [os.open(os.devnull, os.O_RDONLY)]
        opened.callback(os.close, files[0])
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for name in (stdout, stderr):
            files.append(os.open(name, flags, _CREATE_MODE))
            opened.callback(os.close, files[-1])
        start = partial(_spawn, path, argv, env, cwd, files)
        return start() if launch is None else launch(start)


def _spawn(path: str, argv: Sequence[str], env: Mapping[str, str], cwd: str, files: Sequence[int]) -> int:
    libc = _libc()
    actions = ctypes.create_string_buffer(_OPAQUE_BYTES)
    environment = env.block if isinstance(env, FixedEnvironment) else _environment_block(env)
    _check(libc.posix_spawn_file_actions_init(actions))
    try:
        for standard, fd in enumerate(files):
            _check(libc.posix_spawn_file_actions_adddup2(actions, fd, standard))
        _check(libc.posix_spawn_file_actions_addchdir_np(actions, os.fsencode(cwd)))
        pid = ctypes.c_int()
        words = _vector(argv)
        _check(
            libc.posix_spawn(ctypes.byref(pid), os.fsencode(path), actions, _attributes(), words, environment), path
        )
        return pid.value
    finally:
        libc.posix_spawn_file_actions_destroy(actions)


@cache
def _attributes() -> ctypes.Array[ctypes.c_char]:
    """Return the attributes of every program: a session of its own, and every signal at its default."""
    libc = _libc()
    attributes = ctypes.create_string_buffer(_OPAQUE_BYTES)
    _check(libc.posix_spawnattr_init(attributes))
    signals = ctypes.create_string_buffer(_OPAQUE_BYTES)
    libc.sigemptyset(signals)
    _check(libc.posix_spawnattr_setsigmask(attributes, signals))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        libc.sigaddset(signals, int(number))
    _check(libc.posix_spawnattr_setsigdefault(attributes, signals))
    flags = ctypes.c_short(_SETSID | _SETSIGDEF | _SETSIGMASK)
    _check(libc.posix_spawnattr_setflags(attributes, flags))
    return attributes


def _environment_block(env: Mapping[str, str]) -> ctypes.Array[ctypes.c_char_p]:
    return _vector(f"{name}={value}" for name, value in env.items())


def _vector(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [os.fsencode(text) for text in texts]
    if any(b"\0" in text for text in encoded):
        raise OSError(errno.EINVAL, "a program's arguments and environment cannot hold a NUL byte")
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _check(code: int, path: str | None = None) -> None:
    if code:
        raise OSError(code, os.strerror(code), path)
