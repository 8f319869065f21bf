"""Launcher `slurm`: a batch job for each worker, on its node, with ``sbatch``.

Weighbridge must be installed where the nodes can use it (``python:`` names the interpreter), and ``directory`` must
be on a file system that they share with this machine: it holds keys, mode 0600, and logs. The comment of a job says
who started its worker and for what, so that nobody else's is taken or cancelled.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import ClassVar, Final

from bench_common.errors import InfrastructureError
from bench_common.safe_text import flat_line
from bench_common.units import parse_duration
from bench_features.clusters import slurm_queue
from bench_features.clusters.cluster import ClusterLauncher, run_tool
from bench_features.clusters.slurm_job import (
    WorkerFiles,
    batch_script,
    comment,
    find_user,
    is_exclusive,
    job_name,
    submit_options,
)
from bench_features.clusters.slurm_queue import Job
from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.launchers.base import (
    IN_USE,
    RUNNING,
    STARTED,
    HostProgress,
    LaunchSpec,
    WorkerOutcome,
)
from bench_features.fleet.remote_agent import tail

CANCEL_TIMEOUT_S: Final = 120.0
"""Time limit for a cancelled job to leave the queue (s); Slurm kills it earlier."""
DEFAULT_WAIT: Final = "1m"
"""How long a job of a run may wait for its node."""
QUEUED_S: Final = 5.0
"""How long is waited for a job that may wait on in the queue (s)."""
WATCH_S: Final = 1.5
"""How long a job is watched after its start (s): a wrong interpreter or key shows at once."""
END_WATCH_S: Final = 10.0
"""How long a job that is being ended is watched for its last state (s)."""
POLL_S: Final = (0.3, 3.0)
"""The first and the longest time between two looks at the queue (s)."""


class SlurmLauncher(ClusterLauncher):
    """Nodes of a Slurm cluster, by ``address`` (their name in Slurm)."""

    name = "slurm"
    settings: ClassVar[Mapping[str, str]] = {
        "partition": "partition to submit to (default: Slurm's)",
        "account": "account to charge (default: Slurm's)",
        "time": "time limit of a worker, in Slurm's format (default: Slurm's)",
        "shared": "yes: share the node with other jobs (default: exclusive use of the node)",
        "wait": f"how long run-scenario waits for the node before it gives up (default: {DEFAULT_WAIT})",
    }

    def __init__(self, launch_spec: LaunchSpec) -> None:
        super().__init__(launch_spec)
        self._submitted: set[str] = set()
        """The numbers of the jobs that this process submitted."""
        self._numbers: dict[str, str] = {}
        """The numbers of the jobs of the workers that run, by worker."""
        self._progress = HostProgress()

    def start(self, hosts: Sequence[FleetHost], progress: HostProgress) -> list[WorkerOutcome]:
        """Start the workers of each host, and tell what their jobs wait for."""
        self._progress = progress
        return super().start(hosts, progress)

    def explain_end(self, host: FleetHost, worker: str) -> str | None:
        """Return how the job of a worker ended, or what is wrong with its node; None if it runs on."""
        number = self._numbers.get(worker)
        deadline = monotonic() + END_WATCH_S
        while True:
            job = slurm_queue.job_numbered(number) if number is not None else None
            if job is not None and not job.is_active:
                return slurm_queue.explain_end(job)
            node = slurm_queue.look_at_node(host.login.address, beside=number)
            if node.is_gone or job is None or job.state != "COMPLETING" or monotonic() > deadline:
                return node.describe() if node.is_gone else None
            sleep(POLL_S[0])

    def _launch(self, host: FleetHost, worker: str, address: str) -> WorkerOutcome:
        """Start a worker, unless it has a job already; cancel one that nobody uses and that has other settings."""
        if len(host.worker_names) > 1 and is_exclusive(host):
            raise InfrastructureError(
                f"a node that is used exclusively has a single worker, and {host.name} has {len(host.worker_names)}: "
                "give one a higher 'concurrency' instead, or set 'shared: yes' under 'settings:'"
            )
        files, mark = WorkerFiles.of(host, worker), self.settings_hash(host, worker, address)
        for job in slurm_queue.jobs_named(job_name(worker), getpass.getuser()):
            if job.owner.get("mark") == mark and not (self.launch_spec.once and job.owner.get("once")):
                self._numbers[worker] = self._await_start(host, worker, job).id
                return WorkerOutcome(host.name, worker, RUNNING)
            user = None if job.state == "COMPLETING" else find_user(files, worker, job.owner)
            if user is not None:
                return WorkerOutcome(host.name, worker, IN_USE, f"{user} (job {job.id})")
            self._cancel(host, [job])
        if self._cancelled.is_set():
            raise InfrastructureError("interrupted before its job was submitted")
        return WorkerOutcome(host.name, worker, STARTED, self.start_worker(host, worker, address))

    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Submit a job and wait until it runs; if it cannot, leave nothing of it."""
        files = WorkerFiles.of(host, worker)
        command = self.command(host, worker, address, key=str(files.key), python="python3")
        remark = comment(self.launch_spec, self.settings_hash(host, worker, address))
        removal = ["rm", "-f", *files.secrets]
        if self.launch_spec.once:
            # By its name until it has a number: a later job of that name may be somebody else's.
            named = ["scancel", f"--name={job_name(worker)}", f"--user={getpass.getuser()}"]
            self._janitor.expect(worker, [named, removal])
        files.create(self.launch_spec.key_file_of(worker).read_text("ascii"))
        submitted = []
        try:
            sbatch = ["sbatch", "--parsable", *submit_options(host, worker, files), f"--comment={remark}"]
            number = run_tool(sbatch, batch_script(host, command, files)).strip().split(";")[0]
            submitted.append(Job(number, "PENDING"))
            if self.launch_spec.once:
                self._janitor.expect(worker, [["scancel", number], removal])
            job = self._await_start(host, worker, submitted[0])
        except InfrastructureError:
            with suppress(InfrastructureError):
                self._cancel(host, submitted)
                self._janitor.done(worker)
            files.remove()
            raise
        self._submitted.add(job.id)
        self._numbers[worker] = job.id
        queued = f", waits in the queue ({job.reason})" if job.is_waiting else ""
        return f"job {job.id}{queued}, master {address}"

    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Cancel every job of a worker, and remove its key."""
        return self._end(host, worker, slurm_queue.jobs_named(job_name(worker), getpass.getuser()))

    def _stop(self, host: FleetHost, worker: str) -> str:
        """Stop a worker, unless it was started by somebody whose workers are not to be stopped."""
        found = slurm_queue.jobs_named(job_name(worker), getpass.getuser())
        owner = self.launch_spec.stop_owner
        ours = [job for job in found if owner is None or job.id in self._submitted or job.owner.get("owner") == owner]
        return "left to its master" if found and not ours else self._end(host, worker, ours)

    def _end(self, host: FleetHost, worker: str, jobs: Sequence[Job]) -> str:
        """Cancel jobs of a worker, wait until they have left the queue, and remove its key."""
        try:
            self._cancel(host, jobs)
        finally:
            WorkerFiles.of(host, worker).remove()
        self._janitor.done(worker)
        return "ended" if jobs or self._numbers.get(worker) in self._submitted else "was not running"

    def read_log(self, host: FleetHost, worker: str) -> str:
        """Read the log on the shared file system."""
        path = WorkerFiles.of(host, worker).log
        try:
            return path.read_text("utf-8", "replace")
        except OSError as error:
            raise InfrastructureError(f"{path}: {error.strerror}") from error

    def _cancel(self, host: FleetHost, jobs: Sequence[Job]) -> None:
        """Cancel jobs and wait until none of their processes is left."""
        if not jobs:
            return
        slurm_queue.cancel([job.id for job in jobs])
        deadline, pause = monotonic() + CANCEL_TIMEOUT_S, POLL_S[0]
        for job in jobs:
            left = slurm_queue.job_numbered(job.id)
            while left is not None and left.is_active:
                node = slurm_queue.look_at_node(host.login.address, beside=job.id)
                if node.is_silent or monotonic() > deadline:
                    raise InfrastructureError(
                        f"job {job.id} is cancelled and still {left.state}: {node.describe()}; Slurm ends what is "
                        "left of the job there as soon as it can"
                    )
                sleep(pause)
                pause = min(2 * pause, POLL_S[1])
                left = slurm_queue.job_numbered(job.id)

    def _await_start(self, host: FleetHost, worker: str, job: Job) -> Job:
        """Wait until a job runs and has run for a moment; return it.

        Raises `InfrastructureError` if it ends, and if it cannot start or, for a run, not in time.
        """
        began, pause, runs_since, told = monotonic(), POLL_S[0], None, ""
        wait_s = _wait_s(host) if self.launch_spec.once else QUEUED_S
        while True:
            found = slurm_queue.job_numbered(job.id)
            now = monotonic()
            if found is None or not found.is_active:
                how = "Slurm does not know it" if found is None else slurm_queue.explain_end(found)
                raise InfrastructureError(
                    f"{how}; the end of its log: {flat_line(tail(WorkerFiles.of(host, worker).log))}"
                )
            if not found.is_waiting:
                runs_since = runs_since or now
                if now - runs_since >= WATCH_S:
                    return found
            else:
                node = slurm_queue.look_at_node(host.login.address, beside=job.id)
                why = slurm_queue.explain_wait(found, node)
                hopeless = found.is_hopeless or (node.is_gone and found.reason not in ("None", ""))
                if hopeless or self._cancelled.is_set() or (now - began >= wait_s and self.launch_spec.once):
                    advice = "" if hopeless else f"; it waited for {now - began:.0f} s (setting 'wait')"
                    raise InfrastructureError(f"{why}{advice}")
                if now - began >= wait_s:
                    return found
                if why != told and pause > POLL_S[0]:
                    self._progress(host.name, why)
                    told = why
            self._cancelled.wait(pause)
            pause = min(2 * pause, POLL_S[1] if found.is_waiting else WATCH_S / 2)


def _wait_s(host: FleetHost) -> float:
    text = str(host.settings.get("wait", DEFAULT_WAIT))
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InfrastructureError(f"setting 'wait': {error}") from error
