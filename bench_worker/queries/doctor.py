"""`bench-worker --doctor`: check whether this machine is fit to measure; one finding a line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FLAG = "--doctor"
HELP = "check whether this machine is fit to measure"


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of this query."""

    doctor_directory: tuple[str, ...]
    """Directories that runs write to."""
    doctor_port: tuple[int, ...]
    """TCP ports that a master on this host will bind."""


def configure(group: argparse._ArgumentGroup) -> None:
    """Add the arguments of this query."""
    group.add_argument(
        "--doctor-directory",
        action="append",
        default=[],
        metavar="DIR",
        help="with --doctor: directory that runs write to (default: the working and the temporary directory)",
    )
    group.add_argument(
        "--doctor-port",
        action="append",
        default=[],
        type=int,
        metavar="PORT",
        help="with --doctor: TCP port that a master on this host will bind",
    )


def run(options: Options) -> Iterable[dict[str, Any]]:
    """Yield every finding."""
    from bench_worker.doctor import capture, run_checks
    from bench_worker.host.procfs import LiveHostFiles

    host = capture(LiveHostFiles(), time.sleep, directories=options.doctor_directory, ports=options.doctor_port)
    for finding in run_checks(host):
        yield finding.to_json()
