"""One series of the archive as a trend: its runs, when it changed and by how much, and where the machine changed.

A series ends where a fact of the machine changes, and another one begins: no change is looked for across that. What a
change is says `bench_master.verdicts.change_points`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from bench_common.errors import UsageError, did_you_mean
from bench_common.safe_text import one_line
from bench_common.thresholds import Primary
from bench_features.archive.facts import machine_facts, steadied
from bench_features.archive.trend_types import (
    TREND_FORMAT,
    TREND_VERSION,
    ChangeKind,
    FactChange,
    TrendBreak,
    TrendChange,
    TrendReport,
    TrendRun,
)
from bench_features.archive.types import Series, TrendPoint
from bench_master.analysis.verdict_makers import changed_word
from bench_master.formatting import format_change, plural
from bench_master.verdicts import between_runs
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.change_points import TREND_P, find_steps, judge_newest
from bench_master.verdicts.decision import ALPHA, DEFAULT_MARGIN
from bench_master.verdicts.signed_rank import Interval
from bench_master.verdicts.spread import spread_of

MOST_TRIALS: Final = 1000
"""Of more trials the interval of a run's median takes too much memory, and is too narrow to be seen."""
_BESIDE: Final = 2
"""A step may be found a run or two beside the change that somebody acknowledged."""


def points_of(series: Series, measure: str | None = None) -> tuple[Primary, list[TrendPoint]]:
    """Return the measure, the primary one or another, and the points of a series by it, the oldest first.

    Another one is ``OPERATION.STATISTIC``, such as ``start.p95``, or the name of a metric. Raises `UsageError` for a
    measure that the newest run of the series has not.
    """
    name, known = measure or series.measure.name, series.members[-1][1].measures()
    if name not in known:
        names = ", ".join(map(one_line, sorted(known)[:12]))
        raise UsageError(f"measure {one_line(name)}: not in this series{did_you_mean(name, known)}; it has {names}")
    found: list[TrendPoint] = []
    machine: dict[str, str] = {}
    for run, one in series.members:
        _, value = one.measures().get(name, (None, None))
        if value is None or run.created is None:
            continue
        facts = machine_facts(run.hosts)
        steady = steadied(machine, facts)
        machine = machine if steady == machine else steady
        trials = one.trials if name == series.measure.name else ()
        found.append(TrendPoint(run.id, run.created, one.engine_version or run.version, value, trials, machine))
    return known[name][0], found


def build_trend(
    series: Series,
    points: Sequence[TrendPoint],
    *,
    margin: float = DEFAULT_MARGIN,
    acknowledged: Collection[str] = (),
    measure: Primary | None = None,
) -> TrendReport:
    """Return the trend of points, the oldest first; `acknowledged` are ids of runs that begin a known change.

    `measure` is one that is not the primary measure. Points without a positive value have no level, and are left out.
    """
    measure = measure or series.measure
    history = History(points, acknowledged)
    outlook, changes = judge_newest(history.levels, margin, history.start), _changes(history, margin, measure)
    regime = (*outlook.regime, len(history.points) - 1) if outlook.state == "steady" else outlook.regime
    regime = () if outlook.state == "confirmed" else regime
    next_low, next_high = between_runs.expected(history.levels.taken(regime))
    return TrendReport(
        format=TREND_FORMAT,
        version=TREND_VERSION,
        series=series.key,
        scenario=series.scenario,
        treatment=series.title,
        labels=series.labels,
        hosts=series.hosts,
        measure=measure.name,
        unit=measure.unit,
        direction=measure.direction,
        margin=margin,
        answer=_answer(series.title, changes, history.points),
        state=outlook.state,
        next_low=next_low,
        next_high=next_high,
        runs=[_run(point) for point in history.points],
        changes=changes,
        breaks=history.breaks,
    )


class History:
    """The points of a series that have a level, a positive value; the oldest first."""

    def __init__(self, points: Sequence[TrendPoint], acknowledged: Collection[str]) -> None:
        self.points = [point for point in points if 0.0 < point.value < math.inf]
        self.levels = RunLevels.exact([math.log(point.value) for point in self.points])
        self.breaks = [
            TrendBreak(place, after.run_id, iso(after.created), changed)
            for place, (before, after) in enumerate(pairwise(self.points), 1)
            if (changed := changed_facts(before.machine, after.machine))
        ]
        """Where the machine changed, and what of it."""
        self.known = [place for place, point in enumerate(self.points) if point.run_id in acknowledged]
        """The runs that begin an acknowledged change."""
        self.regime = max((one.first for one in self.breaks), default=0)
        """The first run since the last break."""
        self.start = max([self.regime, *self.known])
        """The first run that newer ones may be held against: since the last break or acknowledged change."""


def changed_facts(before: Mapping[str, str], after: Mapping[str, str]) -> list[FactChange]:
    """Return the facts that differ; one that a run does not show says nothing."""
    if before is after:
        return []
    return [
        FactChange(name, before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]


def iso(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _run(point: TrendPoint) -> TrendRun:
    known = len(point.trials) <= MOST_TRIALS and min(point.trials, default=0.0) > 0.0
    spread = spread_of(point.trials, log=True) if known else None
    ends = None if spread is None or not spread.is_interval else spread
    return TrendRun(
        run=point.run_id,
        created=iso(point.created),
        created_s=point.created,
        version=point.version,
        value=point.value,
        low=None if ends is None else min(point.value, ends.low),
        high=None if ends is None else max(point.value, ends.high),
        trials=len(point.trials),
    )


def _changes(history: History, margin: float, measure: Primary) -> list[TrendChange]:
    points, levels, breaks = history.points, history.levels, history.breaks
    steps = find_steps(levels.values, margin, [one.first for one in breaks])
    found: list[tuple[int, ChangeKind, float, Interval]] = [
        (step.first, "step", step.difference, step.interval) for step in steps
    ]
    # Also one that is acknowledged stays in the list.
    outlook = judge_newest(levels, margin, history.regime)
    if outlook.state in ("unconfirmed", "confirmed") and all(abs(one[0] - outlook.first) > _BESIDE for one in found):
        kind: ChangeKind = "confirmed" if outlook.state == "confirmed" else "unconfirmed"
        alpha = ALPHA if kind == "confirmed" else TREND_P
        new = between_runs.predict(levels.taken(outlook.regime), levels.part(outlook.first), alpha)
        found.append((outlook.first, kind, new.difference, new.interval))
    for since, first in reversed(outlook.adopted):
        if all(abs(one[0] - first) > _BESIDE for one in found):
            end = min((one[0] for one in found if one[0] > first), default=len(points))
            difference, interval = between_runs.shift_between(levels.values[since:first], levels.values[first:end])
            found.append((first, "confirmed", difference, interval))
    ends = sorted([*(one[0] for one in found), *(one.first for one in breaks), len(points)])
    return [
        TrendChange(
            first=first,
            run=points[first].run_id,
            created=iso(points[first].created),
            version=points[first].version,
            kind=kind,
            word=changed_word(measure, difference),
            ratio=math.exp(difference),
            low=math.exp(interval.low),
            high=math.exp(interval.high),
            runs=next(end for end in ends if end > first) - first,
            acknowledged=any(abs(place - first) <= _BESIDE for place in history.known),
        )
        for first, kind, difference, interval in sorted(found, key=lambda one: one[0])
    ]


def _answer(title: str, changes: Sequence[TrendChange], points: Sequence[TrendPoint]) -> str:
    if not changes:
        return f"no change of {title} in {plural(len(points), 'run')}"
    last = changes[-1]
    more = "; one more run must confirm it" if last.kind == "unconfirmed" else ""
    return f"{last.word.upper()} {title} {format_change(last.ratio, sided=True)} {last.words}{more}"
