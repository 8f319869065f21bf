"""The workers that a master starts on its own host (``--workers N``): started, watched, restarted, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Container, Iterable
from pathlib import Path
from time import monotonic
from typing import Final

import gevent
from msgspec import Struct, field

from bench_common.activity import ActivityWatch, child_pids, cpu_time_ns, describe_load, process_state
from bench_common.engine_traits import EngineLabel
from bench_common.keys import KeyPair, WorkerKey, write_worker_key
from bench_common.startup import (
    STAGE_ENGINES,
    STAGE_JOINING,
    STAGE_LEFTOVERS,
)
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
"""How many lines of the log of a worker that is dead or has not joined are shown."""
STARVED_SHARE: Final = 0.3
"""A worker that gets less of a CPU than this while it starts, on a machine with more load than CPUs, is starved."""
STAGE_INTERPRETER: Final = "starting its interpreter"
STAGE_EXAMINED: Final = "looking for what the plan needs of its engines"
"""Its host is checked for images, networks and programs; the master knows, as it asked."""


def local_worker_id(place: int) -> str:
    """Return the id of the local worker at a place, from 0."""
    return f"local-{place}"


class LocalWorker(Struct):
    """One local worker."""

    worker_id: str
    command: list[str]
    """The argument vector that starts it."""
    log: Path
    """The file that gets its output."""
    process: subprocess.Popen[bytes] | None = None
    """None before it starts and after it ends."""
    pid: int = 0
    """That of its latest process."""
    ended: str = ""
    """How its latest process ended; empty while it lives."""
    ended_at: float = 0.0
    """When that was noticed, in seconds of a monotonic clock."""
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


class WorkerDeath(Struct, frozen=True):
    """The end of a local worker's process."""

    worker_id: str
    reason: str
    log_tail: str = field(default="")
    """The last lines of its log."""
    restarted: bool = True


class WorkerStart(Struct, frozen=True):
    """How far a local worker is that has not joined, and why it may not get on."""

    worker_id: str
    pid: int
    state: str
    """The state of that process, a letter of proc(5); empty where it has ended."""
    age_s: float
    """For how long it has been starting, or did until it ended, in seconds."""
    cpu_s: float = 0.0
    """What it got of the CPUs, in seconds."""
    stage: str = STAGE_INTERPRETER
    ended: str = ""
    """How its process ended; empty while it lives."""
    log_tail: str = ""
    """The last lines of its log."""
    starved: bool = False
    """Whether the machine gives it little CPU time."""

    def summary(self, load: str) -> str:
        """Return in one line whether it lives, what it is at, what it got of the CPUs, and the machine's load."""
        if self.ended:
            return (
                f"worker {self.worker_id} (process {self.pid}, ended): it {self.ended} after {self.age_s:.1f} s, "
                f"before it joined; it was {self.stage}; {load}"
            )
        alive = {"T": "alive, but stopped", "t": "alive, but stopped", "D": "alive, waiting for a disk"}
        return (
            f"worker {self.worker_id} (process {self.pid}, {alive.get(self.state, 'alive')}) has not joined after "
            f"{self.age_s:.0f} s, in which it got {self.cpu_s:.1f} s of CPU time: it is {self.stage}; {load}"
        )

    @property
    def remedy(self) -> str:
        """What to do."""
        if self.ended:
            return "start the run again with -v, which makes its log longer"
        if self.state in ("T", "t"):
            return f"let the process go on (kill -CONT {self.pid}), or end it and start the run again"
        if self.starved:
            return (
                "this machine is too busy: end what else runs (bench-master doctor names it), or wait longer with "
                "--worker-timeout 5m"
            )
        if self.stage.startswith(STAGE_ENGINES) or self.stage == STAGE_EXAMINED:
            return (
                "an engine does not answer: bench-master list engines shows which; restart its daemon, or leave this "
                "engine out of the scenario"
            )
        if self.stage == STAGE_LEFTOVERS:
            return "an engine removes what earlier runs left: see bench-master cleanup-containers --dry-run"
        if self.stage == STAGE_JOINING:
            return (
                "it cannot reach this master, or waits for its clock or its other workers: start the run again with "
                "-v, and see its log"
            )
        return (
            "loading takes so long on a slow disk: wait longer with --worker-timeout 5m, and see bench-master doctor"
        )

    def explain(self, load: str) -> str:
        """Return the summary with the remedy, and below it the end of the log."""
        log = f"the end of its log:\n{self.log_tail}" if self.log_tail else "its log is empty"
        return f"{self.summary(load)}; to do: {self.remedy}\n{log}"


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
        allow_cold: bool = False,
        allow_host_settings: Iterable[str] = (),
        allow_foreign: bool = False,
        labels: Iterable[EngineLabel] = (),
    ) -> None:
        self.keys: dict[bytes, str] = {}
        self._workers = []
        for place in range(count):
            worker_id = local_worker_id(place)
            command = [
                *worker_command(),
                *("--control", control, "--once", "--allow-native"),
                "--allow-host-mounts" if allow_foreign else "--allow-host-directories",
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
            if allow_cold:
                command.append("--allow-cold")
            for setting in allow_host_settings:
                command += ["--allow-host-settings", setting]
            for label in labels:
                command += ["--engine", str(label)]
            command += ["--stage-file", str(directory / f"{worker_id}.stage")]
            command.append(worker_id)
            self._workers.append(LocalWorker(worker_id, command, directory / f"{worker_id}.log"))

    @property
    def ids(self) -> list[str]:
        """Their worker ids."""
        return [worker.worker_id for worker in self._workers]

    def pids(self) -> list[int]:
        """Return the processes of those that have one."""
        return [worker.pid for worker in self._workers if worker.process is not None]

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
            how = f"was killed by {_signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
            worker.ended, worker.ended_at = how, monotonic()
            if status == 0:
                continue
            worker.given_up = worker.restarts >= MAX_RESTARTS
            if not worker.given_up:
                worker.restarts += 1
                self._start(worker)
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

    def starts(self, joined: Container[str], examined: Container[str] = ()) -> list[WorkerStart]:
        """Return how far each worker is that has not joined; those `examined` are asked what their hosts have."""
        return [
            _start_of(worker, examined=worker.worker_id in examined)
            for worker in self._workers
            if worker.worker_id not in joined and worker.pid
        ]

    @property
    def alive(self) -> list[str]:
        """The ids of those whose processes live."""
        return [worker.worker_id for worker in self._workers if self._is_alive(worker)]

    def stages(self, joined: Container[str], examined: Container[str] = ()) -> list[str]:
        """Return what each worker is at that has not joined, in a few words."""
        return [
            f"{worker.worker_id} is {STAGE_EXAMINED if worker.worker_id in examined else _stage(worker)}"
            for worker in self._workers
            if worker.worker_id not in joined
        ]

    def due_notices(self, joined: Container[str]) -> list[str]:
        """Return a line about each living worker whose start lasts long and was not shown lately."""
        now, found = monotonic(), []
        for worker in self._workers:
            shown_at = max(worker.shown_at, worker.started_at)
            if worker.worker_id in joined or not self._is_alive(worker) or now - shown_at < NOTICE_INTERVAL_S:
                continue
            worker.shown_at = now
            found.append(_start_of(worker).summary(describe_load()))
        return found

    def explain_starts(self, joined: Container[str], examined: Container[str] = ()) -> list[str]:
        """Return for each worker that has not joined the state of its process, the cause, the remedy and its log."""
        return [start.explain(describe_load()) for start in self.starts(joined, examined)]

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
        worker.pid, worker.ended = worker.process.pid, ""
        worker.started_at = worker.active_at = worker.asked_at = monotonic()
        worker.activity = ActivityWatch(worker.process.pid, children=True)

    @staticmethod
    def _is_alive(worker: LocalWorker) -> bool:
        return worker.process is not None and worker.process.poll() is None


def _start_of(worker: LocalWorker, *, examined: bool = False) -> WorkerStart:
    """Return how far a worker is that has been started."""
    if not worker.ended and worker.process is not None and worker.process.poll() is not None:
        worker.ended, worker.ended_at = f"ended with exit code {worker.process.returncode}", monotonic()
    age_s = (worker.ended_at if worker.ended else monotonic()) - worker.started_at
    cpu_s = sum(cpu_time_ns(pid) or 0 for pid in (worker.pid, *child_pids(worker.pid))) / 1e9
    return WorkerStart(
        worker.worker_id,
        worker.pid,
        "" if worker.ended else process_state(worker.pid),
        age_s,
        cpu_s,
        STAGE_EXAMINED if examined else _stage(worker),
        worker.ended,
        _tail(worker.log),
        cpu_s < STARVED_SHARE * age_s and os.getloadavg()[0] > (os.cpu_count() or 1),
    )


def _stage(worker: LocalWorker) -> str:
    with contextlib.suppress(OSError):
        return worker.stage_file.read_text("utf-8", "replace") or STAGE_INTERPRETER
    return STAGE_INTERPRETER


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
