"""The reference of report formats and charts, from the docstrings of what writes and draws them."""

from __future__ import annotations

from importlib import import_module

from bench_common import load_entry, registered
from bench_features.charts import CHART_MODULES
from reference_pages.rst import document, entry, heading, paragraph, plain


def page() -> str:
    """Return the document."""
    formats = {one.name: load_entry(one) for one in registered("weighbridge.reports")}
    charts = {
        name: getattr(import_module(f"bench_features.charts.{module}"), f"draw_{name}")
        for name, module in CHART_MODULES.items()
    }
    return document(
        "Report formats and charts",
        paragraph("`Reports <../user-guide.rst#reports>`_ explains how to ask for them."),
        heading("Formats"),
        "``--format NAME``:",
        *(entry(f"``{name}``", _first(formats[name])) for name in sorted(formats)),
        heading("Charts"),
        "``--format svg --chart NAME``, and those of the page that the run has the data of:",
        *(entry(f"``{name}``", _first(drawing)) for name, drawing in charts.items()),
    )


def _first(documented: object) -> str:
    """Return the first paragraph of a docstring, without its verb."""
    text = (documented.__doc__ or "").partition("\n\n")[0].removeprefix("Writes ").removeprefix("Draw ")
    return plain(text[:1].upper() + text[1:])
