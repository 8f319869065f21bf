"""Charts of metrics: what workloads measured, and what engines used, by what the scenario varies.

Values are marks with their spread on an axis of numbers, or in rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final, NamedTuple

from bench_common.cli import check_choice
from bench_common.safe_text import one_line
from bench_features.charts.layout import (
    MOST_PANELS,
    Chart,
    ChartSource,
    Mark,
    NoChartError,
    axis_title,
    count_text,
    left_out,
)
from bench_features.charts.picture import text_width
from bench_features.charts.scales import Scale, log_if_wide
from bench_features.charts.scaling import COUNT_LABELS
from bench_master.formatting import format_value, plural
from bench_master.reports.table import varying_labels
from bench_master.run_data.treatment_types import SampleReport

MOST_ROWS: Final = 40
_WIDE: Final = 4.0
"""Values that are further apart are on a logarithmic axis, and panels on axes of their own."""
_BESIDE: Final = 13.0
"""Pixels between marks of two engines at one value of the factor."""


class Spot(NamedTuple):
    """What one treatment measured."""

    center: float
    low: float
    high: float
    values: Sequence[float]
    """Of each trial; empty where only the range is known."""
    n: int


class Measure(NamedTuple):
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


def draw_metrics(source: ChartSource, picture: Chart) -> None:
    """Draw the metrics of workloads, each trial of it, by the factor that the scenario varies."""
    measures = _measures(source)
    if not measures:
        raise NoChartError("no workload reported a metric")
    said = _draw_measures(picture, source, measures)
    names = [each.name for each in measures]
    picture.title = f"{', '.join(names[:2])}{' and others' if len(names) > 2 else ''}{picture.title}"  # noqa: PLR2004
    trials = count_text(spot.n for each in measures for spot in each.spots.values())
    failed = plural(source.document.totals.failed, "job")
    picture.caption = (
        f"Mark: the median of the trials; bar: their range; small: each trial. {' '.join(said)} {trials} trials a "
        f"mark; {failed} failed, which no mark contains."
    )


def _measures(source: ChartSource) -> list[Measure]:
    """Return the metric that was asked for, or else the primary ones, or else all."""
    found: dict[str, dict[int, Spot]] = {}
    primary: set[str] = set(source.metrics.values())
    warmup = {mark.trial for mark in source.trials if mark.warmup}
    reports = source.document.treatments
    for place, report in enumerate(reports):
        for name, metric in report.metrics.items():
            own = source.values.get((place, name), {})
            values = [value for trial, value in own.items() if trial not in warmup]
            if values:
                spot = Spot(median(values), min(values), max(values), values, len(values))
                found.setdefault(name, {})[place] = spot
                primary |= {name} if metric.primary else set()
    if source.choice.metric is not None:
        check_choice(source.choice.metric, found, what="metric")
        found = {source.choice.metric: found[source.choice.metric]}
    elif not primary.isdisjoint(found):
        found = {name: spots for name, spots in found.items() if name in primary}
    return [
        Measure(name, metric.unit, metric.direction, spots)
        for name, spots in found.items()
        for metric in [reports[next(iter(spots))].metrics[name]]
    ]


def draw_overhead(source: ChartSource, picture: Chart) -> None:
    """Draw the memory and CPU that the engines' own processes used."""
    reports = source.document.treatments
    measures = []
    for name, unit, field in (("Memory", "B", "memory"), ("CPU", "%", "cpu_percent")):
        readings = {place: getattr(each.overhead, field, None) for place, each in enumerate(reports)}
        if spots := {place: _range(each) for place, each in readings.items() if each is not None}:
            measures.append(Measure(name, unit, "lower", spots))
    if not measures:
        raise NoChartError("the engines' own processes were not sampled (--overhead)")
    said = _draw_measures(picture, source, measures)
    picture.title = f"What the engines' own processes used{picture.title}"
    picture.caption = (
        "Mark: the mean over the measured trials; bar: from the smallest to the largest reading. 100 % is one CPU. "
        f"{' '.join(said)} {count_text(spot.n for each in measures for spot in each.spots.values())} readings a mark."
    )


def _range(reading: SampleReport) -> Spot:
    low, high = (reading.mean if end is None else end for end in (reading.min, reading.max))
    return Spot(reading.mean, low, high, (), reading.n)


def _draw_measures(picture: Chart, source: ChartSource, measures: Sequence[Measure]) -> list[str]:
    """Draw the panels of all measures; return what the caption says of their axes. The title says by what."""
    factors = {measure.name: find_factor(source, measure.spots) for measure in measures}
    every = [(each, panel) for each in measures for panel in factor_panels(source, each.spots, factors[each.name])]
    by = " and ".join(filter(None, dict.fromkeys(factors.values())))
    picture.title = f" by {by}" if by else ""
    picture.key([source.styles[place] for measure in measures for place in measure.spots])
    shown = every[:MOST_PANELS]
    said: list[str] = []
    for measure in measures:
        panels = [panel for each, panel in shown if each is measure]
        shared = _scale_of([_values(measure, panel) for panel in panels])
        if len(panels) > 1:
            # Said once, so that the titles of the panels are short: they must be read on a telephone, too.
            picture.text(8, picture.extend(24) + 18, measure.title, size=13, bold=True, room=picture.width - 16)
        for panel in panels:
            values = shared or _values(measure, panel)
            title = panel.title if len(panels) > 1 else measure.title
            draw = _draw_levels if panel.levels else _draw_rows
            said.append(draw(picture, source, measure, panel, values, title))
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
    spots = (measure.spots[place] for place in (*panel.levels, *panel.rows))
    return [value for spot in spots for value in (spot.low, spot.high)]


def _scale_of(panels: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the values of all panels if one axis can show them all, else None."""
    highs = [max(values) for values in panels if values]
    if len(highs) > 1 and min(highs) * _WIDE < max(highs):
        return None
    return [value for values in panels for value in values]


def _draw_levels(
    picture: Chart, source: ChartSource, measure: Measure, panel: FactorPanel, values: list[float], title: str
) -> str:
    frame = picture.panel(170.0, left=64.0 if picture.is_narrow else 78.0, right=18.0, title=title)
    scale = log_if_wide(values, frame.bottom, frame.top, measure.unit, beyond=10.0)
    levels = sorted(set(panel.levels.values()))
    wide = levels[-1] / levels[0] > _WIDE
    room = (levels[-1] / levels[0]) ** 0.06 if wide else (levels[-1] - levels[0]) * 0.06
    ends = (levels[0] / room, levels[-1] * room) if wide else (levels[0] - room, levels[-1] + room)
    across = Scale(*ends, frame.left, frame.right, log=wide, levels=levels)
    picture.axes(frame, across, scale, f"{panel.factor}{' (log)' if wide else ''}")
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
                tip = f"{style.label}, {panel.factor} {level:g}: {_words(source, measure, spot, place)}"
                marks.append(Mark(x, scale(spot.center), (scale(spot.low), scale(spot.high)), tip, specks=own))
        picture.line([(mark.x, mark.y) for mark in marks], style.hue, width=1.4, dash=style.dash)
        picture.marks(style, marks)
    return scale.words(measure.name)


def _words(source: ChartSource, measure: Measure, spot: Spot, place: int) -> str:
    jobs = source.document.treatments[place].jobs
    low, center, high = (format_value(value, measure.unit) for value in (spot.low, spot.center, spot.high))
    return f"{center} ({low} to {high}), n = {spot.n}, {jobs.failed} failed"


def _draw_rows(
    picture: Chart, source: ChartSource, measure: Measure, panel: FactorPanel, values: list[float], title: str
) -> str:
    rows, narrow = list(panel.rows.items())[:MOST_ROWS], picture.is_narrow
    step, left, right = 40.0, 14.0, 14.0
    if not narrow:
        longest = max(text_width(label) for _, label in rows) + 20.0
        step = 26.0 if longest <= picture.width * 0.45 else 38.0
        left, right = min(max(longest, picture.width * 0.2), picture.width * 0.45), picture.width * 0.24
    frame = picture.panel(step * len(rows), left=left, right=right, title=title)
    scale = log_if_wide(values, frame.left, frame.right, measure.unit, beyond=10.0)
    picture.x_axis(frame, scale, "", room=24.0)
    # Where the panel's title has the unit, the numbers need none.
    unit = measure.unit if axis_title("", measure.unit) == "" else ""
    for order, (place, label) in enumerate(rows):
        style, spot = source.styles[place], measure.spots[place]
        y = frame.top + (order + (0.72 if narrow else 0.5)) * step
        text = format_value(spot.center, unit)
        if spot.low < spot.high:
            text += f" [{format_value(spot.low, unit)}, {format_value(spot.high, unit)}]"
        picture.row_words(frame, y, label, text, size=11.0)
        picture.line([(scale(spot.low), y), (scale(spot.high), y)], style.hue, width=2.0)
        if len(spot.values) > 1:
            picture.specks([(scale(value), y + 7) for value in spot.values], style.hue, size=3.2, opacity=0.7)
        tip = f"{label}: {_words(source, measure, spot, place)}"
        picture.mark(scale(spot.center), y, style.shape, style.hue, tip=tip)
    return scale.words(measure.name) + left_out(len(rows), len(panel.rows), "rows")


# -- what the scenario varies ----------------------------------------------------------------------------------------

# A factor whose values are numbers (threads, a limit) is an axis, and its values are joined by a line. Other factors
# have no order, so that treatments stand in rows, each below the baseline that it is compared with.

NAMES: Final = ("engine", "environment")
"""Labels that are colour and shape, and part no panels where there is an axis of numbers."""
_TWO: Final = 2


class FactorPanel(NamedTuple):
    """Treatments of one panel: `levels` of an axis of numbers, or else `rows` with their labels."""

    title: str
    rows: Mapping[int, str] = {}
    levels: Mapping[int, float] = {}
    factor: str = ""


def find_factor(source: ChartSource, keep: Collection[int]) -> str:
    """Return the label to take as the axis: what was asked for, else the first of numbers that varies; may be empty.

    Raises `UsageError` if no treatment has the label that was asked for.
    """
    labels = {place: source.document.treatments[place].treatment for place in sorted(keep)}
    names = list(dict.fromkeys(name for each in labels.values() for name in each))
    if source.choice.by is not None:
        check_choice(source.choice.by, names, what="label")
        return source.choice.by
    for name in dict.fromkeys([*(each for each in COUNT_LABELS if each in names), *names]):
        if len(set(_numbers(labels, name).values())) >= _TWO and name not in NAMES:
            return name
    return ""


def _numbers(labels: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, float]:
    """Return a label's values if they all are numbers above 0, else nothing; treatments without it are left out."""
    values = {place: each[name] for place, each in labels.items() if name in each}
    if all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values.values()):
        return {place: float(value) for place, value in values.items()}
    return {}


def factor_panels(source: ChartSource, keep: Collection[int], factor: str) -> list[FactorPanel]:
    """Return the treatments in panels, in the order of the plan."""
    labels = {place: source.document.treatments[place].treatment for place in sorted(keep)}
    if not factor:
        return [FactorPanel(_shared(labels, own), _rows(labels, own)) for own in _by_baseline(source, keep)]
    numbers = _numbers(labels, factor) if factor not in NAMES else {}
    values = list(dict.fromkeys(str(each.get(factor)) for each in labels.values()))
    found = []
    for panel in source.panels(keep, (factor,)):
        places = panel.treatments
        if numbers:
            levels = {place: numbers[place] for place in places if place in numbers}
            if len(set(levels.values())) >= _TWO:
                found.append(FactorPanel(panel.title, levels=levels, factor=factor))
                places = [place for place in places if place not in numbers]
            rows = _rows(labels, places)
        else:
            ordered = sorted(places, key=lambda place: values.index(str(labels[place].get(factor))))
            rows = _rows(labels, ordered, factor)
        if rows:
            found.append(FactorPanel(panel.title, rows))
    return found


def _by_baseline(source: ChartSource, keep: Collection[int]) -> list[list[int]]:
    """Return each baseline with the treatments that are compared with it, if that parts all of them, else all."""
    verdicts = source.document.verdicts
    titles = {source.document.treatments[place].title: place for place in keep}
    groups: dict[str, list[str]] = {}
    for each in verdicts.comparisons if verdicts is not None else ():
        groups.setdefault(each.a, [each.a]).append(each.b)
    found = [[titles[title] for title in dict.fromkeys(group) if title in titles] for group in groups.values()]
    members = [place for group in found for place in group]
    if len(members) == len(set(members)) == len(keep):
        return [group for group in found if group]
    jobs = {place: str(source.document.treatments[place].treatment.get("job", "")) for place in sorted(keep)}
    return [[place for place, job in jobs.items() if job == own] for own in dict.fromkeys(jobs.values())]


def _rows(labels: Mapping[int, Mapping[str, Any]], places: Collection[int], first: str = "engine") -> dict[int, str]:
    """Return rows that are called by the labels in which they differ, `first` first, and by their engine."""
    names = dict.fromkeys([first, "engine", *varying_labels([labels[place] for place in places])])
    return {
        place: one_line(", ".join(_word(name, labels[place][name]) for name in names if name in labels[place]))
        for place in places
    }


def _shared(labels: Mapping[int, Mapping[str, Any]], places: Collection[int]) -> str:
    """Return what the treatments of a panel have in common and other panels may not."""
    varying = varying_labels([labels[place] for place in places])
    parting = [name for name in varying_labels([*labels.values()]) if name not in (*varying, *NAMES)]
    first = labels[next(iter(places))]
    return one_line(", ".join(_word(name, first[name]) for name in parting if name in first))


def _word(name: str, value: Any) -> str:
    return str(value) if name in (*NAMES, "job") else f"{name} {value}"
