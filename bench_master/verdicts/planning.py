"""How many rounds an answer takes, and how small a difference so many rounds can show."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from bench_master.verdicts.power_tables import DIFFERENCE, FAMILIES, LOOKS, SAME
from bench_master.verdicts.signed_rank import MIN_ROUNDS, Values
from bench_master.verdicts.student import chi_squared_quantile, t_quantile

POWER_QUANTILE: Final = 0.842
"""The 80 % quantile of a normal distribution: a planned run finds what is there four times in five."""
SAME_POWER_QUANTILE: Final = 1.282
"""The 90 % quantile: both one-sided tests of *same* must succeed."""
SIGNED_RANK_EFFICIENCY: Final = 0.95
"""How many rounds Student's test needs for one of the signed rank's, in normal noise."""
MAX_ROUNDS: Final = 200
"""Above so many rounds the advice is another one: lower the noise, or widen the margin."""


def smallest_effect(spread: float, rounds: int, comparisons: float = 1.0, last_look: int | None = None) -> float:
    """Return the difference (of logarithms) that is shown in four runs of five; infinite below six rounds.

    `spread` is the standard deviation of the rounds' differences. So many `comparisons` hold together at 5 %; a
    stricter level counts as more of them. `last_look` is that of a run that looked after each round and went on to
    the last.
    """
    if rounds < MIN_ROUNDS:
        return math.inf
    return spread * _in_spreads("difference" if last_look is None else "looks", last_look or rounds, comparisons)


_TABLES: Final = {"difference": DIFFERENCE, "same": SAME, "looks": LOOKS}
_QUANTILES: Final = {"difference": POWER_QUANTILE, "same": SAME_POWER_QUANTILE, "looks": POWER_QUANTILE}


@lru_cache(maxsize=4096)
def _in_spreads(table: str, rounds: int, comparisons: float) -> float:
    """Return a value of a table; between its rows and beyond them Student's formula, as far off as it is there."""
    rows, held = _TABLES[table], min(max(1.0, comparisons), FAMILIES[-1])
    off = [
        np.interp(math.log(held), np.log(FAMILIES), [float(value) for value in row.split()])
        / _formula(table, n, held)
        for n, row in rows.items()
    ]
    return float(np.interp(rounds, list(rows), off)) * _formula(table, rounds, max(held, comparisons))


def _formula(table: str, rounds: int, comparisons: float) -> float:
    alpha = (0.1 if table == "same" else 0.05) / comparisons
    quantile = t_quantile(1.0 - alpha / 2.0, rounds - 1) + _QUANTILES[table]
    return quantile / math.sqrt(SIGNED_RANK_EFFICIENCY * rounds)


def rounds_for_difference(spread: float, effect: float, comparisons: float = 1.0) -> int | None:
    """Return how many rounds show a difference of `effect` in four runs of five; None if more than `MAX_ROUNDS`."""
    return _first(lambda rounds: smallest_effect(spread, rounds, comparisons) <= abs(effect))


def rounds_for_same(spread: float, effect: float, margin: float, comparisons: float = 1.0) -> int | None:
    """Return how many rounds show that an `effect` is within the `margin`; None if more than `MAX_ROUNDS`."""
    room = margin - abs(effect)
    if room <= 0.0:
        return None
    # Two one-sided tests, each with a power of 90 %: the interval must be narrow enough on both sides.
    return _first(lambda rounds: spread * _in_spreads("same", rounds, comparisons) <= room)


def upper_spread(differences: Values) -> float:
    """Return the upper 80 % bound of the standard deviation of differences, or levels."""
    n = len(differences)
    return float(differences.std(ddof=1)) * math.sqrt((n - 1) / chi_squared_quantile(0.2, n - 1))


def more_rounds(differences: Values, margin: float, comparisons: float = 1.0) -> int | None:
    """Return how many more rounds would most likely settle one of the comparisons; None if out of reach."""
    n = len(differences)
    if n < 2:  # noqa: PLR2004  a spread takes two
        return None
    spread, effect = upper_spread(differences), float(np.median(differences))
    needed = [
        rounds
        for rounds in (
            rounds_for_difference(spread, effect, comparisons),
            rounds_for_same(spread, effect, margin, comparisons),
        )
        if rounds is not None
    ]
    return max(1, min(needed) - n) if needed else None


def _first(is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number of rounds that is enough; None if more than `MAX_ROUNDS`."""
    return next((rounds for rounds in range(MIN_ROUNDS, MAX_ROUNDS + 1) if is_enough(rounds)), None)
