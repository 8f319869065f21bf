"""Comparisons turned so that more is worse, as charts show them; and when their factors must not be quoted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench_master.analysis.verdict_types import ComparisonReport, change_text, interval_text
from bench_master.reports.verdict_text import FEWEST_ROUNDS
from bench_master.run_data.treatment_types import TreatmentReport

_LEAST_CONFIDENCE: Final = 0.94
"""Of a smaller one the ends are the range of the rounds, and no interval."""
_TIMING_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Effect:
    """A comparison turned so that more is worse; None is an open end."""

    comparison: ComparisonReport
    ratio: float
    low: float | None
    high: float | None
    weak: bool
    """Whether the timing error is more than a tenth of the baseline's median."""

    @property
    def is_interval(self) -> bool:
        """Whether the ends are those of an interval, and not the range of few rounds."""
        return self.comparison.confidence >= _LEAST_CONFIDENCE

    @property
    def holds_one(self) -> bool:
        """Whether a ratio of 1 is within the ends."""
        return (self.low is None or self.low <= 1) and (self.high is None or self.high >= 1)

    @property
    def text(self) -> str:
        """The difference and its ends, as every report says them; a single round has no ends."""
        interval = interval_text(self.comparison, FEWEST_ROUNDS)
        ends = "" if interval == "-" else f" {interval}"
        return f"{change_text(self.comparison)}{ends}" + (" \u2020" if self.weak else "")


def turn(comparison: ComparisonReport, treatments: Sequence[TreatmentReport]) -> Effect | None:
    """Return a comparison with right as worse; None if it has no ratio."""
    ratio = comparison.ratio
    if comparison.scale != "ratio" or ratio is None or not 0 < ratio < math.inf or comparison.verdict == "refused":
        return None
    low, high = (end if end and 0 < end < math.inf else None for end in (comparison.low, comparison.high))
    if comparison.direction == "higher":
        ratio, low, high = 1 / ratio, None if high is None else 1 / high, None if low is None else 1 / low
    return Effect(comparison, ratio, low, high, _timing_is_weak(comparison, treatments))


def _timing_is_weak(comparison: ComparisonReport, treatments: Sequence[TreatmentReport]) -> bool:
    if comparison.unit != "s":
        return False
    base = next((each for each in treatments if each.title == comparison.a), None)
    if base is None or base.timing_error_p99_s is None:
        return False
    job = base.operations.get("job")
    median = comparison.a_value if comparison.a_value is not None else job and job.percentiles_s.get("p50")
    return bool(median) and base.timing_error_p99_s > _TIMING_SHARE * (median or 0.0)
