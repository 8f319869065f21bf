"""What `run-scenario -i` adds to a run: start its workers first, admit no others, stop them afterwards."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from bench_common.curve import is_loopback
from bench_common.errors import InfrastructureError, UsageError, did_you_mean
from bench_common.streams import program_name, tell
from bench_features.fleet.fleet import Fleet, started_workers
from bench_features.fleet.hosts import FleetHost, Inventory
from bench_features.fleet.launchers.base import IN_USE, STARTED, WorkerOutcome
from bench_features.fleet.options import launch_spec, selected_inventory, warn_duplicate_hosts
from bench_features.fleet.progress import FleetProgress, report_new_host_keys
from bench_features.fleet.run_extension import FleetOptions
from bench_master.commands.run_signals import interruptible
from bench_master.options.run import RunOptions
from bench_master.run.endpoints import Ports
from bench_master.run.started_workers import StartedWorkers

ANY_ADDRESS = "*"
LOOPBACK = "127.0.0.1"


def bind_ip_for(options: RunOptions) -> str:
    """Return where a master listens for a fleet: everywhere, or on loopback if every worker uses a tunnel."""
    if options.network.bind_ip:
        return options.network.bind_ip
    own = options.extensions.of(FleetOptions)
    hosts = selected_inventory(own.hosts).hosts
    near = all(own.start.tunnel or host.tunnel or host.launcher == "local" for host in hosts)
    return LOOPBACK if near else ANY_ADDRESS


@contextmanager
def fleet_workers(options: RunOptions, wanted: frozenset[str] = frozenset()) -> Iterator[StartedWorkers]:
    """Start the workers of the inventory and yield them; stop them afterwards.

    `wanted` are the environments that the plan names. Raises `UsageError` if no host can be one of them, before
    anything starts, and `InfrastructureError` if no worker could start.
    """
    if options.network.insecure:
        raise UsageError("--insecure: the workers of an inventory always have keys; leave it out")
    own = options.extensions.of(FleetOptions)
    inventory = selected_inventory(own.hosts)
    alone = not options.local_workers and not options.workers.expect
    if alone:
        _check_environments(inventory, wanted)
    _check_reachable(options, inventory)
    _check_ports(bind_ip_for(options), options.network.ports)
    warn_duplicate_hosts(inventory, quiet=options.quiet)
    spec = launch_spec(own.hosts, inventory, start=own.start, network=options.network, verbose=options.verbose)
    progress = FleetProgress(inventory, quiet=options.quiet)
    with Fleet(inventory, replace(spec, once=True), progress) as fleet:
        launched: list[WorkerOutcome] = []
        try:
            # If the start is interrupted, every worker that may have started is stopped.
            launched = [
                WorkerOutcome(host.name, name, STARTED) for host in inventory.hosts for name in host.worker_names
            ]
            with interruptible("waiting for the hosts to finish starting workers, then stopping these"):
                outcomes = fleet.start()
            launched = [outcome for outcome in outcomes if outcome.state == STARTED]
            report_new_host_keys(spec.known_hosts, quiet=options.quiet)
            _check_outcomes(outcomes, require_all=own.start.require_all)
            if alone:
                _check_started(inventory, outcomes, wanted)
            names = frozenset(outcome.worker for outcome in started_workers(outcomes))
            logs = f"bench-master fleet logs -i {shlex.quote(str(own.hosts.inventory))}"
            advice = f"see its log with {logs}, and 'How a host reaches the master' in docs/fleet.rst"
            yield StartedWorkers(names, fleet.explain_end, advice)
        finally:
            _stop_workers(inventory, _hosts_with_workers(inventory, launched), fleet)


def _hosts_with_workers(inventory: Inventory, outcomes: list[WorkerOutcome]) -> list[FleetHost]:
    """Return the hosts on which workers started."""
    names = {outcome.host for outcome in outcomes if outcome.state == STARTED}
    return [host for host in inventory.hosts if host.name in names]


def _check_outcomes(outcomes: list[WorkerOutcome], *, require_all: bool) -> None:
    """Print the hosts that failed; raise `InfrastructureError` if the run needs them."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    if not failed:
        return
    for outcome in failed:
        tell(f"{program_name()}: {outcome.host}: {outcome.detail}")
    if any(outcome.state == IN_USE for outcome in failed):
        raise InfrastructureError("workers on these hosts serve another master; they were left running")
    if require_all:
        raise InfrastructureError("not every host could start its workers (--require-all)")
    if len(failed) == len(outcomes):
        raise InfrastructureError("no host could start a worker")


def _stop_workers(inventory: Inventory, hosts: list[FleetHost], fleet: Fleet) -> None:
    """Stop the workers of the run; print which could not be stopped."""
    if not hosts:
        return
    for outcome in fleet.stop(hosts):
        if outcome.failed:
            tell(
                f"{program_name()}: worker {outcome.worker} may still run: {outcome.detail}; "
                f"to stop it: bench-master fleet stop -i {shlex.quote(inventory.path)} --only {outcome.host}"
            )


def _check_environments(inventory: Inventory, wanted: frozenset[str]) -> None:
    """Raise `UsageError` if no host can have an environment of the plan; a host without one may have any."""
    known = {host.environment for host in inventory.hosts}
    missing = sorted(wanted - known)
    if missing and None not in known:
        raise UsageError(
            f"{inventory.path}: no host has the environment '{missing[0]}' of the scenario"
            f"{did_you_mean(missing[0], [name for name in known if name])}; set it with 'environment:'"
        )


def _check_started(inventory: Inventory, outcomes: list[WorkerOutcome], wanted: frozenset[str]) -> None:
    """Raise `InfrastructureError` if every host of an environment of the plan failed."""
    names = {outcome.host for outcome in started_workers(outcomes)}
    known = {host.environment for host in inventory.hosts if host.name in names}
    missing = sorted(wanted - known)
    if missing and None not in known:
        raise InfrastructureError(f"every host of environment '{missing[0]}' failed, and the scenario needs one")


def _check_reachable(options: RunOptions, inventory: Inventory) -> None:
    """Raise `UsageError` if the master would listen on loopback only and a host has no tunnel to it."""
    bind_ip = options.network.bind_ip
    far = [host.name for host in inventory.hosts if host.launcher != "local" and not host.tunnel]
    if bind_ip and is_loopback(bind_ip) and far and not options.extensions.of(FleetOptions).start.tunnel:
        raise UsageError(
            f"--zmq-bind-ip {bind_ip}: {far[0]} cannot reach this machine's loopback address; "
            "leave it out, or give --tunnel"
        )


def _check_ports(bind_ip: str, ports: Ports) -> None:
    """Raise `InfrastructureError` if another process listens on a port, before anything starts."""
    for port, flag in ((ports.control, "--zmq-control-port"), (ports.results, "--zmq-results-port")):
        family = socket.AF_INET6 if ":" in bind_ip else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("" if bind_ip == ANY_ADDRESS else bind_ip, port))
            except OSError as error:
                raise InfrastructureError(
                    f"cannot listen on port {port} of {bind_ip} ({error.strerror}): most likely another master "
                    f"uses it; stop that one, or choose another port with {flag}"
                ) from error
