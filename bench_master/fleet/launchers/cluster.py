"""What the launchers of clusters share: one thing to be started for each worker, by a tool of the user.

The command-line tools of clusters (kubectl, sbatch, docker), as the user has set them up.
"""

from __future__ import annotations

import abc
import subprocess
from collections.abc import Sequence
from typing import Final

from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.base import (
    MASTER_TIMEOUT_S,
    RUNNING,
    STARTED,
    Launcher,
    ProgressCallback,
    WorkerOutcome,
    collect_outcomes,
    for_each_worker,
    run_parallel,
)

LABEL: Final = "weighbridge.worker"
"""Marks what belongs to a worker, with its name; nothing else is ever removed."""


class ClusterLauncher(Launcher):
    """Starts workers through a cluster's own scheduler; a subclass says how one is started, ended and read."""

    def start(self, hosts: Sequence[FleetHost], progress: ProgressCallback) -> list[WorkerOutcome]:
        """Start the workers of each host."""

        def start(host: FleetHost) -> list[WorkerOutcome]:
            if self.launch_spec.uses_tunnel(host):
                raise InfrastructureError(f"launcher {self.name} has no SSH connection to tunnel through")
            address = self.launch_spec.master_for(host)

            def launch(worker: str) -> WorkerOutcome:
                progress(host.name, f"starting {worker}")
                detail = self.start_worker(host, worker, address)
                return WorkerOutcome(host.name, worker, STARTED if detail else RUNNING, detail)

            return for_each_worker(host, launch)

        return collect_outcomes(hosts, run_parallel(hosts, start))

    def stop(self, hosts: Sequence[FleetHost], progress: ProgressCallback, *, purge: bool) -> list[WorkerOutcome]:
        """End the workers of each host. Nothing was installed there, so there is nothing to purge."""
        del purge

        def stop(host: FleetHost) -> list[WorkerOutcome]:
            def end(worker: str) -> WorkerOutcome:
                progress(host.name, f"ending {worker}")
                return WorkerOutcome(host.name, worker, self.stop_worker(host, worker))

            return for_each_worker(host, end)

        return collect_outcomes(hosts, run_parallel(hosts, stop))

    def logs(self, hosts: Sequence[FleetHost], progress: ProgressCallback) -> dict[str, str | InfrastructureError]:
        """Return the log of each worker."""

        def read(host: FleetHost) -> dict[str, str]:
            progress(host.name, "reading logs")
            return {worker: self.read_log(host, worker) for worker in host.worker_names}

        found: dict[str, str | InfrastructureError] = {}
        for host in hosts:
            answer = run_parallel([host], read)[host.name]
            for worker in host.worker_names:
                found[worker] = answer if isinstance(answer, InfrastructureError) else answer[worker]
        return found

    def setting(self, host: FleetHost, name: str, default: str | None = None) -> str:
        """Return a setting of a host; raise `InfrastructureError` for one that must be given."""
        value = host.settings.get(name, default)
        if value is None:
            raise InfrastructureError(
                f"launcher {self.name} needs the setting '{name}': {self.settings[name]}; give it under 'settings:'"
            )
        return value

    def command(self, host: FleetHost, worker: str, address: str, *, key: str, python: str) -> list[str]:
        """Return the argument vector of a worker, which has the place of its key but no key.

        It is the same for a single run as for many: what is in a cluster already cannot be told anything else.
        """
        arguments = self.launch_spec.arguments(host, address)
        timeout = ["--master-timeout", f"{self.launch_spec.master_timeout_s or MASTER_TIMEOUT_S:g}"]
        return [host.python or python, "-m", "bench_worker", *arguments, *timeout, "--key", key, worker]

    @abc.abstractmethod
    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Start a worker; return what is to be known of it, or nothing at all where it runs already."""

    @abc.abstractmethod
    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """End a worker; return ``ended`` or ``was not running``."""

    @abc.abstractmethod
    def read_log(self, host: FleetHost, worker: str) -> str:
        """Return a worker's log."""


TOOL_TIMEOUT_S: Final = 120.0
"""How long a tool may take."""


def run_tool(argv: Sequence[str], stdin: str = "", *, timeout_s: float = TOOL_TIMEOUT_S) -> str:
    """Return what a tool prints; raise `InfrastructureError` with its last words where it fails or is missing.

    What is secret goes to `stdin`: everybody on this machine can read an argument vector.
    """
    try:
        done = subprocess.run(  # noqa: S603  no shell, and the user's own tool
            list(argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise InfrastructureError(f"{argv[0]} is not installed here, or not on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{' '.join(argv[:2])} gave no answer within {timeout_s:g} s") from error
    if done.returncode:
        words = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise InfrastructureError(f"{' '.join(argv[:2])} failed with exit code {done.returncode}: {words[:400]}")
    return done.stdout
