"""The chart of whole distributions (F3)."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from bench_features.charts.chart_sums import Distribution
from bench_features.charts.layout import (
    GREY,
    MOST_LINES,
    MOST_PANELS,
    Chart,
    ChartSource,
    NoChartError,
    Panel,
    Style,
    caption_end,
    count_text,
)
from bench_features.charts.picture import Frame, text_width
from bench_features.charts.scales import Scale, logarithmic
from bench_master.formatting import format_value, plural

LEAST_ECDF: Final = 20
JOB_NAMES: Final = frozenset({"job", "response"})
_ECDF: Final = 120.0
_BESIDE: Final = 3
"""Medians that are written beside their marks."""
_MEDIANS: Final = 140.0


class _Lines(NamedTuple):
    """The lines of one operation for a group of treatments."""

    group: str
    """What the treatments have in common; empty for a single group."""
    title: str
    lines: list[Distribution]
    panel: Panel

    @property
    def name(self) -> str:
        return f"{self.group}: {self.title}" if self.group else self.title

    def style(self, line: Distribution) -> Style:
        return self.panel.styles[line.treatment]


def _panels(source: ChartSource) -> list[_Lines]:
    found: list[_Lines] = []
    full = [each for each in source.data.distributions() if each.n >= LEAST_ECDF]
    groups = source.panels({each.treatment for each in full})
    for group in groups:
        own = [each for place in group.grey_first for each in full if each.treatment == place]
        for operation in dict.fromkeys(each.operation for each in full if each.treatment in group.treatments):
            words = "whole job" if operation == "job" else operation
            lines = [each for each in own if each.operation == operation]
            found.append(_Lines(group.title if len(groups) > 1 else "", words, lines, group))
    return found


def draw_ecdf(source: ChartSource, picture: Chart) -> None:
    """Draw the share of operations that took no longer, for each operation, on one axis of time."""
    every = _panels(source)
    if not every:
        raise NoChartError(f"no operation has {LEAST_ECDF} measured values")
    panels = every[:MOST_PANELS]
    picture.title = "Durations of each operation: whole distributions"
    picture.key([each.style(line) for each in panels for line in each.lines], lines=True)
    every_line = [line for each in panels for line in each.lines]
    # Few medians fit beside their marks; more need a column of their own.
    listed = max(len(each.lines) for each in panels) > _BESIDE
    sizes = Counter(each.group for each in panels).values()
    # Two a row where three would leave one alone.
    columns = 1 if picture.is_narrow else 2 if listed or max(sizes) in (2, 4) else 3
    room = _MEDIANS if listed else 12.0
    each_width = (picture.width - 12) / columns
    values = [value for line in every_line for value in line.seconds]
    scale = logarithmic(values, 0, 1, "s")
    column, group = 0, ""
    for each in panels:
        if each.group != group:
            picture.text(8, picture.extend(30) + 26, each.group, bold=True, size=13, room=picture.width - 16)
            column, group = 0, each.group
        if column == 0:
            top = picture.extend(_ECDF + 62.0) + 28
        left = 4 + column * each_width
        _draw_ecdf(picture, each, Frame(left + 46, left + each_width - room, top, top + _ECDF), scale, listed=listed)
        column = (column + 1) % columns
    drawn = [source.document.treatments[place] for place in {line.treatment for line in every_line}]
    trials, failed = sorted(one.trials.run for one in drawn), sum(one.jobs.failed for one in drawn)
    picture.caption = (
        "Share that took no longer; the mark and the number are the median. "
        f"{count_text(line.n for line in every_line)} a line, of "
        f"{' to '.join(dict.fromkeys((str(trials[0]), str(trials[-1]))))} trials (they are not independent), "
        f"{plural(failed, 'job')} failed and left out. Lower is better. One axis for all panels. "
        + scale.words("Time")
        + (" Times of 0 are at its left end." if min(values) <= 0 else "")
        + caption_end([each.panel for each in panels], [each.panel for each in every])
    )
    picture.description = "; ".join(
        f"{each.name} {each.style(line).label} median {format_value(_median(line), 's')}"
        for each in panels
        for line in each.lines[:MOST_LINES]
    )


def _draw_ecdf(picture: Chart, panel: _Lines, frame: Frame, scale: Scale, *, listed: bool) -> None:
    shares = Scale(0.0, 1.0, frame.bottom, frame.top)
    picture.text(frame.left, frame.top - 8, panel.title, bold=True, room=frame.right - frame.left)
    for share in (0.0, 0.5, 0.95):
        picture.line([(frame.left, shares(share)), (frame.right, shares(share))], "grid")
        picture.text(frame.left - 6, shares(share) + 4, f"{share * 100:.0f} %", anchor="end", ink="muted", size=11)
    times = Scale(scale.low, scale.high, frame.left, frame.right, "s", log=True)
    picture.x_axis(frame, times, "", room=0.0)
    for line in panel.lines:
        style = panel.style(line)
        median = _median(line)
        tip = f"{style.label}: median {format_value(median, 's')}, n = {line.n}"
        stairs = [(times(value), shares(share)) for share, value in zip(line.shares, line.seconds, strict=True)]
        picture.steps(
            [(times(line.seconds[0]), shares(0.0)), *stairs], style.hue, width=1.7, dash=style.dash, tip=tip
        )
        picture.mark(times(median), shares(0.5), style.shape, style.hue, size=3, tip=tip)
    coloured = [line for line in panel.lines if panel.style(line).hue != GREY]
    step = min(14.0, (frame.bottom - frame.top + 12) / max(1, len(coloured)))
    for place, line in enumerate(sorted(coloured, key=_median) if listed else coloured):
        style, text = panel.style(line), format_value(_median(line), "s")
        if listed:
            y, size = frame.top + 4 + place * step, min(11.0, step - 2)
            picture.text(frame.right + 8, y, f"{style.label} {text}", ink=style.hue, size=size, room=_MEDIANS - 14)
        else:
            _write_median(picture, frame, times(_median(line)), shares(0.5), text, style.hue)


def _median(line: Distribution) -> float:
    return next(value for share, value in zip(line.shares, line.seconds, strict=True) if share >= 0.5)  # noqa: PLR2004


def _write_median(picture: Chart, frame: Frame, x: float, y: float, text: str, hue: str) -> None:
    """Write a median beside its line, on the first side where it covers nothing; else not at all."""
    size = text_width(text, 11)
    for dx, dy in ((7, 14), (-7 - size, -6), (7, 28), (-7 - size, -20)):
        left = x + dx
        if (
            frame.left <= left
            and left + size <= frame.right
            and picture.text(left, y + dy, text, ink=hue, size=11, unless_covered=True, halo=True)
        ):
            return
