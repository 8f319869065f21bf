"""Holds the orders of an open system back until their jobs arrive."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final

from bench_common.records import ORDER
from bench_worker.alarm import Alarm

INTENDED: Final = ORDER.index("intended_ns")


class Gate:
    """Lets each order of `put` through to `admit(orders)` at its own instant; those that are late go at once."""

    def __init__(self, admit: Callable[[Sequence[Sequence[int]]], None]) -> None:
        self._admit = admit
        self._held: list[tuple[int, Sequence[int]]] = []
        self._alarm = Alarm(self._open)

    def __len__(self) -> int:
        return len(self._held)

    def put(self, orders: Sequence[Sequence[int]]) -> None:
        """Take orders in, which are lists of `records.ORDER`."""
        for order in orders:
            heapq.heappush(self._held, (order[INTENDED], order))
        self._open()

    def withdraw(self) -> list[Sequence[int]]:
        """Take back all orders whose instants have not come."""
        orders = [order for _, order in self._held]
        self._held.clear()
        return orders

    def close(self) -> None:
        """Let nothing through any more."""
        self._alarm.close()

    def _open(self) -> None:
        held, now = self._held, monotonic_ns()
        due = []
        while held and held[0][0] <= now:
            due.append(heapq.heappop(held)[1])
        if held:
            self._alarm.set(held[0][0])
        if due:
            self._admit(due)
