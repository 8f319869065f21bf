"""`bench-master list-workers`: which workers are waiting for this master, and how they are."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_common.cli import file_name
from bench_common.errors import ExitCode
from bench_master.commands.fleet_options import add_discovery_options, open_discovery
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.inventory import load_inventory
from bench_master.formatting import plural
from bench_master.layout import align_table, tab_separated
from bench_master.run.discovery import DiscoveredWorker

NAME = "list-workers"
HELP = "list the workers that are waiting for this master, and how they are"

EPILOG = """\
Listens at the ports of a run, so it cannot be used while one goes on there. CLOCK is how far the worker's monotonic
clock is ahead of this one, give or take what; LOAD its host's load average of the last minute. With -i the workers
of the inventory that are not heard are listed, too.

Exit codes: 0 all of the inventory's were heard (or there is none), 3 some were not.
"""

TITLES = ("WORKER", "HOST", "ENVIRONMENT", "SLOTS", "VERSION", "LOAD", "CLOCK", "HEARD", "ENGINES")


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as it is shown; one that was not heard has nothing but its name and what the inventory says."""

    worker: str
    host: str
    environment: str
    present: DiscoveredWorker | None = None
    clock_offset_ns: tuple[int, int] | None = None

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        present = self.present
        if present is None:
            return self.worker, self.host, self.environment, "-", "-", "-", "-", "not heard", "-"
        load = present.info.get("load")
        return (
            self.worker,
            self.host,
            self.environment,
            str(present.slots),
            str(present.info.get("version", "unknown")),
            f"{load:.2f}" if isinstance(load, float) else "?",
            format_clock(self.clock_offset_ns),
            f"{present.seconds_since_heard():.1f} s ago",
            ",".join(sorted(usable_engines(present))) or "none",
        )

    def document(self) -> dict[str, Any]:
        """Return the row for a program; numbers of the table as text, those that are measured as numbers."""
        document: dict[str, Any] = dict(zip((title.lower() for title in TITLES), self.cells(), strict=True))
        present = self.present
        document["load"] = present.info.get("load") if present is not None else None
        document["clock"] = None
        if self.clock_offset_ns is not None:
            document["clock"] = {"offset_ns": self.clock_offset_ns[0], "bound_ns": self.clock_offset_ns[1]}
        document["heard"] = None if present is None else round(present.seconds_since_heard(), 3)
        document["engine_versions"] = usable_engines(present) if present is not None else {}
        return document


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "-i", "--inventory", type=file_name, metavar="HOSTS.yaml", help="the hosts whose workers should be heard"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="with -i: of this host, range of hosts or group"
    )
    add_discovery_options(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(default: text)")


def run(arguments: argparse.Namespace) -> int:
    """Listen, and print who came."""
    hosts: Sequence[FleetHost] = ()
    if arguments.inventory is not None:
        hosts = load_inventory(arguments.inventory).only(arguments.only).hosts
    with open_discovery(arguments, asks=True) as discovery:
        present = discovery.gather(arguments.wait)
    rows = build_rows(present, hosts, _local_boot_id())
    if arguments.format == "json":
        sys.stdout.write(json.dumps([row.document() for row in rows], indent=2) + "\n")
    else:
        cells = [row.cells() for row in rows]
        lines = align_table(TITLES, cells) if sys.stdout.isatty() else tab_separated([TITLES, *cells])
        sys.stdout.write("\n".join(lines) + "\n")
    missing = sum(row.present is None for row in rows)
    if missing:
        silent = f"{plural(missing, 'worker')} of {arguments.inventory}"
        sys.stderr.write(f"bench-master: {silent} not heard within {arguments.wait:g} s\n")
        return int(ExitCode.INFRASTRUCTURE)
    if not present:
        sys.stderr.write(f"no worker called within {arguments.wait:g} s\n")
    return int(ExitCode.OK)


def build_rows(present: Sequence[DiscoveredWorker], hosts: Sequence[FleetHost], boot_id: str) -> list[WorkerRow]:
    """Return a row for each worker that came and for each that should have come, by name."""
    rows = {
        worker.worker_id: WorkerRow(
            worker.worker_id,
            str(worker.info.get("host", "unknown")),
            worker.environment,
            worker,
            worker.clock(boot_id),
        )
        for worker in present
    }
    for host in hosts:
        for name in host.worker_names:
            rows.setdefault(name, WorkerRow(name, host.name, host.environment or "-"))
    return [rows[name] for name in sorted(rows)]


def usable_engines(worker: DiscoveredWorker) -> dict[str, str]:
    """Return the engines that can be used there, each with its version."""
    engines = worker.info.get("engines")
    if not isinstance(engines, dict):
        return {}
    return {name: str(status.get("version", "")) for name, status in engines.items() if status.get("usable")}


def format_clock(clock_ns: tuple[int, int] | None) -> str:
    """Return an offset with its bound as a person reads it."""
    if clock_ns is None:
        return "?"
    offset, bound = clock_ns
    return "the same" if clock_ns == (0, 0) else f"{offset / 1e6:+.3f} ms, +-{bound / 1e6:.3f}"


def _local_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
