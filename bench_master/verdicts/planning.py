"""How many rounds an answer takes, and how small a difference so many rounds can show."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from bench_master.verdicts.signed_rank import MIN_ROUNDS, Values
from bench_master.verdicts.student import chi_squared_quantile, t_quantile

POWER_QUANTILE: Final = 0.842
"""The 80 % quantile of a normal distribution: a planned run finds what is there four times in five."""
SAME_POWER_QUANTILE: Final = 1.282
"""The 90 % quantile: both one-sided tests of *same* must succeed."""
SIGNED_RANK_EFFICIENCY: Final = 0.95
"""How many rounds Student's test needs for one of the signed rank's, in normal noise."""
_SMALL: Final = {6: 1.79, 7: 1.33, 8: 1.25, 9: 1.15, 10: 1.01}
"""The same for the few rounds where the formula is too small, from simulation."""
MAX_ROUNDS: Final = 200
"""Above so many rounds the advice is another one: lower the noise, or widen the margin."""


def smallest_effect(spread: float, rounds: int, alpha: float = 0.05) -> float:
    """Return the smallest difference (of logarithms) that `rounds` rounds show with a power of 80 %.

    `spread` is the standard deviation of the rounds' differences. Infinite below six rounds.
    """
    if rounds < MIN_ROUNDS:
        return math.inf
    return spread * _effect_in_spreads(rounds, alpha)


@lru_cache(maxsize=1024)
def _effect_in_spreads(rounds: int, alpha: float) -> float:
    if rounds in _SMALL:
        return _SMALL[rounds]
    quantile = t_quantile(1.0 - alpha / 2.0, rounds - 1)
    return (quantile + POWER_QUANTILE) / math.sqrt(SIGNED_RANK_EFFICIENCY * rounds)


def rounds_for_difference(spread: float, effect: float) -> int | None:
    """Return how many rounds show a difference of `effect` with a power of 80 %; None if more than `MAX_ROUNDS`."""
    return _first(lambda rounds: smallest_effect(spread, rounds) <= abs(effect))


def rounds_for_same(spread: float, effect: float, margin: float) -> int | None:
    """Return how many rounds show that an `effect` is within the `margin`; None if more than `MAX_ROUNDS`."""
    room = margin - abs(effect)
    if room <= 0.0:
        return None
    # Two one-sided tests at 5 %, each with a power of 90 %: the interval must be narrow enough on both sides.
    return _first(lambda rounds: spread * _half_width_of_same(rounds) <= room)


@lru_cache(maxsize=1024)
def _half_width_of_same(rounds: int) -> float:
    return (t_quantile(0.95, rounds - 1) + SAME_POWER_QUANTILE) / math.sqrt(SIGNED_RANK_EFFICIENCY * rounds)


def upper_spread(differences: Values) -> float:
    """Return the upper 80 % bound of the standard deviation of the rounds' differences."""
    n = len(differences)
    return float(differences.std(ddof=1)) * math.sqrt((n - 1) / chi_squared_quantile(0.2, n - 1))


def more_rounds(differences: Values, margin: float) -> int | None:
    """Return how many more rounds would most likely settle a comparison; None if that is out of reach."""
    n = len(differences)
    if n < 2:  # noqa: PLR2004  a spread takes two
        return None
    spread, effect = upper_spread(differences), float(np.median(differences))
    needed = [
        rounds
        for rounds in (rounds_for_difference(spread, effect), rounds_for_same(spread, effect, margin))
        if rounds is not None
    ]
    return max(1, min(needed) - n) if needed else None


def _first(is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number of rounds that is enough; None if more than `MAX_ROUNDS`."""
    return next((rounds for rounds in range(MIN_ROUNDS, MAX_ROUNDS + 1) if is_enough(rounds)), None)
