"""Object stores: the protocols, their HTTP client, and what a worker keeps of the objects that it made.

`ObjectJobs` is what the rest of a worker sees of them. Most runs have no jobs on objects, so all else is loaded with
the first treatment of such jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from bench_common.object_job import Objects

if TYPE_CHECKING:
    from bench_common.records import JobReport
    from bench_common.treatment import Treatment
    from bench_worker.stores.performer import ObjectPerformers
    from bench_worker.stores.population import RunObjects

OpenObjects: TypeAlias = "Callable[[], RunObjects]"
"""Makes the objects of a run."""


class ObjectJobs:
    """The jobs of a run that are on object stores.

    `open_objects` makes the objects of the run, None where it may have none; `interruptibly` calls a function that
    waits so that the end of the run interrupts it.
    """

    def __init__(self, open_objects: OpenObjects | None, interruptibly: Callable[[Callable[[], Any]], Any]) -> None:
        self._open_objects = open_objects
        self._interruptibly = interruptibly
        self._objects: RunObjects | None = None
        self._performers: ObjectPerformers | None = None

    def define(self, treatment: Treatment, part: int, parts: int) -> None:
        """Begin to fill the store of a treatment with this worker's part of its population, if it has one."""
        if not isinstance(treatment.job, Objects):
            return
        if self._performers is None:
            from bench_worker.stores.performer import ObjectPerformers

            self._objects = self._open_objects() if self._open_objects is not None else None
            self._performers = ObjectPerformers(self._objects, self._interruptibly)
        if self._objects is not None:
            self._objects.define(treatment, part, parts)

    def run(self, treatment: Treatment, seed: int, trial: int, *, users: int) -> JobReport:
        """Run a job of a treatment that was defined, as `ObjectPerformers.run` does."""
        assert self._performers is not None
        return self._performers.run(treatment, seed, trial, users=users)

    def end(self) -> None:
        """Stop filling stores: the run is over."""
        if self._objects is not None:
            self._objects.end()

    def clear(self) -> None:
        """Delete what the run made, unless it keeps that; call this when no job of any worker runs."""
        if self._objects is not None:
            self._objects.clear()

    def leave(self) -> None:
        """Delete what this process made, unless the run keeps it: the run may go on with others."""
        if self._objects is not None:
            self._objects.leave()
