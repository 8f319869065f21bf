"""A batch of results, unpacked and checked: what a worker says becomes records on the master's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench_common.errors import ProtocolError
from bench_common.messages import Message
from bench_common.records import (
    JOB_ROW,
    OPERATION_DONE,
    OPERATION_ROW,
    OPERATION_SPOILED,
    ErrorRecord,
    MetricRecord,
    Outcome,
    OutputRecord,
)

TEXT_LIMIT = 4000


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one results message. Arrays are our own copies and may be changed."""

    jobs: np.ndarray[Any, np.dtype[Any]]
    operations: np.ndarray[Any, np.dtype[Any]]
    metrics: list[MetricRecord]
    errors: list[ErrorRecord]
    outputs: list[OutputRecord]
    aborted: int = 0
    """How many of the jobs were called off."""
    all_done: bool = True

    def settle(self, number: int, offset_ns: int, keep: Sequence[int] | None) -> Batch:
        """Return the batch with the member's number, on the master's clock, without the jobs that do not count."""
        batch = self if keep is None else self._only(keep)
        batch.jobs["worker"] = number
        if not self.all_done:
            batch._spoil()  # noqa: SLF001  our own kind
        if offset_ns:
            batch.jobs["start_ns"] -= offset_ns
            batch.jobs["end_ns"] -= offset_ns
            batch.operations["start_ns"] -= offset_ns
        return batch

    def _spoil(self) -> None:
        """Mark what was done for jobs that were not: a failed job never enters a latency, nor does a part of it."""
        undone = self.jobs["ticket"][self.jobs["outcome"] != Outcome.DONE]
        theirs = np.isin(self.operations["ticket"], undone) & (self.operations["ok"] == OPERATION_DONE)
        self.operations["ok"][theirs] = OPERATION_SPOILED

    def _only(self, keep: Sequence[int]) -> Batch:
        jobs = self.jobs[list(keep)]
        tickets = set(jobs["ticket"].tolist())
        return Batch(
            jobs,
            self.operations[np.isin(self.operations["ticket"], jobs["ticket"])],
            [record for record in self.metrics if record.ticket in tickets],
            [record for record in self.errors if record.ticket in tickets],
            [record for record in self.outputs if record.ticket in tickets],
            all_done=self.all_done,
        )


def unpack(message: Message, operation_counts: np.ndarray[Any, np.dtype[np.int64]], trials: int) -> Batch:
    """Return the batch in a results message.

    `operation_counts` are the operations of each treatment, `trials` how many trials the plan has: rows that name
    others are not of this run. Raises `ProtocolError`.
    """
    jobs, operations = _rows(message["jobs"], JOB_ROW), _rows(message["operations"], OPERATION_ROW)
    treatments = len(operation_counts)
    for rows in (jobs, operations):
        if len(rows) and (highest(rows["treatment"]) >= treatments or highest(rows["trial"]) >= trials):
            raise ProtocolError("results of a treatment or trial that is not in the plan")
    if len(operations) and (operations["operation"] >= operation_counts[operations["treatment"]]).any():
        raise ProtocolError("results of an operation that its treatment does not have")
    # Nearly every batch is of jobs that were done; what else there is to look at is looked at only where there is.
    all_done = not len(jobs) or highest(jobs["outcome"]) == Outcome.DONE
    aborted = 0 if all_done else _aborted(jobs["outcome"])
    try:
        metrics = [_metric(*item) for item in message["metrics"]]
        errors = [_error(*item) for item in message["errors"]]
        outputs = [_output(*item) for item in message["outputs"]]
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"results with a malformed record: {error}") from error
    told = {record.ticket for records in (metrics, errors, outputs) for record in records}
    if told and not told.issubset(jobs["ticket"].tolist()):
        raise ProtocolError("results with a record of a job that is not in the batch")
    return Batch(jobs, operations, metrics, errors, outputs, aborted, all_done)


highest = np.maximum.reduce
"""The largest of a column; `numpy.max` says the same at twice the price."""


def _aborted(outcomes: np.ndarray[Any, np.dtype[Any]]) -> int:
    known = np.bincount(outcomes, minlength=len(Outcome))
    if len(known) > len(Outcome) or known[Outcome.LOST]:
        raise ProtocolError("results with an outcome that no worker can know")
    return int(known[Outcome.ABORTED])


def _rows(packed: bytes, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    if len(packed) % dtype.itemsize:
        raise ProtocolError(f"{len(packed)} bytes are no whole number of rows")
    return np.frombuffer(packed, dtype).copy()


def _place(ticket: Any, treatment: Any, trial: Any) -> tuple[int, int, int]:
    for value in (ticket, treatment, trial):
        if type(value) is not int or value < 0:
            raise TypeError(f"ticket, treatment or trial {str(value)[:40]!r}")
    return ticket, treatment, trial


def _metric(ticket: Any, treatment: Any, trial: Any, name: Any, value: Any) -> MetricRecord:
    if type(value) not in (int, float):
        raise TypeError(f"metric value {str(value)[:40]!r}")
    return MetricRecord(*_place(ticket, treatment, trial), _text(name), float(value))


def _error(ticket: Any, treatment: Any, trial: Any, operation: Any, kind: Any, message: Any) -> ErrorRecord:
    return ErrorRecord(*_place(ticket, treatment, trial), _text(operation), _text(kind), _text(message))


def _output(
    ticket: Any, treatment: Any, trial: Any, step: Any, stdout: Any, stderr: Any, exit_code: Any, truncated: Any
) -> OutputRecord:
    if not isinstance(stdout, bytes) or not isinstance(stderr, bytes) or type(exit_code) is not int:
        raise TypeError("output that is not bytes with an exit code")
    place = _place(ticket, treatment, trial)
    return OutputRecord(*place, _text(step), stdout, stderr, exit_code, truncated is True)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, not {str(value)[:40]!r}")
    return value[:TEXT_LIMIT]
