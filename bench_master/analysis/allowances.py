"""What an interval must allow for beyond chance: a shift between the sides of known size and unknown direction.

Such are what one treatment leaves to the next, and the place of a treatment in rounds whose order was not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from bench_master.analysis.verdict_types import DIRECTED_WORDS, ComparisonReport
from bench_master.verdicts.reasons import Code, Reason, because
from bench_master.verdicts.signed_rank import MIN_ROUNDS


def allowing_for(report: ComparisonReport, shift: float, margin: float, reason: Reason) -> ComparisonReport:
    """Return a comparison whose interval allows for a shift of so much, a logarithm, either way.

    A word that does not hold with it is withdrawn for `reason`; `margin` is a logarithm, too. Differences keep their
    interval, and refused comparisons theirs.
    """
    if report.scale != "ratio" or report.verdict == "refused":
        return report
    low = None if report.low is None else report.low * math.exp(-shift)
    high = None if report.high is None else report.high * math.exp(shift)
    widened = replace(report, low=low, high=high)
    holds_none = (low or 0.0) > 1.0 or (high is not None and high < 1.0)
    is_within = low is not None and high is not None and max(-math.log(low), math.log(high)) < margin
    if holds_none if report.verdict in DIRECTED_WORDS else report.verdict != "same" or is_within:
        return replace(widened, tipping=max((low or 0.0) - 1.0, 1.0 - (high or math.inf), 0.0))
    return replace(widened, verdict="inconclusive", reasons=[reason], tipping=0.0, more_rounds=None)


def position_effect(again: Sequence[ComparisonReport]) -> float | None:
    """Return the largest effect, a logarithm, that the place in a round may have by treatments that ran twice in it.

    None where they cannot say: none ran twice, or in too few rounds for an interval.
    """
    ends = [end for one in again for end in (one.low, one.high)]
    if not ends or any(one.rounds < MIN_ROUNDS or one.scale != "ratio" for one in again):
        return None
    logs = [abs(math.log(end)) if end else math.inf for end in ends]
    return max(logs) if math.isfinite(max(logs)) else None


def allowing_for_position(report: ComparisonReport, effect: float, margin: float) -> ComparisonReport:
    """Return a comparison of rounds in one order: its interval allows for the effect of a treatment's place."""
    return allowing_for(report, effect, margin, because(Code.DEPENDS_ON_POSITION, effect=math.exp(effect)))
