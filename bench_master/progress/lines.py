"""A line of status every few seconds: for a log that people read afterwards (``--progress lines``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

from bench_master.progress.quantities import clock, one_line, three_digits
from bench_master.progress.view import NoticesView, closing_line, mishaps

if TYPE_CHECKING:
    from bench_master.progress.snapshot import Snapshot

INTERVAL_S: Final = 5.0
"""The time of the run between two lines."""


class LinesView(NoticesView):
    """Shows one line of status every `INTERVAL_S` seconds."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown_s = 0.0

    def begin(self, snapshot: Snapshot) -> None:
        """Show the first line."""
        super().begin(snapshot)
        self.outlet.write(f"{status_line(snapshot)}\n")

    def refresh(self, snapshot: Snapshot) -> None:
        """Show a line when it is time for one."""
        # The run's time starts anew when the workers are there and the first trial begins.
        if not 0 <= snapshot.elapsed_s - self._shown_s < INTERVAL_S:
            self._shown_s = snapshot.elapsed_s // INTERVAL_S * INTERVAL_S
            self.outlet.write(f"{status_line(snapshot)}\n")

    def end(self, snapshot: Snapshot) -> None:
        """Sum up."""
        self.outlet.write(f"{clock(snapshot.elapsed_s)}  {closing_line(snapshot)}\n")


def status_line(snapshot: Snapshot) -> str:
    """Return where a run is, in one line."""
    jobs = f"{snapshot.finished:,}"
    if snapshot.planned is not None:
        jobs += f"/{snapshot.planned:,}"
    parts = [f"{clock(snapshot.elapsed_s)}  {jobs} jobs", *mishaps(snapshot)]
    parts += [f"{three_digits(snapshot.rate_now)} jobs/s", f"{clock(snapshot.eta_s)} to go"]
    trial = snapshot.trial
    if trial is not None:
        warmup = " (warm-up)" if trial.warmup else ""
        parts.append(f"trial {trial.number:,}/{trial.of:,}{warmup}: {one_line(trial.title)}")
    parts += [one_line(host.said) for host in snapshot.hosts[:1] if host.said]
    return ", ".join(parts)
