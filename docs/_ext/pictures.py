"""Charts, pages and reports of recorded runs, `docs/data/RUN.stats.gz`, by the program at build time.

Nothing is drawn or written by hand and no picture is kept: a change of a chart or a report changes the site.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import terminal_recording
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.errors import ExtensionError

from bench_common.stats.reader import StatsFile
from bench_features.charts import CHART_MODULES, NARROW, WIDE, draw_chart
from bench_features.charts.layout import ChartSource, NoChartError
from bench_master.options.report import write_report_file
from bench_master.reports import Detail, ReportSource, parts_of, report_named

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_COMMENT = re.compile(r"^\.\. (picture|report|recording) (\S+(?: \S+)?)$", re.MULTILINE)
_SVG = "{http://www.w3.org/2000/svg}"
_WIDTHS = {"wide": WIDE, "narrow": NARROW}
"""Of each picture; the style sheet shows the one that fits the screen."""


def with_directives(text: str) -> str:
    """Return the text of a document with each comment that asks for a picture or a report as a directive."""
    return _COMMENT.sub(r".. \1:: \2", text)


def draw_all(docs: Path) -> None:
    """Draw every chart that each recorded run has the data of, and its page, in docs/generated.

    One process for all, as most of the time of a command is its start; and not this one, whose logging is Sphinx's.
    """
    shutil.rmtree(docs / "generated", ignore_errors=True)
    for name in ("charts", "texts", "extra/docs/data"):
        (docs / "generated" / name).mkdir(parents=True)
    argv = [sys.executable, __file__, str(docs)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        raise ExtensionError(f"the recorded runs in {docs}/data cannot be drawn: {ended.stderr or ended.stdout}")


def draw(docs: Path) -> None:
    """Write what ``report-scenario`` makes: reports and page of each run, and each chart.

    The pages are beside the stats file itself and its scenario, where the repository has the stats file.
    """
    os.chdir(docs / "data")  # the page names the stats file as it was given
    texts, files = docs / "generated" / "texts", docs / "generated" / "extra" / "docs" / "data"
    for stats in sorted(Path().glob("*.stats.gz")):
        run = stats.name.removesuffix(".stats.gz")
        read = StatsFile(stats)
        # One source for all: to sum a run up takes longer than to write its reports.
        source = ReportSource(read, also=parts_of(["text", "html"]))
        reports: tuple[tuple[str, Detail, Path], ...] = (
            ("html", "answer", files / f"{run}.html"),
            ("text", "page", texts / f"{run}.txt"),
            ("text", "full", files / f"{run}.txt"),
        )
        for name, source.detail, path in reports:
            write_report_file(report_named(name), source, path)
        shutil.copy(stats, files)
        (files / f"{run}.yaml").write_text(read.header.scenario.text, "utf-8")
        charts = ChartSource(source.document, source.run)
        for name in CHART_MODULES:
            with suppress(NoChartError):
                for kind, width in _WIDTHS.items():
                    svg = draw_chart(name, charts, width, "paper").svg(standalone=True)
                    (docs / "generated" / "charts" / f"{run}-{name}-{kind}.svg").write_text(svg, "utf-8")
    for recording in sorted(Path().glob("*.cast")):
        _, screen = terminal_recording.read(recording)
        (texts / f"{recording.stem}.txt").write_text(screen, "utf-8")
        shutil.copy(recording, files)


class Picture(Directive):
    """``.. picture:: RUN CHART``: the chart of a recorded run, described by the title and caption that it has."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the chart in both widths."""
        return [self._image(kind) for kind in _WIDTHS]

    def _image(self, kind: str) -> nodes.image:
        path = _generated(self, f"charts/{'-'.join([*self.arguments, kind])}.svg")
        svg = ET.parse(path).getroot()  # noqa: S314  our own file
        words = [found.text or "" for tag in ("title", "desc") if (found := svg.find(f"{_SVG}{tag}")) is not None]
        return nodes.image(uri=f"/docs/generated/charts/{path.name}", alt=": ".join(words), classes=["picture", kind])


class RunReport(Directive):
    """``.. report:: RUN``, the text report of a run; ``.. recording:: NAME``, the last screen of a terminal."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the text as it is in a terminal."""
        text = _generated(self, f"texts/{self.arguments[0]}.txt").read_text("utf-8").rstrip("\n")
        return [nodes.literal_block(text, text, language="text")]


def _generated(directive: Directive, name: str) -> Path:
    env = directive.state.document.settings.env
    path = Path(env.srcdir) / "docs" / "generated" / name
    if not path.exists():
        raise directive.error(f"docs/data has nothing for {directive.name} {' '.join(directive.arguments)}")
    env.note_dependency(str(path))
    return path


def setup(app: Sphinx) -> None:
    """Register the directives."""
    app.add_directive("picture", Picture)
    app.add_directive("report", RunReport)
    app.add_directive("recording", RunReport)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
