"""What the coordinator wants done: each action is carried out once, in order, by the shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from bench_common.records import Outcome

RunStatus = Literal["complete", "incomplete", "interrupted", "refused"]


@dataclass(frozen=True, slots=True)
class Welcome:
    """Admit a worker as roster member `number` under `epoch`."""

    peer: bytes
    worker_id: str
    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Tell a peer that what it is doing no longer counts; with `final` it must not ask again."""

    peer: bytes
    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Define:
    """Tell a member what a treatment is, before its first job of it."""

    number: int
    treatment: int


@dataclass(slots=True)
class Issue:
    """Hand jobs to a member: a range of fresh tickets, or single ones that are tried anew.

    At most `width` jobs run there at once; results come back when `batch` of them are there. In an open system
    `intended_ns` are the instants at which fresh tickets arrive, in ns of the coordinator's clock.
    """

    number: int
    trial: int
    treatment: int
    tickets: range | tuple[int, ...]
    width: int
    batch: int
    intended_ns: Sequence[int] = ()


@dataclass(slots=True)
class Journal:
    """Write a batch of results; `keep` are the rows of it that count (None: all of them)."""

    number: int
    sequence: int
    batch: object
    keep: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge a batch again, that is in the journal already."""

    number: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Conclude:
    """Write the end of jobs that no worker will report: lost or aborted."""

    number: int
    trial: int
    treatment: int
    tickets: tuple[int, ...]
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write an event to the journal: `kind` and its fields."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell a member to abort what it runs."""

    number: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Tell a member to remove everything on its host that carries the run's label."""

    number: int


@dataclass(frozen=True, slots=True)
class Release:
    """The run is over for a member."""

    number: int


@dataclass(frozen=True, slots=True)
class RunOver:
    """The run has ended; nothing follows."""

    status: RunStatus
    reasons: Sequence[str] = ()


Action: TypeAlias = (
    Welcome | Dismiss | Define | Issue | Journal | Acknowledge | Conclude | Note | Cancel | Sweep | Release | RunOver
)
