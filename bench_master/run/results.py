"""Unpacks and checks a batch of results, and turns it into records on the master's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from bench_common.errors import ProtocolError
from bench_common.job_rows import JOB_ROW, OPERATION_ROW
from bench_common.messages import Results
from bench_common.records import (
    LOOP_FIELDS,
    MAX_INSTANT_NS,
    MAX_UNCERTAINTY_NS,
    OPERATION_DONE,
    OPERATION_EXCLUDED,
    OPERATION_FAILED,
    RESULT_FIELDS,
    WORD_BYTES,
    ErrorRecord,
    MetricRecord,
    Outcome,
    OutputRecord,
    result_word_count,
)

Rows: TypeAlias = np.ndarray[Any, np.dtype[Any]]

TICKET: Final = RESULT_FIELDS.index("ticket")
OUTCOME: Final = RESULT_FIELDS.index("outcome")
MAX_DURATION_NS: Final = 1 << 50
"""No interval of a loop is longer than these thirteen days: a sum of many such is still a number of 64 bits."""
WORKER_OUTCOMES: Final = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.ABORTED})


@dataclass(slots=True)
class ResultBatch:
    """The content of one results message, of one trial: packed rows, and the rare rest as records."""

    treatment: int
    trial: int
    words: int
    """How many words a row has."""
    rows: bytes
    loop: bytes
    """How the worker's event loop was since the batch before: the words of `records.LOOP_FIELDS`."""
    tickets: list[int]
    metrics: list[MetricRecord]
    errors: list[ErrorRecord]
    outputs: list[OutputRecord]
    aborted: int = 0
    """How many of the jobs were aborted."""
    intended_ns: list[int] | None = None
    """When each job arrived, on the master's clock (0: not known); None in the closed model."""

    def only(self, keep: Sequence[int]) -> ResultBatch:
        """Return the batch with these rows only, and the records of their jobs."""
        size = self.words * WORD_BYTES
        tickets = [self.tickets[row] for row in keep]
        theirs = set(tickets)
        return replace(
            self,
            rows=b"".join(self.rows[row * size : (row + 1) * size] for row in keep),
            tickets=tickets,
            metrics=[record for record in self.metrics if record.ticket in theirs],
            errors=[record for record in self.errors if record.ticket in theirs],
            outputs=[record for record in self.outputs if record.ticket in theirs],
        )


def unpack_results(message: Results, operation_counts: Sequence[int], trials: Sequence[int]) -> ResultBatch:
    """Return the batch in a results message.

    `operation_counts` are those of each treatment, `trials` the treatment of each trial. Raises `ProtocolError` for
    results of others. Work that is cheaper for many batches together is left to `to_rows`.
    """
    treatment, trial, rows = message.treatment, message.trial, message.rows
    if trial >= len(trials) or treatment != trials[trial]:
        raise ProtocolError("results of a treatment or trial that is not in the plan")
    words = result_word_count(operation_counts[treatment])
    if not rows or len(rows) % (words * WORD_BYTES):
        raise ProtocolError(f"{len(rows)} bytes are not a whole number of rows")
    table = memoryview(rows).cast("q")
    if not _are_bounded(rows):
        raise ProtocolError("results with a number that no clock and no ticket has")
    outcomes = table[OUTCOME::words].tolist()
    aborted = _aborted(outcomes) if any(outcomes) else 0
    tickets = table[TICKET::words].tolist()
    batch = ResultBatch(treatment, trial, words, rows, message.loop, tickets, [], [], [], aborted)
    if message.metrics or message.errors or message.outputs:
        _unpack_records(batch, message)
    return batch


def _are_bounded(rows: bytes) -> bool:
    """Return whether sums and differences of a few words of these rows fit into 64 bits."""
    words = np.frombuffer(rows, "<i8")
    return int(words.min()) >= -MAX_INSTANT_NS and int(words.max()) <= MAX_INSTANT_NS


def _unpack_records(batch: ResultBatch, message: Results) -> None:
    batch.metrics, batch.errors, batch.outputs = message.metrics, message.errors, message.outputs
    tickets = {record.ticket for records in (batch.metrics, batch.errors, batch.outputs) for record in records}
    if not tickets.issubset(batch.tickets):
        raise ProtocolError("results with a record of a job that is not in the batch")


def _aborted(outcomes: list[int]) -> int:
    if not WORKER_OUTCOMES.issuperset(outcomes):
        raise ProtocolError("results with an outcome that only the master can set")
    return outcomes.count(Outcome.ABORTED)


def to_rows(batches: Sequence[ResultBatch], number: int, offset_ns: int) -> tuple[Rows, Rows]:
    """Return the `JOB_ROW` and `OPERATION_ROW` of any number of batches of one trial from one member.

    They get the number of the member that they came from, and move from its clock, `offset_ns` ahead of it, to
    the master's.
    """
    batch = batches[0]
    table = np.frombuffer(b"".join([one.rows for one in batches]), "<i8").reshape(-1, batch.words)
    head = dict(zip(RESULT_FIELDS, table.T, strict=False))
    jobs = np.zeros(len(table), JOB_ROW)
    for name in ("ticket", "outcome"):
        jobs[name] = head[name]
    jobs["treatment"], jobs["trial"], jobs["worker"] = batch.treatment, batch.trial, number
    jobs["uncertainty_ns"] = head["uncertainty_ns"].clip(0, MAX_UNCERTAINTY_NS)
    jobs["start_ns"], jobs["end_ns"] = head["start_ns"] - offset_ns, head["end_ns"] - offset_ns
    if batch.intended_ns is not None:
        intended = np.array([instant for one in batches for instant in one.intended_ns or ()], np.int64)
        jobs["wait_ns"] = np.where(intended, jobs["start_ns"] - intended, 0)
    starts, durations = table[:, len(RESULT_FIELDS) :: 2], table[:, len(RESULT_FIELDS) + 1 :: 2]
    operations = np.zeros(starts.shape, OPERATION_ROW)
    operations["ticket"] = head["ticket"][:, None]
    operations["treatment"], operations["trial"] = batch.treatment, batch.trial
    operations["operation"] = positions = np.arange(starts.shape[1])
    operations["start_ns"], operations["duration_ns"] = starts - offset_ns, durations
    operations["ok"] = OPERATION_DONE
    undone = head["outcome"] != Outcome.DONE
    if undone.any():
        # Neither a failed job nor a part of it enters a latency; the operation that failed is marked as such.
        operations["ok"][undone] = OPERATION_EXCLUDED
        operations["ok"][head["failed_at"][:, None] == positions] = OPERATION_FAILED
        return jobs, operations[durations >= 0]
    return jobs, operations.reshape(-1)


def loop_columns(loops: Sequence[bytes], treatment: int, trial: int, at_ns: int) -> dict[str, list[int]]:
    """Return, as columns of samples, how a worker's loop was during batches of a trial: one reading, at `at_ns`."""
    table = np.frombuffer(b"".join(loops), "<i8").reshape(-1, len(LOOP_FIELDS))
    span, busy, lag = table.clip(0, MAX_DURATION_NS).T
    return {
        "time_ns": [at_ns],
        "treatment": [treatment],
        "trial": [trial],
        "batches": [len(table)],
        "span_ns": [int(span.sum())],
        "busy_ns": [int(np.minimum(busy, span).sum())],
        "lag_max_ns": [int(lag.max())],
    }
