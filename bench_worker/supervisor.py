"""Keeps a load process running for the agent: starts it, sends it the run, detects its death, ends it."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, TypeAlias

import gevent
from gevent.event import AsyncResult, Event
from gevent.monkey import get_original

from bench_common.activity import ActivityWatch
from bench_common.engine_traits import engine_labels
from bench_common.messages import PopulationReport
from bench_worker.pipe_channel import (
    EndProcess,
    PipeChannel,
    ProfileTaken,
    Ready,
    ReleaseServices,
    ServicesReleased,
    StartRun,
    TakeProfile,
    ToAgent,
)

log = logging.getLogger(__name__)


# gevent's versions reap every child of this process on SIGCHLD, also those of `bench_worker.timing.processes`.
_posix_spawn = get_original("os", "posix_spawn")
_fork = get_original("os", "fork")
_waitpid = get_original("os", "waitpid")

END_TIMEOUT_S: Final = 30.0
"""How long a load process may take to end, including the clean-up of its jobs, before it is killed; in seconds."""

STARVED_TIMEOUT_S: Final = 60.0
"""A load process that sends nothing for this long counts as dead even where it wants to run, in seconds."""

KILL_TIMEOUT_S: Final = 5.0
"""How long to wait for a killed load process, in seconds: a hanging disk or network may block it for ever."""


StartLoadProcess: TypeAlias = Callable[[socket.socket, socket.socket, Sequence[str] | None], int]
"""Starts a load process that serves the agent at the other end of the second socket; returns its process number."""


def spawn_load_process(_ours: socket.socket, theirs: socket.socket, engines: Sequence[str] | None) -> int:
    """Start a load process with an interpreter of its own: the agent keeps sending heartbeats while it loads."""
    theirs.set_inheritable(True)
    argv = [sys.executable, "-m", "bench_worker", "--load-process", str(theirs.fileno())]
    if engines is not None:
        argv += ["--engines", ",".join(engines)]
    argv += [word for label in engine_labels() for word in ("--engine", str(label))]
    pid: int = _posix_spawn(sys.executable, argv, dict(os.environ))
    return pid


def fork_load_process(ours: socket.socket, theirs: socket.socket, engines: Sequence[str] | None) -> int:
    """Start a load process as a copy of this process, which has loaded all that it needs: nothing is loaded twice.

    Only a process that has neither threads nor an event loop yet can be copied.
    """
    from bench_worker.engines.registry import engine_classes
    from bench_worker.load_process import run_load_process

    engine_classes(engines)
    # What the collector never looks at stays shared between the two.
    gc.freeze()
    pid: int = _fork()
    if pid == 0:
        gevent.reinit()
        ours.close()
        status = run_load_process(theirs.detach(), engines)
        sys.stderr.flush()
        os._exit(status)  # a copy does not take down what the agent has loaded
    return pid


class LoadProcessHandle:
    """A load process of this agent for the named engines (None: all). `on_message` gets each message from it."""

    def __init__(self, engines: Sequence[str] | None = None, start: StartLoadProcess = spawn_load_process) -> None:
        ours, theirs = socket.socketpair()
        self.pid: int = start(ours, theirs, engines)
        theirs.close()
        self._activity = ActivityWatch(self.pid)
        self.on_message: Callable[[ToAgent], None] | None = None
        self._started_at = monotonic()
        self._last_heard_at = monotonic()
        self._closed = False
        self._progress_at = 0.0
        """When it last reported how far it is with its clean-up."""
        self._status: int | None = None
        self.ready = False
        self._profile: AsyncResult[bytes] = AsyncResult()
        self._released = Event()
        self._pipe = PipeChannel(ours, ToAgent, self._received, self._on_closed)

    def start(self, run: StartRun) -> None:
        """Start a run in it."""
        self._last_heard_at = monotonic()
        self._pipe.send(run)

    def profile(self, timeout_s: float) -> bytes | None:
        """Return the packed profile of its run, empty if it is too large to send; None after `timeout_s`."""
        self._pipe.send(TakeProfile())
        try:
            return self._profile.get(timeout=timeout_s)
        except gevent.Timeout:
            return None

    def release(self, timeout_s: float) -> bool:
        """Ask it to remove what its jobs no longer need; return whether it did so.

        It may take `timeout_s` since it last reported progress: there may be many objects.
        """
        if self._closed:
            return False
        self._pipe.send(ReleaseServices())
        self._progress_at = monotonic()
        while not self._released.is_set() and not self._closed:
            left_s = self._progress_at + timeout_s - monotonic()
            if left_s <= 0:
                break
            self._released.wait(timeout=min(left_s, RELEASE_POLL_S))
        return self._released.is_set()

    def death_reason(self, *, frozen_s: float, ready_s: float) -> str | None:
        """Return the cause of its death, None while it lives.

        A process that is silent for `frozen_s` counts as dead, one that wants to run and gets no CPU only after
        `STARVED_TIMEOUT_S`.
        """
        self._reap()
        if self._status is not None:
            return _describe_exit(self._status)
        if self._closed:
            return "closed its pipe"
        if not self.ready:
            return f"was not ready within {ready_s:g} s" if monotonic() - self._started_at > ready_s else None
        silent = monotonic() - self._last_heard_at
        if silent <= frozen_s or (silent <= STARVED_TIMEOUT_S and self._activity.is_active()):
            return None
        return f"sent nothing for {silent:.0f} s"

    @property
    def has_ended(self) -> bool:
        """Whether it has closed its pipe: it will not answer any more."""
        return self._closed

    def end(self) -> None:
        """Ask it to end, wait, and kill it after the timeout."""
        self._pipe.send(EndProcess())
        if not self._wait_ended(END_TIMEOUT_S if not self._closed and self._responds() else 0.0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            if not self._wait_ended(KILL_TIMEOUT_S):
                log.warning("load process %d did not exit after SIGKILL (uninterruptible wait)", self.pid)
        self._pipe.close()

    def _wait_ended(self, timeout_s: float) -> bool:
        """Wait for it to end, `timeout_s` since it last reported progress; return whether it did."""
        self._progress_at = monotonic()
        self._reap()
        while self._status is None and monotonic() < self._progress_at + timeout_s:
            gevent.sleep(0.01)
            self._reap()
        return self._status is not None

    def _responds(self) -> bool:
        return monotonic() - self._last_heard_at < END_TIMEOUT_S / 3

    def _received(self, message: ToAgent) -> None:
        self._last_heard_at = monotonic()
        match message:
            case Ready():
                self.ready = True
            case ProfileTaken():
                self._profile.set(message.content)
            case ServicesReleased():
                self._released.set()
            case PopulationReport():
                self._progress_at = self._last_heard_at
        if self.on_message is not None:
            self.on_message(message)

    def _on_closed(self) -> None:
        self._closed = True

    def _reap(self) -> None:
        if self._status is None:
            try:
                pid, status = _waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._status = 0
                return
            if pid:
                self._status = os.waitstatus_to_exitcode(status)


def _describe_exit(status: int) -> str:
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with exit code {status}"


SILENCE_TIMEOUT_S: Final = 10.0
"""A load process that sends nothing for this long counts as dead, in seconds."""
READY_TIMEOUT_S: Final = 300.0
"""How long a load process may take to start, in seconds.

With a shorter limit, slow hosts would never finish a start: on a shared, emulated processor, the first compilation of
the imported modules took more than 90 s. A process that cannot start at all exits by itself.
"""
PROFILE_TIMEOUT_S: Final = 5.0
"""How long a load process may take to send its profile, in seconds."""
RELEASE_TIMEOUT_S: Final = 20.0
"""How long a load process may take to remove what its jobs no longer need, since it last reported progress, in
seconds; the clean-up removes the rest."""
RELEASE_POLL_S: Final = 1.0
MAX_FAILED_STARTS: Final = 3
"""The worker gives up after this many failed starts in a row."""


class LoadProcessSupervisor:
    """One load process at a time, for the named engines (None: all). `on_message` gets each message from it.

    `child` is the first load process, if it is running already.
    """

    def __init__(
        self,
        engines: Sequence[str] | None,
        on_message: Callable[[ToAgent], None],
        child: LoadProcessHandle | None = None,
    ) -> None:
        self._engines = engines
        self._on_message = on_message
        self._handle = child
        if child is not None:
            child.on_message = on_message
        self._failed_starts = 0
        self._retired = False

    @property
    def ready(self) -> bool:
        """Whether a load process is ready for a run."""
        return self._handle is not None and self._handle.ready

    @property
    def pid(self) -> int | None:
        """The load process; None while there is none."""
        return None if self._handle is None else self._handle.pid

    @property
    def cannot_start(self) -> bool:
        """Whether load processes keep failing to start on this machine."""
        return self._failed_starts >= MAX_FAILED_STARTS

    def check(self) -> str | None:
        """Start a load process if none runs; return its cause of death (then call `end`), None while it lives."""
        child = self._handle
        if child is None and self._retired:
            return None
        if child is None:
            self._handle = LoadProcessHandle(self._engines)
            self._handle.on_message = self._on_message
            return None
        reason = child.death_reason(frozen_s=SILENCE_TIMEOUT_S, ready_s=READY_TIMEOUT_S)
        if reason is not None:
            log.warning("the load process %s", reason)
            self._failed_starts = 0 if child.ready else self._failed_starts + 1
        return reason

    def retire(self) -> None:
        """Start no other load process: this run is the worker's last."""
        self._retired = True

    def start(self, run: StartRun) -> None:
        """Start a run in the load process, which must be ready."""
        assert self._handle is not None
        self._handle.start(run)

    def profile(self) -> bytes | None:
        """Return the packed profile of its run, empty if it is too large to send; None if none arrives."""
        content = self._handle.profile(PROFILE_TIMEOUT_S) if self._handle is not None else None
        if content is None:
            log.warning("the load process sent no profile within %g s", PROFILE_TIMEOUT_S)
        return content

    def release(self) -> bool:
        """Ask it to remove what its jobs no longer need; return whether it did so, and log a timeout."""
        if self._handle is not None and self._handle.release(RELEASE_TIMEOUT_S):
            return True
        log.warning("the load process did not remove what its jobs had left within %g s", RELEASE_TIMEOUT_S)
        return False

    @property
    def has_ended(self) -> bool:
        """Whether there is no load process any more that could answer."""
        return self._handle is None or self._handle.has_ended

    def end(self) -> None:
        """End the load process; the next check starts a fresh one."""
        child, self._handle = self._handle, None
        if child is not None:
            child.end()
