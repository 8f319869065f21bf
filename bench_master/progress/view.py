"""The base of the views, the two that draw nothing, and the snapshot that a view shows.

The loop that receives results feeds the view, which has no thread, timer or clock of its own. Views write to stderr,
so that a report on stdout can be piped or redirected while the run is watched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, TextIO, TypeAlias

import numpy as np
from msgspec import Struct

from bench_common.safe_text import escape_lines, quoted_lines
from bench_common.streams import as_called, fit_line
from bench_master.formatting import format_elapsed, format_number
from bench_master.progress.output import LogRedirect, NonblockingWriter

if TYPE_CHECKING:
    from types import TracebackType

Rows: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class View:
    """Shows a run; this one shows nothing at all (``-q``).

    `begin` comes first and `end` last, `refresh` a few times a second in between, and `jobs` with each batch of
    finished jobs. Used as a context manager, a view restores the screen whatever happens: `close` may be called at
    any time and more than once.
    """

    shows_progress: ClassVar[bool] = False
    """Whether `refresh` shows anything: a snapshot costs as much as a job."""

    def begin(self, snapshot: Snapshot) -> None:
        """Start showing the run."""

    def jobs(self, rows: Rows, operations: Rows | None = None) -> None:
        """Take a batch of finished jobs (`JOB_ROW`) with their operations (`OPERATION_ROW`); must be cheap."""

    def refresh(self, snapshot: Snapshot) -> None:
        """Show the run as it is now."""

    def notify(self, text: str, *, passing: bool = False) -> None:
        """Show a notification, such as the loss of a worker: a line, or more.

        One in `passing` tells only how the run goes on: a view whose picture has that, too, leaves it out.
        """

    def end(self, snapshot: Snapshot) -> None:
        """Show how the run ended."""

    def close(self) -> None:
        """Restore the screen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class NotificationsView(View):
    """Shows only notifications (``--progress none``)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.writer = NonblockingWriter(stream)
        self._log = LogRedirect(stream, self.show)

    def begin(self, snapshot: Snapshot) -> None:
        """Let log records be shown by the view."""
        del snapshot
        self._log.start()

    def notify(self, text: str, *, passing: bool = False) -> None:
        """Show `text` on a line; a further line of it begins with a bar."""
        del passing
        self.show("\n".join(quoted_lines(as_called(text))))

    def show(self, text: str) -> None:
        """Show lines that are formatted."""
        lines = (fit_line(line, self._stream) for line in escape_lines(text).split("\n"))
        self.writer.write("".join(f"{line}\n" for line in lines))

    def close(self) -> None:
        """Give the screen time to take the last lines."""
        self._log.stop()
        self.writer.close()


def failure_counts(snapshot: Snapshot) -> list[str]:
    """Return how many jobs failed, and how many were lost, aborted and left out where there are any."""
    rare = [(snapshot.lost, "lost"), (snapshot.aborted, "aborted"), (snapshot.left_out, "left out (optional)")]
    return [f"{snapshot.failed:,} failed", *(f"{count:,} {word}" for count, word in rare if count)]


def final_line(snapshot: Snapshot) -> str:
    """Return how a run ended, in one line."""
    outcomes = ", ".join([f"{snapshot.done:,} done", *failure_counts(snapshot)])
    rate = f"{format_number(snapshot.rate_mean)} jobs/s"
    ran = snapshot.finished - snapshot.aborted
    noun = "job" if ran == 1 else "jobs"
    return f"{ran:,} {noun} in {format_elapsed(snapshot.elapsed_s)} ({rate}): {outcomes}"


class TrialRow(Struct, frozen=True):
    """The current trial."""

    number: int
    """Its number, from 1."""
    total: int
    """How many trials there are."""
    treatment: int
    """The index of its treatment."""
    title: str
    """The title of its treatment."""
    warmup: bool
    """Whether its latencies are left out."""


class RoundRow(Struct, frozen=True):
    """A round of a run that goes on until its verdicts are settled."""

    number: int
    """Its number among the measured rounds, from 1."""
    last: int
    """The most rounds that there may be."""
    settled: int
    """How many comparisons are settled."""
    comparisons: int
    """How many there are; 0 before the first look."""

    @property
    def text(self) -> str:
        """Return it in words."""
        settled = f": {self.settled} of {self.comparisons} settled" if self.comparisons else ""
        return f"round {self.number} of at most {self.last}{settled}"


class LatencyRow(Struct, frozen=True):
    """The latency of one operation of one treatment so far, without warm-up trials."""

    treatment: int
    """The index of its treatment."""
    title: str
    """The title of its treatment."""
    operation: str
    """Its name, or ``job`` for a job from start to end."""
    n: int
    """How many succeeded; only these have a latency."""
    errors: int
    p50_s: float | None = None
    """The median in seconds; None while `n` is 0."""
    p95_s: float | None = None
    """The 95th percentile, likewise."""
    max_s: float | None = None
    """The maximum, likewise."""
    p99_s: float | None = None
    """The 99th percentile, likewise."""
    per_s: float | None = None
    """Of jobs that do one operation each: how many a second of the treatment's measured trials; else None."""
    mb_per_s: float | None = None
    """The content of these a second, in 1,000,000 bytes; None where none was moved."""


class HostRow(Struct, frozen=True):
    """A worker and its host, as last reported."""

    worker_id: str
    host: str
    """The name of its host."""
    environment: str
    state: str
    """``ready``, ``missing`` or ``lost`` (`bench_master.coordinator.roster.Presence`)."""
    running: int = 0
    """How many of its slots are busy."""
    slots: int = 0
    """How many jobs it can run at once."""
    lag_ms: float | None = None
    """The worst delay of the worker's loop since the report before; None where unknown."""
    cpu_percent: float | None = None
    """The host's busy share since the report before; None where unknown."""
    status_text: str = ""
    """The progress of a benchmark that reports while it runs."""


class ErrorRow(Struct, frozen=True):
    """The failures of one kind in one operation."""

    count: int
    operation: str
    """The name of the operation."""
    kind: str
    """The kind of error, such as ``timeout``."""
    message: str
    """The message of the first failure."""
    left_out: bool = False
    """Whether they are of optional treatments that are left out for it, and are no failures."""


class Snapshot(Struct, frozen=True):
    """A run at one instant."""

    scenario: str
    elapsed_s: float = 0.0
    """How long the run has lasted, in seconds."""
    planned: int | None = None
    """The number of jobs; None where trials run by time."""
    done: int = 0
    failed: int = 0
    left_out: int = 0
    """How many jobs of optional treatments are left out, as their image or tool is missing."""
    lost: int = 0
    """How many jobs were lost with their workers."""
    aborted: int = 0
    """How many jobs were aborted."""
    in_flight: int = 0
    """How many jobs are running or waiting at workers."""
    rate_now: float = 0.0
    """Jobs done per second, over the last few seconds."""
    rate_mean: float = 0.0
    """Jobs done per second, over the time spent in trials."""
    eta_s: float | None = None
    """How long the rest takes, by estimate (s); None while there is nothing to base it on."""
    round: RoundRow | None = None
    """The current round of a run that goes on until its verdicts are settled; None in others."""
    trial: TrialRow | None = None
    """The current trial; None between trials."""
    doing: str = ""
    """What goes on while no trial runs, or why no job is assigned, in words."""
    latencies: tuple[LatencyRow, ...] = ()
    hosts: tuple[HostRow, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    noop: bool = False
    operation_names: tuple[tuple[str, ...], ...] = ()
    """The names of each treatment's operations, by its index."""
    alternatives: frozenset[int] = frozenset()
    """The treatments whose jobs do one of their operations each."""

    @property
    def activity(self) -> str:
        """What goes on beside jobs that end: why none begins, what workers prepare, what benchmarks report."""
        several = len(self.hosts) > 1
        told = [
            f"{host.worker_id}: {host.status_text}" if several else host.status_text
            for host in self.hosts
            if host.status_text
        ]
        return self.doing or ("; ".join(told) if self.trial is not None else "")

    @property
    def finished(self) -> int:
        """How many jobs have an outcome."""
        return self.done + self.failed + self.left_out + self.lost + self.aborted
