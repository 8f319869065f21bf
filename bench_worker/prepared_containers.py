"""Containers that a workload prepared once, and in which its jobs then run one after the other.

A benchmark of files measures the same files again and again, and to make them can take longer than to measure them.
Jobs of several treatments use the same ones where these are made alike: by the same commands, under the same
settings. Each concurrent job has a container of its own. One in which a job did not succeed is removed; the next job
prepares another. None of this is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from bench_common.records import JobReport, Outcome
from bench_worker.engines.base import Container
from bench_worker.operation_runner import OperationRunner

Perform: TypeAlias = Callable[[OperationRunner, Container], JobReport]
"""Runs a script in a container; where that fails, the container is removed."""


class PreparedContainers:
    """The prepared containers of one worker. With `keep`, none is removed."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._idle: dict[bytes, list[tuple[Container, OperationRunner]]] = {}

    def run_job(
        self, jobs: OperationRunner, preparing: OperationRunner, name: str, ticket: int, perform: Perform
    ) -> JobReport:
        """Run a job in an idle container, or in a new one of that name once it is prepared; return its report.

        A failed preparation is the job's failure. The outputs of a preparation are with those of its first job.
        """
        alike = (jobs.treatment.engine, jobs.settings, preparing.script.operations)
        idle = self._idle.setdefault(msgspec.msgpack.encode(alike), [])
        outputs = []
        if idle:
            container, _ = idle.pop()
            container.ticket = ticket
        else:
            container = Container(name, ticket, jobs.settings)
            prepared = perform(preparing, container)
            if prepared.outcome != Outcome.DONE:
                # The script of the job, which its report is read by, has none of these operations.
                prepared.stamps, prepared.failed_at = [], -1
                return prepared
            outputs = prepared.outputs or []
        report = perform(jobs, container)
        if outputs:
            report.outputs = [*outputs, *(report.outputs or ())]
        if report.outcome == Outcome.DONE:
            idle.append((container, jobs))
        return report

    def release(self) -> None:
        """Remove the idle containers; the clean-up of the run removes those that cannot be removed here."""
        for idle in self._idle.values():
            while idle:
                container, runner = idle.pop()
                if not self._keep:
                    runner.clean_up(container)
