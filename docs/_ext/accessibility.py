"""What the theme leaves to do for screen readers and keyboards, in each page when the site is finished.

Captions of the navigation are headings of a level, the two side bars have names, and what scrolls sideways (code,
wide tables) can be scrolled by keyboard. axe-core finds nothing else; `tests/browser/test_site.py` keeps it so.
Pages have an empty icon: without one, a browser asks the host for /favicon.ico.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_VIEWPORT: Final = '<meta name="viewport" content="width=device-width,initial-scale=1">'
_SCHEME: Final = '<meta name="color-scheme" content="light dark">'
REPLACED: Final = {
    f"{_VIEWPORT}\n    {_SCHEME}": f'{_VIEWPORT}\n    <link rel="icon" href="data:,">\n    {_SCHEME}',
    'class="caption" role="heading">': 'class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper docutils container">': '<div class="table-wrapper docutils container" tabindex="0">',
}


def improve(app: Sphinx, error: Exception | None) -> None:
    """Complete the pages that were written; those of earlier builds are complete."""
    if error is not None or app.builder.format != "html":
        return
    site = Path(app.outdir)
    for path in site.rglob("*.html"):
        if "examples" in path.relative_to(site).parts:
            continue  # a report is no page of the theme
        text = path.read_text("utf-8")
        better = text
        for old, new in REPLACED.items():
            better = better.replace(old, new)
        if better != text:
            path.write_text(better, "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the step."""
    app.connect("build-finished", improve)
    return {}
