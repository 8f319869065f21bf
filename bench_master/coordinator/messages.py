"""What can happen to a run: the vocabulary that the shell speaks to the coordinator.

What the coordinator wants done: each action is carried out once, in order, by the shell.

The deadlines and limits that a run keeps to, apart from the decisions that use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from bench_common.records import Outcome


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker asks to join. `peer` is its address on the control socket, `identity` what its key proves (if any).

    `slots` is how many jobs it can run at once; `info` goes to the journal as it is (host, versions, engines).
    """

    peer: bytes
    worker_id: str
    environment: str
    slots: int
    identity: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    clock_known: bool = True
    """False where its clock must be compared with ours first."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat of a member came in."""

    peer: bytes
    epoch: int
    clock_known: bool = True


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A member is known to be dead: its agent said that the load process ended, or its process was reaped."""

    worker_id: str
    reason: str
    epoch: int | None = None
    """The epoch that ended; None where whatever it is at now has ended."""


@dataclass(slots=True)
class ResultsReceived:
    """A batch of results. `tickets` are plain ints; `batch` is the shell's own, handed back to be journalled.

    `aborted` of the jobs were called off, by us or by the worker on its own account.
    """

    epoch: int
    sequence: int
    tickets: Sequence[int]
    batch: object = None
    aborted: int = 0


@dataclass(frozen=True, slots=True)
class PackingReported:
    """A member holds the containers of a trial, and gives back the jobs that it has no room for.

    `fields` (containers, reason, full, hold_s, memory_before) go to the journal as they are.
    """

    epoch: int
    trial: int
    returned: Sequence[int]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanupDone:
    """A member has removed what the run left on its host."""

    peer: bytes
    epoch: int
    removed: int = 0
    failed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunRefused:
    """What a member said cannot be done, before anything ran: the run is called off."""

    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C: the first ends handing out, the second aborts what runs."""


@dataclass(frozen=True, slots=True)
class MasterStalled:
    """The master did not run for so long, and heard nobody, whoever spoke."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; deadlines are looked at."""


Event: TypeAlias = (
    Hello
    | Heartbeat
    | WorkerDied
    | ResultsReceived
    | PackingReported
    | CleanupDone
    | RunRefused
    | Interrupt
    | MasterStalled
    | Tick
)


RunStatus = Literal["complete", "incomplete", "interrupted", "refused"]


@dataclass(frozen=True, slots=True)
class WelcomeWorker:
    """Admit a worker as roster member `number` under `epoch`."""

    peer: bytes
    worker_id: str
    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class DismissWorker:
    """Tell a peer that what it is doing no longer counts; with `final` it must not ask again."""

    peer: bytes
    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class DefineTreatment:
    """Tell a member what a treatment is, before its first job of it."""

    number: int
    treatment: int


@dataclass(slots=True)
class AssignJobs:
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
class RecordResults:
    """Write a batch of results; `keep` are the rows of it that count (None: all of them)."""

    number: int
    sequence: int
    batch: object
    keep: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AcknowledgeResults:
    """Acknowledge a batch again, that is in the journal already."""

    number: int
    sequence: int


@dataclass(frozen=True, slots=True)
class FailJobs:
    """Write the end of jobs that no worker will report: lost or aborted."""

    number: int
    trial: int
    treatment: int
    tickets: tuple[int, ...]
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Write an event to the journal: `kind` and its fields."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """Tell a member to abort what it runs."""

    number: int


@dataclass(frozen=True, slots=True)
class StartCleanup:
    """Tell a member to remove everything on its host that carries the run's label."""

    number: int


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run is over for a member."""

    number: int


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run has ended; nothing follows."""

    status: RunStatus
    reasons: Sequence[str] = ()


Action: TypeAlias = (
    WelcomeWorker
    | DismissWorker
    | DefineTreatment
    | AssignJobs
    | RecordResults
    | AcknowledgeResults
    | FailJobs
    | LogEvent
    | CancelJobs
    | StartCleanup
    | EndRun
    | RunFinished
)


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
    join_timeout_s: float = 30.0
    heartbeat_timeout_s: float = 5.0
    reconnect_timeout_s: float = 10.0
    max_attempts: int = 3
    abort_timeout_s: float = 15.0
    cleanup_timeout_s: float = 60.0
    user_count: int | None = None
    look_ahead: bool = True
    batch_size: int | None = None
