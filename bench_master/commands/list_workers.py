"""`bench-master list-workers`: which workers, started by hand, are waiting for this master."""

from __future__ import annotations

import argparse
import json
import sys

from bench_common.errors import ExitCode
from bench_master.commands.muster_options import add_muster_options, mustered
from bench_master.run.muster import Present

NAME = "list-workers"
HELP = "list the workers that are waiting for this master"

COLUMNS = ("WORKER", "HOST", "ENVIRONMENT", "SLOTS", "VERSION", "ENGINES")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = "Listens at the ports of a run, so it cannot be used while one goes on there."
    add_muster_options(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(default: text)")


def run(arguments: argparse.Namespace) -> int:
    """Listen, and print who came."""
    with mustered(arguments) as muster:
        present = muster.gather(arguments.wait)
    if arguments.format == "json":
        rows = [dict(zip((name.lower() for name in COLUMNS), _cells(worker), strict=True)) for worker in present]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return int(ExitCode.OK)
    table = [COLUMNS, *(_cells(worker) for worker in present)]
    if sys.stdout.isatty():
        widths = [max(len(row[place]) for row in table) for place in range(len(COLUMNS))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
    else:
        lines = ["\t".join(row) for row in table]
    sys.stdout.write("\n".join(lines) + "\n")
    if not present:
        sys.stderr.write(f"no worker called within {arguments.wait:g} s\n")
    return int(ExitCode.OK)


def _cells(worker: Present) -> tuple[str, ...]:
    engines = worker.info.get("engines")
    usable = [name for name, status in engines.items() if status.get("usable")] if isinstance(engines, dict) else []
    version = str(worker.info.get("version", "unknown"))
    host = str(worker.info.get("host", "unknown"))
    return (
        worker.worker_id,
        host,
        worker.environment,
        str(worker.slots),
        version,
        ",".join(sorted(usable)) or "none",
    )
