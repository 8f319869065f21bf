"""What a view is, the two that draw nothing, and how a run ended in one line.

A view is fed by the loop that receives results; it has no thread, timer or clock of its own. Views write to stderr,
so that a report on stdout can be piped or redirected while the run is watched.

A run at one instant: what a tally hands to the views, so that neither knows how the other works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeAlias

import numpy as np

from bench_master.formatting import escape_control, format_elapsed, format_number
from bench_master.progress.output import LogRedirect, NonblockingWriter

if TYPE_CHECKING:
    from types import TracebackType

Rows: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class View:
    """Shows a run; this one shows nothing at all (``-q``).

    `begin` comes first and `end` last, `refresh` a few times a second in between, and `jobs` with each batch of
    finished jobs. Used as a context manager, a view gives the screen back whatever happens: `close` may come at any
    time and more than once.
    """

    def begin(self, snapshot: Snapshot) -> None:
        """Start showing the run."""

    def jobs(self, rows: Rows) -> None:
        """Take a batch of finished jobs (`JOB_ROW`); must cost next to nothing."""

    def refresh(self, snapshot: Snapshot) -> None:
        """Show the run as it is now."""

    def say(self, text: str) -> None:
        """Show what must be seen, such as that a worker was lost: a line, or more."""

    def end(self, snapshot: Snapshot) -> None:
        """Show how the run ended."""

    def close(self) -> None:
        """Give the screen back."""

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
    """Shows only what must be seen (``--progress none``)."""

    def __init__(self, stream: TextIO) -> None:
        self.writer = NonblockingWriter(stream)
        self._log = LogRedirect(stream, self.say)

    def begin(self, snapshot: Snapshot) -> None:
        """Let log records be shown by the view."""
        del snapshot
        self._log.start()

    def say(self, text: str) -> None:
        """Show `text` on a line."""
        self.writer.write(f"{escape_control(text)}\n")

    def close(self) -> None:
        """Give the screen time to take the last words."""
        self._log.stop()
        self.writer.close()


def failure_counts(snapshot: Snapshot) -> list[str]:
    """Return how many jobs failed, and how many were lost and aborted where there are any."""
    rare = [(snapshot.lost, "lost"), (snapshot.aborted, "aborted")]
    return [f"{snapshot.failed:,} failed", *(f"{count:,} {word}" for count, word in rare if count)]


def final_line(snapshot: Snapshot) -> str:
    """Return how a run ended, in one line."""
    outcomes = ", ".join([f"{snapshot.done:,} done", *failure_counts(snapshot)])
    rate = f"{format_number(snapshot.rate_mean)} jobs/s"
    noun = "job" if snapshot.finished == 1 else "jobs"
    return f"{snapshot.finished:,} {noun} in {format_elapsed(snapshot.elapsed_s)} ({rate}): {outcomes}"


@dataclass(frozen=True, slots=True)
class TrialRow:
    """The trial that is under way: `number` (from 1) `of` how many, of which treatment (index and title)."""

    number: int
    of: int
    treatment: int
    title: str
    warmup: bool


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """What one operation of one treatment took so far, warm-up trials left out, in seconds.

    `operation` is its name, or ``job`` for a job from start to end. `n` counts the successful ones, which alone
    enter `p50_s`, `p95_s` and `max_s`; these are None while `n` is 0. `errors` counts the failed ones.
    """

    treatment: int
    title: str
    operation: str
    n: int
    errors: int
    p50_s: float | None = None
    p95_s: float | None = None
    max_s: float | None = None


@dataclass(frozen=True, slots=True)
class HostRow:
    """A worker and its host, as last heard of.

    `state` is the coordinator's word for it. `running` of `slots` jobs are in flight. `lag_ms` is the worst delay
    of the worker's loop (ms) and `cpu_percent` the host's busy share since the report before; None where unknown.
    `said` is how a benchmark gets on there that reports while it runs.
    """

    worker_id: str
    host: str
    environment: str
    state: str
    running: int = 0
    slots: int = 0
    lag_ms: float | None = None
    cpu_percent: float | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """Failures of one `kind` in one `operation`, with the message of the first of them."""

    count: int
    operation: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one instant.

    `planned` is the number of jobs, None where the time is what is planned. `rate_now` (the last few seconds) and
    `rate_mean` (the time spent in trials) are jobs done per second. `eta_s` is an estimate, None while there is
    nothing to base it on. `noop` says that nothing is executed.
    """

    scenario: str
    elapsed_s: float = 0.0
    planned: int | None = None
    done: int = 0
    failed: int = 0
    lost: int = 0
    aborted: int = 0
    in_flight: int = 0
    rate_now: float = 0.0
    rate_mean: float = 0.0
    eta_s: float | None = None
    trial: TrialRow | None = None
    latencies: tuple[LatencyRow, ...] = ()
    hosts: tuple[HostRow, ...] = ()
    errors: tuple[ErrorRow, ...] = ()
    noop: bool = False

    @property
    def finished(self) -> int:
        """How many jobs have an outcome."""
        return self.done + self.failed + self.lost + self.aborted
