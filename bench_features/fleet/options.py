"""The options of the commands for a fleet, and what they stand for: an inventory, how workers are started.

A run without an inventory has these options, too; what a fleet takes is loaded by the functions that need it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from bench_common.argument_types import file_name, host_name, seconds
from bench_common.streams import tell
from bench_features.fleet import MASTER_TIMEOUT_S, RUN_MASTER_TIMEOUT_S
from bench_master.options.durations import parse_duration_option
from bench_master.options.network import NetworkOptions, add_listen_options
from bench_master.run.endpoints import Endpoints

if TYPE_CHECKING:
    from bench_features.fleet.hosts import Inventory
    from bench_features.fleet.launchers.base import LaunchSpec
    from bench_master.run.discovery import WorkerDiscovery


class InventoryOptions(Struct, frozen=True):
    """The hosts of a fleet, and how SSH reaches them."""

    inventory: Path | None = None
    only: tuple[str, ...] = ()
    """Hosts, ranges of hosts or groups to use; empty: all."""
    known_hosts: Path | None = None
    """The file of known host keys; None: ``~/.ssh/known_hosts``."""
    accept_new: bool = False
    """Add the keys of hosts that are not known yet."""
    ssh_config: Path | None = None
    """The SSH client configuration; None: ``~/.ssh/config``, ``none``: no file."""


def add_inventory_options(parser: argparse._ActionsContainer, *, required: bool, with_only: bool = True) -> None:
    """Add the options of `InventoryOptions`; without `only` where the command has one of its own."""
    parser.add_argument(
        "-i", "--inventory", type=file_name, required=required, metavar="HOSTS.yaml", help="inventory of hosts"
    )
    if with_only:
        parser.add_argument(
            "--only",
            action="append",
            default=[],
            metavar="NAME",
            help="use only this host, range of hosts or group; repeatable",
        )
    parser.add_argument(
        "--known-hosts",
        type=file_name,
        metavar="FILE",
        help="file of known SSH host keys (default: ~/.ssh/known_hosts)",
    )
    parser.add_argument(
        "--accept-new",
        action="store_true",
        help="add the keys of unknown hosts to that file; a changed key is always refused",
    )
    parser.add_argument(
        "--ssh-config",
        type=file_name,
        metavar="FILE|none",
        help="SSH client configuration for what the inventory leaves open (default: ~/.ssh/config)",
    )


class StartOptions(Struct, frozen=True):
    """How workers are started on the hosts of an inventory."""

    require_all: bool = False
    """If one host fails, stop the workers on the others."""
    tunnel: bool = False
    """Workers reach the master through the SSH connections to their hosts."""
    master_address: str | None = None
    """The host name or IP address at which hosts reach the master; None: as seen from each host."""
    wheelhouse: Path | None = None
    """Wheels for hosts with another Python version or architecture."""
    master_timeout: str | None = None
    """How long a worker waits for a master before it exits, as a duration; None: the default."""

    @property
    def master_timeout_s(self) -> float | None:
        """The timeout in seconds; raises `UsageError` for an invalid duration."""
        return None if self.master_timeout is None else parse_duration_option(self.master_timeout, "--master-timeout")


def add_start_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of `StartOptions`."""
    parser.add_argument(
        "--require-all", action="store_true", help="if one host fails, stop the workers on the others"
    )
    parser.add_argument("--tunnel", action="store_true", help="connect workers to the master through SSH tunnels")
    parser.add_argument(
        "--master-address",
        type=host_name,
        metavar="HOST",
        help="host name or IP address at which hosts reach the master (default: as seen from each host)",
    )
    parser.add_argument(
        "--wheelhouse",
        type=file_name,
        metavar="DIR",
        help="directory of wheels for hosts with another Python version or architecture",
    )
    parser.add_argument(
        "--master-timeout",
        metavar="TIME",
        help="how long a worker waits for a master before it exits "
        f"(default: {MASTER_TIMEOUT_S / 3600:g}h; {RUN_MASTER_TIMEOUT_S / 60:g}m if started for one run)",
    )


def selected_inventory(options: InventoryOptions) -> Inventory:
    """Return the chosen hosts; the SSH configuration completes what the inventory leaves open."""
    assert options.inventory is not None
    from bench_features.fleet.inventory import load_inventory
    from bench_features.fleet.ssh_config import SshConfig

    inventory = load_inventory(options.inventory).select(options.only)
    config = SshConfig.load(options.ssh_config)
    return inventory if config is None else config.apply_to(inventory)


def warn_duplicate_hosts(inventory: Inventory, *, quiet: bool) -> None:
    """Warn of hosts that are one machine by two names: most often a mistake that makes one machine look like two."""
    if not quiet:
        for first, second in inventory.duplicates():
            tell(
                f"note: {second.place.file}:{second.place.line}: {first.name} and {second.name} are the same host, "
                f"{second.login.address}:{second.login.port}; for several workers on one host use 'workers:'"
            )


def launch_spec(
    options: InventoryOptions,
    inventory: Inventory,
    *,
    start: StartOptions | None = None,
    network: NetworkOptions | None = None,
    verbose: bool = False,
) -> LaunchSpec:
    """Return how to start workers on `inventory`, as the options say."""
    from bench_common.keys import KeyProvisioner, default_directory
    from bench_features.fleet.known_hosts import KnownHosts, default_known_hosts
    from bench_features.fleet.launchers.base import LaunchSpec
    from bench_features.fleet.wheels import Wheelhouse, wheel_cache

    start, network = start or StartOptions(), network or NetworkOptions()
    bind_ip = network.bind_ip
    everywhere = bind_ip in (None, "0.0.0.0", "::", "*", "localhost")  # noqa: S104  compared only
    return LaunchSpec(
        provisioner=KeyProvisioner(network.key_dir or default_directory()),
        wheelhouse=Wheelhouse(wheel_cache(), start.wheelhouse),
        known_hosts=KnownHosts(options.known_hosts or default_known_hosts(), accept_new=options.accept_new),
        ports=network.ports,
        lane_count=len(inventory.worker_names),
        master=start.master_address,
        master_here="127.0.0.1" if everywhere else str(bind_ip),
        tunnel=start.tunnel,
        master_timeout_s=start.master_timeout_s,
        verbose=verbose,
    )


class DiscoveryOptions(Struct, frozen=True):
    """How to look for workers that wait for this master."""

    wait: float = 5.0
    """How long to listen, in seconds."""
    network: NetworkOptions = field(default_factory=NetworkOptions)


def add_discovery_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `DiscoveryOptions`."""
    parser.add_argument(
        "--wait", type=seconds, default=5.0, metavar="SECONDS", help="how long to listen (default: 5)"
    )
    add_listen_options(parser, default_ip="none: workers of this user on this machine; with -i all", work=False)


@contextmanager
def open_discovery(options: DiscoveryOptions, *, fleet: bool, asks: bool = False) -> Iterator[WorkerDiscovery]:
    """Open the sockets of a `WorkerDiscovery`, and close them afterwards.

    With `fleet` it listens on every address and requires keys, otherwise without an address to listen on it meets
    workers of this user on this machine; with `asks` it asks workers to probe their engines.
    """
    from bench_master.run.discovery import WorkerDiscovery
    from bench_master.run.sockets import Sockets, load_keys

    network = options.network
    bind_ip = network.bind_ip or ("*" if fleet else None)
    insecure = network.insecure and not fleet
    with Endpoints(bind_ip, network.ports, insecure=insecure, joinable=True) as endpoints:
        key, allow_list = load_keys(endpoints, network.key_dir, insecure=insecure)
        sockets = Sockets(endpoints, master_key=key, allow_list=allow_list)
        discovery = WorkerDiscovery(sockets, asks=asks)
        sockets.open(discovery)
        try:
            yield discovery
        finally:
            sockets.close()
