"""Resident slots: one greenlet for each unit of concurrency, all fed from one deque.

No greenlet is made per job. An idle slot is woken by a callback of the loop, and wakes the next one when there is
more to do, so that a batch of orders costs one call from the receiver. A slot outlives whatever escapes from a job.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import gevent
from greenlet import greenlet

log = logging.getLogger(__name__)

Order = TypeVar("Order")


class JobAborted(gevent.GreenletExit):
    """Thrown into a slot whose job is called off."""


class Slots(Generic[Order]):
    """Runs `execute(order)` for each order put in, in order of arrival, at most `limit` (of `most`) at once.

    `passed` is called in the pass of the loop after one in which orders came or `soon` was called: what a slot did
    until then, and those after it that never waited, is done.
    """

    def __init__(
        self, most: int, execute: Callable[[Order], None], passed: Callable[[], None] = lambda: None
    ) -> None:
        self.limit = most
        self._most = most
        self._execute = execute
        self._passed = passed
        self._orders: deque[Order] = deque()
        self._idle: list[greenlet] = []
        self._greenlets: list[greenlet] = []
        self._loop = gevent.get_hub().loop
        self.due = False
        """Whether the loop will come by, to see whether one more slot has something to do."""
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many orders no slot has taken yet."""
        return len(self._orders)

    @property
    def made(self) -> int:
        """How many slots there are by now: one is made when it is first needed."""
        return len(self._greenlets)

    def put(self, orders: Sequence[Order]) -> None:
        """Queue orders and see to it that a slot takes them."""
        self._orders.extend(orders)
        self.soon()

    def withdraw(self) -> list[Order]:
        """Take back all orders that no slot has taken yet."""
        orders = list(self._orders)
        self._orders.clear()
        return orders

    def soon(self) -> None:
        """Have `passed` called once whoever runs now waits or is done."""
        if not self.due:
            self.due = True
            self._loop.run_callback(self._pass)

    def _pass(self) -> None:
        """Let one more slot look for orders, where there are some; it sees to the next where there are more."""
        self.due = False
        try:
            self._passed()
        finally:
            if self._orders and self.running < self.limit:
                self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle.pop().switch()
        elif len(self._greenlets) < self._most:
            self._greenlets.append(gevent.spawn(self._serve))

    def _serve(self) -> None:
        orders, hub, me = self._orders, gevent.get_hub(), gevent.getcurrent()
        while True:
            while not orders or self.running >= self.limit:
                self._idle.append(me)
                hub.switch()
            order = orders.popleft()
            self.running += 1
            # In vain where no job waits: then they are gone when the loop comes by.
            if orders and not self.due and self.running < self.limit:
                self.soon()
            try:
                self._execute(order)
            except JobAborted:
                log.debug("a job was called off when it was over already")
            except Exception:  # a slot that ended here would be missing to all jobs after this one
                log.exception("a slot goes on after what escaped from the job of %r", order)
            self.running -= 1
