"""The process of a container in containerd: started by one ``ctr``, watched by us, ended and deleted by others."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_worker.engines.base import Done, OperationFailed
from bench_worker.engines.native.process import ended_at, until_dead
from bench_worker.timing.processes import Process, WaitTimeout, starting, watch_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_worker.engines.command_line import Errand

KINDS: Final = tuple(
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
_ENDING_S: Final = 0.2
_RESUME_S: Final = 5.0


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
        with suppress(ProcessLookupError), starting:
            pid = int((self.directory / "pid").read_text(encoding="ascii"))
            self.main = watch_process(pid, start_ns=start_ns)


def until_ended(task: Task, start_ns: int, timeout_s: float) -> Done:
    """Wait for the end of the process; one that was gone before it could be watched ended before `start_ns`."""
    if task.main is None:
        return Done(start_ns, start_ns)
    return ended_at(start_ns, until_dead(task.main, start_ns, time.monotonic() + timeout_s))


def steer(errand: Errand, main: Process, *words: str) -> bool:
    """Run a command on the process and return True; False where it has just ended, which is no error."""
    answer = errand.call(*words)
    if answer.exit_code:
        try:
            main.wait(_ENDING_S)
        except WaitTimeout:
            raise errand.failed(answer) from None
    return not answer.exit_code


@contextmanager
def held_still(errand: Errand, name: str, task: Task) -> Iterator[None]:
    """Have the process of `task` paused meanwhile, where it runs, so that its files do not change."""
    runs = task.main is not None and task.main.exit is None and not task.paused
    if not runs or task.main is None or not steer(errand, task.main, "tasks", "pause", name):
        yield
        return
    try:
        yield
    except BaseException:
        # The time may be up: it must not stay as it is for that.
        with suppress(OperationFailed):
            errand.cli.errand(_RESUME_S).do("tasks", "resume", name)
        raise
    steer(errand, task.main, "tasks", "resume", name)


def delete(errand: Errand, *words: str) -> None:
    """Run a command that deletes something; that it is gone already is no error."""
    answer = errand.call(*words)
    if answer.exit_code:
        failure = errand.failed(answer)
        if failure.kind != "not-found":
            raise failure
