"""`bench-master start-workers`: workers on every host of an inventory, which wait there for a master."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import gevent

from bench_common.cli import CONTROL_PORT, RESULTS_PORT, WORK_PORT, port
from bench_common.errors import ExitCode
from bench_master.commands.fleet_options import (
    FleetProgress,
    add_inventory_options,
    add_start_options,
    exit_code_for,
    launch_spec,
    print_outcomes,
    report_new_host_keys,
    selected_inventory,
    stop_all,
    warn_duplicate_hosts,
)
from bench_master.commands.run_signals import interruptible
from bench_master.fleet.fleet import Fleet
from bench_master.fleet.hosts import FleetHost, Inventory, Login
from bench_master.layout import align_table, tab_separated
from bench_master.run.sockets import Ports

NAME = "start-workers"
HELP = "start workers on the hosts of an inventory, where they wait for this master"

EPILOG = """\
Goes to every host at once, finds a Python there, installs this version of Weighbridge from here (no network is
needed there) unless it is installed already, delivers each worker's key and starts it so that it outlives the
connection. A worker that runs already, just so, is left alone. See docs/fleet.rst.

Exit codes: 0 every worker runs; 3 a host failed (the others go on, unless --require-all).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EPILOG
    add_inventory_options(parser, required=True)
    add_start_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="list what would be started where, and touch nothing")
    parser.add_argument("--key-dir", type=Path, metavar="DIR", help="where the keys are (default: as keygen's)")
    parser.add_argument(
        "--zmq-control-port",
        type=port,
        default=CONTROL_PORT,
        metavar="PORT",
        help="the master's (default: %(default)s)",
    )
    parser.add_argument(
        "--zmq-results-port",
        type=port,
        default=RESULTS_PORT,
        metavar="PORT",
        help="for tunnels (default: %(default)s)",
    )
    parser.add_argument(
        "--zmq-work-port", type=port, default=WORK_PORT, metavar="PORT", help="for tunnels (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Start them, print the table; with tunnels stay until Ctrl-C."""
    inventory = selected_inventory(arguments)
    warn_duplicate_hosts(inventory, quiet=arguments.quiet)
    if arguments.dry_run:
        _show_plan(inventory)
        return int(ExitCode.OK)
    ports = Ports(arguments.zmq_control_port, arguments.zmq_results_port, arguments.zmq_work_port)
    errand = launch_spec(arguments, inventory, ports)
    with Fleet(inventory, errand, FleetProgress(inventory, quiet=arguments.quiet)) as fleet:
        with interruptible(
            "what was begun on the hosts is waited for, and workers that it starts go on: "
            f"bench-master kill-workers -i {inventory.path} ends them"
        ):
            outcomes = fleet.start()
        failed = any(outcome.failed for outcome in outcomes)
        if failed and arguments.require_all:
            outcomes = stop_all(fleet, outcomes)
        report_new_host_keys(errand.known_hosts, quiet=arguments.quiet)
        print_outcomes(outcomes)
        status = exit_code_for(outcomes)
        through = [host.name for host in inventory.hosts if errand.uses_tunnel(host)]
        if through and not (failed and arguments.require_all):
            sys.stderr.write(f"tunnels to {', '.join(through)} stand for as long as this runs; Ctrl-C closes them\n")
            while True:
                gevent.sleep(3600)
        return status


def _show_plan(inventory: Inventory) -> None:
    rows = [
        (
            host.name,
            _ssh_route(host),
            host.environment or "as it looks",
            f"{host.workers} x {host.concurrency}",
            "tunnel" if host.tunnel else host.master or "as it is reached",
            host.launcher,
        )
        for host in inventory.hosts
    ]
    titles = ("HOST", "REACHED AT", "ENVIRONMENT", "WORKERS", "MASTER", "LAUNCHER")
    lines = align_table(titles, rows) if sys.stdout.isatty() else tab_separated([titles, *rows])
    sys.stdout.write("\n".join(lines) + "\n")


def _ssh_route(host: FleetHost) -> str:
    """Return the way to a host, with every jump host on it, the nearest to us first."""
    steps = []
    login: Login | None = host.login
    while login is not None:
        user = f"{login.user}@" if login.user is not None else ""
        steps.append(f"{user}{login.address}:{login.port}")
        login = login.jump
    return " -> ".join(reversed(steps))
