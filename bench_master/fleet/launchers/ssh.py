"""Launcher `ssh`: connects to each host, installs this version of Weighbridge if needed, and starts the workers."""

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
    IN_USE,
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
    start_unless_in_use,
)
from bench_master.fleet.remote_host import RemoteHost
from bench_master.fleet.ssh import Connections, HostError, local_address, remote_address
from bench_master.fleet.tunnels import LOOPBACK, Tunnel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import paramiko

SPARE_LANES: Final = 2
"""A worker that reconnects gets a new lane before the port of its old one is free."""
STOP_TIMEOUT_S: Final = 120.0
"""Time limit for starting or stopping a host's workers (s)."""
QUERY_TIMEOUT_S: Final = 120.0
"""Time limit for a query, or for fetching logs (s)."""


class SshLauncher(Launcher):
    """Hosts that are reached over SSH. They need an SSH server and Python, nothing else."""

    name = "ssh"

    def __init__(self, launch_spec: LaunchSpec) -> None:
        super().__init__(launch_spec)
        self._connections = Connections(launch_spec.known_hosts)
        self._tunnels: list[Tunnel] = []

    def start(self, hosts: Sequence[FleetHost], progress: ProgressCallback) -> list[WorkerOutcome]:
        """Start the workers of all hosts in parallel."""
        found = run_parallel(hosts, partial(self._start_host, progress=progress))
        return collect_outcomes(hosts, found)

    def stop(self, hosts: Sequence[FleetHost], progress: ProgressCallback, *, purge: bool) -> list[WorkerOutcome]:
        """Stop the workers of all hosts in parallel."""
        found = run_parallel(hosts, partial(self._stop_host, progress=progress, purge=purge))
        return collect_outcomes(hosts, found)

    def logs(self, hosts: Sequence[FleetHost], progress: ProgressCallback) -> dict[str, str | InfrastructureError]:
        """Fetch the end of each log."""
        found = run_parallel(hosts, partial(self._read_logs, progress=progress))
        logs: dict[str, str | InfrastructureError] = {}
        for host in hosts:
            answer = found[host.name]
            for name in host.worker_names:
                if isinstance(answer, InfrastructureError):
                    logs[name] = answer
                else:
                    logs[name] = answer.get(name, HostError("no worker of this name was started there"))
        return logs

    def query(
        self, hosts: Sequence[FleetHost], progress: ProgressCallback, queries: Sequence[Sequence[str]]
    ) -> dict[str, QueryResults | InfrastructureError]:
        """Query ``bench-worker`` on every host, where it is installed if needed."""
        return run_parallel(hosts, partial(self._query_host, progress=progress, queries=queries))

    def close(self) -> None:
        """Close every connection, tunnels included."""
        for tunnel in self._tunnels:
            tunnel.close()
        self._tunnels.clear()
        self._connections.close()

    @contextmanager
    def _connect_host(
        self, host: FleetHost, progress: ProgressCallback
    ) -> Iterator[tuple[paramiko.SSHClient, RemoteHost]]:
        progress(host.name, "connecting")
        client = self._connections.open(host.login)
        try:
            yield client, RemoteHost(client, host)
        finally:
            client.close()

    def _start_host(self, host: FleetHost, *, progress: ProgressCallback) -> list[WorkerOutcome]:
        keys = {name: self.launch_spec.key_file_of(name).read_text("ascii") for name in host.worker_names}
        with self._connect_host(host, progress) as (client, remote):
            identity = self._ensure_installed(host, remote, progress)
            address = self._master_address(host, client, remote, progress)
            services = host.services_address or _direct_address(host, client, remote)

            def start(name: str) -> WorkerOutcome:
                progress(host.name, f"starting {name}")
                request = partial(
                    remote.call,
                    "start",
                    timeout_s=STOP_TIMEOUT_S,
                    identity=identity,
                    name=name,
                    key=keys[name],
                    argv=self.launch_spec.arguments(replace(host, services_address=services), address),
                    lifetime=self.launch_spec.lifetime(),
                    owner=self.launch_spec.owner(),
                    names=list(host.worker_names),
                    env=dict(host.env),
                )
                answer = start_unless_in_use(request)
                if answer["state"] == IN_USE:
                    return WorkerOutcome(host.name, name, IN_USE, answer["detail"])
                state = RUNNING if answer["state"] == "running" else STARTED
                return WorkerOutcome(host.name, name, state, f"pid {answer['pid']}, master {address}")

            return for_each_worker(host, start)

    def _ensure_installed(self, host: FleetHost, remote: RemoteHost, progress: ProgressCallback) -> str:
        bundle = self.launch_spec.wheelhouse.bundle_for(remote.python_platform)
        if remote.needs_install(bundle):
            size = remote.upload_bytes(bundle) / 1e6
            progress(host.name, f"installing with {remote.python} ({size:.1f} MB to send)")
            remote.install(bundle)
        return bundle.identity

    def _master_address(
        self, host: FleetHost, client: paramiko.SSHClient, remote: RemoteHost, progress: ProgressCallback
    ) -> str:
        """Return the address at which the host reaches the master; open a tunnel if it uses one."""
        if self.launch_spec.uses_tunnel(host):
            progress(host.name, "opening the tunnel")
            ports = self.launch_spec.ports
            lanes = range(ports.work, ports.work + self.launch_spec.lane_count + SPARE_LANES)
            # On a separate connection, which stays open when this one is closed.
            connect = partial(self._connections.open, host.login)
            forwarded = [ports.control, ports.results, *lanes]
            try:
                self._tunnels.append(Tunnel(host.name, connect, self.launch_spec.master_here, forwarded))
            except HostError:
                if not set(host.worker_names) <= set(remote.facts["running"]):
                    raise
                # `start-workers` holds it. If it is somebody else's, the workers cannot connect to us.
                progress(host.name, "its workers are running, and a tunnel is already open")
            return LOOPBACK
        if host.master is None and self.launch_spec.master is None and host.login.jump is None:
            address = local_address(client)
            # A link-local address means nothing on the other host.
            return address if address and "%" not in address else self.launch_spec.master_for(host)
        return self.launch_spec.master_for(host)

    def _stop_host(self, host: FleetHost, *, progress: ProgressCallback, purge: bool) -> list[WorkerOutcome]:
        with self._connect_host(host, progress) as (_, remote):
            progress(host.name, "stopping workers")
            answer = remote.call(
                "stop",
                timeout_s=STOP_TIMEOUT_S,
                names=list(host.worker_names),
                purge=purge,
                owner=self.launch_spec.stop_owner,
            )
        detail = ""
        if purge:
            others = ", ".join(answer["others"])
            detail = f"installation kept for {others}" if others else "installation removed"
        return [WorkerOutcome(host.name, name, how, detail) for name, how in answer["ended"].items()]

    def _read_logs(self, host: FleetHost, *, progress: ProgressCallback) -> dict[str, str]:
        with self._connect_host(host, progress) as (_, remote):
            return dict(remote.call("logs", names=list(host.worker_names), timeout_s=QUERY_TIMEOUT_S)["logs"])

    def _query_host(
        self, host: FleetHost, *, progress: ProgressCallback, queries: Sequence[Sequence[str]]
    ) -> QueryResults:
        answers = []
        with self._connect_host(host, progress) as (_, remote):
            identity = self._ensure_installed(host, remote, progress)
            for flags in queries:
                progress(host.name, f"querying bench-worker {' '.join(flags)}")
                fields = {"identity": identity, "env": dict(host.env), "limit_s": QUERY_TIMEOUT_S}
                answers.append(list(remote.call("query", (), QUERY_TIMEOUT_S, flags=list(flags), **fields)["rows"]))
        return answers


def _direct_address(host: FleetHost, client: paramiko.SSHClient, remote: RemoteHost) -> str | None:
    """Return the address at which SSH reaches a host if it is the host's own; None behind a forwarded port or NAT.

    There the host does not have that address, and nothing could listen at it: its worker detects an address itself.
    """
    reached = host.login.address if host.login.jump is not None else remote_address(client)
    try:
        own = host_address(reached)
        return own if own == host_address(remote.facts["reached_at"]) and not is_loopback(own) else None
    except InvalidValue:
        return None
