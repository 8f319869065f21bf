"""Unpacks and checks a batch of results, and turns it into records on the master's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.errors import ProtocolError
from bench_common.job_rows import JOB_ROW, OPERATION_ROW, TRANSFER_ROW
from bench_common.messages import Results
from bench_common.records import (
    FIRST_BYTE,
    LOOP_FIELDS,
    MAX_INSTANT_NS,
    MAX_UNCERTAINTY_NS,
    OPERATION_DONE,
    OPERATION_EXCLUDED,
    OPERATION_FAILED,
    RESULT_FIELDS,
    SINGLE_FIELDS,
    SINGLE_RESULT_WORDS,
    WORD_BYTES,
    ErrorRecord,
    MetricRecord,
    Outcome,
    OutputRecord,
    TransactionRecord,
    result_word_count,
)

Rows: TypeAlias = np.ndarray[Any, np.dtype[Any]]

TICKET: Final = RESULT_FIELDS.index("ticket")
OUTCOME: Final = RESULT_FIELDS.index("outcome")
MAX_DURATION_NS: Final = 1 << 50
"""No interval of a loop is longer than these thirteen days: a sum of many such is still a number of 64 bits."""
FEW_WORDS: Final = 128
"""Up to so many words Python finds the largest one sooner than numpy."""
WORKER_OUTCOMES: Final = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.ABORTED})


class ResultBatch(Struct):
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
    transactions: list[TransactionRecord] = field(default_factory=list)
    first_positions: Rows | None = None
    """Of jobs that do one operation: where the row of each one's first byte is among the operations; -1 for none."""
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
            transactions=[record for record in self.transactions if record.ticket in theirs],
        )


def first_positions(names: Sequence[str]) -> Rows:
    """Return, for each operation of which a job does one, the position of the row of its first byte; -1 for none."""
    places = {name: place for place, name in enumerate(names)}
    return np.array([places.get(f"{name}{FIRST_BYTE}", -1) for name in names], np.int64)


def unpack_results(
    message: Results,
    operation_counts: Sequence[int],
    trials: Sequence[int],
    single: Mapping[int, Rows] | None = None,
) -> ResultBatch:
    """Return the batch in a results message.

    `operation_counts` are those of each treatment, `trials` the treatment of each trial; `single` has the
    `first_positions` of each treatment whose jobs do one operation. Raises `ProtocolError` for results of others.
    Work that is cheaper for many batches together is left to `to_rows` and `single_rows`.
    """
    treatment, trial, rows = message.treatment, message.trial, message.rows
    if trial >= len(trials) or treatment != trials[trial]:
        raise ProtocolError("results of a treatment or trial that is not in the plan")
    firsts = None if single is None else single.get(treatment)
    words = result_word_count(operation_counts[treatment]) if firsts is None else SINGLE_RESULT_WORDS
    if not rows or len(rows) % (words * WORD_BYTES):
        raise ProtocolError(f"{len(rows)} bytes are not a whole number of rows")
    table = memoryview(rows).cast("q")
    if not _are_bounded(table):
        raise ProtocolError("results with a number that no clock and no ticket has")
    outcomes = table[OUTCOME::words].tolist()
    aborted = _aborted(outcomes) if any(outcomes) else 0
    tickets = table[TICKET::words].tolist()
    batch = ResultBatch(treatment, trial, words, rows, message.loop, tickets, [], [], [], aborted)
    batch.first_positions = firsts
    if message.metrics or message.errors or message.outputs or message.transactions:
        _unpack_records(batch, message)
    return batch


def _are_bounded(table: memoryview) -> bool:
    """Return whether sums and differences of a few of these words fit into 64 bits."""
    if len(table) <= FEW_WORDS:
        few = table.tolist()
        return bool(min(few) >= -MAX_INSTANT_NS and max(few) <= MAX_INSTANT_NS)
    words = np.frombuffer(table, "<i8")
    return int(words.min()) >= -MAX_INSTANT_NS and int(words.max()) <= MAX_INSTANT_NS


def _unpack_records(batch: ResultBatch, message: Results) -> None:
    batch.metrics, batch.errors, batch.outputs = message.metrics, message.errors, message.outputs
    batch.transactions = message.transactions
    everything = (batch.metrics, batch.errors, batch.outputs, batch.transactions)
    tickets = {record.ticket for records in everything for record in records}
    if not tickets.issubset(batch.tickets):
        raise ProtocolError("results with a record of a job that is not in the batch")


def _aborted(outcomes: list[int]) -> int:
    if not WORKER_OUTCOMES.issuperset(outcomes):
        raise ProtocolError("results with an outcome that only the master can set")
    return outcomes.count(Outcome.ABORTED)


def to_rows(batches: Sequence[ResultBatch], numbers: Sequence[int], offsets_ns: Sequence[int]) -> tuple[Rows, Rows]:
    """Return the `JOB_ROW` and `OPERATION_ROW` of any number of batches of one trial.

    `numbers` are those of the members that they came from, one for each batch; `offsets_ns` say how far the clocks of
    these are ahead of the master's, on which the rows are.
    """
    batch = batches[0]
    table, head, jobs, offset_ns = _job_rows(batches, numbers, offsets_ns)
    starts, durations = table[:, len(RESULT_FIELDS) :: 2], table[:, len(RESULT_FIELDS) + 1 :: 2]
    operations = np.zeros(starts.shape, OPERATION_ROW)
    operations["ticket"] = head["ticket"][:, None]
    operations["treatment"], operations["trial"] = batch.treatment, batch.trial
    operations["operation"] = positions = np.arange(starts.shape[1])
    operations["start_ns"], operations["duration_ns"] = starts - offset_ns[:, None], durations
    operations["ok"] = OPERATION_DONE
    undone = head["outcome"] != Outcome.DONE
    if undone.any():
        # Neither a failed job nor a part of it enters a latency; the operation that failed is marked as such.
        operations["ok"][undone] = OPERATION_EXCLUDED
        operations["ok"][head["failed_at"][:, None] == positions] = OPERATION_FAILED
        return jobs, operations[durations >= 0]
    return jobs, operations.reshape(-1)


class SingleRows(Struct, frozen=True):
    """The rows of jobs that do one operation."""

    jobs: Rows
    operations: Rows
    """`OPERATION_ROW` of each job that tried one."""
    firsts: Rows
    """`OPERATION_ROW` of each first byte."""
    transfers: Rows
    """`TRANSFER_ROW` of each job that tried an operation."""


def single_rows(batches: Sequence[ResultBatch], numbers: Sequence[int], offsets_ns: Sequence[int]) -> SingleRows:
    """Return the rows of batches of such jobs of one trial, as `to_rows` does.

    Raises `ProtocolError` for an operation that the treatment does not have.
    """
    firsts = batches[0].first_positions
    assert firsts is not None
    table, head, jobs, offset_ns = _job_rows(batches, numbers, offsets_ns)
    tail = dict(zip(SINGLE_FIELDS, table.T[len(RESULT_FIELDS) :], strict=True))
    if int(tail["operation"].max()) >= len(firsts):
        raise ProtocolError("results with an operation that the treatment does not have")
    tried = tail["operation"] >= 0
    if not tried.all():
        head, tail = ({name: column[tried] for name, column in columns.items()} for columns in (head, tail))
        offset_ns = offset_ns[tried]
    operations = np.zeros(len(tail["operation"]), OPERATION_ROW)
    operations["ticket"], operations["operation"] = head["ticket"], tail["operation"]
    operations["treatment"], operations["trial"] = batches[0].treatment, batches[0].trial
    operations["start_ns"] = head["start_ns"] - offset_ns
    operations["duration_ns"] = head["end_ns"] - head["start_ns"]
    operations["ok"] = OPERATION_DONE
    undone = head["outcome"] != Outcome.DONE
    if undone.any():
        operations["ok"][undone] = OPERATION_EXCLUDED
        operations["ok"][head["failed_at"] >= 0] = OPERATION_FAILED
    transfers = np.zeros(len(operations), TRANSFER_ROW)
    for name in ("ticket", "treatment", "trial", "operation", "ok", "duration_ns"):
        transfers[name] = operations[name]
    for name, most in (("endpoint", _UINT16), ("retries", _UINT16), ("redrawn", 1)):
        transfers[name] = tail[name].clip(0, most)
    for name in ("bytes", "last_try_ns", "first_uncertainty_ns"):
        transfers[name] = tail[name].clip(0, None)
    positions = firsts[tail["operation"]]
    answered = (positions >= 0) & (tail["first_ns"] >= 0)
    first = operations[answered]
    first["operation"], first["duration_ns"] = positions[answered], tail["first_ns"][answered]
    # That the operation failed says its own row.
    first["ok"][first["ok"] == OPERATION_FAILED] = OPERATION_EXCLUDED
    return SingleRows(jobs, operations, first, transfers)


_UINT16: Final = (1 << 16) - 1


def _job_rows(
    batches: Sequence[ResultBatch], numbers: Sequence[int], offsets_ns: Sequence[int]
) -> tuple[Rows, dict[str, Rows], Rows, Rows]:
    """Return the words of the batches, those of `RESULT_FIELDS` by name, and `JOB_ROW` and clock of each job."""
    batch = batches[0]
    table = np.frombuffer(b"".join([one.rows for one in batches]), "<i8").reshape(-1, batch.words)
    sizes = [len(one.tickets) for one in batches]
    offset_ns = np.repeat(np.array(offsets_ns, np.int64), sizes)
    head = dict(zip(RESULT_FIELDS, table.T, strict=False))
    jobs = np.zeros(len(table), JOB_ROW)
    for name in ("ticket", "outcome"):
        jobs[name] = head[name]
    jobs["treatment"], jobs["trial"] = batch.treatment, batch.trial
    jobs["worker"] = np.repeat(np.array(numbers, np.uint16), sizes)
    jobs["uncertainty_ns"] = head["uncertainty_ns"].clip(0, MAX_UNCERTAINTY_NS)
    jobs["start_ns"], jobs["end_ns"] = head["start_ns"] - offset_ns, head["end_ns"] - offset_ns
    if batch.intended_ns is not None:
        intended = np.array([instant for one in batches for instant in one.intended_ns or ()], np.int64)
        jobs["wait_ns"] = np.where(intended, jobs["start_ns"] - intended, 0)
    return table, head, jobs, offset_ns


def loop_columns(loops: Sequence[bytes], treatment: int, trial: int, at_ns: int) -> dict[str, list[int]]:
    """Return, as columns of samples, how a worker's loop was during batches of a trial: one reading, at `at_ns`."""
    table = np.frombuffer(b"".join(loops), "<i8").reshape(-1, len(LOOP_FIELDS))
    span, busy, lag, wake_up, wake_ups = table.clip(0, MAX_DURATION_NS).T
    return {
        "time_ns": [at_ns],
        "treatment": [treatment],
        "trial": [trial],
        "batches": [len(table)],
        "span_ns": [int(span.sum())],
        "busy_ns": [int(np.minimum(busy, span).sum())],
        "lag_max_ns": [int(lag.max())],
        "wake_up_ns": [int(wake_up.max())],
        "wake_ups": [int(wake_ups.max())],
    }
