"""Live statistics of a run for the screen, in memory that does not grow with the jobs.

The report reads the stats file; these statistics see every batch as it arrives, and must not limit the rate. So
batches are buffered until there are enough of them, or until a snapshot is taken; then numpy groups and counts them,
in some nanoseconds a job.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_common.histogram import Histogram
from bench_common.job_rows import join_rows
from bench_common.records import FIRST_BYTE, MISSING_PREREQUISITE_KINDS, OPERATION_DONE, OPERATION_FAILED, Outcome
from bench_common.safe_text import shorten
from bench_master.progress.view import ErrorRow, HostRow, LatencyRow, RoundRow, Snapshot, TrialRow
from bench_master.verdicts.stopping import is_settled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from bench_common.records import ErrorRecord

Rows: TypeAlias = np.ndarray[Any, np.dtype[Any]]

JOB: Final = "job"
"""The name of the row of whole jobs, beside those of their operations."""

CHUNK_ROWS: Final = 16_384
"""How many rows are buffered before they are counted."""
CHUNK_BATCHES: Final = 4_096
"""How many batches are buffered before they are counted, if they are small."""

RATE_WINDOW_NS: Final = 5_000_000_000
RATE_SAMPLE_INTERVAL_NS: Final = 200_000_000
"""The window of the current rate, and the interval of its samples."""

ERROR_GROUPS: Final = 50
"""How many kinds of failure are distinguished; further ones are counted together."""

MESSAGE_CHARS: Final = 500


class PlannedTrial(Protocol):
    """What the statistics need of a trial of the plan."""

    @property
    def treatment(self) -> int:
        """The index of its treatment."""

    @property
    def block(self) -> int:
        """Its round; warm-up rounds come first."""

    @property
    def warmup(self) -> bool:
        """Whether its latencies are left out."""


class LiveLooks:
    """How far a run has come that goes on until its verdicts are settled, without what they are."""

    def __init__(self, trials: Sequence[PlannedTrial]) -> None:
        self._warmup = len({trial.block for trial in trials if trial.warmup})
        self._last: int | None = None
        self._treatments = 0
        self._settled = self._comparisons = 0

    def note_last(self, last: int, treatments: int) -> None:
        """Note the last look, and how many treatments are compared; those that follow are host ceilings."""
        self._last, self._treatments = last, treatments

    def note(self, comparisons: Sequence[Mapping[str, Any]], rounds: int) -> None:
        """Note the look after so many rounds."""
        self._comparisons = len(comparisons)
        self._settled = sum(is_settled(one["verdict"], rounds) for one in comparisons)

    def row(self, trial: PlannedTrial | None) -> RoundRow | None:
        """Return what to show during a trial; None for one that no look is about."""
        if self._last is None or trial is None or trial.warmup or trial.treatment >= self._treatments:
            return None
        return RoundRow(trial.block - self._warmup + 1, self._last, self._settled, self._comparisons)


class LiveStats:
    """Counts a run as it happens; the recorder feeds it, `snapshot` reads it.

    `titles` and `operation_names` are those of each treatment, by index; `trials` are the plan's, in its order.
    `planned` is the total number of jobs, None where trials run by time; it may be set again when workers come or
    go. `started_ns` and every `now_ns` are of one monotonic clock. `optional` are the treatments, by index, whose
    jobs are left out where their image or tool is missing, `alternatives` those whose jobs do one operation each.

    Rows must be of jobs of the run: treatment, trial and operation within the plan. The statistics own the arrays
    that they get: do not change them afterwards.
    """

    def __init__(
        self,
        titles: Sequence[str],
        operation_names: Sequence[Sequence[str]],
        trials: Sequence[PlannedTrial],
        *,
        scenario: str,
        planned: int | None,
        started_ns: int,
        noop: bool = False,
        optional: Collection[int] = (),
        alternatives: Collection[int] = (),
    ) -> None:
        self.planned = planned
        self._scenario = scenario
        self._noop = noop
        self._titles = tuple(titles)
        self._trials = tuple(trials)
        self.looks = LiveLooks(self._trials)
        self._warmup = np.array([trial.warmup for trial in trials], dtype=bool)
        self._cells = [
            _LatencyStats(index, title, operation)
            for index, (title, names) in enumerate(zip(titles, operation_names, strict=True))
            for operation in (JOB, *names)
        ]
        self._operation_names = tuple(tuple(names) for names in operation_names)
        self._alternatives = frozenset(alternatives)
        self._widths = np.array([len(names) for names in operation_names], dtype=np.int64)
        self._cell_offsets = np.cumsum(self._widths + 1) - (self._widths + 1)
        self._jobs = _PendingRows(self._count_jobs)
        self._operations = _PendingRows(self._count_operations)
        self._transfers = _PendingRows(self._count_transfers)
        self._moved_bytes = np.zeros(len(self._cells), np.int64)
        """The content that the operations of each cell moved."""
        self._outcomes = np.zeros(len(Outcome), dtype=np.int64)
        self._errors: dict[tuple[str, str, int], tuple[int, str]] = {}
        """By operation, kind and optional treatment (-1: any other): how many, and the first message."""
        self._optional = {index: _OptionalTreatment() for index in optional}
        self._hosts: dict[str, HostRow] = {}
        self._started_ns = started_ns
        self._rate_samples = deque([(started_ns, 0)])
        self._trial: int | None = None
        self._trial_began_ns = started_ns
        self._trials_ended = 0
        self._ended_ns = 0
        self._measured_ns = [0] * len(titles)
        """How long the measured trials of each treatment took."""

    def reduce_planned(self, jobs: int) -> None:
        """Reduce the planned jobs by those that a full host returned."""
        if self.planned is not None:
            self.planned -= jobs

    def jobs(self, rows: Rows) -> None:
        """Take a batch of finished jobs (`JOB_ROW`)."""
        self._jobs.take(rows)

    def operations(self, rows: Rows) -> None:
        """Take a batch of operations (`OPERATION_ROW`)."""
        self._operations.take(rows)

    def transfers(self, rows: Rows) -> None:
        """Take what a batch of operations moved (`TRANSFER_ROW`)."""
        self._transfers.take(rows)

    def errors(self, records: Iterable[ErrorRecord]) -> None:
        """Take the errors of failed jobs."""
        for record in records:
            optional = self._optional.get(record.treatment)
            if optional is not None:
                optional.missing &= record.kind in MISSING_PREREQUISITE_KINDS
            group = (record.operation, record.kind, -1 if optional is None else record.treatment)
            if group not in self._errors and len(self._errors) >= ERROR_GROUPS:
                group = ("(other)", "(other)", -1)
            count, message = self._errors.get(group, (0, shorten(record.message, MESSAGE_CHARS)))
            self._errors[group] = (count + 1, message)

    def host(self, row: HostRow) -> None:
        """Take the latest state of a worker and its host."""
        self._hosts[row.worker_id] = row

    def trial_began(self, index: int, now_ns: int) -> None:
        """Note that trial `index` of the plan has begun."""
        self._trial = index
        self._trial_began_ns = now_ns

    def trial_ended(
        self, index: int, now_ns: int, *, not_started: int = 0, outcome: Outcome = Outcome.ABORTED
    ) -> None:
        """Note that trial `index` is over; `not_started` jobs of it were never assigned and count as `outcome`."""
        if self._trial == index:
            self._ended_ns += now_ns - self._trial_began_ns
            self._trial = None
            if not self._trials[index].warmup:
                self._measured_ns[self._trials[index].treatment] += now_ns - self._trial_began_ns
        self._trials_ended += 1
        self._outcomes[outcome] += not_started

    def mark_resumed(self, now_ns: int) -> None:
        """Treat everything counted so far as an earlier part of the run: the current rate begins now."""
        self._jobs.count()
        self._operations.count()
        self._transfers.count()
        self._rate_samples = deque([(now_ns, int(self._outcomes[Outcome.DONE]))])

    def snapshot(self, now_ns: int) -> Snapshot:
        """Return the run as it is now, with everything taken so far."""
        self._jobs.count()
        self._operations.count()
        self._transfers.count()
        done, failed, lost, aborted = (int(n) for n in self._outcomes)
        left_out = sum(one.left_out for one in self._optional.values())
        current_ns = 0 if self._trial is None else now_ns - self._trial_began_ns
        busy_s = (self._ended_ns + current_ns) / 1e9
        return Snapshot(
            scenario=self._scenario,
            elapsed_s=(now_ns - self._started_ns) / 1e9,
            planned=self.planned,
            done=done,
            failed=failed - left_out,
            left_out=left_out,
            lost=lost,
            aborted=aborted,
            in_flight=sum(host.running for host in self._hosts.values()),
            rate_now=self._rate_now(done, now_ns),
            rate_mean=done / busy_s if busy_s > 0 else 0.0,
            eta_s=self._eta_s(int(self._outcomes.sum()), busy_s, current_ns / 1e9),
            trial=self._trial_row(),
            round=self.looks.row(None if self._trial is None else self._trials[self._trial]),
            latencies=tuple(
                self._with_rates(row, place, now_ns) if row.treatment in self._alternatives else row
                for place, row in enumerate(cell.row() for cell in self._cells)
            ),
            hosts=tuple(self._hosts[name] for name in sorted(self._hosts)),
            errors=self._error_groups(),
            noop=self._noop,
            operation_names=self._operation_names,
            alternatives=self._alternatives,
        )

    def _with_rates(self, row: LatencyRow, place: int, now_ns: int) -> LatencyRow:
        """Return a row with what was done and moved a second of its treatment's measured trials."""
        measured_ns = self._measured_ns[row.treatment]
        current = None if self._trial is None else self._trials[self._trial]
        if current is not None and current.treatment == row.treatment and not current.warmup:
            measured_ns += now_ns - self._trial_began_ns
        if measured_ns <= 0 or row.operation.endswith(FIRST_BYTE):
            return row
        moved = int(self._moved_bytes[place])
        return replace(row, per_s=1e9 * row.n / measured_ns, mb_per_s=1e3 * moved / measured_ns if moved else None)

    def job_durations(self) -> list[Histogram]:
        """Return the durations (ns) of each treatment's measured jobs that are done, of all that was taken so far."""
        self._jobs.count()
        return [self._cells[offset].histogram for offset in self._cell_offsets]

    def rates(self) -> dict[int, float]:
        """Return the jobs per second of each treatment's measured trials, of those that had any, by index."""
        done = [histogram.n for histogram in self.job_durations()]
        return {index: 1e9 * done[index] / ns for index, ns in enumerate(self._measured_ns) if ns and done[index]}

    def _trial_row(self) -> TrialRow | None:
        if self._trial is None:
            return None
        trial = self._trials[self._trial]
        title = self._titles[trial.treatment]
        return TrialRow(self._trial + 1, len(self._trials), trial.treatment, title, trial.warmup)

    def _error_groups(self) -> tuple[ErrorRow, ...]:
        found: dict[tuple[str, str, bool], tuple[int, str]] = {}
        for (operation, kind, treatment), (count, message) in self._errors.items():
            left_out = treatment in self._optional and bool(self._optional[treatment].left_out)
            before, first = found.get((operation, kind, left_out), (0, message))
            found[operation, kind, left_out] = (before + count, first)
        rows = (ErrorRow(count, *group[:2], message, group[2]) for group, (count, message) in found.items())
        return tuple(sorted(rows, key=lambda row: (row.left_out, -row.count)))

    def _rate_now(self, done: int, now_ns: int) -> float:
        if now_ns - self._rate_samples[-1][0] >= RATE_SAMPLE_INTERVAL_NS:
            self._rate_samples.append((now_ns, done))
        while len(self._rate_samples) > 1 and self._rate_samples[1][0] <= now_ns - RATE_WINDOW_NS:
            self._rate_samples.popleft()
        then_ns, done_then = self._rate_samples[0]
        return (done - done_then) * 1e9 / (now_ns - then_ns) if now_ns > then_ns else 0.0

    def _eta_s(self, finished: int, busy_s: float, current_s: float) -> float | None:
        if self.planned is not None:
            return max(0, self.planned - finished) * busy_s / finished if finished else None
        if not self._trials_ended:
            return None
        left = len(self._trials) - self._trials_ended
        return max(0.0, self._ended_ns / 1e9 / self._trials_ended * left - current_s)

    def _count_jobs(self, rows: Rows) -> None:
        outcome = rows["outcome"]
        self._outcomes += np.bincount(outcome, minlength=len(Outcome))
        for index, optional in self._optional.items():
            own = outcome[rows["treatment"] == index]
            optional.done += int((own == Outcome.DONE).sum())
            optional.failed += int((own == Outcome.FAILED).sum())
        measured = ~self._warmup[rows["trial"]]
        self._record(
            self._cell_offsets[rows["treatment"]],
            rows["end_ns"] - rows["start_ns"],
            done=measured & (outcome == Outcome.DONE),
            failed=measured & (outcome == Outcome.FAILED),
        )

    def _count_operations(self, rows: Rows) -> None:
        treatment, operation = rows["treatment"], rows["operation"]
        if (operation >= self._widths[treatment]).any():
            raise ValueError("a row names an operation that its treatment does not have")
        measured = ~self._warmup[rows["trial"]]
        done, failed = rows["ok"] == OPERATION_DONE, rows["ok"] == OPERATION_FAILED
        keys = self._cell_offsets[treatment] + 1 + operation
        self._record(keys, rows["duration_ns"], done=measured & done, failed=measured & failed)

    def _count_transfers(self, rows: Rows) -> None:
        done = (rows["ok"] == OPERATION_DONE) & ~self._warmup[rows["trial"]]
        offsets, moved = self._cell_offsets[rows["treatment"]][done], rows["bytes"][done].clip(0)
        for keys in (offsets, offsets + 1 + rows["operation"][done]):  # the whole job, and its operation
            self._moved_bytes += np.bincount(keys, moved, len(self._cells)).astype(np.int64)

    def _record(self, keys: Rows, durations_ns: Rows, *, done: Rows, failed: Rows) -> None:
        """Add each duration to the cell that its key names, and each failure to its cell's errors."""
        errors = np.bincount(keys[failed])
        for key in np.flatnonzero(errors):
            self._cells[key].fail(int(errors[key]))
        keys, durations_ns = keys[done], durations_ns[done]
        if not len(keys):
            return
        order = np.argsort(keys, kind="stable")
        keys, durations_ns = keys[order], durations_ns[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        for start, end in zip(starts, (*starts[1:], len(keys)), strict=True):
            self._cells[keys[start]].add(durations_ns[start:end])


class _OptionalTreatment(Struct):
    """The jobs of a treatment that is left out where its image or tool is missing, as the report decides it."""

    done: int = 0
    """How many were done; with one the treatment counts like any other."""
    failed: int = 0
    missing: bool = True
    """Whether every failure so far was for want of an image or a tool."""

    @property
    def left_out(self) -> int:
        """How many of the failed jobs are left out, and did not fail."""
        return self.failed if self.missing and not self.done else 0


class _PendingRows:
    """Batches that have not been counted yet."""

    def __init__(self, count: Callable[[Rows], None]) -> None:
        self._count = count
        self._batches: list[Rows] = []
        self._rows = 0

    def take(self, rows: Rows) -> None:
        """Keep a batch; count all of them when they are many."""
        self._batches.append(rows)
        self._rows += len(rows)
        if self._rows >= CHUNK_ROWS or len(self._batches) >= CHUNK_BATCHES:
            self.count()

    def count(self) -> None:
        """Count what is kept."""
        if not self._rows:
            return
        rows = join_rows(self._batches)
        self._batches, self._rows = [], 0
        self._count(rows)


class _LatencyStats:
    """The latencies of one operation of one treatment."""

    def __init__(self, treatment: int, title: str, operation: str) -> None:
        self.histogram = Histogram()
        self._row = LatencyRow(treatment, title, operation, 0, 0)
        self._errors = 0

    def add(self, durations_ns: Rows) -> None:
        self.histogram.record(durations_ns)

    def fail(self, count: int) -> None:
        self._errors += count

    def row(self) -> LatencyRow:
        """Return the row; quantiles are computed only after new values."""
        old, histogram = self._row, self.histogram
        if (histogram.n, self._errors) != (old.n, old.errors):
            self._row = replace(
                old,
                n=histogram.n,
                errors=self._errors,
                p50_s=_seconds(histogram.quantile(0.5)),
                p95_s=_seconds(histogram.quantile(0.95)),
                max_s=_seconds(histogram.max),
                p99_s=_seconds(histogram.quantile(0.99)),
            )
        return self._row


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9
