"""The workers of a run: members join, send heartbeats, are lost, and reconnect under a new epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct, field

from bench_common.ordered import OrderedReceiver

MAX_STALE_BATCHES: Final = 10_000
"""How many batches of ended epochs are remembered, so that one that is sent again is counted once."""


class Presence(Enum):
    """Whether a member takes part; the live view shows these words.

    A missing member may still reconnect, a lost one is given up.
    """

    PRESENT = "ready"
    MISSING = "missing"
    LOST = "lost"


class SequenceLog(Struct):
    """Which batches of an epoch were received: all below `contiguous`, and some after a gap."""

    contiguous: int = 0
    after_gap: set[int] = field(default_factory=set)

    def admit(self, sequence: int) -> bool:
        """Note a batch; return False for one that was received before."""
        if sequence < self.contiguous or sequence in self.after_gap:
            return False
        self.after_gap.add(sequence)
        while self.contiguous in self.after_gap:
            self.after_gap.remove(self.contiguous)
            self.contiguous += 1
        return True


class Member(Struct):
    """One worker of the roster; times are seconds."""

    number: int
    """Its number in the roster and in the stats file."""
    worker_id: str
    environment: str
    slots: int
    """How many jobs it can run at once."""
    identity: str | None
    """The name that its key proves; None without keys."""
    peer: bytes
    """Its address on the control socket."""
    epoch: int
    """The number of its present connection; every reconnect gets a new one."""
    last_heard_at: float
    """When it last sent anything."""
    starved_at: float = -math.inf
    """When it was last known to be alive and to wait for a CPU."""
    presence: Presence = Presence.PRESENT
    missing_since: float = 0.0
    """When it was last marked missing."""
    missing_reason: str = ""
    known_treatments: set[int] = field(default_factory=set)
    """The treatments that it was sent."""
    sequences: SequenceLog = field(default_factory=SequenceLog)
    """The batches received in this epoch."""
    reports: OrderedReceiver = field(default_factory=OrderedReceiver)
    """Which of its numbered control messages were taken in this epoch."""
    cleaning: bool = False
    """Whether it was asked to clean up its host at the end of the run."""
    cleaned_up: bool = False
    """Whether it has cleaned up its host at the end of the run."""
    heard_in_epoch: bool = False
    """Whether it sent a heartbeat in this epoch: then it knows that it was admitted."""
    barred: str = ""
    """Why it may not join again; empty if it may."""
    clock_known: bool = True
    """Whether the offset of its clock to ours is known."""

    @property
    def present(self) -> bool:
        """Whether it can be assigned jobs."""
        return self.presence is Presence.PRESENT


class Roster:
    """The members, by number, by worker id and by epoch. `numbers` are kept for the workers of these ids."""

    def __init__(self, first_epoch: int, numbers: Mapping[str, int]) -> None:
        self._reserved_numbers = dict(numbers)
        self._next_number = max(self._reserved_numbers.values(), default=-1) + 1
        self._members: dict[int, Member] = {}
        self._by_epoch: dict[int, Member] = {}
        self._first_epoch = self._next_epoch = first_epoch
        self._stale_batches: set[tuple[int, int]] = set()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, number: int) -> Member:
        return self._members[number]

    def find(self, worker_id: str) -> Member | None:
        """Return the member of that id, present or not."""
        return next((member for member in self if member.worker_id == worker_id), None)

    def by_epoch(self, epoch: int) -> Member | None:
        """Return the member whose current epoch this is."""
        return self._by_epoch.get(epoch)

    def in_environment(self, environment: str | None) -> list[Member]:
        """Return the members of an environment, lost ones included, by number; None means all."""
        found = [member for member in self if environment in (None, member.environment)]
        return sorted(found, key=lambda member: member.number)

    def add(
        self, worker_id: str, environment: str, slots: int, identity: str | None, peer: bytes, now: float
    ) -> Member:
        """Add a new member."""
        number = self._reserved_numbers.pop(worker_id, self._next_number)
        self._next_number = max(self._next_number, number + 1)
        member = Member(number, worker_id, environment, slots, identity, peer, self._epoch(), now)
        self._members[number] = member
        self._by_epoch[member.epoch] = member
        return member

    def readmit(self, member: Member, peer: bytes, slots: int, now: float) -> None:
        """Readmit a member under a new epoch; its earlier batches and treatments are forgotten."""
        self._by_epoch.pop(member.epoch, None)
        member.epoch = self._epoch()
        self._by_epoch[member.epoch] = member
        member.peer = peer
        member.slots = slots
        member.last_heard_at = now
        member.presence = Presence.PRESENT
        member.known_treatments = set()
        member.sequences = SequenceLog()
        member.reports = OrderedReceiver()
        member.cleaned_up = False
        member.heard_in_epoch = False

    def mark_missing(self, member: Member, now: float, reason: str = "") -> None:
        """Note that a member has fallen silent, and why; its epoch no longer counts."""
        self._by_epoch.pop(member.epoch, None)
        member.presence = Presence.MISSING
        member.missing_since = now
        member.missing_reason = reason

    def unmet_conditions(self, expected: int, environments: Iterable[str | None]) -> list[str]:
        """Return what is missing before a run of so many workers in these environments can begin."""
        present = [member for member in self if member.present]
        missing = []
        if len(present) < expected:
            missing.append(f"not enough workers: {len(present)} of {expected} joined")
        # The first trial's times are the master's, with a bound, like those of all others.
        missing += [f"worker {m.worker_id}'s clock was not compared yet" for m in present if not m.clock_known]
        there = {member.environment for member in present} | {None}
        missing += [f"no worker of environment {name!r}" for name in sorted(set(environments) - there, key=str)]
        return missing

    def note_stale_batch(self, epoch: int, sequence: int) -> bool:
        """Note a batch of an ended epoch; return False for one noted before, since it is sent again."""
        batch = (epoch, sequence)
        if batch in self._stale_batches or not self.was_epoch(epoch):
            return False
        if len(self._stale_batches) >= MAX_STALE_BATCHES:
            return False
        self._stale_batches.add(batch)
        return True

    def was_epoch(self, epoch: int) -> bool:
        """Return whether an epoch is or was that of a member."""
        return self._first_epoch < epoch <= self._next_epoch

    def _epoch(self) -> int:
        self._next_epoch += 1
        return self._next_epoch
