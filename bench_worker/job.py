"""The life of one job on a worker: a pure state machine that decides what comes next and how the job ended.

It sees no engine, socket or clock. The slot that runs the job does what it is told and says what came of it; each
answer is the next step: the position of the operation to perform, or `TIDY`, or `OVER`.

::

    begin -> 0 -> succeeded -> 1 -> ... -> OVER (done)
               -> failed    -> TIDY -> tidied -> OVER (failed)
               -> aborted   -> TIDY -> tidied -> OVER (aborted)

A container that the job made is removed whatever happens; an operation after the first failure is not tried. Steps
are plain numbers and events plain calls, because a no-op run goes through here some hundred thousand times a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from bench_common.errors import ProtocolError
from bench_common.records import BOUND_GRAIN_NS, MAX_BOUND_NS, JobReport, Outcome
from bench_common.spec import Operation

TIDY: Final = -1
"""The next step is to remove the job's container, if there is one."""
OVER: Final = -2
"""The job has ended; its `report` is complete."""

Step: TypeAlias = int

Outputs: TypeAlias = tuple[tuple[str, bytes, bytes, int, bool], ...]
"""(step, stdout, stderr, exit code, truncated) of each command whose output is kept."""


class Stamped(Protocol):
    """What has a start and an end, in ns of CLOCK_MONOTONIC, and a bound on how late the end was stamped."""

    start_ns: int
    end_ns: int
    end_bound_ns: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an operation is no success: a short stable `kind`, and what the engine or tool really said.

    With `operation_ok` the operation itself was done, and what it gave cannot be used.
    """

    kind: str
    message: str
    start_ns: int
    end_ns: int
    operation_ok: bool = False
    outputs: Outputs = ()


class Script:
    """A treatment's operations, looked at once: which of them make a container and which take it away."""

    __slots__ = ("effects", "length", "operations")

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = tuple(operations)
        self.length = len(self.operations)
        made = {"create": True, "run": True, "remove": False}
        self.effects = tuple(made.get(operation.kind) for operation in self.operations)


class JobMachine:
    """One job under way. `begin` gives the first step, every other method the one that follows."""

    __slots__ = ("_container", "_position", "_script", "report")

    def __init__(self, script: Script, now_ns: int) -> None:
        self._script = script
        self._position = 0
        self._container = False
        self.report = JobReport(Outcome.DONE, now_ns, now_ns)

    def begin(self) -> Step:
        """Return the first step."""
        return 0 if self._script.length else self._end()

    def succeeded(self, done: Stamped) -> Step:
        """Take in that the operation was done, with its own stamps."""
        position, start_ns, end_ns = self._position, done.start_ns, done.end_ns
        if position < 0:
            raise self._out_of_order("success")
        report = self.report
        if not position:
            report.start_ns = start_ns
        report.end_ns = end_ns
        if done.end_bound_ns > report.bound_ns:
            report.bound_ns = min(done.end_bound_ns | BOUND_GRAIN_NS, MAX_BOUND_NS)
        report.operations.append((position, True, start_ns, end_ns - start_ns))
        effect = self._script.effects[position]
        if effect is not None:
            self._container = effect
        position += 1
        if position < self._script.length:
            self._position = position
            return position
        return self._tidy() if self._container else self._end()

    def failed(self, trouble: Trouble) -> Step:
        """Take in that the operation failed, or that what it gave cannot be used."""
        position = self._position
        if position < 0:
            raise self._out_of_order("failure")
        report = self.report
        if not position:
            report.start_ns = trouble.start_ns
        report.end_ns = max(report.end_ns, trouble.end_ns)
        report.operations.append(
            (position, trouble.operation_ok, trouble.start_ns, trouble.end_ns - trouble.start_ns)
        )
        report.outcome = Outcome.FAILED
        report.outputs += trouble.outputs
        report.error = (self._script.operations[position].name, trouble.kind, trouble.message)
        # A create or run that failed may have left something behind; removing what is not there does no harm.
        return self._tidy()

    def aborted(self, now_ns: int) -> Step:
        """Take in that the job was called off (at `now_ns`) while an operation was under way."""
        if self._position < 0:
            raise self._out_of_order("abort")
        self.report.outcome = Outcome.ABORTED
        self.report.end_ns = max(self.report.end_ns, now_ns)
        return self._tidy()

    def tidied(self, problem: str | None = None) -> Step:
        """Take in that the container is gone, or why it is not."""
        if self._position != TIDY:
            raise self._out_of_order("clean-up")
        report = self.report
        if problem is not None:
            # The job did what it was asked, yet left something: that is no clean measurement.
            if report.outcome is Outcome.DONE:
                report.outcome = Outcome.FAILED
            if report.error is None:
                report.error = ("clean-up", "engine", problem)
        return self._end()

    def _tidy(self) -> Step:
        self._position = TIDY
        return TIDY

    def _end(self) -> Step:
        self._position = OVER
        return OVER

    def _out_of_order(self, event: str) -> ProtocolError:
        states = {TIDY: "being tidied", OVER: "over"}
        return ProtocolError(f"{event} of a job that is {states.get(self._position, f'at step {self._position}')}")
