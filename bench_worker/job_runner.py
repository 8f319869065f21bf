"""What runs the jobs of a kind on a worker where that is no engine's container, and which treatments it runs.

A kind names its `JobRunner` as its worker's part. It is loaded with the first treatment of its kind.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bench_common.job_kind import kind_of, load_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Struct

    from bench_common.job_kind import JobKind
    from bench_common.records import JobReport
    from bench_common.treatment import Treatment
    from bench_worker.pipe_channel import RunContext

Interruptibly: TypeAlias = "Callable[[Callable[[], Any]], Any]"
"""Calls a function that only waits, so that the end of the run interrupts it (`JobAborted`)."""


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """What a runner knows of its run."""

    run: RunContext
    """The settings of the run."""
    epoch: int
    """The number of this process in the run, which no other process has or had."""
    send: Callable[[Struct], None]
    """Sends a message to the master: one of `pipe_channel.Forwarded`."""


class JobRunner(abc.ABC):
    """Runs the jobs of one kind in one run, in this process."""

    def __init__(self, context: RunnerContext, interruptibly: Interruptibly) -> None:
        self.context = context
        self.interruptibly = interruptibly

    def define(self, treatment: Treatment, part: int, parts: int) -> None:
        """Take in a treatment, and begin to make this worker's part of what its jobs need; return at once."""
        del treatment, part, parts

    @abc.abstractmethod
    def run(self, treatment: Treatment, seed: int, trial: int, *, users: int) -> JobReport:
        """Run a job of a treatment that was defined, of which `users` may run at once.

        The seed decides all that is drawn. What it raises fails the job; `JobAborted` aborts it.
        """

    def end(self) -> None:
        """Stop what `define` began: the run is over."""
        del self

    def clear(self) -> None:
        """Remove what the run made, unless it keeps that; called when no job of any worker runs."""
        del self

    def leave(self) -> None:
        """Remove what this process made, unless the run keeps it: the run may go on with others."""
        del self


OpenRunner: TypeAlias = "Callable[[JobKind, Interruptibly], JobRunner]"
"""Makes the runner of a kind."""


def open_runner(context: RunnerContext, kind: JobKind, interruptibly: Interruptibly) -> JobRunner:
    """Return the runner that a kind names, for this run."""
    made: JobRunner = load_part(kind.runner)(context, interruptibly)
    return made


class JobRunners:
    """The runners of a run's kinds of jobs; `opened` makes them, and without it there are none."""

    def __init__(self, opened: OpenRunner | None, interruptibly: Interruptibly) -> None:
        self._opened = opened
        self._interruptibly = interruptibly
        self._runners: dict[str, JobRunner] = {}
        self._by_treatment: dict[int, JobRunner] = {}

    def define(self, treatment: Treatment, part: int, parts: int) -> None:
        """Pass a treatment to the runner of its kind, if it has one."""
        kind = kind_of(treatment.job)
        if not kind.runner or self._opened is None:
            return
        if kind.name not in self._runners:
            self._runners[kind.name] = self._opened(kind, self._interruptibly)
        self._by_treatment[treatment.index] = runner = self._runners[kind.name]
        runner.define(treatment, part, parts)

    def of(self, treatment: Treatment) -> JobRunner | None:
        """Return what runs a treatment's jobs; None where an engine's containers do."""
        return self._by_treatment.get(treatment.index)

    def __iter__(self) -> Iterator[JobRunner]:
        return iter(self._runners.values())
