"""A run judged by the trend of its series: whether it is on another level, and a second run is, too.

One run in a thousand stands out by chance, and one cause in a hundred is the machine's. So a first run that stands
out is no verdict but an alarm; the next run confirms it, and then gates fail (`bench_master.verdicts.change_points`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from bench_master.analysis.compare_runs import archive_of, as_file, beside, compare_levels, scope_of
from bench_master.analysis.harness_limits import ceiling_refusal
from bench_master.analysis.run_checks import findings_data
from bench_master.analysis.run_summary import noise_floor, summary_of
from bench_master.analysis.trend_source import PastSeries
from bench_master.analysis.verdict_makers import finite_or_none, make_verdicts, words_of
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import (
    EACH_CONFIRMED,
    ArchiveReport,
    ComparisonReport,
    DesignReport,
    FamilyReport,
    FlagReport,
    RunFileReport,
    VerdictsReport,
)
from bench_master.formatting import plural
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.summary import RunSummary, TreatmentSummary
from bench_master.verdicts import between_runs, diagnosis
from bench_master.verdicts.between_runs import MIN_ARCHIVE, RunLevels
from bench_master.verdicts.change_points import TREND_P, judge_newest
from bench_master.verdicts.decision import ALPHA, DEFAULT_MARGIN, Rules, Verdict
from bench_master.verdicts.reasons import Code, Reason, because

NOTHING: Final = PastSeries(RunLevels.exact([]), ())


def add_trend(verdicts: VerdictsReport | None, measured: MeasuredRun, options: VerdictOptions) -> VerdictsReport:
    """Return the verdicts of a run with those against the trend of its series, which `options` can tell.

    Raises `UsageError` and `InfrastructureError` where the earlier runs cannot be read.
    """
    assert options.trend is not None
    run = summary_of(measured, options.failures)
    known = verdicts.family.margin if verdicts is not None else run.margin
    margin = options.margin or known or DEFAULT_MARGIN
    treatments = list(run.treatments.values())
    past = options.trend.past(run) if not run.problem else {}
    found = _report(run, treatments, past, margin)
    return found if verdicts is None else beside(verdicts, found)


def _report(
    run: RunSummary, treatments: Sequence[TreatmentSummary], past: Mapping[str, PastSeries], margin: float
) -> VerdictsReport:
    comparisons = [_judge(one, past.get(one.title, NOTHING), run.problem, margin) for one in treatments]
    archive = _archive(run, treatments, past, margin)
    return make_verdicts(
        VerdictsReport(
            comparisons=comparisons,
            question=f"{run.scenario}: this run against the trend of {plural(archive.runs, 'earlier run')}, "
            f"margin {100 * margin:.3g} %",
            family=FamilyReport(TREND_P, max(1, len(comparisons)), margin, EACH_CONFIRMED),
            design=DesignReport(
                grade="C",
                limits=[because(Code.UNIT, kind="trend")],
                scope=scope_of(run.hosts, archive.runs + 1),
                unit="run",
            ),
            archive=archive,
        ),
    )


def _judge(treatment: TreatmentSummary, past: PastSeries, problem: Reason | None, margin: float) -> ComparisonReport:
    """Return the verdict on one treatment."""
    refused = [one for one in (problem, ceiling_refusal([treatment.limits])) if one is not None]
    if not treatment.has_level:
        return compare_levels(treatment, past.levels, NOTHING.levels, None, refused or [because(Code.NO_VALUE)])
    levels = past.levels.joined(treatment.levels)
    outlook = judge_newest(levels, margin)
    if refused or outlook.state == "few":
        refused = refused or [_too_few(past, len(outlook.regime))]
        return compare_levels(treatment, past.levels, treatment.levels, None, refused)
    measure = treatment.measure
    rules = Rules(
        margin=margin,
        alpha=ALPHA if outlook.state == "confirmed" else TREND_P,
        lower_is_better=measure.direction == "lower",
        words=words_of(measure),
    )
    regime, new = levels.taken(outlook.regime), levels.part(outlook.first)
    verdict = replace(between_runs.against_archive(regime, new, rules), more_rounds=None)
    if outlook.state == "confirmed":
        since = past.runs[outlook.first]
        confirmed = because(Code.CONFIRMED, runs=len(new), since=since.created, run=since.file)
        verdict = replace(verdict, reason=confirmed)
    else:
        verdict = _undirected(verdict, alarm=outlook.state == "unconfirmed")
    return replace(
        compare_levels(treatment, regime, new, verdict),
        rounds=len(regime),
        unconfirmed=outlook.state == "unconfirmed",
        flags=_flags(treatment.title, regime, margin),
    )


def _flags(title: str, regime: RunLevels, margin: float) -> list[FlagReport]:
    """Return a warning where runs resemble their neighbours: then chance makes runs of runs that stand out."""
    found = diagnosis.neighbours(regime.values)
    if found is None or found.p is None or found.p > diagnosis.LEVEL or found.size <= math.log1p(margin):
        return []
    reason = because(Code.RUNS_RESEMBLE, treatment=title, findings=findings_data([found]))
    return [FlagReport("neighbours", title, "warning", found.p, math.expm1(found.size), reason)]


def _undirected(verdict: Verdict, *, alarm: bool) -> Verdict:
    """Return a verdict on a run that nothing confirms yet: it has no direction."""
    if alarm:
        ratio, low, high = map(finite_or_none, (verdict.ratio, verdict.low, verdict.high))
        reason = because(Code.UNCONFIRMED, ratio=ratio, low=low, high=high)
        return replace(verdict, word="inconclusive", reason=reason)
    if verdict.word in ("same", "inconclusive"):
        return verdict
    return replace(verdict, word="inconclusive", reason=because(Code.MAYBE_BELOW_MARGIN))


def _too_few(past: PastSeries, current: int) -> Reason:
    count = len(past.levels)
    if current < count:
        return because(Code.LEVEL_CHANGED, runs=current, needed=MIN_ARCHIVE)
    return because(Code.TOO_FEW_EARLIER_RUNS, earlier=count, needed=MIN_ARCHIVE, since=past.since, others=None)


def _archive(
    run: RunSummary, treatments: Sequence[TreatmentSummary], past: Mapping[str, PastSeries], margin: float
) -> ArchiveReport:
    files: dict[str, RunFileReport] = {}
    noise = []
    for one in treatments:
        series = past.get(one.title, NOTHING)
        files |= {each.file: each for each in series.runs}
        levels = series.levels
        if one.has_level and len(levels):
            regime = judge_newest(levels.joined(one.levels), margin).regime
            levels = levels.taken([place for place in regime if place < len(levels)])
        floor = noise_floor(levels, one, margin)
        noise += [floor] if floor is not None else []
    earlier = sorted(files.values(), key=lambda each: each.created or "")
    return archive_of(earlier, [run], [as_file(run, run.problem)] if run.problem is not None else [], noise)
