"""The PNG and PDF reports: one chart as a file for papers and slides, drawn by vl-convert's rasteriser.

It renders the same SVG as ``--format svg``, in the colours for paper. The font is one that vl-convert carries, so
that the file looks the same wherever it is made; letters that it lacks are taken from the fonts of the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import ClassVar, Final, TextIO

from bench_common.errors import UsageError
from bench_features.charts.picture import FONT
from bench_features.charts.svg import report_chart
from bench_master.reports import ReportSource

PAPER_FONT: Final = "Liberation Sans, Arial, sans-serif"
"""vl-convert carries the first. It is narrower than the font that texts are measured by, so none leaves its place."""
PNG_PPI: Final = 144.0
"""Pixels per inch; a chart has 72, so a file is 1,520 pixels wide, and as large on paper as a PDF."""


class _PaperReport(ABC):
    """Writes the chart that ``--chart`` names, else the first one that the run has the data of."""

    name: ClassVar[str]
    needs_times: ClassVar[bool] = False

    def __init__(self) -> None:
        if find_spec("vl_convert") is None:
            raise UsageError(
                f"--format {self.name}: needs vl-convert-python, which is not installed: "
                "pip install 'weighbridge[paper]'; --format svg needs nothing"
            )

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the bytes of the chart below the text of `out`. Raises `UsageError` for a terminal."""
        binary = getattr(out, "buffer", None)
        if binary is None or out.isatty():
            raise UsageError(
                f"--format {self.name}: this is no text for a terminal; name a file: --format {self.name}=FILE"
            )
        data = self._render(report_chart(source).svg(standalone=True).replace(FONT, PAPER_FONT))
        out.flush()
        binary.write(data)

    @abstractmethod
    def _render(self, svg: str) -> bytes:
        """Return the file's content for a chart as SVG."""


class PngReport(_PaperReport):
    """Writes the chart as pixels."""

    name: ClassVar[str] = "png"

    def _render(self, svg: str) -> bytes:
        import vl_convert

        return bytes(vl_convert.svg_to_png(svg, ppi=PNG_PPI))


class PdfReport(_PaperReport):
    """Writes the chart as lines and letters that stay sharp at any size."""

    name: ClassVar[str] = "pdf"

    def _render(self, svg: str) -> bytes:
        import vl_convert

        return bytes(vl_convert.svg_to_pdf(svg))
