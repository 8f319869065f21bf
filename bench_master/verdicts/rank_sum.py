"""Wilcoxon's rank sum of two groups: its distribution where they are alike, exact for up to 40 in a group."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np

from bench_master.verdicts.signed_rank import Values

_MAX_EXACT: Final = 40
"""Above so many in a group the distribution of the rank sum is approximated by a normal one."""


def rank_sum_p(a: Values, b: Values) -> float:
    """Return the two-sided p of "both groups are alike"; equal values count against a difference."""
    differences = b[:, None] - a[None, :]
    ties = int((differences == 0.0).sum())
    fewer = min(int((differences > 0.0).sum()), int((differences < 0.0).sum())) + ties
    return min(1.0, 2.0 * _cumulated(len(a), len(b), fewer))


def least_rank_sum_p(a: int, b: int) -> float:
    """Return the smallest p that groups of so many can have: where they do not overlap."""
    return 2.0 / math.comb(a + b, a)


@lru_cache(maxsize=1024)
def critical_rank_sum(a: int, b: int, alpha: float) -> int:
    """Return the largest u with P(U <= u) <= alpha / 2; -1 where there is none."""
    if max(a, b) > _MAX_EXACT:
        mean, sd = a * b / 2.0, math.sqrt(a * b * (a + b + 1) / 12.0)
        return math.floor(mean + sd * NormalDist().inv_cdf(alpha / 2.0) - 0.5)
    return int(np.searchsorted(_null(a, b), alpha / 2.0 * (1.0 + 1e-12), side="right")) - 1


def _cumulated(a: int, b: int, u: int) -> float:
    if max(a, b) <= _MAX_EXACT:
        return float(_null(a, b)[u])
    mean, sd = a * b / 2.0, math.sqrt(a * b * (a + b + 1) / 12.0)
    return NormalDist(mean, sd).cdf(u + 0.5)


@lru_cache(maxsize=256)
def _null(a: int, b: int) -> Values:
    """Return P(U <= u) for u = 0 ... a b under "both groups are alike" (Mann and Whitney 1947)."""
    # ways[k, s]: how many choices of k of the ranks so far, each less its smallest, sum to s.
    ways = np.zeros((a + 1, a * b + 1))
    ways[0, 0] = 1.0
    for rank in range(a + b):
        for chosen in range(min(a, rank + 1), 0, -1):
            shift = rank - (chosen - 1)
            if shift <= b:
                ways[chosen, shift:] += ways[chosen - 1, : a * b + 1 - shift]
    cumulated: Values = np.cumsum(ways[a]) / math.comb(a + b, a)
    cumulated.setflags(write=False)
    return cumulated
