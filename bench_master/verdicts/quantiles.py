"""What is inside a trial: quantiles of its jobs, and how many independent jobs they are worth.

Quantiles are median-unbiased (type 8 of Hyndman and Fan, 1996). A nearest rank lies systematically off in trials with
few jobs, so that treatments with unequal numbers of jobs would seem to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]

MEDIAN: Final = 0.5
SHIFT_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Where the shift function compares two treatments."""


def type8_position(count: int, q: float) -> tuple[int, float]:
    """Return where quantile `q` of `count` sorted values is: its rank from 1, and the share of the next value."""
    at = min(max((count + 1 / 3) * q + 1 / 3, 1.0), float(count))
    rank = min(int(at), count)
    return rank, at - rank


UNEQUAL: Final = 1.25
"""From this ratio of their numbers of jobs on two trials are unequal: heavy tails bias a quantile of few jobs."""


def enough_jobs(count: int, q: float) -> bool:
    """Whether a trial of `count` jobs has one beyond the quantile. A median is unbiased of any number of jobs."""
    return q == MEDIAN or count * min(q, 1.0 - q) >= 1.0 - 1e-9


def jobs_needed(q: float) -> int:
    """Return the fewest jobs of a trial that have one beyond the quantile."""
    return 1 if q == MEDIAN else math.ceil(1.0 / min(q, 1.0 - q) - 1e-9)


def quantile(values: Numbers, q: float) -> float:
    """Return one of the `quantiles`."""
    return quantiles(values, (q,))[0]


def quantiles(values: Numbers, wanted: Sequence[float], zeros: int = 0, infinite: int = 0) -> list[float]:
    """Return quantiles of `values` with so many zeros before them and so many infinite values behind; NaN of none."""
    count = len(values) + zeros + infinite
    if not count:
        return [math.nan] * len(wanted)
    # Sorting uses the processor's vectors and is several times as fast as finding more than two ranks.
    ordered = np.sort(values)

    def at(place: int) -> float:
        return 0.0 if place < 0 else float(ordered[place]) if place < len(values) else math.inf

    found = []
    for rank, share in (type8_position(count, q) for q in wanted):
        # An index from 0: below 0 are the zeros, beyond the values what is infinite.
        place = rank - 1 - zeros
        first = at(place)
        found.append(first + share * (at(place + 1) - first) if share and math.isfinite(first) else first)
    return found


def intraclass_correlation(trials: Sequence[tuple[int, float, float]]) -> float | None:
    """Return how alike the jobs of one trial are, by one-way analysis of variance; None if it cannot be told.

    It is 0 of jobs that are independent, 1 of equal ones. `trials` are the jobs, mean and sum of squared deviations
    of each trial of one treatment: what treatments differ in is not what makes jobs alike.
    """
    jobs, levels, squares = np.array([trial for trial in trials if trial[0]]).reshape(-1, 3).T
    total, freedom = jobs.sum(), len(jobs) - 1
    if freedom < 1 or total <= len(jobs):
        return None
    between = float(jobs @ (levels - jobs @ levels / total) ** 2) / freedom
    within = float(squares.sum()) / (total - len(jobs))
    size = float(total - jobs @ jobs / total) / freedom
    return (between - within) / (between + (size - 1.0) * within) if between + within else None


def summarise_logs(values: Numbers) -> tuple[int, float, float]:
    """Return number, mean and sum of squared deviations of the logarithms of positive values."""
    logs = np.log(values)
    mean = float(logs.mean()) if len(logs) else 0.0
    return len(logs), mean, float(((logs - mean) ** 2).sum())
