"""Packs results, sends them in batches, and keeps them until the master acknowledges that they are in its journal."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from bench_common.messages import MAX_FRAME, Results, clip, encode
from bench_common.records import (
    LOOP_FIELDS,
    MAX_TEXT_CHARS,
    NOT_REACHED,
    ErrorRecord,
    JobReport,
    MetricRecord,
    Outcome,
    OutputRecord,
    result_word_count,
)
from bench_worker.job import Script

CommandOutput: TypeAlias = tuple[str, bytes, bytes, int, bool]
"""Step, stdout, stderr, exit code, and whether there was more."""

DONE: Final = int(Outcome.DONE)
BATCH_BYTES: Final = 4 << 20
"""A batch is sent as soon as it holds about this much."""
SPOOL_BYTES: Final = 64 << 20
"""With this much unacknowledged, no further job starts until the master has caught up."""
MAX_UTF8_BYTES: Final = 4
"""Bytes of the widest character."""
JOB_BYTES: Final = 8 << 20
"""How much output of one job's tools is kept, over all of its steps: no batch is too large to be sent."""


_LOOP: Final = struct.Struct(f"<{len(LOOP_FIELDS)}q").pack


class Outbox:
    """Collects the reports of finished jobs; `send` gets each frame, and again when it must be repeated.

    `lap` returns the values of `records.LOOP_FIELDS` since its last call: each batch reports how the loop was.
    """

    def __init__(
        self,
        epoch: int,
        send: Callable[[bytes], bool],
        lap: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0),
    ) -> None:
        self._epoch = epoch
        self._send = send
        self._lap = lap
        self._sequence = 0
        self._trial = (-1, -1)
        self._script = Script(())
        self._first, self._last = 0, -2
        """Where among the stamps of a job that is done those of its first and of its last operation are."""
        self._pack: Callable[..., bytes] = struct.Struct("").pack
        self._rows: list[bytes] = []
        self._metrics: list[MetricRecord] = []
        self._errors: list[ErrorRecord] = []
        self._outputs: list[OutputRecord] = []
        self._bytes = 0
        self._spool: dict[int, bytes] = {}
        self.spooled_bytes = 0
        self.full = False
        """Whether so much is unacknowledged that no further job should start."""

    @property
    def unacknowledged(self) -> int:
        """How many batches the master has not acknowledged."""
        return len(self._spool)

    def start_trial(self, treatment: int, trial: int, script: Script) -> None:
        """Take reports of jobs of another trial from here on, whose treatment has this script."""
        if (treatment, trial) != self._trial:
            self.flush()
            self._lap()  # what lay between two trials belongs to none of them
            self._trial = (treatment, trial)
            self._script, self._first, self._last = script, 2 * script.first, 2 * script.last
            self._pack = struct.Struct(f"<{result_word_count(script.length)}q").pack

    def add(self, ticket: int, report: JobReport) -> int:
        """Add the report of a job of the present trial; return how many wait to be sent."""
        stamps = report.stamps
        if report.extras is None and stamps:
            # As in `_row` and in the script's `span`, without a call: of a no-op run this is all that comes by.
            end_ns = stamps[self._last] + stamps[self._last + 1]
            self._rows.append(
                self._pack(ticket, DONE, -1, report.uncertainty_ns, stamps[self._first], end_ns, *stamps)
            )
        else:
            self._add_extras(ticket, report)
            self._rows.append(self._row(ticket, report))
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
        if report.error is not None:
            self._errors.append(ErrorRecord(*place, *(clip(text, MAX_TEXT_CHARS) for text in report.error)))

    def flush(self) -> None:
        """Send what was added since the last time."""
        if not self._rows:
            return
        treatment, trial = self._trial
        frame = encode(
            Results(
                epoch=self._epoch,
                sequence=self._sequence,
                treatment=treatment,
                trial=trial,
                rows=b"".join(self._rows),
                loop=_LOOP(*self._lap()),
                metrics=self._metrics,
                errors=self._errors,
                outputs=self._outputs,
            )
        )
        assert len(frame) <= MAX_FRAME
        self._spool[self._sequence] = frame
        self.spooled_bytes += len(frame)
        self.full = self.spooled_bytes > SPOOL_BYTES
        self._sequence += 1
        self._rows, self._metrics, self._errors, self._outputs = [], [], [], []
        self._bytes = 0
        self._send(frame)

    def acknowledge(self, sequences: list[int]) -> None:
        """Forget batches that are in the journal."""
        for sequence in sequences:
            frame = self._spool.pop(sequence, None)
            if frame is not None:
                self.spooled_bytes -= len(frame)
        self.full = self.spooled_bytes > SPOOL_BYTES

    def repeat(self) -> int:
        """Send again all that is not acknowledged; return how many batches that is."""
        for frame in list(self._spool.values()):
            self._send(frame)
        return len(self._spool)


def _truncate_outputs(outputs: Sequence[CommandOutput], limit: int) -> tuple[list[CommandOutput], int]:
    """Return what a job's tools printed, cut at so many bytes in all, and how many bytes that is."""
    kept: list[CommandOutput] = []
    room = limit
    for step, stdout, stderr, code, truncated in outputs:
        out = stdout[:room]
        err = stderr[: room - len(out)]
        room -= len(out) + len(err)
        cut = len(out) + len(err) < len(stdout) + len(stderr)
        kept.append((step, out, err, code, truncated or cut))
    return kept, limit - room
