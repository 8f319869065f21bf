"""What each member holds of the trial under way: its part of the jobs, what is out, what is to be tried anew.

A trial's jobs are divided over the roster when it begins, so the load per host stays what the scenario says. A lost
member's part waits for that member; it is never given to another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench_common.treatment import Treatment
from bench_master.arrivals import Arrivals

AHEAD_S: Final = 0.004
"""About how long the jobs last that wait at a member beyond those that run there: a few round trips."""
MAX_AHEAD: Final = 2048
"""The most jobs that may wait there, and the largest batch."""
PACE_S: Final = 0.01
"""Over how long a member's pace is measured."""
HORIZON_S: Final = 0.5
"""How long before its arrival a job is handed out, in an open system: some ticks of the coordinator's clock."""
MAX_OPEN: Final = 65_536
"""The most jobs of an open system that a member may hold; those beyond are handed out late, and counted from their
own arrival all the same."""


@dataclass(slots=True)
class Share:
    """One member's part of a trial.

    `quota` is how many jobs it gets (None: as many as the time allows), `width` how many may run at once. With
    `look_ahead` some more may be out, that wait for their turn: `fixed_batch` of them, or as many as `AHEAD_S` needs.
    """

    number: int
    width: int
    quota: int | None
    issued: int = 0
    outstanding: set[int] = field(default_factory=set)
    retries: list[int] = field(default_factory=list)
    progressed_at: float = 0.0
    look_ahead: bool = False
    fixed_batch: int | None = None
    ahead: int = 0
    arrivals: Arrivals | None = None
    """When its jobs arrive, in an open system; None where a slot takes the next job when it has ended one."""
    _paced_at: float = 0.0
    _since: int = 0

    def __post_init__(self) -> None:
        if self.look_ahead and self.fixed_batch is not None:
            self.ahead = self.fixed_batch

    @property
    def batch(self) -> int:
        """How many results should leave the member together: half of what it holds, so that it never runs dry."""
        return self.fixed_batch or max(1, (self.width + self.ahead) // 2)

    def progress(self, jobs: int, now: float) -> None:
        """Note that so many jobs have ended, and tune how far to look ahead to the pace."""
        self.progressed_at = now
        if not self.look_ahead or self.fixed_batch is not None:
            return
        self._since += jobs
        passed = now - self._paced_at
        if passed >= PACE_S:
            self.ahead = min(MAX_AHEAD, int(self._since / passed * AHEAD_S))
            self._paced_at, self._since = now, 0

    @property
    def unissued(self) -> int:
        """How many jobs were never handed out; 0 where the number is open."""
        return 0 if self.quota is None else self.quota - self.issued

    @property
    def idle(self) -> bool:
        """Whether nothing is out and nothing is to be tried anew."""
        return not self.outstanding and not self.retries

    @property
    def finished(self) -> bool:
        """Whether it has nothing left to do, now or later."""
        if self.arrivals is not None:
            return self.idle and self.arrivals.exhausted
        return self.idle and self.quota is not None and self.issued >= self.quota

    def arriving(self, before_ns: int) -> list[int]:
        """Take out the arrivals before an instant of the trial (ns) for which there is room."""
        if self.arrivals is None:
            return []
        return self.arrivals.take(before_ns, MAX_OPEN - len(self.outstanding))

    def room(self, *, open_ended: bool) -> int:
        """Return how many fresh jobs may be handed out now; `open_ended` says that time allows more."""
        if self.arrivals is not None:
            return 0
        free = self.width + self.ahead - len(self.outstanding)
        if self.quota is None:
            return max(0, free) if open_ended else 0
        return max(0, min(free, self.quota - self.issued))

    def counting(self, tickets: Sequence[int]) -> tuple[int, ...]:
        """Return the positions of those tickets that are out, each ticket's first only."""
        seen: set[int] = set()
        rows = []
        for row, ticket in enumerate(tickets):
            if ticket in self.outstanding and ticket not in seen:
                seen.add(ticket)
                rows.append(row)
        return tuple(rows)


def divide(total: int, parts: int) -> list[int]:
    """Divide `total` over `parts` as evenly as whole numbers allow, larger parts first."""
    each, rest = divmod(total, parts)
    return [each + (place < rest) for place in range(parts)]


def quotas(treatment: Treatment, members: Sequence[int], user_count: int | None) -> list[tuple[int, int, int | None]]:
    """Return (member number, width, quota) for each of the members that takes part in a treatment.

    `user_count` is how many jobs are in flight over all of them, in place of the treatment's own concurrency.
    """
    if not members:
        return []
    widths = [treatment.concurrency] * len(members) if user_count is None else divide(user_count, len(members))
    counts: list[int | None]
    if treatment.operation_count is not None:
        counts = list(divide(treatment.operation_count, len(members)))
    elif treatment.iterations is not None:
        counts = [treatment.iterations * width for width in widths]
    else:
        counts = [None] * len(members)
    return [(number, width, count) for number, width, count in zip(members, widths, counts, strict=True) if width]
