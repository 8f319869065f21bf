"""The views that write lines: one character per finished job, as ssbench did it, or a status line every few seconds.

A run may finish more jobs in a second than a person can read. Then each character stands for 10, 100, ... jobs and
shows the worst of them, so that neither a failure nor a slow job is hidden; the legend is printed at every change.
The number of characters per refresh decides, not a clock.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, TextIO

import numpy as np

from bench_common.records import FIRST_BYTE, Outcome
from bench_common.safe_text import one_line
from bench_master.formatting import format_elapsed, format_number
from bench_master.progress.view import NotificationsView, failure_counts, final_line

if TYPE_CHECKING:
    from bench_master.progress.view import Rows, Snapshot

LIMITS_NS: Final = np.array([1_000_000_000, 3_000_000_000, 10_000_000_000], dtype=np.int64)
ALPHABET: Final = np.frombuffer(b"._o|O^*@ALX", dtype=np.uint8)
"""From best to worst: done within each of the limits, done later, aborted, lost, failed.

The second character of each pair is ssbench's, for a job that does one of its operations and whose answer has no
first byte to wait for.
"""

_OUTCOME_SEVERITY: Final = np.array([0, 10, 9, 8], dtype=np.uint8)
"""The position of each outcome in `ALPHABET`; that of a done job depends on its time."""

NOOP_LINE: Final = "  NO-OP: nothing is executed, this is the harness's own maximum\n"
LEGEND: Final = """\
  .  done in < 1 s      X  failed
  o  done in < 3 s      L  lost with its worker
  O  done in < 10 s     A  aborted
  *  done in >= 10 s     -  two seconds in which none ended
"""
SHORT_LEGEND: Final = ". < 1 s  o < 3 s  O < 10 s  * >= 10 s  A aborted  L lost  X failed"
"""From best to worst, for characters that stand for the worst of many jobs."""
FIRST_BYTE_LEGEND: Final = """\
  .  first byte in < 1 s      _  last byte in < 1 s   (no first byte: all but reads)
  o  first byte in < 3 s      |  last byte in < 3 s
  O  first byte in < 10 s     ^  last byte in < 10 s
  *  first byte in >= 10 s    @  last byte in >= 10 s
  X  failed      L  lost with its worker      A  aborted
"""
SHORT_FIRST_BYTE_LEGEND: Final = ". _ < 1 s  o | < 3 s  O ^ < 10 s  * @ >= 10 s  A aborted  L lost  X failed"
"""The same of jobs that do one of their operations."""

SILENCE_S: Final = 1.75
"""After so long without a character, what goes on is shown, or a dash: before two seconds pass without any."""
REPORT_INTERVAL_S: Final = 10.0
"""How often a report is shown of which only figures have changed, in seconds; dashes meanwhile."""

INDENT: Final = "  "
LINE_CHARS: Final = 76

BURST_CHARS: Final = 2 * LINE_CHARS
"""With more characters than this between two refreshes, each then stands for ten times as many jobs."""

CALM_CHARS: Final = BURST_CHARS // 40
CALM_REFRESHES: Final = 12
"""After this many refreshes in a row with at most `CALM_CHARS`, each stands for a tenth as many jobs."""


class CharsView(NotificationsView):
    """Shows a character per job, or per ten, hundred, ... jobs when they finish fast."""

    shows_progress = True

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._column = 0
        self._jobs_per_char = 1
        self._held = 0
        self._worst = 0
        self._burst = 0
        self._calm_refreshes = 0
        self._settled = 0
        self._wrote = False
        self._silent_since_s = 0.0
        self._told = ""
        self._told_at_s = 0.0
        self._first_bytes: dict[int, list[int]] = {}
        """The positions of the times to first bytes, by treatment, of jobs that do one of their operations."""

    def begin(self, snapshot: Snapshot) -> None:
        """Print what the characters mean."""
        super().begin(snapshot)
        self._first_bytes = {
            index: [place for place, name in enumerate(names) if name.endswith(FIRST_BYTE)]
            for index, names in enumerate(snapshot.operation_names)
            if index in snapshot.alternatives
        }
        legend = FIRST_BYTE_LEGEND if self._first_bytes else LEGEND
        if 0 < len(self._first_bytes) < len(snapshot.operation_names):
            legend = LEGEND + FIRST_BYTE_LEGEND
        self.writer.write(f"{one_line(snapshot.scenario)}: one character per job\n{legend}")
        if snapshot.noop:
            self.writer.write(NOOP_LINE)
        if snapshot.doing:
            self._tell(snapshot)

    def jobs(self, rows: Rows, operations: Rows | None = None) -> None:
        """Show a character for each job, or for each so many of them."""
        severities = job_severities(rows)
        if self._first_bytes and operations is not None:
            self._mark_first_bytes(severities, rows, operations)
        while len(severities):
            room = BURST_CHARS - self._burst
            if room <= 0:
                self._set_jobs_per_char(self._jobs_per_char * 10)
                continue
            taken = room * self._jobs_per_char - self._held
            self._show(self._thinned(severities[:taken]))
            severities = severities[taken:]

    def refresh(self, snapshot: Snapshot) -> None:
        """Show what a look has settled, and what goes on if nothing was shown for two seconds.

        This also resets the limit of characters that may be shown until the next refresh.
        """
        current = snapshot.round
        if current is not None and current.settled != self._settled:
            self._settled = current.settled
            self.show(f"  {current.text}")
        self._break_silence(snapshot)
        self._calm_refreshes = self._calm_refreshes + 1 if self._burst <= CALM_CHARS else 0
        self._burst = 0
        if self._jobs_per_char > 1 and self._calm_refreshes >= CALM_REFRESHES:
            self._set_jobs_per_char(self._jobs_per_char // 10)

    def show(self, text: str) -> None:
        """Show `text` on a line of its own."""
        self._new_line()
        super().show(text)
        self._wrote = True

    def _break_silence(self, snapshot: Snapshot) -> None:
        silent_s = snapshot.elapsed_s - self._silent_since_s
        if silent_s < 0:
            # The elapsed time restarts when the workers have joined and the first trial begins.
            self._told_at_s = -REPORT_INTERVAL_S
        if self._wrote or silent_s < 0:
            self._wrote, self._silent_since_s = False, snapshot.elapsed_s
        elif silent_s >= SILENCE_S:
            self._silent_since_s = snapshot.elapsed_s
            news = one_line(snapshot.activity)
            told_s = snapshot.elapsed_s - self._told_at_s
            again = _kind(news) == _kind(self._told) and 0 <= told_s < REPORT_INTERVAL_S
            if news and news != self._told and not again:
                self._tell(snapshot)
            else:
                self._put("-")
            self._wrote = False

    def _tell(self, snapshot: Snapshot) -> None:
        """Show what goes on beside the jobs."""
        self._told, self._told_at_s = one_line(snapshot.activity), snapshot.elapsed_s
        self.show(f"  {format_elapsed(snapshot.elapsed_s)}  {self._told}")

    def end(self, snapshot: Snapshot) -> None:
        """Finish the last line and sum up."""
        self._show_held()
        self._new_line()
        super().show(final_line(snapshot))

    def close(self) -> None:
        """Finish the last line."""
        self._show_held()
        self._new_line()
        super().close()

    def _mark_first_bytes(self, severities: Rows, rows: Rows, operations: Rows) -> None:
        """Give done jobs the character of their first byte, or of their last one if they have none."""
        for treatment, places in self._first_bytes.items():
            own = np.flatnonzero((rows["treatment"] == treatment) & (rows["outcome"] == Outcome.DONE))
            if not len(own):
                continue
            severities[own] += 1
            first = operations[(operations["treatment"] == treatment) & np.isin(operations["operation"], places)]
            if not len(first):
                continue
            order = np.argsort(first["ticket"])
            tickets = first["ticket"][order]
            at = np.minimum(np.searchsorted(tickets, rows["ticket"][own]), len(tickets) - 1)
            has = tickets[at] == rows["ticket"][own]
            severities[own[has]] = _bands(first["duration_ns"][order][at[has]])

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
        self._put(ALPHABET[severities].tobytes().decode("ascii"))

    def _put(self, text: str) -> None:
        """Show characters, on lines of equal width."""
        self._wrote = self._wrote or bool(text)
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
        legend = SHORT_FIRST_BYTE_LEGEND if self._first_bytes else SHORT_LEGEND
        self.writer.write(f"  each character now stands for {meaning}:\n  {legend}\n")

    def _new_line(self) -> None:
        if self._column:
            self.writer.write("\n")
            self._column = 0


def job_severities(rows: Rows) -> Rows:
    """Return the position of each job (`JOB_ROW`) in `ALPHABET`."""
    severities: Rows = _OUTCOME_SEVERITY[rows["outcome"]]
    done = rows["outcome"] == Outcome.DONE
    times_ns = rows["end_ns"][done] - rows["start_ns"][done]
    severities[done] = _bands(times_ns)
    return severities


def _bands(times_ns: Rows) -> Rows:
    """Return the position in `ALPHABET` of done jobs that took so long."""
    bands: Rows = (2 * np.searchsorted(LIMITS_NS, times_ns, side="right")).astype(np.uint8)
    return bands


def _kind(text: str) -> str:
    """Return a report without its figures."""
    return re.sub(r"[0-9][0-9.,]*", "#", text)


INTERVAL_S: Final = 2.0
"""The time between two lines that were asked for, in seconds."""


class LinesView(NotificationsView):
    """Shows one line of status every `interval_s` seconds, or `INTERVAL_S`; notices at once, and what is new soon."""

    shows_progress = True

    def __init__(self, stream: TextIO, interval_s: float | None = None) -> None:
        super().__init__(stream)
        self._interval_s = INTERVAL_S if interval_s is None else interval_s
        self._shown_s = 0.0
        self._settled = 0
        self._told: dict[str, float] = {}
        """The kinds of activity that lines told lately, and when the last one did."""
        self._news, self._news_since_s = "", 0.0

    def begin(self, snapshot: Snapshot) -> None:
        """Show the first line, and what it is to be read as."""
        super().begin(snapshot)
        if snapshot.noop:
            self.writer.write(NOOP_LINE)
        self.show(status_line(snapshot))

    def refresh(self, snapshot: Snapshot) -> None:
        """Show a line when it is time, or something is new."""
        is_new = self._is_new(snapshot)
        # The elapsed time restarts when the workers have joined and the first trial begins.
        is_due = not 0 <= snapshot.elapsed_s - self._shown_s < self._interval_s
        if is_due:
            self._shown_s = snapshot.elapsed_s // self._interval_s * self._interval_s
        if is_due or is_new:
            now = snapshot.elapsed_s
            self._told = {kind: at for kind, at in self._told.items() if 0 <= now - at < self._interval_s}
            self._told[_kind(one_line(snapshot.activity))] = now
            self.show(status_line(snapshot))

    def _is_new(self, snapshot: Snapshot) -> bool:
        """Return whether a look has settled more, or something that no line told has gone on for a while."""
        current = snapshot.round
        if current is not None and current.settled != self._settled:
            self._settled = current.settled
            return True
        news = _kind(one_line(snapshot.activity))
        if news != self._news:
            self._news, self._news_since_s = news, snapshot.elapsed_s
        lasts = not 0 <= snapshot.elapsed_s - self._news_since_s < SILENCE_S
        told_s = snapshot.elapsed_s - self._told.get(news, -math.inf)
        return bool(news) and lasts and not 0 <= told_s < self._interval_s

    def end(self, snapshot: Snapshot) -> None:
        """Sum up."""
        self.show(f"{format_elapsed(snapshot.elapsed_s)}  {final_line(snapshot)}")


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
    parts += [one_line(snapshot.activity)] if snapshot.activity else []
    return ", ".join(parts)
