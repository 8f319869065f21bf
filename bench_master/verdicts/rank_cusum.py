"""A step in a series: the largest standardised CUSUM of its ranks, with p from permutations.

Ranks make it deaf to outliers: one run in a hundred that takes three times as long moves nothing. The permutations
are drawn from a seed, once for each length, so that a series has the same p everywhere. Source: Pettitt 1979.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from bench_master.verdicts.signed_rank import Values

PERMUTATIONS: Final = 20_000
"""Behind a table; the smallest p is one in so many."""
SEED: Final = 1979
MAX_LENGTH: Final = 400
"""A longer series takes the table of this length: the quantiles grow with the logarithm of the logarithm only."""
_CHUNK: Final = 1_000_000
"""Values permuted at once: bounds the memory."""


@dataclass(frozen=True, slots=True)
class Step:
    """The place of a series where its level changes most, if it does."""

    place: int
    """The first value of the new level."""
    statistic: float
    p: float
    """How likely so large a statistic is if the order means nothing."""


def largest_step(values: Values, min_side: int = 3) -> Step | None:
    """Return the largest step with at least `min_side` values on either side; None if the series is too short."""
    if len(values) < 2 * min_side:
        return None
    curve = _standardised(average_ranks(values)[None, :], min_side)[0]
    at = int(np.argmax(curve))
    statistic = float(curve[at])
    table = _null_table(min(len(values), MAX_LENGTH), min_side)
    larger = len(table) - int(np.searchsorted(table, statistic * (1.0 - 1e-6), side="left"))
    return Step(at + min_side, statistic, (1 + larger) / (1 + len(table)))


def average_ranks(values: Values) -> Values:
    """Return the ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Values = ((last - counts + 1 + last) / 2.0)[inverse]
    return ranks


def _standardised(ranks: np.ndarray[Any, Any], min_side: int) -> np.ndarray[Any, Any]:
    """Return |CUSUM| over its standard deviation, for each split that leaves `min_side` values on either side."""
    n = ranks.shape[1]
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, ddof=1, keepdims=True)
    left = np.arange(1, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = np.abs(np.cumsum(centred, axis=1)[:, :-1]) / (spread * np.sqrt(left * (n - left) / n))
    found: np.ndarray[Any, Any] = np.nan_to_num(curve[:, min_side - 1 : n - min_side])  # no spread: no step
    return found


@lru_cache(maxsize=256)
def _null_table(length: int, min_side: int) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng([SEED, length])
    ranks = np.arange(1.0, length + 1.0, dtype=np.float32)
    rows = max(1, _CHUNK // length)
    found = []
    for first in range(0, PERMUTATIONS, rows):
        drawn = generator.permuted(np.tile(ranks, (min(rows, PERMUTATIONS - first), 1)), axis=1)
        found.append(_standardised(drawn, min_side).max(axis=1))
    return np.sort(np.concatenate(found))
