"""`bench-master fleet start`: start workers on every host of an inventory, where they wait for a master."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Annotated

import gevent
from msgspec import Struct

from bench_common.errors import ExitCode
from bench_common.options import Option, add_options
from bench_common.streams import tell
from bench_features.fleet.fleet import Fleet
from bench_features.fleet.hosts import FleetHost, Inventory, Login
from bench_features.fleet.options import (
    InventoryOptions,
    StartOptions,
    inventory_option,
    launch_spec,
    selected_inventory,
    warn_duplicate_hosts,
)
from bench_features.fleet.progress import FleetProgress, exit_code_for, print_outcomes, report_new_host_keys, stop_all
from bench_master.commands.run_signals import interruptible
from bench_master.formatting import align_table, tab_separated
from bench_master.options.network import NetworkOptions

EPILOG = """\
Connects to all hosts at once, finds a Python, installs this version of Weighbridge from here if needed (the host
needs no network), copies each worker's key and starts it so that it outlives the connection. A worker that already
runs with the same settings keeps running. See docs/fleet.rst.

Exit codes: 0 every worker runs; 3 a host failed (the others continue, unless --require-all).
"""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `fleet start`."""

    fleet: InventoryOptions
    start: StartOptions
    dry_run: Annotated[bool, Option("--dry-run", "list which workers would start where, and do nothing")] = False
    network: NetworkOptions
    """The master's ports and keys."""
    quiet: bool
    """Print no progress and no notes."""
    verbose: bool
    """Start workers with ``-v``."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    inventory = inventory_option(required=True)
    add_options(parser, Options, inventory=inventory, bind_ip=None, insecure=None)


def run(options: Options) -> int:
    """Start the workers, print the table; with tunnels wait for Ctrl-C."""
    inventory = selected_inventory(options.fleet)
    warn_duplicate_hosts(inventory, quiet=options.quiet)
    if options.dry_run:
        _show_plan(inventory)
        return int(ExitCode.OK)
    spec = launch_spec(
        options.fleet, inventory, start=options.start, network=options.network, verbose=options.verbose
    )
    with Fleet(inventory, spec, FleetProgress(inventory, quiet=options.quiet)) as fleet:
        with interruptible(
            "waiting for the hosts to finish; workers that start keep running: "
            f"bench-master fleet stop -i {shlex.quote(inventory.path)} stops them"
        ):
            outcomes = fleet.start()
        failed = any(outcome.failed for outcome in outcomes)
        if failed and options.start.require_all:
            outcomes = stop_all(fleet, outcomes)
        report_new_host_keys(spec.known_hosts, quiet=options.quiet)
        print_outcomes(outcomes)
        status = exit_code_for(outcomes)
        through = [host.name for host in inventory.hosts if spec.uses_tunnel(host)]
        if through and not (failed and options.start.require_all):
            tell(f"tunnels to {', '.join(through)} stay open until Ctrl-C")
            while True:
                gevent.sleep(3600)
        return status


def _show_plan(inventory: Inventory) -> None:
    rows = [
        (
            host.name,
            _ssh_route(host),
            host.environment or "detected",
            f"{host.workers} x {host.concurrency}",
            "tunnel" if host.tunnel else host.master or "as seen from host",
            host.launcher,
        )
        for host in inventory.hosts
    ]
    titles = ("HOST", "ADDRESS", "ENVIRONMENT", "WORKERS", "MASTER", "LAUNCHER")
    lines = align_table(titles, rows) if sys.stdout.isatty() else tab_separated([titles, *rows])
    sys.stdout.write("\n".join(lines) + "\n")


def _ssh_route(host: FleetHost) -> str:
    """Return the SSH route to a host over its jump hosts, the nearest first."""
    steps = []
    login: Login | None = host.login
    while login is not None:
        user = f"{login.user}@" if login.user is not None else ""
        steps.append(f"{user}{login.address}:{login.port}")
        login = login.jump
    return " -> ".join(reversed(steps))
