"""The rules of guest jobs: what their workload says, with the parameters of the treatment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from bench_common.job_rules import CLEANUP_S, Estimate, JobRules, rules_of
from bench_common.thresholds import JOB_SERIES, RESPONSE_SERIES
from bench_common.treatment import Guest, Operation
from bench_common.units import format_duration
from bench_workloads.registry import workload_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.job_rules import MetricTypes
    from bench_common.thresholds import Primary
    from bench_common.treatment import Scalar, Treatment
    from bench_workloads.base import Service, Step

UNKNOWN_DURATION_S: Final = 3600.0
"""Time limit of a guest's step of unknown duration (s)."""

UNKNOWN_STEP_S: Final = 10.0
"""The assumed duration of a benchmark whose duration is unknown, in seconds."""

REMOTE_REQUEST_S: Final = 15.0
"""Time for a worker that lost its connection to return and answer another worker's request (s)."""

_CREATE: Final = Operation("create", "create")
_START: Final = Operation("start", "start")
_REMOVE: Final = Operation("remove", "remove")


class GuestRules(JobRules[Guest]):
    """The rules of a workload.

    A guest job is a life cycle, too. Its only step is the container's own command, which the job waits for; several
    steps run one after the other in an idle container. Steps that run once for all jobs are not part of it, nor is
    the container where they prepared it for all.
    """

    def __init__(self, treatment: Treatment, job: Guest) -> None:
        super().__init__(treatment, job)
        self.workload = workload_of(job)

    @property
    def by_itself(self) -> bool:
        """See `JobRules`."""
        return True

    @property
    def params(self) -> Mapping[str, Scalar]:
        """See `JobRules`."""
        return self.job.params

    @property
    def shares_container(self) -> bool:
        """See `JobRules`."""
        return self.workload.shares_container(self.params)

    @property
    def caveat(self) -> str:
        """See `JobRules`."""
        return f"{self.job.workload}: {self.workload.caveat}" if self.workload.caveat else ""

    def operations(self) -> tuple[Operation, ...]:
        """See `JobRules`."""
        steps = [step for step in self.workload.steps(self.params) if not step.once]
        if self.shares_container:
            return tuple(_exec_operation(step) for step in steps)
        if len(steps) == 1:
            return (_CREATE, _START, replace(_exec_operation(steps[0]), kind="wait"), _REMOVE)
        return (_CREATE, _START, *(_exec_operation(step) for step in steps), _REMOVE)

    def preparation(self) -> tuple[Operation, ...]:
        """Return the steps that run once; the container stays where the jobs run in it."""
        once = [_exec_operation(step) for step in self.workload.steps(self.params) if step.once]
        if once and self.shares_container:
            return (_CREATE, _START, *once)
        return (_CREATE, _START, *once, _REMOVE) if once else ()

    def metrics(self) -> MetricTypes:
        """See `JobRules`."""
        return self.workload.declared_metrics()

    def primary(self) -> str:
        """Return the first measure of the workload that has a direction and that no parameter fixes."""
        its = self.workload
        fixed = its.fixed_measures(self.params)
        judged = [metric.name for metric in its.metrics if metric.direction]
        names = dict.fromkeys((*(name for name in its.primary_metrics if name in judged), *judged))
        return next((name for name in names if name not in fixed), f"{JOB_SERIES}.p50")

    def fixed_reason(self, measure: Primary) -> str | None:
        """Return which parameter fixes a measure; None if none does."""
        fixed = self.workload.fixed_measures(self.params)
        step = {operation.name: operation for operation in self.operations()}.get(measure.series or "")
        lasts = measure.kind == "rate" or measure.series in (JOB_SERIES, RESPONSE_SERIES)
        name = JOB_SERIES if lasts or (step is not None and (step.argv or step.kind == "wait")) else measure.name
        return f"the parameter '{fixed[name]}' fixes it" if name in fixed else None

    def step_limit_s(self, operation: Operation) -> float:
        """Give a benchmark of unknown duration long enough for any; the user's own command has the user's timeout."""
        if not operation.argv or self.job.own is not None:
            return self.treatment.timeout_s
        expected = self._expected_seconds(operation)
        if expected is None:
            return max(UNKNOWN_DURATION_S, self.treatment.timeout_s)
        return 2 * expected + self.treatment.timeout_s

    def estimate(self, operation: Operation) -> Estimate | None:
        """Return about how long a step takes; what is unknown is what it takes on an ordinary machine."""
        if not operation.argv:
            return None
        expected = self._expected_seconds(operation)
        if expected is not None:
            return Estimate(expected)
        usual = self.workload.usual_seconds(self.params)
        assumed = UNKNOWN_STEP_S if usual is None else float(f"{usual:.2g}")
        return Estimate(
            assumed, f"the duration of {self.job.workload} is unknown, assumed {format_duration(assumed)}"
        )

    def _expected_seconds(self, operation: Operation) -> float | None:
        return self.workload.expected_seconds(self.params) if operation.seconds is None else operation.seconds

    def services_limit_s(self) -> float:
        """See `JobRules`."""
        return sum(map(partial(service_limit_s, self.treatment), self.workload.services))

    def disk_bytes(self) -> int:
        """See `JobRules`."""
        return self.treatment.concurrency * self.workload.disk_bytes(self.params)

    def host_programs(self) -> Mapping[str, str]:
        """See `JobRules`."""
        return {"": self.workload.binary} | {service.name: service.binary for service in self.workload.services}


def guest_rules(treatment: Treatment) -> GuestRules | None:
    """Return the rules of a treatment whose jobs are guests; None of any other."""
    rules = rules_of(treatment)
    return rules if isinstance(rules, GuestRules) else None


def _exec_operation(step: Step) -> Operation:
    return Operation(
        "exec", step.name, argv=step.argv, seconds=step.expected_s, timed=step.timed, metrics=step.metrics
    )


def remote_service_limit_s(treatment: Treatment, service: Service) -> float:
    """Return how long a service on another worker may take until it is ready there, in seconds."""
    return 4 * treatment.timeout_s + service.ready_s + REMOTE_REQUEST_S


def service_limit_s(treatment: Treatment, service: Service) -> float:
    """Return how long making, starting, stopping and removing a service may take together, in seconds."""
    if service.name in treatment.placement:
        ended_s = 2 * (service.stop_s + treatment.timeout_s + CLEANUP_S) + 2 * treatment.timeout_s
        return remote_service_limit_s(treatment, service) + REMOTE_REQUEST_S + ended_s
    return 2 * treatment.timeout_s + service.ready_s + service.stop_s + treatment.timeout_s + CLEANUP_S
