"""The trials of a run, one at a time: who gets which job of the one under way, and how each job ended.

The course begins and ends trials, hands out jobs and keeps the account of them: each job that was issued is out, to
be tried anew, accepted, lost, aborted or given back. When a trial may begin, and what follows the last one, is not
its to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench_common.placement import takers
from bench_common.records import Outcome, attempt_of, job_id_of, ticket_of
from bench_common.treatment import Treatment
from bench_master.arrivals import Arrivals
from bench_master.coordinator import actions as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.policy import Policy
from bench_master.coordinator.roster import Presence, Roster
from bench_master.coordinator.shares import HORIZON_S, MAX_AHEAD, MAX_OPEN, Share, quotas
from bench_master.plan import Trial, independent

LEAD_S: Final = 0.1
"""How long after a trial's begin its first job can arrive, in an open system."""


class Course:
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
        self._trials = trials
        self._roster = roster
        self._policy = policy
        self._seed = seed
        self.trial: Trial | None = None
        self.shares: dict[int, Share] = {}
        self.stopped = False
        """Whether the run was interrupted: nothing more is handed out."""
        self.lost = 0
        self.aborted = 0
        self.not_started = 0
        self.accepted = 0
        self.returned = 0
        self.reasons: list[str] = []
        """What was wrong with trials that have no number of jobs that could be missing."""
        self._called_off = 0
        self._position = 0
        self._first_id = self._next_id = first_job
        self._faults_before = 0
        self._trial_ends_at: float | None = None
        self._trial_began_ns = 0

    # -- the account --------------------------------------------------------------------------------------------

    @property
    def issued(self) -> int:
        """How many different jobs have been handed out."""
        return self._next_id - self._first_id

    @property
    def in_flight(self) -> int:
        """How many tickets are out at this moment."""
        return sum(len(share.outstanding) for share in self.shares.values())

    @property
    def whole(self) -> bool:
        """Whether every job that was planned up to now has been run to its end."""
        return not (self._faults or self.not_started or self.reasons)

    @property
    def _faults(self) -> int:
        """How many jobs ended without being run to their end."""
        return self.lost + self.aborted + self._called_off

    def planned_jobs(self) -> int | None:
        """Return how many jobs the whole plan has with the present roster; None where a trial runs by time."""
        total = 0
        for trial in self._trials:
            parts = self._quotas(self._treatments[trial.treatment])
            if any(quota is None for _, _, quota in parts):
                return None
            total += sum(quota or 0 for _, _, quota in parts)
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
            if not self._roster[share.number].present:
                assert not share.outstanding, "a missing member holds jobs"
        ended = self.accepted + self.lost + self.aborted + self.returned
        assert self.issued == ended + len(seen), "a job has vanished or is doubled"

    # -- how jobs end -------------------------------------------------------------------------------------------

    def take(self, share: Share, event: ev.Finished, now: float) -> tuple[int, ...] | None:
        """Take in that a member's jobs have ended; return the rows of them that count (None: all)."""
        keep: tuple[int, ...] | None = None
        before = len(share.outstanding)
        if not share.outstanding.issuperset(event.tickets) or len(set(event.tickets)) != len(event.tickets):
            keep = share.counting(event.tickets)
        share.outstanding.difference_update(event.tickets)
        self.accepted += before - len(share.outstanding)
        self._called_off += event.aborted
        share.progress(len(event.tickets), now)
        return keep

    def take_back(self, share: Share, tickets: Sequence[int], now: float) -> int:
        """Take back jobs that were never begun, and are not missing; return how many of them were out."""
        back = share.outstanding.intersection(tickets)
        share.outstanding -= back
        share.issued -= len(back)
        if share.quota is not None:
            share.quota -= len(back)
        self.returned += len(back)
        share.progressed_at = now
        return len(back)

    def bereave(self, share: Share, reason: str) -> list[act.Action]:
        """Take what a lost member held: to be tried anew when it is back, or lost where it was tried often enough."""
        held = sorted(share.outstanding)
        share.outstanding.clear()
        spent = []
        for ticket in held:
            attempt = attempt_of(ticket) + 1
            if attempt < self._policy.max_attempts and not self.stopped:
                share.retries.append(ticket_of(job_id_of(ticket), attempt))
            else:
                spent.append(ticket)
        return self._conclude(share, spent, Outcome.LOST, f"its worker was lost: {reason}")

    def give_up(self, share: Share, outcome: Outcome, reason: str) -> list[act.Action]:
        """Conclude what a member was to try anew."""
        tickets, share.retries = share.retries, []
        return self._conclude(share, tickets, outcome, reason)

    def abandon(self, share: Share, reason: str) -> list[act.Action]:
        """Conclude what a member holds as aborted, without waiting for it any longer."""
        tickets = sorted(share.outstanding)
        share.outstanding.clear()
        return self._conclude(share, tickets, Outcome.ABORTED, reason)

    def _conclude(self, share: Share, tickets: Sequence[int], outcome: Outcome, reason: str) -> list[act.Action]:
        if not tickets or self.trial is None:
            return []
        if outcome is Outcome.LOST:
            self.lost += len(tickets)
        else:
            self.aborted += len(tickets)
        place = (share.number, self.trial.index, self.trial.treatment)
        return [act.Conclude(*place, tuple(tickets), outcome, reason)]

    # -- trials -------------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Whether every trial has begun."""
        return self._position >= len(self._trials)

    def over(self, now: float) -> bool:
        """Whether the trial under way has nothing more to give."""
        return self.trial is not None and all(self._over_for(share, now) for share in self.shares.values())

    def begin(self, now: float) -> list[act.Action]:
        """Begin the next trial, of which there must be one."""
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
            actions += self.hand_out(share, now)
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

    def hand_out(self, share: Share, now: float) -> list[act.Action]:
        """Hand a member what it has room for: what is to be tried anew first."""
        member = self._roster[share.number]
        trial = self.trial
        if self.stopped or trial is None or not member.present:
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
        if self.stopped or share.finished or self._roster[share.number].presence is Presence.GONE:
            return True
        return share.quota is None and share.arrivals is None and not self._time_left(now)

    def end(self) -> list[act.Action]:
        """End the trial under way; what it has not handed out is not started."""
        assert self.trial is not None
        treatment = self._treatments[self.trial.treatment]
        left = sum(share.unissued for share in self.shares.values())
        if not self.shares:
            left = treatment.operation_count or treatment.concurrency * (treatment.iterations or 0)
        outcome = Outcome.ABORTED if self.stopped else Outcome.LOST
        self.not_started += left
        whole = bool(self.shares) and not left and self._faults == self._faults_before
        for share in self.shares.values():
            if share.quota is None and (self.stopped or not self._roster[share.number].present):
                whole = False
            # A trial that runs by time has no number of jobs that could be missing: its missing worker is told of.
            member = self._roster[share.number]
            if share.quota is None and not member.present and not self.stopped:
                reason = f"worker {member.worker_id} was missing from a trial that runs by time"
                self.reasons += [reason] if reason not in self.reasons else []
        missing = {"not_started": left, "not_started_outcome": outcome.name.lower()}
        self.shares = {}
        # What is not whole is run again when the run is resumed.
        return [act.Note("trial-end", {"trial": self.trial.index, **missing, "whole": whole})]

    def skip_rest(self) -> list[act.Action]:
        """Give up the trials that have not begun: they are the rest of the plan, and counted as such."""
        self.close()
        actions: list[act.Action] = []
        for trial in self._trials[self._position :]:
            count = sum(quota or 0 for _, _, quota in self._quotas(self._treatments[trial.treatment]))
            self.not_started += count
            fields = {"trial": trial.index, "not_started": count, "not_started_outcome": "aborted"}
            actions.append(act.Note("trial-skipped", fields))
        return actions

    def close(self) -> None:
        """Have no trial under way any more."""
        self.trial = None
        self.shares = {}

    def _quotas(self, treatment: Treatment) -> list[tuple[int, int, int | None]]:
        members = [one.number for one in takers(treatment, self._roster.in_environment(treatment.environment))]
        return quotas(treatment, members, self._policy.user_count)
