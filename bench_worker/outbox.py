"""Results on their way out: packed, sent in batches, and kept until the master says that they are in its journal."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from bench_common.messages import MAX_FRAME, encode
from bench_common.records import JOB_ROW, OPERATION_ROW, JobReport

PACK_JOB: Final = struct.Struct("<QIIHBqqI").pack
PACK_OPERATION: Final = struct.Struct("<QIIHBqq").pack
assert JOB_ROW.itemsize == struct.calcsize("<QIIHBqqI")
assert OPERATION_ROW.itemsize == struct.calcsize("<QIIHBqq")

BATCH_BYTES: Final = 4 << 20
"""A batch is sent as soon as it holds about this much."""
SPOOL_BYTES: Final = 64 << 20
"""With this much unacknowledged, no further job is begun until the master has caught up."""


class Outbox:
    """Collects the reports of finished jobs; `send` gets each frame, and again when it has to be repeated."""

    def __init__(self, epoch: int, send: Callable[[bytes], bool]) -> None:
        self._epoch = epoch
        self._send = send
        self._sequence = 0
        self._jobs: list[bytes] = []
        self._operations: list[bytes] = []
        self._metrics: list[list[Any]] = []
        self._errors: list[list[Any]] = []
        self._outputs: list[list[Any]] = []
        self._bytes = 0
        self._spool: dict[int, bytes] = {}
        self.spooled_bytes = 0

    @property
    def waiting(self) -> int:
        """How many reports have not been sent yet."""
        return len(self._jobs)

    @property
    def unacknowledged(self) -> int:
        """How many batches the master has not acknowledged."""
        return len(self._spool)

    @property
    def full(self) -> bool:
        """Whether so much is unacknowledged that no further job should begin."""
        return self.spooled_bytes > SPOOL_BYTES

    def add(self, ticket: int, treatment: int, trial: int, report: JobReport) -> None:
        """Take in the report of a job that is over."""
        if report.outputs:
            size = sum(len(stdout) + len(stderr) for _, stdout, stderr, _, _ in report.outputs)
            if self._bytes + size > BATCH_BYTES:
                self.flush()
            self._bytes += size
            self._outputs += [[ticket, treatment, trial, *output] for output in report.outputs]
        stamps = (report.start_ns, report.end_ns, report.bound_ns)
        self._jobs.append(PACK_JOB(ticket, treatment, trial, 0, report.outcome, *stamps))
        for position, ok, start_ns, duration_ns in report.operations:
            self._operations.append(PACK_OPERATION(ticket, treatment, trial, position, ok, start_ns, duration_ns))
        if report.metrics:
            self._metrics += [[ticket, treatment, trial, name, value] for name, value in report.metrics.items()]
        if report.error is not None:
            self._errors.append([ticket, treatment, trial, *report.error])

    def flush(self) -> None:
        """Send what has come together since the last time."""
        if not self._jobs and not self._outputs:
            return
        frame = encode(
            "results",
            self._epoch,
            sequence=self._sequence,
            jobs=b"".join(self._jobs),
            operations=b"".join(self._operations),
            metrics=self._metrics,
            errors=self._errors,
            outputs=self._outputs,
        )
        assert len(frame) <= MAX_FRAME
        self._spool[self._sequence] = frame
        self.spooled_bytes += len(frame)
        self._sequence += 1
        self._jobs, self._operations, self._metrics, self._errors, self._outputs = [], [], [], [], []
        self._bytes = 0
        self._send(frame)

    def acknowledge(self, sequences: list[int]) -> None:
        """Forget batches that are in the journal."""
        for sequence in sequences:
            frame = self._spool.pop(sequence, None)
            if frame is not None:
                self.spooled_bytes -= len(frame)

    def repeat(self) -> int:
        """Send again all that is not acknowledged; return how many batches that is."""
        for frame in list(self._spool.values()):
            self._send(frame)
        return len(self._spool)
