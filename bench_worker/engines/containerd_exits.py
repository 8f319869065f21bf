"""Hears from containerd how containers end: ``ctr`` has no command that waits for one that it does not own.

``ctr events`` goes on for as long as the engine is open and prints a line for each event of the namespace. Only exit
codes are taken from it; when a process ended is known from the kernel.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import gevent
from gevent.event import AsyncResult

from bench_worker.timing.processes import Process, spawn

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ: Final = 1
"""libev's and libuv's flag for "readable"."""
_CHUNK_BYTES: Final = 1 << 16
_END_S: Final = 5.0


class Exits:
    """The exit codes of the containers of one namespace, by their names, from `open` on."""

    def __init__(self, program: Sequence[str], namespace: str) -> None:
        self._argv = (*program, "events", f'topic=="/tasks/exit",namespace=={namespace}')
        self._codes: dict[str, AsyncResult[int]] = {}
        self._rest = b""
        self._process: Process | None = None
        self._watcher: Any = None
        self._read_fd = -1

    def open(self) -> None:
        """Begin to listen."""
        self._read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            # Opened anew by its path, so that it blocks there and not here.
            self._process = spawn(self._argv, env=os.environ, cwd="/", stdout_path=f"/proc/self/fd/{write_fd}")
        finally:
            os.close(write_fd)
        self._watcher = gevent.get_hub().loop.io(self._read_fd, _READ)
        self._watcher.start(self._hear)

    def expect(self, name: str) -> None:
        """Note that this container's process is about to start; an earlier exit of the same name is forgotten."""
        self._codes[name] = AsyncResult()

    def code(self, name: str, timeout_s: float) -> int | None:
        """Return the exit code of a container that was expected, once it is told; None when it is not in time."""
        try:
            return self._codes[name].get(timeout=timeout_s)
        except gevent.Timeout:
            return None

    def forget(self, name: str) -> None:
        """Expect no exit of this container any longer."""
        self._codes.pop(name, None)

    def close(self) -> None:
        """End the listening."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        if self._process is not None and self._process.signal_group(9):
            self._process.wait(_END_S)
        self._process = None
        if self._read_fd >= 0:
            os.close(self._read_fd)
            self._read_fd = -1

    def _hear(self) -> None:
        try:
            chunk = os.read(self._read_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._watcher.stop()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            told = read_exit(line)
            if told is not None and told[0] in self._codes:
                self._codes[told[0]].set(told[1])


def read_exit(line: bytes) -> tuple[str, int] | None:
    """Return the container and its exit code from a line of ``ctr events``; None for any other, as of an exec."""
    _, brace, body = line.partition(b"{")
    try:
        event = json.loads(brace + body)
    except ValueError:
        return None
    if event.get("id") != event.get("container_id") or not isinstance(event.get("id"), str):
        return None
    # Zero is left out of the JSON.
    return event["id"], int(event.get("exit_status", 0))
