"""Runs jobs whose operations are those of an engine on a container, each with its treatment's script.

What all jobs of a treatment have in common (its engine, image, guest, services) is prepared once, by its first job.
A job then is alone with its container, in one that was prepared for it and others, beside services, or packed with
the other jobs of its trial.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from time import monotonic_ns
from typing import TypeAlias, TypeVar

from bench_common.errors import UsageError
from bench_common.records import ATTEMPT_SHIFT, JOB_ID, JobReport, Outcome, job_id_of
from bench_common.safe_text import shorten
from bench_common.treatment import ContainerSettings, Treatment, parse_stop_condition
from bench_worker import job
from bench_worker.engines.base import (
    Container,
    Engine,
    OperationFailed,
    OperationResult,
    container_prefix,
)
from bench_worker.hold_meter import HoldMeter
from bench_worker.host.page_cache import PageCacheError
from bench_worker.host.swap import SwapError, SwapSwitch, has_swap
from bench_worker.interruptions import Interruptions
from bench_worker.job import Failure
from bench_worker.operation_runner import (
    MAX_MESSAGE_CHARS,
    OperationRunner,
    PreparationProgress,
    PreparedOperation,
    UnusableResult,
)
from bench_worker.packing import Packing, PackingResult
from bench_worker.pipe_channel import RunContext
from bench_worker.remote_services import RemoteServiceRequests
from bench_worker.run_engines import RunEngines
from bench_worker.service_pool import PreparedContainers, ServicePool
from bench_worker.slots import JobAborted
from bench_workloads.guest import guest_rules
from bench_workloads.script import job_script, preparation_script, shares_container

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

RunJob: TypeAlias = Callable[[int], JobReport]
"""Runs the job of a ticket. Raises `JobReturned` where the host is full, or what kept it from its start."""


class ContainerJobs:
    """The container jobs of one run on this worker.

    `packed` gets the end of each packing, `report_progress` short texts of a running step and an empty one when the
    step ends.
    """

    def __init__(
        self,
        context: RunContext,
        engines: RunEngines,
        interruptions: Interruptions,
        requests: RemoteServiceRequests,
        packed: Callable[[PackingResult], None] | None,
        report_progress: Callable[[str], None] | None,
    ) -> None:
        self._context = context
        self._engines = engines
        self._interruptions = interruptions
        self._requests = requests
        self._packed = packed
        self._report_progress = report_progress
        self._preparations = PreparationProgress(report_progress)
        self._prepared_containers = PreparedContainers(keep=context.keep, report_progress=report_progress)
        self._pools: dict[int, ServicePool] = {}
        self._runs: dict[int, RunJob] = {}
        self._packing: Packing | None = None
        self._swap = SwapSwitch()
        self._prefix = container_prefix(context.run_id)

    def prepared(self, treatment: Treatment) -> RunJob | None:
        """Return what runs a treatment's jobs, if it was prepared already."""
        return self._runs.get(treatment.index)

    def prepare(self, treatment: Treatment) -> RunJob:
        """Return what runs a treatment's jobs, prepared once: other jobs wait for the first one."""
        with self._engines.opening:
            if treatment.index not in self._runs:
                self._runs[treatment.index] = self._runner_for(treatment)
            return self._runs[treatment.index]

    def pack(self, treatment: Treatment, trial: int, tickets: Sequence[int]) -> None:
        """Let jobs of a trial be packed together."""
        if self._packing is None or self._packing.trial != trial:
            until = None if treatment.until is None else parse_stop_condition(treatment.until)
            self._packing = Packing(trial, job_script(treatment), until, self._report_packing)
        self._packing.expect(tickets)

    def end_packing(self) -> None:
        """Note that a trial begins whose jobs are not packed."""
        self._packing = None

    def release(self) -> None:
        """Remove what is kept for further jobs."""
        self._prepared_containers.release()
        for pool in self._pools.values():
            pool.release()

    def _report_packing(self, packed: PackingResult) -> None:
        if self._packed is not None:
            self._packed(packed)

    # -- what is common to all jobs of a treatment --------------------------------------------------------------

    def _runner_for(self, treatment: Treatment) -> RunJob:
        """Return what runs a job of a treatment; work common to all of its jobs is done here."""
        noop = self._context.noop
        if treatment.cold != "none" and not (noop or self._context.allow_cold):
            raise UsageError("a cold start is not allowed on this host: start the worker with --allow-cold")
        rules = guest_rules(treatment)
        guest = None if rules is None else rules.workload
        with self._preparations.during(f"preparing engine {treatment.engine} and its image"):
            engine = self._engines.of(treatment)
            runner = OperationRunner(engine, treatment, guest, free=noop, report_progress=self._report_progress)
            if not treatment.fetches_image:
                engine.prepare(runner.settings)
        run = partial(self._run_packed, runner) if treatment.is_packing and not noop else self._plain_runner(runner)
        if guest is not None and shares_container(treatment) and not noop:
            preparing = OperationRunner(
                engine,
                treatment,
                guest,
                operations=preparation_script(treatment),
                report_progress=self._report_progress,
            )
            # The jobs that follow run in it; where it fails, it is removed.
            preparing.script.leaves_container = False
            run = partial(self._run_in_prepared_container, runner, preparing)
        elif guest is not None and (guest.services or preparation_script(treatment)) and not noop:
            pool = ServicePool(
                engine,
                treatment,
                guest,
                keep=self._context.keep,
                requests=self._requests,
                report_progress=self._report_progress,
            )
            self._pools[treatment.index] = pool
            run = partial(self._run_with_services, pool)
        return partial(self._run_without_swap, run) if runner.swap_off else run

    def _plain_runner(self, runner: OperationRunner) -> RunJob:
        """Return what runs a job of a treatment without services and packing."""
        prefix, settings, steps = self._prefix, runner.settings, runner.steps
        perform, interruptions = self._perform, self._interruptions

        def run(ticket: int) -> JobReport:
            return perform(runner, _JobContainer(prefix, ticket, settings), interruptions.aborts, steps)

        return run

    # -- one job --------------------------------------------------------------------------------------------------

    def _run_without_swap(self, run: RunJob, ticket: int) -> JobReport:
        if not self._context.allow_swapoff and has_swap():
            raise SwapError("switching swap off is not allowed on this host: start the worker with --allow-swapoff")
        with self._swap:
            return run(ticket)

    def _run_with_services(self, pool: ServicePool, ticket: int) -> JobReport:
        """Run a job with the services that it needs."""
        name, aborts = _container_name(self._prefix, ticket), self._interruptions.aborts

        def wait(call: Callable[[], ResultT]) -> ResultT:
            if self._interruptions.aborts != aborts:
                raise JobAborted
            return self._interruptions.wait(call)

        def attended(one: OperationRunner, named: str, check: Callable[[], None]) -> JobReport:
            def checked(call: Callable[[Container], OperationResult], container: Container) -> OperationResult:
                check()
                return call(container)

            steps = [step._replace(call=partial(checked, step.call)) for step in one.steps]
            container = Container(named, ticket, one.settings)
            container.shares = one.shares
            return self._perform(one, container, aborts, steps)

        return pool.run_job(ticket, name, attended, wait)

    def _run_in_prepared_container(self, jobs: OperationRunner, preparing: OperationRunner, ticket: int) -> JobReport:
        """Run a job in a container that was prepared for it and for others."""
        name, aborts = _container_name(self._prefix, ticket), self._interruptions.aborts

        def perform(one: OperationRunner, container: Container) -> JobReport:
            return self._perform(one, container, aborts, one.steps)

        return self._prepared_containers.run_job(jobs, preparing, name, ticket, perform)

    def _run_packed(self, runner: OperationRunner, ticket: int) -> JobReport:
        """Run a job of a packing; raise `JobReturned` if the host holds no more containers."""
        packing = self._packing
        assert packing is not None
        container = Container(_container_name(self._prefix, ticket), ticket, runner.settings)
        # The wait for a turn and an operation that only waits are each interruptible, but not the two as one step.
        steps = [
            step._replace(
                call=partial(self._run_in_packing, runner.engine, packing, position, step),
                waits=False,
                needs_check=step.needs_check or position == packing.position,
            )
            for position, step in enumerate(runner.steps)
        ]
        failure: str | None = None
        try:
            report = self._perform(runner, container, self._interruptions.aborts, steps)
            failure = report.error[2] if report.error is not None else None
        finally:
            packing.job_ended(ticket, failure)
        return report

    def _run_in_packing(
        self, engine: Engine, packing: Packing, position: int, step: PreparedOperation, container: Container
    ) -> OperationResult:
        """Run an operation of a packed job in its turn; all jobs `hold` together."""
        wait = self._interruptions.wait
        wait(partial(packing.before, container.ticket, position))
        if position == packing.position:
            # Its group is looked for in its turn, so that nobody asks the engine anything during the hold.
            meter = HoldMeter(engine, container)
            done = wait(partial(packing.hold, container.ticket, meter))
            container.cost = meter.readings
            return done
        try:
            return wait(partial(step.call, container)) if step.waits else step.call(container)
        finally:
            packing.after(container.ticket, position)

    def _perform(
        self, runner: OperationRunner, container: Container, aborts: int, steps: Sequence[PreparedOperation]
    ) -> JobReport:
        """Run the operations of a job in order, and ensure that its container is removed."""
        report, interruptions = JobReport(), self._interruptions
        script, stamps = runner.script, report.stamps
        try:
            for call, waits, judged in steps:
                if interruptions.aborts != aborts:
                    raise JobAborted
                done = interruptions.wait(partial(call, container)) if waits else call(container)
                if done.exit_code or done.oom_killed or judged:
                    runner.check_result(container, len(stamps) // 2, done, report)
                if done.end_uncertainty_ns:
                    job.record_uncertainty(report, done.end_uncertainty_ns)
                start_ns = done.start_ns
                stamps += (start_ns, done.end_ns - start_ns)
        except JobAborted:
            job.record_abort(report, monotonic_ns())
        except Exception as error:  # noqa: BLE001  a fault of the engine fails the operation, not the slot
            job.record_failure(report, script, self._failure_of(error, container, report))
        if runner.watches:
            job.record_background_failure(report, "stats", runner.stop_stats_streams(container, report))
        if script.leaves_container or (report.extras is not None and report.outcome != Outcome.DONE):
            job.record_cleanup(report, self._clean_up(runner, container))
        return report

    def _failure_of(self, error: Exception, container: Container, report: JobReport) -> Failure:
        """Return the failure for an exception that an operation raised."""
        if isinstance(error, UnusableResult):
            return error.failure
        if isinstance(error, PageCacheError):
            now = monotonic_ns()
            return Failure("cold", shorten(str(error), MAX_MESSAGE_CHARS), now, now)
        if isinstance(error, OperationFailed):
            return Failure(error.kind, shorten(str(error), MAX_MESSAGE_CHARS), error.start_ns, error.end_ns)
        log.error(
            "engine raised an unexpected error in operation %d of job %d",
            len(report.stamps) // 2,
            job_id_of(container.ticket),
            exc_info=error,
        )
        now = monotonic_ns()
        return Failure("internal", f"{type(error).__name__}: {error}", now, now)

    def _clean_up(self, runner: OperationRunner, container: Container) -> str | None:
        """Remove what a job left; return what went wrong, None if nothing did."""
        if self._context.keep:
            return None
        try:
            return runner.clean_up(container)
        except Exception as error:  # the clean-up at the end of the run tries again
            log.exception("container %s could not be removed", container.name)
            return f"{type(error).__name__}: {error}"


class _JobContainer(Container):
    """A job's container; its name is computed on first use."""

    def __init__(self, prefix: str, ticket: int, settings: ContainerSettings) -> None:
        self._prefix = prefix
        self.ticket = ticket
        self.settings = settings

    @cached_property
    def name(self) -> str:  # type: ignore[override]
        return _container_name(self._prefix, self.ticket)


def _container_name(prefix: str, ticket: int) -> str:
    return f"{prefix}{ticket & JOB_ID}-{ticket >> ATTEMPT_SHIFT}"
