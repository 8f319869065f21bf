"""Charts: pictures of a run, made from the report document and the stats file.

Each is drawn by a function of the source and an empty picture, which raises `NoChartError` where the run lacks its
data. Nothing is drawn that misleads: no bar of a mean without spread, no smoothed line, no percentile of
too few values, no area on an axis that does not begin at 0.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Struct

from bench_common.cli import check_choice
from bench_common.options import Option

if TYPE_CHECKING:
    from bench_features.charts.layout import ChartSource
    from bench_features.charts.picture import Picture
    from bench_master.reports.palette import Theme

CHART_MODULES: Final = {
    "forest": "effects",
    "trials": "trials",
    "metrics": "metrics",
    "ecdf": "distributions",
    "phases": "phases",
    "why": "why",
    "host": "host",
    "scaling": "scaling",
    "rate": "over_time",
    "overhead": "metrics",
}
"""The module of each chart by its name, in the order of a page; only what is drawn is loaded."""


class ChartChoice(Struct, frozen=True):
    """What somebody asked to be drawn."""

    chart: Annotated[
        str | None,
        Option(
            "--chart",
            "chart to draw, with --format svg (default: the first that the run has the data of)",
            choices=list(CHART_MODULES),
        ),
    ] = None
    metric: Annotated[
        str | None,
        Option("--metric NAME", "metric to draw, with --chart metrics or trials (default: the primary ones)"),
    ] = None
    by: Annotated[
        str | None,
        Option(
            "--by LABEL",
            "label to draw it by, such as threads, with --chart metrics or overhead (default: the first label of "
            "numbers that varies)",
        ),
    ] = None


WIDE: Final = 760
"""Pixels of a chart on a page, and on paper."""
NARROW: Final = 350
"""Pixels of a chart on a telephone."""


def draw_chart(name: str, source: ChartSource, width: int = WIDE, theme: Theme = "page", **parts: Any) -> Picture:
    """Return a chart, or `parts` of it. Raises `UsageError` for an unknown name, `NoChartError` without its data."""
    from bench_features.charts.layout import Chart

    check_choice(name, CHART_MODULES, what="chart")
    picture = Chart(name, width, theme)
    getattr(import_module(f"{__name__}.{CHART_MODULES[name]}"), f"draw_{name}")(source, picture, **parts)
    document = source.document
    if document.run_state != "complete":
        picture.caption = f"The run is {document.run_state}. {picture.caption}"
    if document.run.noop:
        picture.caption = f"No-op run: the harness's own times. {picture.caption}"
    return picture


def try_chart(
    name: str, source: ChartSource, width: int = WIDE, theme: Theme = "page", **parts: Any
) -> Picture | None:
    """Return a chart; None if the run lacks its data."""
    from bench_features.charts.layout import NoChartError

    try:
        return draw_chart(name, source, width, theme, **parts)
    except NoChartError:
        return None
