"""Values of treatments by what the scenario varies: marks with their spread on an axis of numbers, or in rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench_features.charts.factors import FactorPanel, factor_panels, find_factor
from bench_features.charts.labels import Mark, draw_key, draw_marks, draw_row_words
from bench_features.charts.layout import (
    MOST_PANELS,
    ChartSource,
    axis_title,
    draw_axes,
    draw_x_axis,
    frame_panel,
    left_out,
)
from bench_features.charts.picture import Picture, text_width
from bench_features.charts.scales import Scale, log_if_wide
from bench_master.formatting import format_value

MOST_ROWS: Final = 40
_WIDE: Final = 4.0
"""Values that are further apart are on a logarithmic axis, and panels on axes of their own."""
_BESIDE: Final = 13.0
"""Pixels between marks of two engines at one value of the factor."""


@dataclass(frozen=True, slots=True)
class Spot:
    """What one treatment measured."""

    center: float
    low: float
    high: float
    values: Sequence[float]
    """Of each trial; empty where only the range is known."""
    n: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of some treatments."""

    name: str
    unit: str
    direction: str | None
    spots: Mapping[int, Spot]

    @property
    def title(self) -> str:
        """Its name, its unit, and which direction is better."""
        better = f", {self.direction} is better" if self.direction else ""
        return f"{axis_title(self.name, self.unit)}{better}"


def draw_measures(picture: Picture, source: ChartSource, measures: Sequence[Measure]) -> list[str]:
    """Draw the panels of all measures; return what the caption says of their axes. The title says by what."""
    every = [
        (measure, panel)
        for measure in measures
        for factor in [find_factor(source, measure.spots)]
        for panel in factor_panels(source, measure.spots, factor)
    ]
    factors = dict.fromkeys(find_factor(source, measure.spots) for measure in measures)
    by = " and ".join(filter(None, factors))
    picture.title = f" by {by}" if by else ""
    draw_key(picture, [source.styles[place] for measure in measures for place in measure.spots])
    shown = every[:MOST_PANELS]
    said: list[str] = []
    for measure in measures:
        panels = [panel for each, panel in shown if each is measure]
        shared = _scale_of([_values(measure, panel) for panel in panels])
        if len(panels) > 1:
            # Said once, so that the titles of the panels are short: they must be read on a telephone, too.
            top = picture.extend(24)
            picture.text(8, top + 18, measure.title, size=13, bold=True, room=picture.width - 16)
        for panel in panels:
            values = shared or _values(measure, panel)
            title = panel.title if len(panels) > 1 else measure.title
            if panel.levels:
                said.append(_draw_levels(picture, source, measure, panel, values, title))
            else:
                said.append(_draw_rows(picture, source, measure, panel, values, title))
        if len(panels) > 1 and not shared:
            said.append(f"{measure.name}: the axes of the panels differ.")
        elif len(panels) > 1:
            said.append("Panels of one metric have the same axis.")
        if measure.direction:
            said.append(f"{measure.name}: {measure.direction} is better.")
        if any(panel.levels for panel in panels):
            said.append("Lines join the values of one engine.")
    return [*dict.fromkeys(filter(None, said)), *filter(None, [left_out(len(shown), len(every), "panels").strip()])]


def _values(measure: Measure, panel: FactorPanel) -> list[float]:
    places = [*panel.levels, *(row.treatment for row in panel.rows)]
    return [value for place in places for spot in [measure.spots[place]] for value in (spot.low, spot.high)]


def _scale_of(panels: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the values of all panels if one axis can show them all, else None."""
    highs = [max(values) for values in panels if values]
    if len(highs) > 1 and min(highs) * _WIDE < max(highs):
        return None
    return [value for values in panels for value in values]


def _draw_levels(
    picture: Picture, source: ChartSource, measure: Measure, panel: FactorPanel, values: list[float], title: str
) -> str:
    """Draw a panel with an axis of numbers."""
    frame = frame_panel(picture, 170.0, left=64.0 if picture.is_narrow else 78.0, right=18.0, title=title)
    scale = log_if_wide(values, frame.bottom, frame.top, measure.unit, beyond=10.0)
    levels = sorted(set(panel.levels.values()))
    wide = levels[-1] / levels[0] > _WIDE
    room = (levels[-1] / levels[0]) ** 0.06 if wide else (levels[-1] - levels[0]) * 0.06
    ends = (levels[0] / room, levels[-1] * room) if wide else (levels[0] - room, levels[-1] + room)
    across = Scale(*ends, frame.left, frame.right, log=wide, levels=levels)
    factor = find_factor(source, measure.spots)
    draw_axes(picture, frame, across, scale, f"{factor}{' (log)' if wide else ''}")
    styles = list(dict.fromkeys(source.styles[place] for place in panel.levels))
    gaps = [across(right) - across(left) for left, right in pairwise(levels)]
    beside = min(_BESIDE, min(gaps) / (len(styles) + 0.5))
    for order, style in enumerate(styles):
        # Marks of different engines at one level stand beside each other.
        aside = (order - (len(styles) - 1) / 2) * beside
        marks = []
        for level, place in sorted((level, place) for place, level in panel.levels.items()):
            if source.styles[place] == style:
                x, spot = across(level) + aside, measure.spots[place]
                own = [(x + beside / 2, scale(value)) for value in spot.values if len(spot.values) > 1]
                tip = f"{style.label}, {factor} {level:g}: {_words(source, measure, spot, place)}"
                marks.append(Mark(x, scale(spot.center), (scale(spot.low), scale(spot.high)), tip, specks=own))
        picture.line([(mark.x, mark.y) for mark in marks], style.hue, width=1.4, dash=style.dash)
        draw_marks(picture, style, marks)
    return scale.words(measure.name)


def _words(source: ChartSource, measure: Measure, spot: Spot, place: int) -> str:
    jobs = source.document.treatments[place].jobs
    low, center, high = (format_value(value, measure.unit) for value in (spot.low, spot.center, spot.high))
    return f"{center} ({low} to {high}), n = {spot.n}, {jobs.failed} failed"


def _draw_rows(
    picture: Picture, source: ChartSource, measure: Measure, panel: FactorPanel, values: list[float], title: str
) -> str:
    """Draw a panel with a row for each treatment."""
    rows, narrow = panel.rows[:MOST_ROWS], picture.is_narrow
    step, left, right = 40.0, 14.0, 14.0
    if not narrow:
        longest = max(text_width(row.label) for row in rows) + 20.0
        step = 26.0 if longest <= picture.width * 0.45 else 38.0
        left, right = min(max(longest, picture.width * 0.2), picture.width * 0.45), picture.width * 0.24
    frame = frame_panel(picture, step * len(rows), left=left, right=right, title=title)
    scale = log_if_wide(values, frame.left, frame.right, measure.unit, beyond=10.0)
    picture.extend(24)
    draw_x_axis(picture, frame, scale, "", grid=True)
    # Where the panel's title has the unit, the numbers need none.
    unit = measure.unit if axis_title("", measure.unit) == "" else ""
    for order, row in enumerate(rows):
        style, spot = source.styles[row.treatment], measure.spots[row.treatment]
        y = frame.top + (order + (0.72 if narrow else 0.5)) * step
        text = format_value(spot.center, unit)
        if spot.low < spot.high:
            text += f" [{format_value(spot.low, unit)}, {format_value(spot.high, unit)}]"
        draw_row_words(picture, frame, y, row.label, text, size=11.0)
        picture.line([(scale(spot.low), y), (scale(spot.high), y)], style.hue, width=2.0)
        if len(spot.values) > 1:
            picture.specks([(scale(value), y + 7) for value in spot.values], style.hue, size=3.2, opacity=0.7)
        tip = f"{row.label}: {_words(source, measure, spot, row.treatment)}"
        picture.mark(scale(spot.center), y, style.shape, style.hue, tip=tip)
    return scale.words(measure.name) + left_out(len(rows), len(panel.rows), "rows")
