"""The middle of a measure over trials, and between which ends it lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from bench_master.verdicts.signed_rank import estimate, exact_interval

ALPHA: Final = 0.05


class Spread(NamedTuple):
    """What the trials say of a measure."""

    middle: float
    low: float
    high: float
    is_interval: bool
    """Whether the ends are those of an interval, and not the range of few trials."""


def spread_of(values: Sequence[float], *, log: bool) -> Spread | None:
    """Return the middle of the trials' values and its exact 95 % interval by signed ranks; None without a value.

    Fewer than six trials have no such interval: then the ends are their range. With `log`, positive values are
    compared as ratios.
    """
    known = np.asarray([value for value in values if math.isfinite(value) and (value > 0 or not log)])
    if not len(known):
        return None
    points = np.log(known) if log else known
    middle = estimate(points)
    interval = exact_interval(points, points, ALPHA)
    exact = math.isfinite(interval.low) and math.isfinite(interval.high)
    ends = (interval.low, interval.high) if exact else (float(points.min()), float(points.max()))
    found = [math.exp(each) if log else each for each in (middle, *ends)]
    return Spread(found[0], found[1], found[2], exact)
