"""Charts by a load: containers held (F8), and jobs that arrive at a rate (F9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from bench_features.charts.labels import (
    GREY,
    EndLabel,
    draw_end_labels,
    draw_key,
    grey_words,
    panel_styles,
    right_margin,
    room_for_labels,
)
from bench_features.charts.layout import (
    MOST_PANELS,
    ChartSource,
    NoChartError,
    Panel,
    Style,
    count_text,
    draw_x_axis,
    draw_y_axis,
    frame_panel,
    left_out,
)
from bench_features.charts.picture import Picture
from bench_features.charts.scales import COUNT, Scale, linear, logarithmic
from bench_features.charts.scaling import load_lines, percentile, spread_words
from bench_master.analysis.treatment_types import HostSlopeReport, PackingTrialReport, TreatmentReport
from bench_master.formatting import format_value, plural
from bench_master.reports.packing_text import each_text, fill_text, host_text, knee_text
from bench_master.reports.palette import Theme
from bench_master.verdicts.spread import Spread

_LEFT: Final = 78.0

_PACKED: Final = (
    ("memory_used_bytes", "B", "memory in use, beyond that before the first"),
    ("cpu_busy_percent", "%", "CPU"),
    ("container_memory_bytes", "B", "memory of a container, by its own control group"),
    ("container_cpu_percent", "%", "CPU of a container, of one CPU"),
)
_PACKED_HEIGHT: Final = 170.0


def draw_packing(source: ChartSource, width: int, theme: Theme) -> Picture:
    """Draw memory and CPU of a host by the containers that it held."""
    held = {
        place: [trial for trial in each.packing.trials if not trial.warmup and trial.containers]
        for place, each in enumerate(source.document.treatments)
        if each.packing is not None
    }
    packed = {place: trials for place, trials in held.items() if trials}
    if not packed:
        raise NoChartError("no job holds containers (hold)")
    # How many are held is the x axis.
    every = source.styles.panels(packed, ("concurrency",))
    panels = every[:MOST_PANELS]
    styles = [panel_styles(source, panel.treatments) for panel in panels]
    by_host = [_slopes(source, own) for own in styles]
    limits, slopes = [_limits(found) for found in by_host], [_lines(found) for found in by_host]
    picture = Picture("packing", width, theme)
    picture.title = "Memory and CPU by containers held"
    names = [
        [f"{label}: {text}" for label, text in _texts(found, limit).items()] or [one.label for one in own.values()]
        for own, found, limit in zip(styles, slopes, limits, strict=True)
    ]
    room = room_for_labels(picture, [list(dict.fromkeys(one)) for one in names], _PACKED_HEIGHT)
    if not room:
        draw_key(picture, [style for own in styles for style in own.values()])
    said: list[str] = []
    for panel, own, found, limit in zip(panels, styles, slopes, limits, strict=True):
        for name, unit, title in _PACKED:
            points = {
                place: [
                    (trial, value) for trial in packed[place] for value in [_steady(trial, name)] if value is not None
                ]
                for place in panel.treatments
            }
            if any(points.values()):
                axis, of_host = (unit, title, panel.title), name == "memory_used_bytes"
                texts = _texts(found, limit) if of_host else {}
                said.append(_draw_packing(picture, points, own, found if of_host else {}, texts, axis, room))
        said += _draw_starts(picture, source, panel, own, room)
    if not said:
        raise NoChartError("the host was not sampled while it held containers (--sampling-interval)")
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
        + _limit_words(limits)
        + _sentences(source, panels, styles)
        + f"{count_text(trials)} trials a treatment. Less for each is better. {' '.join(dict.fromkeys(said))}"
        + grey_words(styles)
        + left_out(len(panels), len(every), "panels")
    )
    return picture


def _slopes(source: ChartSource, styles: dict[int, Style]) -> dict[str, HostSlopeReport]:
    """Return what each container takes of the host's memory, as the text has it, by the name of the line."""
    found: dict[str, HostSlopeReport] = {}
    for place, style in styles.items():
        packing = source.document.treatments[place].packing
        if packing is not None and (memory := packing.host.get("memory_bytes")) is not None:
            found.setdefault(style.label, memory)
    return found


def _lines(slopes: dict[str, HostSlopeReport]) -> dict[str, Spread]:
    """Return the slopes that a line is drawn for: not those of which only an upper limit is known."""
    return {
        label: Spread(slope.middle, slope.low, slope.high, slope.is_interval)
        for label, slope in slopes.items()
        if slope.limit is None and slope.middle is not None and slope.low is not None and slope.high is not None
    }


def _limits(slopes: dict[str, HostSlopeReport]) -> dict[str, float]:
    """Return what each container takes at most, in bytes, by the name of the line, where no more is known."""
    return {label: slope.limit for label, slope in slopes.items() if slope.limit is not None}


def _texts(slopes: dict[str, Spread], limits: dict[str, float]) -> dict[str, str]:
    """Return what each container takes, in words, by the name of the line."""
    return {label: _each(spread) for label, spread in slopes.items()} | {
        label: f"<{format_value(limit, 'B')} each" for label, limit in limits.items()
    }


def _limit_words(limits: Sequence[dict[str, float]]) -> str:
    """Return a sentence for the caption on lines that have only an upper limit; empty without any."""
    if not any(limits):
        return ""
    return "< for each: not distinguishable from what the host's memory changed by itself, so no line. "


def _each(spread: Spread) -> str:
    return f"{format_value(spread.middle, 'B')} each"


def _ends(spread: Spread) -> str:
    return f"{format_value(spread.low, 'B')} to {format_value(spread.high, 'B')}"


def _draw_packing(
    picture: Picture,
    points: dict[int, list[tuple[PackingTrialReport, float]]],
    styles: dict[int, Style],
    slopes: dict[str, Spread],
    texts: dict[str, str],
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
            end = EndLabel(scale(slope.middle * most), f"{style.label}: {texts[style.label]}", style.hue)
            labels[style.label] = end
        elif own:
            text = f"{style.label}: {texts[style.label]}" if style.label in texts else style.label
            labels.setdefault(style.label, EndLabel(scale(own[-1][1]), text, style.hue))
        for trial, value in own:
            tip = f"{style.label}, trial {trial.trial}: {trial.containers} containers, "
            tip += f"{format_value(value, unit)}; {trial.reason}"
            mark = (counts(trial.containers), scale(value))
            picture.mark(*mark, style.shape, style.hue, hollow=not trial.full, tip=tip)
    if room:
        draw_end_labels(picture, frame, [label for label in labels.values() if label.hue != GREY])
    return scale.words(title.partition(",")[0])


def _draw_starts(
    picture: Picture, source: ChartSource, panel: Panel, styles: dict[int, Style], room: float
) -> list[str]:
    """Draw how long containers take until they are up by how many are up, with the lines that were fitted."""
    known = {
        place: packing.starts
        for place in panel.treatments
        for packing in [source.document.treatments[place].packing]
        if packing is not None and packing.starts is not None and packing.starts.line
    }
    if not known:
        return []
    title = "time until a container is up"
    heading = f"{panel.title}: {title}" if panel.title else title
    frame = frame_panel(picture, _PACKED_HEIGHT, left=_LEFT, right=right_margin(room, 18.0), title=heading)
    shown = [value for each in known.values() for _, value in (*each.points, *each.line)]
    scale = linear(shown, frame.bottom, frame.top, "s")
    counts = Scale(0.0, max(each.most for each in known.values()) * 1.05, frame.left, frame.right, COUNT)
    draw_y_axis(picture, frame, scale)
    picture.extend(36)
    draw_x_axis(picture, frame, counts, "containers up, with it", grid=False)
    labels = []
    for place, starts in known.items():
        style = styles[place]
        tip = f"{style.label}: {knee_text(starts)}"
        picture.line([(counts(x), scale(y)) for x, y in starts.line], style.hue, width=1.2, tip=tip)
        for x, y in starts.points:
            picture.mark(counts(x), scale(y), style.shape, style.hue, size=3)
        if starts.knee is not None:
            low, at, high = (counts(x) for x in (starts.knee.low, starts.knee.containers, starts.knee.high))
            picture.line([(at, frame.top), (at, frame.bottom)], style.hue, width=0.8, dash="3 2", tip=tip)
            corners = [(low, frame.top), (high, frame.top), (high, frame.bottom), (low, frame.bottom)]
            picture.area(corners, style.hue, opacity=0.08, tip=tip)
        labels.append(EndLabel(scale(starts.line[-1][1]), style.label, style.hue))
    if room:
        draw_end_labels(picture, frame, [label for label in labels if label.hue != GREY])
    return [scale.words("Time until a container is up")]


def _sentences(source: ChartSource, panels: Sequence[Panel], styles: Sequence[dict[int, Style]]) -> str:
    """Return what the text report says of each container and of the knee, for the caption."""
    entries = {
        place: own[place].label
        for panel, own in zip(panels, styles, strict=True)
        for place in panel.treatments
        if place in own
    }
    texts = []
    several = Counter(entries.values())
    for place, label in entries.items():
        packing = source.document.treatments[place].packing
        if several[label] > 1 and packing is not None and packing.starts is not None:
            label = f"{label}, {plural(packing.starts.most, 'container')}"  # noqa: PLW2901  told apart by it
        said = (
            []
            if packing is None
            else [each_text(packing), host_text(packing), knee_text(packing.starts), fill_text(packing.fill)]
        )
        texts += [f"{label}: {text} " for text in said if text]
    return "".join(dict.fromkeys(texts))


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


def draw_open(source: ChartSource, width: int, theme: Theme) -> Picture:
    """Draw response times by the offered rate, and how much of it was achieved and dropped."""
    rates = {
        place: each.open_load.offered_per_s
        for place, each in enumerate(source.document.treatments)
        if each.open_load is not None and each.open_load.offered_per_s
    }
    every = source.styles.panels(rates, ("rate",))
    if not every:
        raise NoChartError("no job arrives at a rate (rate)")
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
    source: ChartSource,
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
