"""What charts have in reports: their options, those of the HTML report, and that of a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench_common.errors import UsageError
from bench_features.charts import CHART_MODULES, NARROW, WIDE, ChartChoice, try_chart
from bench_master.reports.charts import Charts, Image, PageChart

if TYPE_CHECKING:
    from bench_features.charts.layout import ChartSource
    from bench_master.analysis.report_types import ReportDocument
    from bench_master.options.report import ReportOptions
    from bench_master.run_data.measured import LookMaker, MeasuredRun

METRIC_CHARTS: Final = ("metrics", "trials")
"""The charts that show a metric, which ``--metric`` names."""
BY_CHARTS: Final = ("metrics", "overhead")
"""The charts that have a label as their axis, which ``--by`` names."""
MOST_DRAWN: Final = 40
"""Treatments; of more a page has tables and the charts of `_OF_MANY` alone."""
_OF_MANY: Final = ("forest",)
_FEW: Final = (
    f"With more than {MOST_DRAWN} treatments the other charts cannot be read on a page; "
    "--format svg --chart NAME draws each of them."
)


class ReportCharts(Charts):
    """Draws what a run has the data of."""

    Options = ChartChoice
    formats: ClassVar[frozenset[str]] = frozenset({"svg"})

    def part(self) -> LookMaker:
        """Return the sums that charts are drawn from."""
        from bench_features.charts.chart_sums import ChartSums

        return ChartSums

    def check(self, options: ReportOptions) -> None:
        """Refuse a chart where no report shows a single one, and what the chart does not show."""
        own = options.chart_options.of(ChartChoice)
        for word, value, charts in (("--metric", own.metric, METRIC_CHARTS), ("--by", own.by, BY_CHARTS)):
            if value is not None and own.chart not in charts:
                wanted = " or ".join(f"--chart {name}" for name in charts)
                given = "" if own.chart is None else f", and not --chart {own.chart}"
                raise UsageError(f"{word} {value}: needs {wanted}{given}")
        if own.chart is not None and "svg" not in options.formats:
            raise UsageError(
                f"--chart {own.chart}: --format {options.format} shows no single chart; add "
                "--format svg, or --format svg=FILE"
            )

    def of_page(self, document: ReportDocument, run: MeasuredRun) -> Iterator[PageChart]:
        """Yield the charts that the run has the data of; of many treatments only those that can be read."""
        from bench_features.charts.layout import ChartSource

        source = ChartSource(document, run)
        for name in _OF_MANY if len(document.treatments) > MOST_DRAWN else CHART_MODULES:
            # What is looked for first of a host is the processor; the rest is folded.
            found = _of_page(name, source, strips=False) if name == "host" else _of_page(name, source)
            if found is not None:
                yield found._replace(more=_of_page(name, source, cpu=False)) if name == "host" else found

    def remarks(self, document: ReportDocument) -> tuple[str, str]:
        """Return what is left out of many treatments, and where warm-up is shown."""
        few = _FEW if len(document.treatments) > MOST_DRAWN else ""
        return few, "Warm-up is counted and enters no chart but that of the trials, where it is hollow."

    def of_comparisons(self, document: ReportDocument) -> Image | None:
        """Return the chart of the comparisons, on a light ground."""
        from bench_features.charts.layout import ChartSource

        picture = try_chart("forest", ChartSource(document), theme="paper")
        if picture is None:
            return None
        return Image(picture.svg(standalone=True), picture.width, f"{picture.title}: {picture.description}")


def _of_page(name: str, source: ChartSource, **parts: Any) -> PageChart | None:
    """Return a chart, or parts of it, as a page has it: at both widths; None if the run lacks its data."""
    wide, narrow = (try_chart(name, source, width, **parts) for width in (WIDE, NARROW))
    if wide is None or narrow is None:
        return None
    return PageChart(
        name=wide.name,
        title=wide.title,
        caption=wide.caption,
        wide=wide.svg().replace("<svg ", '<svg class="wide" ', 1),
        narrow=narrow.svg().replace("<svg ", '<svg class="narrow" ', 1),
    )


CHARTS: Final = ReportCharts()
