"""What `run-scenario -i` adds to a run: its workers are started first, no others are let in, and ended after it."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench_common.curve import is_loopback
from bench_common.errors import InfrastructureError, UsageError, did_you_mean
from bench_master.commands.fleet_options import (
    FleetProgress,
    launch_spec,
    report_new_host_keys,
    selected_inventory,
    warn_duplicate_hosts,
)
from bench_master.commands.run_signals import interruptible
from bench_master.fleet.fleet import Fleet, started_workers
from bench_master.fleet.hosts import FleetHost, Inventory
from bench_master.fleet.launchers.base import STARTED, WorkerOutcome
from bench_master.run.sockets import Ports

ANY_ADDRESS = "*"
LOOPBACK = "127.0.0.1"


def expected_worker_names(arguments: argparse.Namespace) -> frozenset[str]:
    """Return the names of the workers that there will be if no host fails."""
    return frozenset(selected_inventory(arguments).worker_names) if arguments.inventory is not None else frozenset()


def bind_ip_for(arguments: argparse.Namespace) -> str:
    """Return where a master listens for a fleet: everywhere, or on the loopback if all come through tunnels."""
    if arguments.zmq_bind_ip:
        return str(arguments.zmq_bind_ip)
    hosts = selected_inventory(arguments).hosts
    near = all(arguments.tunnel or host.tunnel or host.launcher == "local" for host in hosts)
    return LOOPBACK if near else ANY_ADDRESS


@contextmanager
def fleet_workers(arguments: argparse.Namespace, wanted: frozenset[str] = frozenset()) -> Iterator[frozenset[str]]:
    """Give the names of the workers that run on the fleet, and end those that were started; none without one.

    `wanted` are the environments that the plan names. Raises `UsageError` where no host can be one of them, before
    anything is started, and `InfrastructureError` where none could be started.
    """
    if arguments.inventory is None:
        yield frozenset()
        return
    if arguments.insecure:
        raise UsageError("--insecure: the workers of an inventory always have keys; leave it out")
    inventory = selected_inventory(arguments)
    alone = not arguments.workers and not arguments.expect
    if alone:
        _check_environments(inventory, wanted)
    _check_reachable(arguments, inventory)
    ports = Ports(arguments.zmq_control_port, arguments.zmq_results_port, arguments.zmq_work_port)
    _check_ports(bind_ip_for(arguments), ports)
    warn_duplicate_hosts(inventory, quiet=arguments.quiet)
    errand = replace(launch_spec(arguments, inventory, ports), once=True)
    progress = FleetProgress(inventory, quiet=arguments.quiet)
    with Fleet(inventory, errand, progress) as fleet:
        begun: list[WorkerOutcome] = []
        try:
            # Should this be broken off, whatever may have been started is ended.
            begun = [
                WorkerOutcome(host.name, name, STARTED) for host in inventory.hosts for name in host.worker_names
            ]
            with interruptible("what was begun on the hosts is waited for, then ended"):
                outcomes = fleet.start()
            begun = [outcome for outcome in outcomes if outcome.state == STARTED]
            report_new_host_keys(errand.known_hosts, quiet=arguments.quiet)
            _check_outcomes(outcomes, require_all=arguments.require_all)
            if alone:
                _check_started(inventory, outcomes, wanted)
            yield frozenset(outcome.worker for outcome in started_workers(outcomes))
        finally:
            _stop_workers(inventory, _hosts_with_workers(inventory, begun), fleet)


def _hosts_with_workers(inventory: Inventory, begun: list[WorkerOutcome]) -> list[FleetHost]:
    """Return the hosts on which something was started."""
    names = {outcome.host for outcome in begun if outcome.state == STARTED}
    return [host for host in inventory.hosts if host.name in names]


def _check_outcomes(outcomes: list[WorkerOutcome], *, require_all: bool) -> None:
    """Tell of hosts that failed; raise `InfrastructureError` where the run cannot do without."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    if not failed:
        return
    for outcome in failed:
        sys.stderr.write(f"bench-master: {outcome.host}: {outcome.detail}\n")
    if require_all:
        raise InfrastructureError("not every host could start its workers, and --require-all was given")
    if len(failed) == len(outcomes):
        raise InfrastructureError("no host could start a worker")


def _stop_workers(inventory: Inventory, hosts: list[FleetHost], fleet: Fleet) -> None:
    """End what was started for the run; what could not be ended is told."""
    if not hosts:
        return
    for outcome in fleet.stop(hosts):
        if outcome.failed:
            sys.stderr.write(
                f"bench-master: worker {outcome.worker} may still run: {outcome.detail}; "
                f"later: bench-master kill-workers -i {inventory.path} --only {outcome.host}\n"
            )


def _check_environments(inventory: Inventory, wanted: frozenset[str]) -> None:
    """Raise `UsageError` where the plan names an environment that no host is of; a host that does not say may be."""
    told = {host.environment for host in inventory.hosts}
    missing = sorted(wanted - told)
    if missing and None not in told:
        raise UsageError(
            f"{inventory.path}: no host is of environment '{missing[0]}', which the scenario wants"
            f"{did_you_mean(missing[0], [name for name in told if name])}; say which with 'environment:'"
        )


def _check_started(inventory: Inventory, outcomes: list[WorkerOutcome], wanted: frozenset[str]) -> None:
    """Raise `InfrastructureError` where all hosts of an environment that the plan names have failed."""
    names = {outcome.host for outcome in started_workers(outcomes)}
    told = {host.environment for host in inventory.hosts if host.name in names}
    missing = sorted(wanted - told)
    if missing and None not in told:
        raise InfrastructureError(f"every host of environment '{missing[0]}' failed, and the scenario wants it")


def _check_reachable(arguments: argparse.Namespace, inventory: Inventory) -> None:
    """Raise `UsageError` where the master would listen to nobody but this machine, and a host has no tunnel to it."""
    bind_ip = arguments.zmq_bind_ip
    far = [host.name for host in inventory.hosts if host.launcher != "local" and not host.tunnel]
    if bind_ip and is_loopback(bind_ip) and far and not arguments.tunnel:
        raise UsageError(
            f"--zmq-bind-ip {bind_ip}: {far[0]} cannot reach this machine's loopback; leave it out, or give --tunnel"
        )


def _check_ports(bind_ip: str, ports: Ports) -> None:
    """Raise `InfrastructureError` where another master listens: nothing is started then."""
    for port, flag in ((ports.control, "--zmq-control-port"), (ports.results, "--zmq-results-port")):
        family = socket.AF_INET6 if ":" in bind_ip else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("" if bind_ip == ANY_ADDRESS else bind_ip, port))
            except OSError as error:
                raise InfrastructureError(
                    f"port {port} of {bind_ip} cannot be had ({error.strerror}), most likely another master has it; "
                    f"end it or give {flag}"
                ) from error
