"""When jobs arrive in an open system: the intended starts of one worker's part of a trial.

They follow from the rate, the seed, the trial and the worker's place alone, and not from how fast anything is: a
system that falls behind is not asked less often for it (the error known as coordinated omission). Instants are drawn
in blocks as they are needed, so that a trial of any length takes the same memory.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from bench_common.treatment import OpenLoad

Instants = npt.NDArray[np.int64]

BLOCK: Final = 4096


class Arrivals:
    """The arrivals at worker `part` of `parts` in one trial, in nanoseconds from the trial's begin.

    ``constant``: the trial's arrivals are evenly spaced and go round the workers. ``poisson``: each worker has a
    Poisson process of its own with its part of the rate; together they are one with the whole rate. They end after
    `count` arrivals, or before `seconds` have passed. `seed` is any number of non-negative integers.
    """

    def __init__(
        self,
        load: OpenLoad,
        *,
        seed: tuple[int, ...],
        part: int,
        parts: int,
        count: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self._gap_ns = 1e9 * parts / load.rate_per_s
        self._offset_ns = 1e9 * part / load.rate_per_s
        self._left = count
        self._until_ns = math.inf if seconds is None else seconds * 1e9
        self._random = None
        if load.process == "poisson":
            self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*seed, part])))
        self._drawn = 0
        self._last_ns = 0.0
        self._ready: Instants = np.zeros(0, np.int64)

    @property
    def exhausted(self) -> bool:
        """Whether no job will arrive any more."""
        self._refill()
        return not len(self._ready)

    @property
    def next_ns(self) -> int | None:
        """When the next job arrives that was not taken yet; None where none will."""
        self._refill()
        return int(self._ready[0]) if len(self._ready) else None

    def take(self, before_ns: float, most: int) -> list[int]:
        """Take out the arrivals before an instant, at most so many of them; return them in order."""
        taken: list[int] = []
        while len(taken) < most:
            self._refill()
            count = min(int(np.searchsorted(self._ready, before_ns)), most - len(taken))
            if not count:
                break
            taken += self._ready[:count].tolist()
            self._ready = self._ready[count:]
        return taken

    def _refill(self) -> None:
        """See to it that there is an arrival ready, unless there is none left."""
        if len(self._ready) or self._left == 0:
            return
        size = BLOCK if self._left is None else min(BLOCK, self._left)
        if self._random is None:
            instants = self._offset_ns + self._gap_ns * np.arange(self._drawn, self._drawn + size)
        else:
            instants = self._last_ns + np.cumsum(self._random.exponential(self._gap_ns, size))
        self._drawn += size
        self._last_ns = float(instants[-1])
        within = instants[instants < self._until_ns]
        if len(within) < size:
            self._left = 0
        elif self._left is not None:
            self._left -= size
        self._ready = np.rint(within).astype(np.int64)
