"""Jobs per second by a number that the scenario varies (F7), and the interval of a measure over trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench_features.charts.layout import (
    GREY,
    MOST_PANELS,
    Chart,
    ChartSource,
    Mark,
    NoChartError,
    Panel,
    Style,
    caption_end,
    count_text,
)
from bench_features.charts.scales import Scale, logarithmic
from bench_master.reports.table import grouped
from bench_master.verdicts.spread import ALPHA, Spread, spread_of

COUNT_LABELS: Final = ("concurrency", "threads", "clients")
"""Labels whose number is that of jobs or threads at once."""
_LEFT: Final = 78.0
_RATES, _TIMES = 160.0, 110.0
"""Heights of the two panels."""


def _spread_words(spreads: Sequence[Spread]) -> str:
    parts = []
    if any(each.is_interval for each in spreads):
        parts.append(f"Solid bar: {100 * (1 - ALPHA):.0f} % interval over the trials (signed ranks).")
    if any(not each.is_interval and each.low < each.high for each in spreads):
        parts.append("Dashed bar: range of the trials, too few for an interval.")
    return " ".join(parts)


def _counted(source: ChartSource) -> tuple[str, dict[int, float]]:
    for name in COUNT_LABELS:
        found = {
            place: float(value)
            for place, each in enumerate(source.document.treatments)
            for value in [each.treatment.get(name)]
            if isinstance(value, int | float) and value > 0 and each.jobs_per_s and each.jobs.done
        }
        if len(set(found.values())) > 1:
            return name, found
    return "", {}


def draw_scaling(source: ChartSource, picture: Chart) -> None:
    """Draw jobs per second and the 95th percentile of job times by the number at once."""
    name, counts = _counted(source)
    every = [panel for panel in source.panels(counts, (name,)) if len({*map(counts.get, panel.treatments)}) > 1]
    if not every:
        raise NoChartError(f"the scenario varies none of {', '.join(COUNT_LABELS)}")
    panels = every[:MOST_PANELS]
    picture.title = f"Jobs per second by {name}"
    room = picture.room_for_labels(panels, _TIMES, lines=True)
    treatments = source.document.treatments
    said: list[str] = []
    spreads: list[Spread] = []
    for panel in panels:
        title = f"{panel.title}: " if panel.title else ""
        found = {place: spread_of(_rates(source, place), log=True) for place in panel.treatments}
        rates = {place: one for place, one in found.items() if one is not None}
        tips = {
            place: f"{panel.styles[place].label}, {name} {counts[place]:g}: {one.middle:.3g} jobs/s ({one.low:.3g} "
            f"to {one.high:.3g}), {treatments[place].jobs.done} done, {treatments[place].jobs.failed} failed"
            for place, one in rates.items()
        }
        spreads += rates.values()
        jobs = {place: treatments[place].operations.get("job") for place in panel.treatments}
        tails = {place: job.percentiles_s.get("p95") for place, job in jobs.items() if job is not None}
        times = {place: Spread(value, value, value, True) for place, value in tails.items() if value}
        for what, unit, height, values, own_tips, heading in (
            ("Rate", "", _RATES, rates, tips, f"{title}jobs per second"),
            ("Time", "s", _TIMES, times, {}, f"{title}p95 of job times"),
        ):
            if values:
                frame = picture.panel(height, left=_LEFT, right=room or 18.0, title=heading)
                ends = [end for each in values.values() for end in (each.low, each.middle, each.high)]
                scale = logarithmic(ends, frame.bottom, frame.top, unit, room=1.4)
                levels = sorted({counts[place] for place in panel.treatments})
                across = Scale(levels[0] / 1.15, levels[-1] * 1.15, frame.left, frame.right, log=True, levels=levels)
                picture.axes(frame, across, scale, f"{name} (log)")
                labels = _draw_lines(picture, panel, counts, values, across, scale, own_tips)
                if room:
                    picture.end_labels(frame, labels)
                said.append(scale.words(what))
    done = [treatments[place].jobs.done for panel in panels for place in panel.treatments]
    picture.caption = (
        f"Mark: jobs done per second, the middle of the trials. {_spread_words(spreads)} "
        "Thin dotted line: in proportion to the fewest at once. "
        f"{count_text(done)} jobs a mark, {source.document.totals.failed} failed. Higher rates are better, "
        f"lower times are. Nothing is smoothed. {' '.join(dict.fromkeys(said))}" + caption_end(panels, every)
    )


def _rates(source: ChartSource, place: int) -> list[float]:
    rates = [mark.jobs_per_s for mark in source.measured(place) if mark.jobs_per_s]
    pooled = source.document.treatments[place].jobs_per_s
    return rates or ([pooled] if pooled else [])


def _draw_lines(
    picture: Chart,
    panel: Panel,
    counts: Mapping[int, float],
    values: Mapping[int, Spread],
    across: Scale,
    scale: Scale,
    tips: Mapping[int, str],
) -> list[tuple[float, Style]]:
    """Draw a line for each style, of rates (with `tips`) also that in proportion; return the names of their ends."""
    drawn = [place for place in panel.grey_first if place in values]
    lines = grouped(drawn, lambda place: panel.styles[place].label)
    ends = []
    for line in lines.values():
        line.sort(key=lambda place: (counts[place], place))
        style, first, last = panel.styles[line[0]], line[0], line[-1]
        if tips:
            fewest, begin = counts[first], values[first].middle
            most = min(counts[last], fewest * scale.high / begin)
            ideal = [(across(count), scale(begin * count / fewest)) for count in (fewest, most)]
            picture.line(ideal, style.hue, width=0.7, dash="1 3")
        marks = [
            Mark(
                across(counts[place]),
                scale(values[place].middle),
                (scale(values[place].low), scale(values[place].high)) if tips else None,
                tips.get(place, ""),
                "" if values[place].is_interval else "3 2",
            )
            for place in line
        ]
        picture.line([(mark.x, mark.y) for mark in marks], style.hue, width=1.6, dash=style.dash, tip=style.label)
        picture.marks(style, marks)
        if style.hue != GREY:
            ends.append((scale(values[last].middle), style))
    return ends
