"""Runs the jobs of one run on this worker, each with its treatment's script: slots, engines, outbox, no sockets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from time import monotonic_ns
from typing import Final, TypeAlias, TypeVar

import gevent
from gevent.lock import RLock
from greenlet import greenlet

from bench_common.engine_traits import engine_traits
from bench_common.errors import EngineUnavailable, UsageError, WeighbridgeError
from bench_common.job_rules import rules_of
from bench_common.messages import ServiceCommand
from bench_common.records import ARRIVAL, ATTEMPT_SHIFT, DROPPED, JOB_ID, JobReport, Outcome, job_id_of
from bench_common.requirements import RequestedAction, ServiceOutcome
from bench_common.safe_text import shorten
from bench_common.treatment import ContainerSettings, Treatment, parse_stop_condition
from bench_common.units import format_duration
from bench_worker import job
from bench_worker.engine_outage import EngineOutage, OutageNews, Outages
from bench_worker.engines.base import (
    Container,
    Engine,
    EngineOptions,
    EngineUnreachable,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.noop import NoopEngine
from bench_worker.host.swap import SwapError, SwapSwitch, has_swap
from bench_worker.job import Failure, Script
from bench_worker.job_runner import JobRunner, JobRunners, OpenRunner
from bench_worker.operation_runner import (
    MAX_MESSAGE_CHARS,
    OperationRunner,
    PreparationProgress,
    PreparedOperation,
    UnusableResult,
)
from bench_worker.outbox import Outbox
from bench_worker.packing import JobReturned, Packing, PackingResult
from bench_worker.pipe_channel import RunContext
from bench_worker.remote_services import RemoteServiceHost, RemoteServiceRequests, SendOutcome, SendRequest
from bench_worker.service_pool import PreparedContainers, ServicePool
from bench_worker.slots import ArrivalQueue, JobAborted, Slots
from workloads.guest import guest_rules
from workloads.script import job_script, preparation_script, shares_container

log = logging.getLogger(__name__)

AssignmentRow: TypeAlias = Sequence[int]
"""The values of `records.ASSIGNMENT_FIELDS`: ticket, seed, intended_ns."""

ResultT = TypeVar("ResultT")

UNREACHABLE: Final = "unreachable"
UNREACHABLE_PAUSE_S: Final = 0.2
"""How long a slot pauses after it could not reach what it needs, in seconds: the next would fail as fast."""
SPOOL_POLL_S: Final = 0.02
"""How often a slot checks whether the master has caught up with the spool, in seconds."""


class JobExecutor:
    """The slots of one worker in one run. `open_engine(name, options)` opens an engine by name.

    `report_progress` gets short progress texts of a running step, and an empty text when the step ends;
    `report_outage` gets the news of an engine that does not answer. `opened_runner` makes what
    runs jobs of kinds that need no engine.
    """

    def __init__(
        self,
        assignment: RunContext,
        outbox: Outbox,
        open_engine: Callable[[str, EngineOptions], Engine],
        packed: Callable[[PackingResult], None] | None = None,
        report_progress: Callable[[str], None] | None = None,
        request: SendRequest | None = None,
        reply: SendOutcome | None = None,
        report_outage: Callable[[OutageNews], None] | None = None,
        opened_runner: OpenRunner | None = None,
    ) -> None:
        self._runners = JobRunners(opened_runner, self._interruptibly)
        self._report_progress = report_progress
        self._run_context = assignment
        self._outbox = outbox
        self._open_engine = open_engine
        self._packed = packed
        self._packing: Packing | None = None
        self._slots: Slots[AssignmentRow] = Slots(assignment.slots, self._execute, self._outbox.flush)
        self._arrival_queue = ArrivalQueue(self._slots.put)
        self._queue_timeout_ns = 0
        self._treatments: dict[int, Treatment] = {}
        self._pools: dict[int, ServicePool] = {}
        self._preparations = PreparationProgress(report_progress)
        self._prepared_containers = PreparedContainers(keep=assignment.keep, report_progress=report_progress)
        self._engines: dict[str, Engine] = {}
        self._opening = RLock()
        self._waiting: set[greenlet] = set()
        self._loop = gevent.get_hub().loop
        self._treatment, self._script = -1, Script(())
        self._trial = -1
        self._outages = Outages(self._engine_answers, report_outage or _report_nothing, self._interruptibly)
        self._refused: set[int] = set()
        """The jobs whose first operation their engine did not begin, as it was away."""
        self._is_packing = False
        self._runs: dict[int, Callable[[int], JobReport]] = {}
        self._run: Callable[[int], JobReport] | None = None
        self._runner: JobRunner | None = None
        """What runs the present treatment's jobs where no engine's containers do."""
        self._batch = 1
        self._aborts = 0
        self._swap = SwapSwitch()
        self._prefix = f"wb-{assignment.run_id}-"
        self.service_requests = RemoteServiceRequests(request or _no_master, self._interrupt_later)
        """Requests of jobs here to services on other workers."""
        self.service_host = RemoteServiceHost(
            self._treatments,
            self._locked_engine,
            reply or _no_reply,
            prefix=self._prefix,
            address=assignment.address,
            keep=assignment.keep,
        )
        """The services that run here for jobs of other workers."""

    @property
    def running(self) -> int:
        """How many jobs are running."""
        return self._slots.running

    @property
    def waiting(self) -> int:
        """How many jobs wait for a slot."""
        return self._slots.waiting

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self._slots.running and not self._slots.waiting and not self._arrival_queue

    def define(self, treatment: Treatment, part: int = 0, parts: int = 1) -> None:
        """Add a treatment, before its first job; begin to make this worker's part of what its jobs need."""
        self._treatments[treatment.index] = treatment
        rules_of(treatment)  # loads what they need: no job has to wait for that
        if treatment.engine in self._engines and treatment.pulls_image:
            self._engines[treatment.engine].prepare_pulls()
        self._runners.define(treatment, part, parts)

    def take(
        self, treatment: int, trial: int, jobs: Sequence[AssignmentRow], *, concurrency: int, batch: int
    ) -> None:
        """Accept jobs of a trial, of which `concurrency` may run at once; results are sent in batches of `batch`.

        A trial begins when every job of the previous one is over. Raises `KeyError` for an undefined treatment.
        """
        if treatment != self._treatment:
            self._switch_treatment(self._treatments[treatment])
        if self._is_packing:
            self._pack(self._treatments[treatment], trial, [ticket for ticket, _, _ in jobs])
        else:
            self._packing = None
        self._outbox.start_trial(treatment, trial, self._script, one_operation=self._one_operation)
        self._trial = trial
        self._slots.limit, self._batch = concurrency, batch
        if self._queue_timeout_ns:
            self._arrival_queue.put(jobs)
        else:
            self._slots.put(jobs)

    def _switch_treatment(self, treatment: Treatment) -> None:
        self._treatment, self._script = treatment.index, Script(job_script(treatment))
        self._outages.switch_treatment(treatment)
        self._is_packing = treatment.is_packing and not self._run_context.noop
        self._run = self._runs.get(treatment.index)
        self._runner, self._one_operation = self._runners.of(treatment), treatment.job.does_one_operation
        load = treatment.open_load
        self._queue_timeout_ns = 0 if load is None else round(load.queue_timeout_s * 1e9)

    def _pack(self, treatment: Treatment, trial: int, tickets: Sequence[int]) -> None:
        if self._packing is None or self._packing.trial != trial:
            until = None if treatment.until is None else parse_stop_condition(treatment.until)
            self._packing = Packing(trial, job_script(treatment), until, self._report_packing)
        self._packing.expect(tickets)

    def _report_packing(self, packed: PackingResult) -> None:
        if self._packed is not None:
            self._packed(packed)

    def abort(self) -> None:
        """Abort every job: queued jobs end at once, running jobs at their next step, followed by their clean-up.

        A step that only waits (for a command, for time to pass) is interrupted. A step that changes something is not:
        an engine still creates a container after its client has disconnected, and nobody would remove it.
        """
        self._aborts += 1
        for runner in self._runners:
            runner.end()
        now = monotonic_ns()
        for ticket, _, _ in (*self._slots.cancel_queued(), *self._arrival_queue.cancel_queued()):
            self._outbox.add(ticket, JobReport.ended(Outcome.ABORTED, (now, now)))
        self._outbox.flush()
        for slot in list(self._waiting):
            self._loop.run_callback(self._interrupt, slot)

    def release(self) -> None:
        """Remove what is kept for further jobs, and what runners made; call this after the run's last job."""
        for runner in self._runners:
            runner.clear()
        self._release_containers()

    def _release_containers(self) -> None:
        self._prepared_containers.release()
        for pool in self._pools.values():
            pool.release()
        self.service_host.release()
        for engine in self._engines.values():
            engine.release()

    def close(self) -> None:
        """Remove the remaining services and close the engines; call this when nothing runs here."""
        self._arrival_queue.close()
        for runner in self._runners:
            runner.leave()
        self._release_containers()
        for engine in self._engines.values():
            engine.close()

    def _interrupt_later(self, slot: greenlet, still: Callable[[], bool]) -> None:
        self._loop.run_callback(lambda: self._interrupt(slot) if still() else None)

    def _interrupt(self, slot: greenlet) -> None:
        # It may have reached a step that must not be interrupted.
        if slot in self._waiting:
            slot.throw(JobAborted)

    def _execute(self, order: AssignmentRow) -> None:  # noqa: C901, PLR0912  a call more would cost every job
        ticket, seed, intended_ns = order
        while self._outbox.full:
            gevent.sleep(SPOOL_POLL_S)
        try:
            outage = self._outages.present
            if outage is not None:
                self._outages.await_end(outage)
            if intended_ns and monotonic_ns() - intended_ns > self._queue_timeout_ns:
                report = self._dropped()
            elif self._runner is not None:
                treatment = self._treatments[self._treatment]
                report = self._runner.run(treatment, seed, self._trial, users=self._slots.limit)
            else:
                report = (self._run or self._prepare())(ticket)
        except JobReturned:
            return
        except JobAborted:
            now = monotonic_ns()
            report = JobReport.ended(Outcome.ABORTED, (now, now))
        except EngineUnavailable as error:
            # Nothing was made for the job, so it can wait, too.
            if self._begin_outage(str(error)).under_way:
                self._slots.put_back(order)
                return
            report = _not_started(UNREACHABLE, str(error))
        except Exception as error:  # noqa: BLE001  a slot must survive any error of a job, and reports it
            report = _report_of_error(error, ticket)
        extras = report.extras
        if extras is not None and ticket in self._refused:
            # Nothing was made for it either.
            self._refused.discard(ticket)
            if self._outages.present is not None and not self._outages.present.abandoned:
                self._slots.put_back(order)
                return
        # Send results when a batch is full, else after a pass of the loop: see `Slots`.
        if self._outbox.add(ticket, report) >= self._batch:
            self._outbox.flush()
        elif not self._slots.pass_scheduled:
            self._slots.schedule_pass()
        if extras is not None or outage is not None:
            self._after_job(report)

    def _after_job(self, report: JobReport) -> None:
        outage = self._outages.present
        if report.error is not None and report.error[1] == UNREACHABLE and (outage is None or outage.abandoned):
            gevent.sleep(UNREACHABLE_PAUSE_S)
        elif outage is not None and not outage.under_way and report.outcome == Outcome.DONE:
            self._outages.job_done()

    def _begin_outage(self, reason: str) -> EngineOutage:
        """Let further jobs of the present engine wait until it answers."""
        return self._outages.begin(self._treatments[self._treatment], self._trial, reason)

    def _on_unreachable(self, error: EngineUnreachable) -> None:
        """Note that a job under way failed because its engine is away."""
        self._begin_outage(str(error)).job_failed()

    def _engine_answers(self, treatment: Treatment) -> bool:
        try:
            return self._locked_engine(treatment).answers()
        except WeighbridgeError:  # it could not be opened yet
            return False

    def _dropped(self) -> JobReport:
        now = monotonic_ns()
        text = f"no slot was free within {format_duration(self._queue_timeout_ns / 1e9)} of its arrival"
        if self._outages.present is not None:
            text += ": the engine did not answer, and jobs waited for it"
        return JobReport.ended(Outcome.FAILED, (now, now), error=(ARRIVAL, DROPPED, text))

    def _run_without_swap(self, run: Callable[[int], JobReport], ticket: int) -> JobReport:
        if not self._run_context.allow_swapoff and has_swap():
            raise SwapError("switching swap off is not allowed on this host: start the worker with --allow-swapoff")
        with self._swap:
            return run(ticket)

    def _name(self, ticket: int) -> str:
        return _container_name(self._prefix, ticket)

    def _plain_runner(self, runner: OperationRunner) -> Callable[[int], JobReport]:
        """Return a function that runs a job of a treatment without services and packing."""
        prefix, settings, steps, perform = self._prefix, runner.settings, runner.steps, self._perform

        def run(ticket: int) -> JobReport:
            return perform(runner, _JobContainer(prefix, ticket, settings), self._aborts, steps)

        return run

    def _run_with_services(self, pool: ServicePool, ticket: int) -> JobReport:
        """Run a job with the services that it needs."""
        name, aborts = self._name(ticket), self._aborts

        def wait(call: Callable[[], ResultT]) -> ResultT:
            if self._aborts != aborts:
                raise JobAborted
            return self._interruptibly(call)

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
        aborts = self._aborts

        def perform(one: OperationRunner, container: Container) -> JobReport:
            return self._perform(one, container, aborts, one.steps)

        return self._prepared_containers.run_job(jobs, preparing, self._name(ticket), ticket, perform)

    def _run_packed(self, runner: OperationRunner, ticket: int) -> JobReport:
        """Run a job of a packing; raise `JobReturned` if the host holds no more containers."""
        packing = self._packing
        assert packing is not None
        container = Container(self._name(ticket), ticket, runner.settings)
        # The wait for a turn and an operation that only waits are each interruptible, but not the two as one step.
        steps = [
            step._replace(call=partial(self._run_in_packing, packing, position, step), waits=False)
            for position, step in enumerate(runner.steps)
        ]
        failure: str | None = None
        try:
            report = self._perform(runner, container, self._aborts, steps)
            failure = report.error[2] if report.error is not None else None
        finally:
            packing.job_ended(ticket, failure)
        return report

    def _perform(
        self, runner: OperationRunner, container: Container, aborts: int, steps: Sequence[PreparedOperation]
    ) -> JobReport:
        """Run the operations of a job in order, and ensure that its container is removed."""
        report = JobReport()
        script, stamps = runner.script, report.stamps
        try:
            for call, waits, judged in steps:
                if self._aborts != aborts:
                    raise JobAborted
                done = self._interruptibly(partial(call, container)) if waits else call(container)
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
        if isinstance(error, OperationFailed):
            if isinstance(error, EngineUnreachable):
                if error.refused and not report.stamps and not self._is_packing:
                    self._refused.add(container.ticket)
                    self._begin_outage(str(error))
                else:
                    self._on_unreachable(error)
            return Failure(error.kind, shorten(str(error), MAX_MESSAGE_CHARS), error.start_ns, error.end_ns)
        log.error(
            "engine raised an unexpected error in operation %d of job %d",
            len(report.stamps) // 2,
            job_id_of(container.ticket),
            exc_info=error,
        )
        now = monotonic_ns()
        return Failure("internal", f"{type(error).__name__}: {error}", now, now)

    def _run_in_packing(
        self, packing: Packing, position: int, step: PreparedOperation, container: Container
    ) -> OperationResult:
        """Run an operation of a packed job in its turn; all jobs `hold` together."""
        self._interruptibly(partial(packing.before, container.ticket, position))
        if position == packing.position:
            return self._interruptibly(partial(packing.hold, container.ticket))
        try:
            return self._interruptibly(partial(step.call, container)) if step.waits else step.call(container)
        finally:
            packing.after(container.ticket, position)

    def _interruptibly(self, call: Callable[[], ResultT]) -> ResultT:
        """Run a call that only waits, so that it can be interrupted."""
        me = gevent.getcurrent()
        self._waiting.add(me)
        try:
            return call()
        finally:
            self._waiting.discard(me)

    def _clean_up(self, runner: OperationRunner, container: Container) -> str | None:
        if self._run_context.keep:
            return None
        try:
            return runner.clean_up(container)
        except EngineUnreachable as error:
            # It may still run, beside the jobs that follow.
            self._begin_outage(str(error))
            self._outages.remove_later(partial(self._clean_up, runner, container))
            return shorten(str(error), MAX_MESSAGE_CHARS)
        except Exception as error:  # the clean-up at the end of the run tries again
            log.exception("container %s could not be removed", container.name)
            return f"{type(error).__name__}: {error}"

    def _prepare(self) -> Callable[[int], JobReport]:
        """Prepare the current treatment once: its first job does so while the others wait."""
        with self._opening:
            index = self._treatment
            if index not in self._runs:
                self._runs[index] = self._runner_for(self._treatments[index])
            self._run = self._runs[index]
            return self._run

    def _runner_for(self, treatment: Treatment) -> Callable[[int], JobReport]:
        """Return a function that runs a job of a treatment; work common to all of its jobs is done here."""
        noop = self._run_context.noop
        rules = guest_rules(treatment)
        guest = None if rules is None else rules.workload
        with self._preparations.during(f"preparing engine {treatment.engine} and its image"):
            engine = self._engine(treatment)
            runner = OperationRunner(engine, treatment, guest, free=noop, report_progress=self._report_progress)
            if not treatment.pulls_image:
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
                keep=self._run_context.keep,
                requests=self.service_requests,
                report_progress=self._report_progress,
                on_unreachable=self._on_unreachable,
            )
            self._pools[treatment.index] = pool
            run = partial(self._run_with_services, pool)
        return partial(self._run_without_swap, run) if runner.swap_off else run

    def _locked_engine(self, treatment: Treatment) -> Engine:
        """Return a treatment's engine; wait if a job is opening it."""
        with self._opening:
            return self._engine(treatment)

    def _engine(self, treatment: Treatment) -> Engine:
        name = NoopEngine.name if self._run_context.noop else treatment.engine
        if name not in self._engines:
            if engine_traits(name).runs_on_host and not self._run_context.allow_native:
                raise UsageError(
                    f"engine {name} runs programs on this host, which this worker does not allow: "
                    "start it with --allow-native"
                )
            options = EngineOptions(
                run_id=self._run_context.run_id,
                worker_id=self._run_context.worker_id,
                slots=self._run_context.slots,
                timeout_s=treatment.timeout_s,
                allow_host_mounts=self._run_context.allow_host_mounts,
            )
            engine = NoopEngine(options) if self._run_context.noop else self._open_engine(name, options)
            if any(one.engine == name and one.pulls_image for one in self._treatments.values()):
                engine.prepare_pulls()
            self._engines[name] = engine
        return self._engines[name]


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


def _no_master(_treatment: int, service: str, _ticket: int, _action: RequestedAction) -> None:
    raise WeighbridgeError(f"there is no master to request the service {service} from")


def _no_reply(_command: ServiceCommand, _outcome: ServiceOutcome) -> None:
    """Drop an outcome: there is no master."""


def _report_nothing(_news: OutageNews) -> None:
    """Report an outage to nobody: there is no master."""


def _report_of_error(error: Exception, ticket: int) -> JobReport:
    """Return the report of a job that an error kept from its first operation."""
    if isinstance(error, SwapError):
        return _not_started("swap", str(error))
    if isinstance(error, WeighbridgeError):
        return _not_started(UNREACHABLE, str(error))
    log.error("job %d failed inside the worker", job_id_of(ticket), exc_info=error)
    return _not_started("internal", f"{type(error).__name__}: {error}")


def _not_started(kind: str, message: str) -> JobReport:
    now = monotonic_ns()
    return JobReport.ended(Outcome.FAILED, (now, now), error=("worker", kind, message))
