"""Calls the program of an OCI runtime, and tells its own errors from those of the commands that it runs.

Both write to the same stderr and both may end with any exit code. What a runtime itself has to complain of it also
writes to its log, so that is where to look.
"""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.command_line import Answer, CommandLine, Errand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_worker.engines.base import OperationFailed
    from bench_worker.engines.mount_space import MountSpace

KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("disk-full", r"no space left on device|disk quota exceeded"),
        ("refused", r"rlimit"),
        ("not-found", r"container .*does not exist|loading (container|sandbox): file does not exist"),
        ("conflict", r"already exists|id already in use|not running|is paused|not paused|in `created` or `stopped`"),
        ("conflict", r"incompatible container status|invalid container state"),
        ("conflict", r"cannot (pause|resume|exec|start)|not .?stopped"),
        ("not-executable", r"(exec|load).*(permission denied|exec format error|is a directory|correct permission)"),
        ("command-not-found", r"not found in|executable .*not found|(exec|load).*no such file or directory"),
    )
)
"""What a runtime's words mean; the first match wins."""

_ERROR_LEVELS: Final = frozenset({"error", "fatal", "panic"})
_BACKTRACE: Final = "\n\nStack backtrace:"


@dataclass
class RuntimeErrand(Errand):
    """An operation whose runtime writes its own errors to `log`, a file that is not there yet."""

    log: Path = Path(os.devnull)

    def failed(self, answer: Answer) -> OperationFailed:
        """Return the failure that the runtime's log tells of, or else the words on its stderr."""
        said = self.complaint()
        return super().failed(replace(answer, stderr=said.encode()) if said else answer)

    def complaint(self) -> str:
        """Return the last error that the runtime itself has reported; nothing where there is none."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        said = [entry.get("msg") or entry.get("message") for entry in _entries(text) if _is_error(entry)]
        return str(said[-1]).partition(_BACKTRACE)[0] if said else ""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime's program with its private ``--root``; `log_option` is how its ``--log`` names a file."""

    program: str
    root: Path
    space: MountSpace
    log_option: str = "{}"

    def errand(self, log: Path, options: tuple[str, ...], timeout_s: float) -> RuntimeErrand:
        """Return an operation whose runtime reports its errors to `log`; `options` come before each command."""
        general = ("--root", str(self.root), "--log", self.log_option.format(log), "--log-format", "json")
        # gVisor's sandbox makes its root in $TMPDIR as a user who may not get there, if that is somebody's own.
        env = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        line = CommandLine(self.program, (*general, *options), kinds=KINDS, env=env, spawner=self.space.spawn)
        return RuntimeErrand(line, timeout_s, log=log)


def _entries(text: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log of JSON objects, which not every runtime puts on lines of their own."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        try:
            entry, position = decoder.raw_decode(text, position)
        except ValueError:
            return
        yield entry


def _is_error(entry: dict[str, Any]) -> bool:
    return str(entry.get("level")).lower() in _ERROR_LEVELS


def kill_noted(pid_file: Path) -> None:
    """Kill the process whose number a runtime noted; none, or one that is gone, is no error."""
    with suppress(OSError, ValueError):
        pidfd = os.pidfd_open(int(pid_file.read_text(encoding="ascii")))
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
