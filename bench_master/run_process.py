"""Runs that a command makes in processes of their own, one after the other, each with its output in a log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from bench_common.errors import ExitCode, InfrastructureError, UsageError

END_S: Final = 60.0
"""How long a process may take to end once it is interrupted."""
_SHOWN_LINES: Final = 8


def run_process(
    command: Sequence[str],
    out: IO[bytes],
    *,
    timeout_s: float,
    environ: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> int:
    """Run a process to its end and return its exit code; interrupted, it is interrupted, too, and awaited.

    It has a session of its own: Ctrl-C would reach it twice. `out` gets all that it prints; `pass_fds` stay open in
    it. Raises `subprocess.TimeoutExpired`.
    """
    process = subprocess.Popen(  # noqa: S603  what the user asked for
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        env=environ,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    try:
        return process.wait(timeout_s)
    except BaseException:
        _end(process)
        raise


def run_master(
    words: Sequence[str],
    out: IO[bytes],
    what: str,
    *,
    environ: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    more: str = "",
) -> None:
    """Make a complete run by a sub-command of bench-master; `more` ends the message that it is not.

    Raises `UsageError` for wrong options, `InfrastructureError` if it is incomplete, `KeyboardInterrupt`.
    """
    command = [sys.executable, "-m", "bench_master", *words]
    # A run has limits of its own; this one only ends a wait for ever.
    status = run_process(command, out, timeout_s=30 * 86_400.0, environ=environ, pass_fds=pass_fds)
    if status in (ExitCode.OK, ExitCode.THRESHOLD, ExitCode.INCONCLUSIVE):
        return
    if status in (ExitCode.INTERRUPTED, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    text = f"{what} ended with exit code {status}:\n{tail(Path(out.name))}{more}"
    raise UsageError(text) if status == ExitCode.USAGE else InfrastructureError(text)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started: the run saves what it has."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            pass
        return


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])
