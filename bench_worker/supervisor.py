"""The load process as its agent sees it: started, told what to do, watched, ended.

Keeps a load process at hand: starts one where there is none, and notices when it dies.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

import gevent
from gevent.event import AsyncResult, Event
from gevent.monkey import get_original

from bench_worker.pipe_channel import PipeChannel

log = logging.getLogger(__name__)


# gevent's own versions make it reap every child of this process on SIGCHLD, those of
# `bench_worker.timing.processes` too.
_posix_spawn = get_original("os", "posix_spawn")
_waitpid = get_original("os", "waitpid")

END_TIMEOUT_S: Final = 30.0
"""How long a load process that was told to end may take, its jobs' clean-up included, before it is killed."""

KILL_TIMEOUT_S: Final = 5.0
"""How long one that was killed is waited for: a disk or a network that hangs may keep it for ever."""


class LoadProcessHandle:
    """A load process of our own. `said` gets every message that it sends, from when it is set.

    It gets ready for the engines that are named, or for every one (None).
    """

    def __init__(self, engines: Sequence[str] | None = None) -> None:
        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        argv = [sys.executable, "-m", "bench_worker", "--load-process", str(theirs.fileno())]
        if engines is not None:
            argv += ["--engines", ",".join(engines)]
        # posix_spawn and not a fork: the agent may be heard by a master while it starts a new load process.
        self.pid: int = _posix_spawn(sys.executable, argv, dict(os.environ))
        theirs.close()
        self.said: Callable[[dict[str, Any]], None] | None = None
        self._started_at = monotonic()
        self._last_heard_at = monotonic()
        self._closed = False
        self._status: int | None = None
        self.ready = False
        self._profile: AsyncResult[bytes] = AsyncResult()
        self._released = Event()
        self._pipe = PipeChannel(ours, self._received, self._on_closed)

    def start(self, welcome: dict[str, Any]) -> None:
        """Hand it the run."""
        self._last_heard_at = monotonic()
        self._pipe.send(start=welcome)

    def profile(self, patience_s: float) -> bytes | None:
        """Ask it for the packed profile of its run; return None where nothing comes in `patience_s`.

        It is empty where it was too large to be sent.
        """
        self._pipe.send(profile=True)
        try:
            return self._profile.get(timeout=patience_s)
        except gevent.Timeout:
            return None

    def release(self, patience_s: float) -> bool:
        """Have it remove the services that its jobs no longer need; return whether it did so in `patience_s`."""
        if self._closed:
            return False
        self._pipe.send(release=True)
        return self._released.wait(timeout=patience_s)

    def death_reason(self, *, frozen_s: float, ready_s: float) -> str | None:
        """Return how it died, or None while it lives; one that is silent for `frozen_s` counts as dead."""
        self._reap()
        if self._status is not None:
            return _describe_exit(self._status)
        if self._closed:
            return "closed its line"
        if not self.ready:
            return f"was not ready within {ready_s:g} s" if monotonic() - self._started_at > ready_s else None
        silent = monotonic() - self._last_heard_at
        return f"said nothing for {silent:.0f} s" if silent > frozen_s else None

    def end(self) -> None:
        """Tell it to end, wait, and kill it when it does not."""
        self._pipe.send(end=True)
        if not self._wait_ended(END_TIMEOUT_S if not self._closed and self._responds() else 0.0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            if not self._wait_ended(KILL_TIMEOUT_S):
                log.warning("load process %d was killed and is still there: the kernel does not let it go", self.pid)
        self._pipe.close()

    def _wait_ended(self, patience_s: float) -> bool:
        """Wait for its end, and say whether it came."""
        deadline = monotonic() + patience_s
        self._reap()
        while self._status is None and monotonic() < deadline:
            gevent.sleep(0.01)
            self._reap()
        return self._status is not None

    def _responds(self) -> bool:
        return monotonic() - self._last_heard_at < END_TIMEOUT_S / 3

    def _received(self, message: dict[str, Any]) -> None:
        self._last_heard_at = monotonic()
        if message.get("ready"):
            self.ready = True
        if "profile" in message:
            self._profile.set(message["profile"])
        if message.get("released"):
            self._released.set()
        if self.said is not None:
            self.said(message)

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
"""A load process that says nothing for so long is taken for dead."""
READY_TIMEOUT_S: Final = 300.0
"""How long a load process may take to start.

Ended sooner, it would not get further the next time: where an emulated processor is shared with others, it took more
than 90 s for what it imports to be compiled, once. One that cannot start at all ends by itself.
"""
PROFILE_TIMEOUT_S: Final = 5.0
"""How long a load process may take to hand over its profile."""
RELEASE_TIMEOUT_S: Final = 20.0
"""How long a load process may take to remove the services that wait for another job; the sweep takes what is left."""
MAX_FAILED_STARTS: Final = 3
"""Where so many in a row do not get ready, none will."""


class LoadProcessSupervisor:
    """One load process at a time, ready for the engines that are named (None: for every one).

    `said` gets every message that it sends. `child` is the first one, where it was started already.
    """

    def __init__(
        self,
        engines: Sequence[str] | None,
        said: Callable[[dict[str, Any]], None],
        child: LoadProcessHandle | None = None,
    ) -> None:
        self._engines = engines
        self._said = said
        self._handle = child
        if child is not None:
            child.said = said
        self._failed_starts = 0

    @property
    def ready(self) -> bool:
        """Whether there is one that can be given a run."""
        return self._handle is not None and self._handle.ready

    @property
    def cannot_start(self) -> bool:
        """Whether this is a machine on which none can start."""
        return self._failed_starts >= MAX_FAILED_STARTS

    def look(self) -> str | None:
        """Start one where there is none; return how it died, None while it lives. One that died is to be ended."""
        child = self._handle
        if child is None:
            self._handle = LoadProcessHandle(self._engines)
            self._handle.said = self._said
            return None
        reason = child.death_reason(frozen_s=SILENCE_TIMEOUT_S, ready_s=READY_TIMEOUT_S)
        if reason is not None:
            log.warning("the load process %s", reason)
            self._failed_starts = 0 if child.ready else self._failed_starts + 1
        return reason

    def start(self, orders: dict[str, Any]) -> None:
        """Hand it a run; it is there and ready."""
        assert self._handle is not None
        self._handle.start(orders)

    def profile(self) -> bytes | None:
        """Return the packed profile of its run, empty where it was too large to be sent; None where it gives none."""
        content = self._handle.profile(PROFILE_TIMEOUT_S) if self._handle is not None else None
        if content is None:
            log.warning("the load process gave no profile within %g s", PROFILE_TIMEOUT_S)
        return content

    def release(self) -> None:
        """Have it remove the services that its jobs no longer need; that it did not is logged."""
        if self._handle is not None and not self._handle.release(RELEASE_TIMEOUT_S):
            log.warning("the load process did not remove its jobs' services within %g s", RELEASE_TIMEOUT_S)

    def end(self) -> None:
        """End the one that there is: the next look starts a fresh one."""
        child, self._handle = self._handle, None
        if child is not None:
            child.end()
