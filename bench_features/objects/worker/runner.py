"""The worker's part of jobs on object stores: fills the stores of a run, runs its jobs there, and empties them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gevent.lock import RLock

from bench_common.messages import MAX_ENDPOINTS, MAX_URL_CHARS, PopulationReport, clip
from bench_features.objects.worker.performer import ObjectPerformer, open_treatment_store
from bench_features.objects.worker.population import RunObjects
from bench_worker.job_runner import JobRunner

if TYPE_CHECKING:
    from bench_common.records import JobReport
    from bench_common.treatment import Treatment
    from bench_features.objects.worker.population import Phase
    from bench_worker.job_runner import Interruptibly, RunnerContext


class StoreRunner(JobRunner):
    """The objects of a run in this process, and a performer for each of its treatments."""

    def __init__(self, context: RunnerContext, interruptibly: Interruptibly) -> None:
        super().__init__(context, interruptibly)
        opened = partial(open_treatment_store, noop=context.run.noop)
        self._objects = RunObjects(context.run, context.epoch, opened, self._report)
        self._performers: dict[int, ObjectPerformer] = {}
        self._opening = RLock()

    def define(self, treatment: Treatment, part: int, parts: int) -> None:
        """Begin to fill the store of a treatment with this worker's part of its population."""
        self._objects.define(treatment, part, parts)

    def run(self, treatment: Treatment, seed: int, trial: int, *, users: int) -> JobReport:
        """Run a job; the first one of its treatment waits for the store. Raises what keeps it from being used."""
        performer = self._performers.get(treatment.index)
        if performer is None:
            with self._opening:
                performer = self._performers.get(treatment.index) or self._open(treatment, users)
                self._performers[treatment.index] = performer
        return performer.run(seed, trial)

    def _open(self, treatment: Treatment, users: int) -> ObjectPerformer:
        store, catalogue = self.interruptibly(self._objects[treatment.index].wait)
        return ObjectPerformer(treatment, store, catalogue, slots=users, interruptibly=self.interruptibly)

    def end(self) -> None:
        """Stop filling stores."""
        self._objects.end()

    def clear(self) -> None:
        """Delete what the run made, unless it keeps that."""
        self._objects.clear()

    def leave(self) -> None:
        """Delete what this process made, unless the run keeps it."""
        self._objects.leave()

    def _report(self, treatment: int, phase: Phase) -> None:
        self.context.send(
            PopulationReport(
                epoch=self.context.epoch,
                treatment=treatment,
                phase=phase.name,
                over=phase.over,
                objects=phase.objects,
                found=phase.found,
                replaced=phase.replaced,
                content_bytes=phase.content_bytes,
                failed=phase.failed,
                seconds=phase.seconds,
                reason=clip(phase.reason),
                endpoints=[clip(url, MAX_URL_CHARS) for url in phase.urls[:MAX_ENDPOINTS]] if phase.over else [],
            )
        )
