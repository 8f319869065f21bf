"""A small program that removes what a killed master leaves in a cluster, and the master's end of it.

A cluster keeps a worker's objects (a service, a secret, a job) after the worker has exited, and a master that is
killed by SIGKILL cannot delete them. The master therefore starts this program in a session of its own and tells it,
before it creates an object, which commands remove it. When its input ends and something was not removed, it runs
these commands. It imports the standard library alone, and uses no CPU while it waits.

Each line of its input is JSON: ``{"worker": NAME, "removal": [ARGV, ...]}``, with no commands once all is removed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import IO, Final

RETRY_S: Final = 300.0
"""How long commands that fail are repeated (s): the cluster may be out of reach for a moment."""
COMMAND_S: Final = 120.0
"""Time limit of a command (s)."""
PAUSE_S: Final = 2.0
"""Time between two attempts (s)."""
GONE: Final = ("not found", "invalid job id", "already complet")
"""What a command says, in lower case, of something that is removed or is being removed already."""

Removals = dict[str, list[list[str]]]
"""The commands that remove what was created for a worker, by its name."""


class Janitor:
    """The master's end: it outlives the master, however that ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()

    def expect(self, worker: str, removal: Sequence[Sequence[str]]) -> None:
        """Have the commands run if this process ends before `done` is called for the worker."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(  # noqa: S603  our own interpreter
                    [sys.executable, "-I", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    text=True,
                )
            self._tell(worker, removal)

    def done(self, worker: str) -> None:
        """Forget a worker, of which nothing is left."""
        with self._lock:
            if self._process is not None:
                self._tell(worker, ())

    def close(self) -> None:
        """Let it end; it first removes what is left."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)

    def _tell(self, worker: str, removal: Iterable[Sequence[str]]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"worker": worker, "removal": [list(argv) for argv in removal]}) + "\n")
        self._process.stdin.flush()


def left_over(lines: Iterable[str]) -> Removals:
    """Return the removals that the lines leave to be done; the last line may be cut short."""
    found: Removals = {}
    for line in lines:
        if line.endswith("\n"):
            order = json.loads(line)
            found.pop(order["worker"], None)
            if order["removal"]:
                found[order["worker"]] = order["removal"]
    return found


def remove(removals: Removals, *, retry_s: float = RETRY_S) -> Removals:
    """Run the commands of each worker in order, and repeat those that fail; return what could not be removed."""
    deadline = time.monotonic() + retry_s
    while removals:
        removals = {worker: failed for worker, argvs in removals.items() if (failed := _failing(argvs))}
        if not removals or time.monotonic() > deadline:
            break
        time.sleep(PAUSE_S)
    return removals


def _failing(argvs: list[list[str]]) -> list[list[str]]:
    return [argv for argv in argvs if not _succeeds(argv)]


def _succeeds(argv: list[str]) -> bool:
    try:
        done = subprocess.run(  # noqa: S603  the user's own tool, as the master runs it
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return not done.returncode or any(words in done.stderr.lower() for words in GONE)


def main(source: IO[str]) -> int:
    """Take orders until the input ends, then carry out what is left; return the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    return 1 if remove(left_over(source)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin))
