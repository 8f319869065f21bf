"""The trials of a run, one at a time: which member gets which job, and how each job ended.

A trial's jobs are divided over the roster when it begins, so the load per host stays what the scenario says; a lost
member's part waits for that member and is never given to another one. In an open system the arrivals follow from the
rate, the seed, the trial and the worker's place alone: a system that falls behind is not asked less often for it (the
error known as coordinated omission). The coordinator decides when a trial may begin, and what follows the last one.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from bench_common.records import Outcome, attempt_of, job_id_of, ticket_of
from bench_common.requirements import job_workers
from bench_common.treatment import OpenLoad, Treatment
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.coordinator.messages import Policy
from bench_master.coordinator.roster import Presence, Roster
from bench_master.plan import Trial, allows_look_ahead

Timestamps = npt.NDArray[np.int64]

DRAW_BLOCK: Final = 4096
"""How many arrivals are drawn at once, so that a trial of any length takes the same memory."""


class ArrivalSchedule:
    """The arrivals at worker `part` of `parts` in one trial, in nanoseconds from the trial's begin.

    ``constant``: the trial's arrivals are evenly spaced and go round the workers. ``poisson``: each worker has a
    Poisson process of its own with its part of the rate; together they are one with the whole rate. They end after
    `count` arrivals, or before `seconds` have passed. `seed` is any number of non-negative integers.
    """

    def __init__(
        self,
        load: OpenLoad,
        *,
        seed: tuple[int, ...],
        part: int,
        parts: int,
        count: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self._gap_ns = 1e9 * parts / load.rate_per_s
        self._offset_ns = 1e9 * part / load.rate_per_s
        self._remaining = count
        self._until_ns = math.inf if seconds is None else seconds * 1e9
        self._random = None
        if load.process == "poisson":
            self._random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([*seed, part])))
        self._drawn = 0
        self._last_ns = 0.0
        self._ready: Timestamps = np.zeros(0, np.int64)

    @property
    def exhausted(self) -> bool:
        """Whether no more jobs will arrive."""
        self._refill()
        return not len(self._ready)

    def take(self, before_ns: float, most: int) -> list[int]:
        """Take out the arrivals before an instant, at most so many of them; return them in order."""
        taken: list[int] = []
        while len(taken) < most:
            self._refill()
            count = min(int(np.searchsorted(self._ready, before_ns)), most - len(taken))
            if not count:
                break
            taken += self._ready[:count].tolist()
            self._ready = self._ready[count:]
        return taken

    def _refill(self) -> None:
        """Draw more arrivals when none is ready, unless none is left."""
        if len(self._ready) or self._remaining == 0:
            return
        size = DRAW_BLOCK if self._remaining is None else min(DRAW_BLOCK, self._remaining)
        if self._random is None:
            instants = self._offset_ns + self._gap_ns * np.arange(self._drawn, self._drawn + size)
        else:
            instants = self._last_ns + np.cumsum(self._random.exponential(self._gap_ns, size))
        self._drawn += size
        self._last_ns = float(instants[-1])
        within = instants[instants < self._until_ns]
        if len(within) < size:
            self._remaining = 0
        elif self._remaining is not None:
            self._remaining -= size
        self._ready = np.rint(within).astype(np.int64)


LOOK_AHEAD_S: Final = 0.004
"""About how long the jobs last that wait at a member beyond those that run there: a few round trips."""
MAX_LOOK_AHEAD: Final = 2048
"""The most jobs that may wait there, and the largest batch."""
RATE_WINDOW_S: Final = 0.01
"""Over how long a member's pace is measured."""
ASSIGN_AHEAD_S: Final = 0.5
"""How long before its arrival a job is handed out, in an open system: some ticks of the coordinator's clock."""
MAX_OPEN_JOBS: Final = 65_536
"""The most jobs of an open system that a member may hold; those beyond are handed out late, and counted from their
own arrival all the same."""


@dataclass(slots=True)
class Share:
    """One member's part of a trial."""

    number: int
    """The member's number in the roster."""
    concurrency: int
    """How many jobs may run at once."""
    quota: int | None
    """How many jobs it gets in total; None: as many as the time allows."""
    assigned: int = 0
    """How many jobs were assigned to it so far."""
    outstanding: set[int] = field(default_factory=set)
    """The tickets that it holds."""
    retries: list[int] = field(default_factory=list)
    """The tickets of jobs to retry there."""
    last_progress_at: float = 0.0
    """When jobs were last assigned to it or returned by it (s)."""
    look_ahead: bool = False
    """Whether jobs may wait there for a free slot."""
    fixed_batch: int | None = None
    """How many of them, if the user set it; None: as many as `LOOK_AHEAD_S` needs."""
    look_ahead_jobs: int = 0
    """How many may wait there now."""
    arrivals: ArrivalSchedule | None = None
    """When its jobs arrive, in an open system; None where slots start the next job when one ends."""
    waits_for_engine: bool = False
    """Whether the jobs that have not begun wait for their engine to answer."""
    _progress_since_outage: bool = True
    _window_start: float = 0.0
    _since: int = 0

    def __post_init__(self) -> None:
        if self.look_ahead and self.fixed_batch is not None:
            self.look_ahead_jobs = self.fixed_batch

    @property
    def batch(self) -> int:
        """How many results should leave the member together: half of what it holds, so that it never runs dry."""
        return self.fixed_batch or max(1, (self.concurrency + self.look_ahead_jobs) // 2)

    def progress(self, jobs: int, now: float) -> None:
        """Note that so many jobs have ended, and tune how far to look ahead to the pace."""
        self.last_progress_at = now
        self._progress_since_outage = True
        if not self.look_ahead or self.fixed_batch is not None:
            return
        self._since += jobs
        passed = now - self._window_start
        if passed >= RATE_WINDOW_S:
            self.look_ahead_jobs = min(MAX_LOOK_AHEAD, int(self._since / passed * LOOK_AHEAD_S))
            self._window_start, self._since = now, 0

    def engine_outage(self, began: bool, now: float) -> None:  # noqa: FBT001  one of two states
        """Note that its jobs wait for their engine from now on, or do no longer.

        At the end they get their time anew, but never twice without a result between: a worker that only reports
        outages must not hold up the run.
        """
        self.waits_for_engine = began
        if not began and self._progress_since_outage:
            self.last_progress_at = now
            self._progress_since_outage = False

    @property
    def unassigned(self) -> int:
        """How many jobs were never assigned; 0 where their number is open."""
        return 0 if self.quota is None else self.quota - self.assigned

    @property
    def idle(self) -> bool:
        """Whether no job is outstanding or to be retried."""
        return not self.outstanding and not self.retries

    @property
    def finished(self) -> bool:
        """Whether it has nothing left to do, now or later."""
        if self.arrivals is not None:
            return self.idle and self.arrivals.exhausted
        return self.idle and self.quota is not None and self.assigned >= self.quota

    def take_arrivals(self, before_ns: int) -> list[int]:
        """Remove and return the arrivals before an instant of the trial (ns) that there is room for."""
        if self.arrivals is None:
            return []
        return self.arrivals.take(before_ns, MAX_OPEN_JOBS - len(self.outstanding))

    def free_capacity(self, *, open_ended: bool) -> int:
        """Return how many new jobs may be assigned now; `open_ended` says that the time allows more."""
        if self.arrivals is not None:
            return 0
        free = self.concurrency + self.look_ahead_jobs - len(self.outstanding)
        if self.quota is None:
            return max(0, free) if open_ended else 0
        return max(0, min(free, self.quota - self.assigned))

    def outstanding_positions(self, tickets: Sequence[int]) -> tuple[int, ...]:
        """Return the positions of those tickets that are outstanding, the first of each."""
        seen: set[int] = set()
        rows = []
        for row, ticket in enumerate(tickets):
            if ticket in self.outstanding and ticket not in seen:
                seen.add(ticket)
                rows.append(row)
        return tuple(rows)


def split_evenly(total: int, parts: int) -> list[int]:
    """Divide `total` over `parts` as evenly as whole numbers allow, larger parts first."""
    each, rest = divmod(total, parts)
    return [each + (place < rest) for place in range(parts)]


def worker_quotas(
    treatment: Treatment, members: Sequence[int], user_count: int | None
) -> list[tuple[int, int, int | None]]:
    """Return (member number, concurrency, quota) for each of the members that takes part in a treatment.

    `user_count` is how many jobs are in flight over all of them, in place of the treatment's own concurrency.
    """
    if not members:
        return []
    widths = [treatment.concurrency] * len(members) if user_count is None else split_evenly(user_count, len(members))
    counts: list[int | None]
    if treatment.operation_count is not None:
        counts = list(split_evenly(treatment.operation_count, len(members)))
    elif treatment.iterations is not None:
        counts = [treatment.iterations * width for width in widths]
    else:
        counts = [None] * len(members)
    return [(number, width, count) for number, width, count in zip(members, widths, counts, strict=True) if width]


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
        self.shares = {
            number: Share(number, concurrency, quota, look_ahead=look_ahead, fixed_batch=self._policy.batch_size)
            for number, concurrency, quota in self._quotas(treatment)
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
        member = self._roster[share.number]
        trial = self.trial
        if self.interrupted or trial is None or not member.present:
            return []
        fresh = 0 if share.retries else share.free_capacity(open_ended=self._time_left(now))
        intended = self._take_arrivals(share, now) if share.arrivals is not None else ()
        if not fresh and not share.retries and not intended:
            return []
        actions: list[act.Action] = []
        place = (member.number, trial.index, trial.treatment)
        if trial.treatment not in member.known_treatments:
            member.known_treatments.add(trial.treatment)
            actions.append(act.DefineTreatment(member.number, trial.treatment))
        if share.retries:
            most = share.concurrency if share.arrivals is None else MAX_OPEN_JOBS
            retried = tuple(share.retries[: max(0, most - len(share.outstanding))])
            del share.retries[: len(retried)]
            share.outstanding.update(retried)
            if retried:
                actions.append(act.AssignJobs(*place, retried, share.concurrency, share.batch))
            fresh = 0 if share.retries else share.free_capacity(open_ended=self._time_left(now))
        if intended:
            # Nothing is overdue before it has arrived.
            share.last_progress_at = max(share.last_progress_at, intended[0] / 1e9)
            fresh = len(intended)
        if fresh:
            tickets = range(self._next_id, self._next_id + fresh)
            self._next_id += fresh
            share.assigned += fresh
            share.outstanding.update(tickets)
            actions.append(act.AssignJobs(*place, tickets, share.concurrency, share.batch, intended))
        return actions

    def _take_arrivals(self, share: Share, now: float) -> list[int]:
        """Remove and return the arrival times (ns of our clock) of the jobs to assign by now."""
        began_ns = self._trial_began_ns
        return [began_ns + at for at in share.take_arrivals(round((now + ASSIGN_AHEAD_S) * 1e9) - began_ns)]

    def _time_left(self, now: float) -> bool:
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
