"""One run from the first hello to the last byte of its stats file.

The session turns signals and time into the coordinator's events, as the message handler does with messages, and has
its actions carried out: the dispatcher sends, the recorder keeps and shows. It decides nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Final, Protocol

import gevent
from gevent.event import Event
from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.errors import DiskFullError, InfrastructureError, StatsFileError, WeighbridgeError
from bench_common.eventloop import LoopMeter, stall_s
from bench_common.stats.block_types import StoredCounts, StoredFooter
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.machine import Phase
from bench_master.formatting import format_bytes, format_span, plural
from bench_master.progress.view import Snapshot
from bench_master.run.journal import DiskPause, Journal
from bench_master.run.live_stats import LiveStats
from bench_master.run.message_handler import RunParts
from bench_master.run.resume_state import ResumeState
from bench_master.run.started_workers import NO_WORKERS, StartedWorkers
from bench_master.verdicts.stopping import Look

log = logging.getLogger(__name__)

TICK_INTERVAL_S: Final = 0.25
REFRESH_INTERVAL_S: Final = 0.25
MAX_NAMED: Final = 3
"""How many of the workers that are waited for are named on the screen."""


class SessionOptions(Struct, frozen=True):
    """The options of a session."""

    sampling_interval_s: float
    """How often the master's own loop is sampled."""
    resume_state: ResumeState | None = None
    """The state of the run to resume; None for a new run."""
    started: StartedWorkers = NO_WORKERS
    """The workers that a feature started for the run."""
    by_hand: int = 0
    """How many of the expected workers somebody else starts."""
    disk_wait_s: float = 0.0
    """How long the run waits for room for its stats file."""


class RunResult(Struct):
    """How a run ended."""

    status: act.RunStatus
    reasons: list[str] = field(default_factory=list)
    """Why it is not complete."""
    unusable: bool = False
    """Whether it could not begin for want of an engine, an image or the like: no fault of its plan."""
    stats_unwritable: bool = False
    """Whether it was cancelled because the stats file could not be written."""
    stats: Path | None = None
    """The stats file; None if the run did not begin."""
    profiles: list[Path] = field(default_factory=list)


class OpenJournal(Protocol):
    """Opens the stats file before the first job is assigned, with the plan in it, on disk.

    `environments` are those of the workers, `trial_jobs` the jobs of a trial of each treatment, None by time.
    """

    def __call__(
        self,
        environments: Sequence[str],
        trial_jobs: Sequence[int | None],
        *,
        gather: Callable[[], None],
        acknowledge: Callable[[int, int, list[int]], None],
        failed: Callable[[StatsFileError], None],
        pause: DiskPause,
    ) -> Journal:
        """Return the journal; raise `OSError` or `WeighbridgeError`."""


class Session:
    """Drives one run to its end; `run` returns how it ended.

    `make_live_stats(planned)` makes the live statistics from the first job on. `judge(stats file, rounds)`
    judges the comparisons of a run that goes on until they are settled; it runs in a thread, and returns why if it
    cannot. `before_end(status, reasons)` is called when the run is over and events can still be recorded.
    """

    def __init__(
        self,
        parts: RunParts,
        options: SessionOptions,
        *,
        make_live_stats: Callable[[int | None], LiveStats],
        open_journal: OpenJournal,
        judge: Callable[[Path, int], Look | str] | None = None,
        before_end: Callable[[act.RunStatus, Sequence[str]], None] | None = None,
    ) -> None:
        self._options = options
        self._judge = judge
        self._before_end = before_end
        self._make_live_stats = make_live_stats
        self._open_journal = open_journal
        self._parts = parts
        self._coordinator = parts.coordinator
        self._dispatcher = parts.dispatcher
        self._recorder = parts.recorder
        self._view = parts.recorder.view
        self._engines = frozenset(one.engine for one in parts.plan.treatments if one.job.uses_engine)
        self._over = Event()
        self._broken = False
        self._paused_at = 0.0
        self._lost: set[str] = set()
        """The workers that were lost and did not come back."""
        self._result = RunResult("incomplete")
        self._meter = LoopMeter()

    # -- life ---------------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        """Wait for workers, run the plan, and return how it ended. The sockets must be open by now."""
        began_ns = monotonic_ns()
        self._meter.start()
        with self._view:
            self._view.begin(self.snapshot())
            refresher = gevent.spawn(self._refresh_loop) if self._view.shows_progress else None
            try:
                self._await_end()
                self._parts.local_workers.end()
            finally:
                if refresher is not None:
                    refresher.kill()
            if self._before_end is not None:
                self._before_end(self._result.status, self._result.reasons)
            self._finish(began_ns)
            self._view.end(self.snapshot())
        return self._result

    def _await_end(self) -> None:
        """Pass the time to the coordinator until the run is over."""
        try:
            sampled_at = woken_at = monotonic()
            while not self._over.wait(TICK_INTERVAL_S):
                stalled_s = stall_s(woken_at, TICK_INTERVAL_S)
                woken_at = monotonic()
                if stalled_s:
                    self.handle(ev.MasterStalled(stalled_s))
                self._tick()
                if woken_at - sampled_at >= self._options.sampling_interval_s:
                    sampled_at = woken_at
                    self._sample_loop()
        finally:
            self._sample_loop()
            self._meter.stop()

    def interrupt(self) -> None:
        """Handle Ctrl-C: finish the running jobs; the second time abort them."""
        if self._over.is_set():
            self._stop_waiting_for_room()
            return
        self.handle(ev.Interrupt())
        coordinator = self._coordinator
        if self._result.stats_unwritable:
            return  # that was told with its reason, and nobody interrupted the run
        if not self._over.is_set() and coordinator.interrupts == 1:
            running = plural(coordinator.scheduler.in_flight, "running job")
            self._view.notify(f"interrupted: finishing {running}; Ctrl-C again aborts")
        elif coordinator.interrupts == 2:  # noqa: PLR2004  the second Ctrl-C
            self._view.notify("interrupted again: aborting and cleaning up running jobs")

    def terminate(self) -> None:
        """Handle SIGTERM: abort the running jobs, clean up, save."""
        while self._coordinator.interrupts < 2 and not self._over.is_set():  # noqa: PLR2004  as by two Ctrl-C
            self.interrupt()
        if self._over.is_set():
            self._stop_waiting_for_room()

    def _stop_waiting_for_room(self) -> None:
        journal = self._recorder.journal
        if journal is not None and journal.waits_for_room:
            journal.stop_waiting()

    def _tick(self) -> None:
        for death in self._parts.local_workers.poll_deaths():
            log_tail = f"; the end of its log: {death.log_tail}" if death.log_tail else ""
            self._view.notify(f"worker {death.worker_id}: {death.reason}{log_tail}")
            self.handle(ev.WorkerDied(death.worker_id, death.reason))
            if death.restarted:
                continue
            text = f"worker {death.worker_id} died too often and was not restarted: {death.reason}{log_tail}"
            self._recorder.warn_of_loss(text)
            if self._coordinator.phase is Phase.WAITING_FOR_WORKERS:
                self.refuse(
                    [f"{text}\nto do: start the run again with -v, which makes its log longer"], unusable=True
                )
        if self._coordinator.phase is not Phase.WAITING_FOR_WORKERS:
            self._note_starved_workers()
            self.handle(ev.Tick())
        # No worker counts as missing while another still examines its host, or a local one is on its way.
        elif not (self._parts.preflight.pending or self._await_local_workers()):
            joined, examined = self._joined(), self._parts.preflight.examined
            self.handle(ev.Tick())
            if self._over.is_set():
                local = self._parts.local_workers.explain_starts(joined, examined)
                self._result.reasons += [*local, *self._explain_others(joined)]

    def _explain_others(self, joined: set[str]) -> list[str]:
        """Return what is known of workers that this process did not start and that did not join, and what to do."""
        options = self._options
        absent = options.started.names - joined
        lines = self._explain_ends(absent) + [
            f"worker {name} was started on its host and has not connected to this master; to do: "
            f"{options.started.advice}"
            for name in sorted(absent)
        ]
        others = joined - options.started.names - set(self._parts.local_workers.ids)
        missing = options.by_hand - len(others)
        if missing > 0:
            lines.append(
                f"{plural(missing, 'worker')} to be started by hand did not connect; to do: start bench-worker as "
                "shown above, or run on this machine with --workers 1"
            )
        if missing > 0 and self._parts.sockets.refused:
            refused = plural(self._parts.sockets.refused, "connection")
            lines.append(
                f"{refused} came with a key that this master does not know; to do: make one with "
                "bench-master keygen --worker NAME, and start the worker with that file"
            )
        return lines

    def _explain_ends(self, names: Collection[str]) -> list[str]:
        """Return what launchers know of the ends of their workers: cancelled, or cut off by a time limit, say."""
        lines = []
        explain = self._options.started.explain_end
        for name in sorted(self._options.started.names.intersection(names)):
            try:
                known = explain(name) if explain is not None else None
            except InfrastructureError as error:
                known = str(error)
            if known is not None:
                lines.append(f"worker {name}: {known}")
        return lines

    def _joined(self) -> set[str]:
        return {member.worker_id for member in self._coordinator.roster if member.present}

    def _await_local_workers(self) -> bool:
        """Return whether a local worker is on its way; show what it is at, if that takes long."""
        joined = self._joined()
        for text in self._parts.local_workers.due_notices(joined):
            self._view.notify(text, passing=True)
        return self._parts.local_workers.are_starting(joined)

    def _note_starved_workers(self) -> None:
        """Tell the coordinator of local workers that are silent because they get no CPU."""
        now = monotonic()
        for member in self._coordinator.roster:
            silent = member.present and now - member.last_heard_at > self._coordinator.heartbeat_timeout_s / 2
            if silent and self._parts.local_workers.is_active(member.worker_id):
                self.handle(ev.WorkerStarved(member.worker_id))

    def _refresh_loop(self) -> None:
        while True:
            gevent.sleep(REFRESH_INTERVAL_S)
            self._view.refresh(self.snapshot())

    def _sample_loop(self) -> None:
        reading = self._meter.read()
        columns = {
            "time_ns": [reading.time_ns],
            "busy_share": [reading.busy_share],
            "lag_max_ns": [reading.lag_max_ns],
        }
        self._recorder.samples(-1, "loop", columns, LoopMeter.UNITS)

    def snapshot(self) -> Snapshot:
        """Return the run at this instant."""
        self._recorder.settle()
        live_stats = self._recorder.live_stats
        for number, host in self._parts.hosts:
            share = self._coordinator.scheduler.shares.get(number)
            running = len(share.outstanding) if share is not None else 0
            live_stats.host(host.row(self._coordinator.roster[number].presence.value, running))
        return replace(live_stats.snapshot(monotonic_ns()), doing=self._doing())

    def _doing(self) -> str:
        """Return what goes on while no job is assigned; for workers here that have not joined, what each is at."""
        journal = self._recorder.journal
        if journal is not None and journal.waits_for_room:
            return f"paused: no room on the disk of {journal.path}"
        if self._over.is_set():
            alive = self._parts.local_workers.alive
            return f"waiting for {', '.join(alive[:MAX_NAMED])} to end" if alive else "writing the stats file"
        text = self._coordinator.activity(monotonic())
        if self._coordinator.phase is not Phase.WAITING_FOR_WORKERS:
            return text
        joined = self._joined()
        at = self._parts.local_workers.stages(joined, self._parts.preflight.examined)
        at += [f"{name} has not connected" for name in sorted(self._options.started.names - joined)]
        more = f", and {len(at) - MAX_NAMED} more" if len(at) > MAX_NAMED else ""
        return "; ".join([text, *at[:MAX_NAMED]]) + more

    def _finish(self, began_ns: int) -> None:
        recorder, journal = self._recorder, self._recorder.journal
        if journal is None:
            return
        if recorder.discarded:
            recorder.warn(f"{plural(recorder.discarded, 'late or duplicate result')} discarded")
        resume_state = self._options.resume_state
        for (lane, peer), count in self._parts.sockets.cut_off.items():
            where = f"{peer} on the {lane} port ({plural(count, 'time')})"
            recorder.warn(f"cut off {where}: it sent more than the master could read", first=True)
        dropped = self._parts.sockets.dropped.total()
        if dropped:
            recorder.warn(f"{plural(dropped, 'message')} broke the protocol and were dropped", first=True)
        for line in self._explain_ends(self._lost):
            recorder.warn_of_loss(line)
            self._view.notify(line)
        recorder.end(self._engines)
        if recorder.lost:
            self._result.status = "incomplete" if self._result.status == "complete" else self._result.status
            self._result.reasons.append(f"{plural(recorder.lost, 'result')} could not be recorded")
        snapshot = recorder.live_stats.snapshot(monotonic_ns())
        counts = {name: getattr(snapshot, name) for name in ("done", "failed", "left_out", "lost", "aborted")}
        unlisted = [f"{recorder.unlisted_warnings} more warnings"] if recorder.unlisted_warnings else []
        footer = StoredFooter(
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            status=self._result.status,
            duration_s=(monotonic_ns() - began_ns + (resume_state.previous_parts_ns if resume_state else 0)) / 1e9,
            counts=StoredCounts(planned=recorder.live_stats.planned, **counts),
            not_started=self._coordinator.scheduler.not_started,
            warnings=[*recorder.warnings, *unlisted],
            remarks=list(recorder.remarks),
            reasons=self._result.reasons,
            dropped_messages=dropped,
            refused_results=recorder.discarded,
            resumes=resume_state.parts if resume_state else 0,
        )
        if self._coordinator.interrupts:
            journal.stop_waiting()
        try:
            journal.close(footer)
        except StatsFileError as error:
            self._journal_failed(error)
        self._result.stats = journal.path

    # -- events and actions -------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether the run is over."""
        return self._over.is_set()

    def handle(self, event: ev.Event) -> None:
        """Pass an event to the coordinator, and carry out its actions."""
        if self._broken:
            return
        for action in self._coordinator.handle(event, monotonic()):
            if self._over.is_set() and self._recorder.journal is None:
                break  # there is nowhere to record the outcome
            try:
                self._do(action)
            except Exception as error:
                # The coordinator counts it as done, so its state is wrong from here on: it gets no further event.
                self._broken = True
                if not isinstance(error, WeighbridgeError):
                    log.exception(
                        "the run is cancelled: %s failed\n%s", type(action).__name__, self._coordinator.story()
                    )
                    error = InfrastructureError(f"internal error: {type(error).__name__}: {error}")
                self._cancel_run(str(error))
                return

    def _do(self, action: act.Action) -> None:
        match action:
            case act.AssignJobs():
                self._dispatcher.deliver(action)
            case act.RecordResults():
                self._recorder.take(action, self._epoch(action.number))
            case act.LogEvent():
                self._note(action)
            case act.FailJobs():
                self._recorder.conclude(action)
            case act.AcknowledgeResults():
                self._recorder.acknowledge_when_written(action.number, self._epoch(action.number), action.sequence)
            case act.TakeLook():
                self._take_look(action)
            case act.RunFinished():
                # A run that ends for want of room for its results was not interrupted by anybody.
                self._result.status = "incomplete" if self._result.stats_unwritable else action.status
                self._result.reasons += action.reasons
                self._over.set()
            case _:
                self._dispatcher.deliver(action)

    def _take_look(self, action: act.TakeLook) -> None:
        """Have the comparisons judged by what the stats file has so far, and tell the coordinator."""
        gevent.spawn(self._look, action)

    def _look(self, action: act.TakeLook) -> None:
        recorder = self._recorder
        recorder.settle()
        if recorder.journal is None or self._judge is None:
            self.handle(ev.LookTaken(action.rounds))
            return
        recorder.journal.flush()
        judge, path = self._judge, recorder.journal.path
        # Between trials nothing is measured that reading the file in a thread could disturb.
        found = gevent.get_hub().threadpool.apply(judge, (path, action.rounds))
        if isinstance(found, str):
            recorder.warn(f"the look after round {action.rounds} failed, so the run goes on: {found}")
            self.handle(ev.LookTaken(action.rounds))
            return
        recorder.note(act.LogEvent("look", found.fields()))
        self.handle(ev.LookTaken(action.rounds, found.settled))

    def _epoch(self, number: int) -> int:
        return self._coordinator.roster[number].epoch

    def _note(self, note: act.LogEvent) -> None:
        if note.kind in ("worker-joined", "worker-reconnected"):
            member = self._coordinator.roster[note.fields["worker"]]
            self._parts.hosts.join(member, note.fields["info"])
            self._lost.discard(member.worker_id)
        elif note.kind == "run-begin":
            self._begin_journal()
        elif note.kind == "worker-lost":
            self._lost.add(note.fields["worker_id"])
            self._dispatcher.send_on_lanes(
                self._parts.services.on_worker_lost(note.fields["worker"], note.fields["reason"])
            )
            if note.fields["silent"]:
                # It may hang for good. Killed, it is restarted; its load process cleans up and ends.
                self._parts.local_workers.kill(note.fields["worker_id"])
        elif note.kind == "worker-given-up":
            self._dispatcher.send_on_lanes(self._parts.services.on_worker_given_up(note.fields["worker"]))
        if note.kind == "worker-reconnected":
            self._dispatcher.send_on_lanes(self._parts.services.on_worker_back(note.fields["worker"]))
        self._recorder.note(note)

    def refuse(self, reasons: Sequence[str], *, unusable: bool) -> None:
        """End a run that has not begun because a worker cannot take part; `unusable`: see `RunResult`."""
        self._result.unusable = unusable
        self.handle(ev.RunRefused(list(reasons)))

    def _begin_journal(self) -> None:
        """Open the stats file: from here on results are recorded."""
        try:
            journal = self._open_journal(
                self._parts.hosts.environments,
                self._coordinator.scheduler.trial_jobs(),
                gather=self._recorder.settle,
                acknowledge=self._dispatcher.acknowledge,
                failed=self._journal_failed,
                pause=self,
            )
        except (OSError, WeighbridgeError) as error:
            self._cancel_run(str(error))
            return
        self._recorder.begin(
            journal, self._make_live_stats(self._coordinator.scheduler.planned_jobs()), self._engines
        )
        self._meter.read()  # the time before the first job is not part of the run

    def _cancel_run(self, reason: str) -> None:
        """End a run that cannot begin or go on, and release its workers."""
        self._result.status = "incomplete"
        self._result.reasons.append(reason)
        self._dispatcher.release_all()
        self._over.set()

    def began(self, error: DiskFullError) -> None:
        """Assign no more jobs while the stats file has no room, and tell the user what to do."""
        journal = self._recorder.journal
        assert journal is not None
        free = "" if error.free_bytes is None else f" ({format_bytes(error.free_bytes)} free)"
        limit = format_span(self._options.disk_wait_s)
        self._view.notify(
            f"paused: no room for {journal.path}: {error.reason}{free}. Running jobs end, and no other begins; "
            f"to do: free some space there, and the run goes on by itself. After {limit} (--disk-wait) it is "
            "cancelled; Ctrl-C ends it now"
        )
        self._paused_at = monotonic()
        self.handle(ev.DiskFull())

    def ended(self, dropped_samples: int) -> None:
        """Go on: there is room again."""
        after = format_span(monotonic() - self._paused_at)
        self._view.notify(f"there is room for the stats file again, after {after}: the run goes on")
        self.handle(ev.DiskFree(dropped_samples))

    def _journal_failed(self, error: WeighbridgeError) -> None:
        """Cancel the run: the stats file cannot be written, so no further result would be recorded."""
        self._result.stats_unwritable = True
        self._result.reasons.append(str(error))
        if self._over.is_set():
            # The last bytes are missing, including the footer: every reader sees an unfinished run.
            self._result.status = "incomplete"
            return
        self._view.notify(f"{error}; the run is cancelled")
        self.terminate()
