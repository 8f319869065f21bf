"""The orders of a run as packed rows: each job with a random parameter of its own, drawn in blocks beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from bench_common.records import ORDER, WORD, job_id_of

BLOCK_JOBS: Final = 1 << 13
"""How many are drawn at once: enough that it costs next to nothing a job, and few to keep."""
ROW_BYTES: Final = len(ORDER) * WORD


class OrderBook:
    """Gives the rows of `records.ORDER` for tickets. A job's seed follows from its id and the run's `seed` alone.

    So a job that is tried anew has the parameter that it had, and handing out is a slice of bytes.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._block = -1
        self._rows = b""
        self._intended: dict[int, int] = {}
        """When each job that is out arrives, in an open system: ns of our clock, by job id."""

    def arriving(self, tickets: range, intended_ns: Sequence[int], offset_ns: int) -> bytes:
        """Return the rows of first attempts that arrive at instants of our clock, `offset_ns` behind the worker's."""
        self._intended.update(zip(tickets, intended_ns, strict=True))
        return _at(self.fresh(tickets), intended_ns, offset_ns)

    def arrived(self, tickets: Iterable[int]) -> list[int]:
        """Return when jobs arrived whose results are there (0: nobody knows any more), and forget it."""
        return [self._intended.pop(job_id_of(ticket), 0) for ticket in tickets]

    def fresh(self, tickets: range) -> bytes:
        """Return the rows of first attempts, whose tickets are their job ids."""
        parts = []
        first = tickets.start
        while first < tickets.stop:
            block, place = divmod(first, BLOCK_JOBS)
            if block != self._block:
                self._block, self._rows = block, self._drawn(block * BLOCK_JOBS, BLOCK_JOBS)
            last = min(place + tickets.stop - first, BLOCK_JOBS)
            parts.append(self._rows[place * ROW_BYTES : last * ROW_BYTES])
            first += last - place
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def anew(self, tickets: Sequence[int], offset_ns: int) -> bytes:
        """Return the rows of further attempts; a job that arrived is as late as it is."""
        rows = np.concatenate([np.frombuffer(self._drawn(job_id_of(ticket), 1), "<i8") for ticket in tickets])
        rows = rows.reshape(-1, len(ORDER))
        rows[:, ORDER.index("ticket")] = tickets
        intended = [self._intended.get(job_id_of(ticket), 0) for ticket in tickets]
        return _at(rows.tobytes(), intended, offset_ns) if any(intended) else rows.tobytes()

    def _drawn(self, first: int, count: int) -> bytes:
        rows = np.zeros((count, len(ORDER)), "<i8")
        rows[:, ORDER.index("ticket")] = np.arange(first, first + count)
        seeds = np.random.PCG64(self._seed).advance(first).random_raw(count)
        rows[:, ORDER.index("seed")] = seeds >> np.uint64(1)
        return rows.tobytes()


def _at(rows: bytes, intended_ns: Sequence[int], offset_ns: int) -> bytes:
    table = np.frombuffer(rows, "<i8").reshape(-1, len(ORDER)).copy()
    table[:, ORDER.index("intended_ns")] = np.asarray(intended_ns, np.int64) + offset_ns
    return table.tobytes()
