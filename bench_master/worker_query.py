"""Queries `bench-worker` about this machine. Master and worker share a command line here, never an import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from time import monotonic
from typing import Any, Final

from gevent.monkey import get_original

from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_master.progress_message import progress_message, relay

LAST_WORDS_S: Final = 1.0
"""How long what the worker printed last may take to be printed here, in seconds."""


def worker_command() -> list[str]:
    """Return the argument vector that starts this installation's `bench-worker`."""
    return [sys.executable, "-m", "bench_worker"]


def query_worker(
    *flags: str, timeout_s: float = 60.0, doing: str = "looking at this machine"
) -> list[dict[str, Any]]:
    """Run `bench-worker` with `flags` and return the JSON objects that it printed, one a line.

    What it prints on stderr is printed at once; while that is nothing, `doing` says what goes on. Raises
    `InfrastructureError` if it fails or takes longer than `timeout_s`, `UsageError` if it rejects its arguments.
    """
    command = [*worker_command(), *flags]
    source, sink = os.pipe()
    ended = get_original("_thread", "allocate_lock")()
    ended.acquire()
    try:
        # A native thread: it must print also while a greenlet holds the loop.
        get_original("_thread", "start_new_thread")(_relay_all, (source, ended))
        with progress_message(doing):
            done = subprocess.run(  # noqa: S603
                command, stdout=subprocess.PIPE, stderr=sink, timeout=timeout_s, check=False
            )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"bench-worker {' '.join(flags)} did not finish within {timeout_s:g} s") from error
    finally:
        os.close(sink)
        deadline = monotonic() + LAST_WORDS_S
        while not ended.acquire(blocking=False) and monotonic() < deadline:
            get_original("time", "sleep")(0.002)
    if done.returncode == ExitCode.USAGE:
        raise UsageError(f"bench-worker {' '.join(flags)} rejected its arguments (see its message above)")
    if done.returncode != 0:
        raise InfrastructureError(
            f"bench-worker {' '.join(flags)} failed with exit code {done.returncode} (see its message above)"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]


def _relay_all(source: int, ended: Any) -> None:
    """Print what comes out of a pipe until it is closed, then release a lock."""
    try:
        while printed := os.read(source, 1 << 16):
            relay(printed)
    finally:
        os.close(source)
        ended.release()
