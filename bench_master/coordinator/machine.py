"""The decisions: when a run begins, who takes part, what a loss means, when it is over.

`Coordinator.handle(event, now)` is the only way in and returns what is to be done; `now` is seconds of any monotonic
clock. One trial runs at a time. A worker that falls silent is awaited for a while: what it held is tried anew when
it is back, and is lost when it is not; nobody else gets its part. Every wait has a deadline, looked at on `Tick`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from bench_common.records import Outcome
from bench_common.requirements import unplaced_services
from bench_common.treatment import Treatment
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.messages import Policy
from bench_master.coordinator.roster import Member, Presence, Roster
from bench_master.coordinator.trial_scheduler import TrialScheduler
from bench_master.plan import Trial

STORY_EVENTS: Final = 64
"""How many events the story of an error goes back."""


class Phase(Enum):
    """Where a run is."""

    WAITING_FOR_WORKERS = "gathering"
    RUNNING = "running"
    CLEANUP = "sweeping"
    FINISHED = "over"


class Coordinator:
    """The state of one run. `job_limit_s(treatment)` bounds how long one job can take, in seconds.

    `seed` fixes when jobs arrive in the trials of an open system. Of a run that is resumed `trials` are those that
    are left, `first_job` is the first id that no job had, and `numbers` are the roster numbers of workers that took
    part before, by worker id.
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
        self.course = TrialScheduler(treatments, trials, self.roster, policy, seed=seed, first_job=first_job)
        self.phase = Phase.WAITING_FOR_WORKERS
        self.interrupts = 0
        self._join_deadline = now + policy.join_timeout_s
        self._abort_deadline: float | None = None
        self._cleanup_deadline = 0.0
        self._reasons: list[str] = []
        self._decisions: deque[tuple[float, object, list[object]]] = deque(maxlen=STORY_EVENTS)

    # -- the way in ---------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now: float) -> list[act.Action]:
        """Take an event in at time `now` (s); return what is to be done, in order."""
        actions = self._decide(event, now)
        if actions:
            self._decisions.append((now, _outline(event), [_outline(action) for action in actions]))
        return actions

    def story(self) -> str:
        """Return the last events that led to actions, the oldest first, for an error report."""
        return "\n".join(f"{now:.3f} {event} -> {actions}" for now, event, actions in self._decisions)

    def _decide(self, event: ev.Event, now: float) -> list[act.Action]:  # noqa: C901  a table of the events
        if self.phase is Phase.FINISHED:
            return self._on_event_after_end(event)
        match event:
            case ev.ResultsReceived():
                return self._on_results(event, now)
            case ev.Heartbeat():
                return self._heard(event, now)
            case ev.Tick():
                return self._tick(now)
            case ev.PackingReported():
                return self._packed(event, now)
            case ev.Hello():
                return self._on_hello(event, now)
            case ev.WorkerDied():
                return self._gone(event, now)
            case ev.CleanupDone():
                return self._on_cleanup_done(event, now)
            case ev.RunRefused():
                self._reasons += event.reasons
                return self._end("refused")
            case ev.Interrupt():
                return self._interrupt(now)
            case ev.MasterStalled():
                return self._on_master_stalled(event.seconds, now)

    def validate(self) -> None:
        """Assert what must hold between any two events; an error tells the story that led to it."""
        try:
            self.course.validate()
            if self.phase in (Phase.CLEANUP, Phase.FINISHED):
                assert all(share.idle for share in self.course.shares.values()), "jobs are held after the end"
        except AssertionError as error:
            raise AssertionError(f"{error}; the last decisions:\n{self.story()}") from error

    # -- joining and leaving ------------------------------------------------------------------------------------

    def _on_hello(self, event: ev.Hello, now: float) -> list[act.Action]:
        known = self.roster.named(event.worker_id)
        if known is None:
            if self.phase is not Phase.WAITING_FOR_WORKERS:
                return [act.DismissWorker(event.peer, "the run has begun without this worker")]
            member = self.roster.add(event.worker_id, event.environment, event.slots, event.identity, event.peer, now)
            member.clock_known = event.clock_known
            return [*self._admit(member, "worker-joined", event), *self._begin_when_ready(now)]
        if known.identity != event.identity:
            reason = f"worker id {event.worker_id!r} belongs to another key"
            return [act.DismissWorker(event.peer, reason, final=True)]
        if known.environment != event.environment:
            reason = f"worker {event.worker_id!r} was in environment {known.environment!r}, not {event.environment!r}"
            return [act.DismissWorker(event.peer, reason, final=True)]
        actions: list[act.Action] = []
        if known.present and known.peer != event.peer:
            return [act.DismissWorker(event.peer, f"worker id {event.worker_id!r} is in use")]
        if known.present and not known.heard_in_epoch:
            known.last_heard_at = now
            return [act.WelcomeWorker(event.peer, known.worker_id, known.number, known.epoch)]
        if known.present:
            # It knew that it was admitted, and asks again: it has given us up and dropped what it held.
            actions += self._mark_missing(known, "it had given up this master", now)
        if self.phase is Phase.CLEANUP:
            return [*actions, act.DismissWorker(event.peer, "the run is ending")]
        self.roster.readmit(known, event.peer, event.slots, now)
        known.clock_known = event.clock_known
        actions += self._admit(known, "worker-back", event)
        share = self.course.shares.get(known.number)
        if share is not None:
            share.last_progress_at = now
            actions += self.course.assign_jobs(share, now)
        return [*actions, *self._begin_when_ready(now)]

    def _admit(self, member: Member, kind: str, event: ev.Hello) -> list[act.Action]:
        fields = {"worker": member.number, "worker_id": member.worker_id, "epoch": member.epoch, "info": event.info}
        return [
            act.WelcomeWorker(member.peer, member.worker_id, member.number, member.epoch),
            act.LogEvent(kind, fields),
        ]

    def _heard(self, event: ev.Heartbeat, now: float) -> list[act.Action]:
        member = self.roster.by_epoch(event.epoch)
        if member is None or member.peer != event.peer:
            return [act.DismissWorker(event.peer, "this epoch is over")]
        member.last_heard_at = now
        member.heard_in_epoch = True
        member.clock_known |= event.clock_known
        return self._begin_when_ready(now)

    def _gone(self, event: ev.WorkerDied, now: float) -> list[act.Action]:
        member = self.roster.named(event.worker_id)
        if member is None or not member.present or event.epoch not in (None, member.epoch):
            return []
        return [*self._mark_missing(member, event.reason, now), *self._advance(now)]

    def _mark_missing(self, member: Member, reason: str, now: float, *, silent: bool = False) -> list[act.Action]:
        self.roster.mark_missing(member, now)
        share = self.course.shares.get(member.number)
        held = len(share.outstanding) if share is not None else 0
        fields = {"worker": member.number, "worker_id": member.worker_id, "reason": reason, "held": held}
        actions: list[act.Action] = [act.LogEvent("worker-lost", {**fields, "silent": silent})]
        if share is not None:
            actions += self.course.requeue_lost(share, reason)
        return actions

    def _give_up_worker(self, member: Member) -> list[act.Action]:
        member.presence = Presence.GONE
        actions: list[act.Action] = [act.LogEvent("worker-given-up", {"worker": member.number})]
        share = self.course.shares.get(member.number)
        if share is not None:
            actions += self.course.fail_retries(share, Outcome.LOST, "its worker was lost and did not come back")
        return actions

    # -- results ------------------------------------------------------------------------------------------------

    def _on_results(self, event: ev.ResultsReceived, now: float) -> list[act.Action]:
        member = self.roster.by_epoch(event.epoch)
        if member is None:
            # What is not acknowledged is sent again, and counted once.
            fields = {"epoch": event.epoch, "jobs": len(event.tickets)}
            return [act.LogEvent("stale-results", fields)] if self.roster.refuse(event.epoch, event.sequence) else []
        member.last_heard_at = now
        if not member.sequences.admit(event.sequence):
            return [act.AcknowledgeResults(member.number, event.sequence)]
        share = self.course.shares.get(member.number)
        keep: tuple[int, ...] | None = None
        if event.tickets:
            keep = self.course.take(share, event, now) if share is not None else ()
        answers: list[act.Action] = []
        if keep is not None:
            refused = len(event.tickets) - len(keep)
            answers.append(act.LogEvent("results-refused", {"worker": member.number, "jobs": refused}))
        # The next jobs go out before these results are written: the worker must not wait for our disk.
        if share is not None:
            answers += self.course.assign_jobs(share, now)
        answers.append(act.RecordResults(member.number, event.sequence, event.batch, keep))
        if share is None or share.idle:
            answers += self._advance(now)
        return answers

    def _packed(self, event: ev.PackingReported, now: float) -> list[act.Action]:
        """Take jobs back that a full host has no room for: they were never begun, and are not missing."""
        member = self.roster.by_epoch(event.epoch)
        share = None if member is None else self.course.shares.get(member.number)
        trial = self.course.trial
        if member is None or share is None or trial is None or trial.index != event.trial:
            return []
        returned = self.course.accept_returned(share, event.returned, now)
        fields = {"worker": member.number, "trial": event.trial, "returned": returned, **event.fields}
        actions: list[act.Action] = [act.LogEvent("packed", fields)]
        return actions + (self._advance(now) if share.idle else [])

    # -- trials -------------------------------------------------------------------------------------------------

    def _begin_when_ready(self, now: float) -> list[act.Action]:
        if self.phase is not Phase.WAITING_FOR_WORKERS or self._missing():
            return []
        self.phase = Phase.RUNNING
        roster = [{"worker": member.number, "worker_id": member.worker_id} for member in self.roster]
        return [
            act.LogEvent("run-begin", {"roster": roster, "planned": self.course.planned_jobs()}),
            *self._begin_trial(now),
        ]

    def _missing(self) -> list[str]:
        present = [member for member in self.roster if member.present]
        environments = {treatment.environment for treatment in self._treatments}
        return self.roster.missing(self._policy.expected, environments) + unplaced_services(self._treatments, present)

    def _begin_trial(self, now: float) -> list[act.Action]:
        """Begin the next trial; with none left, clean up."""
        return self._begin_cleanup(now) if self.course.exhausted else self.course.begin(now)

    def _advance(self, now: float) -> list[act.Action]:
        """End the trial when every share is over, and begin what follows."""
        actions: list[act.Action] = []
        while self.course.over(now):
            actions += self.course.end()
            actions += self._begin_cleanup(now) if self.interrupts else self._begin_trial(now)
        return actions

    # -- the end ------------------------------------------------------------------------------------------------

    def _interrupt(self, now: float) -> list[act.Action]:
        self.interrupts += 1
        self.course.stopped = True
        actions: list[act.Action] = [act.LogEvent("interrupted", {"times": self.interrupts})]
        if self.phase is Phase.WAITING_FOR_WORKERS:
            return [*actions, *self._end("interrupted")]
        if self.phase is Phase.CLEANUP:
            return actions if self.interrupts < 3 else [*actions, *self._end(self._status())]  # noqa: PLR2004  patience ends
        for share in self.course.shares.values():
            actions += self.course.fail_retries(share, Outcome.ABORTED, "the run was interrupted")
        if self.interrupts > 1 and self._abort_deadline is None:
            self._abort_deadline = now + self._policy.abort_timeout_s
            actions += [act.CancelJobs(share.number) for share in self.course.shares.values() if share.outstanding]
        return [*actions, *self._advance(now)]

    def _begin_cleanup(self, now: float) -> list[act.Action]:
        self.phase = Phase.CLEANUP
        self._cleanup_deadline = now + self._policy.cleanup_timeout_s
        actions = self.course.skip_remaining_trials()
        actions += [act.StartCleanup(member.number) for member in self.roster if member.present]
        return actions + self._end_when_clean()

    def _on_cleanup_done(self, event: ev.CleanupDone, now: float) -> list[act.Action]:
        member = self.roster.by_epoch(event.epoch)
        if member is None or member.peer != event.peer or self.phase is not Phase.CLEANUP:
            return []
        member.swept = True
        member.last_heard_at = now
        fields = {"worker": member.number, "removed": event.removed, "failed": list(event.failed)}
        self._reasons += [f"clean-up on {member.worker_id}: {text}" for text in event.failed]
        return [act.LogEvent("swept", fields), *self._end_when_clean()]

    def _end_when_clean(self) -> list[act.Action]:
        if any(member.present and not member.swept for member in self.roster):
            return []
        return self._end(self._status())

    def _status(self) -> act.RunStatus:
        if self.interrupts:
            return "interrupted"
        return "complete" if self.course.whole and not self._reasons else "incomplete"

    def _end(self, status: act.RunStatus) -> list[act.Action]:
        self.phase = Phase.FINISHED
        self.course.close()
        releases: list[act.Action] = [act.EndRun(member.number) for member in self.roster if member.present]
        return [*releases, act.RunFinished(status, (*self.course.reasons, *self._reasons))]

    def _on_event_after_end(self, event: ev.Event) -> list[act.Action]:
        if isinstance(event, ev.Hello):
            return [act.DismissWorker(event.peer, "the run is over")]
        return []

    # -- time ---------------------------------------------------------------------------------------------------

    def _on_master_stalled(self, seconds: float, now: float) -> list[act.Action]:
        """Put off whatever others have to do in time: nobody can have been heard to do it."""
        for member in self.roster:
            member.last_heard_at = min(now, member.last_heard_at + seconds)
            member.missing_since = min(now, member.missing_since + seconds)
        for share in self.course.shares.values():
            share.last_progress_at += seconds
        self._join_deadline += seconds
        self._cleanup_deadline += seconds
        if self._abort_deadline is not None:
            self._abort_deadline += seconds
        return [act.LogEvent("master-absent", {"seconds": seconds})]

    def _tick(self, now: float) -> list[act.Action]:
        actions: list[act.Action] = []
        for member in self.roster:
            silent = now - member.last_heard_at
            if member.present and silent > self._policy.heartbeat_timeout_s:
                actions += self._mark_missing(member, f"silent for {silent:.1f} s", now, silent=True)
            elif (
                member.presence is Presence.MISSING and now - member.missing_since > self._policy.reconnect_timeout_s
            ):
                actions += self._give_up_worker(member)
        if self.phase is Phase.WAITING_FOR_WORKERS:
            if now > self._join_deadline:
                self._reasons += self._missing()
                return actions + self._end("incomplete")
            return actions
        if self.phase is Phase.CLEANUP:
            if now > self._cleanup_deadline:
                late = [m.worker_id for m in self.roster if m.present and not m.swept]
                self._reasons.append(f"clean-up took too long on {', '.join(late)}")
                return actions + self._end(self._status())
            return actions + self._end_when_clean()
        actions += self._check_stuck_jobs(now)
        for share in self.course.shares.values():
            if share.arrivals is not None:
                actions += self.course.assign_jobs(share, now)
        return actions + self._advance(now)

    def _check_stuck_jobs(self, now: float) -> Iterable[act.Action]:
        """Take jobs away from members that heartbeat but give no results within any job's bound."""
        trial = self.course.trial
        if trial is None:
            return []
        limit_s = self._job_limit_s[trial.treatment]
        actions: list[act.Action] = []
        for share in self.course.shares.values():
            if not share.outstanding:
                continue
            if self._abort_deadline is not None and now > self._abort_deadline:
                actions += self.course.abort_outstanding(share, "it did not end when it was aborted")
            elif now - share.last_progress_at > limit_s:
                member = self.roster[share.number]
                peer = member.peer
                actions += self._mark_missing(
                    member, f"no result for {limit_s:.0f} s, longer than any job can take", now
                )
                actions.append(act.DismissWorker(peer, "its jobs are overdue"))
        return actions


def _outline(message: ev.Event | act.Action) -> object:
    """Return what the story tells of an event or action: all of it but the results themselves, which are large."""
    match message:
        case ev.ResultsReceived():
            return ("ResultsReceived", message.epoch, message.sequence, message.tickets)
        case act.RecordResults():
            return ("RecordResults", message.number, message.sequence, message.keep)
    return message
