"""The exact interval of a share of so many trials (Clopper and Pearson, Biometrika 26, 1934)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench_master.verdicts.student import regularized_beta

LEVEL: Final = 0.05
_HALVINGS: Final = 60


def binomial_interval(found: int, of: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the ends of the interval at 1 - `level`; (0, 1) of no trial."""
    low = 0.0 if found == 0 else _share_with(lambda p: regularized_beta(found, of - found + 1, p), level / 2)
    high = 1.0 if found == of else _share_with(lambda p: regularized_beta(found + 1, of - found, p), 1 - level / 2)
    return low, high


def _share_with(rising: Callable[[float], float], level: float) -> float:
    """Return where a rising function of a share reaches a level."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < level else (low, middle)
    return low
