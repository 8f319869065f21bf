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

import numpy as np

from bench_common.thresholds import better_direction, is_speed
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
from bench_features.archive.types import STATISTICS, ArchivedValue, Series, TrendPoint
from bench_master.formatting import format_change, plural
from bench_master.verdicts import between_runs, signed_rank
from bench_master.verdicts.between_runs import MIN_ARCHIVE, RunLevels
from bench_master.verdicts.change_points import TREND_P, Outlook, find_steps, judge_newest
from bench_master.verdicts.decision import ALPHA, DEFAULT_MARGIN, Word
from bench_master.verdicts.signed_rank import Interval

MOST_TRIALS: Final = 1000
"""Of more trials the interval of a run's median takes too much memory, and is too narrow to be seen."""
_MOST_VALUES: Final = 2_000_000
"""Averages of pairs of trials that are in memory at the same time."""
_BESIDE: Final = 2
"""A step may be found a run or two beside the change that somebody acknowledged."""


def build_trend(
    series: Series,
    points: Sequence[TrendPoint],
    *,
    margin: float = DEFAULT_MARGIN,
    acknowledged: Collection[str] = (),
    measure: tuple[str, str, str | None] | None = None,
) -> TrendReport:
    """Return the trend of points, the oldest first; `acknowledged` are ids of runs that begin a known change.

    `measure` has name, unit and direction of one that is not the primary measure. Points without a positive value are
    left out: they have no level.
    """
    name, unit, declared = measure or (series.measure, series.unit, series.direction)
    direction = better_direction(unit, declared)
    known = with_levels(points)
    levels = levels_of(known)
    breaks = find_breaks(known)
    outlook, changes = Outlook("few", (), 0), []
    if known:
        outlook = judge_newest(levels, margin, start_of(known, breaks, acknowledged))
        changes = _changes(known, levels, breaks, acknowledged, margin, words_of(name, unit, direction))
    regime = (*outlook.regime, len(known) - 1) if outlook.state == "steady" else outlook.regime
    regime = () if outlook.state == "confirmed" else regime
    expected = _expected(levels.taken(regime))
    return TrendReport(
        format=TREND_FORMAT,
        version=TREND_VERSION,
        series=series.key,
        scenario=series.scenario,
        treatment=series.title,
        labels=series.labels,
        hosts=series.hosts,
        measure=name,
        unit=unit,
        direction=direction,
        margin=margin,
        answer=_answer(series.title, changes, known),
        state=outlook.state,
        next_low=expected[0] if expected else None,
        next_high=expected[1] if expected else None,
        runs=_runs(known),
        changes=changes,
        breaks=breaks,
    )


def measure_of(
    series: Series, values: Sequence[ArchivedValue], name: str | None
) -> tuple[str, str, str | None] | None:
    """Return name, unit and direction of a measure of a series, by its values in a run; None for the primary measure.

    A metric may have the name of the primary measure, and what it declares is not always what runs are judged by.
    """
    if name is None or name == series.measure:
        return None
    for value in values:
        if name in (value.name, *(f"{value.name}.{statistic}" for statistic in STATISTICS)):
            return name, value.unit, value.direction
    return name, "", None


def with_levels(points: Sequence[TrendPoint]) -> list[TrendPoint]:
    """Return the points that have a level: a positive value."""
    return [point for point in points if 0.0 < point.value < math.inf]


def levels_of(points: Sequence[TrendPoint]) -> RunLevels:
    """Return the levels of points `with_levels`."""
    return RunLevels.exact([math.log(point.value) for point in points])


def start_of(points: Sequence[TrendPoint], breaks: Sequence[TrendBreak], acknowledged: Collection[str]) -> int:
    """Return the first run that newer ones may be held against: since the last break or acknowledged change."""
    begins = [place for place, point in enumerate(points) if point.run_id in acknowledged]
    return max([0, *(one.first for one in breaks), *begins])


def find_breaks(points: Sequence[TrendPoint]) -> list[TrendBreak]:
    """Return where the machine changed, and what of it."""
    found = []
    for place, (before, after) in enumerate(pairwise(points), 1):
        changed = changed_facts(before.machine, after.machine)
        if changed:
            found.append(TrendBreak(place, after.run_id, iso(after.created), changed))
    return found


def changed_facts(before: Mapping[str, str], after: Mapping[str, str]) -> list[FactChange]:
    """Return the facts that differ; one that a run does not show says nothing."""
    if before is after:
        return []
    return [
        FactChange(name, before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]


def words_of(name: str, unit: str, direction: str) -> tuple[Word, Word]:
    """Return the words for a measure that rises and for one that falls."""
    words: tuple[Word, Word] = ("slower", "faster") if is_speed(name, unit) else ("worse", "better")
    return words if direction == "lower" else (words[1], words[0])


def iso(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _runs(points: Sequence[TrendPoint]) -> list[TrendRun]:
    ends = _intervals(points)
    return [
        TrendRun(
            run=point.run_id,
            created=iso(point.created),
            created_s=point.created,
            version=point.version,
            value=point.value,
            low=None if place not in ends else min(point.value, ends[place][0]),
            high=None if place not in ends else max(point.value, ends[place][1]),
            trials=len(point.trials),
        )
        for place, point in enumerate(points)
    ]


def _intervals(points: Sequence[TrendPoint]) -> dict[int, tuple[float, float]]:
    """Return the intervals of the medians, by place, of runs that have one; those with as many trials at once."""
    groups: dict[int, list[int]] = {}
    for place, point in enumerate(points):
        if len(point.trials) <= MOST_TRIALS and min(point.trials, default=0.0) > 0.0:
            groups.setdefault(len(point.trials), []).append(place)
    found: dict[int, tuple[float, float]] = {}
    for trials, places in groups.items():
        for first in range(0, len(places), max(1, _MOST_VALUES // trials**2)):
            part = places[first : first + max(1, _MOST_VALUES // trials**2)]
            ends = signed_rank.exact_intervals(np.log([points[place].trials for place in part]), ALPHA)
            if ends is not None:
                found |= zip(part, zip(*np.exp(ends).tolist(), strict=True), strict=True)
    return found


def _changes(
    points: Sequence[TrendPoint],
    levels: RunLevels,
    breaks: Sequence[TrendBreak],
    acknowledged: Collection[str],
    margin: float,
    words: tuple[Word, Word],
) -> list[TrendChange]:
    steps = find_steps(levels.values, margin, [one.first for one in breaks])
    found: list[tuple[int, ChangeKind, float, Interval]] = [
        (step.first, "step", step.difference, step.interval) for step in steps
    ]
    # Also one that is acknowledged stays in the list.
    outlook = judge_newest(levels, margin, start_of(points, breaks, ()))
    if outlook.state in ("unconfirmed", "confirmed") and all(abs(one[0] - outlook.first) > _BESIDE for one in found):
        kind: ChangeKind = "confirmed" if outlook.state == "confirmed" else "unconfirmed"
        alpha = ALPHA if kind == "confirmed" else TREND_P
        new = between_runs.predict(levels.taken(outlook.regime), levels.part(outlook.first), alpha)
        found.append((outlook.first, kind, new.difference, new.interval))
    ends = sorted([*(one[0] for one in found), *(one.first for one in breaks), len(points)])
    begins = [place for place, point in enumerate(points) if point.run_id in acknowledged]
    return [
        TrendChange(
            first=first,
            run=points[first].run_id,
            created=iso(points[first].created),
            version=points[first].version,
            kind=kind,
            word=words[0] if difference > 0.0 else words[1],
            ratio=math.exp(difference),
            low=math.exp(interval.low),
            high=math.exp(interval.high),
            runs=next(end for end in ends if end > first) - first,
            acknowledged=any(abs(place - first) <= _BESIDE for place in begins),
        )
        for first, kind, difference, interval in sorted(found, key=lambda one: one[0])
    ]


def _expected(regime: RunLevels) -> tuple[float, float] | None:
    if len(regime) < MIN_ARCHIVE:
        return None
    mean, reach = float(regime.values.mean()), between_runs.next_run(regime)
    return math.exp(mean - reach), math.exp(mean + reach)


def _answer(title: str, changes: Sequence[TrendChange], points: Sequence[TrendPoint]) -> str:
    if not changes:
        return f"no change of {title} in {plural(len(points), 'run')}"
    last = changes[-1]
    about = {"step": "", "confirmed": ", confirmed by a second run", "unconfirmed": ", one more run must confirm it"}
    known = ", acknowledged" if last.acknowledged else ""
    change = format_change(last.ratio, sided=True)
    return f"{last.word.upper()} {title} {change} since {last.created} (run {last.run}{about[last.kind]}{known})"
