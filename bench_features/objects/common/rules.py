"""The rules of jobs on object stores: each does one of its operations."""

from __future__ import annotations

from typing import Final

from bench_common.job_kind import Job
from bench_common.job_rules import Estimate, JobRules
from bench_common.treatment import Operation, Treatment
from bench_common.units import format_duration
from bench_features.objects.common.job import Objects

DEFAULT_OBJECT_S: Final = 0.1
"""The assumed duration of an operation on an object, in seconds: that of a store beside the load on one machine."""


def objects_job(treatment: Treatment) -> Objects:
    """Return the job of a treatment of this kind."""
    return as_objects(treatment.job)


def as_objects(job: Job) -> Objects:
    """Return a job of this kind as what it is."""
    assert isinstance(job, Objects)
    return job


class ObjectsRules(JobRules[Objects]):
    """The rules of a mix of operations on objects."""

    def operations(self) -> tuple[Operation, ...]:
        """Return those of which a job does one, each read followed by the time to its first byte."""
        return tuple(Operation(name.partition("[")[0], name) for name in self.job.operation_names())

    def host_need(self) -> Objects:
        """Return how the store is reached, and what it must be able to do."""
        job = self.job
        return Objects(
            (), profile=job.profile, endpoints=job.endpoints, policy=job.policy, delete_after_s=job.delete_after_s
        )

    def job_estimate(self) -> Estimate:
        """Return the assumed duration of an operation: only the store knows it."""
        return Estimate(
            DEFAULT_OBJECT_S, f"an operation on an object takes about {format_duration(DEFAULT_OBJECT_S)}"
        )
