"""Drives an engine through a program of its own (``docker``, ``ctr``, ``runc``), one process for each command.

`bench_worker.timing.processes` starts the processes, so the reaper's thread stamps their ends, with an uncertainty.
Output is read from pipes as it arrives and kept up to a limit; a deadline kills what still runs; patterns turn a
program's error text into a kind of failure. How an engine uses it::

    cli = CommandLine("runc", options=("--root", root), error_kinds=(("conflict", re.compile("already exists")),))

    def pause(self, container, *, timeout_s):
        sequence = cli.sequence(timeout_s)
        sequence.run("pause", container.name)
        return sequence.result()

A detached container inherits the streams of a program such as runc: give it files (`stdout_path`, `stderr_path`),
else it would write to pipes that nobody reads any more.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from bench_common.long_output import OUTPUT_LIMIT_BYTES
from bench_common.safe_text import shorten
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.output import ERROR_CHARS, Capture, PipeReader
from bench_worker.engines.results import spawn_failure_kind
from bench_worker.timing.processes import STATUS_LOST, CommandNotFound, Process, SpawnFailed, WaitTimeout, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench_worker.timing.processes import Exit

_KILL_TIMEOUT_S: Final = 5.0
_SIGNALLED: Final = 128


class ProgramResult(Struct, frozen=True):
    """How a command ended, and what it printed."""

    arguments: tuple[str, ...]
    """The command, without the program and its options."""
    exit_code: int
    """Its exit code; 128 and the signal's number where a signal ended it."""
    stdout: bytes
    """What it wrote to stdout, up to the limit."""
    stderr: bytes
    """What it wrote to stderr, up to the limit."""
    truncated: bool
    """Whether it printed more than was kept."""
    start_ns: int
    """Monotonic time just before the start of the program."""
    end_ns: int
    """Monotonic time of its end, at the latest."""
    end_uncertainty_ns: int
    """How much earlier than `end_ns` it may have ended."""
    cpu_s: float
    """CPU time of the program itself, in seconds."""

    @property
    def text(self) -> str:
        """What it wrote to stdout, without the white space around it."""
        return self.stdout.decode("utf-8", "replace").strip()

    @property
    def error_text(self) -> str:
        """What it wrote to stderr (where that is nothing: to stdout), without the white space around it."""
        return self.stderr.decode("utf-8", "replace").strip() or self.text


class CommandLine(Struct, frozen=True):
    """A program and the options that come before every command."""

    program: str
    """Its name or path."""
    options: Sequence[str] = ()
    """The options before every command."""
    error_kinds: Sequence[tuple[str, re.Pattern[str]]] = ()
    """Kinds of failure (see `OperationFailed`) with the patterns of their error texts; the first match wins."""
    env: Mapping[str, str] | None = None
    """The program's whole environment; None: that of this process at each call."""
    cwd: str = "/"
    spawner: Callable[..., Process] = spawn
    """Starts it, in another namespace for instance, as `processes.spawn` would."""

    def sequence(self, timeout_s: float) -> CommandSequence:
        """Return an operation that has to end within `timeout_s`."""
        return CommandSequence(self, timeout_s)

    def classify_error(self, error_text: str) -> str:
        """Return the kind of failure that an error text of the program means; ``engine`` where no pattern matches."""
        return next((kind for kind, pattern in self.error_kinds if pattern.search(error_text)), "engine")


@dataclass
class CommandSequence:
    """The commands of one operation, which share a deadline.

    The operation starts just before its first timed command, and ends when the last timed one has ended.
    """

    cli: CommandLine
    timeout_s: float
    """When the operation has to end, in seconds after `begun_ns`."""
    begun_ns: int = field(default_factory=time.monotonic_ns)
    """When the sequence was made."""
    first: ProgramResult | None = None
    last: ProgramResult | None = None
    cpu_s: float = 0.0
    """CPU time of all commands, in seconds."""

    @property
    def start_ns(self) -> int:
        """When its first timed command was started, or the sequence itself where there is none yet."""
        return self.first.start_ns if self.first else self.begun_ns

    def run(self, *arguments: str, **options: Any) -> ProgramResult:
        """Run a timed command that has to succeed; `options` are those of `run_command`."""
        result = self.run_unchecked(*arguments, **options)
        if result.exit_code:
            raise self.failed(result)
        return result

    def run_unchecked(self, *arguments: str, **options: Any) -> ProgramResult:
        """Run a timed command, whatever its exit code; `options` are those of `run_command`."""
        result = self._execute(arguments, **options)
        self.first = self.first or result
        self.last = result
        return result

    def run_untimed(self, *arguments: str, **options: Any) -> ProgramResult:
        """Run a command that has to succeed and is not timed; `options` are those of `run_command`."""
        result = self._execute(arguments, **options)
        if result.exit_code:
            raise self.failed(result)
        return result

    def result(self, **fields: Any) -> OperationResult:
        """Return the result of the operation: its stamps, and these fields."""
        if self.last is None:
            return OperationResult(self.start_ns, time.monotonic_ns(), **fields)
        uncertainty_ns = min(self.last.end_uncertainty_ns, self.last.end_ns - self.start_ns)
        return OperationResult(self.start_ns, self.last.end_ns, end_uncertainty_ns=uncertainty_ns, **fields)

    def failed(self, result: ProgramResult) -> OperationFailed:
        """Return the failure that a command's exit code and error text mean."""
        said = shorten(result.error_text, ERROR_CHARS)
        text = said or f"{self.cli.program} {result.arguments[0]}: exit code {result.exit_code}"
        end_ns = max(result.end_ns, self.start_ns)
        return OperationFailed(self.cli.classify_error(text), text, start_ns=self.start_ns, end_ns=end_ns)

    def failure(self, kind: str, text: str) -> OperationFailed:
        """Return a failure of this kind, ending with the last timed command (now where there is none)."""
        end_ns = self.last.end_ns if self.last else time.monotonic_ns()
        return OperationFailed(kind, text, start_ns=self.start_ns, end_ns=max(self.start_ns, end_ns))

    def remaining_s(self) -> float:
        """Return the time left in seconds; raise the failure ``timeout`` when there is none."""
        remaining_s = self.timeout_s - (time.monotonic_ns() - self.begun_ns) / 1e9
        if remaining_s <= 0:
            raise self._timed_out("the timeout of the operation expired before the command started")
        return remaining_s

    def _timed_out(self, text: str) -> OperationFailed:
        return OperationFailed("timeout", text, start_ns=self.start_ns, end_ns=time.monotonic_ns())

    def _execute(self, arguments: tuple[str, ...], **options: Any) -> ProgramResult:
        remaining_s = self.remaining_s()
        try:
            result = run_command(
                (self.cli.program, *self.cli.options), arguments, self.cli, timeout_s=remaining_s, **options
            )
        except SpawnFailed as error:
            # That the engine's own program is missing is no fault of the container's command.
            start_ns = self.first.start_ns if self.first else error.start_ns
            kind = "unreachable" if isinstance(error, CommandNotFound) else spawn_failure_kind(error)
            raise OperationFailed(kind, str(error), start_ns=start_ns, end_ns=error.end_ns) from error
        except WaitTimeout as error:
            text = f"`{self.cli.program} {arguments[0]}` did not end within {self.timeout_s:g} s and was killed"
            raise self._timed_out(text) from error
        self.cpu_s += result.cpu_s
        if result.exit_code == _SIGNALLED - STATUS_LOST:
            raise self.failure(
                "engine",
                f"the exit status of `{self.cli.program} {arguments[0]}` is lost: another SIGCHLD handler reaped it",
            )
        return result


def run_command(
    opening: Sequence[str],
    arguments: tuple[str, ...],
    cli: CommandLine,
    *,
    timeout_s: float,
    limit_bytes: int = OUTPUT_LIMIT_BYTES,
    until_full: bool = False,
    stdout_path: str | None = None,
    stderr_path: str | None = None,
) -> ProgramResult:
    """Run a command to its end and return its result, with up to `limit_bytes` of each stream.

    Output beyond that is read and dropped, or ends the command (`until_full`). A stream with a path of its own goes
    to that file instead. Raises `SpawnFailed`, and `WaitTimeout` after it has killed a
    command that took too long; it also kills the command when this greenlet is interrupted.
    """
    env = os.environ if cli.env is None else cli.env
    readers: list[PipeReader] = []
    process: Process | None = None

    def full() -> None:
        if until_full and process is not None:
            process.signal_group(signal.SIGKILL)

    try:
        paths = []
        for path in (stdout_path, stderr_path):
            if path is None:
                readers.append(PipeReader.of_pipe(limit_bytes, full))
            paths.append(path or readers[-1].path)
        process = cli.spawner(
            (*opening, *arguments), env=env, cwd=cli.cwd, stdout_path=paths[0], stderr_path=paths[1]
        )
        for reader in readers:
            reader.open()
        exit_ = process.wait(timeout_s)
        for reader in readers:
            reader.drain()
    finally:
        try:
            if process is not None and process.exit is None:
                _kill(process)
        finally:
            for reader in readers:
                reader.close()
    return _program_result(arguments, process, exit_, *_captures(readers, stdout_path, stderr_path))


def _program_result(
    arguments: tuple[str, ...], process: Process, exit_: Exit, stdout: Capture, stderr: Capture
) -> ProgramResult:
    end_ns = max(process.start_ns, exit_.end_ns)
    return ProgramResult(
        arguments,
        exit_.code if exit_.code >= 0 else _SIGNALLED - exit_.code,
        stdout.data,
        stderr.data,
        stdout.truncated or stderr.truncated,
        process.start_ns,
        end_ns,
        min(exit_.end_uncertainty_ns, end_ns - process.start_ns),
        sum(exit_.cpu_s),
    )


def _captures(readers: Sequence[PipeReader], *paths: str | None) -> list[Capture]:
    waiting = iter(readers)
    return [Capture(0) if path is not None else next(waiting).capture for path in paths]


def _kill(process: Process) -> None:
    """Kill a command with its whole group, and wait for its end for a short time."""
    process.signal_group(signal.SIGKILL)
    with suppress(WaitTimeout):
        process.wait(_KILL_TIMEOUT_S)
