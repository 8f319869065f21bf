"""Launcher `ssh`: goes to each host, installs this version of Weighbridge if need be, and starts the workers."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from bench_common.cli import host_address
from bench_common.curve import is_loopback
from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.base import (
    RUNNING,
    STARTED,
    Answers,
    Errand,
    Launcher,
    Outcome,
    Told,
    each_worker,
    outcomes_of,
    side_by_side,
)
from bench_master.fleet.remote_host import Station
from bench_master.fleet.ssh import Connections, HostFailed, far_address, local_address
from bench_master.fleet.tunnels import LOOPBACK, Tunnel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import paramiko

SPARE_LANES: Final = 2
"""A worker that comes back gets a fresh lane before the port of its old one is free."""
STOP_S: Final = 120.0
ASK_S: Final = 120.0


class SshLauncher(Launcher):
    """Hosts that let us in with SSH. Nothing needs to be there but Python and an SSH server."""

    name = "ssh"

    def __init__(self, errand: Errand) -> None:
        super().__init__(errand)
        self._connections = Connections(errand.known_hosts)
        self._tunnels: list[Tunnel] = []

    def start(self, hosts: Sequence[FleetHost], told: Told) -> list[Outcome]:
        """Start the workers of all hosts side by side."""
        found = side_by_side(hosts, partial(self._start, told=told))
        return outcomes_of(hosts, found)

    def stop(self, hosts: Sequence[FleetHost], told: Told, *, purge: bool) -> list[Outcome]:
        """End the workers of all hosts side by side."""
        found = side_by_side(hosts, partial(self._stop, told=told, purge=purge))
        return outcomes_of(hosts, found)

    def logs(self, hosts: Sequence[FleetHost], told: Told) -> dict[str, str | InfrastructureError]:
        """Fetch the end of each log."""
        found = side_by_side(hosts, partial(self._logs, told=told))
        logs: dict[str, str | InfrastructureError] = {}
        for host in hosts:
            answer = found[host.name]
            for name in host.worker_names:
                if isinstance(answer, InfrastructureError):
                    logs[name] = answer
                else:
                    logs[name] = answer.get(name, HostFailed("no worker of that name was started there"))
        return logs

    def ask(
        self, hosts: Sequence[FleetHost], told: Told, questions: Sequence[Sequence[str]]
    ) -> dict[str, Answers | InfrastructureError]:
        """Ask ``bench-worker`` on every host; it is installed there if need be."""
        return side_by_side(hosts, partial(self._ask, told=told, questions=questions))

    def close(self) -> None:
        """Close every connection, tunnels included."""
        for tunnel in self._tunnels:
            tunnel.close()
        self._tunnels.clear()
        self._connections.close()

    @contextmanager
    def _station(self, host: FleetHost, told: Told) -> Iterator[tuple[paramiko.SSHClient, Station]]:
        told(host.name, "connecting")
        client = self._connections.open(host.login)
        try:
            yield client, Station(client, host)
        finally:
            client.close()

    def _start(self, host: FleetHost, *, told: Told) -> list[Outcome]:
        keys = {name: self.errand.key_of(name).read_text("ascii") for name in host.worker_names}
        with self._station(host, told) as (client, station):
            identity = self._installed(host, station, told)
            address = self._address(host, client, station, told)
            services = host.services_address or _own_address(host, client, station)

            def start(name: str) -> Outcome:
                told(host.name, f"starting {name}")
                answer = station.do(
                    "start",
                    timeout_s=STOP_S,
                    identity=identity,
                    name=name,
                    key=keys[name],
                    argv=self.errand.arguments(replace(host, services_address=services), address),
                    lifetime=self.errand.lifetime(),
                    env=dict(host.env),
                )
                state = RUNNING if answer["state"] == "running" else STARTED
                return Outcome(host.name, name, state, f"pid {answer['pid']}, master {address}")

            return each_worker(host, start)

    def _installed(self, host: FleetHost, station: Station, told: Told) -> str:
        bundle = self.errand.wheelhouse.bundle_for(station.kind)
        if station.lacks(bundle):
            size = station.to_send(bundle) / 1e6
            told(host.name, f"installing with {station.python} ({size:.1f} MB to send)")
            station.install(bundle)
        return bundle.identity

    def _address(self, host: FleetHost, client: paramiko.SSHClient, station: Station, told: Told) -> str:
        """Return under which address the host reaches the master, with a tunnel where one is asked for."""
        if self.errand.tunnels(host):
            told(host.name, "opening the tunnel")
            ports = self.errand.ports
            lanes = range(ports.work, ports.work + self.errand.lanes + SPARE_LANES)
            # On a connection of its own, which stays when this one is closed.
            connect = partial(self._connections.open, host.login)
            forwarded = [ports.control, ports.results, *lanes]
            try:
                self._tunnels.append(Tunnel(host.name, connect, self.errand.master_here, forwarded))
            except HostFailed:
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

    def _stop(self, host: FleetHost, *, told: Told, purge: bool) -> list[Outcome]:
        with self._station(host, told) as (_, station):
            told(host.name, "ending workers")
            answer = station.do("stop", timeout_s=STOP_S, names=list(host.worker_names), purge=purge)
        detail = ""
        if purge:
            others = ", ".join(answer["others"])
            detail = f"kept what is installed, for {others}" if others else "removed what was installed"
        return [Outcome(host.name, name, how, detail) for name, how in answer["ended"].items()]

    def _logs(self, host: FleetHost, *, told: Told) -> dict[str, str]:
        with self._station(host, told) as (_, station):
            return dict(station.do("logs", names=list(host.worker_names), timeout_s=ASK_S)["logs"])

    def _ask(self, host: FleetHost, *, told: Told, questions: Sequence[Sequence[str]]) -> Answers:
        answers = []
        with self._station(host, told) as (_, station):
            identity = self._installed(host, station, told)
            for flags in questions:
                told(host.name, f"asking bench-worker {' '.join(flags)}")
                fields = {"identity": identity, "env": dict(host.env), "limit_s": ASK_S}
                answers.append(list(station.do("ask", (), ASK_S, flags=list(flags), **fields)["rows"]))
        return answers


def _own_address(host: FleetHost, client: paramiko.SSHClient, station: Station) -> str | None:
    """Return the address at which SSH reaches a host, if that is the host's own; None where something is in between.

    Behind a forwarded port, or NAT, the host does not have the address that it is called by, and nothing could listen
    there: its worker then finds out for itself.
    """
    called = host.login.address if host.login.jump is not None else far_address(client)
    try:
        own = host_address(called)
        return own if own == host_address(station.facts["reached_at"]) and not is_loopback(own) else None
    except ArgumentTypeError:
        return None
