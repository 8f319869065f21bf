"""The SVG report: one figure as a file of its own, with title, caption and literal colours, for papers."""

from __future__ import annotations

from typing import ClassVar, TextIO

from bench_common.errors import UsageError
from bench_master.figures import FIGURES, WIDE, draw_figure
from bench_master.figures.layout import FigureSource, NoFigureError
from bench_master.figures.picture import Picture, wrap_text
from bench_master.reports import ReportSource


class SvgReport:
    """Writes the figure that ``--figure`` names, else the first one that the run has the data of."""

    name: ClassVar[str] = "svg"
    needs_times: ClassVar[bool] = False

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the figure; without a name, and data for any, a picture that says so."""
        out.write(report_figure(source).svg(standalone=True))


def report_figure(source: ReportSource) -> Picture:
    """Return the figure of a report in the colours for papers. Raises `UsageError` if the run lacks its data."""
    choice = source.choice
    figures = FigureSource(source.document, source.run, choice=choice)
    if choice.figure is not None:
        try:
            return draw_figure(choice.figure, figures, WIDE, "paper")
        except NoFigureError as error:
            there = [name for name in FIGURES if _has(name, figures)]
            instead = f"; there are: {', '.join(there)}" if there else ""
            raise UsageError(f"{source.stats.path}: no figure {choice.figure}: {error}{instead}") from error
    for name in FIGURES:
        try:
            return draw_figure(name, figures, WIDE, "paper")
        except NoFigureError:
            continue
    return _empty(source)


def _has(name: str, figures: FigureSource) -> bool:
    try:
        draw_figure(name, figures)
    except NoFigureError:
        return False
    return True


def _empty(source: ReportSource) -> Picture:
    picture = Picture("none", WIDE, "paper")
    picture.title = "No figure"
    words = "; ".join(source.document.incomplete) or source.missing_results or "nothing was measured"
    for line in wrap_text(words, WIDE - 16.0, lines=6):
        picture.text(8, picture.extend(16) + 14, line)
    picture.extend(8)
    picture.caption = f"The run is {source.document.run_state}: there is no data for any figure."
    return picture
