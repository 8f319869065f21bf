"""Reports: each format is one class that registers itself under the entry-point group ``weighbridge.reports``.

A report plug-in is a class with a `name`, a constructor without arguments and
``write(source: ReportSource, out: TextIO) -> None``. The source gives it the summed-up document (what the JSON report
prints) and the stats file itself, for formats that tell of every job.
"""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from bench_common.cli import check_choice
from bench_common.errors import InfrastructureError
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import DEFAULT_PERCENTILE, build_document

if TYPE_CHECKING:
    import os

GROUP: Final = "weighbridge.reports"


class ReportSource:
    """One stats file to report on. The document is computed once, when a report first asks for it."""

    def __init__(self, stats: StatsFile, pctile: float = DEFAULT_PERCENTILE) -> None:
        self.stats = stats
        self.pctile = pctile

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole report as plain values, see `bench_master.analysis.document.summarise`."""
        return build_document(self.stats, self.pctile)

    @property
    def failed_thresholds(self) -> list[dict[str, Any]]:
        """The verdicts on thresholds that were not met; empty where the scenario has no thresholds."""
        if not self.stats.header.get("thresholds"):
            return []
        return [verdict for verdict in self.document["thresholds"] if not verdict["passed"]]


class Report(Protocol):
    """What a report plug-in is."""

    name: str

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the whole report to `out`."""


def report_formats() -> dict[str, EntryPoint]:
    """Return the registered formats by name, without importing them."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def report_named(name: str) -> Report:
    """Return a new report; raise `UsageError` with the nearest spelling, `InfrastructureError` if it is broken."""
    formats = report_formats()
    check_choice(name, formats, what="report format")
    try:
        report: Report = formats[name].load()()
    except Exception as error:
        # A plug-in is somebody else's code: whatever it raises on import is told as its fault.
        where = formats[name].value
        raise InfrastructureError(
            f"report format {name!r} ({where}) cannot be used: {type(error).__name__}: {error}"
        ) from error
    return report


def write_report(
    path: str | os.PathLike[str],
    out: TextIO,
    format: str = "text",  # noqa: A002  it is called what the command line calls it
    pctile: float = DEFAULT_PERCENTILE,
) -> ReportSource:
    """Write a report of the stats file at `path` to `out`; the source that is returned knows failed thresholds.

    Raises `UsageError` for an unknown format or percentile, `StatsFileError` for a file that cannot be read.
    """
    report = report_named(format)
    source = ReportSource(StatsFile(path), pctile)
    report.write(source, out)
    return source
