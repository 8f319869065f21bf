"""Which workers fill the store before the first trial of a treatment, and who is still at it.

The objects that exist beforehand are divided among the workers of a treatment, once: a part whose worker is lost
stays without one until it is back. The first trial begins when each worker has filled its part, so that no time of a
trial goes into this. A worker that comes back fills its part again before its next job.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from bench_master.coordinator.roster import Presence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.treatment import Treatment
    from bench_master.coordinator.roster import Roster


MAX_ASKED: Final = 3
"""How often a worker that is lost while it fills a store is asked again before a trial begins without that."""


class _Filling(Struct):
    """A store that is being filled for a treatment."""

    treatment: int
    epochs: dict[int, int]
    """The epoch of each member that is at it, by number."""
    heard_at: dict[int, float] = field(default_factory=dict)
    """When each of them last reported progress."""
    objects: dict[int, int] = field(default_factory=dict)
    """How many objects each of them, and those that are done, have made or found there."""


class Populations:
    """The parts of each treatment's population, and the store that is being filled."""

    def __init__(self, treatments: Sequence[Treatment], timeout_s: float) -> None:
        self._planned = [treatment.job.population for treatment in treatments]
        self._timeout_s = timeout_s
        self._members: dict[int, list[int]] = {}
        self._filling: _Filling | None = None
        self._asked: Counter[tuple[int, int]] = Counter()
        """How often each member was asked to fill the store for each treatment."""
        self._deleted: dict[tuple[int, int], int] = {}
        """How many objects each member has deleted for each treatment."""

    @property
    def filling(self) -> str:
        """How far the filling of a store is, in words; empty where none is being filled."""
        if self._filling is None:
            return ""
        done, planned = sum(self._filling.objects.values()), self._planned[self._filling.treatment]
        return f"filling the store: {done:,} of {planned:,} objects"

    @property
    def deleted(self) -> int:
        """How many objects have been deleted from stores."""
        return sum(self._deleted.values())

    def deleted_by(self, number: int) -> int:
        """Return how many of them a member has deleted."""
        return sum(objects for (_, member), objects in self._deleted.items() if member == number)

    def begun(self) -> list[int]:
        """Return the treatments of which somebody was asked to fill the store."""
        return sorted(self._members)

    def part(self, treatment: int, number: int) -> tuple[int, int]:
        """Return which part of how many is a member's; one that was not there in the beginning has none."""
        members = self._members.get(treatment)
        if not members:
            return 0, 1
        return (members.index(number) if number in members else len(members)), len(members)

    def begin(self, treatment: int, numbers: Sequence[int], roster: Roster, now: float) -> list[int]:
        """Return the members that have to fill the store before a trial: those that do not know its treatment."""
        if self._planned[treatment] is None:
            return []
        self._members.setdefault(treatment, list(numbers))
        new = [
            number
            for number in numbers
            if roster[number].present
            and treatment not in roster[number].known_treatments
            and self._asked[treatment, number] < MAX_ASKED
        ]
        if new:
            self._asked.update((treatment, number) for number in new)
            epochs = {number: roster[number].epoch for number in new}
            self._filling = _Filling(treatment, epochs, dict.fromkeys(new, now))
        return new

    def clearing(self, treatment: int, number: int, objects: int) -> None:
        """Note how many objects a member has deleted."""
        self._deleted[treatment, number] = objects

    def progress(self, treatment: int, number: int, now: float, objects: int, *, over: bool) -> None:
        """Note that a member made progress, which made or found so many objects in all, or that it is done."""
        filling = self._filling
        if filling is None or filling.treatment != treatment or number not in filling.epochs:
            return
        filling.heard_at[number] = now
        filling.objects[number] = objects
        if over:
            del filling.epochs[number]

    def waits(self, roster: Roster, now: float) -> bool:
        """Whether a trial waits for a member that fills the store, or may come back to do so; not if it is stuck.

        One that came back has to be asked again, which ends the wait, too.
        """
        filling = self._filling
        if filling is None:
            return False
        waits = any(
            roster[number].presence is not Presence.LOST
            and now - filling.heard_at[number] < self._timeout_s
            and (not roster[number].present or roster[number].epoch == epoch)
            for number, epoch in filling.epochs.items()
        )
        if not waits:
            self._filling = None
        return waits

    def postpone(self, seconds: float) -> None:
        """Give everybody more time: the master could not receive their messages."""
        if self._filling is not None:
            self._filling.heard_at = {number: at + seconds for number, at in self._filling.heard_at.items()}
