"""Queries `bench-worker` about this machine. Master and worker share a command line here, never an import."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from time import monotonic
from typing import Any, Final

from gevent.monkey import get_original
from gevent.select import poll

from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_master.progress_message import progress_message, relay

MAX_ANSWER_BYTES: Final = 32 << 20
"""A longer answer is refused: what is left of ten thousand containers takes a tenth of that."""
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
    `InfrastructureError` if it fails, prints too much or takes longer than `timeout_s`, `UsageError` if it rejects
    its arguments.
    """
    command = [*worker_command(), *flags]
    source, sink = os.pipe()
    ended = get_original("_thread", "allocate_lock")()
    ended.acquire()
    try:
        # A native thread: it must print also while a greenlet holds the loop.
        get_original("_thread", "start_new_thread")(_relay_all, (source, ended))
        with progress_message(doing):
            status, printed = _run(command, sink, timeout_s)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"bench-worker {' '.join(flags)} did not finish within {timeout_s:g} s") from error
    finally:
        os.close(sink)
        deadline = monotonic() + LAST_WORDS_S
        while not ended.acquire(blocking=False) and monotonic() < deadline:
            get_original("time", "sleep")(0.002)
    if status == ExitCode.USAGE:
        raise UsageError(f"bench-worker {' '.join(flags)} rejected its arguments (see its message above)")
    if status != 0:
        raise InfrastructureError(
            f"bench-worker {' '.join(flags)} failed with exit code {status} (see its message above)"
        )
    return [json.loads(line) for line in printed.splitlines() if line.strip()]


def _run(command: list[str], stderr: int, timeout_s: float) -> tuple[int, bytes]:
    """Run a command; return its exit code and what it printed on stdout.

    Raises `subprocess.TimeoutExpired` after the timeout and `InfrastructureError` for an answer that is too long; it
    is killed then.
    """
    deadline = monotonic() + timeout_s
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            printed = _read_all(process.stdout.fileno(), command, deadline, timeout_s)
            return process.wait(max(0.0, deadline - monotonic())), printed
        except BaseException:
            process.kill()
            raise


def _read_all(source: int, command: list[str], deadline: float, timeout_s: float) -> bytes:
    """Return what comes out of a pipe until it is closed; other greenlets go on meanwhile."""
    pieces: list[bytes] = []
    size = 0
    readable = poll()
    readable.register(source, select.POLLIN)
    while True:
        left_s = deadline - monotonic()
        if left_s <= 0 or not readable.poll(left_s * 1000):
            raise subprocess.TimeoutExpired(command, timeout_s)
        piece = os.read(source, 1 << 16)
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            words = " ".join(command[len(worker_command()) :])
            raise InfrastructureError(f"bench-worker {words} printed more than {MAX_ANSWER_BYTES >> 20} MiB: ended")
        pieces.append(piece)


def _relay_all(source: int, ended: Any) -> None:
    """Print what comes out of a pipe until it is closed, then release a lock."""
    try:
        while printed := os.read(source, 1 << 16):
            relay(printed)
    finally:
        os.close(source)
        ended.release()
