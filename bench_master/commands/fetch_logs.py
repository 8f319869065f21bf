"""`bench-master fetch-logs`: the logs of the workers of an inventory, one file each."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench_common.cli import file_name
from bench_common.errors import ExitCode, InfrastructureError
from bench_master.commands.fleet_options import (
    FleetProgress,
    add_inventory_options,
    launch_spec,
    report_new_host_keys,
    selected_inventory,
)
from bench_master.fleet.fleet import Fleet

NAME = "fetch-logs"
HELP = "fetch the logs of the workers of an inventory"

DEFAULT_DIRECTORY = Path("weighbridge-logs")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = "A log begins anew with its worker. Of a long one the last 8 MiB are fetched."
    add_inventory_options(parser, required=True)
    parser.add_argument(
        "-d",
        "--directory",
        type=file_name,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help="where to put them, as WORKER.log; what is there is replaced (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Fetch them, and print where they are."""
    inventory = selected_inventory(arguments)
    errand = launch_spec(arguments, inventory)
    directory: Path = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    with Fleet(inventory, errand, FleetProgress(inventory, quiet=arguments.quiet)) as fleet:
        logs = fleet.logs()
    report_new_host_keys(errand.known_hosts, quiet=arguments.quiet)
    status = ExitCode.OK
    for worker, log in logs.items():
        if isinstance(log, InfrastructureError):
            sys.stderr.write(f"bench-master: {worker}: {log}\n")
            status = ExitCode.INFRASTRUCTURE
        else:
            path = directory / f"{worker}.log"
            path.write_text(log, encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    return int(status)
