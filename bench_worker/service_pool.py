"""The services of a treatment's jobs: started before a job's container, stopped after it, and removed.

Concurrent jobs have separate services. If the workload prepares them once, they are stopped and restarted between the
jobs of the treatment and keep their data; otherwise they exist for one job. None of this is timed. If a service does
not start, its job fails with the kind ``service`` and the service's log.

Where a workload needs no server but files that it prepares once, its jobs run in the container where the files are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import TypeAlias

import msgspec
from gevent.lock import BoundedSemaphore

from bench_common.records import JobReport, Outcome
from bench_common.requirements import SERVICE_FAILURE
from bench_common.treatment import Operation, Treatment
from bench_worker import job
from bench_worker.engines.base import Container, Engine
from bench_worker.operation_runner import OperationRunner, PreparationProgress
from bench_worker.remote_services import RemoteServiceClient, RemoteServiceRequests
from bench_worker.services import CommandOutput, InterruptibleWait, ServiceFailed, ServiceSet
from bench_worker.slots import JobAborted
from bench_workloads.base import Workload
from bench_workloads.script import preparation_script

RunScript: TypeAlias = Callable[[OperationRunner, str, Callable[[], None]], JobReport]
RunInContainer: TypeAlias = Callable[[OperationRunner, Container], JobReport]
"""Runs a script in a container; where that fails, the container is removed."""


class ServicePool:
    """The services of one treatment: one set for each concurrent job. With `keep`, none is removed.

    What a workload prepares once it prepares in each set; one without services prepares once for all jobs.
    """

    def __init__(
        self,
        engine: Engine,
        treatment: Treatment,
        workload: Workload,
        *,
        keep: bool,
        requests: RemoteServiceRequests,
        report_progress: Callable[[str], None] | None = None,
    ) -> None:
        self._requests = requests
        self._report_progress = report_progress
        self._preparations = PreparationProgress(report_progress)
        self._engine = engine
        self._treatment = treatment
        self._workload = workload
        self._keep = keep
        self._preparation = preparation_script(treatment)
        self._idle: list[_JobServices] = []
        self._shared = None if workload.services else self._new("", 0)

    def run_job(self, ticket: int, name: str, perform: RunScript, wait: InterruptibleWait) -> JobReport:
        """Run one job with its services; return its report.

        `perform(runner, name, check)` runs a script in a container of that name; before each operation it calls
        `check`, which raises `JobAborted` if a service is lost.
        """
        services = self._shared or (self._idle.pop() if self._idle else self._new(name, ticket))
        try:
            report = self._run_with_started(services, name, perform, wait)
        except ServiceFailed as failure:
            report = _not_started(failure.service, failure.kind, str(failure), failure.outputs)
        except JobAborted:
            report = JobReport()
            job.record_abort(report, monotonic_ns())
        except Exception:
            # A fault of the engine, which the caller reports; the services must not outlive it.
            if not self._keep:
                services.remove()
            raise
        services.record_loss(report)
        if services is self._shared:
            return report
        if report.outcome == Outcome.DONE and self._preparation and services.stop() is None:
            self._idle.append(services)
        elif not self._keep:
            job.record_cleanup(report, services.remove())
        return report

    def release(self) -> None:
        """Remove the idle services; the clean-up of the run removes those that cannot be removed here."""
        while self._idle:
            services = self._idle.pop()
            if not self._keep:
                services.remove()

    def _new(self, name: str, ticket: int) -> _JobServices:
        away = [service for service in self._workload.services if service.name in self._treatment.placement]
        here = [service for service in self._workload.services if service not in away]
        return _JobServices(
            ServiceSet(self._engine, self._treatment, self._workload, name, ticket, services=here),
            [RemoteServiceClient(self._requests, self._treatment, service, ticket) for service in away],
        )

    def _run_with_started(
        self, services: _JobServices, name: str, perform: RunScript, wait: InterruptibleWait
    ) -> JobReport:
        names = ", ".join(service.name for service in self._workload.services)
        with self._preparations.during(f"starting {names}, and waiting until it is ready"):
            outputs = services.start(wait)
        if self._preparation and not services.prepared:
            with self._preparations.during(f"preparing what the jobs of {self._workload.name} use"):
                prepared = self._prepare_once(services, name, perform, wait)
            if prepared.outcome != Outcome.DONE:
                services.explain_failure(prepared)
                prepared.stamps, prepared.failed_at = [], -1
                return prepared
            outputs += tuple(prepared.outputs or ())
        report = perform(self._performer(services, None), name, services.check)
        report.outputs = [*outputs, *(report.outputs or ())]
        if report.outcome == Outcome.FAILED:
            services.explain_failure(report)
        return report

    def _prepare_once(
        self, services: _JobServices, name: str, perform: RunScript, wait: InterruptibleWait
    ) -> JobReport:
        """Prepare the services, unless another job has done so meanwhile; return the report of the preparation."""
        wait(services.preparing.acquire)
        try:
            if services.prepared:
                return JobReport()
            report = perform(self._performer(services, self._preparation), f"{name}-once", services.check)
            services.prepared = report.outcome == Outcome.DONE
            return report
        finally:
            services.preparing.release()

    def _performer(self, services: _JobServices, operations: tuple[Operation, ...] | None) -> OperationRunner:
        return OperationRunner(
            self._engine,
            self._treatment,
            self._workload,
            operations=operations,
            words=services.words,
            shares=services.shares,
            report_progress=self._report_progress,
        )


class _JobServices:
    """All services of one job, on this worker and on others.

    `words` are their addresses since their latest start; `prepared` says whether the one-time preparation is done;
    who is at it holds `preparing`.
    """

    def __init__(self, here: ServiceSet, away: Sequence[RemoteServiceClient]) -> None:
        self._local = here
        self._remote = away
        self.prepared = False
        self.preparing = BoundedSemaphore(1)

    @property
    def words(self) -> dict[str, str]:
        """The addresses of the services by their placeholders in commands."""
        found = dict(self._local.words)
        for one in self._remote:
            found |= one.words
        return found

    @property
    def shares(self) -> tuple[str, ...]:
        """The containers with volumes that the job's container shares."""
        return self._local.shares

    def start(self, wait: InterruptibleWait) -> tuple[CommandOutput, ...]:
        """Start all of them, and wait until they are ready; see `ServiceSet.start`."""
        return tuple(one.start(wait) for one in self._remote) + self._local.start(wait)

    def stop(self) -> str | None:
        """Stop all of them; return the first failure, if any."""
        problems = [self._local.stop(), *(one.stop() for one in self._remote)]
        return next((problem for problem in problems if problem is not None), None)

    def remove(self) -> str | None:
        """Remove all of them; return the first failure, if any."""
        problems = [self._local.remove(), *(one.remove() for one in self._remote)]
        return next((problem for problem in problems if problem is not None), None)

    def explain_failure(self, report: JobReport) -> None:
        """Add to the report of a failed job which service had ended, and the services' logs."""
        self._local.explain_failure(report)
        for one in self._remote:
            one.explain_failure(report)

    def check(self) -> None:
        """Raise `JobAborted` if a service is lost."""
        if any(one.lost is not None for one in self._remote):
            raise JobAborted

    def record_loss(self, report: JobReport) -> None:
        """Record a job that did not finish as failed if one of its services is lost, with the reason of the loss."""
        for one in self._remote:
            if one.lost is not None and report.outcome != Outcome.DONE:
                report.outcome = Outcome.FAILED
                report.error = (one.service.name, SERVICE_FAILURE, one.lost)


class PreparedContainers:
    """The containers of one worker that a workload prepared once, and in which its jobs then run one after the other.

    To make the files of a benchmark can take longer than to measure them. Jobs of several treatments use the same
    ones where these are made alike: by the same commands, under the same settings. Each concurrent job has a
    container of its own. One in which a job did not succeed is removed; the next job prepares another. With `keep`,
    none is removed.
    """

    def __init__(self, *, keep: bool, report_progress: Callable[[str], None] | None = None) -> None:
        self._preparations = PreparationProgress(report_progress)
        self._keep = keep
        self._idle: dict[bytes, list[tuple[Container, OperationRunner]]] = {}

    def run_job(
        self, jobs: OperationRunner, preparing: OperationRunner, name: str, ticket: int, perform: RunInContainer
    ) -> JobReport:
        """Run a job in an idle container, or in a new one of that name once it is prepared; return its report.

        A failed preparation is the job's failure. The outputs of a preparation are with those of its first job.
        """
        alike = (jobs.treatment.engine, jobs.settings, preparing.script.operations)
        idle = self._idle.setdefault(msgspec.msgpack.encode(alike), [])
        outputs = []
        if idle:
            container, _ = idle.pop()
            container.ticket = ticket
        else:
            container = Container(name, ticket, jobs.settings)
            with self._preparations.during("preparing the files that the jobs use"):
                prepared = perform(preparing, container)
            if prepared.outcome != Outcome.DONE:
                # The script of the job, which its report is read by, has none of these operations.
                prepared.stamps, prepared.failed_at = [], -1
                return prepared
            outputs = prepared.outputs or []
        report = perform(jobs, container)
        if outputs:
            report.outputs = [*outputs, *(report.outputs or ())]
        if report.outcome == Outcome.DONE:
            idle.append((container, jobs))
        return report

    def release(self) -> None:
        """Remove the idle containers; the clean-up of the run removes those that cannot be removed here."""
        for idle in self._idle.values():
            while idle:
                container, runner = idle.pop()
                if not self._keep:
                    runner.clean_up(container)


def _not_started(operation: str, kind: str, message: str, outputs: tuple[CommandOutput, ...]) -> JobReport:
    now = monotonic_ns()
    return JobReport.ended(Outcome.FAILED, (now, now), error=(operation, kind, message), outputs=outputs)
