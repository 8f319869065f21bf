"""One member's part of a trial: which jobs it holds, how many more it may get, and when its jobs arrive.

With look-ahead more jobs than run there wait at a member, so that it never waits for the master; how many follows
from its pace. In an open system an `ArrivalSchedule` says when its jobs arrive, whatever became of those before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.treatment import OpenLoad, Treatment

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
LOOK_AHEAD_PER_MEMBER_S: Final = 0.001
"""The same for each member of the trial, where that is more: with many members each sends less often, and the
master gets about as many messages a second from two hundred of them as from ten."""
ONE_AHEAD_S: Final = 0.1
"""Of jobs that last longer than `LOOK_AHEAD_S`, up to this, a single one waits there: it need not be fetched."""
MAX_LOOK_AHEAD: Final = 2048
"""The most jobs that may wait there, and the largest batch."""
MAX_WHOLE: Final = 64
"""Up to so many jobs at once, without look-ahead, are a single message."""
RATE_WINDOW: Final = 2.5
"""Over how long a member's pace is measured, in multiples of that time."""
MAX_OPEN_JOBS: Final = 65_536
"""The most jobs of an open system that a member may hold; those beyond are handed out late, and counted from their
own arrival all the same."""


class Pace(Struct):
    """How many jobs end in a second, measured over one window of time after the other."""

    _start: float = 0.0
    _jobs: int = 0

    def add(self, jobs: int, now: float, window_s: float) -> float | None:
        """Count jobs that have ended; return the pace when the window has lasted `window_s`, and begin another."""
        self._jobs += jobs
        passed = now - self._start
        if passed < window_s:
            return None
        pace = self._jobs / passed
        self._start, self._jobs = now, 0
        return pace


class Share(Struct):
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
    """How many of them, if the user set it; None: as many as `look_ahead_s` needs."""
    look_ahead_s: float = LOOK_AHEAD_S
    """About how long the jobs last that wait there."""
    shared: bool = False
    """Whether other members take part in the trial."""
    look_ahead_jobs: int = 0
    """How many may wait there now."""
    arrivals: ArrivalSchedule | None = None
    """When its jobs arrive, in an open system; None where slots start the next job when one ends."""
    _pace: Pace = field(default_factory=Pace)
    _long_pace: Pace = field(default_factory=Pace)
    _fewest: int = 0
    """How many may wait there at least."""

    def __post_init__(self) -> None:
        if self.look_ahead and self.fixed_batch is not None:
            self.look_ahead_jobs = self.fixed_batch

    @property
    def batch(self) -> int:
        """How many results should leave the member together: half of what it holds, so that it never runs dry.

        Without look-ahead it is all of them where that half would not keep both sides busy: a message of few jobs
        takes each side about as long as one of many, and the other members keep the master busy anyway.
        """
        if self.fixed_batch is not None:
            return self.fixed_batch
        if not self.look_ahead and (self.shared or self.concurrency <= MAX_WHOLE):
            return self.concurrency
        return max(1, (self.concurrency + self.look_ahead_jobs) // 2)

    def progress(self, jobs: int, now: float) -> None:
        """Note that so many jobs have ended, and tune how far to look ahead to the pace."""
        self.last_progress_at = now
        if not self.look_ahead or self.fixed_batch is not None:
            return
        # Over a few milliseconds two slow jobs that end together would pass for fast ones.
        pace = self._long_pace.add(jobs, now, RATE_WINDOW * ONE_AHEAD_S)
        if pace is not None:
            self._fewest = int(pace * ONE_AHEAD_S >= self.concurrency)
        pace = self._pace.add(jobs, now, RATE_WINDOW * self.look_ahead_s)
        if pace is not None:
            self.look_ahead_jobs = max(self._fewest, min(MAX_LOOK_AHEAD, int(pace * self.look_ahead_s)))

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
    # A member without a job in flight would never do its part of the jobs.
    members = members if user_count is None else members[:user_count]
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
    return list(zip(members, widths, counts, strict=True))
