"""Launcher `slurm`: a batch job for each worker, on its node, with ``sbatch``.

Weighbridge must be installed where the nodes can use it (``python:`` names the interpreter), and ``directory`` must
be on a file system that they share with this machine: it holds keys, mode 0600, and logs.
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar, Final

from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.cluster import ClusterLauncher, run_tool
from bench_master.fleet.remote_agent import write_private

CANCEL_TIMEOUT_S: Final = 120.0
"""Time limit for a cancelled job to leave the queue (s); Slurm kills it earlier."""


class SlurmLauncher(ClusterLauncher):
    """Nodes of a Slurm cluster, by ``address`` (their name in Slurm)."""

    name = "slurm"
    settings: ClassVar[Mapping[str, str]] = {
        "partition": "partition to submit to (default: Slurm's)",
        "account": "account to charge (default: Slurm's)",
        "time": "time limit of a worker, in Slurm's format (default: Slurm's)",
        "shared": "yes: share the node with other jobs (default: exclusive use of the node)",
    }

    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Submit a job, unless the worker has one."""
        if self._jobs(worker):
            return ""
        directory = Path.home() / Path(host.directory).expanduser()
        for folder in ("keys", "logs"):
            (directory / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        key = directory / "keys" / f"{worker}.key"
        write_private(key, self.launch_spec.key_file_of(worker).read_text("ascii"))
        job = run_tool(["sbatch", "--parsable"], self.script(host, worker, address, key)).strip()
        return f"job {job.split(';')[0]}, master {address}"

    def script(self, host: FleetHost, worker: str, address: str, key: Path) -> str:
        """Return the batch script of a worker."""
        directory = key.parent.parent
        options = {
            "job-name": _job_name(worker),
            "nodelist": host.login.address,
            "nodes": "1",
            "ntasks": "1",
            "output": str(directory / "logs" / f"{worker}.log"),
            **{name: host.settings[name] for name in ("partition", "account", "time") if name in host.settings},
        }
        lines = [f"#SBATCH --{name}={value}" for name, value in options.items()]
        if host.settings.get("shared") != "yes":
            lines.append("#SBATCH --exclusive")
        lines += [f"export {name}={shlex.quote(value)}" for name, value in host.env.items()]
        command = self.command(host, worker, address, key=str(key), python="python3")
        return "\n".join(["#!/bin/sh", *lines, f"exec srun --ntasks=1 {shlex.join(command)}", ""])

    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Cancel the job, wait until it has left the queue, and remove the key."""
        there = self._jobs(worker)
        if there:
            run_tool(["scancel", *there])
        deadline = monotonic() + CANCEL_TIMEOUT_S
        while there and self._jobs(worker):
            if monotonic() > deadline:
                raise InfrastructureError(f"job {' '.join(there)} was cancelled but is still in the queue")
            sleep(0.5)
        (Path.home() / Path(host.directory).expanduser() / "keys" / f"{worker}.key").unlink(missing_ok=True)
        return "ended" if there else "was not running"

    def read_log(self, host: FleetHost, worker: str) -> str:
        """Read the log on the shared file system."""
        path = Path.home() / Path(host.directory).expanduser() / "logs" / f"{worker}.log"
        try:
            return path.read_text("utf-8", "replace")
        except OSError as error:
            raise InfrastructureError(f"{path}: {error.strerror}") from error

    @staticmethod
    def _jobs(worker: str) -> list[str]:
        """Return the ids of a worker's jobs that are queued or running."""
        return run_tool(
            ["squeue", "--noheader", "--format=%i", f"--name={_job_name(worker)}", f"--user={getpass.getuser()}"]
        ).split()


def _job_name(worker: str) -> str:
    return f"weighbridge-{worker}"
