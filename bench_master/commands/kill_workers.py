"""`bench-master kill-workers`: end workers, on the hosts of an inventory or by a word of the master they await."""

from __future__ import annotations

import argparse
import sys

from bench_common.errors import ExitCode, UsageError
from bench_master.commands.fleet_options import (
    FleetProgress,
    add_discovery_options,
    add_inventory_options,
    exit_code_for,
    launch_spec,
    open_discovery,
    print_outcomes,
    report_new_host_keys,
    selected_inventory,
)
from bench_master.fleet.fleet import Fleet

NAME = "kill-workers"
HELP = "end the workers of an inventory, or tell those that wait for this master to end"

EPILOG = """\
With -i it goes to each host and ends the workers that start-workers started there, for certain: one that does not
clean up and end by itself in time is killed with all that it started. Its key is removed from the host.

Without -i it listens at the ports of a run (so it cannot be used while one goes on there) and tells whoever asks to
join to end.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EPILOG
    add_inventory_options(parser, required=False)
    parser.add_argument(
        "--purge", action="store_true", help="with -i: remove what was installed there, and the logs, too"
    )
    add_discovery_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """End them, and print who that was."""
    if arguments.inventory is not None:
        return _on_hosts(arguments)
    if arguments.purge or arguments.only:
        raise UsageError(f"{'--purge' if arguments.purge else '--only'} goes with an inventory: give -i HOSTS.yaml")
    with open_discovery(arguments) as discovery:
        present = discovery.gather(arguments.wait)
        discovery.send_home()
    for worker in present:
        sys.stdout.write(f"{worker.worker_id}\t{worker.info.get('host', 'unknown')}\ttold to end\n")
    if not present:
        sys.stderr.write(f"no worker called within {arguments.wait:g} s\n")
    return int(ExitCode.OK)


def _on_hosts(arguments: argparse.Namespace) -> int:
    inventory = selected_inventory(arguments)
    errand = launch_spec(arguments, inventory)
    with Fleet(inventory, errand, FleetProgress(inventory, quiet=arguments.quiet)) as fleet:
        outcomes = fleet.stop(purge=arguments.purge)
    report_new_host_keys(errand.known_hosts, quiet=arguments.quiet)
    print_outcomes(outcomes)
    return exit_code_for(outcomes)
