"""Figures by a load: containers held (F8), and jobs that arrive at a rate (F9)."""

from __future__ import annotations

from typing import Final

from bench_master.analysis.treatment_types import PackingTrialReport, TreatmentReport
from bench_master.figures.labels import (
    GREY,
    EndLabel,
    draw_end_labels,
    draw_key,
    grey_words,
    panel_styles,
    right_margin,
    room_for_labels,
)
from bench_master.figures.layout import (
    MOST_PANELS,
    FigureSource,
    NoFigureError,
    Panel,
    Style,
    count_text,
    draw_x_axis,
    draw_y_axis,
    frame_panel,
    left_out,
)
from bench_master.figures.palette import Theme
from bench_master.figures.picture import Picture
from bench_master.figures.scales import COUNT, Scale, linear, logarithmic
from bench_master.figures.scaling import Spread, load_lines, percentile, spread_of, spread_words
from bench_master.formatting import format_value, plural

_LEFT: Final = 78.0

_PACKED: Final = (
    ("memory_used_bytes", "B", "memory in use, beyond that before the first"),
    ("cpu_busy_percent", "%", "CPU"),
)
_PACKED_HEIGHT: Final = 170.0


def draw_packing(source: FigureSource, width: int, theme: Theme) -> Picture:
    """Draw memory and CPU of a host by the containers that it held."""
    held = {
        place: [trial for trial in each.packing.trials if not trial.warmup and trial.containers]
        for place, each in enumerate(source.document.treatments)
        if each.packing is not None
    }
    packed = {place: trials for place, trials in held.items() if trials}
    if not packed:
        raise NoFigureError("no job holds containers (hold)")
    # How many are held is the x axis.
    every = source.styles.panels(packed, ("concurrency",))
    panels = every[:MOST_PANELS]
    styles = [panel_styles(source, panel.treatments) for panel in panels]
    slopes = [_slopes(packed, own) for own in styles]
    picture = Picture("packing", width, theme)
    picture.title = "Memory and CPU by containers held"
    names = [
        [f"{label}: {_each(spread)}" for label, spread in found.items()] or [one.label for one in own.values()]
        for own, found in zip(styles, slopes, strict=True)
    ]
    room = room_for_labels(picture, [list(dict.fromkeys(one)) for one in names], _PACKED_HEIGHT)
    if not room:
        draw_key(picture, [style for own in styles for style in own.values()])
    said: list[str] = []
    for panel, own, found in zip(panels, styles, slopes, strict=True):
        for name, unit, title in _PACKED:
            points = {
                place: [
                    (trial, value) for trial in packed[place] for value in [_steady(trial, name)] if value is not None
                ]
                for place in panel.treatments
            }
            if any(points.values()):
                axis = unit, title, panel.title
                said.append(_draw_packing(picture, points, own, found if unit == "B" else {}, axis, room))
    if not said:
        raise NoFigureError("the host was not sampled while it held containers (--sampling-interval)")
    trials = [len(packed[place]) for panel in panels for place in panel.treatments]
    spreads = [spread for found in slopes for spread in found.values()]
    each = "; ".join(
        (f"{panel.title}: " if panel.title and len(panels) > 1 else "")
        + ", ".join(
            f"{label} {format_value(spread.middle, 'B')} [{_ends(spread)}]" for label, spread in found.items()
        )
        for panel, found in zip(panels, slopes, strict=True)
        if found
    )
    picture.caption = (
        "A mark a trial: the mean while all were held; hollow: the scenario, not the host, set the limit. "
        + (
            "Line: from before the first container, its slope what each takes, the middle of the trials; "
            f"band: its ends. {spread_words(spreads).replace('bar', 'edge')} For each: {each}. "
            if spreads
            else ""
        )
        + f"{count_text(trials)} trials a treatment. Less for each is better. {' '.join(dict.fromkeys(said))}"
        + grey_words(styles)
        + left_out(len(panels), len(every), "panels")
    )
    return picture


def _slopes(packed: dict[int, list[PackingTrialReport]], styles: dict[int, Style]) -> dict[str, Spread]:
    """Return what each container takes of the memory in a panel of these styles, by the name of the line."""
    found: dict[str, list[float]] = {}
    for place, style in styles.items():
        for trial in packed[place]:
            value = _steady(trial, "memory_used_bytes")
            if value is not None:
                found.setdefault(style.label, []).append(value / trial.containers)
    return {label: spread for label, each in found.items() for spread in [spread_of(each, log=False)] if spread}


def _each(spread: Spread) -> str:
    return f"{format_value(spread.middle, 'B')} each"


def _ends(spread: Spread) -> str:
    return f"{format_value(spread.low, 'B')} to {format_value(spread.high, 'B')}"


def _draw_packing(
    picture: Picture,
    points: dict[int, list[tuple[PackingTrialReport, float]]],
    styles: dict[int, Style],
    slopes: dict[str, Spread],
    axis: tuple[str, str, str],
    room: float,
) -> str:
    unit, title, panel = axis
    heading = f"{panel}: {title}" if panel else title
    frame = frame_panel(picture, _PACKED_HEIGHT, left=_LEFT, right=right_margin(room, 18.0), title=heading)
    most = max(trial.containers for own in points.values() for trial, _ in own)
    ends = [most * end for each in slopes.values() for end in (each.low, each.high)]
    values = [value for own in points.values() for _, value in own]
    scale = linear([*values, *ends], frame.bottom, frame.top, unit)
    counts = Scale(0.0, most * 1.05, frame.left, frame.right, COUNT)
    draw_y_axis(picture, frame, scale)
    picture.extend(36)
    draw_x_axis(picture, frame, counts, "containers held", grid=False)
    labels: dict[str, EndLabel] = {}
    for place, own in points.items():
        style = styles[place]
        slope = slopes.get(style.label)
        if slope and style.label not in labels:
            _draw_slope(picture, slope, style, counts, scale)
            end = EndLabel(scale(slope.middle * most), f"{style.label}: {_each(slope)}", style.hue)
            labels[style.label] = end
        elif own:
            labels.setdefault(style.label, EndLabel(scale(own[-1][1]), style.label, style.hue))
        for trial, value in own:
            tip = f"{style.label}, trial {trial.trial}: {trial.containers} containers, "
            tip += f"{format_value(value, unit)}; {trial.reason}"
            mark = (counts(trial.containers), scale(value))
            picture.mark(*mark, style.shape, style.hue, hollow=not trial.full, tip=tip)
    if room:
        draw_end_labels(picture, frame, [label for label in labels.values() if label.hue != GREY])
    return scale.words(title.partition(",")[0])


def _draw_slope(picture: Picture, slope: Spread, style: Style, counts: Scale, scale: Scale) -> None:
    most = counts.high / 1.05
    for end in (slope.low, slope.high):
        dash = "" if slope.is_interval else "3 2"
        picture.line([(counts(0), scale(0)), (counts(most), scale(end * most))], style.hue, width=0.5, dash=dash)
    wedge = [(counts(0), scale(0)), (counts(most), scale(slope.low * most)), (counts(most), scale(slope.high * most))]
    picture.area(wedge, style.hue, opacity=0.12, tip=f"{style.label}: {_ends(slope)} for each")
    picture.line([(counts(0), scale(0)), (counts(most), scale(slope.middle * most))], style.hue, width=1.2)


def _steady(trial: PackingTrialReport, name: str) -> float | None:
    found = trial.steady.get(name)
    if found is None:
        return None
    return found.mean - trial.memory_before_bytes if name == "memory_used_bytes" else found.mean


_PERCENTILES: Final = (("p50", ""), ("p95", "6 3"), ("p99", "2 2"))
_RESPONSE: Final = 160.0


def draw_open(source: FigureSource, width: int, theme: Theme) -> Picture:
    """Draw response times by the offered rate, and how much of it was achieved and dropped."""
    rates = {
        place: each.open_load.offered_per_s
        for place, each in enumerate(source.document.treatments)
        if each.open_load is not None and each.open_load.offered_per_s
    }
    every = source.styles.panels(rates, ("rate",))
    if not every:
        raise NoFigureError("no job arrives at a rate (rate)")
    panels = every[:MOST_PANELS]
    styles = [panel_styles(source, panel.treatments) for panel in panels]
    picture = Picture("open", width, theme)
    picture.title = "Response times by offered rate"
    names = [list(dict.fromkeys(one.label for one in own.values() if one.hue != GREY)) for own in styles]
    ends = [[f"{name} {which}" for name in own for which, _ in _PERCENTILES] for own in names]
    room = room_for_labels(picture, ends, _RESPONSE)
    each = bool(room)
    room = room or room_for_labels(picture, names, _RESPONSE)
    if not room:
        draw_key(picture, [style for own in styles for style in own.values()])
    said: list[str] = []
    for panel, own in zip(panels, styles, strict=True):
        said += _draw_open(
            picture, source, panel, own, {place: rate for place, rate in rates.items() if rate}, room, each
        )
    offered = [load.offered for place in rates for load in [source.document.treatments[place].open_load] if load]
    picture.caption = (
        "Solid: median, dashed: p95, dotted: p99 of the time from arrival to end, of jobs that were done; lower is "
        f"better. {count_text(offered)} arrivals a mark, {plural(source.document.totals.failed, 'job')} failed. "
        f"Dropped: found no slot in time. No knee is fitted. {' '.join(dict.fromkeys(said))}"
        + grey_words(styles)
        + left_out(len(panels), len(every), "panels")
    )
    return picture


def _draw_open(
    picture: Picture,
    source: FigureSource,
    panel: Panel,
    styles: dict[int, Style],
    rates: dict[int, float],
    room: float,
    each: bool,  # noqa: FBT001
) -> list[str]:
    treatments, right = source.document.treatments, right_margin(room, 18.0)
    title = f"{panel.title}: " if panel.title else ""
    frame = frame_panel(picture, _RESPONSE, left=_LEFT, right=right, title=f"{title}response time")
    values = [
        value
        for place in panel.treatments
        for name, _ in _PERCENTILES
        for value in [percentile(treatments[place], name, "response")]
        if value
    ]
    scale = logarithmic(values, frame.bottom, frame.top, "s", room=1.4)
    offered = linear([rates[place] for place in panel.treatments], frame.left, frame.right)
    draw_y_axis(picture, frame, scale)
    lines, ends = load_lines(panel.treatments, styles, rates), []
    for line in lines:
        style = styles[line[0].treatment]
        for name, dash in _PERCENTILES:
            points = [
                (offered(load.level), scale(value))
                for load in line
                for value in [percentile(treatments[load.treatment], name, "response")]
                if value
            ]
            picture.line(points, style.hue, width=1.5, dash=dash, tip=f"{style.label} {name}")
            for x, y in points:
                picture.mark(x, y, style.shape, style.hue, size=3)
            if points and style.hue != GREY and (each or name == "p50"):
                ends.append(EndLabel(points[-1][1], f"{style.label} {name}" if each else style.label, style.hue))
    if room:
        draw_end_labels(picture, frame, ends)
    said = [scale.words("Time")]
    for words, share in (("achieved of offered", _achieved), ("dropped", _dropped)):
        frame = frame_panel(picture, 56.0, left=_LEFT, right=right, title=words)
        strip = Scale(0.0, 105.0, frame.bottom, frame.top, "%")
        draw_y_axis(picture, frame, strip, most=2)
        for line in lines:
            style = styles[line[0].treatment]
            points = [
                (offered(load.level), strip(100 * value))
                for load in line
                for value in [share(treatments[load.treatment])]
                if value is not None
            ]
            picture.line(points, style.hue, tip=style.label)
            for x, y in points:
                picture.mark(x, y, style.shape, style.hue, size=3)
        said.append(strip.words(words.capitalize()))
    picture.extend(36)
    draw_x_axis(picture, frame, offered, "jobs offered per second", grid=False)
    return said


def _achieved(treatment: TreatmentReport) -> float | None:
    load = treatment.open_load
    if load is None or not load.offered_per_s or load.achieved_per_s is None:
        return None
    return load.achieved_per_s / load.offered_per_s


def _dropped(treatment: TreatmentReport) -> float | None:
    load = treatment.open_load
    return load.dropped / load.offered if load is not None and load.offered else None
