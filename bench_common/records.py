"""Records of finished jobs, operations and metrics, and the packed form of their rows.

High-rate records are sent and stored as packed rows, never as a dict per job. All instants are nanoseconds of
CLOCK_MONOTONIC of the recording host, until the master converts them to its own clock; a field's unit is in its name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Meta, Struct, field

Value = TypeVar("Value")


class Outcome(IntEnum):
    """How a job ended; every job ends in exactly one of these."""

    DONE = 0
    FAILED = 1
    LOST = 2
    ABORTED = 3


ATTEMPT_SHIFT: Final = 48
"""A ticket is ``attempt << 48 | job id``: it identifies an attempt in orders and results, unique within a run."""


JOB_ID: Final = (1 << ATTEMPT_SHIFT) - 1
"""The bits of a ticket that are the job's id."""


KEEP_RUN_PREFIX: Final = "kept-"
"""The prefix of the id of a run that keeps its containers (``--keep``)."""


def ticket_of(job_id: int, attempt: int = 0) -> int:
    """Return the ticket of an attempt (from 0) at a job (ids from 0, below 2**48)."""
    return attempt << ATTEMPT_SHIFT | job_id


def job_id_of(ticket: int) -> int:
    """Return the job id within a ticket."""
    return ticket & JOB_ID


def attempt_of(ticket: int) -> int:
    """Return the attempt (from 0) within a ticket."""
    return ticket >> ATTEMPT_SHIFT


ASSIGNMENT_FIELDS: Final = ("ticket", "seed", "intended_ns")
"""A job as the master sends it: a row of signed 64-bit words, little-endian.

`seed` is the job's own random parameter (0 to 2**63 - 1), `intended_ns` when the job arrives, on the worker's
clock; 0 in the closed model, where it may start at once.
"""

RESULT_FIELDS: Final = ("ticket", "outcome", "failed_at", "uncertainty_ns", "start_ns", "end_ns")
"""The first fields of a result row on the wire; a start and a duration (ns) follow for each of the operations.

All are signed 64-bit words, little-endian. `failed_at` is the position of the operation that failed, -1 if none did;
`uncertainty_ns` is how late a stamp may be. An operation that was not tried has a duration of -1.
"""

FIRST_BYTE: Final = ".first"
"""What the name of a read ends in that stands for the time to its first byte, such as ``read[tiny].first``."""

SINGLE_FIELDS: Final = (
    "operation",
    "first_ns",
    "first_uncertainty_ns",
    "last_try_ns",
    "bytes",
    "endpoint",
    "retries",
    "redrawn",
)
"""What follows `RESULT_FIELDS` in the row of a job that does one of its operations, and lasts as long as that.

`operation` is its position among the treatment's operations, -1 if none was tried. `first_ns` is the time to the
first byte of the answer (-1: there is none), at most `first_uncertainty_ns` too long; `last_try_ns` that from the
start to the last try. `bytes` is the content sent or received, `endpoint` its place among the endpoints, `retries`
how many tries failed before the last. `redrawn` is 1 if the job did another operation than the one drawn, for want of
an object.
"""

LOOP_FIELDS: Final = ("span_ns", "busy_ns", "lag_max_ns", "wake_up_ns", "wake_ups")
"""Measurements of the process that sends a batch of results, most of them of its event loop: words as in a row.

`span_ns` is the time since the previous batch (or since the trial's first order), `busy_ns` the part of it in which
the loop ran code, and `lag_max_ns` the longest stretch without a poll of the sockets. `wake_up_ns` is how late its
host may wake a thread, which the bound of each stamp includes: the largest of the last `wake_ups` readings.
"""

SPEED_SOURCE: Final = "speed"
"""The source of samples that say how fast a host was before a trial."""
BATCH_SAMPLES_SOURCE: Final = "batches"
"""The source of the samples made of these, one sample for the batches of a trial that are written together."""

WORD_BYTES: Final = 8
"""The size of a word of such rows, in bytes."""
LOOP_BYTES: Final = len(LOOP_FIELDS) * WORD_BYTES
"""The size of the measurements of `LOOP_FIELDS`, in bytes."""


def result_word_count(operations: int) -> int:
    """Return the number of words in a result row of a treatment with this many operations."""
    return len(RESULT_FIELDS) + 2 * operations


SINGLE_RESULT_WORDS: Final = len(RESULT_FIELDS) + len(SINGLE_FIELDS)
"""The number of words in the row of such a job."""


ARRIVAL: Final = "arrival"
DROPPED: Final = "dropped"
"""Operation and kind of the error of a job that got no free slot in time after its arrival."""

MAX_UNCERTAINTY_NS: Final = (1 << 32) - 1
UNCERTAINTY_GRAIN_NS: Final = (1 << 10) - 1
"""These bits of a job's uncertainty are set: rounded up to about a microsecond, it takes a byte less in the file."""

OPERATION_FAILED: Final = 0
OPERATION_DONE: Final = 1
OPERATION_EXCLUDED: Final = 2
"""The operation succeeded, but its job did not: a failed or aborted job never enters a latency."""


MAX_INSTANT_NS: Final = 1 << 60
"""36 years: no clock that counts from the boot of its host shows more, and sums and differences of several such
instants fit into 64 bits."""
MAX_COUNT: Final = (1 << 63) - 1
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
"""A number, an index or a ticket."""
Finite: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A float that is a number, and not infinite."""
Integer: TypeAlias = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
MAX_TEXT_CHARS: Final = 4000
"""How much of an error's text a record keeps, in characters."""
RecordText: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]


class _JobRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A rare record of one job. On the wire and in the stats file it is a list of its fields, in order."""

    ticket: Count
    """The attempt at the job, see `ticket_of`."""
    treatment: Count
    """The index of the treatment."""
    trial: Count
    """The index of the trial."""


class MetricRecord(_JobRecord, frozen=True):
    """One metric of a guest job; the workload defines its unit and direction."""

    name: RecordText
    """The name of the metric."""
    value: float
    """The value, in the metric's unit; NaN where a tool has none."""


MISSING_PREREQUISITE_KINDS: Final = frozenset({"image-missing", "command-not-found"})
"""Kinds of errors that mean that a requirement of a treatment is missing."""


class ErrorRecord(_JobRecord, frozen=True):
    """Why a job failed."""

    operation: RecordText
    """The name of the operation that failed, or ``parse``, ``worker``."""
    kind: RecordText
    """A short stable word to group by."""
    message: RecordText
    """The error text of the engine or tool."""


class TransactionRecord(_JobRecord, frozen=True):
    """What a store called the request of a job that was the slowest of its operation so far, for its own log."""

    operation: RecordText
    """The name of the operation."""
    transaction_id: RecordText
    """The id: ``X-Trans-Id``, ``x-amz-request-id``."""


class OutputRecord(_JobRecord, frozen=True):
    """The output of a guest's tool."""

    step: RecordText
    """The name of the step that ran the tool."""
    stdout: bytes
    stderr: bytes = b""
    exit_code: Int32 = 0
    """The exit code of the tool."""
    truncated: bool = False
    """Whether there was more output than the worker keeps."""


NOT_REACHED: Final = (0, -1)
"""The stamps of an operation that was not reached."""


NOT_TRIED: Final = (-1, -1, 0, 0, 0, 0, 0, 0)
"""The values of `SINGLE_FIELDS` of a job that tried no operation."""


class _RareAttribute(Generic[Value]):
    """An attribute that few reports set: it costs only those; all others return `default`."""

    def __init__(self, default: Value) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, report: JobReport, owner: type) -> Value:
        rest = report.extras
        value: Value = self._default if rest is None else rest.get(self._name, self._default)
        return value

    def __set__(self, report: JobReport, value: Value) -> None:
        if report.extras is None:
            report.extras = {}
        report.extras[self._name] = value


class JobReport(Struct, gc=False):
    """The results of one job, which a slot passes to the outbox; for a plain successful job, only its stamps."""

    stamps: list[int] = field(default_factory=list)
    """Start and duration (ns) of each operation that was tried, in order."""
    uncertainty_ns: int = 0
    """The largest of its operations' `OperationResult.end_uncertainty_ns`, `MAX_UNCERTAINTY_NS` at most."""
    single_words: tuple[int, ...] = NOT_TRIED
    """Of a job that does one operation: the values of `SINGLE_FIELDS`; its stamps are those of its only operation."""
    extras: dict[str, Any] | None = None
    """The rare attributes by name; None if there are none."""

    # Without annotations, or they would be fields.
    outcome = _RareAttribute[int](Outcome.DONE)
    span = _RareAttribute[tuple[int, int] | None](None)
    """When the job began and ended (ns); None if its script derives them from the stamps, see `job.Script`."""
    failed_at = _RareAttribute[int](-1)
    """The position of the operation that failed; -1 if none did, even if the job failed."""
    error = _RareAttribute[tuple[str, str, str] | None](None)
    """(operation, kind, message) of the failure."""
    metrics = _RareAttribute[dict[str, float] | None](None)
    """The metrics of a guest, by name."""
    transactions = _RareAttribute[Sequence[tuple[str, str]]](())
    """(operation, transaction id) where a job that does one operation was the slowest of its operation so far."""
    outputs = _RareAttribute[list[tuple[str, bytes, bytes, int, bool]] | None](None)
    """(step, stdout, stderr, exit code, truncated)."""

    @classmethod
    def ended(
        cls,
        outcome: Outcome,
        span: tuple[int, int],
        *,
        error: tuple[str, str, str] | None = None,
        outputs: Sequence[tuple[str, bytes, bytes, int, bool]] = (),
    ) -> JobReport:
        """Return the report of a job that ended without stamps of operations."""
        report = cls()
        report.outcome, report.span, report.error = outcome, span, error
        report.outputs = [*outputs] or None
        return report
