"""The decisions: when a run begins, which workers take part, what a loss means, when it is over.

`Coordinator.handle(event, now)` is the only way in and returns what is to be done; `now` is seconds of any monotonic
clock. One trial runs at a time. A worker that falls silent may reconnect: then its jobs are retried there; if it does
not, they are lost, and no other worker gets its part. Every wait has a deadline, checked on `Tick`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from bench_common.messages import PackingReport, PopulationReport, SpeedMeasured
from bench_common.records import Outcome
from bench_common.requirements import unplaced_services
from bench_common.treatment import Treatment
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.policy import Policy
from bench_master.coordinator.roster import Member, Presence, Roster
from bench_master.coordinator.rounds import Rounds
from bench_master.coordinator.trial_scheduler import TrialScheduler
from bench_master.plan import Trial

STORY_EVENTS: Final = 64
"""How many events the story of an error goes back."""


class Phase(Enum):
    """The phase of a run."""

    WAITING_FOR_WORKERS = "waiting for workers"
    RUNNING = "running"
    CLEANUP = "cleanup"
    FINISHED = "finished"


class _SpeedProbe(Struct):
    """The measurement of the hosts' speed that a trial waits for."""

    trial: int
    asked: dict[int, int]
    """The epoch of each member that has not answered, by number."""
    deadline: float
    """When the trial begins without the answers."""


class Coordinator:
    """The state of one run. `job_limit_s(treatment)` bounds how long one job can take, in seconds.

    `seed` fixes when jobs arrive in the trials of an open system. For a resumed run `trials` are those that are left,
    `first_job` is the first unused job id, and `numbers` are the roster numbers of earlier workers, by worker id.
    """

    def __init__(
        self,
        treatments: Sequence[Treatment],
        trials: Sequence[Trial],
        policy: Policy,
        *,
        job_limit_s: Callable[[Treatment], float],
        first_epoch: int = 0,
        seed: int = 0,
        first_job: int = 0,
        numbers: Mapping[str, int] | None = None,
        now: float = 0.0,
    ) -> None:
        self._policy = policy
        self._treatments = treatments
        self._job_limit_s = [job_limit_s(treatment) for treatment in treatments]
        self.roster = Roster(first_epoch, numbers or {})
        self.scheduler = TrialScheduler(treatments, trials, self.roster, policy, seed=seed, first_job=first_job)
        self.phase = Phase.WAITING_FOR_WORKERS
        self.interrupts = 0
        self._is_in_vain = False
        """Whether what its trials need is not there, so that no more of them begin."""
        self._join_deadline = now + policy.join_timeout_s
        self._rounds = None if policy.stopping is None else Rounds(policy.stopping)
        self._next_trial_at = now
        self._abort_deadline: float | None = None
        self._cleanup_deadline = 0.0
        self._reopening: dict[int, set[int]] = {}
        """The stores that members which came back for the clean-up have not opened yet: treatments by number."""
        self._probe: _SpeedProbe | None = None
        self._reasons: list[str] = []
        self._decisions: deque[tuple[float, object, list[object]]] = deque(maxlen=STORY_EVENTS)

    # -- the way in ---------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now: float) -> list[act.Action]:
        """Take an event in at time `now` (s); return what is to be done, in order."""
        actions = self._decide(event, now)
        if actions:
            self._decisions.append((now, *_outline(event, actions)))
        return actions

    @property
    def heartbeat_timeout_s(self) -> float:
        """How long a worker may be silent before it is missing."""
        return self._policy.heartbeat_timeout_s

    def activity(self, now: float) -> str:
        """Return in words what the run is at between its trials; empty while one runs."""
        if self.phase is Phase.WAITING_FOR_WORKERS:
            present = sum(member.present for member in self.roster)
            return f"waiting for workers: {present} of {self._policy.expected} joined"
        if self.phase is Phase.CLEANUP:
            late = ", ".join(member.worker_id for member in self.roster if member.present and not member.cleaned_up)
            deleted = self.scheduler.populations.deleted
            told = f"; {deleted:,} objects deleted from stores" if deleted else ""
            return f"removing what the run made on {late}{told}" if late else "cleaning up"
        if self.phase is Phase.FINISHED:
            return "the run is over"
        if self.scheduler.trial is not None:
            return ""
        if self.scheduler.populations.filling:
            return self.scheduler.populations.filling
        if self._rounds is not None and self._rounds.awaits_look(now):
            return "judging the comparisons so far"
        if self._probe is not None:
            return "measuring the speed of the hosts"
        if now < self._next_trial_at:
            return f"pausing for {self._policy.settle_s:g} s after a trial (settle)"
        return "between two trials"

    @property
    def _ends_early(self) -> bool:
        """Whether no more trials begin."""
        return bool(self.interrupts) or self._is_in_vain

    def story(self) -> str:
        """Return the last events that led to actions, the oldest first, for an error report."""
        return "\n".join(f"{now:.3f} {event} -> {actions}" for now, event, actions in self._decisions)

    def _decide(self, event: ev.Event, now: float) -> list[act.Action]:  # noqa: C901, PLR0912  a table of the events
        if self.phase is Phase.FINISHED:
            return self._on_event_after_end(event)
        match event:
            case ev.ResultsReceived():
                return self._on_results(event, now)
            case ev.Heartbeat():
                return self._on_heartbeat(event, now)
            case ev.Tick():
                return self._on_tick(now)
            case PackingReport():
                return self._on_packing_report(event, now)
            case PopulationReport():
                return self._on_population_report(event, now)
            case SpeedMeasured():
                return self._on_speed_measured(event, now)
            case ev.Hello():
                return self._on_hello(event, now)
            case ev.WorkerDied():
                return self._on_worker_died(event, now)
            case ev.WorkerStarved():
                return self._on_worker_starved(event, now)
            case ev.CleanupDone():
                return self._on_cleanup_done(event, now)
            case ev.RunRefused():
                self._reasons += event.reasons
                return self._end("refused")
            case ev.Interrupt():
                return self._on_interrupt(now)
            case ev.MasterStalled():
                return self._on_master_stalled(event.seconds, now)
            case ev.DiskFull():
                self.scheduler.hold(now)
                return []
            case ev.DiskFree():
                return self._on_disk_free(event, now)
            case ev.LookTaken():
                return self._on_look_taken(event, now)

    def validate(self) -> None:
        """Assert what must hold between any two events; an error includes the story that led to it."""
        try:
            self.scheduler.validate()
            if self.phase in (Phase.CLEANUP, Phase.FINISHED):
                assert all(share.idle for share in self.scheduler.shares.values()), "jobs are held after the end"
        except AssertionError as error:
            raise AssertionError(f"{error}; the last decisions:\n{self.story()}") from error

    # -- joining and leaving ------------------------------------------------------------------------------------

    def _on_hello(self, event: ev.Hello, now: float) -> list[act.Action]:
        known = self.roster.find(event.worker_id)
        if known is None:
            if self.phase is not Phase.WAITING_FOR_WORKERS:
                return [act.DismissWorker(event.peer, "the run has begun without this worker")]
            member = self.roster.add(event.worker_id, event.environment, event.slots, event.identity, event.peer, now)
            member.clock_known = event.clock_known
            return [*self._admit(member, "worker-joined", event), *self._begin_when_ready(now)]
        if refusal := _refusal(known, event):
            return [act.DismissWorker(event.peer, refusal, final=True)]
        actions: list[act.Action] = []
        if known.present and known.peer != event.peer:
            return [act.DismissWorker(event.peer, f"worker id {event.worker_id!r} is in use")]
        if known.present and not known.heard_in_epoch:
            known.last_heard_at = now
            return [act.WelcomeWorker(event.peer, known.worker_id, known.number, known.epoch)]
        if known.present:
            # It knew that it was admitted, and sends another hello: it lost its connection and dropped its jobs.
            actions += self._mark_missing(known, "it reconnected and had dropped its jobs", now)
        if self.phase is Phase.CLEANUP and known.cleaned_up:
            return [*actions, act.DismissWorker(event.peer, "the run is ending")]
        return [*actions, *self._readmit(known, event, now)]

    def _readmit(self, known: Member, event: ev.Hello, now: float) -> list[act.Action]:
        """Let a member go on that was missing."""
        self.roster.readmit(known, event.peer, event.slots, now)
        known.clock_known = event.clock_known
        actions = self._admit(known, "worker-reconnected", event)
        if self.phase is Phase.CLEANUP:
            return [*actions, *self._resume_cleanup(known, now)]
        share = self.scheduler.shares.get(known.number)
        if share is not None:
            share.last_progress_at = now
            actions += self.scheduler.assign_jobs(share, now)
        elif self.phase is Phase.RUNNING:
            actions += self._advance(now)  # the next trial may have waited for it
        return [*actions, *self._begin_when_ready(now)]

    def _admit(self, member: Member, kind: str, event: ev.Hello) -> list[act.Action]:
        fields = {"worker": member.number, "worker_id": member.worker_id, "epoch": member.epoch, "info": event.info}
        return [
            act.WelcomeWorker(member.peer, member.worker_id, member.number, member.epoch),
            act.LogEvent(kind, fields),
        ]

    def _on_heartbeat(self, event: ev.Heartbeat, now: float) -> list[act.Action]:
        member = self.roster.by_epoch(event.epoch)
        if member is None or (member.peer != event.peer and not event.proven):
            return [act.DismissWorker(event.peer, "this epoch has ended")]
        actions: list[act.Action] = []
        if member.peer != event.peer:
            # It opened its connection again: what was on its way to the old address is lost.
            member.peer = event.peer
            if self.phase is Phase.CLEANUP and not member.cleaned_up:
                actions.append(act.StartCleanup(member.number))
        member.last_heard_at = now
        member.heard_in_epoch = True
        member.clock_known |= event.clock_known
        return actions + self._begin_when_ready(now)

    def _on_worker_died(self, event: ev.WorkerDied, now: float) -> list[act.Action]:
        member = self.roster.find(event.worker_id)
        if member is None or not member.present or event.epoch not in (None, member.epoch):
            return []
        if event.barred:
            member.barred = event.reason
            if self.phase is Phase.CLEANUP and not member.cleaned_up:
                member.missing_reason = event.reason
                self._note_cut_off(member)
        return [*self._mark_missing(member, event.reason, now), *self._advance(now)]

    def _on_worker_starved(self, event: ev.WorkerStarved, now: float) -> list[act.Action]:
        member = self.roster.find(event.worker_id)
        if member is None or not member.present:
            return []
        timeout_s = self._policy.heartbeat_timeout_s
        silent = now - member.last_heard_at
        told = member.starved_at - member.last_heard_at > timeout_s
        member.starved_at = now
        if silent <= timeout_s or told:
            return []
        fields = {"worker": member.number, "worker_id": member.worker_id, "seconds": silent}
        return [act.LogEvent("worker-starved", fields)]

    def _mark_missing(self, member: Member, reason: str, now: float, *, silent: bool = False) -> list[act.Action]:
        self.roster.mark_missing(member, now, reason)
        self._reopening.pop(member.number, None)
        share = self.scheduler.shares.get(member.number)
        held = len(share.outstanding) if share is not None else 0
        fields: dict[str, Any] = {
            "worker": member.number,
            "worker_id": member.worker_id,
            "reason": reason,
            "held": held,
        }
        if share is not None and (spoilt := self.scheduler.spoil_trial(share, now)) is not None:
            fields["trial"] = spoilt
        actions: list[act.Action] = [act.LogEvent("worker-lost", {**fields, "silent": silent})]
        if share is not None:
            actions += self.scheduler.requeue_lost(share, reason)
        return actions

    def _give_up_worker(self, member: Member) -> list[act.Action]:
        member.presence = Presence.LOST
        if self.phase is Phase.CLEANUP and not member.cleaned_up:
            self._note_cut_off(member)
        actions: list[act.Action] = [act.LogEvent("worker-given-up", {"worker": member.number})]
        share = self.scheduler.shares.get(member.number)
        if share is not None:
            actions += self.scheduler.fail_retries(share, Outcome.LOST, "its worker was lost and did not come back")
        return actions

    # -- results ------------------------------------------------------------------------------------------------

    def _on_results(self, event: ev.ResultsReceived, now: float) -> list[act.Action]:
        member = self.roster.by_epoch(event.epoch)
        if member is None:
            # Results that are not acknowledged are sent again, and counted once.
            fields = {"epoch": event.epoch, "jobs": len(event.tickets)}
            return (
                [act.LogEvent("late-results", fields)]
                if self.roster.note_stale_batch(event.epoch, event.sequence)
                else []
            )
        member.last_heard_at = now
        if not member.sequences.admit(event.sequence):
            return [act.AcknowledgeResults(member.number, event.sequence)]
        share = self.scheduler.shares.get(member.number)
        keep: tuple[int, ...] | None = None
        if event.tickets:
            keep = self.scheduler.accept_results(share, event, now) if share is not None else ()
        answers: list[act.Action] = []
        if keep is not None:
            refused = len(event.tickets) - len(keep)
            answers.append(act.LogEvent("results-refused", {"worker": member.number, "jobs": refused}))
        # The next jobs go out before these results are written: the worker must not wait for our disk.
        if share is not None:
            answers += self.scheduler.assign_jobs(share, now)
        answers.append(act.RecordResults(member.number, event.sequence, event.batch, keep))
        if share is None or share.idle:
            answers += self._advance(now)
        return answers

    def _on_packing_report(self, event: PackingReport, now: float) -> list[act.Action]:
        """Take back the jobs that a full host has no room for: they never began, so they are not lost."""
        member = self.roster.by_epoch(event.epoch)
        share = None if member is None else self.scheduler.shares.get(member.number)
        trial = self.scheduler.trial
        if member is None or share is None or trial is None or trial.index != event.trial:
            return []
        returned = self.scheduler.accept_returned(share, event.returned, now)
        fields = _as_fields(event) | {"worker": member.number, "returned": returned}
        actions: list[act.Action] = [act.LogEvent("packed", fields)]
        return actions + (self._advance(now) if share.idle else [])

    # -- trials -------------------------------------------------------------------------------------------------

    def _begin_when_ready(self, now: float) -> list[act.Action]:
        if self.phase is not Phase.WAITING_FOR_WORKERS or self._unmet_conditions():
            return []
        self.phase = Phase.RUNNING
        begun = self._rounds.begin(now) if self._rounds is not None else []
        roster = [{"worker": member.number, "worker_id": member.worker_id} for member in self.roster]
        return [
            act.LogEvent("run-begin", {"roster": roster, "planned": self.scheduler.planned_jobs()}),
            *begun,
            *self._begin_trial(now),
        ]

    def _unmet_conditions(self) -> list[str]:
        present = [member for member in self.roster if member.present]
        environments = {treatment.environment for treatment in self._treatments}
        return self.roster.unmet_conditions(self._policy.expected, environments) + unplaced_services(
            self._treatments, present
        )

    def _begin_trial(self, now: float) -> list[act.Action]:
        """Begin the next trial, or first fill the store and measure the hosts' speed; with none left, clean up."""
        if self._ends_early or self.scheduler.exhausted:
            return self._begin_cleanup(now)
        if self._probe is None and (filling := self.scheduler.begin_population(now)):
            return filling
        asked = {member.number: member.epoch for member in self.roster if member.present}
        if self._probe is not None or not self._policy.speed_probe or not asked:
            self._probe = None
            return self.scheduler.begin_next_trial(now)
        trial = self.scheduler.next_index
        self._probe = _SpeedProbe(trial, asked, now + self._policy.speed_probe_timeout_s)
        return [act.MeasureSpeed(number, trial) for number in asked]

    def _on_speed_measured(self, event: SpeedMeasured, now: float) -> list[act.Action]:
        member, probe = self.roster.by_epoch(event.epoch), self._probe
        if member is None or probe is None or event.trial != probe.trial:
            return []  # too late: its trial has begun
        member.last_heard_at = now
        probe.asked.pop(member.number, None)
        return self._advance(now)

    def _on_population_report(self, event: PopulationReport, now: float) -> list[act.Action]:
        """Give a member more time that fills or clears a store; go on when it was the last one."""
        member = self.roster.by_epoch(event.epoch)
        if member is None:
            return []
        member.last_heard_at = now
        share = self.scheduler.shares.get(member.number)
        if share is not None:
            share.last_progress_at = now
        if self.phase is Phase.CLEANUP:
            self._cleanup_deadline = max(self._cleanup_deadline, now + self._policy.cleanup_timeout_s)
        populations, objects = self.scheduler.populations, event.objects
        if event.phase == "clear":
            populations.clearing(event.treatment, member.number, objects)
        else:
            found = objects + event.found
            populations.progress(event.treatment, member.number, now, found, over=event.over)
        if not event.over:
            return []
        fields = _as_fields(event) | {"worker": member.number}
        actions: list[act.Action] = [act.LogEvent("objects", fields)]
        if self.phase is Phase.CLEANUP:
            return [*actions, *self._on_store_in_cleanup(event, member)]
        if event.phase == "populate" and event.failed:
            actions += self._on_population_failed(event, member)
        return [*actions, *self._advance(now)]

    def _on_store_in_cleanup(self, event: PopulationReport, member: Member) -> list[act.Action]:
        """Note what was not deleted; begin the clean-up of a member that came back and has opened its stores."""
        if event.phase == "clear" and event.failed:
            self._reasons.append(
                f"clean-up on {member.worker_id}: {event.failed:,} objects were not deleted: "
                f"{event.reason}; delete them with {self._policy.cleanup_advice}"
            )
        waiting = self._reopening.get(member.number)
        if event.phase != "populate" or waiting is None:
            return []
        waiting.discard(event.treatment)
        if waiting:
            return []
        del self._reopening[member.number]
        return [act.StartCleanup(member.number)]

    def _on_population_failed(self, event: PopulationReport, member: Member) -> list[act.Action]:
        """End a run whose objects were not all made, unless it may go on: it would measure other work."""
        treatment = self._treatments[event.treatment]
        if not treatment.job.needs_whole_population or self._is_in_vain:
            return []
        self._is_in_vain = self.scheduler.interrupted = True
        made, failed = event.objects + event.found, event.failed
        self._reasons.append(
            f"{treatment.title}: the population of {treatment.job.population:,} objects was not made: "
            f"{member.worker_id} made {made:,}, and {failed:,} failed: {event.reason}"
        )
        actions: list[act.Action] = []
        for share in self.scheduler.shares.values():
            actions += self.scheduler.fail_retries(share, Outcome.ABORTED, "the population was not made")
        return actions

    def _advance(self, now: float) -> list[act.Action]:
        """End the trial when every share is done, and begin what follows when it is time."""
        actions: list[act.Action] = []
        while True:
            if self.scheduler.is_trial_done(now):
                actions += self._end_trial(now)
            elif self.phase is Phase.RUNNING and self.scheduler.trial is None and not self._pauses(now):
                actions += self._begin_trial(now)
            else:
                return actions

    def _end_trial(self, now: float) -> list[act.Action]:
        trial, actions = self.scheduler.trial, self.scheduler.end_trial()
        self.scheduler.clear_trial()
        self._next_trial_at = now + self._policy.settle_s
        if self._rounds is not None and trial is not None and not self.interrupts:
            actions += self._rounds.trial_ended(trial, self.scheduler.next_trial, now)
        return actions

    def _pauses(self, now: float) -> bool:
        """Whether the next trial has to wait: for the host to settle, for a look at the trials so far, for probes.

        A trial whose hosts have measured their speed, are gone or took too long begins; so does one whose workers
        have filled the store. A worker that may come back is waited for, so that this is in no trial's time. None
        begins while the stats file has no room, and no look is taken; a clean-up begins.
        """
        if self._ends_early:
            return False
        if self.scheduler.is_held and not (self.scheduler.exhausted and self._rounds is None):
            return True
        if self.scheduler.populations.waits(self.roster, now) or self.scheduler.awaits_member():
            return True
        if self._rounds is not None and self._rounds.awaits_look(now):
            return True
        if self._probe is not None:
            members = ((self.roster[number], epoch) for number, epoch in self._probe.asked.items())
            waits = any(one.present and one.epoch == epoch for one, epoch in members)
            return now < self._probe.deadline and waits
        return now < self._next_trial_at and not self.scheduler.exhausted

    def _on_look_taken(self, event: ev.LookTaken, now: float) -> list[act.Action]:
        """Leave out the trials that the comparisons need no more."""
        if self._rounds is None or not self._rounds.take(event):
            return []
        actions: list[act.Action] = []
        why = self._rounds.why_over(now)
        if why is not None:
            actions += self._rounds.end(why)
            actions += self.scheduler.leave_out(None, why)
        else:
            actions += self.scheduler.leave_out(self._rounds.settled, "settled")
        return [*actions, *self._advance(now)]

    # -- the end ------------------------------------------------------------------------------------------------

    def _on_interrupt(self, now: float) -> list[act.Action]:
        self.interrupts += 1
        self.scheduler.interrupted = True
        actions: list[act.Action] = [act.LogEvent("interrupted", {"times": self.interrupts})]
        if self.phase is Phase.WAITING_FOR_WORKERS:
            return [*actions, *self._end("interrupted")]
        if self.phase is Phase.CLEANUP:
            return actions if self.interrupts < 3 else [*actions, *self._end(self._status())]  # noqa: PLR2004  patience ends
        for share in self.scheduler.shares.values():
            actions += self.scheduler.fail_retries(share, Outcome.ABORTED, "the run was interrupted")
        if self.interrupts > 1 and self._abort_deadline is None:
            self._abort_deadline = now + self._policy.abort_timeout_s
            actions += [act.CancelJobs(share.number) for share in self.scheduler.shares.values() if share.outstanding]
        return [*actions, *self._advance(now)]

    def _begin_cleanup(self, now: float) -> list[act.Action]:
        self.phase = Phase.CLEANUP
        self._probe = None
        self._cleanup_deadline = now + self._policy.cleanup_timeout_s
        self._reasons += self.scheduler.unmeasured()
        for member in self.roster:
            member.cleaning = member.present
        actions = self.scheduler.skip_remaining_trials()
        actions += [act.StartCleanup(member.number) for member in self.roster if member.present]
        return actions + self._end_when_clean()

    def _resume_cleanup(self, member: Member, now: float) -> list[act.Action]:
        """Have a member clean up that was lost before it was done, with the stores that its predecessor knew."""
        member.cleaning = True
        self._cleanup_deadline = max(self._cleanup_deadline, now + self._policy.cleanup_timeout_s)
        defined = self.scheduler.define_for_cleanup(member)
        if not defined:
            return [act.StartCleanup(member.number)]
        self._reopening[member.number] = set(self.scheduler.populations.begun())
        return defined

    def _on_cleanup_done(self, event: ev.CleanupDone, now: float) -> list[act.Action]:
        member = self.roster.by_epoch(event.epoch)
        if member is None or member.peer != event.peer or self.phase is not Phase.CLEANUP:
            return []
        member.cleaned_up = True
        member.last_heard_at = now
        fields = {"worker": member.number, "removed": event.removed, "failed": list(event.failed)}
        self._reasons += [f"clean-up on {member.worker_id}: {text}" for text in event.failed]
        return [act.LogEvent("cleanup-done", fields), *self._end_when_clean()]

    def _end_when_clean(self) -> list[act.Action]:
        if any(self._is_awaited(member) for member in self.roster):
            return []
        return self._end(self._status())

    def _is_awaited(self, member: Member) -> bool:
        """Whether a member is to clean up, or may come back to do so.

        One that was lost in a trial has nothing here that its host's next worker would not remove, but in stores.
        """
        if member.present or member.cleaned_up:
            return member.present and not member.cleaned_up
        if member.barred or member.presence is Presence.LOST:
            return False
        return member.cleaning or bool(self.scheduler.populations.begun())

    def _note_cut_off(self, member: Member) -> None:
        """Note that nobody has finished the clean-up of a member that did not come back."""
        deleted = self.scheduler.populations.deleted_by(member.number)
        told = f" after {deleted:,} objects were deleted, and how many are left is not known" if deleted else ""
        self._reasons.append(
            f"clean-up on {member.worker_id} was cut off{told}: {member.missing_reason}; what is left is removed by "
            f"{self._policy.cleanup_advice}"
        )

    def _status(self) -> act.RunStatus:
        if self.interrupts:
            return "interrupted"
        return "complete" if self.scheduler.complete and not self._reasons else "incomplete"

    def _end(self, status: act.RunStatus) -> list[act.Action]:
        self.phase = Phase.FINISHED
        self.scheduler.clear_trial()
        releases: list[act.Action] = [act.EndRun(member.number) for member in self.roster if member.present]
        return [*releases, act.RunFinished(status, (*self.scheduler.reasons, *self._reasons))]

    def _on_event_after_end(self, event: ev.Event) -> list[act.Action]:
        if isinstance(event, ev.Hello):
            return [act.DismissWorker(event.peer, "the run is over")]
        return []

    # -- time ---------------------------------------------------------------------------------------------------

    def _on_master_stalled(self, seconds: float, now: float) -> list[act.Action]:
        """Extend every deadline of others: the master could not receive their messages meanwhile."""
        for member in self.roster:
            member.last_heard_at = min(now, member.last_heard_at + seconds)
            member.missing_since = min(now, member.missing_since + seconds)
        for share in self.scheduler.shares.values():
            share.last_progress_at += seconds
        self._join_deadline += seconds
        self._cleanup_deadline += seconds
        if self._probe is not None:
            self._probe.deadline += seconds
        self.scheduler.populations.postpone(seconds)
        if self._abort_deadline is not None:
            self._abort_deadline += seconds
        return [act.LogEvent("master-stalled", {"seconds": seconds})]

    def _on_disk_free(self, event: ev.DiskFree, now: float) -> list[act.Action]:
        """Go on after a time without room for the stats file, which counts for no deadline."""
        if not self.scheduler.is_held:
            return []
        trial = self.scheduler.trial
        held_s, assigned = self.scheduler.go_on(now)
        if self._rounds is not None:
            self._rounds.postpone(held_s)
        if self._probe is not None:
            self._probe.deadline += held_s
        fields = {
            "trial": None if trial is None else trial.index,
            "seconds": held_s,
            "dropped_samples": event.dropped_samples,
        }
        return [act.LogEvent("disk-full", fields), *assigned, *self._advance(now)]

    def _on_tick(self, now: float) -> list[act.Action]:
        actions: list[act.Action] = []
        for member in self.roster:
            silent = now - member.last_heard_at
            starved = now - member.starved_at <= self._policy.heartbeat_timeout_s
            limit_s = self._policy.starved_timeout_s if starved else self._policy.heartbeat_timeout_s
            if member.present and silent > limit_s:
                actions += self._mark_missing(member, f"silent for {silent:.1f} s", now, silent=True)
            elif (
                member.presence is Presence.MISSING and now - member.missing_since > self._policy.reconnect_timeout_s
            ):
                actions += self._give_up_worker(member)
        if self.phase is Phase.WAITING_FOR_WORKERS:
            if now > self._join_deadline:
                self._reasons += self._unmet_conditions()
                return actions + self._end("incomplete")
            return actions
        if self.phase is Phase.CLEANUP:
            if now > self._cleanup_deadline:
                late = [member.worker_id for member in self.roster if self._is_awaited(member)]
                self._reasons.append(
                    f"clean-up took too long on {', '.join(late)}; what is left is removed by "
                    f"{self._policy.cleanup_advice}"
                )
                return actions + self._end(self._status())
            return actions + self._end_when_clean()
        actions += self._check_stuck_jobs(now)
        for share in self.scheduler.shares.values():
            if share.arrivals is not None:
                actions += self.scheduler.assign_jobs(share, now)
        return actions + self._advance(now)

    def _check_stuck_jobs(self, now: float) -> Iterable[act.Action]:
        """Requeue the jobs of members that send heartbeats but no results within any job's time limit."""
        trial = self.scheduler.trial
        if trial is None:
            return []
        limit_s = self._job_limit_s[trial.treatment]
        actions: list[act.Action] = []
        for share in self.scheduler.shares.values():
            if not share.outstanding:
                continue
            if self._abort_deadline is not None and now > self._abort_deadline:
                actions += self.scheduler.abort_outstanding(share, "it did not end when it was aborted")
            elif self.scheduler.is_held:
                continue  # results wait at the worker until those before them are written
            elif now - share.last_progress_at > limit_s:
                member = self.roster[share.number]
                peer = member.peer
                actions += self._mark_missing(
                    member, f"no result for {limit_s:.0f} s, longer than any job can take", now
                )
                actions.append(act.DismissWorker(peer, "its jobs are overdue"))
        return actions


def _refusal(known: Member, event: ev.Hello) -> str:
    """Return why a worker cannot join again as this member; empty if it can."""
    if known.identity != event.identity:
        return f"worker id {event.worker_id!r} belongs to another key"
    if known.environment != event.environment:
        return f"worker {event.worker_id!r} was in environment {known.environment!r}, not {event.environment!r}"
    return known.barred


def _outline(event: ev.Event, actions: list[act.Action]) -> tuple[object, list[Any]]:
    """Return an event and its actions for the story: without the results themselves, which are large."""
    if type(event) is not ev.ResultsReceived:
        return event, actions
    outlined = [
        ("RecordResults", one.number, one.sequence, one.keep) if type(one) is act.RecordResults else one
        for one in actions
    ]
    return ("ResultsReceived", event.epoch, event.sequence, event.tickets), outlined


def _as_fields(report: PackingReport | PopulationReport) -> dict[str, Any]:
    """Return what of a worker's report goes to the journal."""
    return {name: value for name, value in asdict(report).items() if name not in ("epoch", "number", "over")}
