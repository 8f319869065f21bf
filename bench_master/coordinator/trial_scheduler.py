"""The trials of a run, one at a time: which member gets which job, and how each job ended.

A trial's jobs are divided over the roster when it begins, so the load per host stays what the scenario says; a lost
member's part waits for that member and is never given to another one. In an open system the arrivals follow from the
rate, the seed, the trial and the worker's place alone: a system that falls behind is not asked less often for it (the
error known as coordinated omission). The coordinator decides when a trial may begin, and what follows the last one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from bench_common.records import Outcome, attempt_of, job_id_of, ticket_of
from bench_common.requirements import job_workers
from bench_common.treatment import Treatment
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.policy import Policy
from bench_master.coordinator.population import Populations
from bench_master.coordinator.roster import Member, Presence, Roster
from bench_master.coordinator.share import (
    LOOK_AHEAD_PER_MEMBER_S,
    LOOK_AHEAD_S,
    MAX_LOOK_AHEAD,
    MAX_OPEN_JOBS,
    ArrivalSchedule,
    Share,
    worker_quotas,
)
from bench_master.plan import Trial, allows_look_ahead

ASSIGN_AHEAD_S: Final = 0.5
"""How long before its arrival a job is handed out, in an open system: some ticks of the coordinator's clock."""
FIRST_ARRIVAL_DELAY_S: Final = 0.1
"""How long after a trial's begin its first job can arrive, in an open system."""


class TrialScheduler:
    """The trials of one run and the account of their jobs.

    `seed` fixes when jobs arrive in the trials of an open system; `first_job` is the first id that no job had.
    """

    def __init__(
        self,
        treatments: Sequence[Treatment],
        trials: Sequence[Trial],
        roster: Roster,
        policy: Policy,
        *,
        seed: int,
        first_job: int,
    ) -> None:
        self._treatments = treatments
        self._trials = list(trials)
        self._roster = roster
        self._policy = policy
        self._seed = seed
        self.populations = Populations(treatments, policy.population_timeout_s)
        self.trial: Trial | None = None
        self.shares: dict[int, Share] = {}
        self.interrupted = False
        """Whether the run was interrupted: no more jobs are assigned."""
        self.lost = 0
        self.aborted = 0
        self.not_started = 0
        self.accepted = 0
        self.returned = 0
        self.reasons: list[str] = []
        """What went wrong in trials by time, where no number of jobs can be missing."""
        self._aborted_by_worker = 0
        self._next_trial = 0
        self._first_id = self._next_id = first_job
        self._faults_at_trial_start = 0
        self._trial_ends_at: float | None = None
        self._trial_began_ns = 0
        self._held_at: float | None = None
        self._spoilt: set[int] = set()
        """The trials in which a worker was lost."""

    # -- the account --------------------------------------------------------------------------------------------

    @property
    def assigned(self) -> int:
        """How many different jobs have been assigned."""
        return self._next_id - self._first_id

    @property
    def in_flight(self) -> int:
        """How many tickets are outstanding at this moment."""
        return sum(len(share.outstanding) for share in self.shares.values())

    @property
    def complete(self) -> bool:
        """Whether every job planned so far has run to its end."""
        return not (self._faults or self.not_started or self.reasons)

    @property
    def _faults(self) -> int:
        """How many jobs did not run to their end."""
        return self.lost + self.aborted + self._aborted_by_worker

    def planned_jobs(self) -> int | None:
        """Return how many jobs the whole plan has with the present roster; None where a trial runs by time."""
        jobs = self.trial_jobs()
        total = 0
        for trial in self._trials:
            count = jobs[trial.treatment]
            if count is None:
                return None
            total += count
        return total

    def trial_jobs(self) -> list[int | None]:
        """Return how many jobs a trial of each treatment has with the present roster; None where it runs by time."""
        found: list[int | None] = []
        for treatment in self._treatments:
            quotas = [quota for _, _, quota in self._quotas(treatment)]
            known = [quota for quota in quotas if quota is not None]
            found.append(sum(known) if len(known) == len(quotas) else None)
        return found

    def validate(self) -> None:
        """Assert what must hold between any two events."""
        seen: set[int] = set()
        for share in self.shares.values():
            held = share.outstanding | set(share.retries)
            assert len(held) == len(share.outstanding) + len(share.retries), (
                "a ticket is outstanding and to be retried"
            )
            most = share.concurrency + (MAX_LOOK_AHEAD if share.look_ahead else 0)
            if share.arrivals is not None:
                most = MAX_OPEN_JOBS
            assert len(share.outstanding) <= most, "more jobs outstanding than the member may hold"
            jobs = {job_id_of(ticket) for ticket in held}
            assert len(jobs) == len(held), "two attempts of one job at once"
            assert not jobs & seen, "a job is held twice"
            seen |= jobs
            if not self._roster[share.number].present:
                assert not share.outstanding, "a missing member holds jobs"
        ended = self.accepted + self.lost + self.aborted + self.returned
        assert self.assigned == ended + len(seen), "a job is missing or counted twice"

    # -- pauses ----------------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether no job is assigned for the time being."""
        return self._held_at is not None

    def hold(self, now: float) -> None:
        """Assign no more jobs until `go_on`; those that run go on, and the time of the trial stands still."""
        if self._held_at is None:
            self._held_at = now

    def go_on(self, now: float) -> tuple[float, list[act.Action]]:
        """Assign jobs again, of which there must be no more until now; return for how long there were none (s)."""
        assert self._held_at is not None
        held_s = now - self._held_at
        self._held_at = None
        if self._trial_ends_at is not None:
            self._trial_ends_at += held_s
        self._trial_began_ns += round(held_s * 1e9)
        actions: list[act.Action] = []
        for share in self.shares.values():
            share.last_progress_at = now
            actions += self.assign_jobs(share, now)
        return held_s, actions

    # -- how jobs end -------------------------------------------------------------------------------------------

    def accept_results(self, share: Share, event: ev.ResultsReceived, now: float) -> tuple[int, ...] | None:
        """Note that a member's jobs have ended; return the positions of those that count (None: all)."""
        keep: tuple[int, ...] | None = None
        before = len(share.outstanding)
        if not share.outstanding.issuperset(event.tickets) or len(set(event.tickets)) != len(event.tickets):
            keep = share.outstanding_positions(event.tickets)
        share.outstanding.difference_update(event.tickets)
        self.accepted += before - len(share.outstanding)
        self._aborted_by_worker += event.aborted
        share.progress(len(event.tickets), now)
        return keep

    def accept_returned(self, share: Share, tickets: Sequence[int], now: float) -> int:
        """Take back jobs that never began, which are not missing; return how many of them were outstanding."""
        back = share.outstanding.intersection(tickets)
        share.outstanding -= back
        share.assigned -= len(back)
        if share.quota is not None:
            share.quota -= len(back)
        self.returned += len(back)
        share.last_progress_at = now
        return len(back)

    def requeue_lost(self, share: Share, reason: str) -> list[act.Action]:
        """Queue the jobs of a lost member for a retry when it is back; those tried too often are lost."""
        held = sorted(share.outstanding)
        share.outstanding.clear()
        spent = []
        for ticket in held:
            attempt = attempt_of(ticket) + 1
            if attempt < self._policy.max_attempts and not self.interrupted:
                share.retries.append(ticket_of(job_id_of(ticket), attempt))
            else:
                spent.append(ticket)
        return self._fail_jobs(share, spent, Outcome.LOST, f"its worker was lost: {reason}")

    def fail_retries(self, share: Share, outcome: Outcome, reason: str) -> list[act.Action]:
        """End the jobs that a member was to retry."""
        tickets, share.retries = share.retries, []
        return self._fail_jobs(share, tickets, outcome, reason)

    def abort_outstanding(self, share: Share, reason: str) -> list[act.Action]:
        """End the jobs of a member as aborted, without waiting for it any longer."""
        tickets = sorted(share.outstanding)
        share.outstanding.clear()
        return self._fail_jobs(share, tickets, Outcome.ABORTED, reason)

    def _fail_jobs(self, share: Share, tickets: Sequence[int], outcome: Outcome, reason: str) -> list[act.Action]:
        if not tickets or self.trial is None:
            return []
        if outcome is Outcome.LOST:
            self.lost += len(tickets)
        else:
            self.aborted += len(tickets)
        place = (share.number, self.trial.index, self.trial.treatment)
        return [act.FailJobs(*place, tuple(tickets), outcome, reason)]

    def spoil_trial(self, share: Share, now: float) -> int | None:
        """Note that the worker of a share is lost; return the current trial where it had more to do there.

        What that trial lacks meanwhile, a load or a population, is in its time, so it says nothing of its treatment.
        """
        if self.trial is None or self._is_share_done(share, now):
            return None
        self._spoilt.add(self.trial.index)
        return self.trial.index

    def unmeasured(self) -> list[str]:
        """Return which treatments have no measured trial, as each one that ran has lost a worker.

        A run that is resumed may have others, from before.
        """
        if self._first_id:
            return []
        ran: dict[int, list[bool]] = {}
        for trial in self._trials[: self._next_trial]:
            if not trial.warmup:
                ran.setdefault(trial.treatment, []).append(trial.index in self._spoilt)
        return [
            f"{self._treatments[treatment].title}: {_each_of(len(spoilt))} lost a worker, so nothing was measured"
            for treatment, spoilt in ran.items()
            if all(spoilt)
        ]

    def awaits_member(self) -> bool:
        """Whether a member of the next trial is missing, and may come back."""
        if self.exhausted:
            return False
        treatment = self._treatments[self._trials[self._next_trial].treatment]
        members = (self._roster[number] for number, _, _ in self._quotas(treatment))
        return any(member.presence is Presence.MISSING and not member.barred for member in members)

    # -- trials -------------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Whether every trial has begun."""
        return self._next_trial >= len(self._trials)

    @property
    def next_index(self) -> int:
        """The index of the trial that begins next, of which there must be one."""
        return self._trials[self._next_trial].index

    def is_trial_done(self, now: float) -> bool:
        """Whether every share of the current trial is done."""
        return self.trial is not None and all(self._is_share_done(share, now) for share in self.shares.values())

    def begin_next_trial(self, now: float) -> list[act.Action]:
        """Begin the next trial, of which there must be one."""
        self.trial = trial = self._trials[self._next_trial]
        self._next_trial += 1
        self._faults_at_trial_start = self._faults
        treatment = self._treatments[trial.treatment]
        look_ahead = self._policy.look_ahead and allows_look_ahead(treatment)
        quotas = self._quotas(treatment)
        ahead_s = max(LOOK_AHEAD_S, LOOK_AHEAD_PER_MEMBER_S * len(quotas))
        self.shares = {
            number: Share(
                number,
                concurrency,
                quota,
                look_ahead=look_ahead,
                look_ahead_s=ahead_s,
                shared=len(quotas) > 1,
                fixed_batch=self._policy.batch_size,
            )
            for number, concurrency, quota in quotas
        }
        for part, share in enumerate(self.shares.values()):
            share.last_progress_at = now
            share.arrivals = self._arrivals(trial, part, share.quota)
        self._trial_ends_at = None if treatment.run_seconds is None else now + treatment.run_seconds
        # The first orders have to be there before the first job arrives.
        self._trial_began_ns = round((now + FIRST_ARRIVAL_DELAY_S) * 1e9)
        actions: list[act.Action] = [
            act.LogEvent(
                "trial-begin", {"trial": trial.index, "treatment": trial.treatment, "workers": list(self.shares)}
            )
        ]
        for share in self.shares.values():
            actions += self.assign_jobs(share, now)
        return actions

    def _arrivals(self, trial: Trial, part: int, quota: int | None) -> ArrivalSchedule | None:
        treatment = self._treatments[trial.treatment]
        if treatment.open_load is None:
            return None
        return ArrivalSchedule(
            treatment.open_load,
            seed=(self._seed, trial.index),
            part=part,
            parts=len(self.shares),
            count=quota,
            seconds=treatment.run_seconds,
        )

    def assign_jobs(self, share: Share, now: float) -> list[act.Action]:
        """Assign the jobs that a member has room for, retries first."""
        member, trial = self._roster[share.number], self.trial
        if self.interrupted or trial is None or not member.present or self._held_at is not None:
            return []
        if share.arrivals is None and not share.retries:
            # Nearly every message takes this path.
            fresh = share.free_capacity(open_ended=self._time_left(now))
            if not fresh:
                return []
            return [*self.define(member, trial.treatment), self._assign_fresh(share, trial, fresh)]
        intended = self._take_arrivals(share, now) if share.arrivals is not None else []
        if not share.retries and not intended:
            return []
        actions = self.define(member, trial.treatment)
        if share.retries:
            actions += self._assign_retries(share, trial)
            fresh = 0 if share.retries else share.free_capacity(open_ended=self._time_left(now))
            if fresh and not intended:
                actions.append(self._assign_fresh(share, trial, fresh))
        if intended:
            # Nothing is overdue before it has arrived.
            share.last_progress_at = max(share.last_progress_at, intended[0] / 1e9)
            actions.append(self._assign_fresh(share, trial, len(intended), intended))
        return actions

    def _assign_fresh(
        self, share: Share, trial: Trial, count: int, intended_ns: Sequence[int] = ()
    ) -> act.AssignJobs:
        """Assign so many jobs that nobody had before."""
        tickets = range(self._next_id, self._next_id + count)
        self._next_id += count
        share.assigned += count
        share.outstanding.update(tickets)
        return act.AssignJobs(
            share.number, trial.index, trial.treatment, tickets, share.concurrency, share.batch, intended_ns
        )

    def _assign_retries(self, share: Share, trial: Trial) -> list[act.Action]:
        """Assign as many of the jobs to retry as the member may hold."""
        most = share.concurrency if share.arrivals is None else MAX_OPEN_JOBS
        retried = tuple(share.retries[: max(0, most - len(share.outstanding))])
        if not retried:
            return []
        del share.retries[: len(retried)]
        share.outstanding.update(retried)
        place = (share.number, trial.index, trial.treatment)
        return [act.AssignJobs(*place, retried, share.concurrency, share.batch)]

    def define(self, member: Member, treatment: int) -> list[act.Action]:
        """Tell a member what a treatment is, unless it knows."""
        if treatment in member.known_treatments:
            return []
        member.known_treatments.add(treatment)
        return [act.DefineTreatment(member.number, treatment, *self.populations.part(treatment, member.number))]

    def define_for_cleanup(self, member: Member) -> list[act.Action]:
        """Tell a member that came back for the clean-up what stores were filled: it opens them, and fills none."""
        begun = self.populations.begun()
        member.known_treatments.update(begun)
        # Nobody has a part of that number.
        return [act.DefineTreatment(member.number, treatment, 1, 1) for treatment in begun]

    def begin_population(self, now: float) -> list[act.Action]:
        """Have the members of the next trial, of which there must be one, fill the store where they have not yet."""
        treatment = self._trials[self._next_trial].treatment
        numbers = [number for number, _, _ in self._quotas(self._treatments[treatment])]
        asked = self.populations.begin(treatment, numbers, self._roster, now)
        return [action for number in asked for action in self.define(self._roster[number], treatment)]

    def _take_arrivals(self, share: Share, now: float) -> list[int]:
        """Remove and return the arrival times (ns of our clock) of the jobs to assign by now."""
        began_ns = self._trial_began_ns
        return [began_ns + at for at in share.take_arrivals(round((now + ASSIGN_AHEAD_S) * 1e9) - began_ns)]

    def _time_left(self, now: float) -> bool:
        now = now if self._held_at is None else self._held_at
        return self._trial_ends_at is not None and now < self._trial_ends_at

    def _is_share_done(self, share: Share, now: float) -> bool:
        """Whether a share has no more jobs in this trial."""
        if not share.idle:
            return False
        if self.interrupted or share.finished or self._roster[share.number].presence is Presence.LOST:
            return True
        return share.quota is None and share.arrivals is None and not self._time_left(now)

    def end_trial(self) -> list[act.Action]:
        """End the current trial; jobs that were not assigned are not started."""
        assert self.trial is not None
        treatment = self._treatments[self.trial.treatment]
        left = sum(share.unassigned for share in self.shares.values())
        if not self.shares:
            left = treatment.operation_count or treatment.concurrency * (treatment.iterations or 0)
        outcome = Outcome.ABORTED if self.interrupted else Outcome.LOST
        self.not_started += left
        complete = bool(self.shares) and not left and self._faults == self._faults_at_trial_start
        for share in self.shares.values():
            if share.quota is None and (self.interrupted or not self._roster[share.number].present):
                complete = False
            # A trial by time has no number of jobs that could be missing, so its missing worker is reported.
            member = self._roster[share.number]
            if share.quota is None and not member.present and not self.interrupted:
                reason = f"worker {member.worker_id} was missing from a trial that runs by time"
                self.reasons += [reason] if reason not in self.reasons else []
        missing = {"not_started": left, "not_started_outcome": outcome.name.lower()}
        self.shares = {}
        # An incomplete trial is run again when the run is resumed.
        return [act.LogEvent("trial-end", {"trial": self.trial.index, **missing, "complete": complete})]

    @property
    def next_trial(self) -> Trial | None:
        """The trial that begins next; None after the last."""
        return None if self.exhausted else self._trials[self._next_trial]

    def leave_out(self, treatments: Container[int] | None, reason: str) -> list[act.Action]:
        """Leave out the trials of these treatments (None: all) that have not begun, as nobody needs them any more."""
        actions: list[act.Action] = []
        kept: list[Trial] = []
        jobs = self.trial_jobs()
        for trial in self._trials[self._next_trial :]:
            if treatments is not None and trial.treatment not in treatments:
                kept.append(trial)
                continue
            fields = {"trial": trial.index, "not_started": 0, "not_started_outcome": "aborted", "reason": reason}
            actions.append(act.LogEvent("trial-skipped", {**fields, "not_needed": jobs[trial.treatment] or 0}))
        self._trials[self._next_trial :] = kept
        return actions

    def skip_remaining_trials(self) -> list[act.Action]:
        """Skip the trials that have not begun; their jobs count as not started."""
        self.clear_trial()
        actions: list[act.Action] = []
        for trial in self._trials[self._next_trial :]:
            count = sum(quota or 0 for _, _, quota in self._quotas(self._treatments[trial.treatment]))
            self.not_started += count
            fields = {"trial": trial.index, "not_started": count, "not_started_outcome": "aborted"}
            actions.append(act.LogEvent("trial-skipped", fields))
        return actions

    def clear_trial(self) -> None:
        """Leave no trial current."""
        self.trial = None
        self.shares = {}

    def _quotas(self, treatment: Treatment) -> list[tuple[int, int, int | None]]:
        members = [one.number for one in job_workers(treatment, self._roster.in_environment(treatment.environment))]
        return worker_quotas(treatment, members, self._policy.user_count)


def _each_of(trials: int) -> str:
    return "its only trial" if trials == 1 else f"each of its {trials} trials"
