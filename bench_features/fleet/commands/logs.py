"""`bench-master fleet logs`: fetch the logs of the workers of an inventory, one file each."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bench_common.errors import ExitCode, InfrastructureError
from bench_common.options import Option, add_options
from bench_common.streams import program_name, tell
from bench_features.fleet.fleet import Fleet
from bench_features.fleet.options import InventoryOptions, inventory_option, launch_spec, selected_inventory
from bench_features.fleet.progress import FleetProgress, report_new_host_keys

DEFAULT_DIRECTORY = Path("weighbridge-logs")
EPILOG = "A worker that starts again overwrites its log. Of a long log the last 8 MiB are fetched."


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `fleet logs`."""

    fleet: InventoryOptions
    directory: Annotated[
        Path,
        Option(
            "-d, --directory DIR",
            "directory for the logs, WORKER.log each; existing ones are replaced (default: %(default)s)",
        ),
    ] = DEFAULT_DIRECTORY
    quiet: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_options(parser, Options, inventory=inventory_option(required=True))


def run(options: Options) -> int:
    """Fetch the logs; print their paths."""
    inventory = selected_inventory(options.fleet)
    spec = launch_spec(options.fleet, inventory)
    options.directory.mkdir(parents=True, exist_ok=True)
    with Fleet(inventory, spec, FleetProgress(inventory, quiet=options.quiet)) as fleet:
        logs = fleet.logs()
    report_new_host_keys(spec.known_hosts, quiet=options.quiet)
    status = ExitCode.OK
    for worker, log in logs.items():
        if isinstance(log, InfrastructureError):
            tell(f"{program_name()}: {worker}: {log}")
            status = ExitCode.INFRASTRUCTURE
        else:
            path = options.directory / f"{worker}.log"
            path.write_text(log, encoding="utf-8")
            sys.stdout.write(f"{path}\n")
    return int(status)
