"""What every launcher keeps to: it starts, ends and tells the logs of the workers of some hosts.

A launcher of your own is a subclass of `Launcher`, registered under the entry point ``weighbridge.launchers`` by the
name that it calls itself. It gets an `Errand`, which says how the master is reached and gives each worker's key.

Many hosts at once: what goes wrong on one is its own outcome, and stops no other.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from bench_common.cli import CONTROL_PORT, RESULTS_PORT, WORK_PORT
from bench_common.errors import InfrastructureError, WeighbridgeError
from bench_common.keys import KeyProvisioner
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.known_hosts import KnownHosts
from bench_master.fleet.wheels import Wheelhouse
from bench_master.run.sockets import Ports

QueryResults = list[list[dict[str, Any]]]
"""The rows that ``bench-worker`` answered to each of several queries."""
ProgressCallback = Callable[[str, str], None]
"""Takes a host's name and what is being done there."""

STARTED: Final = "started"
RUNNING: Final = "already running"
FAILED: Final = "failed"
MASTER_TIMEOUT_S: Final = 12 * 3600.0
"""How long a worker that was started waits for a master before it ends by itself."""
RUN_MASTER_TIMEOUT_S: Final = 600.0
"""The same for one that is started for a single run, by the master of that run."""


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """What became of one worker: `state` is one of the words above, or how it ended; `detail` says more."""

    host: str
    worker: str
    state: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is not as it was asked for."""
        return self.state == FAILED


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How workers are to be started: where their master is, with which keys, from which wheels.

    `master` is the address that every host is told; without it each is told the one that it seems to be reached from.
    With `once` workers are for a single run, and end with it or with its master.
    """

    provisioner: KeyProvisioner
    wheelhouse: Wheelhouse
    known_hosts: KnownHosts
    ports: Ports = field(default_factory=lambda: Ports(CONTROL_PORT, RESULTS_PORT, WORK_PORT))
    lane_count: int = 1
    master: str | None = None
    master_here: str = "127.0.0.1"
    tunnel: bool = False
    master_timeout_s: float | None = None
    once: bool = False
    verbose: bool = False

    def uses_tunnel(self, host: FleetHost) -> bool:
        """Return whether a host reaches the master through its SSH connection."""
        return self.tunnel or host.tunnel

    def arguments(self, host: FleetHost, address: str) -> list[str]:
        """Return the arguments of ``bench-worker`` for a worker of `host`, without its key, name and lifetime."""
        words = ["--zmq-host", address, "--zmq-control-port", str(self.ports.control)]
        words += ["-c", str(host.concurrency)]
        if host.environment is not None:
            words += ["--environment", host.environment]
        for name, value in host.labels.items():
            words += ["--label", f"{name}={value}"]
        if host.services_address is not None:
            words += ["--address", host.services_address]
        if host.allow_host_mounts:
            words.append("--allow-host-mounts")
        if self.verbose:
            words.append("-v")
        return words

    def lifetime(self) -> list[str]:
        """Return the arguments that say when a worker ends by itself; another lifetime makes it no other worker."""
        master_timeout_s = self.master_timeout_s or (RUN_MASTER_TIMEOUT_S if self.once else MASTER_TIMEOUT_S)
        return ["--master-timeout", f"{master_timeout_s:g}", *(["--once"] if self.once else [])]

    def master_for(self, host: FleetHost) -> str:
        """Return the address that was given for the master; raise `InfrastructureError` where none was."""
        address = host.master or self.master
        if address is None:
            raise InfrastructureError(
                f"launcher {host.launcher} cannot tell how the host reaches the master: give --master-address, "
                "or 'master:' in the inventory"
            )
        return address

    def key_file_of(self, worker: str) -> Path:
        """Return a worker's key file, made if need be."""
        return self.provisioner.key_file_to_deliver(worker)


class Launcher(abc.ABC):
    """Starts and ends workers. Nothing that it does may put a key on a command line or into a log."""

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, str]] = {}
    """What an inventory may say under ``settings:``, each with its meaning."""

    def __init__(self, launch_spec: LaunchSpec) -> None:
        self.launch_spec = launch_spec

    @abc.abstractmethod
    def start(self, hosts: Sequence[FleetHost], progress: ProgressCallback) -> list[WorkerOutcome]:
        """Start the workers of `hosts`; what fails on one host is its outcome and stops no other."""

    @abc.abstractmethod
    def stop(self, hosts: Sequence[FleetHost], progress: ProgressCallback, *, purge: bool) -> list[WorkerOutcome]:
        """End the workers of `hosts`; with `purge` remove what was installed there, too."""

    @abc.abstractmethod
    def logs(self, hosts: Sequence[FleetHost], progress: ProgressCallback) -> dict[str, str | InfrastructureError]:
        """Return the log of each worker by its name, or why there is none."""

    def query(
        self, hosts: Sequence[FleetHost], progress: ProgressCallback, queries: Sequence[Sequence[str]]
    ) -> dict[str, QueryResults | InfrastructureError]:
        """Return what ``bench-worker`` answers to queries (each its flags) on each host, or why it cannot."""
        del progress, queries
        error = InfrastructureError(f"launcher {self.name} starts workers, and asks nothing of hosts")
        return {host.name: error for host in hosts}

    def close(self) -> None:  # noqa: B027  most hold nothing open
        """Let go of what is held open. Workers go on."""


T = TypeVar("T")

MAX_PARALLEL: Final = 32
"""How many hosts are dealt with side by side."""


def run_parallel(hosts: Sequence[FleetHost], action: Callable[[FleetHost], T]) -> dict[str, T | InfrastructureError]:
    """Do something on every host at once; return by host what came of it, or the error that it met."""

    def attempt(host: FleetHost) -> T | InfrastructureError:
        try:
            return action(host)
        except InfrastructureError as error:
            return error
        except WeighbridgeError as error:
            return InfrastructureError(str(error))
        except OSError as error:
            # Of a file of ours, most likely: a key that cannot be written, a wheel that cannot be read.
            where = f"{error.filename} here: " if error.filename else ""
            return InfrastructureError(f"{where}{error.strerror or error}")
        except Exception as error:  # noqa: BLE001  what one host does to us stops no other
            return InfrastructureError(f"{type(error).__name__}: {error}")

    with ThreadPoolExecutor(max_workers=MAX_PARALLEL) as pool:
        return {host.name: done for host, done in zip(hosts, pool.map(attempt, hosts), strict=True)}


def for_each_worker(host: FleetHost, action: Callable[[str], WorkerOutcome]) -> list[WorkerOutcome]:
    """Do something for every worker of a host, by its name; one that fails stops no other, and hides none."""
    outcomes = []
    for worker in host.worker_names:
        try:
            outcomes.append(action(worker))
        except WeighbridgeError as error:
            outcomes.append(WorkerOutcome(host.name, worker, FAILED, str(error)))
    return outcomes


def collect_outcomes(
    hosts: Sequence[FleetHost], found: Mapping[str, list[WorkerOutcome] | InfrastructureError]
) -> list[WorkerOutcome]:
    """Return the outcomes of all workers, in the order of the hosts; what failed on a host failed for each."""
    outcomes: list[WorkerOutcome] = []
    for host in hosts:
        done = found[host.name]
        if isinstance(done, InfrastructureError):
            outcomes += [WorkerOutcome(host.name, name, FAILED, str(done)) for name in host.worker_names]
        else:
            outcomes += done
    return outcomes
