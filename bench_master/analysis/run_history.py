"""What a series of runs says of a treatment: its levels, by how much runs differ, and when they changed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np

from bench_master.analysis.run_differences import parameter_changes
from bench_master.analysis.run_summary import RunSummary, TreatmentSummary
from bench_master.analysis.verdict_types import ChangeReport, NoiseFloorReport
from bench_master.verdicts import between_runs
from bench_master.verdicts.between_runs import MIN_ARCHIVE, NEWEST, TREND_P, Prediction, RunLevels
from bench_master.verdicts.decision import Word


def levels_of(
    runs: Sequence[RunSummary], like: TreatmentSummary, accept: Collection[str]
) -> tuple[RunLevels, list[str]]:
    """Return the levels of the runs that have the treatment with its figure and parameters; why others do not."""
    found, others = [], []
    for run in runs:
        own = run.treatments.get(like.title)
        if own is None:
            others.append("the treatment is missing")
        elif own.figure.name != like.figure.name or own.figure.unit != like.figure.unit:
            others.append(f"another figure ({own.figure.name} instead of {like.figure.name})")
        elif changed := _changed(own, like, accept):
            others.append(f"other parameters: {changed}")
        elif not own.has_level:
            others.append("no value, or 0")
        else:
            found.append(own.levels)
    if not found:
        return RunLevels.exact([]), others
    return RunLevels(*(np.concatenate([getattr(one, name) for one in found]) for name in RunLevels.__slots__)), others


def _changed(own: TreatmentSummary, like: TreatmentSummary, accept: Collection[str]) -> str:
    found = parameter_changes(own, like, accept)
    shown = [f"{each.name} {each.a} -> {each.b}" for each in found[:2]]
    return ", ".join(shown) + (f" and {len(found) - 2} more" if len(found) > 2 else "")  # noqa: PLR2004


def current_regime(levels: RunLevels, margin: float) -> int:
    """Return the first run of the current regime."""
    steps = between_runs.history(levels.values, margin)
    return steps[-1].first if steps else 0


def noise_floor(levels: RunLevels, treatment: TreatmentSummary, margin: float) -> NoiseFloorReport | None:
    """Return by how much runs of the current regime differ; None if there are too few of them."""
    since = current_regime(levels, margin)
    standing_out = _newest(levels, since, margin)
    regime = levels.part(since, len(levels) - (standing_out.new if standing_out is not None else 0))
    if len(regime) < MIN_ARCHIVE:
        return None
    reach = between_runs.next_run(regime)
    return NoiseFloorReport(
        name=treatment.title,
        figure=treatment.figure.name,
        unit=treatment.figure.unit,
        runs=len(regime),
        sd=math.expm1(float(regime.values.std(ddof=1))),
        low=math.exp(-reach),
        high=math.exp(reach),
        new_runs=between_runs.new_runs_needed(regime, math.log1p(margin)),
    )


def changes_of(
    runs: Sequence[RunSummary], levels: RunLevels, treatment: TreatmentSummary, margin: float
) -> list[ChangeReport]:
    """Return the steps in the history of a treatment, and its newest runs if they stand out."""
    steps = between_runs.history(levels.values, margin)
    ends = [*(step.first for step in steps[1:]), *([len(levels)] if steps else [])]
    found = [
        _change_report(runs[step.first], treatment, "step", end - step.first, step.difference, step.p)
        for step, end in zip(steps, ends, strict=True)
    ]
    new = _newest(levels, steps[-1].first if steps else 0, margin)
    if new is not None:
        found.append(_change_report(runs[-new.new], treatment, "newest", new.new, new.difference, new.p))
    return found


def _newest(levels: RunLevels, since: int, margin: float) -> Prediction | None:
    """Return the newest runs if they stand out from the regime before them, by the smaller p; None if they do not."""
    found = (between_runs.newest(levels, since, count) for count in NEWEST)
    standing_out = [
        new for new in found if new is not None and new.p < TREND_P and abs(new.difference) > math.log1p(margin)
    ]
    return min(standing_out, key=lambda new: new.p, default=None)


def _change_report(
    run: RunSummary,
    treatment: TreatmentSummary,
    kind: Literal["step", "newest"],
    count: int,
    difference: float,
    p: float,
) -> ChangeReport:
    figure = treatment.figure
    words: tuple[Word, Word] = ("slower", "faster") if figure.is_time_or_rate else ("worse", "better")
    word = words[0] if (difference > 0.0) == (figure.direction == "lower") else words[1]
    return ChangeReport(
        treatment.title, figure.name, kind, run.file, run.created, count, math.exp(difference), p, word
    )
