"""The knee of a curve: from which load on a measure grows faster than before, if it does.

Values at neighbouring loads are put into groups, and each group counts as its median, so that one slow container is
no knee. One line is fitted to the groups by least squares, and two that meet, for each place where they may. Two
always fit better; so how much better is compared with what they gain on noise alone around one line. That is drawn
as often as `DRAWS` says, as correlated from group to group as what the two lines leave (lag one). The interval of the
knee has all places whose two lines fit not significantly worse than the best ones do.

Sources: Hinkley, Biometrika 56 (1969), 495-504, for two lines that meet and the interval of where; Andrews,
Econometrica 61 (1993), 821-856, for why a place that was sought needs a distribution of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bench_master.verdicts.student import t_quantile

Values = npt.NDArray[np.float64]

MOST_GROUPS: Final = 32
FEWEST_GROUPS: Final = 8
"""Two lines and the place where they meet are four numbers: fewer groups say little of what is left."""
IN_A_GROUP: Final = 3
"""Values in a group at least: the median of fewer does not leave out a single odd one."""
LEVEL: Final = 0.01
"""A knee where there is none is found in one curve of a hundred."""
ALPHA: Final = 0.05
"""The interval of the knee has it 95 times in a hundred."""
LEAST_RISE: Final = 0.1
"""At the end of the curve the measure is by this share above where the first line goes, or there is no knee."""
DRAWS: Final = 2000
_SEED: Final = 1
"""The same curve has the same answer."""
_PLACES: Final = 200
"""Where the two lines are tried to meet."""
_MARGIN: Final = 2
"""Groups on each side that no knee is looked for in: two points are always on a line."""


class Knee(NamedTuple):
    """Where a curve bends upwards."""

    at: float
    """The load from which on the measure grows faster."""
    low: float
    """The least load where the bend may be (95 %)."""
    high: float
    before: float
    """By how much the measure grows with each unit of load before the knee."""
    after: float


class Curve(NamedTuple):
    """A measure by load, as the groups whose medians are fitted, with the knee."""

    points: Sequence[tuple[float, float]]
    """The mean load of each group and the median of its values."""
    line: Sequence[tuple[float, float]]
    """The ends of what was fitted, and the knee between them if there is one; empty without a fit."""
    knee: Knee | None


def fit_curve(loads: Values, values: Values) -> Curve:
    """Return the curve of values at some loads, in any order."""
    points = _groups(loads, values)
    if len(points) < FEWEST_GROUPS:
        return Curve(points, (), None)
    x, y = np.array(points).T
    knee = find_knee(x, y)
    plain = np.column_stack([np.ones_like(x), x])
    design = plain if knee is None else np.column_stack([plain, np.maximum(0.0, x - knee.at)])
    weights = np.linalg.lstsq(design, y, rcond=None)[0]
    ends = [float(x[0]), *([] if knee is None else [knee.at]), float(x[-1])]
    line = []
    for end in ends:
        bent = 0.0 if knee is None else weights[2] * max(0.0, end - knee.at)
        line.append((end, float(weights[0] + weights[1] * end + bent)))
    return Curve(points, line, knee)


def _groups(loads: Values, values: Values) -> list[tuple[float, float]]:
    """Return mean load and median value of neighbouring loads; those of one load are in one group."""
    order = np.argsort(loads, kind="stable")
    loads, values = loads[order], values[order]
    different, begins = np.unique(loads, return_index=True)
    count = min(MOST_GROUPS, len(different), len(values) // IN_A_GROUP)
    if not count:
        return []
    # Each load belongs to the group in which its first value is, were all values dealt out evenly.
    group = begins * count // len(values)
    of = np.repeat(group, np.diff([*begins, len(values)]))
    return [(float(loads[of == each].mean()), float(np.median(values[of == each]))) for each in np.unique(group)]


def find_knee(x: Values, y: Values) -> Knee | None:
    """Return where two lines fit significantly better than one and the second is steeper; None if they nowhere do.

    `x` grows, and has `FEWEST_GROUPS` values or more.
    """
    places, basis, directions, lengths = _hinges(x)
    left = y - basis @ (basis.T @ y)
    total = float(left @ left)
    if total <= 1e-18 * float(y @ y):
        return None  # all on one line, to the rounding
    gains = np.maximum(0.0, directions.T @ left)
    best = int(gains.argmax())
    rest = left - gains[best] * directions[:, best]
    spare = float(rest @ rest)
    correlation = _correlation(rest)
    shares = _shares_of_noise(tuple(x), correlation)
    if (1 + np.count_nonzero(shares >= gains[best] ** 2 / total)) / (1 + DRAWS) > LEVEL:
        return None
    at, bend = float(places[best]), float(gains[best] / lengths[best])
    design = np.column_stack([np.ones_like(x), x, np.maximum(0.0, x - at)])
    first, before, _ = (float(one) for one in np.linalg.lstsq(design, y, rcond=None)[0])
    straight, beyond = first + before * x[-1], bend * (x[-1] - at)
    if beyond < LEAST_RISE * abs(straight):
        return None
    degrees = len(x) - 4
    # Correlated groups are worth fewer independent ones.
    allowed = t_quantile(1.0 - ALPHA / 2.0, degrees) ** 2 / degrees * (1.0 + correlation) / (1.0 - correlation)
    near = places[total - gains**2 <= spare * (1.0 + allowed)]
    return Knee(at, float(near.min()), float(near.max()), before, before + bend)


def _hinges(x: Values) -> tuple[Values, Values, Values, Values]:
    """Return where two lines may meet, what one line explains (orthonormal), what each bend adds, and its length."""
    places = np.linspace(x[_MARGIN - 1], x[-_MARGIN], _PLACES + 2)[1:-1]
    basis, _ = np.linalg.qr(np.column_stack([np.ones_like(x), x]))
    hinges = np.maximum(0.0, x[:, None] - places)
    hinges -= basis @ (basis.T @ hinges)
    lengths = np.sqrt((hinges**2).sum(axis=0))
    return places, basis, hinges / lengths, lengths


@lru_cache(maxsize=64)
def _shares_of_noise(loads: tuple[float, ...], correlation: float) -> Values:
    """Return which share of the squares that one line leaves of noise the best bend takes away, in each draw."""
    _, basis, directions, _ = _hinges(np.array(loads))
    noise = np.random.default_rng(_SEED).standard_normal((len(loads), DRAWS))
    for place in range(1, len(loads)):
        noise[place] = correlation * noise[place - 1] + np.sqrt(1.0 - correlation**2) * noise[place]
    noise -= basis @ (basis.T @ noise)
    bent: Values = np.maximum(0.0, directions.T @ noise).max(axis=0)
    shares: Values = bent**2 / (noise**2).sum(axis=0)
    return shares


def _correlation(rest: Values) -> float:
    """Return how alike neighbouring groups deviate: 0 to 0.9, rounded up to a step of 0.05."""
    power = float(rest @ rest)
    found = max(0.0, float(rest[1:] @ rest[:-1]) / power) if power > 0.0 else 0.0
    return min(0.9, math.ceil(20.0 * found) / 20.0)
