"""What the launchers of clusters share: each worker is one object of the cluster, made with the user's own tool.

The tools (kubectl, sbatch, docker) are used as the user has set them up.
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
"""Label with the worker's name on everything that is made for it; nothing else is ever removed."""


class ClusterLauncher(Launcher):
    """Starts workers through a cluster's scheduler; a subclass starts and stops one worker and reads its log."""

    def start(self, hosts: Sequence[FleetHost], progress: ProgressCallback) -> list[WorkerOutcome]:
        """Start the workers of each host."""

        def start(host: FleetHost) -> list[WorkerOutcome]:
            if self.launch_spec.uses_tunnel(host):
                raise InfrastructureError(f"launcher {self.name} has no SSH connection for a tunnel")
            address = self.launch_spec.master_for(host)

            def launch(worker: str) -> WorkerOutcome:
                progress(host.name, f"starting {worker}")
                detail = self.start_worker(host, worker, address)
                return WorkerOutcome(host.name, worker, STARTED if detail else RUNNING, detail)

            return for_each_worker(host, launch)

        return collect_outcomes(hosts, run_parallel(hosts, start))

    def stop(self, hosts: Sequence[FleetHost], progress: ProgressCallback, *, purge: bool) -> list[WorkerOutcome]:
        """Stop the workers of each host. Nothing was installed there, so there is nothing to purge."""
        del purge

        def stop(host: FleetHost) -> list[WorkerOutcome]:
            def end(worker: str) -> WorkerOutcome:
                progress(host.name, f"stopping {worker}")
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
        """Return a setting of a host; raise `InfrastructureError` if it is missing and has no default."""
        value = host.settings.get(name, default)
        if value is None:
            raise InfrastructureError(
                f"launcher {self.name} needs the setting '{name}' ({self.settings[name]}): add it under 'settings:'"
            )
        return value

    def command(self, host: FleetHost, worker: str, address: str, *, key: str, python: str) -> list[str]:
        """Return the argument vector of a worker, which has the path of its key but no key.

        It is the same for one run as for many: the arguments of a worker that is already in a cluster cannot change.
        """
        arguments = self.launch_spec.arguments(host, address)
        timeout = ["--master-timeout", f"{self.launch_spec.master_timeout_s or MASTER_TIMEOUT_S:g}"]
        return [host.python or python, "-m", "bench_worker", *arguments, *timeout, "--key", key, worker]

    @abc.abstractmethod
    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Start a worker; return a description of it, or an empty text if it runs already."""

    @abc.abstractmethod
    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Stop a worker; return ``ended`` or ``was not running``."""

    @abc.abstractmethod
    def read_log(self, host: FleetHost, worker: str) -> str:
        """Return a worker's log."""


TOOL_TIMEOUT_S: Final = 120.0
"""Time limit of a tool (s)."""


def run_tool(argv: Sequence[str], stdin: str = "", *, timeout_s: float = TOOL_TIMEOUT_S) -> str:
    """Return what a tool prints; raise `InfrastructureError` with its error message if it fails or is missing.

    Secrets go to `stdin`: everybody on this machine can read an argument vector.
    """
    try:
        done = subprocess.run(  # noqa: S603  no shell; the user's own tool
            list(argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise InfrastructureError(f"{argv[0]} is not installed here, or not on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{' '.join(argv[:2])} did not finish within {timeout_s:g} s") from error
    if done.returncode:
        reason = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise InfrastructureError(f"{' '.join(argv[:2])} failed with exit code {done.returncode}: {reason[:400]}")
    return done.stdout
