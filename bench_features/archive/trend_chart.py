"""The chart across runs (F12): each run of a series, steps of its level, and where the machine changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import numpy as np

from bench_features.archive.trend_types import TrendChange, TrendReport, TrendRun
from bench_features.charts.layout import Chart, KeyEntry
from bench_features.charts.picture import Frame
from bench_features.charts.scales import Scale, logarithmic
from bench_master.formatting import format_change, format_change_interval, format_value, plural
from bench_master.reports.palette import Theme, engine_hue

MOST_BARS: Final = 400
"""Of more runs each is a speck, without its interval."""
MOST_NAMED: Final = 6
"""Changes and breaks that the caption names, the newest."""
_DAY_S: Final = 86_400.0
_STEPS_S: Final = (
    *(1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600),
    *(_DAY_S * days for days in (1, 2, 7, 14, 30, 91, 182, 365, 730, 3650)),
)


@dataclass(frozen=True, slots=True)
class DateScale(Scale):
    """Times in seconds since 1970, with ticks at round times in UTC."""

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return at most about `most` round times, with as much of the date as tells them apart."""
        span = self.high - self.low
        step = next((step for step in _STEPS_S if span / step <= max(2, most * 0.75)), _STEPS_S[-1])
        form = "%Y-%m-%d" if step >= _DAY_S else "%m-%d %H:%M" if span > _DAY_S else "%H:%M:%S"
        form = "%H:%M" if form == "%H:%M:%S" and step >= 60 else form  # noqa: PLR2004  whole minutes
        first = math.ceil(self.low / step)
        times = [place * step for place in range(first, math.floor(self.high / step) + 1)]
        return [(time, datetime.fromtimestamp(time, UTC).strftime(form)) for time in times]


def draw_trend(trend: TrendReport, width: int, theme: Theme = "page") -> Chart:
    """Draw a series that has a run."""
    picture = Chart("trend", width, theme)
    picture.title = f"{trend.treatment}: {trend.measure} over runs"
    hue = engine_hue(str(trend.labels.get("engine", "")))
    few = len(trend.runs) <= MOST_BARS
    ends = [end for run in trend.runs for end in (run.low, run.high) if end is not None and few]
    values = [run.value for run in trend.runs]
    _draw_key(picture, trend, hue, bars=bool(ends))
    if trend.breaks:
        picture.extend(10)  # for what changed
    frame = picture.panel(190.0 if picture.is_narrow else 230.0)
    scale = logarithmic([*values, *ends], frame.bottom, frame.top, trend.unit, room=1.03)
    low, high = min(run.created_s for run in trend.runs), max(run.created_s for run in trend.runs)
    room = 0.02 * (high - low) or 1.0
    places = DateScale(low - room, high + room, frame.left, frame.right)
    xs = [places(run.created_s) for run in trend.runs]
    picture.axes(frame, places, scale, "when the run began (UTC)")
    _draw_levels(picture, trend, xs, scale, frame)
    if few:
        for x, run in zip(xs, trend.runs, strict=True):
            _draw_run(picture, x, run, scale, hue, trend.unit)
    else:
        picture.specks([(x, scale(run.value)) for x, run in zip(xs, trend.runs, strict=True)], hue)
    _draw_breaks(picture, trend, xs, frame)
    for change in trend.changes:
        _draw_change(picture, trend, change, xs, scale)
    picture.caption = _caption(trend, scale, bars=bool(ends))
    return picture


def _draw_key(picture: Chart, trend: TrendReport, hue: str, *, bars: bool) -> None:
    """Write what the marks stand for."""
    draws: dict[str, Callable[[float, float], None]] = {
        "run, with the interval of its median" if bars else "run": lambda x, y: picture.mark(
            x + 10, y - 4, 0, hue, size=3.2
        )
    }
    if len(trend.runs) > 1:
        draws["level"] = lambda x, y: picture.line([(x, y - 4), (x + 22, y - 4)], "ink", width=2)
    if trend.changes:
        draws["change"] = lambda x, y: picture.mark(x + 10, y - 4, 2, "ink", size=4.5)
    if trend.breaks:
        draws["the machine changed"] = lambda x, y: _draw_break(picture, x + 10, y - 11, y + 3)
    picture.entries([KeyEntry(words, "muted", 27.0, draw) for words, draw in draws.items()])


def _draw_break(picture: Chart, x: float, top: float, bottom: float, tip: str = "") -> None:
    picture.line([(x, top), (x, bottom)], "muted", width=1.5, dash="4 3", tip=tip)


def _draw_levels(picture: Chart, trend: TrendReport, xs: Sequence[float], scale: Scale, frame: Frame) -> None:
    """Draw the level of each stretch between changes and breaks: the median of its runs; and a change's interval."""
    begins = {change.first: change for change in trend.changes}
    bounds = sorted({0, *begins, *(one.first for one in trend.breaks), len(trend.runs)})
    before = 0.0
    for first, last in pairwise(bounds):
        logs = [math.log(run.value) for run in trend.runs[first:last]]
        level = math.exp(float(np.median(logs)))
        x0, x1 = xs[first] - 3, xs[last - 1] + 3
        x0, x1 = max(x0, frame.left), min(x1, frame.right)
        change = begins.get(first)
        if change is not None and before:
            low, high = scale(before * change.low), scale(before * change.high)
            picture.area([(x0, low), (x1, low), (x1, high), (x0, high)], "muted", opacity=0.22)
        if last - first > 1 or change is not None:
            y = scale(level)
            picture.line(
                [(x0, y), (x1, y)],
                "ink",
                width=2,
                tip=f"{format_value(level, trend.unit)}, {plural(last - first, 'run')}",
            )
        before = level


def _draw_run(picture: Chart, x: float, run: TrendRun, scale: Scale, hue: str, unit: str) -> None:
    tip = f"run {run.run}, {run.created}, {run.version}: {format_value(run.value, unit)}"
    if run.low is not None and run.high is not None:
        picture.line([(x, scale(run.low)), (x, scale(run.high))], hue, width=1)
        tip += f" [{format_value(run.low, unit)}, {format_value(run.high, unit)}]"
    picture.mark(x, scale(run.value), 0, hue, size=2.8, tip=f"{tip}, {plural(run.trials, 'trial')}")


def _draw_breaks(picture: Chart, trend: TrendReport, xs: Sequence[float], frame: Frame) -> None:
    for one in reversed(trend.breaks):
        x = (xs[one.first - 1] + xs[one.first]) / 2
        tip = f"the machine changed: {one.text}"
        _draw_break(picture, x, frame.top - 6, frame.bottom, tip)
        right = x > (frame.left + frame.right) / 2
        room = (x - frame.left if right else frame.right - x) - 8
        picture.text(
            x + (-5 if right else 5),
            frame.top + 2,
            one.text,
            anchor="end" if right else "start",
            ink="muted",
            size=11,
            room=max(room, 30),
            unless_covered=True,
        )


def _draw_change(picture: Chart, trend: TrendReport, change: TrendChange, xs: Sequence[float], scale: Scale) -> None:
    run = trend.runs[change.first]
    x, y = xs[change.first], scale(run.value)
    hollow = change.kind == "unconfirmed" or change.acknowledged
    picture.mark(x, y, 2, "ink", size=5, hollow=hollow, tip=_words(change))
    # At its left there is nothing: the runs before are at another height.
    text = format_change(change.ratio)
    picture.text(x - 9, y + 4, text, anchor="end", bold=True, unless_covered=True)


def _words(change: TrendChange) -> str:
    size = f"{format_change(change.ratio)} {format_change_interval(change.low, change.high, change.ratio)}"
    return f"{change.word} {size} {change.words}"


def _caption(trend: TrendReport, scale: Scale, *, bars: bool) -> str:
    trials = sorted({run.trials for run in trend.runs})
    counted = f", {' to '.join(dict.fromkeys(map(str, (trials[0], trials[-1]))))} trials each" if trials[-1] else ""
    words = (
        f"{', the median of its trials' if counted else ''}{' with its 95 % interval within the run' if bars else ''}"
    )
    parts = [
        f"Each dot: a run{words}.",
        f"n = {len(trend.runs)} {'run' if len(trend.runs) == 1 else 'runs'} on {trend.hosts}{counted}.",
        f"{trend.direction.capitalize()} is better.",
        scale.words(f"{trend.measure}"),
    ]
    if trend.changes:
        named = "; ".join(_words(change) for change in trend.changes[-MOST_NAMED:])
        parts.append(
            "Diamond: the first run of a new level (hollow: unconfirmed or acknowledged); band: the interval of "
            f"its level, 95 % (unconfirmed: 99.9 %). {named[:1].upper()}{named[1:]}."
        )
    else:
        parts.append(f"No change above {100 * trend.margin:.3g} %.")
    if trend.breaks:
        named = "; ".join(f"{one.created[:10]}: {one.text}" for one in trend.breaks[-MOST_NAMED:])
        parts.append(f"Dashed: the machine changed, and nothing is compared across. {named}.")
    more = max(len(trend.changes), len(trend.breaks)) > MOST_NAMED
    parts.append("Of many changes and breaks the newest are named." if more else "")
    return " ".join(filter(None, parts))
