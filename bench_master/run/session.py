"""One run from the first hello to the last byte of its stats file.

The session turns signals and time into the coordinator's events, as `reception` does with messages, and has its
actions carried out: by `courier` what goes to workers, by `recorder` what is kept and shown. It decides nothing
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent
from gevent.event import Event

from bench_common.errors import InfrastructureError, StatsFileError, WeighbridgeError
from bench_common.eventloop import LoopMeter, stall_s
from bench_common.treatment import OverheadSampling
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.machine import Phase
from bench_master.formatting import plural
from bench_master.plan import Plan
from bench_master.progress.view import Snapshot, View
from bench_master.run.dispatcher import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S, Dispatcher
from bench_master.run.hosts import WorkerHosts
from bench_master.run.journal import Journal
from bench_master.run.live_stats import LiveStats
from bench_master.run.message_handler import MessageHandler
from bench_master.run.recorder import Recorder
from bench_master.run.remote_services import ServiceBroker
from bench_master.run.resume import ResumeState
from bench_master.scenario.load import caveats
from workloads.script import job_limit_s

log = logging.getLogger(__name__)

TICK_INTERVAL_S: Final = 0.1
REFRESH_INTERVAL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the session needs to know beside plan and policy."""

    run_id: str
    noop: bool
    keep: bool
    sampling_interval_s: float
    first_epoch: int
    notes: Sequence[str] = ()
    standing: ResumeState | None = None
    """How far the run had come that is resumed; None where it begins."""
    overhead: OverheadSampling | None = None
    lease_s: float = DEFAULT_LEASE_S
    heartbeat_s: float = HEARTBEAT_INTERVAL_S


@dataclass(slots=True)
class RunResult:
    """How a run ended: its status, what was wrong, the stats file (None where nothing was begun).

    `unwritable`: the stats file could not be written to its end, so the run was called off by us, not by the user.
    """

    status: act.RunStatus
    reasons: list[str] = field(default_factory=list)
    unusable: bool = False
    stats_unwritable: bool = False
    stats: Path | None = None
    profiles: list[Path] = field(default_factory=list)


class Session:
    """Drives one run to its end; `run` returns how it ended.

    `open_journal(acknowledge, failed)` makes the journal when the first job is about to be handed out.
    """

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        options: SessionOptions,
        *,
        tally: Callable[[int | None], LiveStats],
        view: View,
        open_journal: Callable[..., Journal],
        local_boot_id: str,
    ) -> None:
        self._plan = plan
        self._options = options
        self._view = view
        self._make_live_stats = tally
        self._open_journal = open_journal
        self._hosts = WorkerHosts(local_boot_id)
        self._resume_state = standing = options.standing or ResumeState()
        self._engines = frozenset(treatment.engine for treatment in plan.treatments)
        # A no-op run has no services that could be anywhere.
        placed = [replace(one, placement={}) for one in plan.treatments] if options.noop else plan.treatments
        self._coordinator = Coordinator(
            placed,
            [trial for trial in plan.trials if trial.index not in standing.whole],
            policy,
            job_limit_s=job_limit_s,
            first_epoch=options.first_epoch,
            seed=plan.seed,
            first_job=standing.first_job,
            numbers=standing.numbers,
            now=monotonic(),
        )
        roster = self._coordinator.roster
        self.dispatcher = Dispatcher(plan, roster, self._hosts, options.run_id, self._run_settings())
        self._recorder = Recorder(tally(None), view, self._hosts, self.dispatcher.take_arrival_times)
        self._recorder.warnings |= dict.fromkeys(standing.warnings)
        self._recorder.remarks |= dict.fromkeys([*standing.remarks, *options.notes, *caveats(plan.treatments)])
        self._services = ServiceBroker(plan.treatments, roster, self._recorder.remarks.setdefault)
        self._over = Event()
        self._broken = False
        self._result = RunResult("incomplete")
        self.message_handler = MessageHandler(
            plan,
            roster,
            self._hosts,
            self._recorder,
            self.dispatcher,
            self._services,
            noop=options.noop,
            handle=self._handle,
            call_off=self._refused,
            over=self._over.is_set,
        )
        self._meter = LoopMeter()

    def _run_settings(self) -> dict[str, Any]:
        """Return what every worker is told of the run."""
        options = self._options
        # A no-op run has no engine that could be watched.
        watched = None if options.noop else options.overhead
        return {
            "noop": options.noop,
            "heartbeat_s": options.heartbeat_s,
            "lease_s": options.lease_s,
            "keep": options.keep,
            "sampling_s": options.sampling_interval_s,
            "overhead": watched.worker_settings(sorted(self._engines)) if watched is not None else {},
        }

    # -- life ---------------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        """Wait for workers, run the plan, and return how it ended. The switchboard must be open by now."""
        began_ns = monotonic_ns()
        self._meter.start()
        with self._view:
            self._view.begin(self._snapshot())
            refresher = gevent.spawn(self._refresh_loop)
            try:
                came = monotonic()
                while not self._over.wait(TICK_INTERVAL_S):
                    absent = stall_s(came, TICK_INTERVAL_S)
                    came = monotonic()
                    if absent:
                        self._handle(ev.MasterStalled(absent))
                    self._tick()
            finally:
                refresher.kill()
                self._sample_loop()
                self._meter.stop()
            if self.dispatcher.local_workers is not None:
                self.dispatcher.local_workers.end()
            self._finish(began_ns)
            self._view.end(self._snapshot())
        return self._result

    def interrupt(self) -> None:
        """Ctrl-C: finish what runs; the second time abort it."""
        if self._over.is_set():
            return
        self._handle(ev.Interrupt())
        coordinator = self._coordinator
        if not self._over.is_set() and coordinator.interrupts == 1:
            running = plural(coordinator.course.in_flight, "running job")
            self._view.say(f"interrupted: {running} to be finished; Ctrl-C again aborts")
        elif coordinator.interrupts == 2:  # noqa: PLR2004  the second Ctrl-C
            self._view.say("interrupted again: running jobs are aborted and cleaned up")

    def terminate(self) -> None:
        """SIGTERM: abort what runs, clean up, save."""
        while self._coordinator.interrupts < 2 and not self._over.is_set():  # noqa: PLR2004  as by two Ctrl-C
            self.interrupt()

    def _tick(self) -> None:
        if self.dispatcher.local_workers is not None:
            for death in self.dispatcher.local_workers.poll_deaths():
                words = f"; it last said: {death.last_words}" if death.last_words else ""
                self._view.say(f"worker {death.worker_id}: {death.reason}{words}")
                self._handle(ev.WorkerDied(death.worker_id, death.reason))
                if death.restarted:
                    continue
                text = f"worker {death.worker_id} died too often and was not started again: {death.reason}{words}"
                self._recorder.warn(text)
                if self._coordinator.phase is Phase.WAITING_FOR_WORKERS:
                    self._refused([text], unusable=True)
        # Nobody is missed while a worker still sees to it that it has what is needed.
        if not (self._coordinator.phase is Phase.WAITING_FOR_WORKERS and self.message_handler.preflight_pending):
            self._handle(ev.Tick())

    def _refresh_loop(self) -> None:
        sampled_at = monotonic()
        while True:
            gevent.sleep(REFRESH_INTERVAL_S)
            self._view.refresh(self._snapshot())
            if monotonic() - sampled_at >= self._options.sampling_interval_s:
                sampled_at = monotonic()
                self._sample_loop()

    def _sample_loop(self) -> None:
        reading = self._meter.read()
        columns = {
            "time_ns": [reading.time_ns],
            "busy_share": [reading.busy_share],
            "lag_max_ns": [reading.lag_max_ns],
        }
        self._recorder.samples(-1, "loop", columns, LoopMeter.UNITS)

    def _snapshot(self) -> Snapshot:
        self._recorder.settle()
        tally = self._recorder.tally
        for number, host in self._hosts:
            share = self._coordinator.course.shares.get(number)
            running = len(share.outstanding) if share is not None else 0
            tally.host(host.row(self._coordinator.roster[number].presence.value, running))
        return tally.snapshot(monotonic_ns())

    def _finish(self, began_ns: int) -> None:
        recorder, journal = self._recorder, self._recorder.journal
        if journal is None:
            return
        if recorder.refused:
            recorder.warn(f"{plural(recorder.refused, 'result')} refused: too late, or there already")
        board = self.dispatcher.board
        dropped = board.dropped.total() if board is not None else 0
        if dropped:
            recorder.warn(f"{dropped} messages broke the protocol and were dropped")
        recorder.end(self._engines)
        snapshot = recorder.tally.snapshot(monotonic_ns())
        counts = {name: getattr(snapshot, name) for name in ("done", "failed", "lost", "aborted")}
        footer = {
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": self._result.status,
            "duration_s": (monotonic_ns() - began_ns + self._resume_state.previous_parts_ns) / 1e9,
            "counts": {"planned": recorder.tally.planned, **counts},
            "not_started": self._coordinator.course.not_started,
            "warnings": list(recorder.warnings),
            "remarks": list(recorder.remarks),
            "reasons": self._result.reasons,
            "dropped_messages": dropped,
            "refused_results": recorder.refused,
        }
        if self._options.standing is not None:
            footer["resumes"] = self._resume_state.parts
        try:
            journal.close(footer)
        except StatsFileError as error:
            self._journal_failed(error)
        self._result.stats = journal.path

    # -- what is to be done -------------------------------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        if self._broken:
            return
        for action in self._coordinator.handle(event, monotonic()):
            if self._over.is_set() and self._recorder.journal is None:
                break  # there is nowhere to record what would come of it
            try:
                self._do(action)
            except Exception as error:
                # The coordinator takes it for done, and what follows for true: no event after it would be.
                self._broken = True
                if not isinstance(error, WeighbridgeError):
                    log.exception("the run is called off: %s could not be carried out", type(action).__name__)
                    error = InfrastructureError(f"internal error: {type(error).__name__}: {error}")
                self._cancel_run(str(error))
                return

    def _do(self, action: act.Action) -> None:
        match action:
            case act.AssignJobs():
                self.dispatcher.deliver(action)
            case act.RecordResults():
                self._recorder.take(action, self._epoch(action.number))
            case act.LogEvent():
                self._note(action)
            case act.FailJobs():
                self._recorder.conclude(action)
            case act.AcknowledgeResults():
                self._recorder.acknowledge_when_written(action.number, self._epoch(action.number), action.sequence)
            case act.RunFinished():
                self._result.status = action.status
                self._result.reasons += action.reasons
                self._over.set()
            case _:
                self.dispatcher.deliver(action)

    def _epoch(self, number: int) -> int:
        return self._coordinator.roster[number].epoch

    def _note(self, note: act.LogEvent) -> None:
        if note.kind in ("worker-joined", "worker-back"):
            self._hosts.join(self._coordinator.roster[note.fields["worker"]], note.fields["info"])
        elif note.kind == "run-begin":
            self._begin_journal()
        elif note.kind == "worker-lost":
            self.dispatcher.send(self._services.lost(note.fields["worker"], note.fields["reason"]))
            if note.fields["silent"] and self.dispatcher.local_workers is not None:
                # It may be stopped for good. Killed, it is started again; its load process tidies up and ends.
                self.dispatcher.local_workers.kill(note.fields["worker_id"])
        elif note.kind == "worker-given-up":
            self.dispatcher.send(self._services.given_up(note.fields["worker"]))
        if note.kind == "worker-back":
            self.dispatcher.send(self._services.back(note.fields["worker"]))
        self._recorder.note(note)

    def _refused(self, reasons: list[str], unusable: bool) -> None:  # noqa: FBT001  a callback
        """Call off a run that has not begun, for what a worker cannot do."""
        self._result.unusable = unusable
        self._handle(ev.RunRefused(reasons))

    def _begin_journal(self) -> None:
        """Open the stats file: from here on there is something to keep."""
        try:
            journal = self._open_journal(
                environments=self._hosts.environments,
                acknowledge=self.dispatcher.acknowledge,
                failed=self._journal_failed,
            )
        except (OSError, WeighbridgeError) as error:
            self._cancel_run(str(error))
            return
        self._recorder.begin(journal, self._make_live_stats(self._coordinator.course.planned_jobs()), self._engines)
        self._meter.read()  # how this loop was while workers came is none of the run's

    def _cancel_run(self, reason: str) -> None:
        """End a run that cannot begin or go on, and let its workers go."""
        self._result.status = "incomplete"
        self._result.reasons.append(reason)
        self.dispatcher.release_all()
        self._over.set()

    def _journal_failed(self, error: WeighbridgeError) -> None:
        """Call the run off: the stats file cannot be written any more, and nothing further would be kept."""
        self._result.stats_unwritable = True
        self._result.reasons.append(str(error))
        if self._over.is_set():
            # The last bytes are missing, the footer among them: whoever reads the file takes the run for unfinished.
            self._result.status = "incomplete"
            return
        self._view.say(f"{error}; the run is called off")
        self.terminate()
