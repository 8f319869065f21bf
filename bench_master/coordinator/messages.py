"""The coordinator's vocabulary: events that happen, actions that the shell carries out in order, the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from bench_common.host_info import HostInfo
from bench_common.records import Outcome


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker asks to join."""

    peer: bytes
    """Its address on the control socket."""
    worker_id: str
    environment: str
    slots: int
    """How many jobs it can run at once."""
    identity: str | None = None
    """The name that its key proves; None without keys."""
    info: HostInfo = field(default_factory=HostInfo)
    """Its host, versions and engines, for the journal."""
    clock_known: bool = True
    """False where its clock must be compared with ours first."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member sent a heartbeat."""

    peer: bytes
    epoch: int
    clock_known: bool = True
    proven: bool = False
    """Whether it proved the epoch, so that it may come from another address than before."""


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A member is dead: its agent reported the end of the load process, or its own process ended."""

    worker_id: str
    reason: str
    epoch: int | None = None
    """The epoch that ended; None: its current one."""
    barred: bool = False
    """Whether it may not join again."""


@dataclass(frozen=True, slots=True)
class WorkerStarved:
    """A member that is silent is alive, and waits for a CPU."""

    worker_id: str


@dataclass(slots=True)
class ResultsReceived:
    """A batch of results."""

    epoch: int
    sequence: int
    """The batch's number in its epoch."""
    tickets: Sequence[int]
    """The jobs' tickets, as plain ints."""
    batch: object = None
    """The results themselves, which are the shell's and are handed back to be journalled."""
    aborted: int = 0
    """How many of the jobs were aborted, by us or by the worker."""


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
class EngineOutage:
    """The engine of a member's jobs does not answer, so those that have not begun wait there; or the end of that.

    `fields` (engine, began_ns, ended_ns, failed, reason) go to the journal as they are.
    """

    epoch: int
    trial: int
    state: Literal["began", "ended", "abandoned"]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObjectsProgress:
    """A member fills the store for a treatment, or deletes what the run made there.

    `fields` (objects, found, content_bytes, failed, seconds, reason) go to the journal as they are when it is `over`.
    """

    epoch: int
    treatment: int
    phase: Literal["populate", "clear"]
    over: bool
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpeedMeasured:
    """A member has measured its host's speed before a trial."""

    epoch: int
    trial: int


@dataclass(frozen=True, slots=True)
class CleanupDone:
    """A member has removed what the run left on its host."""

    peer: bytes
    epoch: int
    removed: int = 0
    failed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunRefused:
    """A worker cannot do what the plan asks: the run ends before it has begun."""

    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C: after the first no more jobs are assigned, the second aborts running ones."""


@dataclass(frozen=True, slots=True)
class MasterStalled:
    """The master did not run for so long, and received no message meanwhile."""

    seconds: float


@dataclass(frozen=True, slots=True)
class LookTaken:
    """The comparisons were judged after a round; `settled` treatments need no more trials."""

    rounds: int
    """Measured rounds so far."""
    settled: frozenset[int] = frozenset()
    """Indices of the treatments of which every comparison has its word."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; deadlines are checked."""


Event: TypeAlias = (
    Hello
    | Heartbeat
    | WorkerDied
    | WorkerStarved
    | ResultsReceived
    | PackingReported
    | EngineOutage
    | ObjectsProgress
    | SpeedMeasured
    | CleanupDone
    | RunRefused
    | Interrupt
    | MasterStalled
    | LookTaken
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
    """Tell a peer that its work no longer counts; with `final` it must not ask again."""

    peer: bytes
    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class DefineTreatment:
    """Tell a member what a treatment is, before its first job of it, and which part of its population is its own."""

    number: int
    treatment: int
    part: int = 0
    parts: int = 1


@dataclass(slots=True)
class AssignJobs:
    """Assign jobs to a member."""

    number: int
    trial: int
    treatment: int
    tickets: range | tuple[int, ...]
    """A range of fresh tickets, or single ones to retry."""
    concurrency: int
    """How many jobs run there at once."""
    batch: int
    """How many results are sent back together."""
    intended_ns: Sequence[int] = ()
    """When fresh tickets arrive, in an open system: ns of the coordinator's clock."""


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
class TakeLook:
    """Judge the comparisons by the trials so far, and report a `LookTaken`; no trial begins before it."""

    rounds: int
    """Measured rounds so far."""
    last: int
    """The round of the last look, fixed before the first one."""


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """Tell a member to abort what it runs."""

    number: int


@dataclass(frozen=True, slots=True)
class MeasureSpeed:
    """Ask a member how fast its host is, before a trial."""

    number: int
    trial: int


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
    | TakeLook
    | CancelJobs
    | MeasureSpeed
    | StartCleanup
    | EndRun
    | RunFinished
)


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """How a run goes on until its verdicts are settled."""

    at_most: int
    """Measured rounds at most."""
    budget_s: float | None = None
    """How long the run may take in all; it ends after the round in which this is over."""
    spent_s: float = 0.0
    """How much of the budget earlier parts of the run took."""
    last: int | None = None
    """The last look, where an earlier part of the run has fixed it."""
    warmup: int = 0
    """Warm-up rounds, which are numbered with the others."""
    treatments: int = 0
    """How many treatments are compared; those that follow are host ceilings."""
    settled: frozenset[int] = frozenset()
    """Treatments that earlier parts of the run have settled."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The deadlines (seconds) and limits of a run."""

    expected: int = 1
    """How many workers must join."""
    join_timeout_s: float = 30.0
    """How long the run waits for them."""
    heartbeat_timeout_s: float = 5.0
    """How long a worker may be silent before it is missing."""
    starved_timeout_s: float = 60.0
    """How long it may be silent where it is known to be alive and to get no CPU."""
    reconnect_timeout_s: float = 10.0
    """How long a missing worker may take to reconnect before its jobs are lost."""
    max_attempts: int = 3
    """How many times a job is tried."""
    abort_timeout_s: float = 15.0
    """How long aborted jobs may take to end, after the second Ctrl-C."""
    cleanup_timeout_s: float = 60.0
    """How long the workers may take to clean up, since they last reported progress."""
    population_timeout_s: float = 120.0
    """How long a worker that fills a store may report no progress."""
    user_count: int | None = None
    """How many jobs are in flight over all workers; None: each treatment's own concurrency."""
    look_ahead: bool = True
    """Whether independent jobs may wait at a worker for a free slot."""
    batch_size: int | None = None
    """How many jobs and results travel together; None: tuned to the pace."""
    speed_probe: bool = False
    """Whether each host measures its speed before each trial."""
    speed_probe_timeout_s: float = 2.0
    """How long a trial waits for that."""
    settle_s: float = 0.0
    """The pause after each trial, before the next begins."""
    stopping: StoppingRule | None = None
    """None for a run with a fixed number of rounds."""
