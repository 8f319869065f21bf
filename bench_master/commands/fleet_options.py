"""What the commands for a fleet share: inventory, how its hosts are reached, progress, the table at the end.

What `list-workers` and `kill-workers` share: where to listen, for how long, with which keys.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from bench_common.cli import (
    CONTROL_PORT,
    RESULTS_PORT,
    WORK_PORT,
    file_name,
    host_name,
    port,
    seconds,
    strip_brackets,
)
from bench_common.errors import ExitCode, UsageError
from bench_common.keys import default_directory
from bench_common.units import parse_duration
from bench_master.fleet.fleet import Fleet
from bench_master.fleet.hosts import Inventory
from bench_master.fleet.inventory import load_inventory
from bench_master.fleet.known_hosts import KnownHosts, default_known_hosts
from bench_master.fleet.launchers.base import (
    MASTER_TIMEOUT_S,
    RUN_MASTER_TIMEOUT_S,
    STARTED,
    LaunchSpec,
    WorkerOutcome,
)
from bench_master.fleet.ssh_config import SshConfig
from bench_master.fleet.wheels import Wheelhouse
from bench_master.formatting import plural
from bench_master.layout import align_table, tab_separated
from bench_master.run.discovery import WorkerDiscovery
from bench_master.run.key_provisioning import KeyProvisioner
from bench_master.run.sockets import Endpoints, Ports, Sockets, load_keys

TITLES = ("HOST", "WORKER", "STATE", "DETAIL")


def add_inventory_options(parser: argparse._ActionsContainer, *, required: bool) -> None:
    """Add the inventory and which of its hosts are meant."""
    parser.add_argument(
        "-i", "--inventory", type=file_name, required=required, metavar="HOSTS.yaml", help="the hosts of the fleet"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only this host, range of hosts or group; repeatable",
    )
    parser.add_argument(
        "--known-hosts",
        type=file_name,
        metavar="FILE",
        help="the keys by which hosts are known (default: ~/.ssh/known_hosts)",
    )
    parser.add_argument(
        "--accept-new",
        action="store_true",
        help="add hosts that are not in it; one that has changed is always refused",
    )
    parser.add_argument(
        "--ssh-config",
        type=file_name,
        metavar="FILE|none",
        help="what says how hosts are reached where the inventory does not (default: ~/.ssh/config)",
    )


def add_start_options(parser: argparse._ActionsContainer) -> None:
    """Add how workers are started."""
    parser.add_argument(
        "--require-all", action="store_true", help="if one host fails, end what was started on the others"
    )
    parser.add_argument(
        "--tunnel", action="store_true", help="workers reach the master through the SSH connections to their hosts"
    )
    parser.add_argument(
        "--master-address",
        type=host_name,
        metavar="HOST",
        help="how hosts reach the master (default: as each is reached from here)",
    )
    parser.add_argument(
        "--wheelhouse", type=file_name, metavar="DIR", help="wheels for hosts whose Python is of another kind"
    )
    parser.add_argument(
        "--master-timeout",
        metavar="TIME",
        help="how long a worker waits for a master before it ends (default: "
        f"{MASTER_TIMEOUT_S / 3600:g}h; {RUN_MASTER_TIMEOUT_S / 60:g}m if started for one run)",
    )


def selected_inventory(arguments: argparse.Namespace) -> Inventory:
    """Return the hosts that are meant, each as it is reached: what the inventory leaves open, the SSH config says."""
    inventory = load_inventory(arguments.inventory).only(arguments.only)
    config = SshConfig.chosen(arguments.ssh_config)
    return inventory if config is None else config.apply_to(inventory)


def warn_duplicate_hosts(inventory: Inventory, *, quiet: bool) -> None:
    """Tell which hosts are one machine by two names: a mistake, most often, and its figures look like two hosts'."""
    if not quiet:
        sys.stderr.writelines(
            f"note: {second.place.file}:{second.place.line}: {first.name} and {second.name} are both reached at "
            f"{second.login.address}:{second.login.port}; several workers of one machine are said by 'workers:'\n"
            for first, second in inventory.duplicates()
        )


def launch_spec(arguments: argparse.Namespace, inventory: Inventory, ports: Ports | None = None) -> LaunchSpec:
    """Return how workers are to be started, as the command line says."""
    master_timeout_s = None
    text = getattr(arguments, "master_timeout", None)
    if text is not None:
        try:
            master_timeout_s = parse_duration(text)
        except ValueError as error:
            raise UsageError(f"--master-timeout {text}: {error}") from error
    bind_ip = getattr(arguments, "zmq_bind_ip", None)
    everywhere = bind_ip in (None, "0.0.0.0", "::", "*", "localhost")  # noqa: S104  compared only
    named = os.environ.get("XDG_CACHE_HOME", "")
    cache = (Path(named) if named.startswith("/") else Path("~/.cache").expanduser()) / "weighbridge" / "wheels"
    return LaunchSpec(
        provisioner=KeyProvisioner(getattr(arguments, "key_dir", None) or default_directory()),
        wheelhouse=Wheelhouse(cache, getattr(arguments, "wheelhouse", None)),
        known_hosts=KnownHosts(arguments.known_hosts or default_known_hosts(), accept_new=arguments.accept_new),
        ports=ports or Ports(),
        lane_count=len(inventory.worker_names),
        master=getattr(arguments, "master_address", None),
        master_here="127.0.0.1" if everywhere else str(bind_ip),
        tunnel=getattr(arguments, "tunnel", False),
        master_timeout_s=master_timeout_s,
        verbose=arguments.verbose,
    )


class FleetProgress:
    """Says on stderr what is being done on which host, and since when; nothing at all where `quiet`."""

    def __init__(self, inventory: Inventory, *, quiet: bool) -> None:
        self._started_at = monotonic()
        self._quiet = quiet
        self._width = max((len(host.name) for host in inventory.hosts), default=0)

    def __call__(self, host: str, doing: str) -> None:
        """Take what is being done on a host."""
        if not self._quiet:
            sys.stderr.write(f"{monotonic() - self._started_at:6.1f} s  {host:<{self._width}}  {doing}\n")
            sys.stderr.flush()


def print_outcomes(outcomes: Sequence[WorkerOutcome]) -> None:
    """Print what became of each worker: aligned for a person, tab-separated for a program."""
    rows = [(outcome.host, outcome.worker, outcome.state, outcome.detail) for outcome in outcomes]
    lines = align_table(TITLES, rows) if sys.stdout.isatty() else tab_separated([TITLES, *rows])
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def exit_code_for(outcomes: Sequence[WorkerOutcome]) -> int:
    """Return the exit code that outcomes call for; say how many failed."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    if failed:
        hosts = len({outcome.host for outcome in failed})
        sys.stderr.write(f"bench-master: {plural(hosts, 'host')} failed; the reasons are in the table\n")
        return int(ExitCode.INFRASTRUCTURE)
    return int(ExitCode.OK)


def report_new_host_keys(fleet_hosts: KnownHosts, *, quiet: bool) -> None:
    """Tell which hosts were met for the first time."""
    if not quiet:
        sys.stderr.writelines(f"{line}\n" for line in fleet_hosts.added_hosts)


def stop_all(fleet: Fleet, outcomes: Sequence[WorkerOutcome]) -> list[WorkerOutcome]:
    """End what was started just now, since not everything was; return the outcomes as they are then."""
    names = {outcome.host for outcome in outcomes if outcome.state == STARTED}
    hosts = [host for host in fleet.inventory.hosts if host.name in names]
    ended = {outcome.worker: outcome for outcome in fleet.stop(hosts)}
    return [outcome if outcome.failed else ended.get(outcome.worker, outcome) for outcome in outcomes]


def add_discovery_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands."""
    parser.add_argument(
        "--wait", type=seconds, default=5.0, metavar="SECONDS", help="how long to listen (default: 5)"
    )
    parser.add_argument(
        "--zmq-bind-ip",
        type=strip_brackets,
        metavar="IP",
        help="address to listen on (default: 127.0.0.1; with -i all)",
    )
    parser.add_argument(
        "--zmq-control-port", type=port, default=CONTROL_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--zmq-results-port", type=port, default=RESULTS_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    parser.add_argument("--key-dir", type=Path, metavar="DIR", help="where `bench-master keygen` put the keys")
    parser.add_argument("--insecure", action="store_true", help="listen beyond loopback without keys")


@contextmanager
def open_discovery(arguments: argparse.Namespace, *, asks: bool = False) -> Iterator[WorkerDiscovery]:
    """Yield a discovery whose sockets are open, and close them afterwards; `asks`: for engines as they are now."""
    ports = Ports(arguments.zmq_control_port, arguments.zmq_results_port, WORK_PORT)
    fleet = arguments.inventory is not None
    bind_ip = arguments.zmq_bind_ip or ("*" if fleet else "127.0.0.1")
    with Endpoints(bind_ip, ports, insecure=arguments.insecure, keys=fleet) as endpoints:
        key, allow_list = load_keys(endpoints, arguments.key_dir, insecure=arguments.insecure)
        sockets = Sockets(endpoints, master_key=key, allow_list=allow_list)
        discovery = WorkerDiscovery(sockets, asks=asks)
        sockets.open(discovery)
        try:
            yield discovery
        finally:
            sockets.close()
