"""The workers that a master starts on its own host (``--workers N``): started, watched, restarted, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import gevent

from bench_common.keys import KeyPair, WorkerKey, write_worker_key
from bench_master.worker_query import worker_command

MAX_RESTARTS: Final = 3
STOP_TIMEOUT_S: Final = 40.0
"""How long workers may take to exit by themselves after the run."""
LOG_TAIL: Final = 5
"""How many lines of a dead worker's log are shown."""


def local_worker_id(place: int) -> str:
    """Return the id of the local worker at a place, from 0."""
    return f"local-{place}"


@dataclass(slots=True)
class LocalWorker:
    """One local worker."""

    worker_id: str
    command: list[str]
    """The argument vector that starts it."""
    log: Path
    """The file that gets its output."""
    process: subprocess.Popen[bytes] | None = None
    """None before it starts and after it ends."""
    restarts: int = 0
    """How many times it was restarted."""
    given_up: bool = False
    """Whether it died too often to be restarted."""


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """The end of a local worker's process."""

    worker_id: str
    reason: str
    """How it ended."""
    log_tail: str = field(default="")
    """The last lines of its log."""
    restarted: bool = True
    """Whether it was restarted."""


class LocalWorkers:
    """The local workers of one run, none or more; with `master_public` each gets a key."""

    def __init__(
        self,
        count: int,
        *,
        control: str,
        directory: Path,
        slots: int,
        environment: str,
        engines: Iterable[str],
        master_public: bytes | None = None,
        verbose: bool = False,
        allow_swapoff: bool = False,
    ) -> None:
        self.keys: dict[bytes, str] = {}
        self._workers = []
        for place in range(count):
            worker_id = local_worker_id(place)
            command = [
                *worker_command(),
                *("--control", control, "--once", "--allow-host-mounts", "--allow-native"),
                *("-c", str(slots), "--environment", environment, "--engines", ",".join(sorted(engines))),
            ]
            if master_public is not None:
                pair = KeyPair.generate()
                path = directory / f"{worker_id}.key"
                write_worker_key(path, WorkerKey(worker_id, pair, master_public))
                self.keys[pair.public] = worker_id
                command += ["--key", str(path)]
            if verbose:
                command.append("-v")
            if allow_swapoff:
                command.append("--allow-swapoff")
            command.append(worker_id)
            self._workers.append(LocalWorker(worker_id, command, directory / f"{worker_id}.log"))

    @property
    def ids(self) -> list[str]:
        """Their worker ids."""
        return [worker.worker_id for worker in self._workers]

    def start(self) -> None:
        """Start them all."""
        for worker in self._workers:
            self._start(worker)

    def poll_deaths(self) -> list[WorkerDeath]:
        """Return the deaths since the last call; each worker was restarted unless it died too often."""
        deaths = []
        for worker in self._workers:
            if worker.process is None or worker.process.poll() is None:
                continue
            status = worker.process.returncode
            worker.process = None
            if status == 0:
                continue
            worker.given_up = worker.restarts >= MAX_RESTARTS
            if not worker.given_up:
                worker.restarts += 1
                self._start(worker)
            how = f"was killed by {_signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
            deaths.append(WorkerDeath(worker.worker_id, f"its process {how}", _tail(worker.log), not worker.given_up))
        return deaths

    def kill(self, worker_id: str) -> None:
        """Kill the agent of that id, if it is one of ours; `poll_deaths` reports it."""
        for worker in self._workers:
            if worker.worker_id == worker_id and worker.process is not None and self._is_alive(worker):
                worker.process.kill()

    def end(self) -> None:
        """Wait at most `STOP_TIMEOUT_S` until they have exited; then terminate, then kill them."""
        for timeout_s, sign in ((STOP_TIMEOUT_S, signal.SIGTERM), (10.0, signal.SIGKILL), (5.0, None)):
            deadline = monotonic() + timeout_s
            while monotonic() < deadline and any(self._is_alive(worker) for worker in self._workers):
                gevent.sleep(0.02)
            for worker in self._workers:
                if sign is not None and worker.process is not None and self._is_alive(worker):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(worker.process.pid, sign)

    def _start(self, worker: LocalWorker) -> None:
        with worker.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is the master's to interpret.
            worker.process = subprocess.Popen(  # noqa: S603  our own program
                worker.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @staticmethod
    def _is_alive(worker: LocalWorker) -> bool:
        return worker.process is not None and worker.process.poll() is None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        lines = path.read_text("utf-8", "replace").strip().splitlines()
        return "\n".join(lines[-LOG_TAIL:])
    return ""
