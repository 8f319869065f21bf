"""What a view is, the two that draw nothing, and how a run ended in one line.

A view is fed by the loop that receives results; it has no thread, timer or clock of its own. Views write to stderr,
so that a report on stdout can be piped or redirected while the run is watched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TextIO, TypeAlias

import numpy as np

from bench_master.progress.log_lines import LogDiversion
from bench_master.progress.output import Outlet
from bench_master.progress.quantities import clock, printable, three_digits

if TYPE_CHECKING:
    from types import TracebackType

    from bench_master.progress.snapshot import Snapshot

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


class NoticesView(View):
    """Shows only what must be seen (``--progress none``)."""

    def __init__(self, stream: TextIO) -> None:
        self.outlet = Outlet(stream)
        self._log = LogDiversion(stream, self.say)

    def begin(self, snapshot: Snapshot) -> None:
        """Let log records be shown by the view."""
        del snapshot
        self._log.start()

    def say(self, text: str) -> None:
        """Show `text` on a line."""
        self.outlet.write(f"{printable(text)}\n")

    def close(self) -> None:
        """Give the screen time to take the last words."""
        self._log.stop()
        self.outlet.close()


def mishaps(snapshot: Snapshot) -> list[str]:
    """Return how many jobs failed, and how many were lost and aborted where there are any."""
    rare = [(snapshot.lost, "lost"), (snapshot.aborted, "aborted")]
    return [f"{snapshot.failed:,} failed", *(f"{count:,} {word}" for count, word in rare if count)]


def closing_line(snapshot: Snapshot) -> str:
    """Return how a run ended, in one line."""
    outcomes = ", ".join([f"{snapshot.done:,} done", *mishaps(snapshot)])
    rate = f"{three_digits(snapshot.rate_mean)} jobs/s"
    noun = "job" if snapshot.finished == 1 else "jobs"
    return f"{snapshot.finished:,} {noun} in {clock(snapshot.elapsed_s)} ({rate}): {outcomes}"
