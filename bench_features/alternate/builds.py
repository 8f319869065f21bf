"""One run of a series: its build is put in place, then the run is made, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_features.alternate.series import Series, Side, run_file
from bench_master.run_process import run_process, tail

RUN_S: Final = 30 * 86_400.0
"""A run has limits of its own; this one only ends a wait for ever."""
_COUNTED: Final = (ExitCode.OK, ExitCode.THRESHOLD, ExitCode.INCONCLUSIVE)
"""Exit codes of runs that are complete."""


def make_run(series: Series, folder: Path, *, setup_timeout_s: float, held: int) -> float:
    """Make the next run of a series; return how long it took, in seconds.

    Raises `UsageError` if the build cannot be put in place or the run's options are wrong, `InfrastructureError` if
    the run is incomplete. `held` is a descriptor that the processes keep open as long as they live.
    """
    pair, side = series.next_run()
    file = run_file(folder, pair, side)
    log = file.with_name(file.name.replace(".stats.gz", ".log"))
    began_s = time.monotonic()
    with log.open("wb") as out:
        _set_up(series, side, out, log, setup_timeout_s, held)
        _wait_for_next_second()
        words = [series.command[0], "--stats-file", str(file), *series.command[1:]]
        status = run_process([sys.executable, "-m", "bench_master", *words], out, timeout_s=RUN_S, pass_fds=(held,))
    if status in _COUNTED:
        return time.monotonic() - began_s
    text = f"{file.name}: the run ended with exit code {status}:\n{tail(log)}\nall of it: {log}"
    if status == ExitCode.USAGE:
        raise UsageError(text)
    if status in (ExitCode.INTERRUPTED, -signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    raise InfrastructureError(text)


def _set_up(series: Series, side: Side, out: IO[bytes], log: Path, timeout_s: float, held: int) -> None:
    command = series.old if side == "old" else series.new
    environ = {**os.environ, "WEIGHBRIDGE_BUILD": side}
    try:
        status = run_process(["sh", "-c", command], out, timeout_s=timeout_s, environ=environ, pass_fds=(held,))
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--{side} {command!r}: took more than {timeout_s:g} s; raise --setup-timeout. Its output: {log}"
        ) from None
    if status:
        raise UsageError(f"--{side} {command!r}: ended with exit code {status}:\n{tail(log)}\nall of it: {log}")


def _wait_for_next_second() -> None:
    """Wait for less than a second: files say in whole seconds when a run began, and the order is read from them."""
    time.sleep(1.0 - time.time() % 1.0)
