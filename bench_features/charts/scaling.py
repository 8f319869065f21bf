"""Jobs per second by a number that the scenario varies (F7), and the interval of a measure over trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bench_features.charts.labels import (
    GREY,
    EndLabel,
    draw_end_labels,
    draw_key,
    grey_first,
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
    draw_y_axis,
    frame_panel,
    left_out,
)
from bench_features.charts.picture import Frame, Picture
from bench_features.charts.scales import Scale, logarithmic
from bench_master.reports.palette import Theme
from bench_master.run_data.treatment_types import TreatmentReport
from bench_master.verdicts.spread import ALPHA, Spread, spread_of

COUNT_LABELS: Final = ("concurrency", "threads", "clients")
"""Labels whose number is that of jobs or threads at once."""
_LEFT: Final = 78.0
_RATES, _TIMES = 160.0, 110.0
"""Heights of the two panels."""


class Load(NamedTuple):
    """How many at once, and the treatment."""

    level: float
    treatment: int


def spread_words(spreads: Sequence[Spread]) -> str:
    """Return sentences for a caption on what the bars of these spreads are."""
    parts = []
    if any(each.is_interval for each in spreads):
        parts.append(f"Solid bar: {100 * (1 - ALPHA):.0f} % interval over the trials (signed ranks).")
    if any(not each.is_interval and each.low < each.high for each in spreads):
        parts.append("Dashed bar: range of the trials, too few for an interval.")
    return " ".join(parts)


def _counted(source: ChartSource) -> tuple[str, dict[int, float]]:
    """Return the label that varies, and its number for each treatment."""
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


def draw_scaling(source: ChartSource, width: int, theme: Theme) -> Picture:
    """Draw jobs per second and the 95th percentile of job times by the number at once."""
    name, counts = _counted(source)
    every = [
        panel
        for panel in source.styles.panels(counts, (name,))
        if len({counts[place] for place in panel.treatments}) > 1
    ]
    if not every:
        raise NoChartError(f"the scenario varies none of {', '.join(COUNT_LABELS)}")
    panels = every[:MOST_PANELS]
    styles = [panel_styles(source, panel.treatments) for panel in panels]
    picture = Picture("scaling", width, theme)
    picture.title = f"Jobs per second by {name}"
    names = [list(dict.fromkeys(each.label for each in own.values() if each.hue != GREY)) for own in styles]
    room = room_for_labels(picture, names, _TIMES)
    if not room:
        draw_key(picture, [style for own in styles for style in own.values()], lines=True)
    said: list[str] = []
    spreads: list[Spread] = []
    for panel, own in zip(panels, styles, strict=True):
        drawing = _Scaling(picture, source, panel, own, counts, name, room)
        said += drawing.draw()
        spreads += drawing.spreads.values()
    jobs = [source.document.treatments[place].jobs.done for panel in panels for place in panel.treatments]
    picture.caption = (
        f"Mark: jobs done per second, the middle of the trials. {spread_words(spreads)} "
        "Thin dotted line: in proportion to the fewest at once. "
        f"{count_text(jobs)} jobs a mark, {source.document.totals.failed} failed. Higher rates are better, "
        f"lower times are. Nothing is smoothed. {' '.join(dict.fromkeys(said))}"
        + grey_words(styles)
        + left_out(len(panels), len(every), "panels")
    )
    return picture


class _Scaling:
    """Draws a panel of rates, and below it one of times."""

    def __init__(
        self,
        picture: Picture,
        source: ChartSource,
        panel: Panel,
        styles: dict[int, Style],
        counts: dict[int, float],
        name: str,
        room: float,
    ) -> None:
        self._picture, self._source, self._panel = picture, source, panel
        self._styles, self._counts, self._name = styles, counts, name
        self._right = right_margin(room, 18.0)
        self._labelled = bool(room)
        self._lines = load_lines(panel.treatments, styles, counts)
        rates = {place: self._rates(place) for place in panel.treatments}
        self.spreads = {place: found for place, own in rates.items() for found in [spread_of(own, log=True)] if found}

    def _rates(self, place: int) -> list[float]:
        marks = [mark for mark in self._source.data.trials if mark.treatment == place and not mark.warmup]
        rates = [mark.jobs_per_s for mark in marks if mark.jobs_per_s]
        pooled = self._source.document.treatments[place].jobs_per_s
        return rates or ([pooled] if pooled else [])

    def draw(self) -> list[str]:
        """Draw both, and return what captions say of their axes."""
        title = f"{self._panel.title}: " if self._panel.title else ""
        frame = frame_panel(self._picture, _RATES, left=_LEFT, right=self._right, title=f"{title}jobs per second")
        ends = [end for each in self.spreads.values() for end in (each.low, each.middle, each.high)]
        scale = logarithmic(ends, frame.bottom, frame.top, room=1.4)
        places = self._places(frame)
        draw_y_axis(self._picture, frame, scale)
        self._draw_counts(frame, places)
        for line in self._lines:
            known = [load for load in line if load.treatment in self.spreads]
            if known:
                self._draw_rates(known, scale, places)
        middles = {place: each.middle for place, each in self.spreads.items()}
        self._label(frame, scale, middles)
        said = [scale.words("Rate")]
        treatments = self._source.document.treatments
        tails = {
            place: value
            for place in self._panel.treatments
            for value in [percentile(treatments[place], "p95")]
            if value
        }
        if tails:
            frame = frame_panel(
                self._picture, _TIMES, left=_LEFT, right=self._right, title=f"{title}p95 of job times"
            )
            times = logarithmic(tails.values(), frame.bottom, frame.top, "s", room=1.4)
            draw_y_axis(self._picture, frame, times)
            self._draw_counts(frame, places)
            for line in self._lines:
                style = self._styles[line[0].treatment]
                points = [
                    (places(load.level), times(tails[load.treatment])) for load in line if load.treatment in tails
                ]
                self._picture.line(points, style.hue, width=1.6, dash=style.dash, tip=style.label)
                for x, y in points:
                    self._picture.mark(x, y, style.shape, style.hue)
            self._label(frame, times, tails)
            said.append(times.words("Time"))
        return said

    def _places(self, frame: Frame) -> Scale:
        levels = [self._counts[place] for place in self._panel.treatments]
        return Scale(min(levels) / 1.15, max(levels) * 1.15, frame.left, frame.right, log=True)

    def _draw_rates(self, line: Sequence[Load], scale: Scale, places: Scale) -> None:
        picture, style, first = self._picture, self._styles[line[0].treatment], line[0]
        begin = self.spreads[first.treatment].middle
        last = min(line[-1].level, first.level * scale.high / begin)
        picture.line(
            [(places(count), scale(begin * count / first.level)) for count in (first.level, last)],
            style.hue,
            width=0.7,
            dash="1 3",
        )
        points = [(places(load.level), scale(self.spreads[load.treatment].middle)) for load in line]
        picture.line(points, style.hue, width=1.6, dash=style.dash, tip=style.label)
        for load in line:
            found, report = self.spreads[load.treatment], self._source.document.treatments[load.treatment]
            x = places(load.level)
            dash = "" if found.is_interval else "3 2"
            picture.line([(x, scale(found.low)), (x, scale(found.high))], style.hue, width=1.5, dash=dash)
            tip = f"{style.label}, {self._name} {load.level:g}: {found.middle:.3g} jobs/s "
            tip += f"({found.low:.3g} to {found.high:.3g}), {report.jobs.done} done, {report.jobs.failed} failed"
            picture.mark(x, scale(found.middle), style.shape, style.hue, tip=tip)

    def _label(self, frame: Frame, scale: Scale, values: dict[int, float]) -> None:
        if not self._labelled:
            return
        ends = []
        for line in self._lines:
            style = self._styles[line[0].treatment]
            known = [load.treatment for load in line if load.treatment in values]
            if known and style.hue != GREY:
                ends.append(EndLabel(scale(values[known[-1]]), style.label, style.hue))
        draw_end_labels(self._picture, frame, ends)

    def _draw_counts(self, frame: Frame, scale: Scale) -> None:
        picture = self._picture
        picture.extend(36)
        picture.line([(frame.left, frame.bottom), (frame.right, frame.bottom)], "muted")
        for count in sorted({self._counts[place] for place in self._panel.treatments}):
            x = scale(count)
            picture.line([(x, frame.bottom), (x, frame.bottom + 4)], "muted")
            picture.text(
                x, frame.bottom + 15, f"{count:g}", anchor="middle", ink="muted", size=11, unless_covered=True
            )
        title = f"{self._name} (log)"
        picture.text(frame.right, frame.bottom + 30, title, anchor="end", ink="muted", size=11)


def load_lines(treatments: Sequence[int], styles: dict[int, Style], levels: dict[int, float]) -> list[list[Load]]:
    """Return the treatments of a panel as lines by their load, one for each style; grey ones first."""
    found: dict[str, list[Load]] = {}
    for place in grey_first(treatments, styles):
        found.setdefault(styles[place].label, []).append(Load(levels[place], place))
    return [sorted(line) for line in found.values()]


def percentile(treatment: TreatmentReport, name: str) -> float | None:
    """Return a percentile of the job in seconds; None if it was not measured."""
    found = treatment.operations.get("job")
    return None if found is None else found.percentiles_s.get(name)
