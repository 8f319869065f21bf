"""The chart of rates over the time of the run: jobs done per second, and where jobs failed."""

from __future__ import annotations

from typing import Final

import numpy as np

from bench_features.charts.chart_sums import TIME_BINS, ChartSums, Values
from bench_features.charts.layout import (
    MOST_PANELS,
    Chart,
    ChartSource,
    NoChartError,
    Panel,
    caption_end,
    count_text,
    stairs,
)
from bench_features.charts.scales import Scale, linear
from bench_master.formatting import format_value, plural

LEAST_JOBS: Final = 10
"""Jobs of a step on average: with fewer the rate is that of chance."""
LEAST_IN_TRIAL: Final = 8
"""Steps of the longest trial: over fewer no change could be seen."""
_STEPS: Final = (120, 60, 40, 24, 12)
"""Into how many steps the run may be parted; the numbers part `TIME_BINS` evenly."""
_NARROW_STEPS: Final = 60
"""At most, of a picture for a telephone."""
_LEAST_COVER: Final = 0.5
"""Of a step that trials of a treatment fill less, the rate is not drawn."""


def draw_rate(source: ChartSource, picture: Chart) -> None:
    """Draw the jobs done per second over the time of the run, each treatment while its trials ran."""
    data = source.data
    steps = _steps(source)
    if not steps:
        raise NoChartError(
            f"a rate over time needs trials of {LEAST_IN_TRIAL} steps of {LEAST_JOBS} jobs each; the chart trials "
            "needs less"
        )
    steps = min(steps, _NARROW_STEPS) if picture.is_narrow else steps
    every = source.panels(data.done)
    panels = every[:MOST_PANELS]
    picture.title = "Jobs done per second over the run"
    picture.key([style for panel in panels for style in panel.styles.values()], lines=True)
    rates = {place: _rates(source, place, steps) for place in data.done}
    highest = [float(np.nanmax(values)) for values in rates.values() if np.isfinite(values).any()]
    said = [_draw_panel(picture, data, panel, rates, max(highest, default=1.0)) for panel in panels]
    measured = [int(data.done[place].sum()) for panel in panels for place in panel.treatments]
    failed = sum(int(counts.sum()) for counts in data.failed.values())
    step = format_value(data.duration_s / steps, "s")
    parts = [
        f"Each step: jobs done in {step}, divided by the time in which trials of the treatment ran.",
        "Gaps: other treatments, warm-up or pauses.",
        f"\u00d7: {plural(failed, 'failed job')}." if failed else "No job failed.",
        f"{count_text(measured)} jobs a line. Higher is better.",
        *dict.fromkeys(said),
    ]
    picture.caption = " ".join(parts) + caption_end(panels, every)


def _steps(source: ChartSource) -> int:
    """Return into how many steps the run is parted, the most with enough of them in a trial and of jobs in each."""
    data = source.data
    longest = max(
        ((mark.end_s or data.duration_s) - mark.begin_s for mark in source.trials if not mark.warmup), default=0.0
    )
    spans = {place: float(_cover(source, place, 1).sum()) for place in data.done}
    for steps in _STEPS if data.duration_s else ():
        step_s = data.duration_s / steps
        jobs = [int(grid.sum()) * step_s / max(spans[place], step_s) for place, grid in data.done.items()]
        if min(jobs, default=0) >= LEAST_JOBS:
            return steps if longest >= LEAST_IN_TRIAL * step_s else 0
    return 0


def _cover(source: ChartSource, place: int, steps: int) -> Values:
    """Return how many seconds of each step measured trials of a treatment ran."""
    duration_s = source.data.duration_s
    edges = np.linspace(0.0, duration_s, steps + 1)
    seconds = np.zeros(steps)
    for mark in source.measured(place):
        end = duration_s if mark.end_s is None else mark.end_s
        seconds += np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], mark.begin_s), 0.0, None)
    return seconds


def _rates(source: ChartSource, place: int, steps: int) -> Values:
    """Return the jobs per second of each step; NaN where no trial of the treatment ran."""
    data = source.data
    counts = data.done[place].reshape(steps, -1).sum(axis=1)
    cover = _cover(source, place, steps)
    ran = cover > _LEAST_COVER * data.duration_s / steps
    return np.where(ran, counts / np.where(ran, cover, 1.0), np.nan)


def _draw_panel(picture: Chart, data: ChartSums, panel: Panel, rates: dict[int, Values], highest: float) -> str:
    frame = picture.panel(140.0, title=": ".join(filter(None, (panel.title, "jobs per second"))))
    scale = linear([highest], frame.bottom, frame.top)
    times = Scale(0.0, data.duration_s, frame.left, frame.right, "s")
    picture.axes(frame, times, scale, "since the run began")
    for place in panel.grey_first:
        style, values = panel.styles[place], rates[place]
        for points in stairs(times, scale, values, data.duration_s / len(values)):
            picture.line(points, style.hue, width=1.5, dash=style.dash, tip=style.label)
        for step in np.flatnonzero(data.failed.get(place, np.zeros(TIME_BINS))).tolist():
            x = times((step + 0.5) * data.bin_s)
            count = int(data.failed[place][step])
            picture.cross(x, frame.bottom, style.hue, size=3.0, tip=f"{style.label}: {plural(count, 'failed job')}")
    return scale.words("Rate")
