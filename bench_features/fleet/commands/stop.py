"""`bench-master fleet stop`: stop the workers on the hosts of an inventory, or those that wait for this master."""

from __future__ import annotations

import argparse
import sys
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import ExitCode, UsageError
from bench_common.options import Option, add_options
from bench_common.streams import tell
from bench_features.fleet.fleet import Fleet
from bench_features.fleet.options import (
    DiscoveryOptions,
    InventoryOptions,
    launch_spec,
    open_discovery,
    selected_inventory,
)
from bench_features.fleet.progress import FleetProgress, exit_code_for, print_outcomes, report_new_host_keys
from bench_master.formatting import tab_separated
from bench_master.progress_message import progress_message

EPILOG = """\
With -i it connects to each host and stops the workers that fleet start started there: a worker that does not
clean up and exit in time is killed with all of its processes. Its key is removed from the host.

Without -i it listens on the ports of a run (so it does not work during one) and asks every worker that connects to
exit.
"""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `fleet stop`."""

    fleet: InventoryOptions
    """The hosts; none: workers that wait for this master."""
    purge: Annotated[bool, Option("--purge", "with -i: also remove the installation and the logs")] = False
    discovery: DiscoveryOptions
    """How to look for waiting workers."""
    quiet: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_options(parser, Options, work_port=None)


def run(options: Options) -> int:
    """Stop the workers; print their names."""
    if options.fleet.inventory is not None:
        return _on_hosts(options)
    if options.purge or options.fleet.only:
        raise UsageError(f"{'--purge' if options.purge else '--only'} needs an inventory: give -i HOSTS.yaml")
    with open_discovery(options.discovery, fleet=False) as discovery:
        with progress_message(f"listening for {options.discovery.wait:g} s"):
            present = discovery.gather(options.discovery.wait)
        discovery.send_home()
    for worker in present:
        row = (worker.worker_id, str(worker.info.get("host", "unknown")), "asked to exit")
        sys.stdout.write("\n".join(tab_separated([row])) + "\n")
    if not present:
        tell(f"no worker connected within {options.discovery.wait:g} s")
    return int(ExitCode.OK)


def _on_hosts(options: Options) -> int:
    inventory = selected_inventory(options.fleet)
    spec = launch_spec(options.fleet, inventory, network=options.discovery.network)
    with Fleet(inventory, replace(spec, stops_others=True), FleetProgress(inventory, quiet=options.quiet)) as fleet:
        outcomes = fleet.stop(purge=options.purge)
    report_new_host_keys(spec.known_hosts, quiet=options.quiet)
    print_outcomes(outcomes)
    return exit_code_for(outcomes)
