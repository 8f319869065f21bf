"""The life of one job on a worker: what an event means for its report. Pure: no engine, socket or clock is seen here.

::

    operation -> operation ... -> done        -> tidied, where the script leaves a container
                              -> failed      -> tidied
                              -> aborted     -> tidied

The report is the state: its stamps say how far the job has come. A container that the job made is removed whatever
happens; an operation after the first failure is not tried. An operation that is done is nothing but two stamps more,
because a no-op run comes by here some hundred thousand times a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from bench_common.errors import ProtocolError
from bench_common.records import MAX_UNCERTAINTY_NS, UNCERTAINTY_GRAIN_NS, JobReport, Outcome
from bench_common.treatment import Operation

CommandOutputs: TypeAlias = tuple[tuple[str, bytes, bytes, int, bool], ...]
"""(step, stdout, stderr, exit code, truncated) of each command whose output is kept."""


class Failure(Struct, frozen=True):
    """Why an operation is no success: a short stable `kind`, and what the engine or tool really said.

    With `operation_ok` the operation itself was done, and what it gave cannot be used.
    """

    kind: str
    message: str
    start_ns: int
    end_ns: int
    operation_ok: bool = False
    outputs: CommandOutputs = ()


class Script:
    """A treatment's operations, whether a container is left when all of them are done, and what the job's time is.

    `first` and `last` are the positions, from the start and from the end, of the operations with which a job that is
    done begins and ends. Where some of its operations are not timed, these are its first and last timed command: what
    makes the place for a benchmark or removes it must not enter its time.
    """

    __slots__ = ("first", "last", "leaves_container", "length", "operations")

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = tuple(operations)
        self.length = len(self.operations)
        self.leaves_container = False
        self.first, self.last = 0, -1
        timed = [position for position, one in enumerate(self.operations) if one.timed and one.argv]
        if timed and not all(operation.timed for operation in self.operations):
            self.first, self.last = timed[0], timed[-1] - self.length
        for operation in self.operations:
            if operation.kind in ("create", "run"):
                self.leaves_container = True
            elif operation.kind == "remove":
                self.leaves_container = False

    def span(self, stamps: Sequence[int]) -> tuple[int, int]:
        """Return when a job that has these stamps begins and ends (ns)."""
        return stamps[2 * self.first], stamps[2 * self.last] + stamps[2 * self.last + 1]


def record_uncertainty(report: JobReport, end_uncertainty_ns: int) -> None:
    """Take in by how much an operation's end may be stamped too late; the largest counts for the job."""
    if end_uncertainty_ns > report.uncertainty_ns:
        report.uncertainty_ns = min(end_uncertainty_ns | UNCERTAINTY_GRAIN_NS, MAX_UNCERTAINTY_NS)


def record_failure(report: JobReport, script: Script, failure: Failure) -> None:
    """Take in that the operation under way failed, or that what it gave cannot be used."""
    stamps, position = report.stamps, len(report.stamps) // 2
    if not script.length > position:
        raise ProtocolError(f"failure of operation {position} of {script.length}")
    stamps += (failure.start_ns, failure.end_ns - failure.start_ns)
    _record_span(report, failure.end_ns)
    if not failure.operation_ok:
        report.failed_at = position
    report.outcome = Outcome.FAILED
    if failure.outputs:
        report.outputs = [*(report.outputs or ()), *failure.outputs]
    report.error = (script.operations[position].name, failure.kind, failure.message)


def record_abort(report: JobReport, now_ns: int) -> None:
    """Take in that the job was called off (at `now_ns`)."""
    _record_span(report, now_ns)
    report.outcome = Outcome.ABORTED


def record_background_failure(report: JobReport, operation: str, problem: str | None) -> None:
    """Take in that something that went on beside the operations broke, or (None) that nothing did."""
    if problem is None or report.outcome != Outcome.DONE:
        return
    report.outcome = Outcome.FAILED
    report.error = (operation, "engine", problem)


def record_cleanup(report: JobReport, problem: str | None) -> None:
    """Take in that the container is gone, or why it is not."""
    if problem is None:
        return
    # The job did what it was asked, yet left something: that is no clean measurement.
    if report.outcome == Outcome.DONE:
        report.outcome = Outcome.FAILED
    if report.error is None:
        report.error = ("clean-up", "engine", problem)


def _record_span(report: JobReport, end_ns: int) -> None:
    """Let the job begin with its first operation, and end with its last one but not before `end_ns`."""
    stamps = report.stamps
    report.span = (stamps[0], max(end_ns, stamps[-2] + stamps[-1])) if stamps else (end_ns, end_ns)
