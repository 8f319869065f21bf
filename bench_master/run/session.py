"""One run from the first hello to the last byte of its stats file.

The session turns messages, signals and time into the coordinator's events, and carries its actions out on the
switchboard, the journal, the tally and the view. It decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent
import numpy as np
from gevent.event import Event

from bench_common.errors import ProtocolError, StatsFileError, WeighbridgeError
from bench_common.loopmeter import LoopMeter
from bench_common.messages import Message
from bench_common.records import JOB_ROW, OPERATION_ROW, ORDER_ROW, ErrorRecord, Outcome
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator import actions as act
from bench_master.coordinator import events as ev
from bench_master.coordinator.machine import Phase
from bench_master.plan import Plan
from bench_master.progress.snapshot import HostRow
from bench_master.progress.view import View
from bench_master.run.fitness import assess
from bench_master.run.header import operation_names
from bench_master.run.journal import Journal
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.results import Batch, unpack
from bench_master.run.samples import busy_percent, checked_columns
from bench_master.run.switchboard import Switchboard
from bench_master.tally import Tally
from workloads.script import job_limit_s

log = logging.getLogger(__name__)

TICK_S: Final = 0.1
REFRESH_S: Final = 0.25
HEARTBEAT_S: Final = 0.5
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


@dataclass(slots=True)
class Host:
    """What is known of a member beyond the coordinator's own view."""

    worker_id: str
    host: str
    environment: str
    slots: int
    same_clock: bool
    offset_ns: int = 0
    bound_ns: int = 0
    running: int = 0
    lag_ms: float | None = None
    cpu_percent: float | None = None


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
        self._tally = tally(None)
        self._open_journal = open_journal
        self._boot_id = local_boot_id
        self._coordinator = Coordinator(
            plan.treatments,
            plan.trials,
            policy,
            job_limit_s=job_limit_s,
            first_epoch=options.first_epoch,
            now=monotonic(),
        )
        names = [operation_names(treatment) for treatment in plan.treatments]
        self._operation_counts = np.array([len(row) for row in names], np.int64)
        self._journal: Journal | None = None
        self._early: list[tuple[str, int, Mapping[str, Any]]] = []
        self._hosts: dict[int, Host] = {}
        self._infos: dict[int, Mapping[str, Any]] = {}
        self._lanes: dict[int, tuple[int, str]] = {}
        self._over = Event()
        self._result = Result("incomplete")
        self._seeds = np.random.Generator(np.random.PCG64(plan.seed))
        self._warnings: list[str] = []
        self._remarks: dict[str, None] = dict.fromkeys(options.notes)
        self._meter = LoopMeter()
        self.board: Switchboard | None = None
        self.locals: LocalWorkers | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Wait for workers, run the plan, and return how it ended. The switchboard must be open by now."""
        began_ns = monotonic_ns()
        self._meter.start()
        with self._view:
            self._view.begin(self._tally.snapshot(began_ns))
            refresher = gevent.spawn(self._keep_refreshing)
            try:
                while not self._over.wait(TICK_S):
                    self._tick()
            finally:
                refresher.kill()
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
            running = coordinator.in_flight
            self._view.say(f"interrupted: {running} running jobs are being finished; Ctrl-C again aborts them")
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
                self._warn(text)
                if self._coordinator.phase is Phase.GATHERING:
                    self._result.unusable = True
                    self._handle(ev.Refused([text]))
        self._handle(ev.Tick())

    def _keep_refreshing(self) -> None:
        sampled_at = monotonic()
        while True:
            gevent.sleep(REFRESH_S)
            self._view.refresh(self._snapshot())
            if monotonic() - sampled_at >= self._options.sampling_s:
                sampled_at = monotonic()
                reading = self._meter.read()
                columns = {
                    "time_ns": [reading.time_ns],
                    "busy_share": [reading.busy_share],
                    "lag_max_ns": [reading.lag_max_ns],
                }
                if self._journal is not None:
                    self._journal.samples(-1, "loop", columns, LoopMeter.UNITS)

    def _snapshot(self) -> Any:
        for member in self._coordinator.roster:
            host = self._hosts.get(member.number)
            if host is not None:
                share = self._coordinator.shares.get(member.number)
                running = len(share.outstanding) if share is not None else 0
                self._tally.host(
                    HostRow(
                        worker_id=host.worker_id,
                        host=host.host,
                        environment=host.environment,
                        state=member.presence.value,
                        running=running,
                        slots=host.slots,
                        lag_ms=host.lag_ms,
                        cpu_percent=host.cpu_percent,
                    )
                )
        return self._tally.snapshot(monotonic_ns())

    def _finish(self, began_ns: int) -> None:
        journal = self._journal
        if journal is None:
            return
        dropped = self.board.dropped.total() if self.board is not None else 0
        if dropped:
            self._warn(f"{dropped} messages broke the protocol and were dropped")
        snapshot = self._tally.snapshot(monotonic_ns())
        counts = {name: getattr(snapshot, name) for name in ("done", "failed", "lost", "aborted")}
        footer = {
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": self._result.status,
            "duration_s": (monotonic_ns() - began_ns) / 1e9,
            "counts": {"planned": self._tally.planned, **counts},
            "not_started": self._coordinator.not_started,
            "warnings": self._warnings,
            "remarks": list(self._remarks),
            "reasons": self._result.reasons,
            "dropped_messages": dropped,
        }
        try:
            journal.close(footer)
        except StatsFileError as error:
            self._journal_failed(error)
        self._result.stats = journal.path

    # -- what comes in ------------------------------------------------------------------------------------------

    def control_came(self, peer: bytes, identity: str | None, message: Message, received_ns: int) -> None:
        """Take a control message in."""
        if message.type == "hello":
            self._hello(peer, identity, message)
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
        host = self._hosts[member.number]
        if message.type == "beat":
            self._beat(peer, member.epoch, host, message, received_ns)
        elif message.type == "gone":
            self._handle(ev.Gone(member.worker_id, message["reason"], message.epoch))
        elif message.type == "samples":
            self._samples(member.number, host, message)
        elif message.type == "swept":
            failed = [str(item)[:500] for item in message["failed"][:100]]
            self._handle(ev.Swept(peer, message.epoch, message["removed"], failed))

    def result_came(self, identity: str | None, message: Message) -> None:
        """Take a batch of results in."""
        member = self._coordinator.roster.at_epoch(message.epoch)
        if member is not None and member.identity != identity:
            raise ProtocolError("results in the epoch of another worker")
        batch = unpack(message, self._operation_counts, len(self._plan.trials))
        aborted = int(np.count_nonzero(batch.jobs["outcome"] == Outcome.ABORTED))
        self._handle(ev.Finished(message.epoch, message["sequence"], batch.jobs["ticket"].tolist(), batch, aborted))

    def _admitted(self, identity: str | None) -> bool:
        return self.board is None or self.board.admits(identity)

    def _hello(self, peer: bytes, identity: str | None, message: Message) -> None:
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
        if fitness.reasons and self._journal is not None:
            # A run that has begun is not called off by whoever comes by and does not fit.
            self._say(peer, "dismiss", 0, reason="; ".join(fitness.reasons)[:1000], final=True)
            return
        if fitness.reasons:
            self._result.unusable = fitness.unusable
            self._handle(ev.Refused([f"worker {worker_id}: {reason}" for reason in fitness.reasons]))
            return
        self._remarks |= dict.fromkeys(fitness.remarks)
        self._handle(ev.Hello(peer, worker_id, message["environment"], message["slots"], identity, info))

    def _beat(self, peer: bytes, epoch: int, host: Host, message: Message, received_ns: int) -> None:
        self._handle(ev.Heard(peer, epoch))
        host.running = message["running"]
        if not host.same_clock and message["bound_ns"] >= 0:
            # The worker says how far our clock is ahead of its own; we subtract how far its is ahead of ours.
            host.offset_ns, host.bound_ns = -message["offset_ns"], message["bound_ns"]
        self._say(peer, "pulse", epoch, echo_ns=message["sent_ns"], received_ns=received_ns, sent_ns=monotonic_ns())

    def _samples(self, number: int, host: Host, message: Message) -> None:
        columns = checked_columns(message["columns"], host.offset_ns)
        units = {str(name): str(unit) for name, unit in message["units"].items()}
        if self._journal is not None:
            self._journal.samples(number, message["source"], columns, units)
        if message["source"] == "host":
            host.cpu_percent = busy_percent(columns)
        elif message["source"] == "loop" and "lag_max_ns" in columns:
            host.lag_ms = float(columns["lag_max_ns"].max()) / 1e6

    # -- what is to be done -------------------------------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        for action in self._coordinator.handle(event, monotonic()):
            if self._over.is_set() and self._journal is None:
                break  # there is nowhere to record what would come of it
            self._do(action)

    def _do(self, action: act.Action) -> None:  # noqa: C901  a table of a dozen actions
        match action:
            case act.Issue():
                self._issue(action)
            case act.Journal():
                self._take(action)
            case act.Note():
                self._note(action)
            case act.Conclude():
                self._conclude(action)
            case act.Define():
                treatment = self._plan.treatments[action.treatment]
                self._lane(action.number, "define", treatment=treatment.to_wire())
            case act.Acknowledge():
                self._acknowledge(action.number, self._epoch(action.number), [action.sequence])
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
        )

    def _issue(self, action: act.Issue) -> None:
        tickets = action.tickets
        rows = np.zeros(len(tickets), ORDER_ROW)
        rows["ticket"] = np.arange(tickets.start, tickets.stop) if isinstance(tickets, range) else tickets
        rows["treatment"] = action.treatment
        rows["trial"] = action.trial
        rows["seed"] = self._seeds.integers(0, 1 << 63, len(rows), np.uint64)
        self._lane(action.number, "jobs", rows=rows.tobytes())

    def _take(self, action: act.Journal) -> None:
        assert isinstance(action.batch, Batch)
        host = self._hosts[action.number]
        batch = action.batch.settle(action.number, host.offset_ns, action.keep)
        assert self._journal is not None
        if len(batch.jobs):
            self._journal.rows(batch.jobs, batch.operations)
            self._tally.jobs(batch.jobs)
            self._view.jobs(batch.jobs)
        if len(batch.operations):
            self._tally.operations(batch.operations)
        self._journal.records(batch.metrics, batch.errors, batch.outputs)
        if batch.errors:
            self._tally.errors(batch.errors)
        self._journal.promise(action.number, self._epoch(action.number), action.sequence)

    def _acknowledge(self, number: int, epoch: int, sequences: list[int]) -> None:
        if self._epoch(number) == epoch:
            self._lane(number, "ack", sequences=sequences)

    def _conclude(self, action: act.Conclude) -> None:
        """Write rows for jobs that no worker will report."""
        assert self._journal is not None
        now = monotonic_ns()
        rows = np.zeros(len(action.tickets), JOB_ROW)
        rows["ticket"], rows["treatment"], rows["trial"] = action.tickets, action.treatment, action.trial
        rows["worker"], rows["outcome"], rows["start_ns"], rows["end_ns"] = action.number, action.outcome, now, now
        kind = action.outcome.name.lower()
        errors = [
            ErrorRecord(ticket, action.treatment, action.trial, "worker", kind, action.reason)
            for ticket in action.tickets
        ]
        self._journal.rows(rows, np.zeros(0, OPERATION_ROW))
        self._journal.records([], errors, [])
        self._tally.jobs(rows)
        self._tally.errors(errors)
        self._view.jobs(rows)

    # -- notes --------------------------------------------------------------------------------------------------

    def _note(self, note: act.Note) -> None:
        now = monotonic_ns()
        fields = note.fields
        match note.kind:
            case "worker-joined" | "worker-back":
                self._joined(note, fields)
                fields = {name: value for name, value in fields.items() if name != "info"}
            case "run-begin":
                self._begin()
            case "trial-begin":
                self._tally.trial_began(fields["trial"], now)
            case "trial-end" | "trial-skipped":
                outcome = Outcome[fields["not_started_outcome"].upper()]
                self._tally.trial_ended(fields["trial"], now, not_started=fields["not_started"], outcome=outcome)
            case "worker-lost":
                worker = self._hosts[fields["worker"]].worker_id
                text = f"worker {worker} was lost ({fields['reason']}) with {fields['held']} jobs"
                self._warn(text)
                self._view.say(text)
            case "worker-given-up":
                worker = self._hosts[fields["worker"]].worker_id
                self._view.say(f"worker {worker} did not come back; its jobs are lost")
            case "results-refused" | "stale-results":
                self._warn(f"{fields['jobs']} results came too late or twice and were refused")
        if self._journal is None:
            self._early.append((note.kind, now, fields))
        else:
            self._journal.note(note.kind, now, fields)

    def _joined(self, note: act.Note, fields: Mapping[str, Any]) -> None:
        member = self._coordinator.roster[fields["worker"]]
        info = fields["info"]
        name = str(info.get("host", "unknown"))
        self._hosts[member.number] = Host(
            worker_id=member.worker_id,
            host=name,
            environment=member.environment,
            slots=member.slots,
            # Within one boot of one machine CLOCK_MONOTONIC is one clock: nothing to estimate.
            same_clock=bool(self._boot_id) and info.get("boot_id") == self._boot_id,
        )
        self._infos[member.number] = info
        slots = "1 slot" if member.slots == 1 else f"{member.slots} slots"
        text = f"worker {member.worker_id} on {name} ({member.environment}, {slots})"
        self._view.say(text + (" has joined" if note.kind == "worker-joined" else " is back"))

    def _begin(self) -> None:
        """Open the stats file: from here on there is something to keep."""
        self._tally = self._make_tally(self._coordinator.planned_jobs())
        try:
            self._journal = self._open_journal(
                environments=[host.environment for host in self._hosts.values()],
                acknowledge=self._acknowledge,
                failed=self._journal_failed,
            )
        except (OSError, WeighbridgeError) as error:
            self._call_off(str(error))
            return
        for number, info in self._infos.items():
            host = self._hosts[number]
            engines = info.get("engines")
            used = {treatment.engine for treatment in self._plan.treatments}
            versions = {
                name: str(status.get("version", ""))
                for name, status in (engines.items() if isinstance(engines, dict) else ())
                if name in used and isinstance(status, dict)
            }
            self._journal.host(
                {
                    "worker": number,
                    "worker_id": host.worker_id,
                    "host": host.host,
                    "environment": host.environment,
                    "slots": host.slots,
                    "engines": versions,
                    "fingerprint": info.get("fingerprint", {}),
                    "labels": info.get("labels", {}),
                    "clock": {"offset_ns": host.offset_ns, "bound_ns": host.bound_ns},
                }
            )
        for kind, at_ns, fields in self._early:
            self._journal.note(kind, at_ns, fields)
        self._early = []

    def _call_off(self, reason: str) -> None:
        """End a run that cannot begin, and let its workers go."""
        self._result.reasons.append(reason)
        for member in self._coordinator.roster:
            self._to_member(member.number, "stop", exit=False)
        self._over.set()

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)

    def _journal_failed(self, error: WeighbridgeError) -> None:
        """Call the run off: the stats file cannot be written any more, and nothing further would be kept."""
        self._result.unwritable = True
        self._result.reasons.append(str(error))
        self._view.say(f"{error}; the run is called off")
        self.terminate()
