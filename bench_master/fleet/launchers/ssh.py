"""Launcher `ssh`: goes to each host, installs this version of Weighbridge if need be, and starts the workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from bench_common.cli import InvalidValue, host_address
from bench_common.curve import is_loopback
from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.base import (
    RUNNING,
    STARTED,
    Launcher,
    LaunchSpec,
    ProgressCallback,
    QueryResults,
    WorkerOutcome,
    collect_outcomes,
    for_each_worker,
    run_parallel,
)
from bench_master.fleet.remote_host import RemoteHost
from bench_master.fleet.ssh import Connections, HostError, local_address, remote_address
from bench_master.fleet.tunnels import LOOPBACK, Tunnel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import paramiko

SPARE_LANES: Final = 2
"""A worker that comes back gets a fresh lane before the port of its old one is free."""
STOP_TIMEOUT_S: Final = 120.0
QUERY_TIMEOUT_S: Final = 120.0


class SshLauncher(Launcher):
    """Hosts that let us in with SSH. Nothing needs to be there but Python and an SSH server."""

    name = "ssh"

    def __init__(self, errand: LaunchSpec) -> None:
        super().__init__(errand)
        self._connections = Connections(errand.known_hosts)
        self._tunnels: list[Tunnel] = []

    def start(self, hosts: Sequence[FleetHost], told: ProgressCallback) -> list[WorkerOutcome]:
        """Start the workers of all hosts side by side."""
        found = run_parallel(hosts, partial(self._start, told=told))
        return collect_outcomes(hosts, found)

    def stop(self, hosts: Sequence[FleetHost], told: ProgressCallback, *, purge: bool) -> list[WorkerOutcome]:
        """End the workers of all hosts side by side."""
        found = run_parallel(hosts, partial(self._stop, told=told, purge=purge))
        return collect_outcomes(hosts, found)

    def logs(self, hosts: Sequence[FleetHost], told: ProgressCallback) -> dict[str, str | InfrastructureError]:
        """Fetch the end of each log."""
        found = run_parallel(hosts, partial(self._logs, told=told))
        logs: dict[str, str | InfrastructureError] = {}
        for host in hosts:
            answer = found[host.name]
            for name in host.worker_names:
                if isinstance(answer, InfrastructureError):
                    logs[name] = answer
                else:
                    logs[name] = answer.get(name, HostError("no worker of that name was started there"))
        return logs

    def ask(
        self, hosts: Sequence[FleetHost], told: ProgressCallback, queries: Sequence[Sequence[str]]
    ) -> dict[str, QueryResults | InfrastructureError]:
        """Ask ``bench-worker`` on every host; it is installed there if need be."""
        return run_parallel(hosts, partial(self._ask, told=told, queries=queries))

    def close(self) -> None:
        """Close every connection, tunnels included."""
        for tunnel in self._tunnels:
            tunnel.close()
        self._tunnels.clear()
        self._connections.close()

    @contextmanager
    def _connect_host(
        self, host: FleetHost, told: ProgressCallback
    ) -> Iterator[tuple[paramiko.SSHClient, RemoteHost]]:
        told(host.name, "connecting")
        client = self._connections.open(host.login)
        try:
            yield client, RemoteHost(client, host)
        finally:
            client.close()

    def _start(self, host: FleetHost, *, told: ProgressCallback) -> list[WorkerOutcome]:
        keys = {name: self.errand.key_file_of(name).read_text("ascii") for name in host.worker_names}
        with self._connect_host(host, told) as (client, station):
            identity = self._installed(host, station, told)
            address = self._address(host, client, station, told)
            services = host.services_address or _direct_address(host, client, station)

            def start(name: str) -> WorkerOutcome:
                told(host.name, f"starting {name}")
                answer = station.do(
                    "start",
                    timeout_s=STOP_TIMEOUT_S,
                    identity=identity,
                    name=name,
                    key=keys[name],
                    argv=self.errand.arguments(replace(host, services_address=services), address),
                    lifetime=self.errand.lifetime(),
                    env=dict(host.env),
                )
                state = RUNNING if answer["state"] == "running" else STARTED
                return WorkerOutcome(host.name, name, state, f"pid {answer['pid']}, master {address}")

            return for_each_worker(host, start)

    def _installed(self, host: FleetHost, station: RemoteHost, told: ProgressCallback) -> str:
        bundle = self.errand.wheelhouse.bundle_for(station.kind)
        if station.lacks(bundle):
            size = station.upload_bytes(bundle) / 1e6
            told(host.name, f"installing with {station.python} ({size:.1f} MB to send)")
            station.install(bundle)
        return bundle.identity

    def _address(
        self, host: FleetHost, client: paramiko.SSHClient, station: RemoteHost, told: ProgressCallback
    ) -> str:
        """Return under which address the host reaches the master, with a tunnel where one is asked for."""
        if self.errand.uses_tunnel(host):
            told(host.name, "opening the tunnel")
            ports = self.errand.ports
            lanes = range(ports.work, ports.work + self.errand.lane_count + SPARE_LANES)
            # On a connection of its own, which stays when this one is closed.
            connect = partial(self._connections.open, host.login)
            forwarded = [ports.control, ports.results, *lanes]
            try:
                self._tunnels.append(Tunnel(host.name, connect, self.errand.master_here, forwarded))
            except HostError:
                if not set(host.worker_names) <= set(station.facts["running"]):
                    raise
                # `start-workers` holds it. Should it be somebody else's, the workers will not be heard.
                told(host.name, "its workers run, and a tunnel stands already")
            return LOOPBACK
        if host.master is None and self.errand.master is None and host.login.jump is None:
            address = local_address(client)
            # One of a link alone means nothing at its other end.
            return address if address and "%" not in address else self.errand.master_for(host)
        return self.errand.master_for(host)

    def _stop(self, host: FleetHost, *, told: ProgressCallback, purge: bool) -> list[WorkerOutcome]:
        with self._connect_host(host, told) as (_, station):
            told(host.name, "ending workers")
            answer = station.do("stop", timeout_s=STOP_TIMEOUT_S, names=list(host.worker_names), purge=purge)
        detail = ""
        if purge:
            others = ", ".join(answer["others"])
            detail = f"kept what is installed, for {others}" if others else "removed what was installed"
        return [WorkerOutcome(host.name, name, how, detail) for name, how in answer["ended"].items()]

    def _logs(self, host: FleetHost, *, told: ProgressCallback) -> dict[str, str]:
        with self._connect_host(host, told) as (_, station):
            return dict(station.do("logs", names=list(host.worker_names), timeout_s=QUERY_TIMEOUT_S)["logs"])

    def _ask(self, host: FleetHost, *, told: ProgressCallback, queries: Sequence[Sequence[str]]) -> QueryResults:
        answers = []
        with self._connect_host(host, told) as (_, station):
            identity = self._installed(host, station, told)
            for flags in queries:
                told(host.name, f"asking bench-worker {' '.join(flags)}")
                fields = {"identity": identity, "env": dict(host.env), "limit_s": QUERY_TIMEOUT_S}
                answers.append(list(station.do("query", (), QUERY_TIMEOUT_S, flags=list(flags), **fields)["rows"]))
        return answers


def _direct_address(host: FleetHost, client: paramiko.SSHClient, station: RemoteHost) -> str | None:
    """Return the address at which SSH reaches a host, if that is the host's own; None where something is in between.

    Behind a forwarded port, or NAT, the host does not have the address that it is called by, and nothing could listen
    there: its worker then finds out for itself.
    """
    called = host.login.address if host.login.jump is not None else remote_address(client)
    try:
        own = host_address(called)
        return own if own == host_address(station.facts["reached_at"]) and not is_loopback(own) else None
    except InvalidValue:
        return None
