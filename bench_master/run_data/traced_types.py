"""Where the time of operations went in the traced trials, as declared types: a part of the report document.

The same types check what a stats file says of it. A traced trial runs after all measured ones and is in no other
figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from bench_common.safe_text import one_line

TRACED: Final = "traced"
"""The kind of the events: one for each treatment."""
_Seconds = Annotated[float, Meta(ge=0, le=1e6)]
_Text = Annotated[str, Meta(max_length=4000)]


class TracedCauseReport(Struct, frozen=True):
    """What an operation waited for, or that it was on a CPU."""

    cause: _Text
    """``on CPU``, or what was waited for."""
    process: _Text
    """The name of the process that ran or waited; empty where none is to be seen."""
    seconds: _Seconds
    """How long, in seconds a job."""
    where: _Text
    """The system call, and the innermost functions of the kernel; empty where unknown."""


class TracedOperationReport(Struct, frozen=True):
    """Where the time of one operation went; the times are means a job, and their sum is the operation's."""

    operation: _Text
    """Its name."""
    jobs: Annotated[int, Meta(ge=1, le=1 << 20)]
    """How many jobs were traced."""
    total_s: _Seconds
    """How long it took."""
    cpu_s: _Seconds
    """How long one of the engine's processes ran."""
    waiting_s: _Seconds
    """How long none of them ran: blocked, or in the queue for a CPU."""
    causes: Annotated[Sequence[TracedCauseReport], Meta(max_length=1000)]
    """What it was, the largest first."""


class TracedSegmentReport(Struct, frozen=True):
    """A stretch of time with one cause."""

    start_s: _Seconds
    """When it began, from the begin of the job."""
    end_s: _Seconds
    """When it ended."""
    cause: _Text
    """Its cause."""
    process: _Text
    """The name of the process."""


class TracedPhaseReport(Struct, frozen=True):
    """One operation of the job whose duration is the median of the traced ones."""

    operation: _Text
    """Its name."""
    start_s: _Seconds
    """When it began, from the begin of the job."""
    end_s: _Seconds
    """When it ended."""
    segments: Annotated[Sequence[TracedSegmentReport], Meta(max_length=10_000)]
    """What it was, in order."""


class TracedSamplingReport(Struct, frozen=True):
    """How the threads were looked at."""

    interval_s: _Seconds
    """The median time between two looks."""
    longest_gap_s: _Seconds
    """The longest."""
    cpu_share: _Seconds
    """How many CPUs the sampler took."""
    stacks: bool
    """Whether the kernel's stacks were readable; else the function that a thread waits in is all that is known."""
    cut: bool
    """Whether the trial was longer than the sampler keeps."""


class TracedReport(Struct, frozen=True):
    """The traced trial of one treatment."""

    treatment: Annotated[int, Meta(ge=0, le=1 << 30)]
    """The treatment, by its index."""
    problem: _Text = ""
    """Why it was not traced; empty where it was."""
    jobs: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    """How many jobs were traced, one at a time."""
    phases: Annotated[Sequence[TracedOperationReport], Meta(max_length=1000)] = ()
    """Its operations, in order, over all traced jobs."""
    job: Annotated[Sequence[TracedPhaseReport], Meta(max_length=1000)] = ()
    """The operations of one job, for a Gantt chart."""
    sampling: TracedSamplingReport | None = None
    """How the threads were looked at; None where it was not traced."""


class TracedTrials:
    """Takes a run's ``traced`` events; of several for a treatment the last counts: a resumed run traces again."""

    def __init__(self) -> None:
        self._found: dict[int, TracedReport] = {}

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event of this kind; one that is damaged is left out."""
        if event["kind"] != TRACED:
            return
        try:
            found = msgspec.convert(event, TracedReport)
        except msgspec.ValidationError:
            return
        self._found[found.treatment] = found

    def report(self, treatments: int) -> list[TracedReport]:
        """Return what is known of the treatments of a plan, in its order."""
        return [self._found[index] for index in sorted(self._found) if index < treatments]


def cause_sentence(operation: TracedOperationReport, most: int = 4) -> str:
    """Return an operation in words: ``start, 184 ms: 12 on CPU, 172 waiting: 96 in RCU (...), 41 in fsync``."""
    causes: dict[str, float] = {}
    for one in operation.causes:
        if one.cause != ON_CPU:
            causes[one.cause] = causes.get(one.cause, 0.0) + one.seconds
    largest = sorted(causes.items(), key=lambda item: -item[1])
    named = [
        f"{_ms(seconds)} in {one_line(cause).removeprefix('in ')}"
        for cause, seconds in largest
        if seconds >= _SHOWN_S
    ][:most]
    head = f"{one_line(operation.operation)}, {_ms(operation.total_s)} ms: {_ms(operation.cpu_s)} on CPU"
    return f"{head}, {_ms(operation.waiting_s)} waiting{': ' if named else ''}{', '.join(named)}"


ON_CPU: Final = "on CPU"
"""The cause of time in which something ran."""
_SHOWN_S: Final = 0.0001
_WHOLE_MS: Final = 10


def _ms(seconds: float) -> str:
    milliseconds = 1000 * seconds
    return f"{milliseconds:.0f}" if milliseconds >= _WHOLE_MS else f"{milliseconds:.1f}"


def shares(operation: TracedOperationReport) -> Iterator[TracedCauseReport]:
    """Yield the causes of an operation, of one cause and process together, that are long enough to be told."""
    for one in operation.causes:
        if one.seconds >= _SHOWN_S:
            yield replace(one, cause=one_line(one.cause), process=one_line(one.process), where=one_line(one.where))
