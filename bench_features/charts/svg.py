"""The SVG report: one chart as a file of its own, with title, caption and literal colours, for papers."""

from __future__ import annotations

from typing import TextIO

from bench_common.errors import UsageError
from bench_features.charts import CHART_MODULES, WIDE, ChartChoice, draw_chart, try_chart
from bench_features.charts.layout import ChartSource, NoChartError
from bench_features.charts.picture import Picture, wrap_text
from bench_master.reports import ReportSource


class SvgReport:
    """Writes the chart that ``--chart`` names, else the first one that the run has the data of."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the chart; without a name, and data for any, a picture that says so."""
        out.write(report_chart(source).svg(standalone=True))


def report_chart(source: ReportSource) -> Picture:
    """Return the chart of a report in the colours for papers. Raises `UsageError` if the run lacks its data."""
    choice = source.chart_options.of(ChartChoice)
    charts = ChartSource(source.document, source.run, choice=choice)
    if choice.chart is not None:
        try:
            return draw_chart(choice.chart, charts, WIDE, "paper")
        except NoChartError as error:
            there = [name for name in CHART_MODULES if try_chart(name, charts)]
            instead = f"; there are: {', '.join(there)}" if there else ""
            raise UsageError(f"{source.stats.path}: no chart {choice.chart}: {error}{instead}") from error
    drawn = (try_chart(name, charts, WIDE, "paper") for name in CHART_MODULES)
    return next(filter(None, drawn), None) or _empty(source)


def _empty(source: ReportSource) -> Picture:
    picture = Picture("none", WIDE, "paper")
    picture.title = "No chart"
    words = "; ".join(source.document.incomplete) or source.missing_results or "nothing was measured"
    for line in wrap_text(words, WIDE - 16.0, lines=6):
        picture.text(8, picture.extend(16) + 14, line)
    picture.extend(8)
    picture.caption = f"The run is {source.document.run_state}: there is no data for any chart."
    return picture
