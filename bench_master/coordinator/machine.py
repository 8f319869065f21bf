"""The decisions: when a run begins, who takes part, what a loss means, when it is over.

`Coordinator.handle(event, now)` is the only way in and returns what is to be done; `now` is seconds of any monotonic
clock. One trial runs at a time. A worker that falls silent is awaited for a while: what it held is tried anew when
it is back, and is lost when it is not; nobody else gets its part. Every wait has a deadline, looked at on `Tick`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from bench_common.records import Outcome
from bench_common.requirements import unplaced
from bench_common.treatment import Treatment
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.messages import Policy
from bench_master.coordinator.roster import Member, Presence, Roster
from bench_master.coordinator.trials import Course
from bench_master.plan import Trial


class Phase(Enum):
    """Where a run is."""

    GATHERING = "gathering"
    RUNNING = "running"
    SWEEPING = "sweeping"
    OVER = "over"


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
        self._limit_s = [job_limit_s(treatment) for treatment in treatments]
        self.roster = Roster(first_epoch, numbers or {})
        self.course = Course(treatments, trials, self.roster, policy, seed=seed, first_job=first_job)
        self.phase = Phase.GATHERING
        self.interrupts = 0
        self._gather_by = now + policy.gather_s
        self._abort_by: float | None = None
        self._sweep_by = 0.0
        self._reasons: list[str] = []

    # -- the way in ---------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now: float) -> list[act.Action]:  # noqa: C901  a table of the events
        """Take an event in at time `now` (s); return what is to be done, in order."""
        if self.phase is Phase.OVER:
            return self._after_the_end(event)
        match event:
            case ev.Finished():
                return self._finished(event, now)
            case ev.Heard():
                return self._heard(event, now)
            case ev.Tick():
                return self._tick(now)
            case ev.Packed():
                return self._packed(event, now)
            case ev.Hello():
                return self._hello(event, now)
            case ev.Gone():
                return self._gone(event, now)
            case ev.Swept():
                return self._swept(event, now)
            case ev.Refused():
                self._reasons += event.reasons
                return self._end("refused")
            case ev.Interrupt():
                return self._interrupt(now)
            case ev.Absent():
                return self._absent(event.seconds, now)

    def validate(self) -> None:
        """Assert what must hold between any two events."""
        self.course.validate()
        if self.phase in (Phase.SWEEPING, Phase.OVER):
            assert all(share.idle for share in self.course.shares.values()), "jobs are held after the end"

    # -- joining and leaving ------------------------------------------------------------------------------------

    def _hello(self, event: ev.Hello, now: float) -> list[act.Action]:
        known = self.roster.named(event.worker_id)
        if known is None:
            if self.phase is not Phase.GATHERING:
                return [act.Dismiss(event.peer, "the run has begun without this worker")]
            member = self.roster.enrol(
                event.worker_id, event.environment, event.slots, event.identity, event.peer, now
            )
            member.clock_known = event.clock_known
            return [*self._admit(member, "worker-joined", event), *self._begin_when_gathered(now)]
        if known.identity != event.identity:
            reason = f"worker id {event.worker_id!r} belongs to another key"
            return [act.Dismiss(event.peer, reason, final=True)]
        if known.environment != event.environment:
            reason = f"worker {event.worker_id!r} was in environment {known.environment!r}, not {event.environment!r}"
            return [act.Dismiss(event.peer, reason, final=True)]
        actions: list[act.Action] = []
        if known.present and known.peer != event.peer:
            return [act.Dismiss(event.peer, f"worker id {event.worker_id!r} is in use")]
        if known.present and not known.beating:
            known.heard_at = now
            return [act.Welcome(event.peer, known.worker_id, known.number, known.epoch)]
        if known.present:
            # It knew that it was admitted, and asks again: it has given us up and dropped what it held.
            actions += self._miss(known, "it had given up this master", now)
        if self.phase is Phase.SWEEPING:
            return [*actions, act.Dismiss(event.peer, "the run is ending")]
        self.roster.readmit(known, event.peer, event.slots, now)
        known.clock_known = event.clock_known
        actions += self._admit(known, "worker-back", event)
        share = self.course.shares.get(known.number)
        if share is not None:
            share.progressed_at = now
            actions += self.course.hand_out(share, now)
        return [*actions, *self._begin_when_gathered(now)]

    def _admit(self, member: Member, kind: str, event: ev.Hello) -> list[act.Action]:
        fields = {"worker": member.number, "worker_id": member.worker_id, "epoch": member.epoch, "info": event.info}
        return [act.Welcome(member.peer, member.worker_id, member.number, member.epoch), act.Note(kind, fields)]

    def _heard(self, event: ev.Heard, now: float) -> list[act.Action]:
        member = self.roster.at_epoch(event.epoch)
        if member is None or member.peer != event.peer:
            return [act.Dismiss(event.peer, "this epoch is over")]
        member.heard_at = now
        member.beating = True
        member.clock_known |= event.clock_known
        return self._begin_when_gathered(now)

    def _gone(self, event: ev.Gone, now: float) -> list[act.Action]:
        member = self.roster.named(event.worker_id)
        if member is None or not member.present or event.epoch not in (None, member.epoch):
            return []
        return [*self._miss(member, event.reason, now), *self._advance(now)]

    def _miss(self, member: Member, reason: str, now: float, *, silent: bool = False) -> list[act.Action]:
        self.roster.miss(member, now)
        share = self.course.shares.get(member.number)
        held = len(share.outstanding) if share is not None else 0
        fields = {"worker": member.number, "worker_id": member.worker_id, "reason": reason, "held": held}
        actions: list[act.Action] = [act.Note("worker-lost", {**fields, "silent": silent})]
        if share is not None:
            actions += self.course.bereave(share, reason)
        return actions

    def _give_up(self, member: Member) -> list[act.Action]:
        member.presence = Presence.GONE
        actions: list[act.Action] = [act.Note("worker-given-up", {"worker": member.number})]
        share = self.course.shares.get(member.number)
        if share is not None:
            actions += self.course.give_up(share, Outcome.LOST, "its worker was lost and did not come back")
        return actions

    # -- results ------------------------------------------------------------------------------------------------

    def _finished(self, event: ev.Finished, now: float) -> list[act.Action]:
        member = self.roster.at_epoch(event.epoch)
        if member is None:
            # What is not acknowledged is sent again, and counted once.
            fields = {"epoch": event.epoch, "jobs": len(event.tickets)}
            return [act.Note("stale-results", fields)] if self.roster.refuse(event.epoch, event.sequence) else []
        member.heard_at = now
        if not member.sequences.admit(event.sequence):
            return [act.Acknowledge(member.number, event.sequence)]
        share = self.course.shares.get(member.number)
        keep: tuple[int, ...] | None = None
        if event.tickets:
            keep = self.course.take(share, event, now) if share is not None else ()
        answers: list[act.Action] = []
        if keep is not None:
            refused = len(event.tickets) - len(keep)
            answers.append(act.Note("results-refused", {"worker": member.number, "jobs": refused}))
        # The next jobs go out before these results are written: the worker must not wait for our disk.
        if share is not None:
            answers += self.course.hand_out(share, now)
        answers.append(act.Journal(member.number, event.sequence, event.batch, keep))
        if share is None or share.idle:
            answers += self._advance(now)
        return answers

    def _packed(self, event: ev.Packed, now: float) -> list[act.Action]:
        """Take jobs back that a full host has no room for: they were never begun, and are not missing."""
        member = self.roster.at_epoch(event.epoch)
        share = None if member is None else self.course.shares.get(member.number)
        trial = self.course.trial
        if member is None or share is None or trial is None or trial.index != event.trial:
            return []
        returned = self.course.take_back(share, event.returned, now)
        fields = {"worker": member.number, "trial": event.trial, "returned": returned, **event.fields}
        actions: list[act.Action] = [act.Note("packed", fields)]
        return actions + (self._advance(now) if share.idle else [])

    # -- trials -------------------------------------------------------------------------------------------------

    def _begin_when_gathered(self, now: float) -> list[act.Action]:
        if self.phase is not Phase.GATHERING or self._missing():
            return []
        self.phase = Phase.RUNNING
        roster = [{"worker": member.number, "worker_id": member.worker_id} for member in self.roster]
        return [
            act.Note("run-begin", {"roster": roster, "planned": self.course.planned_jobs()}),
            *self._begin_trial(now),
        ]

    def _missing(self) -> list[str]:
        present = [member for member in self.roster if member.present]
        environments = {treatment.environment for treatment in self._treatments}
        return self.roster.missing(self._policy.expected, environments) + unplaced(self._treatments, present)

    def _begin_trial(self, now: float) -> list[act.Action]:
        """Begin the next trial; with none left, clean up."""
        return self._begin_sweep(now) if self.course.exhausted else self.course.begin(now)

    def _advance(self, now: float) -> list[act.Action]:
        """End the trial when every share is over, and begin what follows."""
        actions: list[act.Action] = []
        while self.course.over(now):
            actions += self.course.end()
            actions += self._begin_sweep(now) if self.interrupts else self._begin_trial(now)
        return actions

    # -- the end ------------------------------------------------------------------------------------------------

    def _interrupt(self, now: float) -> list[act.Action]:
        self.interrupts += 1
        self.course.stopped = True
        actions: list[act.Action] = [act.Note("interrupted", {"times": self.interrupts})]
        if self.phase is Phase.GATHERING:
            return [*actions, *self._end("interrupted")]
        if self.phase is Phase.SWEEPING:
            return actions if self.interrupts < 3 else [*actions, *self._end(self._status())]  # noqa: PLR2004  patience ends
        for share in self.course.shares.values():
            actions += self.course.give_up(share, Outcome.ABORTED, "the run was interrupted")
        if self.interrupts > 1 and self._abort_by is None:
            self._abort_by = now + self._policy.abort_s
            actions += [act.Cancel(share.number) for share in self.course.shares.values() if share.outstanding]
        return [*actions, *self._advance(now)]

    def _begin_sweep(self, now: float) -> list[act.Action]:
        self.phase = Phase.SWEEPING
        self._sweep_by = now + self._policy.sweep_s
        actions = self.course.skip_rest()
        actions += [act.Sweep(member.number) for member in self.roster if member.present]
        return actions + self._end_when_swept()

    def _swept(self, event: ev.Swept, now: float) -> list[act.Action]:
        member = self.roster.at_epoch(event.epoch)
        if member is None or member.peer != event.peer or self.phase is not Phase.SWEEPING:
            return []
        member.swept = True
        member.heard_at = now
        fields = {"worker": member.number, "removed": event.removed, "failed": list(event.failed)}
        self._reasons += [f"clean-up on {member.worker_id}: {text}" for text in event.failed]
        return [act.Note("swept", fields), *self._end_when_swept()]

    def _end_when_swept(self) -> list[act.Action]:
        if any(member.present and not member.swept for member in self.roster):
            return []
        return self._end(self._status())

    def _status(self) -> act.RunStatus:
        if self.interrupts:
            return "interrupted"
        return "complete" if self.course.whole and not self._reasons else "incomplete"

    def _end(self, status: act.RunStatus) -> list[act.Action]:
        self.phase = Phase.OVER
        self.course.close()
        releases: list[act.Action] = [act.Release(member.number) for member in self.roster if member.present]
        return [*releases, act.RunOver(status, (*self.course.reasons, *self._reasons))]

    def _after_the_end(self, event: ev.Event) -> list[act.Action]:
        if isinstance(event, ev.Hello):
            return [act.Dismiss(event.peer, "the run is over")]
        return []

    # -- time ---------------------------------------------------------------------------------------------------

    def _absent(self, seconds: float, now: float) -> list[act.Action]:
        """Put off whatever others have to do in time: nobody can have been heard to do it."""
        for member in self.roster:
            member.heard_at = min(now, member.heard_at + seconds)
            member.missed_since = min(now, member.missed_since + seconds)
        for share in self.course.shares.values():
            share.progressed_at += seconds
        self._gather_by += seconds
        self._sweep_by += seconds
        if self._abort_by is not None:
            self._abort_by += seconds
        return [act.Note("master-absent", {"seconds": seconds})]

    def _tick(self, now: float) -> list[act.Action]:
        actions: list[act.Action] = []
        for member in self.roster:
            silent = now - member.heard_at
            if member.present and silent > self._policy.silence_s:
                actions += self._miss(member, f"silent for {silent:.1f} s", now, silent=True)
            elif member.presence is Presence.AWAITED and now - member.missed_since > self._policy.rejoin_s:
                actions += self._give_up(member)
        if self.phase is Phase.GATHERING:
            if now > self._gather_by:
                self._reasons += self._missing()
                return actions + self._end("incomplete")
            return actions
        if self.phase is Phase.SWEEPING:
            if now > self._sweep_by:
                late = [m.worker_id for m in self.roster if m.present and not m.swept]
                self._reasons.append(f"clean-up took too long on {', '.join(late)}")
                return actions + self._end(self._status())
            return actions + self._end_when_swept()
        actions += self._look_for_stuck_jobs(now)
        for share in self.course.shares.values():
            if share.arrivals is not None:
                actions += self.course.hand_out(share, now)
        return actions + self._advance(now)

    def _look_for_stuck_jobs(self, now: float) -> Iterable[act.Action]:
        """Take jobs away from members that heartbeat but give no results within any job's bound."""
        trial = self.course.trial
        if trial is None:
            return []
        limit_s = self._limit_s[trial.treatment]
        actions: list[act.Action] = []
        for share in self.course.shares.values():
            if not share.outstanding:
                continue
            if self._abort_by is not None and now > self._abort_by:
                actions += self.course.abandon(share, "it did not end when it was aborted")
            elif now - share.progressed_at > limit_s:
                member = self.roster[share.number]
                peer = member.peer
                actions += self._miss(member, f"no result for {limit_s:.0f} s, longer than any job can take", now)
                actions.append(act.Dismiss(peer, "its jobs are overdue"))
        return actions
