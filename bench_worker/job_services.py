"""The services of a treatment's jobs: started before a job's own container, stopped after it, and removed.

Several jobs at a time each have services of their own. Where the workload prepares them once, they are stopped and
started between the jobs of the treatment and keep what they hold; else they live and die with a job. None of it is
timed. A service that does not come up is a failed job of the kind ``service``, with what its log says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

from bench_common.records import JobReport, Outcome
from bench_common.spec import Operation, Treatment
from bench_worker import job
from bench_worker.engines.base import Engine
from bench_worker.performer import Performer
from bench_worker.service_set import Output, ServiceFailed, ServiceSet, Wait
from bench_worker.slots import JobAborted
from workloads.base import Workload
from workloads.script import preparation_of


class ServicePool:
    """The services of one treatment: as many sets as its jobs need at the same time. With `keep` none is removed."""

    def __init__(
        self,
        engine: Engine,
        treatment: Treatment,
        workload: Workload,
        *,
        keep: bool,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._tell = tell
        self._engine = engine
        self._treatment = treatment
        self._workload = workload
        self._keep = keep
        self._preparation = preparation_of(treatment)
        self._idle: list[ServiceSet] = []

    def attend(self, ticket: int, name: str, perform: Callable[[Performer, str], JobReport], wait: Wait) -> JobReport:
        """Return the report of one job that is performed with its services running.

        `perform(performer, name)` does a script in a container of that name.
        """
        services = self._idle.pop() if self._idle else self._new(name, ticket)
        try:
            report = self._attended(services, name, perform, wait)
        except ServiceFailed as failure:
            report = _never_begun(failure.service, failure.kind, str(failure), failure.outputs)
        except JobAborted:
            report = JobReport()
            job.aborted(report, monotonic_ns())
        except Exception:
            # An engine's own fault, told by whoever called; the services must not outlive it.
            if not self._keep:
                services.remove()
            raise
        if report.outcome == Outcome.DONE and self._preparation and services.stop() is None:
            self._idle.append(services)
        elif not self._keep:
            job.tidied(report, services.remove())
        return report

    def release(self) -> None:
        """Remove the services that wait for another job; what cannot be removed is left to the sweep of the run."""
        while self._idle:
            services = self._idle.pop()
            if not self._keep:
                services.remove()

    def _new(self, name: str, ticket: int) -> ServiceSet:
        return ServiceSet(self._engine, self._treatment, self._workload, name, ticket)

    def _attended(
        self, services: ServiceSet, name: str, perform: Callable[[Performer, str], JobReport], wait: Wait
    ) -> JobReport:
        outputs = services.start(wait)
        if self._preparation and not services.prepared:
            prepared = perform(self._performer(services, self._preparation), f"{name}-once")
            if prepared.outcome != Outcome.DONE:
                services.blame(prepared)
                prepared.stamps, prepared.failed_at = [], -1
                return prepared
            services.prepared = True
            outputs += tuple(prepared.outputs or ())
        report = perform(self._performer(services, None), name)
        report.outputs = [*outputs, *(report.outputs or ())]
        if report.outcome == Outcome.FAILED:
            services.blame(report)
        return report

    def _performer(self, services: ServiceSet, operations: tuple[Operation, ...] | None) -> Performer:
        return Performer(
            self._engine,
            self._treatment,
            self._workload,
            operations=operations,
            words=services.words,
            tell=self._tell,
        )


def _never_begun(operation: str, kind: str, message: str, outputs: tuple[Output, ...]) -> JobReport:
    now = monotonic_ns()
    return JobReport(Outcome.FAILED, now, now, error=(operation, kind, message), outputs=[*outputs] or None)
