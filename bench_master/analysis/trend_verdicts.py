"""A run judged by the trend of its series: whether it is on another level, and a second run is, too.

One run in a thousand stands out by chance, and one cause in a hundred is the machine's. So a first run that stands
out is no verdict but an alarm; the next run confirms it, and then gates fail (`bench_master.verdicts.change_points`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bench_common.stats.reader import StatsFile
from bench_master.analysis.between import as_file, comparison_of
from bench_master.analysis.run_checks import described
from bench_master.analysis.run_summary import RunSummary, TreatmentSummary, noise_floor, summarize
from bench_master.analysis.trend_source import NewRun, NewTreatment, PastSeries
from bench_master.analysis.verdict_types import (
    EACH_CONFIRMED,
    VERDICTS_FORMAT,
    VERDICTS_VERSION,
    ArchiveReport,
    ComparisonReport,
    DesignReport,
    EnvironmentReport,
    FamilyReport,
    FlagReport,
    RunChecksReport,
    RunFileReport,
    VerdictOptions,
    VerdictsReport,
    verdict_lines,
)
from bench_master.formatting import format_change, format_change_interval, plural
from bench_master.verdicts import between_runs, diagnosis
from bench_master.verdicts.between_runs import MIN_ARCHIVE, RunLevels
from bench_master.verdicts.change_points import TREND_P, judge_newest
from bench_master.verdicts.decision import ALPHA, DEFAULT_MARGIN, Rules, Verdict

UNCONFIRMED: Final = "unconfirmed: run it again; a second run that agrees confirms it"
NOTHING: Final = PastSeries(RunLevels.exact([]), ())


def add_trend(verdicts: VerdictsReport | None, stats: StatsFile, options: VerdictOptions) -> VerdictsReport:
    """Return the verdicts of a run with those against the trend of its series, which `options` can tell.

    Raises `UsageError` and `InfrastructureError` where the earlier runs cannot be read.
    """
    assert options.trend is not None
    run = summarize(stats, options.failures)
    known = verdicts.family.margin if verdicts is not None else run.margin
    margin = options.margin or known or DEFAULT_MARGIN
    treatments = list(run.treatments.values())
    scenario = (stats.header.get("scenario") or {}).get("name")
    new = NewRun(
        None if scenario is None else str(scenario),
        run.began_s,
        {name: host.fingerprint for name, host in run.hosts.items()},
        [NewTreatment(one.title, one.definition, one.figure) for one in treatments],
    )
    past = options.trend.past(new) if not run.problem else {}
    found = _report(run, treatments, past, margin)
    if verdicts is None:
        return found
    archive = found.archive
    summary = None if archive is None else ArchiveReport(archive.runs, archive.sd, archive.low, archive.high)
    return replace(verdicts, archive=summary, between=found)


def _report(
    run: RunSummary, treatments: Sequence[TreatmentSummary], past: Mapping[str, PastSeries], margin: float
) -> VerdictsReport:
    comparisons = [_judge(one, past.get(one.title, NOTHING), run.problem, margin) for one in treatments]
    archive = _archive(run, treatments, past, margin)
    hosts = ", ".join(sorted(run.hosts)) or "unknown"
    lines = verdict_lines(comparisons)
    return VerdictsReport(
        format=VERDICTS_FORMAT,
        version=VERDICTS_VERSION,
        answer=lines[0] if lines else "REFUSED nothing to compare",
        question=f"{run.scenario}: this run against the trend of {plural(archive.runs, 'earlier run')}, "
        f"margin {100 * margin:.3g} %",
        family=FamilyReport(TREND_P, max(1, len(comparisons)), margin, EACH_CONFIRMED),
        design=DesignReport(
            grade="C",
            reasons=["against the trend of earlier runs: the unit is the run, and a second one confirms a change"],
            order=None,
            seed=None,
            rounds=0,
            scope=f"on {'host' if len(run.hosts) == 1 else 'hosts'} {hosts}, over {plural(archive.runs + 1, 'run')}",
            unit="run",
            stopping=None,
        ),
        comparisons=comparisons,
        runs=RunChecksReport(flags=[], looked_for=[], noise_floor=None),
        environment=EnvironmentReport(differences=[]),
        archive=archive,
        refused=list(dict.fromkeys(one.reason for one in comparisons if one.verdict == "refused" and one.reason)),
        gates=[],
        exit_code=0,
    )


def _judge(treatment: TreatmentSummary, past: PastSeries, problem: str, margin: float) -> ComparisonReport:
    """Return the verdict on one treatment."""
    own, count = treatment.levels, len(past.levels)
    if not treatment.has_level:
        return comparison_of(
            treatment.title, treatment, past.levels, NOTHING.levels, None, problem or "no value, or 0", 0
        )
    outlook = judge_newest(past.levels.joined(own), margin) if count else None
    if problem or outlook is None or outlook.state == "few":
        reason = problem or _too_few(past, len(outlook.regime) if outlook is not None else 0)
        return comparison_of(treatment.title, treatment, past.levels, own, None, reason, 0)
    figure = treatment.figure
    rules = Rules(
        margin=margin,
        alpha=ALPHA if outlook.state == "confirmed" else TREND_P,
        lower_is_better=figure.direction == "lower",
        words=("slower", "faster") if figure.is_time_or_rate else ("worse", "better"),
    )
    levels = past.levels.joined(own)
    regime, new = levels.taken(outlook.regime), levels.part(outlook.first)
    verdict = between_runs.against_archive(regime, new, rules)
    verdict = replace(verdict, more_rounds=None)
    if outlook.state != "confirmed":
        verdict = _undirected(verdict, alarm=outlook.state == "unconfirmed")
    else:
        since = past.runs[outlook.first]
        verdict = replace(
            verdict, reason=f"confirmed by {plural(len(new), 'run')} since {since.created} ({since.id})"
        )
    found = comparison_of(treatment.title, treatment, regime, new, verdict, None, 0)
    return replace(
        found,
        reason=verdict.reason,
        confidence=1.0 - rules.alpha,
        rounds=len(regime),
        unconfirmed=outlook.state == "unconfirmed",
        flags=_flags(treatment.title, regime, margin),
    )


def _flags(title: str, regime: RunLevels, margin: float) -> list[FlagReport]:
    """Return a warning where runs resemble their neighbours: then chance makes runs of runs that stand out."""
    found = diagnosis.neighbours(regime.values)
    if found is None or found.p is None or found.p > diagnosis.LEVEL or found.size <= math.log1p(margin):
        return []
    text = (
        f"{title}: runs resemble the ones before them ({described([found], 'run')}), as on a machine whose speed "
        "changes by the hour or the day: more unchanged runs than one in 200 can stand out twice"
    )
    return [FlagReport("neighbours", title, "warning", found.p, math.expm1(found.size), text)]


def _undirected(verdict: Verdict, *, alarm: bool) -> Verdict:
    """Return a verdict on a run that nothing confirms yet: it has no direction."""
    if alarm:
        size = f"{format_change(verdict.ratio)} {format_change_interval(verdict.low, verdict.high, verdict.ratio)}"
        return replace(verdict, word="inconclusive", reason=f"{size}, {UNCONFIRMED}")
    if verdict.word in ("same", "inconclusive"):
        return verdict
    return replace(verdict, word="inconclusive", reason="it stands out by less than the margin")


def _too_few(past: PastSeries, current: int) -> str:
    count = len(past.levels)
    since = f" {past.since}" if past.since else ""
    if not count:
        return f"no earlier run{since}; {MIN_ARCHIVE} are needed"
    if current < count:
        return f"the level changed {plural(current, 'run')} ago; {MIN_ARCHIVE} are needed since"
    return f"only {plural(count, 'earlier run')}{since}; {MIN_ARCHIVE} are needed"


def _archive(
    run: RunSummary, treatments: Sequence[TreatmentSummary], past: Mapping[str, PastSeries], margin: float
) -> ArchiveReport:
    files: dict[str, RunFileReport] = {}
    noise = []
    for one in treatments:
        series = past.get(one.title, NOTHING)
        files |= {each.id: RunFileReport(each.id, None, each.created) for each in series.runs}
        floor = noise_floor(series.levels, one, margin)
        noise += [floor] if floor is not None else []
    worst = max(noise, key=lambda each: each.sd or 0.0, default=None)
    return ArchiveReport(
        runs=len(files),
        sd=worst.sd if worst else None,
        low=worst.low if worst else None,
        high=worst.high if worst else None,
        earlier=sorted(files.values(), key=lambda each: each.created or ""),
        new=[as_file(run)],
        left_out=[RunFileReport(run.file, run.run_id, run.created, run.problem)] if run.problem else [],
        noise=noise,
        changes=[],
    )
