"""Drives an engine through a program of its own (``docker``, ``ctr``, ``runc``), one process for each command.

What engines of this kind have in common, and nothing of any one of them: processes are started by
`bench_worker.timing.processes` (so ends are stamped by the reaper's thread, with their bound), output is read from
pipes as it comes and kept up to a limit, a deadline kills what still runs, and what a program says becomes a kind of
failure.

How an engine uses it::

    cli = CommandLine("runc", options=("--root", root), kinds=(("conflict", re.compile("already exists")),))

    def pause(self, container, *, timeout_s):
        errand = cli.errand(timeout_s)
        errand.do("pause", container.name)          # timed; an exit code other than 0 raises OperationFailed
        return errand.done()

- `CommandLine.errand(timeout_s)` is one operation: its commands share one deadline. It begins just before the first
  timed command is started, and ends when the last timed one has ended.
- `Errand.do(*words)` is a timed command that has to succeed, `Errand.call(*words)` a timed one whose exit code is
  returned (`exec`), `Errand.ask(*words)` one that has to succeed and is not timed (looking something up afterwards).
  All return an `Answer`: exit code, stdout, stderr, truncated, stamps, CPU seconds of the client.
- `Errand.failure(kind, text)` and `Errand.failed(answer)` make an `OperationFailed` with the errand's stamps.
- A detached container inherits the streams of a program such as runc: give it files (`stdout_path`, `stderr_path`),
  else it would write to pipes that nobody reads any more.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.output import EXEC_OUTPUT_LIMIT_BYTES, Capture, PipeReader
from bench_worker.engines.results import spawn_failure_kind
from bench_worker.timing.processes import STATUS_LOST, CommandNotFound, Process, SpawnFailed, WaitTimeout, spawn

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence

    from bench_worker.timing.processes import Exit

_KILL_TIMEOUT_S: Final = 5.0
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a command ended. `exit_code` is 128 and the signal's number where a signal ended it.

    `start_ns` and `end_ns` are monotonic: just before the start of the program and, at the latest, its end, which was
    no more than `end_bound_ns` before. `cpu_s` is what the program itself used, in seconds. `truncated` says that it
    printed more than was kept.
    """

    words: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool
    start_ns: int
    end_ns: int
    end_uncertainty_ns: int
    cpu_s: float

    @property
    def text(self) -> str:
        """What it wrote to stdout, without the white space around it."""
        return self.stdout.decode("utf-8", "replace").strip()

    @property
    def complaint(self) -> str:
        """What it wrote to stderr (where that is nothing: to stdout), without the white space around it."""
        return self.stderr.decode("utf-8", "replace").strip() or self.text


@dataclass(frozen=True)
class CommandLine:
    """A program and the words that come before every command.

    `kinds` says what a complaint means: pairs of a kind (see `OperationFailed`) and what is looked for in the text;
    the first match wins, and ``engine`` is what is left. `env` is the program's whole environment (None: that of this
    process as it is at each call). `spawner` starts it, in another namespace say, as `processes.spawn` would.
    """

    program: str
    options: Sequence[str] = ()
    error_kinds: Sequence[tuple[str, re.Pattern[str]]] = ()
    env: Mapping[str, str] | None = None
    cwd: str = "/"
    spawner: Callable[..., Process] = spawn

    def errand(self, timeout_s: float) -> CommandSequence:
        """Return an operation that has to be over in `timeout_s`."""
        return CommandSequence(self, timeout_s)

    def kind_of(self, complaint: str) -> str:
        """Return the kind of failure that the words of the program mean."""
        return next((kind for kind, pattern in self.error_kinds if pattern.search(complaint)), "engine")


@dataclass
class CommandSequence:
    """The commands of one operation, under one deadline; see the module's text."""

    cli: CommandLine
    timeout_s: float
    begun_ns: int = field(default_factory=time.monotonic_ns)
    first: ProgramResult | None = None
    last: ProgramResult | None = None
    cpu_s: float = 0.0

    @property
    def start_ns(self) -> int:
        """When its first timed command was started, or the errand itself where there is none yet."""
        return self.first.start_ns if self.first else self.begun_ns

    def do(self, *words: str, **how: Any) -> ProgramResult:
        """Run a timed command that has to succeed; `how` is as for `run`."""
        answer = self.call(*words, **how)
        if answer.exit_code:
            raise self.failed(answer)
        return answer

    def call(self, *words: str, **how: Any) -> ProgramResult:
        """Run a timed command, whatever its exit code; `how` is as for `run`."""
        answer = self._run(words, **how)
        self.first = self.first or answer
        self.last = answer
        return answer

    def ask(self, *words: str, **how: Any) -> ProgramResult:
        """Run a command that has to succeed and is not part of what is timed; `how` is as for `run`."""
        answer = self._run(words, **how)
        if answer.exit_code:
            raise self.failed(answer)
        return answer

    def done(self, **gave: Any) -> OperationResult:
        """Return the operation as one that is done, with its stamps and what it `gave`."""
        if self.last is None:
            return OperationResult(self.start_ns, time.monotonic_ns(), **gave)
        bound_ns = min(self.last.end_uncertainty_ns, self.last.end_ns - self.start_ns)
        return OperationResult(self.start_ns, self.last.end_ns, end_uncertainty_ns=bound_ns, **gave)

    def failed(self, answer: ProgramResult) -> OperationFailed:
        """Return the failure that a command's exit code and words mean."""
        said = answer.complaint or f"{self.cli.program} {answer.words[0]}: exit code {answer.exit_code}"
        end_ns = max(answer.end_ns, self.start_ns)
        return OperationFailed(self.cli.kind_of(said), said, start_ns=self.start_ns, end_ns=end_ns)

    def failure(self, kind: str, text: str) -> OperationFailed:
        """Return a failure of this kind, ending with the last timed command (now where there is none)."""
        end_ns = self.last.end_ns if self.last else time.monotonic_ns()
        return OperationFailed(kind, text, start_ns=self.start_ns, end_ns=max(self.start_ns, end_ns))

    def remaining_s(self) -> float:
        """Return the time left in seconds; raise the failure ``timeout`` when there is none."""
        left_s = self.timeout_s - (time.monotonic_ns() - self.begun_ns) / 1e9
        if left_s <= 0:
            raise self._late("its time was over before the command began")
        return left_s

    def _late(self, text: str) -> OperationFailed:
        return OperationFailed("timeout", text, start_ns=self.start_ns, end_ns=time.monotonic_ns())

    def _run(self, words: tuple[str, ...], **how: Any) -> ProgramResult:
        left_s = self.remaining_s()
        try:
            answer = run_command((self.cli.program, *self.cli.options), words, self.cli, timeout_s=left_s, **how)
        except SpawnFailed as error:
            # That the engine's own program is missing is no fault of the container's command.
            kind = "unreachable" if isinstance(error, CommandNotFound) else spawn_failure_kind(error)
            start_ns = self.first.start_ns if self.first else error.start_ns
            raise OperationFailed(kind, str(error), start_ns=start_ns, end_ns=error.end_ns) from error
        except WaitTimeout as error:
            text = f"`{self.cli.program} {words[0]}` did not end within {self.timeout_s:g} s and was killed"
            raise self._late(text) from error
        self.cpu_s += answer.cpu_s
        if answer.exit_code == _SIGNALLED - STATUS_LOST:
            raise self.failure(
                "engine",
                f"the exit status of `{self.cli.program} {words[0]}` is lost: another SIGCHLD handler reaped it",
            )
        return answer


def run_command(
    opening: Sequence[str],
    words: tuple[str, ...],
    cli: CommandLine,
    *,
    timeout_s: float,
    limit_bytes: int = EXEC_OUTPUT_LIMIT_BYTES,
    until_full: bool = False,
    stdout_path: str | None = None,
    stderr_path: str | None = None,
    append: bool = False,
) -> ProgramResult:
    """Run a command to its end and return its answer, with up to `limit_bytes` of each stream.

    What comes beyond that is read and dropped, or ends the command (`until_full`). A stream with a path of its own
    goes to that file instead (with `append`, to its end). Raises `SpawnFailed`, and `WaitTimeout` once a command that
    took too long is killed; it is killed, too, when this greenlet is thrown out of its wait.
    """
    env = os.environ if cli.env is None else cli.env
    taps: list[PipeReader] = []
    process: Process | None = None

    def full() -> None:
        if until_full and process is not None:
            process.signal_group(signal.SIGKILL)

    try:
        paths = []
        for path in (stdout_path, stderr_path):
            if path is None:
                taps.append(PipeReader.of_pipe(limit_bytes, full))
            paths.append(path or taps[-1].path)
        how = {"append": True} if append else {}
        process = cli.spawner(
            (*opening, *words), env=env, cwd=cli.cwd, stdout_path=paths[0], stderr_path=paths[1], **how
        )
        for tap in taps:
            tap.open()
        exit_ = process.wait(timeout_s)
        for tap in taps:
            tap.drain()
    finally:
        try:
            if process is not None and process.exit is None:
                _kill(process)
        finally:
            for tap in taps:
                tap.close()
    return _program_result(words, process, exit_, *_captures(taps, stdout_path, stderr_path))


def _program_result(
    words: tuple[str, ...], process: Process, exit_: Exit, stdout: Capture, stderr: Capture
) -> ProgramResult:
    end_ns = max(process.start_ns, exit_.end_ns)
    return ProgramResult(
        words,
        exit_.code if exit_.code >= 0 else _SIGNALLED - exit_.code,
        stdout.data,
        stderr.data,
        stdout.truncated or stderr.truncated,
        process.start_ns,
        end_ns,
        min(exit_.end_uncertainty_ns, end_ns - process.start_ns),
        exit_.user_s + exit_.system_s,
    )


def _captures(taps: Sequence[PipeReader], *paths: str | None) -> list[Capture]:
    waiting = iter(taps)
    return [Capture(0) if path is not None else next(waiting).capture for path in paths]


def _kill(process: Process) -> None:
    """Kill a command with its whole group, and see it dead, as far as that can be seen soon."""
    process.signal_group(signal.SIGKILL)
    with suppress(WaitTimeout):
        process.wait(_KILL_TIMEOUT_S)
