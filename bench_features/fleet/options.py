"""The options of the commands for a fleet, and what they stand for: an inventory, how workers are started.

A run without an inventory has these options, too; what a fleet takes is loaded by the functions that need it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct, field

from bench_common.argument_types import InvalidValue, duration, file_name, host_name, seconds
from bench_common.options import Option
from bench_common.streams import tell
from bench_features.fleet import MASTER_TIMEOUT_S, RUN_MASTER_TIMEOUT_S
from bench_master.options.network import NetworkOptions
from bench_master.run.endpoints import Endpoints

if TYPE_CHECKING:
    from bench_features.fleet.hosts import Inventory
    from bench_features.fleet.launchers.base import LaunchSpec
    from bench_master.run.discovery import WorkerDiscovery


def inventory_option(what: str = "inventory of hosts", **settings: Any) -> Option:
    """Return ``--inventory``."""
    return Option("-i, --inventory HOSTS.yaml", what, type=_existing_inventory, **settings)


def _existing_inventory(text: str) -> Path:
    path = file_name(text)
    if not os.path.lexists(path):
        raise InvalidValue(f"{text}: no such file: expected an inventory (docs/fleet.rst)")
    return path


class InventoryOptions(Struct, frozen=True):
    """The hosts of a fleet, and how SSH reaches them."""

    inventory: Annotated[Path | None, inventory_option()] = None
    only: Annotated[
        tuple[str, ...], Option("--only NAME", "use only this host, range of hosts or group; repeatable")
    ] = ()
    known_hosts: Annotated[
        Path | None, Option("--known-hosts FILE", "file of known SSH host keys (default: ~/.ssh/known_hosts)")
    ] = None
    accept_new: Annotated[
        bool, Option("--accept-new", "add the keys of unknown hosts to that file; a changed key is always refused")
    ] = False
    ssh_config: Annotated[
        Path | None,
        Option(
            "--ssh-config FILE|none",
            "SSH client configuration for what the inventory leaves open (default: ~/.ssh/config)",
        ),
    ] = None


class StartOptions(Struct, frozen=True):
    """How workers are started on the hosts of an inventory."""

    require_all: Annotated[bool, Option("--require-all", "if one host fails, stop the workers on the others")] = False
    tunnel: Annotated[bool, Option("--tunnel", "connect workers to the master through SSH tunnels")] = False
    master_address: Annotated[
        str | None,
        Option(
            "--master-address HOST",
            "host name or IP address at which hosts reach the master (default: as seen from each host)",
            type=host_name,
        ),
    ] = None
    wheelhouse: Annotated[
        Path | None,
        Option("--wheelhouse DIR", "directory of wheels for hosts with another Python version or architecture"),
    ] = None
    master_timeout_s: Annotated[
        float | None,
        Option(
            "--master-timeout TIME",
            "how long a worker waits for a master before it exits "
            f"(default: {MASTER_TIMEOUT_S / 3600:g}h; {RUN_MASTER_TIMEOUT_S / 60:g}m if started for one run)",
            type=duration,
        ),
    ] = None


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

    wait: Annotated[float, Option("--wait SECONDS", "how long to listen (default: 5)", type=seconds)] = 5.0
    network: NetworkOptions = field(default_factory=NetworkOptions)


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
