"""Charts, pages, reports and the gallery of recorded runs, `docs/data/RUN.stats.gz`, by the program at build time.

Nothing is drawn or written by hand and no picture is kept: a change of a chart or a report changes the site.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import terminal_recording
from docutils import nodes
from docutils.parsers.rst import Directive
from reference_pages.rst import code, heading, plain
from sphinx.errors import ExtensionError

from bench_common.stats.reader import StatsFile
from bench_features.charts import CHART_MODULES, NARROW, WIDE, draw_chart
from bench_features.charts.layout import ChartSource, NoChartError
from bench_master.formatting import format_bytes
from bench_master.options.report import write_report_file
from bench_master.reports import Detail, ReportSource, parts_of, report_named

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_COMMENT = re.compile(r"^\.\. (picture|report|recording) (\S+(?: \S+)?)$", re.MULTILINE)
WIDTHS = {"wide": WIDE, "narrow": NARROW}
FILES = {
    "html": "report as a page",
    "txt": "report as text",
    "stats.gz": "stats file",
    "yaml": "scenario",
}
"""The files of a run in the gallery, by the ends of their names."""
_SVG = "{http://www.w3.org/2000/svg}"


def with_directives(text: str) -> str:
    """Return the text of a document with each comment that asks for a picture or a report as a directive."""
    return _COMMENT.sub(r".. \1:: \2", text)


def draw_all(data: Path, generated: Path) -> None:
    """Draw every chart that each recorded run has the data of, and its page.

    One process for all, as most of the time of a command is its start; and not this one, whose logging is Sphinx's.
    """
    for folder in (generated / "charts", generated / "texts", generated / "extra" / "examples"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    argv = [sys.executable, __file__, str(data), str(generated)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        raise ExtensionError(f"the recorded runs in {data} cannot be drawn: {ended.stderr or ended.stdout}")


def draw(data: Path, generated: Path) -> None:
    """Write what ``report-scenario`` makes: reports and page of each run, and each chart, for desk and telephone.

    Beside them are the stats file itself and its scenario, and the gallery, which has a section for each run.
    """
    os.chdir(data)  # the page names the stats file as it was given
    examples, texts = generated / "extra" / "examples", generated / "texts"
    sections = []
    for stats in sorted(Path().glob("*.stats.gz")):
        run = stats.name.removesuffix(".stats.gz")
        read = StatsFile(stats)
        # One source for all: to sum a run up takes longer than to write its reports.
        source = ReportSource(read, also=parts_of(["text", "html"]))
        reports: tuple[tuple[str, Detail, Path], ...] = (
            ("html", "answer", examples / f"{run}.html"),
            ("text", "page", texts / f"{run}.txt"),
            ("text", "full", examples / f"{run}.txt"),
            ("text", "answer", texts / f"{run}-answer.txt"),
        )
        for name, source.detail, path in reports:
            write_report_file(report_named(name), source, path)
        shutil.copy(stats, examples)
        (examples / f"{run}.yaml").write_text(read.header["scenario"]["text"], "utf-8")
        sections.append(_section(run, read.header, texts, examples))
        charts = ChartSource(source.document, source.run)
        for name in CHART_MODULES:
            for kind, width in WIDTHS.items():
                with suppress(NoChartError):
                    svg = draw_chart(name, charts, width, "paper").svg(standalone=True)
                    (generated / "charts" / f"{run}-{name}-{kind}.svg").write_text(svg, "utf-8")
    for recording in sorted(Path().glob("*.cast")):
        _, screen = terminal_recording.read(recording)
        (texts / f"{recording.stem}.txt").write_text(screen, "utf-8")
        shutil.copy(recording, examples)
    (generated / "gallery.txt").write_text("\n".join(sections), "utf-8")


def _section(run: str, header: dict[str, Any], texts: Path, examples: Path) -> str:
    """Return the part of the gallery about one run: what it is, its command, its answer, and each of its files."""
    scenario = header["scenario"]
    sizes = {suffix: format_bytes((examples / f"{run}.{suffix}").stat().st_size) for suffix in FILES}
    links = [f"- `{words} <../examples/{run}.{suffix}>`__ ({sizes[suffix]})" for suffix, words in FILES.items()]
    day, version = header["created"].split("T")[0], header["versions"]["weighbridge"]
    parts = [
        heading(run),
        plain(scenario["description"]),
        f"Recorded on {day} with Weighbridge {version}:",
        code(shlex.join(header["argv"])),
        "\n".join(links),
        code((texts / f"{run}-answer.txt").read_text("utf-8")),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


class Picture(Directive):
    """``.. picture:: RUN CHART``: the chart of a recorded run, described by the title and caption that it has."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the chart at both widths, of which the style shows one."""
        run, name = self.arguments
        return [self._image(run, name, kind) for kind in WIDTHS]

    def _image(self, run: str, name: str, kind: str) -> nodes.image:
        env = self.state.document.settings.env
        path = Path(env.srcdir) / "generated" / "charts" / f"{run}-{name}-{kind}.svg"
        if not path.exists():
            raise self.error(f"there is no chart {name} of a run {run} in docs/data")
        env.note_dependency(str(path))
        svg = ET.parse(path).getroot()  # noqa: S314  our own file
        words = [found.text or "" for tag in ("title", "desc") if (found := svg.find(f"{_SVG}{tag}")) is not None]
        image = nodes.image(uri=f"/generated/charts/{path.name}", alt=": ".join(words) or f"{name} of {run}")
        image["classes"] += ["picture", kind]
        return image


class RunReport(Directive):
    """``.. report:: RUN``, the text report of a run; ``.. recording:: NAME``, the last screen of a terminal."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the text as it is in a terminal."""
        (run,) = self.arguments
        env = self.state.document.settings.env
        path = Path(env.srcdir) / "generated" / "texts" / f"{run}.txt"
        if not path.exists():
            raise self.error(f"there is no {self.name} {run} in docs/data")
        env.note_dependency(str(path))
        text = path.read_text("utf-8").rstrip("\n")
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("picture", Picture)
    app.add_directive("report", RunReport)
    app.add_directive("recording", RunReport)
    return {}


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
