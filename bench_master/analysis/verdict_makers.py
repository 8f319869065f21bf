"""Makes the report on a comparison, and all verdicts: within a run, between runs and against a trend alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from bench_common.thresholds import Primary
from bench_master.analysis.answer import make_answer
from bench_master.analysis.verdict_types import (
    BandReport,
    ComparisonReport,
    VerdictsReport,
)
from bench_master.verdicts.decision import ALPHA, Verdict, Word
from bench_master.verdicts.reasons import Reason


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared with what."""

    a: str
    b: str
    name: str
    """What tells the treatment from its baseline."""
    labels: Mapping[str, Any]
    measure: Primary
    """The measure that both are compared by."""
    group: str = ""
    """What both have in common, where that tells groups of comparisons apart."""


def words_of(measure: Primary) -> tuple[Word, Word]:
    """Return the words for a measure that got worse and better."""
    return ("slower", "faster") if measure.is_time_or_rate else ("worse", "better")


def finite_or_none(value: float | None) -> float | None:
    """Return a number as reports have it: None for one that is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None


def make_comparison(
    compared: Compared,
    verdict: Verdict | None,
    refused: Sequence[Reason] = (),
    *,
    rounds: int,
    lost: int,
    tipping: float | None,
    values: tuple[float | None, float | None],
    notes: Sequence[Reason] = (),
) -> ComparisonReport:
    """Return the report on a comparison by the numbers of its verdict.

    `refused` are reasons that refuse every word; without a verdict there is none either. `notes` are said before what
    limits the verdict; `values` are the medians of both sides, and `rounds`, `lost` and `tipping` as in the report.
    """
    is_refused = bool(refused) or verdict is None
    found = verdict or _NONE
    reasons = [*notes, *([found.reason] if found.reason is not None else [])]
    if is_refused:
        reasons = [*refused]
    measure, (exact_low, exact_high) = compared.measure, map(finite_or_none, found.exact)
    return ComparisonReport(
        a=compared.a,
        b=compared.b,
        name=compared.name,
        group=compared.group,
        labels=dict(compared.labels),
        measure=measure.name,
        unit=measure.unit,
        direction=measure.direction,
        verdict="refused" if is_refused else found.word,
        reasons=reasons,
        ratio=finite_or_none(found.ratio),
        low=finite_or_none(found.low),
        high=finite_or_none(found.high),
        scale="difference" if found.differences else "ratio",
        confidence=found.confidence,
        rounds=rounds,
        lost=lost,
        p=finite_or_none(found.p),
        mde=None if found.differences else finite_or_none(found.smallest_effect),
        tipping=tipping,
        more_rounds=None if is_refused else found.more_rounds,
        band=None if found.band is None else BandReport(exact_low, exact_high, found.band),
        a_value=values[0],
        b_value=values[1],
        ratio_low=finite_or_none(found.ratio_ends[0]),
        ratio_high=finite_or_none(found.ratio_ends[1]),
    )


_NONE: Final = Verdict("refused", None, math.nan, math.nan, math.nan, 1.0 - ALPHA)


def make_verdicts(report: VerdictsReport, labels: Mapping[str, Mapping[str, Any]] | None = None) -> VerdictsReport:
    """Return verdicts with their answer and why words were refused; gates judge them later.

    `labels` are those of the run's treatments by title.
    """
    refused = dict.fromkeys(each.reason for each in report.comparisons if each.verdict == "refused" and each.reason)
    answer = make_answer(report.comparisons, report.family.margin, labels or {}, report.archive, report.claims)
    return replace(report, answer=answer, refused=list(refused))
