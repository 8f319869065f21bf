"""What each member holds of the trial under way: its part of the jobs, what is out, what is to be tried anew.

A trial's jobs are divided over the roster when it begins, so the load per host stays what the scenario says. A lost
member's part waits for that member; it is never given to another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Share:
    """One member's part of a trial.

    `quota` is how many jobs it gets (None: as many as the time allows), `width` how many may be out at once.
    """

    number: int
    width: int
    quota: int | None
    issued: int = 0
    outstanding: set[int] = field(default_factory=set)
    retries: list[int] = field(default_factory=list)
    progressed_at: float = 0.0

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
        return self.idle and self.quota is not None and self.issued >= self.quota

    def room(self, *, open_ended: bool) -> int:
        """Return how many fresh jobs may be handed out now; `open_ended` says that time allows more."""
        free = self.width - len(self.outstanding)
        if self.quota is None:
            return max(0, free) if open_ended else 0
        return max(0, min(free, self.quota - self.issued))


def divide(total: int, parts: int) -> list[int]:
    """Divide `total` over `parts` as evenly as whole numbers allow, larger parts first."""
    each, rest = divmod(total, parts)
    return [each + (place < rest) for place in range(parts)]
