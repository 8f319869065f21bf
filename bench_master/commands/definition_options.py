"""What `run-scenario` and `convert-scenario` share: what can be said of a bucketbench definition besides its text."""

from __future__ import annotations

import argparse

from bench_common.units import format_duration, parse_duration
from bench_master.bucketbench import Flags
from bench_master.bucketbench.schema import GRACE


def add_definition_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands, but for ``--overhead``, which stands elsewhere in each."""
    group = parser.add_argument_group("bucketbench definitions")
    group.add_argument(
        "--legacy", action="store_true", help="each driver with 1, 2 ... and all of its threads, not only all"
    )
    group.add_argument(
        "--drivers",
        type=_names,
        default=(),
        metavar="A,B",
        help="only these drivers, by type; the second of a type is called Docker-2",
    )
    group.add_argument(
        "--stop-grace",
        type=_grace,
        default=GRACE,
        metavar="TIME",
        help="how long `stop` waits under every driver before it kills (default: %(default)s)",
    )


def definition_flags(arguments: argparse.Namespace) -> Flags:
    """Return what the command line says."""
    return Flags(arguments.legacy, arguments.overhead, arguments.drivers, arguments.stop_grace)


def _grace(text: str) -> str:
    try:
        return format_duration(parse_duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r}: names of drivers expected, such as Docker,CRun")
    return names
