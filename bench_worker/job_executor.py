"""Runs the jobs of one run on this worker: trials and slots, what becomes of each job, and no sockets.

Who runs a job is decided by its treatment: `ContainerJobs` with the containers of an engine, or a `JobRunner` of its
kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final, TypeAlias

import gevent

from bench_common.errors import WeighbridgeError
from bench_common.job_rules import rules_of
from bench_common.messages import ServiceCommand
from bench_common.records import ARRIVAL, DROPPED, JobReport, Outcome, job_id_of
from bench_common.requirements import RequestedAction, ServiceOutcome
from bench_common.treatment import Treatment
from bench_common.units import format_duration
from bench_worker.container_jobs import ContainerJobs, RunJob
from bench_worker.engines.base import Engine, EngineOptions, container_prefix
from bench_worker.host.setting_switch import SettingSwitch
from bench_worker.host.settings import SettingError
from bench_worker.host.swap import SwapError
from bench_worker.interruptions import Interruptions
from bench_worker.job import Script
from bench_worker.job_runner import JobRunner, JobRunners, OpenRunner
from bench_worker.outbox import Outbox
from bench_worker.packing import JobReturned, PackingResult
from bench_worker.pipe_channel import RunContext
from bench_worker.remote_services import RemoteServiceHost, RemoteServiceRequests, SendOutcome, SendRequest
from bench_worker.run_engines import RunEngines
from bench_worker.slots import ArrivalQueue, JobAborted, Slots
from bench_workloads.script import job_script

log = logging.getLogger(__name__)

AssignmentRow: TypeAlias = Sequence[int]
"""The values of `records.ASSIGNMENT_FIELDS`: ticket, seed, intended_ns."""

UNREACHABLE: Final = "unreachable"
UNREACHABLE_PAUSE_S: Final = 1.0
"""How long a slot pauses after it could not reach what it needs, in seconds: the next would fail as fast."""
SPOOL_POLL_S: Final = 0.02
"""How often a slot checks whether the master has caught up with the spool, in seconds."""


class JobExecutor:
    """The slots of one worker in one run. `open_engine(name, options)` opens an engine by name.

    `report_progress` gets short progress texts of a running step, and an empty text when the step ends.
    `opened_runner` makes what runs jobs of kinds that need no engine. `warn` gets what the report must mention.
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
        opened_runner: OpenRunner | None = None,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        self._run_context = assignment
        self._outbox = outbox
        self._slots: Slots[AssignmentRow] = Slots(assignment.slots, self._execute, self._outbox.flush)
        self._arrival_queue = ArrivalQueue(self._slots.put)
        self._queue_timeout_ns = 0
        self._treatments: dict[int, Treatment] = {}
        self._engines = RunEngines(assignment, self._treatments, open_engine)
        self._interruptions = Interruptions()
        self._runners = JobRunners(opened_runner, self._interruptions.wait)
        self._treatment, self._script = -1, Script(())
        self._trial = -1
        self._is_packing = False
        self._settings = SettingSwitch(assignment.run_id, warn)
        self._settling: gevent.Greenlet[[Treatment], SettingError | None] | None = None
        """Switches the host's settings to those of the present treatment; None once that is done."""
        self._run: RunJob | None = None
        """What runs the present treatment's jobs in containers, once it is prepared."""
        self._runner: JobRunner | None = None
        """What runs the present treatment's jobs where no engine's containers do."""
        self._batch = 1
        self.service_requests = RemoteServiceRequests(request or _no_master, self._interruptions.interrupt_later)
        """Requests of jobs here to services on other workers."""
        self._container_jobs = ContainerJobs(
            assignment,
            self._engines,
            self._interruptions,
            self.service_requests,
            packed,
            report_progress,
        )
        self.service_host = RemoteServiceHost(
            self._treatments,
            self._engines.of,
            reply or _no_reply,
            prefix=container_prefix(assignment.run_id),
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
        if not self._run_context.noop:
            self._settings.know(treatment.host)
        rules_of(treatment)  # loads what they need: no job has to wait for that
        self._engines.define(treatment)
        self._runners.define(treatment, part, parts)

    def take(
        self, treatment: int, trial: int, jobs: Sequence[AssignmentRow], *, concurrency: int, batch: int
    ) -> None:
        """Accept jobs of a trial, of which `concurrency` may run at once; results are sent in batches of `batch`.

        A trial begins when every job of the previous one is over. Raises `KeyError` for an undefined treatment.
        """
        if treatment != self._treatment:
            self._switch_treatment(self._treatments[treatment])
        if trial != self._trial:
            self._engines.begin_trial(self._treatments[treatment], trial)
        if self._is_packing:
            self._container_jobs.pack(self._treatments[treatment], trial, [ticket for ticket, _, _ in jobs])
        else:
            self._container_jobs.end_packing()
        self._outbox.start_trial(treatment, trial, self._script, one_operation=self._one_operation)
        self._trial = trial
        self._slots.limit, self._batch = concurrency, batch
        if self._queue_timeout_ns:
            self._arrival_queue.put(jobs)
        else:
            self._slots.put(jobs)

    def _switch_treatment(self, treatment: Treatment) -> None:
        self._treatment, self._script = treatment.index, Script(job_script(treatment))
        self._is_packing = treatment.is_packing and not self._run_context.noop
        self._run = self._container_jobs.prepared(treatment)
        self._runner, self._one_operation = self._runners.of(treatment), treatment.job.does_one_operation
        if not self._run_context.noop and (self._settling is not None or self._settings.differs(treatment.host)):
            self._settling = gevent.spawn(self._settle, treatment)
        load = treatment.open_load
        self._queue_timeout_ns = 0 if load is None else round(load.queue_timeout_s * 1e9)

    def _settle(self, treatment: Treatment) -> SettingError | None:
        """Set what a treatment needs of the host; return why that is impossible, if it is."""
        refused = sorted(treatment.host.keys() - set(self._run_context.allow_host_settings))
        if refused:
            return SettingError(
                f"host setting {refused[0]} may not be changed on this host: start the worker with "
                f"--allow-host-settings {','.join(refused)}"
            )
        try:
            self._settings.apply(treatment.host)
        except SettingError as error:
            return error
        except (OSError, WeighbridgeError) as error:
            return SettingError(f"host settings cannot be changed: {error}")
        return None

    def abort(self) -> None:
        """Abort every job: queued jobs end at once, running jobs at their next step, followed by their clean-up.

        A step that only waits is interrupted, one that changes something is not: see `Interruptions`.
        """
        self._interruptions.aborts += 1
        for runner in self._runners:
            runner.end()
        now = monotonic_ns()
        for ticket, _, _ in (*self._slots.cancel_queued(), *self._arrival_queue.cancel_queued()):
            self._outbox.add(ticket, JobReport.ended(Outcome.ABORTED, (now, now)))
        self._outbox.flush()
        self._interruptions.interrupt_all()

    def release(self) -> None:
        """Remove what is kept for further jobs, and what runners made; call this after the run's last job."""
        for runner in self._runners:
            runner.clear()
        self._release_containers()

    def _release_containers(self) -> None:
        self._container_jobs.release()
        self.service_host.release()
        self._engines.release()
        try:
            self._settings.release()
        except SettingError as error:
            # The clean-up at the end of the run tries again, and tells the master.
            log.warning("%s", error)

    def close(self) -> None:
        """Remove the remaining services and close the engines; call this when nothing runs here."""
        self._arrival_queue.close()
        for runner in self._runners:
            runner.leave()
        self._release_containers()
        self._engines.close()

    def _execute(self, order: AssignmentRow) -> None:  # noqa: C901  a call more would cost every job
        ticket, seed, intended_ns = order
        while self._outbox.full:
            gevent.sleep(SPOOL_POLL_S)
        try:
            if self._settling is not None:
                self._await_settings(self._settling)
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
        except Exception as error:  # noqa: BLE001  a slot must survive any error of a job, and reports it
            report = _report_of_error(error, ticket)
        # Send results when a batch is full, else after a pass of the loop: see `Slots`.
        if self._outbox.add(ticket, report) >= self._batch:
            self._outbox.flush()
        elif not self._slots.pass_scheduled:
            self._slots.schedule_pass()
        if report.extras is not None and report.error is not None and report.error[1] == UNREACHABLE:
            gevent.sleep(UNREACHABLE_PAUSE_S)

    def _await_settings(self, settling: gevent.Greenlet[[Treatment], SettingError | None]) -> None:
        """Wait until the host is as the present treatment wants it; raise `SettingError` where it cannot be."""
        error = self._interruptions.wait(settling.get)
        if error is not None:
            raise error
        if self._settling is settling:
            self._settling = None

    def _dropped(self) -> JobReport:
        now = monotonic_ns()
        text = f"no slot was free within {format_duration(self._queue_timeout_ns / 1e9)} of its arrival"
        return JobReport.ended(Outcome.FAILED, (now, now), error=(ARRIVAL, DROPPED, text))

    def _prepare(self) -> RunJob:
        """Prepare the present treatment: its first job does so while the others wait."""
        self._run = run = self._container_jobs.prepare(self._treatments[self._treatment])
        return run


def _no_master(_treatment: int, service: str, _ticket: int, _action: RequestedAction) -> None:
    raise WeighbridgeError(f"there is no master to request the service {service} from")


def _no_reply(_command: ServiceCommand, _outcome: ServiceOutcome) -> None:
    """Drop an outcome: there is no master."""


def _report_of_error(error: Exception, ticket: int) -> JobReport:
    """Return the report of a job that an error kept from its first operation."""
    if isinstance(error, SwapError):
        return _not_started("swap", str(error))
    if isinstance(error, SettingError):
        return _not_started("host-setting", str(error))
    if isinstance(error, WeighbridgeError):
        return _not_started(UNREACHABLE, str(error))
    log.error("job %d failed inside the worker", job_id_of(ticket), exc_info=error)
    return _not_started("internal", f"{type(error).__name__}: {error}")


def _not_started(kind: str, message: str) -> JobReport:
    now = monotonic_ns()
    return JobReport.ended(Outcome.FAILED, (now, now), error=("worker", kind, message))
