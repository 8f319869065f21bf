"""Sphinx configuration of the documentation site; the source folder is the repository."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from bench_common import __version__

project = "Weighbridge"
author = "the Weighbridge authors"
copyright = "the Weighbridge authors; Apache License 2.0"  # noqa: A001  Sphinx's name for it
version = release = __version__
language = "en"

extensions = ["sphinx.ext.autodoc", "weighbridge_site"]
include_patterns = ["*.rst", "benchmarks/README.rst", "docs/**.rst"]
exclude_patterns = [".*", "build", "tests"]
root_doc = "docs/index"
highlight_language = "text"  # most `::` blocks are sessions and output
default_role = "code"  # docstrings have names in single backquotes
smartquotes = False  # options and quotes are shown as they are typed
nitpicky = True
# Only our own names must resolve: other projects' inventories would need the network.
nitpick_ignore_regex = [("py:.*", r"(?!weighbridge\.).*")]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "Weighbridge"
html_context = {"site_version": release}  # versions.py says "dev" where it is the working tree
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["../LICENSE", "generated/extra"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse to pages of a file system
