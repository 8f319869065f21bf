"""What a view is, the two that draw nothing, and the choice among all of them.

A view is fed by the loop that receives results; it has no thread, timer or clock of its own. Views write to stderr,
so that a report on stdout can be piped or redirected while the run is watched.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TextIO, TypeAlias

import numpy as np

from bench_common.errors import UsageError
from bench_common.terminal import check_choice
from bench_master.progress.log_lines import LogDiversion
from bench_master.progress.outlet import Outlet
from bench_master.progress.quantities import clock, printable, three_digits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from bench_master.progress.snapshot import Snapshot

Rows: TypeAlias = np.ndarray[Any, np.dtype[Any]]

Mode: TypeAlias = Literal["auto", "live", "chars", "lines", "none"]
MODES: Final[tuple[Mode, ...]] = ("auto", "live", "chars", "lines", "none")
"""The values of ``--progress``."""


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


def choose_view(mode: str, stream: TextIO, *, quiet: bool = False, environ: Mapping[str, str] = os.environ) -> View:
    """Return the view for ``--progress MODE`` on `stream`, which is stderr as a rule.

    ``auto`` is the live view on a terminal that can move its cursor and show UTF-8, and characters elsewhere. Raises
    `UsageError` for a mode that does not exist, and for a live view where none is possible.
    """
    check_choice(mode, MODES, what="--progress mode")
    if quiet:
        return View()
    if mode == "none":
        return NoticesView(stream)
    if mode == "lines":
        from bench_master.progress.lines import LinesView

        return LinesView(stream)
    obstacle = _no_live_view(stream, environ)
    if mode == "live" and obstacle:
        raise UsageError(f"--progress live: {obstacle}; use --progress chars or lines instead")
    if mode == "chars" or obstacle:
        from bench_master.progress.chars import CharsView

        return CharsView(stream)
    from bench_master.progress.live import LiveView

    return LiveView(stream)


def _no_live_view(stream: TextIO, environ: Mapping[str, str]) -> str:
    """Return why there can be no live view on `stream`; empty if there can."""
    if not stream.isatty():
        return "stderr is not a terminal"
    term = environ.get("TERM", "")
    if term.lower() in {"", "dumb", "unknown"}:
        return f"the terminal cannot move its cursor (TERM={term or 'is not set'})"
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        return f"the terminal's encoding is {stream.encoding}, not UTF-8"
    return ""


def mishaps(snapshot: Snapshot) -> list[str]:
    """Return how many jobs failed, and how many were lost and aborted where there are any."""
    rare = [(snapshot.lost, "lost"), (snapshot.aborted, "aborted")]
    return [f"{snapshot.failed:,} failed", *(f"{count:,} {word}" for count, word in rare if count)]


def closing_line(snapshot: Snapshot) -> str:
    """Return how a run ended, in one line."""
    outcomes = ", ".join([f"{snapshot.done:,} done", *mishaps(snapshot)])
    rate = f"{three_digits(snapshot.rate_mean)} jobs/s"
    return f"{snapshot.finished:,} jobs in {clock(snapshot.elapsed_s)} ({rate}): {outcomes}"
