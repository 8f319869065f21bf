"""`bench-worker --doctor`: is this machine fit to measure, one finding a line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any

FLAG = "--doctor"
HELP = "check whether this machine is fit to measure"


def configure(group: argparse._ArgumentGroup) -> None:
    """Add the options of the doctor."""
    group.add_argument(
        "--doctor-directory",
        action="append",
        default=[],
        metavar="DIR",
        help="with --doctor: a directory that runs will write to (default: the working and the temporary one)",
    )
    group.add_argument(
        "--doctor-port",
        action="append",
        default=[],
        type=int,
        metavar="PORT",
        help="with --doctor: a TCP port that a master on this host will bind",
    )


def answer(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Yield every finding."""
    from bench_worker.doctor import capture, run_checks
    from bench_worker.host.procfs import LiveHostFiles

    host = capture(LiveHostFiles(), time.sleep, directories=arguments.doctor_directory, ports=arguments.doctor_port)
    for finding in run_checks(host):
        yield finding.to_json()
