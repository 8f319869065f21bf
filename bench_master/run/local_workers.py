"""The workers that a master starts on its own host (``--workers N``): started, watched, restarted, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import gevent

from bench_common.activity import ActivityWatch, child_pids, cpu_time_ns, describe_load
from bench_common.keys import KeyPair, WorkerKey, write_worker_key
from bench_master.worker_query import worker_command

MAX_RESTARTS: Final = 3
STOP_TIMEOUT_S: Final = 40.0
"""How long workers may take to exit by themselves after the run."""
START_LIMIT_S: Final = 600.0
"""How long a local worker that makes progress may take to join, in seconds."""
ACTIVITY_INTERVAL_S: Final = 5.0
"""Over how long a local worker must have run or waited for a CPU to count as active, in seconds."""
NOTICE_INTERVAL_S: Final = 5.0
"""How often the screen shows what a local worker is at that has not joined, in seconds."""
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
    started_at: float = 0.0
    """When its process was started, in seconds of a monotonic clock."""
    activity: ActivityWatch | None = None
    """What its process gets of the CPUs."""
    active_at: float = 0.0
    """When its process was last known to run or to wait for a CPU."""
    asked_at: float = 0.0
    """When that was last looked up."""
    shown_at: float = 0.0
    """When its start was last shown."""

    @property
    def stage_file(self) -> Path:
        """Where it tells how far it is."""
        return self.log.with_suffix(".stage")


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
            command += ["--stage-file", str(directory / f"{worker_id}.stage")]
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

    def is_active(self, worker_id: str) -> bool:
        """Return whether a worker lives and wants to run: one that is silent is starved of CPU, and does not hang."""
        worker = next((one for one in self._workers if one.worker_id == worker_id), None)
        return worker is not None and self._is_active(worker)

    def are_starting(self, joined: Container[str]) -> bool:
        """Return whether a worker that has not joined is on its way: it lives, makes progress and is young."""
        now = monotonic()
        return any(
            self._is_active(worker) and now - worker.started_at < START_LIMIT_S
            for worker in self._workers
            if worker.worker_id not in joined
        )

    def describe_starts(self, joined: Container[str], *, due: bool = False) -> list[str]:
        """Return for each worker that has not joined what it is at, and what it got of the CPUs.

        With `due`, only for those whose start lasts long and was not shown lately.
        """
        now, found = monotonic(), []
        for worker in self._workers:
            if worker.worker_id in joined or worker.process is None or worker.process.poll() is not None:
                continue
            if due and now - max(worker.shown_at, worker.started_at) < NOTICE_INTERVAL_S:
                continue
            worker.shown_at = now
            pids = (worker.process.pid, *child_pids(worker.process.pid))
            cpu_s = sum(cpu_time_ns(pid) or 0 for pid in pids) / 1e9
            found.append(
                f"worker {worker.worker_id} (process {worker.process.pid}) has not joined after "
                f"{now - worker.started_at:.0f} s, in which it got {cpu_s:.1f} s of CPU time: it is "
                f"{_stage(worker)}; {describe_load()}"
            )
        return found

    def _is_active(self, worker: LocalWorker) -> bool:
        now = monotonic()
        if worker.process is None or worker.activity is None or worker.process.poll() is not None:
            return False
        if now - worker.asked_at >= ACTIVITY_INTERVAL_S / 10:
            worker.asked_at = now
            if worker.activity.is_active():
                worker.active_at = now
        return now - worker.active_at < ACTIVITY_INTERVAL_S

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
        worker.started_at = worker.active_at = worker.asked_at = monotonic()
        worker.activity = ActivityWatch(worker.process.pid, children=True)

    @staticmethod
    def _is_alive(worker: LocalWorker) -> bool:
        return worker.process is not None and worker.process.poll() is None


def _stage(worker: LocalWorker) -> str:
    with contextlib.suppress(OSError):
        return worker.stage_file.read_text("utf-8", "replace") or "starting"
    return "starting its interpreter"


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
