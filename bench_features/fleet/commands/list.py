"""`bench-master fleet list`: list the workers that wait for this master, and their state."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct

from bench_common.errors import ExitCode
from bench_common.options import Option, add_options
from bench_common.streams import program_name, tell
from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.inventory import load_inventory
from bench_features.fleet.options import DiscoveryOptions, InventoryOptions, inventory_option, open_discovery
from bench_master.formatting import align_table, plural, tab_separated
from bench_master.progress_message import progress_message
from bench_master.run.discovery import DiscoveredWorker

EPILOG = """\
Listens on the ports of a run, so it does not work during one. CLOCK is the offset of the worker's monotonic clock
from this host's, with its uncertainty; LOAD is its host's load average over the last minute. With -i the list also
has the workers of the inventory that did not connect.

Exit codes: 0 all workers of the inventory connected (or no inventory given), 3 some did not.
"""

TITLES = ("WORKER", "HOST", "ENVIRONMENT", "SLOTS", "VERSION", "LOAD", "CLOCK", "HEARD", "ENGINES")


class WorkerRow(Struct, frozen=True):
    """One row of the table; for a worker that did not connect it holds what the inventory says."""

    worker: str
    host: str
    environment: str
    present: DiscoveredWorker | None = None
    """What the worker sent; None if it did not connect."""
    clock_offset_ns: tuple[int, int] | None = None
    """The offset of its clock from this host's, and the uncertainty of that."""

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        present = self.present
        if present is None:
            return self.worker, self.host, self.environment, "-", "-", "-", "-", "not connected", "-"
        load = present.info.get("load")
        return (
            self.worker,
            self.host,
            self.environment,
            str(present.slots),
            present.info.get("version", "unknown"),
            "?" if load is None else f"{load:.2f}",
            format_clock(self.clock_offset_ns),
            f"{present.seconds_since_heard():.1f} s ago",
            ",".join(sorted(usable_engines(present))) or "none",
        )

    def document(self) -> dict[str, Any]:
        """Return the row as a JSON object; measured values are numbers, the rest is text as in the table."""
        document: dict[str, Any] = dict(zip((title.lower() for title in TITLES), self.cells(), strict=True))
        present = self.present
        document["load"] = present.info.get("load") if present is not None else None
        document["clock"] = None
        if self.clock_offset_ns is not None:
            document["clock"] = {"offset_ns": self.clock_offset_ns[0], "uncertainty_ns": self.clock_offset_ns[1]}
        document["heard"] = None if present is None else round(present.seconds_since_heard(), 3)
        document["engine_versions"] = usable_engines(present) if present is not None else {}
        return document


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `fleet list`."""

    fleet: InventoryOptions
    """The hosts whose workers should connect; may name none."""
    discovery: DiscoveryOptions
    format: Annotated[Literal["text", "json"], Option("--format", "output format (default: text)")] = "text"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    inventory = inventory_option("inventory of hosts whose workers should connect")
    only = Option("--only NAME", "with -i: only this host, range of hosts or group; repeatable")
    add_options(parser, InventoryOptions, "inventory", "only", inventory=inventory, only=only)
    add_options(parser, Options, fleet=None, work_port=None)


def run(options: Options) -> int:
    """Listen, and print the workers that connect."""
    hosts: Sequence[FleetHost] = ()
    if options.fleet.inventory is not None:
        hosts = load_inventory(options.fleet.inventory).select(options.fleet.only).hosts
    with (
        open_discovery(options.discovery, fleet=options.fleet.inventory is not None, asks=True) as discovery,
        progress_message(f"listening for {options.discovery.wait:g} s"),
    ):
        present = discovery.gather(options.discovery.wait)
    rows = build_rows(present, hosts, _local_boot_id())
    if options.format == "json":
        sys.stdout.write(json.dumps([row.document() for row in rows], indent=2) + "\n")
    else:
        cells = [row.cells() for row in rows]
        lines = align_table(TITLES, cells) if sys.stdout.isatty() else tab_separated([TITLES, *cells])
        sys.stdout.write("\n".join(lines) + "\n")
    missing = sum(row.present is None for row in rows)
    if missing:
        silent = f"{plural(missing, 'worker')} of {options.fleet.inventory}"
        tell(f"{program_name()}: {silent} did not connect within {options.discovery.wait:g} s")
        return int(ExitCode.INFRASTRUCTURE)
    if not present:
        tell(f"no worker connected within {options.discovery.wait:g} s")
    return int(ExitCode.OK)


def build_rows(present: Sequence[DiscoveredWorker], hosts: Sequence[FleetHost], boot_id: str) -> list[WorkerRow]:
    """Return a row for each worker that connected or should have, by name."""
    rows = {
        worker.worker_id: WorkerRow(
            worker.worker_id,
            worker.info.get("host", "unknown"),
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
    """Return the engines that are usable there, each with its version."""
    engines = worker.info.get("engines", {})
    return {name: status.get("version", "") for name, status in engines.items() if status.get("usable")}


def format_clock(clock_ns: tuple[int, int] | None) -> str:
    """Return a clock offset with its uncertainty as text."""
    if clock_ns is None:
        return "?"
    offset, uncertainty = clock_ns
    return "same host" if clock_ns == (0, 0) else f"{offset / 1e6:+.3f} ms, +-{uncertainty / 1e6:.3f}"


def _local_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
