"""The decisions: when a run begins, who gets which job, what a loss means, when it is over.

`Coordinator.handle(event, now)` is the only way in and returns what is to be done; `now` is seconds of any monotonic
clock. One trial runs at a time. A worker that falls silent is awaited for a while: what it held is tried anew when
it is back, and is lost when it is not; nobody else gets its part. Every wait has a deadline, looked at on `Tick`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bench_common.records import Outcome, attempt_of, job_id_of, ticket_of
from bench_common.spec import Treatment
from bench_master.arrivals import Arrivals
from bench_master.coordinator import actions as act
from bench_master.coordinator import events as ev
from bench_master.coordinator.roster import Member, Presence, Roster
from bench_master.coordinator.shares import HORIZON_S, MAX_AHEAD, MAX_OPEN, Share, divide
from bench_master.plan import Trial, independent

LEAD_S: Final = 0.1
"""How long after a trial's begin its first job can arrive, in an open system."""
MAX_STALE: Final = 10_000
"""How many batches of epochs that are over are told apart, so that one that comes again is counted once."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The deadlines (seconds) and limits of a run.

    `expected` workers are gathered for at most `gather_s`; one that is silent for `silence_s` is missed and awaited
    for `rejoin_s`; a job is tried `max_attempts` times; a second Ctrl-C waits `abort_s`, the clean-up `sweep_s`.
    `user_count` is how many jobs are in flight over all workers, in place of each treatment's own concurrency.
    `look_ahead` lets jobs wait at a worker beyond those that run there, where jobs are independent; `batch_size`
    fixes how many jobs and results travel together.
    """

    expected: int = 1
    gather_s: float = 30.0
    silence_s: float = 5.0
    rejoin_s: float = 10.0
    max_attempts: int = 3
    abort_s: float = 15.0
    sweep_s: float = 60.0
    user_count: int | None = None
    look_ahead: bool = True
    batch_size: int | None = None


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
        self._treatments = treatments
        self._trials = trials
        self._policy = policy
        self._limit_s = [job_limit_s(treatment) for treatment in treatments]
        self.roster = Roster(first_epoch, numbers or {})
        self.phase = Phase.GATHERING
        self.trial: Trial | None = None
        self.shares: dict[int, Share] = {}
        self.interrupts = 0
        self.lost = 0
        self.aborted = 0
        self.not_started = 0
        self.accepted = 0
        self.returned = 0
        self._called_off = 0
        self._position = 0
        self._seed = seed
        self._first_id = self._next_id = first_job
        self._faults_before = 0
        self._stale: set[tuple[int, int]] = set()
        self._trial_ends_at: float | None = None
        self._trial_began_ns = 0
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

    @property
    def issued(self) -> int:
        """How many different jobs have been handed out."""
        return self._next_id - self._first_id

    @property
    def in_flight(self) -> int:
        """How many tickets are out at this moment."""
        return sum(len(share.outstanding) for share in self.shares.values())

    @property
    def _faults(self) -> int:
        """How many jobs ended without being run to their end."""
        return self.lost + self.aborted + self._called_off

    def planned_jobs(self) -> int | None:
        """Return how many jobs the whole plan has with the present roster; None where a trial runs by time."""
        total = 0
        for trial in self._trials:
            quotas = self._quotas(self._treatments[trial.treatment])
            if any(quota is None for _, _, quota in quotas):
                return None
            total += sum(quota or 0 for _, _, quota in quotas)
        return total

    def validate(self) -> None:
        """Assert what must hold between any two events."""
        seen: set[int] = set()
        for share in self.shares.values():
            held = share.outstanding | set(share.retries)
            assert len(held) == len(share.outstanding) + len(share.retries), "a ticket is out and to be tried anew"
            most = share.width + (MAX_AHEAD if share.look_ahead else 0)
            if share.arrivals is not None:
                most = MAX_OPEN
            assert len(share.outstanding) <= most, "more jobs out than the member may hold"
            jobs = {job_id_of(ticket) for ticket in held}
            assert len(jobs) == len(held), "two attempts of one job at once"
            assert not jobs & seen, "a job is held twice"
            seen |= jobs
            if not self.roster[share.number].present:
                assert not share.outstanding, "a missing member holds jobs"
        ended = self.accepted + self.lost + self.aborted + self.returned
        assert self.issued == ended + len(seen), "a job has vanished or is doubled"
        if self.phase in (Phase.SWEEPING, Phase.OVER):
            assert not seen, "jobs are held after the end"

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
        share = self.shares.get(known.number)
        if share is not None:
            share.progressed_at = now
            actions += self._hand_out(share, now)
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
        share = self.shares.get(member.number)
        held = sorted(share.outstanding) if share is not None else []
        fields = {"worker": member.number, "worker_id": member.worker_id, "reason": reason, "held": len(held)}
        actions: list[act.Action] = [act.Note("worker-lost", {**fields, "silent": silent})]
        if share is None:
            return actions
        share.outstanding.clear()
        spent = []
        for ticket in held:
            attempt = attempt_of(ticket) + 1
            if attempt < self._policy.max_attempts and not self.interrupts:
                share.retries.append(ticket_of(job_id_of(ticket), attempt))
            else:
                spent.append(ticket)
        return actions + self._conclude(share, spent, Outcome.LOST, f"its worker was lost: {reason}")

    def _give_up(self, member: Member) -> list[act.Action]:
        member.presence = Presence.GONE
        actions: list[act.Action] = [act.Note("worker-given-up", {"worker": member.number})]
        share = self.shares.get(member.number)
        if share is not None and share.retries:
            tickets, share.retries = share.retries, []
            actions += self._conclude(share, tickets, Outcome.LOST, "its worker was lost and did not come back")
        return actions

    def _conclude(self, share: Share, tickets: Sequence[int], outcome: Outcome, reason: str) -> list[act.Action]:
        if not tickets or self.trial is None:
            return []
        if outcome is Outcome.LOST:
            self.lost += len(tickets)
        else:
            self.aborted += len(tickets)
        place = (share.number, self.trial.index, self.trial.treatment)
        return [act.Conclude(*place, tuple(tickets), outcome, reason)]

    # -- results ------------------------------------------------------------------------------------------------

    def _finished(self, event: ev.Finished, now: float) -> list[act.Action]:
        member = self.roster.at_epoch(event.epoch)
        if member is None:
            return self._refuse_stale(event)
        member.heard_at = now
        if not member.sequences.admit(event.sequence):
            return [act.Acknowledge(member.number, event.sequence)]
        share = self.shares.get(member.number)
        keep: tuple[int, ...] | None = None
        refused = 0
        if event.tickets:
            if share is None:
                keep, refused = (), len(event.tickets)
            else:
                before = len(share.outstanding)
                if not share.outstanding.issuperset(event.tickets) or len(set(event.tickets)) != len(event.tickets):
                    keep = _counting_rows(event.tickets, share.outstanding)
                    refused = len(event.tickets) - len(keep)
                share.outstanding.difference_update(event.tickets)
                self.accepted += before - len(share.outstanding)
                self._called_off += event.aborted
                share.progress(len(event.tickets), now)
        answers: list[act.Action] = []
        if refused:
            answers.append(act.Note("results-refused", {"worker": member.number, "jobs": refused}))
        # The next jobs go out before these results are written: the worker must not wait for our disk.
        if share is not None:
            answers += self._hand_out(share, now)
        answers.append(act.Journal(member.number, event.sequence, event.batch, keep))
        if share is None or share.idle:
            answers += self._advance(now)
        return answers

    def _packed(self, event: ev.Packed, now: float) -> list[act.Action]:
        """Take jobs back that a full host has no room for: they were never begun, and are not missing."""
        member = self.roster.at_epoch(event.epoch)
        share = None if member is None else self.shares.get(member.number)
        if member is None or share is None or self.trial is None or self.trial.index != event.trial:
            return []
        back = share.outstanding.intersection(event.returned)
        share.outstanding -= back
        share.issued -= len(back)
        if share.quota is not None:
            share.quota -= len(back)
        self.returned += len(back)
        share.progressed_at = now
        fields = {"worker": member.number, "trial": event.trial, "returned": len(back), **event.fields}
        actions: list[act.Action] = [act.Note("packed", fields)]
        return actions + (self._advance(now) if share.idle else [])

    def _refuse_stale(self, event: ev.Finished) -> list[act.Action]:
        """Refuse a batch of an epoch that is over; what is not acknowledged is sent again, and counted once."""
        batch = (event.epoch, event.sequence)
        if batch in self._stale:
            return []
        if len(self._stale) < MAX_STALE:
            self._stale.add(batch)
        return [act.Note("stale-results", {"epoch": event.epoch, "jobs": len(event.tickets)})]

    # -- trials -------------------------------------------------------------------------------------------------

    def _begin_when_gathered(self, now: float) -> list[act.Action]:
        if self.phase is not Phase.GATHERING or self._missing():
            return []
        self.phase = Phase.RUNNING
        roster = [{"worker": member.number, "worker_id": member.worker_id} for member in self.roster]
        return [act.Note("run-begin", {"roster": roster, "planned": self.planned_jobs()}), *self._begin_trial(now)]

    def _missing(self) -> list[str]:
        present = [member for member in self.roster if member.present]
        missing = []
        if len(present) < self._policy.expected:
            missing.append(f"not enough workers: {len(present)} of {self._policy.expected} joined")
        # The first trial's times are the master's, with a bound, like those of all others.
        missing += [f"worker {m.worker_id}'s clock was not compared yet" for m in present if not m.clock_known]
        needed = {treatment.environment for treatment in self._treatments}
        there = {member.environment for member in present} | {None}
        missing += [f"no worker of environment {name!r}" for name in sorted(needed - there, key=str)]
        return missing

    def _quotas(self, treatment: Treatment) -> list[tuple[int, int, int | None]]:
        """Return (member number, width, quota) for every member that takes part in a treatment."""
        members = self.roster.in_environment(treatment.environment)
        if not members:
            return []
        if self._policy.user_count is not None:
            widths = divide(self._policy.user_count, len(members))
        else:
            widths = [treatment.concurrency] * len(members)
        quotas: list[int | None]
        if treatment.operation_count is not None:
            quotas = list(divide(treatment.operation_count, len(members)))
        elif treatment.iterations is not None:
            quotas = [treatment.iterations * width for width in widths]
        else:
            quotas = [None] * len(members)
        return [(m.number, width, quota) for m, width, quota in zip(members, widths, quotas, strict=True) if width]

    def _begin_trial(self, now: float) -> list[act.Action]:
        """Begin the next trial; with none left, clean up."""
        if self._position >= len(self._trials):
            return self._begin_sweep(now)
        self.trial = trial = self._trials[self._position]
        self._position += 1
        self._faults_before = self._faults
        treatment = self._treatments[trial.treatment]
        look_ahead = self._policy.look_ahead and independent(treatment)
        self.shares = {
            number: Share(number, width, quota, look_ahead=look_ahead, fixed_batch=self._policy.batch_size)
            for number, width, quota in self._quotas(treatment)
        }
        for part, share in enumerate(self.shares.values()):
            share.progressed_at = now
            share.arrivals = self._arrivals(trial, part, share.quota)
        self._trial_ends_at = None if treatment.run_seconds is None else now + treatment.run_seconds
        # The first orders have to be there before the first job arrives.
        self._trial_began_ns = round((now + LEAD_S) * 1e9)
        actions: list[act.Action] = [
            act.Note(
                "trial-begin", {"trial": trial.index, "treatment": trial.treatment, "workers": list(self.shares)}
            )
        ]
        for share in self.shares.values():
            actions += self._hand_out(share, now)
        return actions

    def _arrivals(self, trial: Trial, part: int, quota: int | None) -> Arrivals | None:
        treatment = self._treatments[trial.treatment]
        if treatment.open_load is None:
            return None
        return Arrivals(
            treatment.open_load,
            seed=(self._seed, trial.index),
            part=part,
            parts=len(self.shares),
            count=quota,
            seconds=treatment.run_seconds,
        )

    def _hand_out(self, share: Share, now: float) -> list[act.Action]:
        member = self.roster[share.number]
        trial = self.trial
        if self.interrupts or trial is None or not member.present:
            return []
        fresh = 0 if share.retries else share.room(open_ended=self._time_left(now))
        intended = self._arriving(share, now) if share.arrivals is not None else ()
        if not fresh and not share.retries and not intended:
            return []
        actions: list[act.Action] = []
        place = (member.number, trial.index, trial.treatment)
        if trial.treatment not in member.defined:
            member.defined.add(trial.treatment)
            actions.append(act.Define(member.number, trial.treatment))
        if share.retries:
            most = share.width if share.arrivals is None else MAX_OPEN
            anew = tuple(share.retries[: max(0, most - len(share.outstanding))])
            del share.retries[: len(anew)]
            share.outstanding.update(anew)
            if anew:
                actions.append(act.Issue(*place, anew, share.width, share.batch))
            fresh = 0 if share.retries else share.room(open_ended=self._time_left(now))
        if intended:
            # Nothing is overdue before it has arrived.
            share.progressed_at = max(share.progressed_at, intended[0] / 1e9)
            fresh = len(intended)
        if fresh:
            tickets = range(self._next_id, self._next_id + fresh)
            self._next_id += fresh
            share.issued += fresh
            share.outstanding.update(tickets)
            actions.append(act.Issue(*place, tickets, share.width, share.batch, intended))
        return actions

    def _arriving(self, share: Share, now: float) -> list[int]:
        """Take out when the jobs arrive that are to be handed out by now, in ns of our clock."""
        began_ns = self._trial_began_ns
        return [began_ns + at for at in share.arriving(round((now + HORIZON_S) * 1e9) - began_ns)]

    def _time_left(self, now: float) -> bool:
        return self._trial_ends_at is not None and now < self._trial_ends_at

    def _over_for(self, share: Share, now: float) -> bool:
        """Whether a share has nothing more to give in this trial."""
        if not share.idle:
            return False
        if self.interrupts or share.finished or self.roster[share.number].presence is Presence.GONE:
            return True
        return share.quota is None and share.arrivals is None and not self._time_left(now)

    def _advance(self, now: float) -> list[act.Action]:
        """End the trial when every share is over, and begin what follows."""
        actions: list[act.Action] = []
        while self.trial is not None and all(self._over_for(share, now) for share in self.shares.values()):
            actions += self._end_trial()
            actions += self._begin_sweep(now) if self.interrupts else self._begin_trial(now)
        return actions

    def _end_trial(self) -> list[act.Action]:
        assert self.trial is not None
        treatment = self._treatments[self.trial.treatment]
        left = sum(share.unissued for share in self.shares.values())
        if not self.shares:
            left = treatment.operation_count or treatment.concurrency * (treatment.iterations or 0)
        outcome = Outcome.ABORTED if self.interrupts else Outcome.LOST
        self.not_started += left
        whole = bool(self.shares) and not left and self._faults == self._faults_before
        for share in self.shares.values():
            if share.quota is None and (self.interrupts or not self.roster[share.number].present):
                whole = False
            # A trial that runs by time has no number of jobs that could be missing: its missing worker is told of.
            member = self.roster[share.number]
            if share.quota is None and not member.present and not self.interrupts:
                reason = f"worker {member.worker_id} was missing from a trial that runs by time"
                self._reasons += [reason] if reason not in self._reasons else []
        missing = {"not_started": left, "not_started_outcome": outcome.name.lower()}
        self.shares = {}
        # What is not whole is run again when the run is resumed.
        return [act.Note("trial-end", {"trial": self.trial.index, **missing, "whole": whole})]

    # -- the end ------------------------------------------------------------------------------------------------

    def _interrupt(self, now: float) -> list[act.Action]:
        self.interrupts += 1
        actions: list[act.Action] = [act.Note("interrupted", {"times": self.interrupts})]
        if self.phase is Phase.GATHERING:
            return [*actions, *self._end("interrupted")]
        if self.phase is Phase.SWEEPING:
            return actions if self.interrupts < 3 else [*actions, *self._end(self._status())]  # noqa: PLR2004  patience ends
        for share in self.shares.values():
            tickets, share.retries = share.retries, []
            actions += self._conclude(share, tickets, Outcome.ABORTED, "the run was interrupted")
        if self.interrupts > 1 and self._abort_by is None:
            self._abort_by = now + self._policy.abort_s
            actions += [act.Cancel(share.number) for share in self.shares.values() if share.outstanding]
        return [*actions, *self._advance(now)]

    def _begin_sweep(self, now: float) -> list[act.Action]:
        self.phase = Phase.SWEEPING
        self.trial = None
        self.shares = {}
        self._sweep_by = now + self._policy.sweep_s
        # What was not reached has not begun either; it is the rest of the plan, and counted as such.
        skipped = self._trials[self._position :]
        actions: list[act.Action] = []
        if skipped:
            left = 0
            for trial in skipped:
                count = sum(quota or 0 for _, _, quota in self._quotas(self._treatments[trial.treatment]))
                left += count
                fields = {"trial": trial.index, "not_started": count, "not_started_outcome": "aborted"}
                actions.append(act.Note("trial-skipped", fields))
            self.not_started += left
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
        if self.lost or self.aborted or self._called_off or self.not_started or self._reasons:
            return "incomplete"
        return "complete"

    def _end(self, status: act.RunStatus) -> list[act.Action]:
        self.phase = Phase.OVER
        self.trial = None
        self.shares = {}
        releases: list[act.Action] = [act.Release(member.number) for member in self.roster if member.present]
        return [*releases, act.RunOver(status, tuple(self._reasons))]

    def _after_the_end(self, event: ev.Event) -> list[act.Action]:
        if isinstance(event, ev.Hello):
            return [act.Dismiss(event.peer, "the run is over")]
        return []

    # -- time ---------------------------------------------------------------------------------------------------

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
        for share in self.shares.values():
            if share.arrivals is not None:
                actions += self._hand_out(share, now)
        return actions + self._advance(now)

    def _look_for_stuck_jobs(self, now: float) -> Iterable[act.Action]:
        """Take jobs away from members that heartbeat but give no results within any job's bound."""
        if self.trial is None:
            return []
        limit_s = self._limit_s[self.trial.treatment]
        actions: list[act.Action] = []
        for share in self.shares.values():
            if not share.outstanding:
                continue
            if self._abort_by is not None and now > self._abort_by:
                tickets = sorted(share.outstanding)
                share.outstanding.clear()
                actions += self._conclude(share, tickets, Outcome.ABORTED, "it did not end when it was aborted")
            elif now - share.progressed_at > limit_s:
                member = self.roster[share.number]
                peer = member.peer
                actions += self._miss(member, f"no result for {limit_s:.0f} s, longer than any job can take", now)
                actions.append(act.Dismiss(peer, "its jobs are overdue"))
        return actions


def _counting_rows(tickets: Sequence[int], outstanding: set[int]) -> tuple[int, ...]:
    """Return the positions of tickets that are out, each ticket's first only."""
    seen: set[int] = set()
    rows = []
    for row, ticket in enumerate(tickets):
        if ticket in outstanding and ticket not in seen:
            seen.add(ticket)
            rows.append(row)
    return tuple(rows)
