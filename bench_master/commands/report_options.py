"""What `run-scenario` and `report-scenario` share: how a report is shown."""

from __future__ import annotations

import argparse

from bench_master.analysis.document import DEFAULT_PERCENTILE
from bench_master.reports import report_formats


def add_report_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options of both commands."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument(
        "--format", default="text", choices=sorted(report_formats()), help="format of the report (default: text)"
    )
    formats.add_argument("--csv", action="store_const", const="csv", dest="format", help="the same as --format csv")
    parser.add_argument(
        "--pctile",
        type=percentile,
        default=DEFAULT_PERCENTILE,
        metavar="P",
        help="the percentile to show, above 0 and below 100 (default: 95)",
    )


def percentile(text: str) -> float:
    """Return the percentile that `text` says; raise `argparse.ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 100:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r}: a number above 0 and below 100 expected, such as 95 or 99.9")
    return value
