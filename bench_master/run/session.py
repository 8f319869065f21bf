"""One run from the first hello to the last byte of its stats file.

The session turns messages, signals and time into the coordinator's events, and carries its actions out on the
switchboard, the journal, the tally and the view. It decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent
from gevent.event import Event

from bench_common.errors import ProtocolError, StatsFileError, WeighbridgeError
from bench_common.loopmeter import LoopMeter
from bench_common.messages import Message
from bench_common.overhead import Overhead
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator import actions as act
from bench_master.coordinator import events as ev
from bench_master.coordinator.machine import Phase
from bench_master.coordinator.roster import Member
from bench_master.plan import Plan
from bench_master.progress.quantities import one_line
from bench_master.progress.snapshot import Snapshot
from bench_master.progress.view import View
from bench_master.run.fitness import assess
from bench_master.run.header import operation_names
from bench_master.run.hosts import Host, Hosts
from bench_master.run.inquiry import Inquiry
from bench_master.run.journal import Journal
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.orders import OrderBook
from bench_master.run.profiles import Profiles
from bench_master.run.recorder import Recorder
from bench_master.run.results import unpack
from bench_master.run.standing import Standing
from bench_master.run.switchboard import Switchboard
from bench_master.scenario.advice import caveats
from bench_master.table import counted
from bench_master.tally import Tally
from workloads.script import job_limit_s

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
REFRESH_S: Final = 0.25
HEARTBEAT_S: Final = 0.5
ACK_SEQUENCES: Final = 4096
"""How many batches one message acknowledges, so that it never grows too large to be sent."""
LEASE_S: Final = 15.0
"""How long a worker goes on without a word of its master."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the session needs to know beside plan and policy."""

    run_id: str
    noop: bool
    keep: bool
    sampling_s: float
    first_epoch: int
    notes: Sequence[str] = ()
    standing: Standing | None = None
    """How far the run had come that is resumed; None where it begins."""
    overhead: Overhead | None = None


@dataclass(slots=True)
class Result:
    """How a run ended: its status, what was wrong, the stats file (None where nothing was begun).

    `unwritable`: the stats file could not be written to its end, so the run was called off by us, not by the user.
    """

    status: act.RunStatus
    reasons: list[str] = field(default_factory=list)
    unusable: bool = False
    unwritable: bool = False
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
        tally: Callable[[int | None], Tally],
        view: View,
        open_journal: Callable[..., Journal],
        local_boot_id: str,
    ) -> None:
        self._plan = plan
        self._options = options
        self._view = view
        self._make_tally = tally
        self._open_journal = open_journal
        self._hosts = Hosts(local_boot_id)
        self._orders = OrderBook(plan.seed)
        self._recorder = Recorder(tally(None), view, self._hosts, self._arrived)
        self._standing = standing = options.standing or Standing()
        self._recorder.warnings |= dict.fromkeys(standing.warnings)
        self._recorder.remarks |= dict.fromkeys([*standing.remarks, *options.notes, *caveats(plan.treatments)])
        self._engines = frozenset(treatment.engine for treatment in plan.treatments)
        self._coordinator = Coordinator(
            plan.treatments,
            [trial for trial in plan.trials if trial.index not in standing.whole],
            policy,
            job_limit_s=job_limit_s,
            first_epoch=options.first_epoch,
            seed=plan.seed,
            first_job=standing.first_job,
            numbers=standing.numbers,
            now=monotonic(),
        )
        # A no-op run has no engine that could be watched.
        watched = None if options.noop else options.overhead
        self._overhead = watched.for_workers(sorted(self._engines)) if watched is not None else {}
        names = [operation_names(treatment) for treatment in plan.treatments]
        self._operation_counts = [len(row) for row in names]
        self._treatment_of = [trial.treatment for trial in plan.trials]
        self._lanes: dict[int, tuple[int, str]] = {}
        self._over = Event()
        self._result = Result("incomplete")
        self._inquiry = Inquiry(
            () if options.noop else plan.treatments,
            lambda peer, needs: self._say(peer, "ask", 0, needs=needs),
            monotonic,
        )
        self._meter = LoopMeter()
        self.board: Switchboard | None = None
        self.locals: LocalWorkers | None = None
        self.profiles: Profiles | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Wait for workers, run the plan, and return how it ended. The switchboard must be open by now."""
        began_ns = monotonic_ns()
        self._meter.start()
        with self._view:
            self._view.begin(self._snapshot())
            refresher = gevent.spawn(self._keep_refreshing)
            try:
                while not self._over.wait(TICK_S):
                    self._tick()
            finally:
                refresher.kill()
                self._sample_loop()
                self._meter.stop()
            if self.locals is not None:
                self.locals.end()
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
            running = counted(coordinator.in_flight, "running job")
            self._view.say(f"interrupted: {running} to be finished; Ctrl-C again aborts")
        elif coordinator.interrupts == 2:  # noqa: PLR2004  the second Ctrl-C
            self._view.say("interrupted again: running jobs are aborted and cleaned up")

    def terminate(self) -> None:
        """SIGTERM: abort what runs, clean up, save."""
        while self._coordinator.interrupts < 2 and not self._over.is_set():  # noqa: PLR2004  as by two Ctrl-C
            self.interrupt()

    def _tick(self) -> None:
        if self.locals is not None:
            for death in self.locals.deaths():
                words = f"; it last said: {death.last_words}" if death.last_words else ""
                self._view.say(f"worker {death.worker_id}: {death.reason}{words}")
                self._handle(ev.Gone(death.worker_id, death.reason))
                if death.restarted:
                    continue
                text = f"worker {death.worker_id} died too often and was not started again: {death.reason}{words}"
                self._recorder.warn(text)
                if self._coordinator.phase is Phase.GATHERING:
                    self._result.unusable = True
                    self._handle(ev.Refused([text]))
        # Nobody is missed while a worker still sees to it that it has what is needed.
        if not (self._coordinator.phase is Phase.GATHERING and self._inquiry.open):
            self._handle(ev.Tick())

    def _keep_refreshing(self) -> None:
        sampled_at = monotonic()
        while True:
            gevent.sleep(REFRESH_S)
            self._view.refresh(self._snapshot())
            if monotonic() - sampled_at >= self._options.sampling_s:
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
            share = self._coordinator.shares.get(number)
            running = len(share.outstanding) if share is not None else 0
            tally.host(host.row(self._coordinator.roster[number].presence.value, running))
        return tally.snapshot(monotonic_ns())

    def _finish(self, began_ns: int) -> None:
        recorder, journal = self._recorder, self._recorder.journal
        if journal is None:
            return
        if recorder.refused:
            recorder.warn(f"{counted(recorder.refused, 'result')} refused: too late, or there already")
        dropped = self.board.dropped.total() if self.board is not None else 0
        if dropped:
            recorder.warn(f"{dropped} messages broke the protocol and were dropped")
        recorder.end(self._engines)
        snapshot = recorder.tally.snapshot(monotonic_ns())
        counts = {name: getattr(snapshot, name) for name in ("done", "failed", "lost", "aborted")}
        footer = {
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": self._result.status,
            "duration_s": (monotonic_ns() - began_ns + self._standing.ran_ns) / 1e9,
            "counts": {"planned": recorder.tally.planned, **counts},
            "not_started": self._coordinator.not_started,
            "warnings": list(recorder.warnings),
            "remarks": list(recorder.remarks),
            "reasons": self._result.reasons,
            "dropped_messages": dropped,
            "refused_results": recorder.refused,
        }
        if self._options.standing is not None:
            footer["resumes"] = self._standing.parts
        try:
            journal.close(footer)
        except StatsFileError as error:
            self._journal_failed(error)
        self._result.stats = journal.path

    # -- what comes in ------------------------------------------------------------------------------------------

    def control_came(self, peer: bytes, identity: str | None, message: Message, received_ns: int) -> None:
        """Take a control message in."""
        if message.type == "hello":
            self._hello(peer, identity, message, received_ns)
            return
        if message.type == "lacks":
            self._lacks(peer, identity, message)
            return
        member = self._coordinator.roster.at_epoch(message.epoch)
        if member is None:
            if message.type == "beat":
                self._handle(ev.Heard(peer, message.epoch))
            return
        if member.peer != peer or member.identity != identity:
            raise ProtocolError(f"a message {message.type!r} in the epoch of another worker")
        if not self._admitted(identity):
            self._handle(ev.Gone(member.worker_id, "its key was revoked", message.epoch))
            self._say(peer, "dismiss", 0, reason="this key was revoked", final=True)
            return
        self._member_said(member, message, received_ns)

    def _member_said(self, member: Member, message: Message, received_ns: int) -> None:
        peer, host = member.peer, self._hosts[member.number]
        if message.type == "beat":
            self._beat(peer, member.epoch, host, message, received_ns)
        elif message.type == "gone":
            self._handle(ev.Gone(member.worker_id, message["reason"], message.epoch))
        elif message.type == "samples":
            columns = host.take_samples(message)
            units = {str(name): str(unit) for name, unit in message["units"].items()}
            self._recorder.samples(member.number, message["source"], columns, units)
        elif message.type == "packed":
            self._packed(member, message)
        elif message.type == "remark":
            self._recorder.warn(f"worker {member.worker_id}: {one_line(message['text'])}")
        elif message.type == "progress":
            host.said = message["text"]
        elif message.type == "profile":
            if self.profiles is None:
                raise ProtocolError("a profile that was not asked for")
            self.profiles.came(member.worker_id, message["content"])
        elif message.type == "swept":
            failed = [str(item)[:500] for item in message["failed"][:100]]
            self._handle(ev.Swept(peer, message.epoch, message["removed"], failed))

    def _packed(self, member: Member, message: Message) -> None:
        returned = message["returned"]
        if not all(type(ticket) is int for ticket in returned):
            raise ProtocolError("tickets that are no whole numbers")
        fields = {name: message[name] for name in ("containers", "reason", "full", "hold_s", "memory_before")}
        self._handle(ev.Packed(member.epoch, message["trial"], returned, fields))

    def result_came(self, identity: str | None, message: Message) -> None:
        """Take a batch of results in."""
        member = self._coordinator.roster.at_epoch(message.epoch)
        if member is not None and member.identity != identity:
            raise ProtocolError("results in the epoch of another worker")
        batch = unpack(message, self._operation_counts, self._treatment_of)
        self._handle(ev.Finished(message.epoch, message["sequence"], batch.tickets, batch, batch.aborted))

    def _admitted(self, identity: str | None) -> bool:
        return self.board is None or self.board.admits(identity)

    def _hello(self, peer: bytes, identity: str | None, message: Message, received_ns: int) -> None:
        if not self._admitted(identity):
            self._say(peer, "dismiss", 0, reason="this key is not admitted", final=True)
            return
        info = message["info"]
        # Who a worker is follows from its key where there is one, never from what it says.
        worker_id = identity or message["worker_id"]
        if self._over.is_set() and self.locals is not None and worker_id in self.locals.ids:
            # Never admitted, so nothing releases it; and the master waits for the end of its own workers.
            self._say(peer, "stop", 0, exit=True)
            return
        fitness = assess(
            self._plan.treatments,
            environment=message["environment"],
            slots=message["slots"],
            info=info,
            noop=self._options.noop,
        )
        if fitness.reasons:
            self._refuse(peer, worker_id, list(fitness.reasons), unusable=fitness.unusable)
            return
        if not self._inquiry.admits(peer, identity, message, received_ns):
            return
        self._recorder.remarks |= dict.fromkeys(fitness.remarks)
        place = (peer, worker_id, message["environment"], message["slots"], identity, info)
        self._handle(ev.Hello(*place, clock_known=self._hosts.shares_our_clock(info)))
        member = self._coordinator.roster.named(worker_id)
        if member is not None and member.peer == peer:
            self._hosts[member.number].hear_clock(message["sent_ns"], received_ns)

    def _lacks(self, peer: bytes, identity: str | None, message: Message) -> None:
        """Take in what a worker's host lacks; where that is nothing, go on with the hello that waited."""
        waited = self._inquiry.answered(peer, identity)
        if waited is None:
            raise ProtocolError("an answer to a question that was not asked")
        hello, received_ns = waited
        reasons = [str(reason)[:1000] for reason in message["reasons"][:100]]
        if reasons:
            self._refuse(peer, identity or hello["worker_id"], reasons, unusable=message["unusable"])
        else:
            self._hello(peer, identity, hello, received_ns)

    def _refuse(self, peer: bytes, worker_id: str, reasons: list[str], *, unusable: bool) -> None:
        """Call the run off for a worker that cannot do what the plan asks, unless it has begun without it."""
        if self._recorder.journal is not None:
            # A run that has begun is not called off by whoever comes by and does not fit.
            self._say(peer, "dismiss", 0, reason="; ".join(reasons)[:1000], final=True)
            return
        self._result.unusable = unusable
        self._handle(ev.Refused([f"worker {worker_id}: {reason}" for reason in reasons]))

    def _beat(self, peer: bytes, epoch: int, host: Host, message: Message, received_ns: int) -> None:
        host.hear_clock(message["sent_ns"], received_ns)
        host.compare_clock(message, received_ns)
        self._handle(ev.Heard(peer, epoch, clock_known=host.clock_known))
        self._say(peer, "pulse", epoch, echo_ns=message["sent_ns"], received_ns=received_ns, sent_ns=monotonic_ns())

    # -- what is to be done -------------------------------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        for action in self._coordinator.handle(event, monotonic()):
            if self._over.is_set() and self._recorder.journal is None:
                break  # there is nowhere to record what would come of it
            self._do(action)

    def _do(self, action: act.Action) -> None:  # noqa: C901  a table of a dozen actions
        match action:
            case act.Issue():
                self._issue(action)
            case act.Journal():
                self._recorder.take(action, self._epoch(action.number))
            case act.Note():
                self._note(action)
            case act.Conclude():
                self._recorder.conclude(action)
            case act.Define():
                treatment = self._plan.treatments[action.treatment]
                self._lane(action.number, "define", treatment=treatment.to_wire())
            case act.Acknowledge():
                self._recorder.promise(action.number, self._epoch(action.number), action.sequence)
            case act.Cancel():
                self._lane(action.number, "cancel")
            case act.Welcome():
                self._welcome(action)
            case act.Dismiss():
                self._say(action.peer, "dismiss", 0, reason=action.reason, final=action.final)
            case act.Sweep():
                self._to_member(action.number, "sweep", run_id=self._options.run_id)
            case act.Release():
                self._to_member(action.number, "stop", exit=False)
            case act.RunOver():
                self._result.status = action.status
                self._result.reasons += action.reasons
                self._over.set()

    def _epoch(self, number: int) -> int:
        return self._coordinator.roster[number].epoch

    def _say(self, peer: bytes, name: str, epoch: int, **fields: Any) -> None:
        if self.board is not None:
            self.board.say(peer, name, epoch, **fields)

    def _to_member(self, number: int, name: str, **fields: Any) -> None:
        member = self._coordinator.roster[number]
        self._say(member.peer, name, member.epoch, **fields)

    def _lane(self, number: int, name: str, **fields: Any) -> None:
        if self.board is not None:
            self.board.lane(number, name, self._epoch(number), **fields)

    def _welcome(self, action: act.Welcome) -> None:
        assert self.board is not None
        local = self.locals is not None and action.worker_id in self.locals.ids
        # A worker that asked twice is welcomed twice: to the lane that it has, where its first jobs may be already.
        epoch, lane = self._lanes.get(action.number, (None, ""))
        if epoch != action.epoch:
            lane = self.board.open_lane(action.number, action.worker_id, local=local)
            self._lanes[action.number] = (action.epoch, lane)
        self._say(
            action.peer,
            "welcome",
            action.epoch,
            run_id=self._options.run_id,
            number=action.number,
            lane=lane,
            results=self.board.results_endpoint(local=local),
            noop=self._options.noop,
            heartbeat_s=HEARTBEAT_S,
            lease_s=LEASE_S,
            sampling_s=self._options.sampling_s,
            keep=self._options.keep,
            profile=self.profiles is not None,
            overhead=self._overhead,
        )
        if self.profiles is not None:
            self.profiles.expect(action.worker_id)

    def _issue(self, action: act.Issue) -> None:
        tickets, offset_ns = action.tickets, self._hosts[action.number].offset_ns
        if not isinstance(tickets, range):
            rows = self._orders.anew(tickets, offset_ns)
        elif action.intended_ns:
            rows = self._orders.arriving(tickets, action.intended_ns, offset_ns)
        else:
            rows = self._orders.fresh(tickets)
        if self.board is not None:
            self.board.lane(
                action.number,
                "jobs",
                self._epoch(action.number),
                treatment=action.treatment,
                trial=action.trial,
                width=action.width,
                batch=action.batch,
                rows=rows,
            )

    def _arrived(self, treatment: int, tickets: Sequence[int]) -> list[int] | None:
        """Return when jobs of a treatment arrived; None in the closed model."""
        return None if self._plan.treatments[treatment].open_load is None else self._orders.arrived(tickets)

    def _acknowledge(self, number: int, epoch: int, sequences: list[int]) -> None:
        if self._epoch(number) == epoch:
            for first in range(0, len(sequences), ACK_SEQUENCES):
                self._lane(number, "ack", sequences=sequences[first : first + ACK_SEQUENCES])

    def _note(self, note: act.Note) -> None:
        if note.kind in ("worker-joined", "worker-back"):
            self._hosts.join(self._coordinator.roster[note.fields["worker"]], note.fields["info"])
        elif note.kind == "run-begin":
            self._begin()
        elif note.kind == "worker-lost" and note.fields["silent"] and self.locals is not None:
            # It may be stopped for good. Killed, it is started again; its load process tidies up and ends by itself.
            self.locals.kill(note.fields["worker_id"])
        self._recorder.note(note)

    def _begin(self) -> None:
        """Open the stats file: from here on there is something to keep."""
        try:
            journal = self._open_journal(
                environments=self._hosts.environments,
                acknowledge=self._acknowledge,
                failed=self._journal_failed,
            )
        except (OSError, WeighbridgeError) as error:
            self._call_off(str(error))
            return
        self._recorder.begin(journal, self._make_tally(self._coordinator.planned_jobs()), self._engines)
        self._meter.read()  # how this loop was while workers came is none of the run's

    def _call_off(self, reason: str) -> None:
        """End a run that cannot begin, and let its workers go."""
        self._result.reasons.append(reason)
        for member in self._coordinator.roster:
            self._to_member(member.number, "stop", exit=False)
        self._over.set()

    def _journal_failed(self, error: WeighbridgeError) -> None:
        """Call the run off: the stats file cannot be written any more, and nothing further would be kept."""
        self._result.unwritable = True
        self._result.reasons.append(str(error))
        self._view.say(f"{error}; the run is called off")
        self.terminate()
