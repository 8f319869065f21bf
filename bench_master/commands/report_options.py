"""How a report is shown: the options that `run-scenario` and `report-scenario` share."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bench_common.cli import InvalidValue
from bench_master.analysis.document import DEFAULT_PERCENTILE
from bench_master.reports import Detail, report_formats


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How a report is shown."""

    format: str = "text"
    """The name of the report format."""
    pctile: float = DEFAULT_PERCENTILE
    """The percentile to show beside the median."""
    quiet: bool = False
    """Show the verdicts alone."""
    verbose: bool = False
    """Show all there is."""

    @property
    def detail(self) -> Detail:
        """How much a report for people shows."""
        return "full" if self.verbose else "verdicts" if self.quiet else "page"


def add_report_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options of `ReportOptions`."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument(
        "--format", default="text", choices=sorted(report_formats()), help="format of the report (default: text)"
    )
    formats.add_argument("--csv", action="store_const", const="csv", dest="format", help="same as --format csv")
    parser.add_argument(
        "--pctile",
        type=percentile,
        default=DEFAULT_PERCENTILE,
        metavar="P",
        help=f"percentile to show, above 0 and below 100 (default: {DEFAULT_PERCENTILE:g})",
    )


def percentile(text: str) -> float:
    """Return `text` as a percentile: a type of arguments."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 100:  # noqa: PLR2004
        raise InvalidValue(f"{text!r}: expected a number above 0 and below 100, such as 95 or 99.9")
    return value
