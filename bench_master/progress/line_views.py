"""The views that write lines: one character per finished job, as ssbench did it, or a status line every few seconds.

A run may finish more jobs in a second than a person can read. Then each character stands for 10, 100, ... jobs and
shows the worst of them, so that neither a failure nor a slow job is hidden; the legend is printed at every change.
The number of characters per refresh decides, not a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

import numpy as np

from bench_common.records import Outcome
from bench_common.safe_text import one_line
from bench_master.formatting import format_elapsed, format_number
from bench_master.progress.view import NotificationsView, failure_counts, final_line

if TYPE_CHECKING:
    from bench_master.progress.view import Rows, Snapshot

LIMITS_NS: Final = np.array([1_000_000_000, 3_000_000_000, 10_000_000_000], dtype=np.int64)
ALPHABET: Final = np.frombuffer(b".oO*ALX", dtype=np.uint8)
"""From best to worst: done within each of the limits, done later, aborted, lost, failed."""

_OUTCOME_SEVERITY: Final = np.array([0, 6, 5, 4], dtype=np.uint8)
"""The position of each outcome in `ALPHABET`; that of a done job depends on its time."""

LEGEND: Final = """\
  .  done in < 1 s      X  failed
  o  done in < 3 s      L  lost with its worker
  O  done in < 10 s     A  aborted
  *  done in >= 10 s
"""
SHORT_LEGEND: Final = ". < 1 s  o < 3 s  O < 10 s  * >= 10 s  A aborted  L lost  X failed"
"""From best to worst, for characters that stand for the worst of many jobs."""

INDENT: Final = "  "
LINE_CHARS: Final = 76

BURST_CHARS: Final = 2 * LINE_CHARS
"""With more characters than this between two refreshes, each then stands for ten times as many jobs."""

CALM_CHARS: Final = BURST_CHARS // 40
CALM_REFRESHES: Final = 12
"""After this many refreshes in a row with at most `CALM_CHARS`, each stands for a tenth as many jobs."""


class CharsView(NotificationsView):
    """Shows a character per job, or per ten, hundred, ... jobs when they finish fast."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._column = 0
        self._jobs_per_char = 1
        self._held = 0
        self._worst = 0
        self._burst = 0
        self._calm_refreshes = 0
        self._settled = 0

    def begin(self, snapshot: Snapshot) -> None:
        """Print what the characters mean."""
        super().begin(snapshot)
        self.writer.write(f"{one_line(snapshot.scenario)}: one character per job\n{LEGEND}")
        if snapshot.noop:
            self.writer.write("  NO-OP: nothing is executed, this is the harness's own maximum\n")

    def jobs(self, rows: Rows) -> None:
        """Show a character for each job, or for each so many of them."""
        severities = job_severities(rows)
        while len(severities):
            room = BURST_CHARS - self._burst
            if room <= 0:
                self._set_jobs_per_char(self._jobs_per_char * 10)
                continue
            taken = room * self._jobs_per_char - self._held
            self._show(self._thinned(severities[:taken]))
            severities = severities[taken:]

    def refresh(self, snapshot: Snapshot) -> None:
        """Show what a look has settled; reset the limit of characters that may be shown until the next refresh."""
        current = snapshot.round
        if current is not None and current.settled != self._settled:
            self._settled = current.settled
            self.show(f"  {current.text}")
        self._calm_refreshes = self._calm_refreshes + 1 if self._burst <= CALM_CHARS else 0
        self._burst = 0
        if self._jobs_per_char > 1 and self._calm_refreshes >= CALM_REFRESHES:
            self._set_jobs_per_char(self._jobs_per_char // 10)

    def show(self, text: str) -> None:
        """Show `text` on a line of its own."""
        self._new_line()
        super().show(text)

    def end(self, snapshot: Snapshot) -> None:
        """Finish the last line and sum up."""
        self._show_held()
        self._new_line()
        self.writer.write(f"{final_line(snapshot)}\n")

    def close(self) -> None:
        """Finish the last line."""
        self._show_held()
        self._new_line()
        super().close()

    def _thinned(self, severities: Rows) -> Rows:
        """Return the worst of each `weight` jobs; what is left over is held for the next time."""
        if self._jobs_per_char == 1:
            return severities
        missing = self._jobs_per_char - self._held
        if len(severities) < missing:
            self._held += len(severities)
            self._worst = max(self._worst, int(severities.max(initial=0)))
            return severities[:0]
        first = max(self._worst, int(severities[:missing].max()))
        whole = missing + (len(severities) - missing) // self._jobs_per_char * self._jobs_per_char
        rest = severities[whole:]
        self._held, self._worst = len(rest), int(rest.max(initial=0))
        worst = severities[missing:whole].reshape(-1, self._jobs_per_char).max(axis=1)
        return np.concatenate((np.array([first], dtype=np.uint8), worst))

    def _show(self, severities: Rows) -> None:
        self._burst += len(severities)
        text = ALPHABET[severities].tobytes().decode("ascii")
        pieces = []
        while text:
            if self._column == 0:
                pieces.append(INDENT)
            piece = text[: LINE_CHARS - self._column]
            text = text[len(piece) :]
            pieces.append(piece)
            self._column += len(piece)
            if self._column == LINE_CHARS:
                pieces.append("\n")
                self._column = 0
        self.writer.write("".join(pieces))

    def _show_held(self) -> None:
        if self._held:
            self._show(np.array([self._worst], dtype=np.uint8))
        self._held = self._worst = 0

    def _set_jobs_per_char(self, weight: int) -> None:
        self._show_held()
        self._jobs_per_char, self._burst, self._calm_refreshes = weight, 0, 0
        meaning = f"the worst of {weight:,} jobs" if weight > 1 else "one job"
        self._new_line()
        self.writer.write(f"  each character now stands for {meaning}:\n  {SHORT_LEGEND}\n")

    def _new_line(self) -> None:
        if self._column:
            self.writer.write("\n")
            self._column = 0


def job_severities(rows: Rows) -> Rows:
    """Return the position of each job (`JOB_ROW`) in `ALPHABET`."""
    severities: Rows = _OUTCOME_SEVERITY[rows["outcome"]]
    done = rows["outcome"] == Outcome.DONE
    times_ns = rows["end_ns"][done] - rows["start_ns"][done]
    severities[done] = np.searchsorted(LIMITS_NS, times_ns, side="right")
    return severities


INTERVAL_S: Final = 5.0
"""The time between two lines, in seconds."""


class LinesView(NotificationsView):
    """Shows one line of status every `INTERVAL_S` seconds."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._shown_s = 0.0

    def begin(self, snapshot: Snapshot) -> None:
        """Show the first line."""
        super().begin(snapshot)
        self.writer.write(f"{status_line(snapshot)}\n")

    def refresh(self, snapshot: Snapshot) -> None:
        """Show a line every `INTERVAL_S` seconds."""
        # The elapsed time restarts when the workers have joined and the first trial begins.
        if not 0 <= snapshot.elapsed_s - self._shown_s < INTERVAL_S:
            self._shown_s = snapshot.elapsed_s // INTERVAL_S * INTERVAL_S
            self.writer.write(f"{status_line(snapshot)}\n")

    def end(self, snapshot: Snapshot) -> None:
        """Sum up."""
        self.writer.write(f"{format_elapsed(snapshot.elapsed_s)}  {final_line(snapshot)}\n")


def status_line(snapshot: Snapshot) -> str:
    """Return the state of a run in one line."""
    jobs = f"{snapshot.finished:,}"
    if snapshot.planned is not None:
        jobs += f"/{snapshot.planned:,}"
    parts = [f"{format_elapsed(snapshot.elapsed_s)}  {jobs} jobs", *failure_counts(snapshot)]
    parts += [f"{format_number(snapshot.rate_now)} jobs/s", f"{format_elapsed(snapshot.eta_s)} to go"]
    trial = snapshot.trial
    if snapshot.round is not None:
        parts.append(snapshot.round.text)
    if trial is not None:
        warmup = " (warm-up)" if trial.warmup else ""
        parts.append(f"trial {trial.number:,}/{trial.total:,}{warmup}: {one_line(trial.title)}")
    parts += [one_line(host.status_text) for host in snapshot.hosts[:1] if host.status_text]
    return ", ".join(parts)
