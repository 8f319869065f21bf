"""The phases of a life cycle (F5): where the time of a job goes."""

from __future__ import annotations

from typing import Final, TypeAlias

from bench_features.charts.distributions import JOB_NAMES
from bench_features.charts.layout import MOST_PANELS, Chart, ChartSource, NoChartError, Panel, count_text, left_out
from bench_features.charts.picture import text_width
from bench_features.charts.scales import Scale, linear, logarithmic
from bench_master.formatting import format_value
from bench_master.run_data.treatment_types import TreatmentReport

CRUSHED: Final = 20.0
"""Where the longest life cycle is so many times the shortest, bars of the shortest cannot be seen."""


_Phases: TypeAlias = list[tuple[str, float, int]]


def _phases(treatment: TreatmentReport) -> _Phases:
    """Return the operations of a life cycle with their mean in seconds and their number, in order."""
    if treatment.objects is not None:
        return []  # alternatives to each other, and no phases
    return [
        (name, operation.mean_s, operation.n)
        for name, operation in treatment.operations.items()
        if name not in JOB_NAMES and operation.mean_s is not None and operation.n
    ]


def draw_phases(source: ChartSource, picture: Chart) -> None:
    """Draw the mean time of each phase of a life cycle: stacked, or as dots where bars could not be seen."""
    phases = {place: _phases(each) for place, each in enumerate(source.document.treatments)}
    keep = {place for place, found in phases.items() if len(found) > 1}
    if not keep:
        raise NoChartError("no job has two operations that follow each other")
    every = source.panels(keep)
    panels = every[:MOST_PANELS]
    picture.title = "Where the time of a job goes"
    said: dict[str, list[str]] = {}
    dots = [panel for panel in panels if _is_crushed(panel, phases)]
    if dots:
        picture.key([source.styles[place] for panel in dots for place in panel.treatments])
    for panel in panels:
        scale = (_draw_dots if panel in dots else _draw_bars)(picture, source, panel, phases)
        said.setdefault(scale.words("time").partition(": ")[2], []).append(panel.title)
    counts = [n for place in keep for _, _, n in phases[place]]
    places = [place for panel in panels for place in panel.treatments]
    order = ", ".join(dict.fromkeys(name for place in places for name, _, _ in phases[place]))
    picture.caption = (
        "Means, because they add up (medians do not); the table of operations has the medians. Order is that of "
        "execution; what the harness did in between is left out."
        + (f" Dots where the longest sum is more than {CRUSHED:g} times the shortest." if dots else "")
        + f" Phases of a job: {order}. {count_text(counts)} a phase, {source.document.totals.failed} "
        "jobs failed. Lower is better. "
        # What is the same in all panels is said once.
        + " ".join(
            f"{', '.join(filter(None, titles)) if len(said) > 1 else 'Time'}: {words}"
            for words, titles in said.items()
        )
        + left_out(len(panels), len(every), "panels")
    )
    picture.description = "; ".join(
        f"{source.document.treatments[place].title}: "
        + ", ".join(f"{name} {format_value(mean, 's')}" for name, mean, _ in phases[place])
        for place in places
    )


def _is_crushed(panel: Panel, phases: dict[int, _Phases]) -> bool:
    sums = [sum(mean for _, mean, _ in phases[place]) for place in panel.treatments]
    return min(sums) <= 0 or max(sums) / min(sums) > CRUSHED


def _draw_bars(picture: Chart, source: ChartSource, panel: Panel, phases: dict[int, _Phases]) -> Scale:
    left, row = 84.0 if picture.is_narrow else 120.0, 44.0
    frame = picture.panel(row * len(panel.treatments), left=left, right=70.0, title=panel.title or "time")
    scale = linear(
        [sum(mean for _, mean, _ in phases[place]) for place in panel.treatments], frame.left, frame.right, "s"
    )
    picture.x_axis(frame, scale, "mean, from the begin of the first")
    for place, treatment in enumerate(panel.treatments):
        style, y, begun = source.styles[treatment], frame.top + place * row + 4, 0.0
        picture.text(frame.left - 8, y + 16, style.label, anchor="end", ink=style.hue, room=left - 12)
        for number, (name, mean, _) in enumerate(phases[treatment]):
            x0, x1 = scale(begun), scale(begun + mean)
            tip = f"{style.label} {name}: {format_value(mean, 's')}"
            picture.rect(x0, y, x1 - x0, 20, style.hue, opacity=(0.9, 0.55, 0.3)[number % 3], tip=tip)
            for label in (f"{name} {format_value(mean, 's')}", name):
                if text_width(label, 10.5) <= x1 - x0 - 4:
                    picture.text(
                        (x0 + x1) / 2, y + 33, label, anchor="middle", ink="muted", size=10.5, unless_covered=True
                    )
                    break
            begun += mean
        total = format_value(begun, "s")
        if scale(begun) + text_width(total, 11) + 8 <= picture.width:
            picture.text(scale(begun) + 6, y + 15, total, ink="muted", size=11)
    return scale


def _draw_dots(picture: Chart, source: ChartSource, panel: Panel, phases: dict[int, _Phases]) -> Scale:
    names = list(dict.fromkeys(name for place in panel.treatments for name, _, _ in phases[place]))
    left = 84.0 if picture.is_narrow else 120.0
    frame = picture.panel(24.0 * len(names), left=left, right=18.0, title=panel.title or "time")
    means = [mean for place in panel.treatments for _, mean, _ in phases[place]]
    scale = logarithmic(means, frame.left, frame.right, "s", room=1.3)
    picture.x_axis(frame, scale, "mean (log)")
    for number, name in enumerate(names):
        y = frame.top + 24.0 * (number + 0.5)
        picture.line([(frame.left, y), (frame.right, y)], "grid")
        picture.text(frame.left - 8, y + 4, name, anchor="end", room=left - 12)
        for place in panel.treatments:
            for own, mean, _ in phases[place]:
                if own == name:
                    style = source.styles[place]
                    tip = f"{style.label} {name}: {format_value(mean, 's')}"
                    picture.mark(scale(mean), y, style.shape, style.hue, tip=tip)
    return scale
