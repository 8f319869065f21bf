"""Which archive a command uses, and what a sub-command of ``archive`` is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from bench_common.argument_types import InvalidValue
from bench_common.units import parse_duration
from bench_features.archive.folder import VARIABLE


class SubCommand(Struct, frozen=True):
    """One sub-command of ``archive``, in the form that modules of `bench_master.commands` have."""

    name: str
    help: str
    """What it does, for ``--help``."""
    Options: type[Any]
    """The Struct that holds its command line."""
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Any], int]
    """Runs with these options; returns the exit code."""


def add_archive_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--archive``."""
    parser.add_argument(
        "--archive",
        metavar="FOLDER",
        help=f"the folder of the archive (default: {VARIABLE} of the environment, else weighbridge in the XDG data "
        "directory)",
    )


def add_filter_options(parser: argparse._ActionsContainer) -> None:
    """Add what selects runs: the options of `RunFilter`."""
    parser.add_argument("--scenario", metavar="NAME", help="only runs of this scenario")
    parser.add_argument("--host", metavar="NAME", help="only runs in which this host took part")
    parser.add_argument(
        "--since", type=moment, metavar="TIME", help="only runs begun since: a date (2026-11-22), or 30d, 12h ago"
    )


_DAYS_S: Final = {"d": 86_400.0, "w": 7 * 86_400.0}


def span(text: str) -> float:
    """Return a span such as ``30d``, ``2w`` or ``12h`` in seconds: a type of arguments."""
    number, unit = text[:-1], text[-1:]
    if unit.isdigit():  # seconds elsewhere; who asks for the last 5 means days
        raise InvalidValue(f"{text!r}: expected a span of time with its unit, such as {text}d or {text}h")
    if unit in _DAYS_S and number.isascii() and number.replace(".", "", 1).isdigit():
        return float(number) * _DAYS_S[unit]
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidValue(f"{text!r}: expected a span of time, such as 30d, 2w or 12h") from error


def moment(text: str) -> float:
    """Return a date, a time or how long ago it was as Unix seconds: a type of arguments."""
    try:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = datetime.now(UTC) - timedelta(seconds=span(text))
        return (found if found.tzinfo else found.astimezone()).timestamp()
    except (InvalidValue, ValueError, OverflowError) as error:
        raise InvalidValue(
            f"{text!r}: expected a date such as 2026-11-22 or 2026-11-22T18:00, or a span such as 30d or 12h"
        ) from error
