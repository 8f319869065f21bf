"""The process of a container in containerd: started by one ``ctr``, watched by us, ended and deleted by others."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_worker.engines.base import Done
from bench_worker.engines.native_stock import ended_at, until_dead
from bench_worker.processes import Process, WaitTimeout, starting, watch_process

if TYPE_CHECKING:
    from bench_worker.engines.command_line import Errand

KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("unreachable", r"failed to dial|connection refused|error while dialing"),
        ("disk-full", r"no space left on device|disk quota exceeded"),
        ("not-executable", r"exec:.*(permission denied|exec format error|is a directory)"),
        ("command-not-found", r"executable file not found|exec:.*no such file or directory"),
        ("image-missing", r"image .*not found"),
        ("conflict", r"already exists|already finished|cannot (pause|resume|exec)|must be stopped|not running"),
        ("not-found", r"not found"),
    )
)
FAILED_EXEC: Final = re.compile(r"^ctr: ", re.MULTILINE)
"""How ``ctr`` begins what it complains of itself."""
_ENDING_S: Final = 0.2


@dataclass(slots=True)
class Task:
    """What we know of a container: its directory of ours, and its process once there is one."""

    directory: Path
    main: Process | None = None
    started: bool = False
    execs: int = 0

    @property
    def files(self) -> list[str]:
        """The options that say where its output and its number go."""
        return [f"--log-uri=file://{self.directory / 'log'}", f"--pid-file={self.directory / 'pid'}"]

    def watch(self, start_ns: int) -> None:
        """Watch the process that was started after `start_ns`; `main` stays None where it has ended already."""
        self.started, self.main = True, None
        with suppress(ProcessLookupError), starting:
            pid = int((self.directory / "pid").read_text(encoding="ascii"))
            self.main = watch_process(pid, start_ns=start_ns)


def until_ended(task: Task, start_ns: int, timeout_s: float) -> Done:
    """Wait for the end of the process; one that was gone before it could be watched ended before `start_ns`."""
    if task.main is None:
        return Done(start_ns, start_ns)
    return ended_at(start_ns, until_dead(task.main, start_ns, time.monotonic() + timeout_s))


def send_signal(errand: Errand, name: str, main: Process, *options: str) -> None:
    """Send a signal to the process; one that has just ended is no error."""
    answer = errand.call("tasks", "kill", *options, name)
    if answer.exit_code:
        try:
            main.wait(_ENDING_S)
        except WaitTimeout:
            raise errand.failed(answer) from None


def delete(errand: Errand, *words: str) -> None:
    """Run a command that deletes something; that it is gone already is no error."""
    answer = errand.call(*words)
    if answer.exit_code:
        failure = errand.failed(answer)
        if failure.kind != "not-found":
            raise failure
