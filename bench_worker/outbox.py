"""Packs results, sends them in batches, and keeps them until the master acknowledges that they are in its journal."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, TypeAlias

from msgspec import Struct

from bench_common.fields import MAX_FRAME, MAX_PART_BYTES, PART_CONTENT_BYTES
from bench_common.long_output import keep_ends
from bench_common.messages import Results, ResultsPart, clip, encode
from bench_common.records import (
    LOOP_FIELDS,
    MAX_TEXT_CHARS,
    NOT_REACHED,
    SINGLE_RESULT_WORDS,
    ErrorRecord,
    JobReport,
    MetricRecord,
    Outcome,
    OutputRecord,
    TransactionRecord,
    result_word_count,
)
from bench_worker.job import Script

CommandOutput: TypeAlias = tuple[str, bytes, bytes, int, bool]
"""Step, stdout, stderr, exit code, and whether the output was cut."""

DONE: Final = int(Outcome.DONE)
BATCH_BYTES: Final = 4 << 20
"""A batch is sent when it holds about this many bytes."""
WINDOW_BYTES: Final = 8 << 20
"""So many bytes, and one batch more, may be on their way to the master; the rest waits here until it acknowledges."""
SPOOL_BYTES: Final = 64 << 20
"""With more unacknowledged bytes than this, no further job starts until the master has caught up."""
RESEND_S: Final = 1.0
"""A batch that is not acknowledged after so long is sent again, and then at intervals that double; in seconds."""
MAX_DOUBLINGS: Final = 4
"""How often that interval doubles."""
MAX_REPEAT_BYTES: Final = 4 << 20
"""About how much is sent again at once, so that a slow network or disk is not kept busy with repeats."""
MAX_UTF8_BYTES: Final = 4
"""Bytes of the longest character in UTF-8."""
JOB_BYTES: Final = 8 << 20
"""How much tool output of one job is kept over all of its steps, in bytes, so that no batch is too large to send."""


_LOOP: Final = struct.Struct(f"<{len(LOOP_FIELDS)}q").pack


class _SpooledBatch(Struct):
    """A batch that is not acknowledged."""

    frame: bytes
    due_s: float
    """When it is sent again (monotonic)."""
    repeats: int = 0


class Outbox:
    """Collects the reports of finished jobs; `send` gets each frame, and gets it again for each repetition.

    `lap` returns the values of `records.LOOP_FIELDS` since its last call; each batch contains them.
    """

    def __init__(
        self,
        epoch: int,
        send: Callable[[bytes], bool],
        lap: Callable[[], tuple[int, ...]] = lambda: (0,) * len(LOOP_FIELDS),
    ) -> None:
        self._epoch = epoch
        self._send = send
        self._lap = lap
        self._sequence = 0
        self._trial = (-1, -1)
        self._script = Script(())
        self._first, self._last = 0, -2
        """The positions of the first and of the last operation in the stamps of a successful job."""
        self._pack: Callable[..., bytes] = struct.Struct("").pack
        self._one_operation = False
        """Whether each job of the trial does one operation of many, and has `JobReport.single_words`."""
        self._rows: list[bytes] = []
        self._metrics: list[MetricRecord] = []
        self._errors: list[ErrorRecord] = []
        self._outputs: list[OutputRecord] = []
        self._transactions: list[TransactionRecord] = []
        self._bytes = 0
        self._spool: dict[int, _SpooledBatch] = {}
        self._waiting: deque[int] = deque()
        """The batches that were not sent yet, by number."""
        self._sent_bytes = 0
        """The size of those that were sent and not acknowledged."""
        self.taken = 0
        """The last message of the lane that was taken; each batch says so."""
        self.told = 0
        """The last one that a batch has said to be taken."""
        self.spooled_bytes = 0
        self.full = False
        """Whether too much is unacknowledged to start further jobs."""

    @property
    def unacknowledged(self) -> int:
        """How many batches the master has not acknowledged."""
        return len(self._spool)

    def start_trial(self, treatment: int, trial: int, script: Script, *, one_operation: bool = False) -> None:
        """Switch to the reports of another trial; `script` is the script of its treatment."""
        if (treatment, trial) != self._trial:
            self.flush()
            self._lap()  # discard the time between two trials: it belongs to neither
            self._trial = (treatment, trial)
            self._script, self._first, self._last = script, 2 * script.first, 2 * script.last
            self._one_operation = one_operation
            words = SINGLE_RESULT_WORDS if one_operation else result_word_count(script.length)
            self._pack = struct.Struct(f"<{words}q").pack

    def add(self, ticket: int, report: JobReport) -> int:
        """Add the report of a job of the current trial; return how many reports wait to be sent."""
        if self._one_operation:
            return self._add_single(ticket, report)
        stamps = report.stamps
        if report.extras is None and stamps:
            # Same as `_row` and `Script.span`, but inlined: a no-op run takes only this path.
            end_ns = stamps[self._last] + stamps[self._last + 1]
            self._rows.append(
                self._pack(ticket, DONE, -1, report.uncertainty_ns, stamps[self._first], end_ns, *stamps)
            )
        else:
            self._add_extras(ticket, report)
            self._rows.append(self._row(ticket, report))
        return len(self._rows)

    def _add_single(self, ticket: int, report: JobReport) -> int:
        """Add the report of a job that does one operation."""
        stamps, outcome = report.stamps, DONE
        if report.extras is not None:
            self._add_extras(ticket, report)
            outcome = report.outcome
        start_ns, end_ns = report.span or (stamps[0], stamps[0] + stamps[1])
        words = report.single_words
        failed_at = words[0] if outcome == Outcome.FAILED else -1
        self._rows.append(self._pack(ticket, outcome, failed_at, report.uncertainty_ns, start_ns, end_ns, *words))
        return len(self._rows)

    def _row(self, ticket: int, report: JobReport) -> bytes:
        stamps = report.stamps
        span = report.span or (self._script.span(stamps) if stamps else (0, 0))
        missing = self._script.length - len(stamps) // 2
        head = (ticket, report.outcome, report.failed_at, report.uncertainty_ns)
        return self._pack(*head, *span, *stamps, *NOT_REACHED * missing)

    def _add_extras(self, ticket: int, report: JobReport) -> None:
        treatment, trial = self._trial
        outputs, size = _truncate_outputs(report.outputs or (), JOB_BYTES)
        size += 0 if report.error is None else MAX_UTF8_BYTES * len(report.error[2])
        if self._bytes + size > BATCH_BYTES:
            self.flush()
        self._bytes += size
        place = (ticket, treatment, trial)
        self._outputs += [
            OutputRecord(*place, clip(step, MAX_TEXT_CHARS), stdout, stderr, exit_code, truncated)
            for step, stdout, stderr, exit_code, truncated in outputs
        ]
        if report.metrics:
            self._metrics += [MetricRecord(*place, name, value) for name, value in report.metrics.items()]
        for operation, transaction_id in report.transactions:
            name = clip(transaction_id, MAX_TEXT_CHARS)
            self._transactions.append(TransactionRecord(*place, clip(operation, MAX_TEXT_CHARS), name))
        if report.error is not None:
            self._errors.append(ErrorRecord(*place, *(clip(text, MAX_TEXT_CHARS) for text in report.error)))

    def flush(self) -> None:
        """Send the reports added since the last flush."""
        if not self._rows:
            return
        treatment, trial = self._trial
        frame = encode(
            Results(
                epoch=self._epoch,
                sequence=self._sequence,
                taken=self.taken,
                treatment=treatment,
                trial=trial,
                rows=b"".join(self._rows),
                loop=_LOOP(*self._lap()),
                metrics=self._metrics,
                errors=self._errors,
                outputs=self._outputs,
                transactions=self._transactions,
            )
        )
        assert len(frame) <= MAX_FRAME
        self._spool[self._sequence] = _SpooledBatch(frame, monotonic() + RESEND_S)
        self.spooled_bytes += len(frame)
        self.full = self.spooled_bytes > SPOOL_BYTES
        self._sequence += 1
        self.told = self.taken
        self._rows, self._metrics, self._errors, self._outputs, self._transactions = [], [], [], [], []
        self._bytes = 0
        self._waiting.append(self._sequence - 1)
        self._send_waiting()

    def acknowledge(self, sequences: list[int]) -> None:
        """Drop the batches that are in the master's journal."""
        for sequence in sequences:
            batch = self._spool.pop(sequence, None)
            if batch is not None:
                self.spooled_bytes -= len(batch.frame)
                self._sent_bytes -= len(batch.frame)
        self.full = self.spooled_bytes > SPOOL_BYTES
        self._send_waiting()

    def repeat(self, now: float) -> int:
        """Send the batches again that were not acknowledged in time, `MAX_REPEAT_BYTES` at most; return how many."""
        repeated = size = 0
        waiting = set(self._waiting)
        for sequence, batch in self._spool.items():
            if batch.due_s > now or sequence in waiting:
                continue
            batch.repeats += 1
            batch.due_s = now + RESEND_S * (1 << min(batch.repeats, MAX_DOUBLINGS))
            self._send_batch(sequence, batch)
            repeated += 1
            size += len(batch.frame)
            if size >= MAX_REPEAT_BYTES:
                break
        return repeated

    def _send_waiting(self) -> None:
        while self._waiting and self._sent_bytes < WINDOW_BYTES:
            sequence = self._waiting.popleft()
            batch = self._spool[sequence]
            batch.due_s = monotonic() + RESEND_S
            self._sent_bytes += len(batch.frame)
            self._send_batch(sequence, batch)

    def _send_batch(self, sequence: int, batch: _SpooledBatch) -> None:
        for frame in split_results(batch.frame, self._epoch, sequence):
            self._send(frame)


def _truncate_outputs(outputs: Sequence[CommandOutput], limit: int) -> tuple[list[CommandOutput], int]:
    """Return the output of a job's tools, cut at `limit` bytes in total, and its size in bytes."""
    kept: list[CommandOutput] = []
    room = limit
    for step, stdout, stderr, code, truncated in outputs:
        # What failed is named on stderr: half of the room is kept for it.
        out, cut_out = keep_ends(stdout, max(room - len(stderr), room // 2))
        err, cut_err = keep_ends(stderr, room - len(out))
        room -= len(out) + len(err)
        kept.append((step, out, err, code, truncated or cut_out or cut_err))
    return kept, limit - room


def split_results(frame: bytes, epoch: int, sequence: int) -> list[bytes]:
    """Return the frames that carry a frame of `Results`: itself, or its parts if it is larger than a frame may be."""
    if len(frame) <= MAX_PART_BYTES:
        return [frame]
    contents = [frame[at : at + PART_CONTENT_BYTES] for at in range(0, len(frame), PART_CONTENT_BYTES)]
    return [
        encode(ResultsPart(epoch=epoch, sequence=sequence, part=part, parts=len(contents), content=content))
        for part, content in enumerate(contents)
    ]
