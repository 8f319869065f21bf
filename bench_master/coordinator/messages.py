"""The coordinator's vocabulary: events that happen, and actions that the shell carries out in order.

What a worker reports of its own accord is an event as it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from bench_common.host_info import HostInfo
from bench_common.messages import PackingReport, PopulationReport, SpeedMeasured
from bench_common.records import Outcome


class Hello(Struct, frozen=True):
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


class Heartbeat(Struct, frozen=True):
    """A member sent a heartbeat."""

    peer: bytes
    epoch: int
    clock_known: bool = True
    proven: bool = False
    """Whether it proved the epoch, so that it may come from another address than before."""


class WorkerDied(Struct, frozen=True):
    """A member is dead: its agent reported the end of the load process, or its own process ended."""

    worker_id: str
    reason: str
    epoch: int | None = None
    """The epoch that ended; None: its current one."""
    barred: bool = False
    """Whether it may not join again."""


class WorkerStarved(Struct, frozen=True):
    """A member that is silent is alive, and waits for a CPU."""

    worker_id: str


class ResultsReceived(Struct):
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


class CleanupDone(Struct, frozen=True):
    """A member has removed what the run left on its host."""

    peer: bytes
    epoch: int
    removed: int = 0
    failed: Sequence[str] = ()


class RunRefused(Struct, frozen=True):
    """A worker cannot do what the plan asks: the run ends before it has begun."""

    reasons: Sequence[str]


class Interrupt(Struct, frozen=True):
    """Ctrl-C: after the first no more jobs are assigned, the second aborts running ones."""


class MasterStalled(Struct, frozen=True):
    """The master did not run for so long, and received no message meanwhile."""

    seconds: float


class DiskFull(Struct, frozen=True):
    """The disk of the stats file has no room: no job is assigned until it has."""


class DiskFree(Struct, frozen=True):
    """Everything that waited for room is in the stats file."""

    dropped_samples: int = 0
    """How many readings of hosts and loops were dropped meanwhile."""


class LookTaken(Struct, frozen=True):
    """The comparisons were judged after a round; `settled` treatments need no more trials."""

    rounds: int
    settled: frozenset[int] = frozenset()
    """Indices of the treatments of which every comparison has its word."""


class Tick(Struct, frozen=True):
    """Time has passed; deadlines are checked."""


Event: TypeAlias = (
    Hello
    | Heartbeat
    | WorkerDied
    | WorkerStarved
    | ResultsReceived
    | PackingReport
    | PopulationReport
    | SpeedMeasured
    | CleanupDone
    | RunRefused
    | Interrupt
    | MasterStalled
    | DiskFull
    | DiskFree
    | LookTaken
    | Tick
)


RunStatus = Literal["complete", "incomplete", "interrupted", "refused"]


class WelcomeWorker(Struct, frozen=True):
    """Admit a worker as roster member `number` under `epoch`."""

    peer: bytes
    worker_id: str
    number: int
    epoch: int


class DismissWorker(Struct, frozen=True):
    """Tell a peer that its work no longer counts; with `final` it must not ask again."""

    peer: bytes
    reason: str
    final: bool = False


class DefineTreatment(Struct, frozen=True):
    """Tell a member what a treatment is, before its first job of it, and which part of its population is its own."""

    number: int
    treatment: int
    part: int = 0
    parts: int = 1


class AssignJobs(Struct):
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


class RecordResults(Struct):
    """Write a batch of results; `keep` are the rows of it that count (None: all of them)."""

    number: int
    sequence: int
    batch: object
    keep: tuple[int, ...] | None = None


class AcknowledgeResults(Struct, frozen=True):
    """Acknowledge a batch again, that is in the journal already."""

    number: int
    sequence: int


class FailJobs(Struct, frozen=True):
    """Write the end of jobs that no worker will report: lost or aborted."""

    number: int
    trial: int
    treatment: int
    tickets: tuple[int, ...]
    outcome: Outcome
    reason: str


class LogEvent(Struct, frozen=True):
    """Write an event to the journal: `kind` and its fields."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class TakeLook(Struct, frozen=True):
    """Judge the comparisons by the trials so far, and report a `LookTaken`; no trial begins before it."""

    rounds: int
    last: int
    """The round of the last look, fixed before the first one."""


class CancelJobs(Struct, frozen=True):
    """Tell a member to abort what it runs."""

    number: int


class MeasureSpeed(Struct, frozen=True):
    """Ask a member how fast its host is, before a trial."""

    number: int
    trial: int


class StartCleanup(Struct, frozen=True):
    """Tell a member to remove everything on its host that carries the run's label."""

    number: int


class EndRun(Struct, frozen=True):
    """The run is over for a member."""

    number: int


class RunFinished(Struct, frozen=True):
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
