"""Student's t, chi squared and the binomial interval, of the incomplete beta and gamma functions that numpy lacks.

The continued fraction is Lentz's, as in Press et al., Numerical Recipes (2007), sections 6.2 and 6.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

_TINY: Final = 1e-300
_PRECISION: Final = 1e-15
_STEPS: Final = 500
"""Bounds the continued fraction; it takes some 50 steps at most where it is used."""


def regularized_beta(a: float, b: float, x: float) -> float:
    """Return I_x(a, b), the distribution function of the beta distribution, for 0 <= x <= 1."""
    if not 0.0 < x < 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction converges slowly
        return 1.0 - regularized_beta(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, _inverse(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        d, c = _inverse(1.0 + even * d), _nonzero(1.0 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d, c = _inverse(1.0 + odd * d), _nonzero(1.0 + odd / c)
        value *= d * c
        if abs(d * c - 1.0) < _PRECISION:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def _inverse(value: float) -> float:
    return 1.0 / _nonzero(value)


def t_two_sided(t: float, df: float) -> float:
    """Return P(|T| >= |t|) with `df` degrees of freedom."""
    return regularized_beta(df / 2.0, 0.5, df / (df + t * t))


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """Return the `p` quantile, 0 < p < 1, with `df` degrees of freedom."""
    if p == 0.5:  # noqa: PLR2004  the centre
        return 0.0
    if p < 0.5:  # noqa: PLR2004  symmetric
        return -t_quantile(1.0 - p, df)
    tail = 2.0 * (1.0 - p)
    return _first_positive(lambda t: tail - t_two_sided(t, df))


def regularized_gamma(a: float, x: float) -> float:
    """Return P(a, x), the lower incomplete gamma function; its series, for moderate `x`."""
    if x <= 0.0:
        return 0.0
    term = total = 1.0 / a
    n = a
    while abs(term) > _PRECISION * abs(total):
        n += 1.0
        term *= x / n
        total += term
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))


def chi_squared_quantile(p: float, df: float) -> float:
    """Return the `p` quantile, 0 < p < 1, with `df` degrees of freedom."""
    return _first_positive(lambda x: regularized_gamma(df / 2.0, x / 2.0) - p)


def binomial_interval(found: int, of: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson, Biometrika 26, 1934); (0, 1) of no trial."""
    low = high = 0.0
    if found:
        low = _first_positive(lambda share: regularized_beta(found, of - found + 1, share) - 0.025)
    if found < of:
        high = _first_positive(lambda share: regularized_beta(found + 1, of - found, share) - 0.975)
    return low, high or 1.0


def _first_positive(rising: Callable[[float], float]) -> float:
    """Return where a function that rises from below zero at 0 passes zero, by bisection."""
    low, high = 0.0, 1.0
    while rising(high) < 0.0:
        low, high = high, 2.0 * high
    while low < (middle := (low + high) / 2.0) < high and high - low > 1e-14 * high:
        low, high = (middle, high) if rising(middle) < 0.0 else (low, middle)
    return (low + high) / 2.0
