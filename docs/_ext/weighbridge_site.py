"""Make a site of documents that are plain files first, and add the pages that the program itself is the source of.

`docs/*.rst` use nothing but docutils, so that a code host shows them; what Sphinx needs beyond is added here:

- the navigation, from the lists of links in docs/index.rst;
- links to files of the repository, as links to their pages (`repository_links`);
- pictures and reports of recorded runs, where a document has ``.. picture RUN CHART`` or ``.. report RUN``
  (`pictures`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accessibility
import pictures
import repository_links
from docutils.parsers.rst import Directive

if TYPE_CHECKING:
    from sphinx.application import Sphinx

INDEX = "index"
_SECTION = re.compile(r"^(?P<title>\S.*)\n=+$", re.MULTILINE)
_ENTRY = re.compile(r"^- `[^`<]+ <(?P<target>[^>`]+)>`_", re.MULTILINE)
_BACKQUOTED = re.compile(r"(?<![`:\w])`([^`<>]+)`(?![`_\w])")


class NoContents(Directive):
    """The theme shows the contents of each page beside it, so a list of them within the page is left out."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = {"local": lambda _: True, "depth": int, "class": str, "backlinks": str}  # noqa: RUF012  docutils' way

    def run(self) -> list[Any]:
        """Return nothing."""
        return []


def generate(app: Sphinx) -> None:
    """Write everything that the program is the source of."""
    pictures.draw_all(Path(app.srcdir) / "data", Path(app.srcdir) / "generated")


def prepare_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a document what plain docutils has no words for."""
    del app
    source[0] = pictures.with_directives(source[0])
    if docname == INDEX:
        source[0] += navigation(source[0])


def navigation(index: str) -> str:
    """Return the tables of contents that the sections of docs/index.rst stand for, one with each heading."""
    heads = list(_SECTION.finditer(index))
    parts = []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        text = index[head.end() : following.start() if following else len(index)]
        pages = [repository_links.document_of("docs", entry["target"]) for entry in _ENTRY.finditer(text)]
        if pages:
            entries = "\n   ".join(page for page in pages if page)
            parts.append(f"\n\n.. toctree::\n   :hidden:\n   :caption: {head['title']}\n\n   {entries}\n")
    return "".join(parts)


def literal_names(_app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Show names in single backquotes of docstrings as code."""
    lines[:] = [_BACKQUOTED.sub(r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all parts."""
    app.add_directive("contents", NoContents, override=True)
    app.connect("config-inited", lambda app, _config: generate(app))
    app.connect("source-read", prepare_source)
    app.connect("autodoc-process-docstring", literal_names)
    accessibility.setup(app)
    pictures.setup(app)
    repository_links.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
