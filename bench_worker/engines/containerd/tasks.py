"""The process of a container in containerd: started by one ``ctr``, watched by us, ended and deleted by others.

Hears from containerd how containers end: ``ctr`` has no command that waits for one that it does not own.

``ctr events`` goes on for as long as the engine is open and prints a line for each event of the namespace. Only exit
codes are taken from it; when a process ended is known from the kernel.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gevent
from gevent.event import AsyncResult

from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.native.container import result_at_exit, wait_exit
from bench_worker.timing.processes import Process, WaitTimeout, spawn, spawn_lock, watch_process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench_worker.engines.command_line import CommandSequence

ERROR_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("unreachable", r"failed to dial|connection refused|error while dialing"),
        ("refused", r"rlimit"),
        ("disk-full", r"no space left on device|disk quota exceeded"),
        ("not-executable", r"exec:.*(permission denied|exec format error|is a directory)"),
        ("command-not-found", r"executable file not found|exec:.*no such file or directory"),
        ("image-missing", r"image .*not found"),
        ("conflict", r"already exists|already finished|cannot (pause|resume|exec)|must be stopped|not running"),
        ("not-found", r"not found"),
    )
)
_ENDING_TIMEOUT_S: Final = 0.2
_RESUME_TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class Task:
    """What we know of a container: its directory of ours, and its process once there is one."""

    directory: Path
    image: str
    main: Process | None = None
    started: bool = False
    paused: bool = False
    execs: int = 0
    committed_bytes: int | None = None
    """How much the last image that was made of it has beyond the one that it was made from."""

    @property
    def options(self) -> list[str]:
        """The options that say where its output and its number go."""
        return [f"--log-uri=file://{self.directory / 'log'}", f"--pid-file={self.directory / 'pid'}"]

    def watch(self, start_ns: int) -> None:
        """Watch the process that was started after `start_ns`; `main` stays None where it has ended already."""
        self.started, self.paused, self.main = True, False, None
        with suppress(ProcessLookupError), spawn_lock:
            pid = int((self.directory / "pid").read_text(encoding="ascii"))
            self.main = watch_process(pid, start_ns=start_ns)


def wait_ended(task: Task, start_ns: int, timeout_s: float) -> OperationResult:
    """Wait for the end of the process; one that was gone before it could be watched ended before `start_ns`."""
    if task.main is None:
        return OperationResult(start_ns, start_ns)
    return result_at_exit(start_ns, wait_exit(task.main, start_ns, time.monotonic() + timeout_s))


def run_unless_ended(errand: CommandSequence, main: Process, *words: str) -> bool:
    """Run a command on the process and return True; False where it has just ended, which is no error."""
    answer = errand.call(*words)
    if answer.exit_code:
        try:
            main.wait(_ENDING_TIMEOUT_S)
        except WaitTimeout:
            raise errand.failed(answer) from None
    return not answer.exit_code


@contextmanager
def paused_during(errand: CommandSequence, name: str, task: Task) -> Iterator[None]:
    """Have the process of `task` paused meanwhile, where it runs, so that its files do not change."""
    runs = task.main is not None and task.main.exit is None and not task.paused
    if not runs or task.main is None or not run_unless_ended(errand, task.main, "tasks", "pause", name):
        yield
        return
    try:
        yield
    except BaseException:
        # The time may be up: it must not stay as it is for that.
        with suppress(OperationFailed):
            errand.cli.errand(_RESUME_TIMEOUT_S).do("tasks", "resume", name)
        raise
    run_unless_ended(errand, task.main, "tasks", "resume", name)


def delete_if_present(errand: CommandSequence, *words: str) -> None:
    """Run a command that deletes something; that it is gone already is no error."""
    answer = errand.call(*words)
    if answer.exit_code:
        failure = errand.failed(answer)
        if failure.kind != "not-found":
            raise failure


_READ: Final = 1
"""libev's and libuv's flag for "readable"."""
_CHUNK_BYTES: Final = 1 << 16
_END_S: Final = 5.0


class ExitEvents:
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
        self._watcher.start(self._read_events)

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

    def _read_events(self) -> None:
        try:
            chunk = os.read(self._read_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._watcher.stop()
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            told = parse_exit_event(line)
            if told is not None and told[0] in self._codes:
                self._codes[told[0]].set(told[1])


def parse_exit_event(line: bytes) -> tuple[str, int] | None:
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
