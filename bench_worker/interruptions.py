"""What the slots of a worker wait for, so that the end of a run can interrupt it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gevent
from greenlet import greenlet

from bench_worker.slots import JobAborted

ResultT = TypeVar("ResultT")


class Interruptions:
    """The waits of the slots of one run.

    A step that only waits (for a command, for time to pass) is run by `wait`, and can be interrupted. A step that
    changes something must not be: an engine still creates a container after its client has disconnected, and nobody
    would remove it.
    """

    def __init__(self) -> None:
        self.aborts = 0
        """How often all jobs were aborted: a job compares it with what it was when the job began."""
        self._waiting: set[greenlet] = set()
        self._loop = gevent.get_hub().loop

    def wait(self, call: Callable[[], ResultT]) -> ResultT:
        """Run a call that only waits; an interruption raises `JobAborted` in it."""
        me = gevent.getcurrent()
        self._waiting.add(me)
        try:
            return call()
        finally:
            self._waiting.discard(me)

    def interrupt_all(self) -> None:
        """Interrupt everything that waits now."""
        for slot in list(self._waiting):
            self._loop.run_callback(self._interrupt, slot)

    def interrupt_later(self, slot: greenlet, still: Callable[[], bool]) -> None:
        """Interrupt what one slot waits for, if `still` says so when it comes to that."""
        self._loop.run_callback(lambda: self._interrupt(slot) if still() else None)

    def _interrupt(self, slot: greenlet) -> None:
        # It may have reached a step that must not be interrupted.
        if slot in self._waiting:
            slot.throw(JobAborted)
