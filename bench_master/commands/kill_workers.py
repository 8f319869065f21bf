"""`bench-master kill-workers`: end workers, on the hosts of an inventory or by a word of the master they await."""

from __future__ import annotations

import argparse
import sys

from bench_common.errors import ExitCode, UsageError
from bench_master.commands.fleet_options import (
    Progress,
    add_inventory,
    add_muster_options,
    errand_of,
    inventory_of,
    mustered,
    say_learned,
    show,
    status_of,
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
    add_inventory(parser, required=False)
    parser.add_argument(
        "--purge", action="store_true", help="with -i: remove what was installed there, and the logs, too"
    )
    add_muster_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """End them, and print who that was."""
    if arguments.inventory is not None:
        return _on_hosts(arguments)
    if arguments.purge or arguments.only:
        raise UsageError(f"{'--purge' if arguments.purge else '--only'} goes with an inventory: give -i HOSTS.yaml")
    with mustered(arguments) as muster:
        present = muster.gather(arguments.wait)
        muster.send_home()
    for worker in present:
        sys.stdout.write(f"{worker.worker_id}\t{worker.info.get('host', 'unknown')}\ttold to end\n")
    if not present:
        sys.stderr.write(f"no worker called within {arguments.wait:g} s\n")
    return int(ExitCode.OK)


def _on_hosts(arguments: argparse.Namespace) -> int:
    inventory = inventory_of(arguments)
    errand = errand_of(arguments, inventory)
    with Fleet(inventory, errand, Progress(inventory, quiet=arguments.quiet)) as fleet:
        outcomes = fleet.stop(purge=arguments.purge)
    say_learned(errand.known_hosts, quiet=arguments.quiet)
    show(outcomes)
    return status_of(outcomes)
