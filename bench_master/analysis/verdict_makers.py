"""Makes the report on a comparison, and all verdicts: within a run, between runs and against a trend alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bench_common.thresholds import Primary
from bench_master.analysis.answer import make_answer
from bench_master.analysis.verdict_types import (
    BandReport,
    ComparisonReport,
    VerdictsReport,
)
from bench_master.verdicts.decision import Verdict, Word
from bench_master.verdicts.reasons import Reason


def words_of(measure: Primary) -> tuple[Word, Word]:
    """Return the words for a measure that got worse and better."""
    return ("slower", "faster") if measure.is_time_or_rate else ("worse", "better")


def changed_word(measure: Primary, difference: float) -> Word:
    """Return the word for a measure that changed by this."""
    return words_of(measure)[(difference > 0.0) != (measure.direction == "lower")]


def finite_or_none(value: float | None) -> float | None:
    """Return a number as reports have it: None for one that is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def with_verdict(
    report: ComparisonReport, verdict: Verdict, refused: Sequence[Reason] = (), notes: Sequence[Reason] = ()
) -> ComparisonReport:
    """Return the report on a comparison with the numbers of its verdict, and its word.

    `refused` are reasons that refuse every word; `notes` are said before what limits the verdict.
    """
    reasons = [*notes, *([verdict.reason] if verdict.reason is not None else [])]
    exact_low, exact_high = map(finite_or_none, verdict.exact)
    return replace(
        report,
        verdict="refused" if refused else verdict.word,
        reasons=[*refused] if refused else reasons,
        ratio=finite_or_none(verdict.ratio),
        low=finite_or_none(verdict.low),
        high=finite_or_none(verdict.high),
        scale="difference" if verdict.differences else "ratio",
        confidence=verdict.confidence,
        p=finite_or_none(verdict.p),
        mde=None if verdict.differences else finite_or_none(verdict.smallest_effect),
        more_rounds=None if refused else verdict.more_rounds,
        band=None if verdict.band is None else BandReport(exact_low, exact_high, verdict.band),
        ratio_low=finite_or_none(verdict.ratio_ends[0]),
        ratio_high=finite_or_none(verdict.ratio_ends[1]),
    )


def make_verdicts(report: VerdictsReport, labels: Mapping[str, Mapping[str, Any]] | None = None) -> VerdictsReport:
    """Return verdicts with their answer and why words were refused; gates judge them later.

    `labels` are those of the run's treatments by title.
    """
    refused = dict.fromkeys(each.reason for each in report.comparisons if each.verdict == "refused" and each.reason)
    return replace(report, answer=make_answer(report, labels or {}), refused=list(refused))
