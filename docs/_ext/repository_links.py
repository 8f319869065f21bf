"""Links between files of the repository (``../README.rst``, ``docs/fleet.rst#tunnels``) as links between pages.

A file that is only named, such as ``docs/fleet.rst`` in the changelog, is a link, too.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.logging import getLogger

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ELSEWHERE = {
    "README.rst": "site/readme",
    "CONTRIBUTING.rst": "site/contributing",
    "CHANGELOG.rst": "site/changelog",
    "LICENSE": "site/licence",
    "benchmarks/README.rst": "site/benchmarks",
}
"""Files outside of docs/, and the pages that include them."""

DATA = "docs/data/"

_INCLUDED = {page: posixpath.dirname(path) for path, page in ELSEWHERE.items()}
logger = getLogger(__name__)


def document_of(folder: str, target: str) -> str | None:
    """Return the page of the file that `target` names, as seen from a folder of the repository; None without one."""
    path = posixpath.normpath(posixpath.join(folder, target))
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("docs/") and path.endswith(".rst"):
        return path.removeprefix("docs/").removesuffix(".rst")
    return None


def example_of(folder: str, target: str) -> str | None:
    """Return the file of the site for one of docs/data, such as a recorded run; None for another file."""
    path = posixpath.normpath(posixpath.join(folder, target))
    return f"examples/{path.removeprefix(DATA)}" if path.startswith(DATA) else None


def folder_of(docname: str) -> str:
    """Return the folder of the repository from which the links of a page are meant."""
    return _INCLUDED.get(docname, posixpath.dirname(f"docs/{docname}"))


class RepositoryLinks(SphinxPostTransform):
    """Point each relative link at a page; the names of pages depend on the builder."""

    default_priority = 5

    def run(self, **_arguments: Any) -> None:
        """Resolve the links of one document; what leads nowhere is a warning."""
        docname = self.env.docname
        extra = Path(self.env.srcdir) / "generated" / "extra"
        for node in self.document.findall(nodes.reference):
            target, _, anchor = node.get("refuri", "").partition("#")
            if not target or node.get("internal") or "://" in target or target.startswith("mailto:"):
                continue
            page = document_of(folder_of(docname), target)
            if page in self.env.all_docs:
                uri = self.app.builder.get_relative_uri(docname, page)
                node["refuri"] = f"{uri}#{anchor}" if anchor else uri
                node["internal"] = True
            elif (example := example_of(folder_of(docname), target)) and (extra / example).exists():
                node["refuri"] = posixpath.join("../" * docname.count("/"), example)
            elif not (extra / posixpath.normpath(posixpath.join(posixpath.dirname(docname), target))).exists():
                logger.warning("link to '%s', which is no page of the site", target, location=node)
        for literal in list(self.document.findall(nodes.literal)):
            page = document_of("", literal.astext())
            if page in self.env.all_docs and page != docname and not isinstance(literal.parent, nodes.reference):
                uri = self.app.builder.get_relative_uri(docname, page)
                link = nodes.reference("", "", internal=True, refuri=uri)
                literal.replace_self(link)
                link += literal


def setup(app: Sphinx) -> None:
    """Register the transform."""
    app.add_post_transform(RepositoryLinks)
