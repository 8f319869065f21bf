"""Tells how a guest's step gets on while it runs: what it printed so far is looked at now and then, never waited for.

Only where the workload reports while it runs, and no more often than it does. What is looked at is what the engine
has of the output by then; the step itself, its stamps and its output are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import gevent
from gevent.event import Event

from bench_worker.engines.base import Container, Engine, OperationFailed
from workloads.base import Workload

LEAST_S: Final = 1.0
"""Nobody reads faster."""

PATIENCE_S: Final = 5.0
"""How long an engine may take to say what was printed."""

MAX_TEXT: Final = 300
"""How many characters are told."""


class Follower:
    """Follows the steps of a workload, every `every_s` seconds; `tell` gets each news, and ``""`` at a step's end."""

    def __init__(self, engine: Engine, workload: Workload, every_s: float, tell: Callable[[str], None]) -> None:
        self._engine = engine
        self._workload = workload
        self._every_s = max(LEAST_S, every_s)
        self._tell = tell

    @contextmanager
    def follow(self, container: Container, step: str) -> Iterator[None]:
        """Tell how `step` gets on in `container` while the context lasts."""
        over = Event()
        greenlet = gevent.spawn(self._follow, container, step, over)
        try:
            yield
        finally:
            over.set()
            # It may be on its way already, and gets to run once more before it is killed.
            greenlet.kill(block=False)
            self._tell("")

    def _follow(self, container: Container, step: str, over: Event) -> None:
        told = ""
        while True:
            gevent.sleep(self._every_s)
            try:
                printed = self._engine.printed(container, timeout_s=PATIENCE_S)
            except OperationFailed:
                return  # it is over, or this engine cannot say
            text = self._workload.progress(printed.decode("utf-8", "replace"))
            if text and text != told and not over.is_set():
                told = text
                self._tell(f"{step}: {text}"[:MAX_TEXT])
