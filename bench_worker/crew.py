"""Runs the jobs of one run on this worker: treatments as they are defined, each order through a job machine.

It knows slots, engines and the outbox, and nothing of sockets or of who sent the orders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, TypeAlias

import gevent
from gevent.lock import RLock
from greenlet import greenlet

from bench_common.errors import WeighbridgeError
from bench_common.records import JobReport, Outcome, attempt_of, job_id_of
from bench_common.spec import Guest, Treatment
from bench_worker.engines.base import Container, Engine, EngineOptions
from bench_worker.engines.noop import NoopEngine
from bench_worker.job import TIDY, JobMachine, Trouble
from bench_worker.outbox import Outbox
from bench_worker.performer import Performer
from bench_worker.slots import JobAborted, Slots
from workloads.registry import workload

log = logging.getLogger(__name__)

Order: TypeAlias = tuple[int, int, int, int, int]
"""An ORDER_ROW as plain ints: ticket, treatment, trial, seed, intended_ns."""

ROOM_POLL_S: Final = 0.02
"""How often a slot looks whether the master has caught up with the spool."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker needs to know of the run that it works for."""

    run_id: str
    worker_id: str
    slots: int
    noop: bool
    keep: bool
    allow_host_mounts: bool


class Crew:
    """The slots of one worker in one run. `open_engine(name, options)` opens an engine by name."""

    def __init__(
        self, assignment: Assignment, outbox: Outbox, open_engine: Callable[[str, EngineOptions], Engine]
    ) -> None:
        self._assignment = assignment
        self._outbox = outbox
        self._open_engine = open_engine
        self._slots: Slots[Order] = Slots(assignment.slots, self._execute)
        self._treatments: dict[int, Treatment] = {}
        self._performers: dict[int, Performer] = {}
        self._engines: dict[str, Engine] = {}
        self._opening = RLock()
        self._waiting: set[greenlet] = set()
        self._loop = gevent.get_hub().loop
        self._flush_scheduled = False
        self._half = 0
        self._aborts = 0
        self._prefix = f"wb-{assignment.run_id}-"

    @property
    def running(self) -> int:
        """How many jobs are under way."""
        return self._slots.running

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or waiting."""
        return not self._slots.running and not self._slots.waiting

    def define(self, treatment: Treatment) -> None:
        """Learn a treatment, before the first order that names it."""
        self._treatments[treatment.index] = treatment
        self._half = treatment.concurrency // 2

    def take(self, orders: list[Order]) -> None:
        """Take orders in."""
        self._slots.put(orders)

    def abort(self) -> None:
        """Call off every job: those that wait end at once, those under way at their next step, and are tidied up.

        A step that only waits (for a command, for time to pass) is interrupted. One that changes something is not: an
        engine goes on to make a container whose maker has hung up, and nobody would remove it.
        """
        self._aborts += 1
        now = monotonic_ns()
        for ticket, treatment, trial, _, _ in self._slots.withdraw():
            self._outbox.add(ticket, treatment, trial, JobReport(Outcome.ABORTED, now, now))
        self._outbox.flush()
        for slot in list(self._waiting):
            self._loop.run_callback(self._interrupt, slot)

    def close(self) -> None:
        """Close the engines; call it when nothing runs any more."""
        for engine in self._engines.values():
            engine.close()

    def _interrupt(self, slot: greenlet) -> None:
        # It may have got on in the meantime, to what must not be interrupted.
        if slot in self._waiting:
            slot.throw(JobAborted)

    def _execute(self, order: Order) -> None:
        ticket, treatment, trial, _seed, _intended_ns = order
        while self._outbox.full:
            gevent.sleep(ROOM_POLL_S)
        try:
            performer = self._performers.get(treatment) or self._prepare(treatment)
            report = self._run(performer, ticket)
        except WeighbridgeError as error:
            report = _never_begun("unreachable", str(error))
        except Exception as error:  # a slot is a boundary that must survive; what was caught is reported
            log.exception("job %d failed inside the worker", job_id_of(ticket))
            report = _never_begun("internal", f"{type(error).__name__}: {error}")
        self._outbox.add(ticket, treatment, trial, report)
        self._deliver()

    def _run(self, performer: Performer, ticket: int) -> JobReport:
        machine = JobMachine(performer.script, monotonic_ns())
        report = machine.report
        container = Container(self._name(ticket), ticket, performer.settings)
        perform, me = performer.perform, gevent.getcurrent()
        step, aborts = machine.begin(), self._aborts
        while step >= 0:
            if self._aborts != aborts:
                step = machine.aborted(monotonic_ns())
                break
            if performer.waits[step]:
                self._waiting.add(me)
            try:
                done = perform(container, step, report)
            except JobAborted:
                step = machine.aborted(monotonic_ns())
            except Exception as error:  # an engine's own fault is a failed operation, not a dead slot
                log.exception("operation %d of job %d broke its engine", step, job_id_of(ticket))
                text = f"{type(error).__name__}: {error}"
                step = machine.failed(Trouble("internal", text, report.end_ns, monotonic_ns()))
            else:
                step = machine.failed(done) if isinstance(done, Trouble) else machine.succeeded(done)
            finally:
                self._waiting.discard(me)
        if step == TIDY:
            machine.tidied(self._tidy(performer, container))
        return report

    def _tidy(self, performer: Performer, container: Container) -> str | None:
        if self._assignment.keep:
            return None
        try:
            return performer.tidy(container)
        except Exception as error:  # what cannot be removed now is left to the sweep at the end
            log.exception("container %s could not be removed", container.name)
            return f"{type(error).__name__}: {error}"

    def _name(self, ticket: int) -> str:
        return f"{self._prefix}{job_id_of(ticket)}-{attempt_of(ticket)}"

    def _prepare(self, index: int) -> Performer:
        with self._opening:
            if index not in self._performers:
                treatment = self._treatments[index]
                job = treatment.job
                guest = workload(job.workload) if isinstance(job, Guest) else None
                engine = self._engine(treatment)
                self._performers[index] = Performer(engine, treatment, guest, free=self._assignment.noop)
            return self._performers[index]

    def _engine(self, treatment: Treatment) -> Engine:
        name = NoopEngine.name if self._assignment.noop else treatment.engine
        if name not in self._engines:
            options = EngineOptions(
                run_id=self._assignment.run_id,
                worker_id=self._assignment.worker_id,
                slots=self._assignment.slots,
                timeout_s=treatment.timeout_s,
                allow_host_mounts=self._assignment.allow_host_mounts,
            )
            self._engines[name] = NoopEngine(options) if self._assignment.noop else self._open_engine(name, options)
        return self._engines[name]

    def _deliver(self) -> None:
        """Send results at once when half of the credit waits to be sent, else once per pass of the loop."""
        if self._outbox.waiting >= self._half:
            self._outbox.flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.run_callback(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._outbox.flush()


def _never_begun(kind: str, message: str) -> JobReport:
    now = monotonic_ns()
    return JobReport(Outcome.FAILED, now, now, error=("worker", kind, message))
