"""Sphinx configuration of the documentation site; ``script/docs`` builds it."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent / "script")]
os.environ["COLUMNS"] = "100"  # the width at which argparse wraps the usage of a command

from bench_common import __version__  # noqa: E402  the path comes first

project = "Weighbridge"
author = "the Weighbridge authors"
copyright = "the Weighbridge authors; Apache License 2.0"  # noqa: A001  Sphinx's name for it
version = release = __version__
language = "en"

extensions = ["sphinx.ext.autodoc", "weighbridge_site"]
exclude_patterns = ["_ext", "_static", "_templates", "data"]
highlight_language = "text"  # most `::` blocks are sessions and output
smartquotes = False  # options and quotes are shown as they are typed
nitpicky = True
# Only our own names must resolve: other projects' inventories would need the network.
nitpick_ignore_regex = [("py:.*", r"(?!weighbridge\.).*")]
toc_object_entries = False  # forty options in the contents of a page hide its sections

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "Weighbridge"
html_context = {"site_version": release}  # versions.py says "dev" where it is the working tree
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["generated/extra"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse to pages of a file system
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4f0", "color-brand-content": "#7cc4f0"},
}
