"""What every launcher does: start and stop the workers of some hosts, and fetch their logs.

Another launcher is a subclass of `Launcher`, registered by its name under the entry point ``weighbridge.launchers``.
Its `LaunchSpec` says how workers reach the master and gives each worker's key. Hosts are handled in parallel: a
failure on one is its own outcome and does not stop the others.
"""

from __future__ import annotations

import abc
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from msgspec import Struct, field

from bench_common.argument_types import CONTROL_PORT, RESULTS_PORT, WORK_PORT
from bench_common.errors import InfrastructureError, WeighbridgeError
from bench_common.keys import KeyProvisioner
from bench_features.fleet import MASTER_TIMEOUT_S, RUN_MASTER_TIMEOUT_S
from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.known_hosts import KnownHosts
from bench_features.fleet.remote_agent import boot_id, start_ticks
from bench_features.fleet.wheels import Wheelhouse
from bench_master.run.endpoints import Ports, describe_master

QueryResults = list[list[dict[str, Any]]]
"""The rows that ``bench-worker`` printed for each of several queries."""


class HostProgress:
    """Takes what happens on which host; this one shows nothing."""

    def __call__(self, host: str, doing: str) -> None:
        """Take what is being done on a host now."""

    def sent(self, host: str, sent_bytes: int, total_bytes: int) -> None:
        """Take how much of what a host gets was sent."""

    def ended(self, host: str) -> None:
        """Take that nothing more is done on a host."""

    def watching(self) -> AbstractContextManager[None]:
        """Return a context in which hosts are at work."""
        return nullcontext()


STARTED: Final = "started"
RUNNING: Final = "already running"
IN_USE: Final = "in use"
FAILED: Final = "failed"


class WorkerOutcome(Struct, frozen=True):
    """The result of an action on one worker."""

    host: str
    """Its host's name in the inventory."""
    worker: str
    state: str
    """`STARTED`, `RUNNING`, `IN_USE` or `FAILED`, or how it ended."""
    detail: str = ""
    """Pid and master, for whom it works, or the reason of a failure."""

    @property
    def failed(self) -> bool:
        """Whether the action failed."""
        return self.state in (FAILED, IN_USE)


class LaunchSpec(Struct, frozen=True):
    """How workers are started: where their master is, with which keys, from which wheels."""

    provisioner: KeyProvisioner
    wheelhouse: Wheelhouse
    """Builds what is installed on hosts."""
    known_hosts: KnownHosts
    """The host keys that are trusted."""
    ports: Ports = field(default_factory=lambda: Ports(CONTROL_PORT, RESULTS_PORT, WORK_PORT))
    lane_count: int = 1
    """Number of work lanes, one per worker."""
    master: str | None = None
    """Address of the master for every host; by default each host gets the address that its connection comes from."""
    master_here: str = "127.0.0.1"
    """Address of the master on this machine."""
    tunnel: bool = False
    """Whether all hosts reach the master through their SSH connections."""
    master_timeout_s: float | None = None
    """How long a worker waits for a master; by default as long as its lifetime suggests."""
    once: bool = False
    """Whether workers serve a single run: they end with it or with its master."""
    verbose: bool = False
    stops_others: bool = False
    """Whether stopping means every worker there, and not only those that were started with these settings."""
    owner_id: str = field(default_factory=lambda: secrets.token_hex(8))
    """Recorded with each worker that is started, to tell it from somebody else's of the same name."""

    def owner(self) -> dict[str, Any]:
        """Return who starts workers: the id, a text that is shown to others, and the process."""
        pid = os.getpid()
        process = {"boot": boot_id(), "pid": pid, "born": start_ticks(pid)}
        return {"id": self.owner_id, "name": describe_master(), **process}

    @property
    def stop_owner(self) -> str | None:
        """The id of the workers that may be stopped; None: all."""
        return None if self.stops_others else self.owner_id

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
        if host.allow_cold:
            words.append("--allow-cold")
        if host.allow_host_settings:
            words += ["--allow-host-settings", ",".join(host.allow_host_settings)]
        words += host.engine_flags
        if host.allow_native:
            words.append("--allow-native")
        if self.verbose:
            words.append("-v")
        return words

    def lifetime(self) -> list[str]:
        """Return the arguments that say when a worker exits by itself; they do not make it a different worker."""
        master_timeout_s = self.master_timeout_s or (RUN_MASTER_TIMEOUT_S if self.once else MASTER_TIMEOUT_S)
        return ["--master-timeout", f"{master_timeout_s:g}", *(["--once"] if self.once else [])]

    def master_for(self, host: FleetHost) -> str:
        """Return the configured address of the master; raise `InfrastructureError` if there is none."""
        address = host.master or self.master
        if address is None:
            raise InfrastructureError(
                f"launcher {host.launcher} does not know how the host reaches the master: use --master-address, "
                "or set 'master:' in the inventory"
            )
        return address

    def key_file_of(self, worker: str) -> Path:
        """Return a worker's key file, which is made if needed."""
        return self.provisioner.key_file_to_deliver(worker)


class Launcher(abc.ABC):
    """Starts and stops workers. It must never put a key on a command line or into a log."""

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, str]] = {}
    """The keys that an inventory may have under ``settings:``, each with its meaning."""

    def __init__(self, launch_spec: LaunchSpec) -> None:
        self.launch_spec = launch_spec

    @abc.abstractmethod
    def start(self, hosts: Sequence[FleetHost], progress: HostProgress) -> list[WorkerOutcome]:
        """Start the workers of `hosts`; a failure on one host is its outcome and does not stop the others."""

    @abc.abstractmethod
    def stop(self, hosts: Sequence[FleetHost], progress: HostProgress, *, purge: bool) -> list[WorkerOutcome]:
        """Stop the workers of `hosts`; with `purge` remove what was installed there, too."""

    @abc.abstractmethod
    def logs(self, hosts: Sequence[FleetHost], progress: HostProgress) -> dict[str, str | InfrastructureError]:
        """Return the log of each worker by its name, or the error that prevents it."""

    def query(
        self, hosts: Sequence[FleetHost], progress: HostProgress, queries: Sequence[Sequence[str]]
    ) -> dict[str, QueryResults | InfrastructureError]:
        """Return what ``bench-worker`` prints for queries (each its flags) on each host, or the host's error.

        It knows the labels of the host's engines.
        """
        del progress, queries
        error = InfrastructureError(f"launcher {self.name} cannot query hosts")
        return {host.name: error for host in hosts}

    def explain_end(self, host: FleetHost, worker: str) -> str | None:
        """Return how a worker that this process started ended, as far as it can be told from outside of it."""
        del host, worker
        return None

    def close(self) -> None:  # noqa: B027  most hold no connections
        """Close connections. Workers go on."""


def start_unless_in_use(call: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Start a worker by `call`, a request to the remote agent; replace that of a master killed on this machine."""
    answer = call()
    owner = answer.get("owner")
    if answer["state"] != IN_USE or not isinstance(owner, dict):
        return answer
    ended = owner.get("boot") == boot_id() and start_ticks(int(owner["pid"])) != owner.get("born")
    return call(ended_owner=owner["id"]) if ended else answer


T = TypeVar("T")

MAX_PARALLEL: Final = 32
"""How many hosts are handled in parallel."""


def run_parallel(
    hosts: Sequence[FleetHost],
    action: Callable[[FleetHost], T],
    progress: HostProgress | None = None,
    cancel: Callable[[], None] | None = None,
) -> dict[str, T | InfrastructureError]:
    """Run an action on every host, `MAX_PARALLEL` side by side; return its result or its error by host.

    `progress` is told when a host is through. If the caller is interrupted, `cancel` is called before it waits for
    the actions to end.
    """

    def attempt(host: FleetHost) -> T | InfrastructureError:
        try:
            return action(host)
        except InfrastructureError as error:
            return error
        except WeighbridgeError as error:
            return InfrastructureError(str(error))
        except OSError as error:
            # Most likely a local file: a key that cannot be written, a wheel that cannot be read.
            where = f"{error.filename} on this machine: " if error.filename else ""
            return InfrastructureError(f"{where}{error.strerror or error}")
        except Exception as error:  # noqa: BLE001  an error on one host does not stop the others
            return InfrastructureError(f"{type(error).__name__}: {error}")
        finally:
            if progress is not None:
                progress.ended(host.name)

    with ThreadPoolExecutor(max_workers=MAX_PARALLEL) as pool:
        try:
            return {host.name: done for host, done in zip(hosts, pool.map(attempt, hosts), strict=True)}
        except BaseException:
            if cancel is not None:
                cancel()
            raise


def for_each_worker(host: FleetHost, action: Callable[[str], WorkerOutcome]) -> list[WorkerOutcome]:
    """Run an action for every worker of a host, by its name; a failure does not stop the others or hide them."""
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
    """Return the outcomes of all workers, in the order of the hosts; a host's error is that of all its workers."""
    outcomes: list[WorkerOutcome] = []
    for host in hosts:
        done = found[host.name]
        if isinstance(done, InfrastructureError):
            outcomes += [WorkerOutcome(host.name, name, FAILED, str(done)) for name in host.worker_names]
        else:
            outcomes += done
    return outcomes
