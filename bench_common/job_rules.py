"""What a kind of job says of its jobs that master and worker both derive from the treatment, and must agree upon.

Pure: the master names rows and limits by it, the worker runs it.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from bench_common.job_kind import Job, kind_of, load_part
from bench_common.thresholds import JOB_SERIES, JOBS_PER_S, RESPONSE_SERIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.thresholds import Primary
    from bench_common.treatment import Operation, Scalar, Treatment

CLEANUP_S: Final = 60.0
"""Time to remove a container after its job has ended, beyond the operation's own timeout (s)."""

JobT = TypeVar("JobT", bound=Job)
MetricTypes = dict[str, dict[str, str | bool]]
"""Metrics by name, each with its ``unit`` and ``direction``, as `Workload.declared_metrics` describes them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """About how long something takes, for a plan."""

    seconds: float
    assumption: str = ""
    """What that rests on; empty where the scenario says it."""


class JobRules(abc.ABC, Generic[JobT]):
    """The rules of one treatment; all but its operations have a default."""

    def __init__(self, treatment: Treatment, job: JobT) -> None:
        self.treatment = treatment
        self.job = job

    @property
    def by_itself(self) -> bool:
        """Whether each job is a measurement by itself, so that none may wait at a worker while others run there."""
        return False

    @property
    def shares_container(self) -> bool:
        """Whether the jobs run in a container that was prepared once for all of them."""
        return False

    @property
    def caveat(self) -> str:
        """What reports have to say of every such measure; empty: nothing."""
        return ""

    @property
    def params(self) -> Mapping[str, Scalar]:
        """The parameters of its workload."""
        return {}

    @abc.abstractmethod
    def operations(self) -> tuple[Operation, ...]:
        """Return the operations of one job, in order; those of which it does one, where it does one."""

    def preparation(self) -> tuple[Operation, ...]:
        """Return what is done once before the first job, in order; nothing where nothing is."""
        return ()

    def metrics(self) -> MetricTypes:
        """Return what jobs give beside times."""
        return {}

    def primary(self) -> str:
        """Return the measure by which treatments are compared unless the scenario names one."""
        return f"{RESPONSE_SERIES}.p95" if self.treatment.open_load is not None else self.closed_primary()

    def closed_primary(self) -> str:
        """Return that measure where jobs do not arrive at a rate.

        Jobs that do one of their operations have no median but that of the most frequent one: the throughput is one.
        """
        return JOBS_PER_S if self.job.does_one_operation else f"{JOB_SERIES}.p50"

    def fixed_reason(self, measure: Primary) -> str | None:
        """Return why this kind gives a measure the same value whatever the treatment; None if it may differ."""
        del measure
        return None

    def step_limit_s(self, operation: Operation) -> float:
        """Return how long an operation that is no mere wait may take, in seconds, before it counts as failed."""
        del operation
        return self.treatment.timeout_s

    def job_estimate(self) -> Estimate | None:
        """Return about how long a job takes; None: as long as its operations."""
        return None

    def estimate(self, operation: Operation) -> Estimate | None:
        """Return about how long a command of its own takes; None for an operation of the engine's."""
        del operation
        return None

    def services_limit_s(self) -> float:
        """Return how long its services may take for one job, from being made to being removed, in seconds."""
        return 0.0

    def disk_bytes(self) -> int:
        """Return about how much disk the jobs that run at once take, in bytes."""
        return 0

    def host_need(self) -> Job | None:
        """Return the job without what does not matter to a host; None where an engine's containers are all it needs.

        Equal needs are checked once.
        """
        return None if self.job.uses_engine else self.job

    def host_programs(self) -> Mapping[str, str]:
        """Return the programs that it needs where it runs on a host itself: by service, its own by ``""``."""
        return {}


def rules_of(treatment: Treatment) -> JobRules[Job]:
    """Return the rules of a treatment's jobs."""
    made: JobRules[Job] = load_part(kind_of(treatment.job).rules)(treatment, treatment.job)
    return made
