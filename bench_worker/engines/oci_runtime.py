"""Calls the program of an OCI runtime, and tells its own errors from those of the commands that it runs.

Both write to the same stderr and both may end with any exit code. What a runtime itself has to complain of it also
writes to its log, so that is where to look.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench_worker.engines.command_line import CommandLine, Errand

if TYPE_CHECKING:
    from pathlib import Path

    from bench_worker.engines.mount_space import MountSpace

KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("disk-full", r"no space left on device|disk quota exceeded"),
        ("not-found", r"container .*does not exist|loading (container|sandbox): file does not exist"),
        ("conflict", r"already exists|id already in use|not running|is paused|not paused|in `created` or `stopped`"),
        ("conflict", r"incompatible container status|cannot (pause|resume|exec|start)|not .?stopped"),
        ("not-executable", r"(exec|load|executable).*(permission denied|exec format error|is a directory)"),
        ("command-not-found", r"not found in|executable .*not found|(exec|load).*no such file or directory"),
    )
)
"""What a runtime's words mean; the first match wins."""

_ERROR_LOGGED: Final = re.compile(rb'"level":\s*"(error|fatal|panic)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime's program with its private ``--root``; `log_option` is how its ``--log`` names a file."""

    program: str
    root: Path
    space: MountSpace
    log_option: str = "{}"

    def errand(self, log: Path, options: tuple[str, ...], timeout_s: float) -> Errand:
        """Return an operation whose complaints go to `log` as well; `options` come before each command."""
        general = ("--root", str(self.root), "--log", self.log_option.format(log), "--log-format", "json")
        line = CommandLine(self.program, (*general, *options), kinds=KINDS, spawner=self.space.spawn)
        return line.errand(timeout_s)


def logged_bytes(log: Path) -> int:
    """Return how much the runtime has complained so far, in bytes."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def complained(log: Path, since: int) -> bool:
    """Say whether the runtime itself, not a command that it ran, reported an error after so many bytes of its log."""
    try:
        return _ERROR_LOGGED.search(log.read_bytes()[since:]) is not None
    except FileNotFoundError:
        return False


def kill_noted(pid_file: Path) -> None:
    """Kill the process whose number a runtime noted; none, or one that is gone, is no error."""
    with suppress(OSError, ValueError):
        pidfd = os.pidfd_open(int(pid_file.read_text(encoding="ascii")))
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
