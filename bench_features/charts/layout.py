"""What all charts share: which treatments are in which panel, how each is drawn, axes, keys and marks.

A name at the end of its line needs no key. Where there is no room for it, on a narrow screen say, a key above the
panels has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from bench_common.safe_text import one_line
from bench_features.charts import ChartChoice
from bench_features.charts.chart_sums import ChartSums, TrialMark, Values
from bench_features.charts.picture import DASHES, LINE_HEIGHT, SHAPES, Frame, Picture, Point, text_width, wrap_text
from bench_features.charts.scales import Scale
from bench_master.analysis.report_types import ReportDocument
from bench_master.plan import is_host_ceiling
from bench_master.reports.palette import engine_hue
from bench_master.reports.table import varying_labels
from bench_master.run_data.measured import MeasuredRun

MOST_PANELS: Final = 24
MOST_LINES: Final = 12
"""Lines of a panel that can be told apart; of more the first and the last keep their colour, the others are grey."""
GREY: Final = "muted"
_SMALL: Final = 11.0
_STEP: Final = 13.0
_MOST_ROOM: Final = 170.0


class NoChartError(Exception):
    """A run lacks the data of a chart; the message says which."""


_NO_CHOICE: Final = ChartChoice()


class ChartSource:
    """A run to draw: its report document, and what charts need beyond that, made when first asked for."""

    def __init__(
        self, document: ReportDocument, run: MeasuredRun | None = None, choice: ChartChoice = _NO_CHOICE
    ) -> None:
        self.document = document
        self.choice = choice
        self._run = run

    @cached_property
    def data(self) -> ChartSums:
        """What is drawn and is not in the document."""
        assert self._run is not None, "the forest alone is drawn without a run"
        return self._run.part(ChartSums)

    @cached_property
    def metrics(self) -> dict[int, str]:
        """The metric that a treatment's trials are measured by: that of its verdicts, or else its primary one.

        Those of other treatments are measured by the time of jobs.
        """
        verdicts, found = self.document.verdicts, {}
        comparisons = () if verdicts is None else verdicts.comparisons
        compared = {title: each.measure for each in comparisons for title in (each.a, each.b)}
        for place, treatment in enumerate(self.document.treatments):
            name = compared.get(treatment.title)
            if name not in treatment.metrics:
                name = next((name for name, metric in treatment.metrics.items() if metric.primary), None)
            if name is not None:
                found[place] = name
        return found

    @cached_property
    def trials(self) -> list[TrialMark]:
        """Each trial, in the order in which they began."""
        return self.data.trials(self.metrics)

    def measured(self, place: int) -> list[TrialMark]:
        """Return the trials of a treatment, without those of warm-up."""
        return [mark for mark in self.trials if mark.treatment == place and not mark.warmup]

    @cached_property
    def values(self) -> dict[tuple[int, str], dict[int, float]]:
        """By treatment and metric: the mean of each trial, warm-up included."""
        return self.data.values()

    @cached_property
    def _labels(self) -> list[Mapping[str, Any]]:
        """The labels, without the job where each engine has a job of its own that does the same as the others.

        So are the drivers of a definition of bucketbench, which are to be compared: in one panel, on one axis, and
        the host's ceiling beside them.
        """
        treatments = self.document.treatments
        labels = [each.treatment for each in treatments]
        engines: dict[str, set[str]] = {}
        for each in labels:
            engines.setdefault(str(each.get("engine")), set()).add(str(each.get("job")))
        jobs = [job for found in engines.values() for job in found]
        measured = [each for each in treatments if each.jobs.done and not is_host_ceiling(each.treatment)]
        work = {(tuple(sorted(each.operations)), tuple(sorted(each.metrics))) for each in measured}
        if len(jobs) == len(set(jobs)) == len(engines) > 1 and len(work) == 1:
            return [{name: value for name, value in each.items() if name != "job"} for each in labels]
        return labels

    @cached_property
    def styles(self) -> list[Style]:
        """How each treatment is drawn in every chart: by its engine, and its environment if there are several."""
        several = len({each.get("environment") for each in self._labels}) > 1
        keys = ("engine", "environment") if several else ("engine",)
        names = [tuple(str(each.get(key, "")) for key in keys) for each in self._labels]
        styles = {
            name: Style(
                one_line(" ".join(name)), engine_hue(name[0]), place % len(SHAPES), DASHES[place % len(DASHES)]
            )
            for place, name in enumerate(dict.fromkeys(names))
        }
        return [styles[name] for name in names]

    def panels(self, keep: Collection[int], without: Collection[str] = ()) -> list[Panel]:
        """Return the treatments in `keep` in panels, in the order of the plan; labels in `without` part no panels."""
        parted = [
            {key: value for key, value in each.items() if key not in ("engine", "environment", *without)}
            for each in self._labels
        ]
        varying = varying_labels(parted)
        found: dict[tuple[str, ...], Panel] = {}
        for place, each in enumerate(parted):
            if place in keep:
                name = tuple(str(each.get(key)) for key in varying)
                words = ", ".join(
                    str(each.get(key)) if key == "job" else f"{key} {each[key]}" for key in varying if key in each
                )
                panel = found.setdefault(name, Panel(words or str(each.get("job", "")), {}))
                panel.styles[place] = self.styles[place]
        for panel in found.values():
            names = panel.names
            if len(names) > MOST_LINES:
                grey = [place for place, one in panel.styles.items() if one.label not in (names[0], names[-1])]
                panel.styles.update({place: panel.styles[place]._replace(hue=GREY) for place in grey})
        return list(found.values())


class Style(NamedTuple):
    """How a treatment is drawn."""

    label: str
    """Its engine, and its environment if there are several."""
    hue: str
    shape: int
    dash: str


class Panel(NamedTuple):
    """Treatments that differ in engine and environment alone."""

    title: str
    styles: dict[int, Style]
    """How each of its treatments is drawn here: in its colour, or grey where there are too many."""

    @property
    def treatments(self) -> list[int]:
        """The places of its treatments in the document."""
        return list(self.styles)

    @property
    def names(self) -> list[str]:
        """The labels of what has a colour."""
        return list(dict.fromkeys(style.label for style in self.styles.values() if style.hue != GREY))

    @property
    def grey_first(self) -> list[int]:
        """The treatments in the order in which they are drawn: what has a colour is in front of what is grey."""
        return sorted(self.treatments, key=lambda place: self.styles[place].hue != GREY)


def caption_end(shown: Sequence[Panel], every: Sequence[Panel]) -> str:
    """Return sentences for a caption on treatments without a colour, and panels that are not shown."""
    grey = any(style.hue == GREY for panel in shown for style in panel.styles.values())
    words = f" Of more than {MOST_LINES} lines the first and the last have a colour; point at a grey one."
    return (words if grey else "") + left_out(len(shown), len(every), "panels")


def stairs(times: Scale, scale: Scale, values: Values, width_s: float) -> list[list[Point]]:
    """Return the values of steps of time as stairs, one for each stretch without gaps (NaN)."""
    known = np.flatnonzero(np.isfinite(values))
    stretches = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(known) else []
    return [
        [(times(edge * width_s), scale(float(values[step]))) for step in own.tolist() for edge in (step, step + 1)]
        for own in stretches
    ]


def axis_title(what: str, unit: str) -> str:
    """Return what an axis shows, with the unit unless its ticks have it."""
    ticks_have_it = not unit or unit in ("s", "%") or unit.partition("/")[0] in ("B", "bytes")
    return what if ticks_have_it else f"{what} ({unit})"


def left_out(shown: int, of: int, what: str) -> str:
    """Return a sentence on what a caption's chart does not show; nothing if it shows all."""
    return "" if shown >= of else f" Shown are the first {shown} of {of} {what}."


def count_text(n: Iterable[int]) -> str:
    """Return ``n = 40`` or ``n = 38 to 40``."""
    values = sorted(set(n))
    if not values:
        return "n = 0"
    return f"n = {values[0]:,}" if len(values) == 1 else f"n = {values[0]:,} to {values[-1]:,}"


class KeyEntry(NamedTuple):
    """A mark and what it stands for."""

    words: str
    ink: str
    mark: float
    draw: Callable[[float, float], None]
    """Draws the mark from this x on, with this y as the baseline of the words."""


class Mark(NamedTuple):
    """A value on a line, in pixels."""

    x: float
    y: float
    bar: tuple[float, float] | None
    """The ends of its spread."""
    tip: str
    dash: str = ""
    """That of the bar."""
    specks: Sequence[Point] = ()


class Chart(Picture):
    """A picture of panels with axes, keys, and marks with their names."""

    def panel(self, height: float, *, left: float = 0.0, right: float = 0.0, title: str = "") -> Frame:
        """Make room for a panel over the whole width; `height` is that of its data, a margin of 0 the usual one."""
        usual = (58.0, 10.0) if self.is_narrow else (74.0, 18.0)
        top = self.extend(height + (26 if title else 10)) + (24 if title else 8)
        if title:
            self.text(8, top - 9, title, bold=True, room=self.width - 16)
        return Frame(left or usual[0], self.width - (right or usual[1]), top, top + height)

    def axes(self, frame: Frame, across: Scale, up: Scale, title: str) -> None:
        """Draw both axes of a frame, with a grid of the values; `title` is that of the axis below."""
        self.y_axis(frame, up)
        self.x_axis(frame, across, title, grid=False)

    def x_axis(self, frame: Frame, scale: Scale, title: str, *, grid: bool = True, room: float = 36.0) -> None:
        """Make room below a frame and draw ticks there, and the title of the axis below them."""
        self.extend(room)
        self.line([(frame.left, frame.bottom), (frame.right, frame.bottom)], "muted")
        most = max(2, int((frame.right - frame.left) / 52))
        last = -1e9
        for value, label in scale.ticks(most):
            x, half = scale(value), text_width(label, _SMALL) / 2
            if grid:
                self.line([(x, frame.top), (x, frame.bottom)], "grid")
            if x - half > last + 6:
                self.line([(x, frame.bottom), (x, frame.bottom + 4)], "muted")
                self.text(x, frame.bottom + 15, label, anchor="middle", ink="muted", size=_SMALL, unless_covered=True)
                last = x + half
        if title:
            self.text(frame.right, frame.bottom + 30, title, anchor="end", ink="muted", size=_SMALL, room=frame.right)

    def y_axis(self, frame: Frame, scale: Scale, *, most: int | None = None) -> None:
        """Draw ticks and a grid at the left of a frame."""
        last = 1e9
        for value, label in scale.ticks(most or max(2, int((frame.bottom - frame.top) / 28))):
            y = scale(value)
            self.line([(frame.left, y), (frame.right, y)], "grid")
            if y < last - 15:
                self.text(frame.left - 6, y + 4, label, anchor="end", ink="muted", size=_SMALL, room=frame.left - 8)
                last = y

    def room_for_labels(self, panels: Sequence[Panel], height: float, *, lines: bool = False) -> float:
        """Return the width that names at the right of panels take; 0 if they do not fit: then the key is drawn."""
        names = [panel.names for panel in panels]
        if self.is_narrow or max(map(len, names)) * _STEP > height + _STEP:
            self.key([style for panel in panels for style in panel.styles.values()], lines=lines)
            return 0.0
        return min(max(text_width(name, _SMALL) for own in names for name in own) + 16.0, _MOST_ROOM)

    def end_labels(self, frame: Frame, ends: Iterable[tuple[float, Style]]) -> None:
        """Write names at the right of a frame, each as near to the end of its line (y) as the others allow."""
        ordered = sorted(ends, key=lambda end: (end[0], end[1].label, end[1].hue))
        places: list[float] = []
        for wanted, _ in ordered:
            places.append(max(wanted, places[-1] + _STEP if places else frame.top))
        lowest = frame.bottom
        for place in reversed(range(len(places))):
            places[place] = min(places[place], lowest)
            lowest = places[place] - _STEP
        for (_, style), y in zip(ordered, places, strict=True):
            room = self.width - frame.right - 10
            self.text(frame.right + 8, y + 4, style.label, ink=style.hue, size=_SMALL, room=room)

    def entries(self, entries: Iterable[KeyEntry]) -> None:
        """Write marks and what they stand for, in as many lines as it takes."""
        x, top = 8.0, self.extend(LINE_HEIGHT + 6)
        for entry in entries:
            room = self.width - 16 - entry.mark
            width = min(text_width(entry.words), room) + entry.mark + 20
            if x > 8 and x + width > self.width - 8:  # noqa: PLR2004  the left edge
                x, top = 8.0, self.extend(LINE_HEIGHT)
            entry.draw(x, top + 14)
            self.text(x + entry.mark, top + 14, entry.words, ink=entry.ink, room=room)
            x += width

    def key(self, styles: Iterable[Style], *, lines: bool = False) -> None:
        """Write what each shape, dash and colour stands for; grey has no entry."""
        mark = 30.0 if lines else 12.0

        def entry(style: Style) -> KeyEntry:
            def draw(x: float, y: float) -> None:
                if lines:
                    self.line([(x, y - 4), (x + 24, y - 4)], style.hue, width=2, dash=style.dash)
                self.mark(x + mark / 2 - 3, y - 4, style.shape, style.hue)

            return KeyEntry(style.label, style.hue, mark, draw)

        self.entries([entry(style) for style in dict.fromkeys(styles) if style.hue != GREY])

    def marks(self, style: Style, marks: Sequence[Mark]) -> None:
        """Draw values with their spreads."""
        for mark in marks:
            if mark.bar is not None:
                self.line([(mark.x, end) for end in mark.bar], style.hue, width=1.5, dash=mark.dash)
            self.specks(mark.specks, style.hue, size=3.2, opacity=0.7)
            self.mark(mark.x, mark.y, style.shape, style.hue, tip=mark.tip)

    def row_words(self, frame: Frame, y: float, label: str, numbers: str, *, size: float = 12.0) -> None:
        """Write what a row is called at its left and its numbers at its right; on a narrow screen both above it.

        A label has two lines if one is too short: labels may differ at their ends alone.
        """
        if self.is_narrow:
            # The lines behind it would cross it out.
            self.rect(0, y - size - 11, self.width, size + 2, "ground")
            self.text(8, y - 12, f"{numbers} {label}", size=11.5)
            return
        room = frame.left - 14
        shown = one_line(label)
        lines = [shown] if text_width(shown) <= room else wrap_text(shown, room)
        lines = [lines[0], " ".join(lines[1:])] if lines[1:] else lines
        for line, below in zip(lines, (4,) if len(lines) == 1 else (-2, 13), strict=True):
            self.text(frame.left - 10, y + below, line, anchor="end", room=room)
        self.text(frame.right + 10, y + 4, numbers, size=size, room=self.width - frame.right - 12)
