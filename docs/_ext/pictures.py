"""Figures and a page of recorded runs: `docs/data/RUN.stats.gz`, drawn by the program at build time.

Nothing is drawn by hand and no picture is kept: a change of a figure changes the site.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.errors import ExtensionError

from bench_common.stats.reader import StatsFile
from bench_master.cli import run_command_line
from bench_master.figures import FIGURES, NARROW, WIDE, draw_figure
from bench_master.figures.layout import FigureSource, NoFigureError
from bench_master.reports import ReportSource

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_COMMENT = re.compile(r"^\.\. picture (\S+) (\S+)$", re.MULTILINE)
WIDTHS = {"wide": WIDE, "narrow": NARROW}
_SVG = "{http://www.w3.org/2000/svg}"


def with_directives(text: str) -> str:
    """Return the text of a document in which each comment that asks for a picture is a directive."""
    return _COMMENT.sub(r".. picture:: \1 \2", text)


def draw_all(data: Path, generated: Path) -> None:
    """Draw every figure that each recorded run has the data of, and its page.

    One process for all, as most of the time of a command is its start; and not this one, whose logging is Sphinx's.
    """
    for folder in (generated / "figures", generated / "extra" / "examples"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    argv = [sys.executable, __file__, str(data), str(generated)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        raise ExtensionError(f"the recorded runs in {data} cannot be drawn: {ended.stderr or ended.stdout}")


def draw(data: Path, generated: Path) -> None:
    """Draw what ``report-scenario`` draws: the page of each run, and each figure, for a desk and for a telephone."""
    os.chdir(data)  # the page names the stats file as it was given
    for stats in sorted(Path().glob("*.stats.gz")):
        run = stats.name.removesuffix(".stats.gz")
        page = generated / "extra" / "examples" / f"{run}.html"
        # The exit code is that of the run; a report that cannot be made says why on stderr, and is missed below.
        run_command_line(["report-scenario", "-q", "-s", str(stats), "--format", "html", "-f", str(page)])
        source = ReportSource(StatsFile(stats))
        figures = FigureSource(source.document, source.run)
        for name in FIGURES:
            for kind, width in WIDTHS.items():
                with suppress(NoFigureError):
                    svg = draw_figure(name, figures, width, "paper").svg(standalone=True)
                    (generated / "figures" / f"{run}-{name}-{kind}.svg").write_text(svg, "utf-8")


class Picture(Directive):
    """``.. picture:: RUN FIGURE``: the figure of a recorded run, described by the title and caption that it has."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the figure at both widths, of which the style shows one."""
        run, name = self.arguments
        return [self._image(run, name, kind) for kind in WIDTHS]

    def _image(self, run: str, name: str, kind: str) -> nodes.image:
        env = self.state.document.settings.env
        path = Path(env.srcdir) / "generated" / "figures" / f"{run}-{name}-{kind}.svg"
        if not path.exists():
            raise self.error(f"there is no figure {name} of a run {run} in docs/data")
        env.note_dependency(str(path))
        svg = ET.parse(path).getroot()  # noqa: S314  our own file
        words = [found.text or "" for tag in ("title", "desc") if (found := svg.find(f"{_SVG}{tag}")) is not None]
        image = nodes.image(uri=f"/generated/figures/{path.name}", alt=": ".join(words) or f"{name} of {run}")
        image["classes"] += ["picture", kind]
        return image


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("picture", Picture)
    return {}


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
