"""What Sphinx needs to make a site of documents that are plain files first: `docs/*.rst` use nothing but docutils.

The source folder is the repository, so that README, CHANGELOG and the rest are pages at their own places. Added are
the navigation, from the lists of links in docs/index.rst, links between files as links between pages, and pictures
and reports of recorded runs, where a document has ``.. picture RUN CHART`` or ``.. report RUN`` (`pictures`).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pictures
from docutils import nodes
from docutils.parsers.rst.directives.parts import Contents

if TYPE_CHECKING:
    from sphinx.application import Sphinx

INDEX = "docs/index"
_SECTION = re.compile(r"^(\S.*)\n=+$", re.MULTILINE)
_ENTRY = re.compile(r"^- `[^`<]+ <([^>`]+)\.rst>`_", re.MULTILINE)


class NoContents(Contents):
    """The theme shows the contents of each page beside it, and refuses a list of them within the page."""

    def run(self) -> list[Any]:
        """Return nothing."""
        return []


def prepare_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a document what plain docutils has no words for."""
    source[0] = pictures.with_directives(source[0])
    if docname == INDEX:
        source[0] += navigation(source[0], app.env.found_docs)


def navigation(index: str, documents: set[str]) -> str:
    """Return a table of contents for each section of the index that has a list of links, and one of the rest."""
    _, *parts = _SECTION.split(index)
    listed = {title: _ENTRY.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}
    linked = {posixpath.normpath(f"docs/{target}") for targets in listed.values() for target in targets}
    listed["More"] = [f"/{name}" for name in sorted(documents - linked - {INDEX})]
    return "".join(
        f"\n\n.. toctree::\n   :hidden:\n   :caption: {title}\n\n   " + "\n   ".join(targets)
        for title, targets in listed.items()
        if targets
    )


def lead_to_pages(_app: Sphinx, doctree: nodes.document, _docname: str) -> None:
    """Point links between documents at their pages, which are beside each other as the documents are."""
    for node in doctree.findall(nodes.reference):
        if "://" not in node.get("refuri", "://"):
            node["refuri"] = re.sub(r"\.rst(?=$|#)", ".html", node["refuri"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register all parts."""
    app.add_directive("contents", NoContents, override=True)
    app.connect("config-inited", lambda app, _config: pictures.draw_all(Path(app.confdir)))
    app.connect("source-read", prepare_source)
    app.connect("doctree-resolved", lead_to_pages)
    pictures.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
