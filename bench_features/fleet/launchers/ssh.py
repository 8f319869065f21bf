"""Launcher `ssh`: connects to each host, installs this version of Weighbridge if needed, and starts the workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from bench_common.argument_types import InvalidValue, host_address
from bench_common.curve import is_loopback
from bench_common.errors import InfrastructureError
from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.launchers.base import (
    IN_USE,
    RUNNING,
    STARTED,
    HostProgress,
    Launcher,
    LaunchSpec,
    QueryResults,
    WorkerOutcome,
    collect_outcomes,
    for_each_worker,
    run_parallel,
    start_unless_in_use,
)
from bench_features.fleet.remote_host import RemoteHost
from bench_features.fleet.ssh import Connections, HostError, local_address, remote_address
from bench_features.fleet.tunnels import LOOPBACK, Tunnel
from bench_features.fleet.wheels import WheelBundle

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

    def start(self, hosts: Sequence[FleetHost], progress: HostProgress) -> list[WorkerOutcome]:
        """Start the workers of all hosts in parallel."""
        found = run_parallel(hosts, partial(self._start_host, progress=progress), progress)
        return collect_outcomes(hosts, found)

    def stop(self, hosts: Sequence[FleetHost], progress: HostProgress, *, purge: bool) -> list[WorkerOutcome]:
        """Stop the workers of all hosts in parallel."""
        found = run_parallel(hosts, partial(self._stop_host, progress=progress, purge=purge), progress)
        return collect_outcomes(hosts, found)

    def logs(self, hosts: Sequence[FleetHost], progress: HostProgress) -> dict[str, str | InfrastructureError]:
        """Fetch the end of each log."""
        found = run_parallel(hosts, partial(self._read_logs, progress=progress), progress)
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
        self, hosts: Sequence[FleetHost], progress: HostProgress, queries: Sequence[Sequence[str]]
    ) -> dict[str, QueryResults | InfrastructureError]:
        """Query ``bench-worker`` on every host, where it is installed if needed."""
        return run_parallel(hosts, partial(self._query_host, progress=progress, queries=queries), progress)

    def close(self) -> None:
        """Close every connection, tunnels included."""
        for tunnel in self._tunnels:
            tunnel.close()
        self._tunnels.clear()
        self._connections.close()

    @contextmanager
    def _connect_host(
        self, host: FleetHost, progress: HostProgress
    ) -> Iterator[tuple[paramiko.SSHClient, RemoteHost]]:
        progress(host.name, "connecting")
        client = self._connections.open(host.login)
        try:
            yield client, RemoteHost(client, host)
        finally:
            client.close()

    def _start_host(self, host: FleetHost, *, progress: HostProgress) -> list[WorkerOutcome]:
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

    def _ensure_installed(self, host: FleetHost, remote: RemoteHost, progress: HostProgress) -> str:
        """Return what names this installation on a host, where it is installed unless it is there.

        A host with a pip of its own gets this project alone, and the rest from its own index; if that fails, all.
        """
        wheelhouse, platform = self.launch_spec.wheelhouse, remote.python_platform
        progress(host.name, "packing this installation")
        small = wheelhouse.project_bundle_for(platform) if host.index else None
        if small is not None and not remote.has_whole(small):
            if remote.has(small):
                return small.identity
            if remote.has_pip:
                try:
                    self._install(host, remote, small, progress, "the rest comes from the index of its own pip")
                except HostError as error:
                    progress(host.name, f"its own pip cannot install the rest, so everything is sent: {error}")
                else:
                    return small.identity
        bundle = wheelhouse.bundle_for(platform)
        if not remote.has(bundle):
            stands_for = "" if small is None else small.identity
            self._install(host, remote, bundle, progress, "everything that it needs", stands_for)
        return bundle.identity

    @staticmethod
    def _install(
        host: FleetHost,
        remote: RemoteHost,
        bundle: WheelBundle,
        progress: HostProgress,
        what: str,
        stands_for: str = "",
    ) -> None:
        size = remote.upload_bytes(bundle)
        progress(host.name, f"installing with {remote.python} ({size / 1e6:.1f} MB to send; {what})")
        remote.install(bundle, stands_for=stands_for, on_sent=lambda sent: progress.sent(host.name, sent, size))

    def _master_address(
        self, host: FleetHost, client: paramiko.SSHClient, remote: RemoteHost, progress: HostProgress
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
                # `fleet start` holds it. If it is somebody else's, the workers cannot connect to us.
                progress(host.name, "its workers are running, and a tunnel is already open")
            return LOOPBACK
        if host.master is None and self.launch_spec.master is None and host.login.jump is None:
            address = local_address(client)
            # A link-local address means nothing on the other host.
            return address if address and "%" not in address else self.launch_spec.master_for(host)
        return self.launch_spec.master_for(host)

    def _stop_host(self, host: FleetHost, *, progress: HostProgress, purge: bool) -> list[WorkerOutcome]:
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

    def _read_logs(self, host: FleetHost, *, progress: HostProgress) -> dict[str, str]:
        with self._connect_host(host, progress) as (_, remote):
            return dict(remote.call("logs", names=list(host.worker_names), timeout_s=QUERY_TIMEOUT_S)["logs"])

    def _query_host(
        self, host: FleetHost, *, progress: HostProgress, queries: Sequence[Sequence[str]]
    ) -> QueryResults:
        answers = []
        with self._connect_host(host, progress) as (_, remote):
            identity = self._ensure_installed(host, remote, progress)
            for flags in queries:
                progress(host.name, f"querying bench-worker {' '.join(flags)}")
                answer = remote.call(
                    "query",
                    timeout_s=QUERY_TIMEOUT_S,
                    flags=[*flags, *host.engine_flags],
                    identity=identity,
                    env=dict(host.env),
                    limit_s=QUERY_TIMEOUT_S,
                )
                answers.append(list(answer["rows"]))
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
