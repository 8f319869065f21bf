"""What a worker's batch job is submitted with: its files on the shared file system, options, script and comment."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from time import gmtime, strftime
from typing import Any, Self

from msgspec import Struct

from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.launchers.base import LaunchSpec
from bench_features.fleet.remote_agent import boot_id, start_ticks, user_of, write_private


class WorkerFiles(Struct, frozen=True):
    """A worker's files on the file system that its node shares with this machine."""

    directory: Path
    key: Path
    """Its key, which its job removes when it ends."""
    log: Path
    run_file: Path
    """Whom it serves, while it serves a run."""

    @classmethod
    def of(cls, host: FleetHost, worker: str) -> Self:
        """Return the files of a worker of `host`."""
        directory = Path.home() / Path(host.directory).expanduser()
        key, log = directory / "keys" / f"{worker}.key", directory / "logs" / f"{worker}.log"
        return cls(directory, key, log, directory / "workers" / f"{worker}.run")

    @property
    def secrets(self) -> list[str]:
        """The paths of those that are removed with the worker."""
        return [str(self.key), str(self.run_file)]

    def create(self, key: str) -> None:
        """Create the folders, and the file with the key."""
        for path in (self.key, self.log, self.run_file):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.key, key)

    def remove(self) -> None:
        """Remove all but the log."""
        for path in self.secrets:
            Path(path).unlink(missing_ok=True)


def job_name(worker: str) -> str:
    """Return the name of a worker's job."""
    return f"weighbridge-{worker}"


def is_exclusive(host: FleetHost) -> bool:
    """Return whether a worker has its node for itself."""
    return host.settings.get("shared") != "yes"


def submit_options(host: FleetHost, worker: str, files: WorkerFiles) -> list[str]:
    """Return the options of ``sbatch``. As arguments they take precedence over variables such as SBATCH_PARTITION."""
    # In the name of a log, % begins a pattern.
    log = str(files.log).replace("%", "%%")
    options = [f"--job-name={job_name(worker)}", f"--nodelist={host.login.address}", "--nodes=1", "--ntasks=1"]
    # Started again after its node failed, a worker would find no key and no master.
    options += ["--no-requeue", f"--chdir={files.directory}", f"--output={log}", "--open-mode=truncate"]
    chosen = [name for name in ("partition", "account", "time") if name in host.settings]
    options += [f"--{name}={host.settings[name]}" for name in chosen]
    # Exclusive use means all processors, but only the memory that is asked for.
    return [*options, "--exclusive", "--mem=0"] if is_exclusive(host) else options


def batch_script(host: FleetHost, command: Sequence[str], files: WorkerFiles) -> str:
    """Return the batch script that runs a worker, whose `command` this is.

    The worker is no step of its own (``srun``): a step of one task may be bound to a single processor. When Slurm
    ends a job, its signal reaches the worker, and the script outlives it to remove the key.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in host.env.items()]
    lines += ["trap : INT TERM", shlex.join([*command, "--run-file", str(files.run_file)]), "status=$?"]
    lines += [f"rm -f {shlex.join(files.secrets)}", "exit $status"]
    return "\n".join(["#!/bin/sh", *lines, ""])


def comment(spec: LaunchSpec, mark: str) -> str:
    """Return the comment of a job: who started it, for what, and a hash of its settings (`mark`)."""
    whose = spec.owner()
    since = strftime("%Y-%m-%dT%H:%M:%S+00:00", gmtime())
    facts = {"owner": whose["id"], "owner_name": whose["name"], "since": since, "once": spec.once, "mark": mark}
    return json.dumps({**facts, "process": {name: whose[name] for name in ("boot", "pid", "born")}})


def find_user(files: WorkerFiles, worker: str, owner: dict[str, Any]) -> str | None:
    """Return for whom a worker works, by the comment of its job; None if it waits for any run.

    A worker that was started for the run of a master that was killed on this machine works for nobody.
    """
    process = owner.get("process")
    here = owner.get("once") and isinstance(process, dict) and process.get("boot") == boot_id()
    if here and isinstance(process, dict) and start_ticks(int(process["pid"])) != process.get("born"):
        return None
    return user_of(files.directory, worker, owner)
