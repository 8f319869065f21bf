"""Keeps the output of a command within bounds, and parses arguments of verbs that are text: signals and CPU lists."""

from __future__ import annotations

import functools
import os
import re
import signal
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import gevent

from bench_common.errors import did_you_mean
from bench_common.long_output import join_ends

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_CPU_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


@functools.lru_cache(maxsize=64)
def parse_signal(text: str) -> signal.Signals:
    """Return the signal that ``SIGKILL``, ``KILL`` or ``9`` names; raise `ValueError` with the nearest spelling."""
    word = text.strip().upper()
    names = {member.name: member for member in signal.Signals}
    if word.isdecimal() and int(word) in {int(member) for member in signal.Signals}:
        return signal.Signals(int(word))
    found = names.get(word) or names.get(f"SIG{word}")
    if found is None:
        raise ValueError(f"unknown signal {text!r}{did_you_mean(word, names)}; expected one such as SIGTERM")
    return found


def parse_cpuset(text: str) -> frozenset[int]:
    """Return the CPU numbers of a list such as ``0-1,4``; raise `ValueError` for anything else."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = _CPU_RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"cpuset {text!r}: {part.strip()!r} is not a CPU or a range; expected such as '0-1,4'")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


ERROR_CHARS: Final = 4096
"""How much of an error text is kept, of its beginning and end: patterns search it, and the loop waits for them."""

_READ: Final = 1
"""libev's and libuv's flag for "readable"."""
_CHUNK_BYTES: Final = 64 * 1024
_LAST_CHUNKS: Final = 64
"""How much is read of a pipe after the end of its program: more than a pipe holds, and not for ever."""


class Capture:
    """The beginning and the end of a stream: together at most `limit_bytes`, and whether there was more."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._room = limit_bytes // 2
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.truncated = False

    def add(self, chunk: bytes) -> None:
        """Keep as much of `chunk` as there is room for, at the cost of what is neither beginning nor end."""
        first, rest = chunk[: self._room], chunk[self._room :]
        self._room -= len(first)
        if first:
            self._head.append(first)
        if not rest:
            return
        self._tail.append(rest)
        self._tail_bytes += len(rest)
        most = self._limit - self._limit // 2
        self.truncated |= self._tail_bytes > most
        while self._tail_bytes - len(self._tail[0]) >= most:
            self._tail_bytes -= len(self._tail.popleft())

    def skip_to_end(self) -> None:
        """Keep the beginning only: what is added from now on is from the end."""
        self._room = 0
        self._tail.clear()
        self._tail_bytes = 0
        self.truncated = True

    @property
    def data(self) -> bytes:
        """What was kept."""
        head, tail = b"".join(self._head), b"".join(self._tail)
        return join_ends(head, tail, self._limit) if self.truncated else head + tail


class PipeReader:
    """Reads one stream of a program from a pipe, in the loop, so that the program never waits for a greenlet.

    The program opens `path` for writing, and blocks there when the pipe is full, not here. `full` is called when
    there is more than is kept.
    """

    def __init__(
        self, read_fd: int, write_fd: int, path: str, limit_bytes: int, full: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self.capture = Capture(limit_bytes)
        self._full = full
        self._read_fd, self._write_fd = read_fd, write_fd
        self._watcher: Any = None

    @classmethod
    def of_pipe(cls, limit_bytes: int, full: Callable[[], None] | None = None) -> PipeReader:
        """Return a new one, for a child of this process."""
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        return cls(read_fd, write_fd, f"/proc/self/fd/{write_fd}", limit_bytes, full)

    @classmethod
    def of_fifo(cls, path: Path, limit_bytes: int) -> PipeReader:
        """Return one for a FIFO that is there, for whoever opens it by its name. It stays when the tap is closed."""
        read_fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            write_fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(read_fd)
            raise
        return cls(read_fd, write_fd, str(path), limit_bytes)

    def open(self) -> None:
        """Begin to read; the program has its end of the pipe by now."""
        os.close(self._write_fd)
        self._write_fd = -1
        self._watcher = gevent.get_hub().loop.io(self._read_fd, _READ)
        self._watcher.start(self._read)

    def drain(self) -> None:
        """Read what the pipe still holds; whoever else has inherited it is not waited for."""
        for _ in range(_LAST_CHUNKS):
            if not self._read():
                return

    def close(self) -> None:
        """Let go of the pipe."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        for fd in (self._read_fd, self._write_fd):
            if fd >= 0:
                os.close(fd)
        self._read_fd = self._write_fd = -1

    def _read(self) -> bool:
        """Take in what is there; return whether there may be more."""
        try:
            chunk = os.read(self._read_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            if self._watcher is not None:
                self._watcher.stop()
            return False
        self.capture.add(chunk)
        if self.capture.truncated and self._full is not None:
            self._full()
        return True


def read_head(path: Path, limit_bytes: int) -> tuple[bytes, bool]:
    """Return at most `limit_bytes` of a file (nothing where there is none) and whether there was more."""
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except FileNotFoundError:
        return b"", False
    return data[:limit_bytes], len(data) > limit_bytes


def read_ends(path: Path, limit_bytes: int) -> tuple[bytes, bool]:
    """Return a file, or both ends of a longer one, and whether it is longer; nothing where there is none."""
    head, more = read_head(path, limit_bytes)
    return (join_ends(head, read_tail(path, limit_bytes)[0], limit_bytes), True) if more else (head, False)


def read_tail(path: Path, limit_bytes: int) -> tuple[bytes, bool]:
    """Return at most `limit_bytes` of the end of a file (nothing where there is none) and whether there was more."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - limit_bytes)
            file.seek(start)
            return file.read(limit_bytes), start > 0
    except FileNotFoundError:
        return b"", False
