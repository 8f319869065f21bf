"""The life of one job on a worker: a pure state machine that decides what comes next and how the job ended.

It sees no engine, socket or clock. The slot that runs the job carries each action out and says what came of it.

::

    begin -> Perform(0) -> Succeeded -> Perform(1) -> ... -> Finish(done)
                        -> Failed    -> Tidy -> Tidied -> Finish(failed)
                        -> Aborted   -> Tidy -> Tidied -> Finish(aborted)

A container that the job made is removed whatever happens; an operation after the first failure is not tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bench_common.errors import ProtocolError
from bench_common.records import JobReport, Outcome
from bench_common.spec import Operation


@dataclass(frozen=True, slots=True)
class Succeeded:
    """An operation was done: its own stamps (ns), the metrics and raw output that it gave."""

    start_ns: int
    end_ns: int
    metrics: dict[str, float] = field(default_factory=dict)
    outputs: tuple[tuple[str, bytes, bytes, int, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """An operation failed, or (`operation_ok`) was done and what it gave cannot be used."""

    kind: str
    message: str
    start_ns: int
    end_ns: int
    operation_ok: bool = False
    outputs: tuple[tuple[str, bytes, bytes, int, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Aborted:
    """The job was called off while an operation was under way, or before the first."""

    now_ns: int


@dataclass(frozen=True, slots=True)
class Tidied:
    """The container is gone, or `problem` says why it is not."""

    now_ns: int
    problem: str | None = None


Event: TypeAlias = Succeeded | Failed | Aborted | Tidied


@dataclass(frozen=True, slots=True)
class Perform:
    """Do the operation at this position of the script."""

    position: int


@dataclass(frozen=True, slots=True)
class Tidy:
    """Remove the job's container, if there is one."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over."""

    report: JobReport


Action: TypeAlias = Perform | Tidy | Finish


class JobMachine:
    """One job under way. `begin` gives the first action, `handle` each next one."""

    __slots__ = ("_container", "_over", "_position", "_report", "_script", "_tidying")

    def __init__(self, script: Sequence[Operation], now_ns: int) -> None:
        self._script = script
        self._position = 0
        self._container = False
        self._tidying = False
        self._over = False
        self._report = JobReport(Outcome.DONE, now_ns, now_ns)

    def begin(self) -> Action:
        """Return the first action."""
        return self._next()

    def handle(self, event: Event) -> Action:
        """Take in what came of the last action; return the next. Raises `ProtocolError` out of order."""
        if self._over or self._tidying != isinstance(event, Tidied):
            raise ProtocolError(f"{event} does not follow in a job that is {self._state()}")
        match event:
            case Succeeded():
                return self._succeeded(event)
            case Failed():
                return self._failed(event)
            case Aborted():
                self._report.outcome = Outcome.ABORTED
                self._report.end_ns = max(self._report.end_ns, event.now_ns)
                return self._tidy()
            case Tidied():
                return self._tidied(event)

    def _state(self) -> str:
        return "over" if self._over else "being tidied" if self._tidying else f"at operation {self._position}"

    def _succeeded(self, event: Succeeded) -> Action:
        self._record(True, event.start_ns, event.end_ns)
        report = self._report
        if event.metrics:
            report.metrics.update(event.metrics)
        if event.outputs:
            report.outputs += event.outputs
        kind = self._script[self._position].kind
        if kind in ("create", "run"):
            self._container = True
        elif kind == "remove":
            self._container = False
        self._position += 1
        return self._next()

    def _failed(self, event: Failed) -> Action:
        self._record(event.operation_ok, event.start_ns, event.end_ns)
        operation = self._script[self._position]
        # A create or run that failed may have left something behind; removing what is not there does no harm.
        self._container = True
        self._report.outcome = Outcome.FAILED
        self._report.outputs += event.outputs
        self._report.error = (operation.name, event.kind, event.message)
        return self._tidy()

    def _tidied(self, event: Tidied) -> Action:
        if event.problem is not None:
            # The job did what it was asked, yet left something: that is no clean measurement.
            if self._report.outcome is Outcome.DONE:
                self._report.outcome = Outcome.FAILED
            if self._report.error is None:
                self._report.error = ("clean-up", "engine", event.problem)
        return self._finish()

    def _record(self, ok: bool, start_ns: int, end_ns: int) -> None:  # noqa: FBT001  a column, not a switch
        report = self._report
        if not report.operations:
            report.start_ns = start_ns
        report.operations.append((self._position, ok, start_ns, end_ns - start_ns))
        report.end_ns = max(report.end_ns, end_ns)

    def _next(self) -> Action:
        if self._position < len(self._script):
            return Perform(self._position)
        return self._tidy() if self._container else self._finish()

    def _tidy(self) -> Action:
        self._tidying = True
        return Tidy()

    def _finish(self) -> Finish:
        self._over = True
        return Finish(self._report)
