"""When a run that goes on until its question is settled may look, and what it may conclude from a look.

After each round the part of the error that may be spent so far is ``alpha (n / N) ** 1.5``, with N the last look,
which is fixed before the first round. What the discrete test leaves unspent is carried on (Lan and DeMets 1983). The
interval of a look is a repeated confidence interval (Jennison and Turnbull 1989): valid however the run ends.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from bench_master.verdicts.signed_rank import MIN_ROUNDS, NO_INTERVAL, null_distribution

Ranks: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

EXPONENT: Final = 1.5
DRAWS: Final = 400_000
"""Simulated histories of the statistic behind a table ..."""
SEED: Final = 1945
"""... drawn from this seed, so that a table is the same everywhere."""


def spent(rounds: int, last: int, alpha: float) -> float:
    """Return how much of `alpha` may be spent by the look after `rounds` rounds of at most `last`."""
    return alpha * float(min(1.0, rounds / last) ** EXPONENT)


@lru_cache(maxsize=64)
def critical_values(last: int, alpha: float) -> tuple[int, ...]:
    """Return, for 0 ... `last` rounds, the c with "reject if min(T, M - T) <= c"; `NO_INTERVAL` where none may be.

    The statistic of a longer run contains that of a shorter one, so the looks are simulated together.
    """
    generator = np.random.default_rng(SEED)
    alive = generator.normal(size=(DRAWS, last)).astype(np.float32)
    values = [NO_INTERVAL] * (last + 1)
    total = 0.0
    for rounds in range(MIN_ROUNDS, last + 1):
        statistic = _signed_ranks(alive[:, :rounds])
        largest = rounds * (rounds + 1) // 2
        smaller = np.minimum(statistic, largest - statistic)
        counts = np.cumsum(np.bincount(smaller, minlength=largest + 1))
        allowed = spent(rounds, last, alpha) - total
        c = int(np.searchsorted(counts, allowed * DRAWS, side="right")) - 1
        if c >= 0:
            values[rounds] = c
            total += counts[c] / DRAWS
            alive = alive[smaller > c]
    return tuple(values)


def nominal_level(rounds: int, critical: int) -> float:
    """Return the level of a single test with this critical value: that of the interval of the look."""
    return 0.0 if critical == NO_INTERVAL else 2.0 * float(null_distribution(rounds)[critical])


def _signed_ranks(differences: np.ndarray[Any, Any]) -> Ranks:
    order = np.argsort(np.abs(differences), axis=1)
    positive: np.ndarray[Any, Any] = np.take_along_axis(differences, order, axis=1) > 0.0
    ranks: Ranks = positive.astype(np.int64) @ np.arange(1, differences.shape[1] + 1)
    return ranks
