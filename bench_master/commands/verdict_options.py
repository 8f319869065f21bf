"""The options of verdicts on the differences between treatments: for reports, runs and comparisons of runs."""

from __future__ import annotations

import argparse
import re
from typing import Final

from bench_common.cli import InvalidValue

MAX_MARGIN_PERCENT: Final = 100.0
FAILURES: Final = ("worst", "at-random")


def add_verdict_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of `VerdictOptions`."""
    parser.add_argument(
        "--baseline",
        type=baseline_labels,
        default={},
        metavar="LABEL=VALUE[,LABEL=VALUE]",
        help="compare with the treatments that have these labels, such as engine=docker (default: the scenario's, "
        "else the first treatment)",
    )
    parser.add_argument(
        "--margin",
        type=margin,
        metavar="P%",
        help="smaller differences count as none (default: the scenario's, else 3%%)",
    )
    parser.add_argument(
        "--failures",
        choices=FAILURES,
        default="worst",
        help="failed jobs count as the worst both ways, or are left out as if they failed at random (default: worst)",
    )


def baseline_labels(text: str) -> dict[str, str]:
    """Return ``LABEL=VALUE[,LABEL=VALUE]`` as labels: a type of arguments."""
    labels: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (one.strip() for one in part.partition("="))
        if not (key and equals and value):
            raise InvalidValue(f"{text!r}: expected labels such as engine=docker or engine=docker,network=host")
        if key in labels:
            raise InvalidValue(f"{text!r}: {key} is given twice")
        labels[key] = value
    return labels


def margin(text: str) -> float:
    """Return ``3%`` as a share: a type of arguments."""
    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*(%?)\s*", text)
    if match is None or not match[2]:
        hint = f" (did you mean '{text.strip()}%'?)" if match else ""
        raise InvalidValue(f"{text!r}: expected a percentage such as 3%{hint}")
    if not 0.0 < float(match[1]) < MAX_MARGIN_PERCENT:
        raise InvalidValue(f"{text!r}: expected more than 0% and less than {MAX_MARGIN_PERCENT:g}%")
    return float(match[1]) / 100.0
