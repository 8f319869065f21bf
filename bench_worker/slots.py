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
    """Runs `execute(order)` for each order put in, in order of arrival, at most `limit` (of `most`) at once."""

    def __init__(self, most: int, execute: Callable[[Order], None]) -> None:
        self.limit = most
        self._most = most
        self._execute = execute
        self._orders: deque[Order] = deque()
        self._idle: list[greenlet] = []
        self._greenlets: list[greenlet] = []
        self._loop = gevent.get_hub().loop
        self._waking = False
        """Whether a slot is on its way to look for orders, which has not got there yet."""
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
        if not self._waking:
            self._wake()

    def withdraw(self) -> list[Order]:
        """Take back all orders that no slot has taken yet."""
        orders = list(self._orders)
        self._orders.clear()
        return orders

    def _wake(self) -> None:
        """See to it that one more slot looks for orders; it wakes the next one where there are more."""
        if self._idle:
            self._waking = True
            self._loop.run_callback(self._idle.pop().switch)
        elif len(self._greenlets) < self._most:
            self._waking = True
            self._greenlets.append(gevent.spawn(self._serve))

    def _serve(self) -> None:
        orders, hub, me = self._orders, gevent.get_hub(), gevent.getcurrent()
        self._waking = False
        while True:
            while not orders or self.running >= self.limit:
                self._idle.append(me)
                hub.switch()
                self._waking = False
            order = orders.popleft()
            self.running += 1
            # In vain where this job never waits, so never again before that one has come.
            if orders and not self._waking and self.running < self.limit:
                self._wake()
            try:
                self._execute(order)
            except JobAborted:
                log.debug("a job was called off when it was over already")
            except Exception:  # a slot that ended here would be missing to all jobs after this one
                log.exception("a slot goes on after what escaped from the job of %r", order)
            self.running -= 1
