"""The times of jobs over the run as counts (F10): what a percentile over time would hide."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from bench_features.charts.chart_sums import LATENCY_STEP, LEAST_LATENCY_S
from bench_features.charts.layout import (
    MOST_PANELS,
    ChartSource,
    NoChartError,
    Panel,
    count_text,
    draw_x_axis,
    draw_y_axis,
    frame_panel,
    left_out,
)
from bench_features.charts.picture import Frame, Picture, text_width
from bench_features.charts.scales import Scale
from bench_master.formatting import format_value
from bench_master.reports.palette import Theme

LEAST_HEAT: Final = 2000
"""Jobs that a heat map needs."""
LEVELS: Final = 8
"""Shades of one hue; with more of them neighbours cannot be told apart."""
_PALEST: Final = 0.14
_HEIGHT: Final = 150.0


def draw_heat(source: ChartSource, width: int, theme: Theme) -> Picture:
    """Draw the times of jobs over the time of the run as counts, for treatments of many jobs."""
    data = source.data
    full = [place for place, grid in sorted(data.heat.items()) if grid.sum() > LEAST_HEAT]
    if not full or not data.duration_s:
        raise NoChartError(f"no treatment has more than {LEAST_HEAT:,} measured jobs")
    picture = Picture("heat", width, theme)
    picture.title = "Job times over the run"
    panels = {place: panel for panel in source.styles.panels(full) for place in panel.treatments}
    columns = 60 if picture.is_narrow else 120
    shown = full[:MOST_PANELS]
    said = [_draw_panel(picture, source, place, panels[place], columns) for place in shown]
    jobs = [int(data.heat[place].sum()) for place in shown]
    picture.caption = (
        f"Each cell: jobs done in {format_value(data.duration_s / columns, 's')} whose time was in a bin of "
        f"a factor of {LATENCY_STEP:.2f}. "
        f"The darker the more, in {LEVELS} shades on a logarithmic scale up to the fullest cell of each panel, whose "
        f"count stands above it. {count_text(jobs)} jobs a panel, {source.document.totals.failed} failed. "
        f"Lower is better. {said[0]}" + left_out(len(shown), len(full), "treatments")
    )
    return picture


def _draw_panel(picture: Picture, source: ChartSource, place: int, panel: Panel, columns: int) -> str:
    """Draw the grid of a treatment, and return what captions say of its axis."""
    data, style = source.data, source.styles[place]
    left, right = (58.0, 10.0) if picture.is_narrow else (74.0, 18.0)
    grid = data.heat[place].reshape(columns, -1, data.heat[place].shape[1]).sum(axis=1)
    used = np.flatnonzero(grid.sum(axis=0))
    low, high = (LEAST_LATENCY_S * LATENCY_STEP ** float(edge) for edge in (used[0], used[-1] + 1))
    frame = frame_panel(picture, _HEIGHT, left=left, right=right)
    frame = Frame(frame.left, frame.right, frame.top + 16, frame.bottom + 16)
    picture.extend(16)
    scale = Scale(low, high, frame.bottom, frame.top, "s", log=True)
    draw_y_axis(picture, frame, scale)
    levels = _levels(grid)
    step_x, step_y = (frame.right - frame.left) / columns, (frame.bottom - frame.top) / (used[-1] + 1 - used[0])
    for level in range(1, LEVELS + 1):
        cells = [
            (frame.left + column * step_x, frame.bottom - (row - used[0] + 1) * step_y)
            for column, row in zip(*(each.tolist() for each in np.nonzero(levels == level)), strict=True)
        ]
        picture.cells(cells, step_x, step_y, style.hue, opacity=_opacity(level))
    end = _draw_legend(picture, frame, style.hue, int(grid.max()))
    title = ", ".join(filter(None, (style.label, panel.title)))
    picture.text(8, frame.top - 9, title, bold=True, room=end - 16)
    picture.extend(36)
    times = Scale(0.0, data.duration_s, frame.left, frame.right, "s")
    draw_x_axis(picture, frame, times, "since the run began", grid=False)
    return scale.words("Job time")


def _levels(grid: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the shade of each cell: 0 for no job, `LEVELS` for the fullest."""
    share = np.log1p(grid) / math.log1p(int(grid.max()))
    return np.where(grid > 0, np.ceil(share * LEVELS).clip(1, LEVELS), 0).astype(np.int64)


def _opacity(level: int) -> float:
    return _PALEST + (1 - _PALEST) * level / LEVELS


def _draw_legend(picture: Picture, frame: Frame, hue: str, cap: int) -> float:
    """Draw all shades between the counts at their ends, at the right above a panel; return where it begins."""
    y, high = frame.top - 9, f"{cap:,} jobs"
    x = frame.right - text_width(high, 11)
    picture.text(x, y, high, ink="muted", size=11)
    x -= 12.0 * LEVELS + 6
    for level in range(1, LEVELS + 1):
        picture.rect(x + 12.0 * (level - 1), y - 9, 12, 10, hue, opacity=_opacity(level))
    x -= text_width("1", 11) + 6
    picture.text(x, y, "1", ink="muted", size=11)
    return x
