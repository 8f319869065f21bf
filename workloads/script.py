"""The script of a job: its operations, their names in reports, their time limits.

Pure: it follows from the treatment. The master needs it to name rows, the worker to run them.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from bench_common.object_job import Objects
from bench_common.thresholds import CONTAINERS, JOB_SERIES, JOBS_PER_S, RESPONSE_SERIES, Primary
from bench_common.treatment import Guest, Lifecycle, Operation, Treatment
from workloads.base import Service, Step
from workloads.registry import workload_of

if TYPE_CHECKING:
    from collections.abc import Mapping

IDLE_COMMAND: Final = ("sleep", "infinity")
"""What a guest's container runs while the steps of a workload with several are executed in it."""

UNKNOWN_DURATION_S: Final = 3600.0
"""Time limit of a guest's step of unknown duration (s)."""

CLEANUP_S: Final = 60.0
"""Time to remove a container after its job has ended, beyond the operation's own timeout (s)."""

REMOTE_REQUEST_S: Final = 15.0
"""Time for a worker that lost its connection to return and answer another worker's request (s)."""


_CREATE: Final = Operation("create", "create")
_START: Final = Operation("start", "start")
_REMOVE: Final = Operation("remove", "remove")
COMMIT_BYTES: Final = "commit_bytes"
"""Metric of a life-cycle job: bytes that its last `commit` added to the container's image."""

STATS_READINGS: Final = "stats_readings"
"""Metric: number of readings received while a job was watched."""


def job_script(treatment: Treatment) -> tuple[Operation, ...]:
    """Return the operations of one job of `treatment`, in order.

    A guest job is a life cycle, too. Its only step is the container's own command, which the job waits for; several
    steps run one after the other in an idle container. Steps that run once for all jobs are not part of it, nor is
    the container where they prepared it for all. A job on objects does one of its operations only.
    """
    job = treatment.job
    if isinstance(job, Lifecycle):
        return job.operations
    if isinstance(job, Objects):
        return tuple(Operation(name.partition("[")[0], name) for name in job.operation_names())
    steps = [step for step in workload_of(job).steps(job.params) if not step.once]
    if shares_container(treatment):
        return tuple(_exec_operation(step) for step in steps)
    if len(steps) == 1:
        return (_CREATE, _START, replace(_exec_operation(steps[0]), kind="wait"), _REMOVE)
    return (_CREATE, _START, *(_exec_operation(step) for step in steps), _REMOVE)


def preparation_script(treatment: Treatment) -> tuple[Operation, ...]:
    """Return what is done once before the first job of `treatment`, in order; nothing where nothing is.

    The container stays where the jobs run in it.
    """
    job = treatment.job
    steps = workload_of(job).steps(job.params) if isinstance(job, Guest) else ()
    once = [_exec_operation(step) for step in steps if step.once]
    if once and shares_container(treatment):
        return (_CREATE, _START, *once)
    return (_CREATE, _START, *once, _REMOVE) if once else ()


def shares_container(treatment: Treatment) -> bool:
    """Return whether the jobs of `treatment` run in a container that was prepared once for all of them."""
    job = treatment.job
    return isinstance(job, Guest) and workload_of(job).shares_container(job.params)


def _exec_operation(step: Step) -> Operation:
    return Operation(
        "exec", step.name, argv=step.argv, seconds=step.expected_s, timed=step.timed, metrics=step.metrics
    )


def job_metrics(treatment: Treatment) -> dict[str, dict[str, str | bool]]:
    """Return what jobs of `treatment` give beside times, as `Workload.declared_metrics` describes it."""
    job = treatment.job
    if isinstance(job, Guest):
        return workload_of(job).declared_metrics()
    if isinstance(job, Objects):
        return {}
    found: dict[str, dict[str, str | bool]] = {
        source.name: {"unit": source.unit, "direction": source.better, "primary": True}
        for operation in job.operations
        for source in operation.metrics
    }
    if any(operation.kind == "commit" for operation in job.operations):
        found[COMMIT_BYTES] = {"unit": "B", "direction": "lower", "primary": True}
    if any(operation.kind == "stats" and operation.seconds is not None for operation in job.operations):
        found[STATS_READINGS] = {"unit": "1", "direction": ""}
    return found


def default_primary(treatment: Treatment) -> str:
    """Return the figure by which treatments of this kind of job are compared unless the scenario names one."""
    if treatment.is_packing:
        return CONTAINERS
    if isinstance(treatment.job, Guest):
        its = workload_of(treatment.job)
        fixed = its.fixed_figures(treatment.job.params)
        judged = [metric.name for metric in its.metrics if metric.direction]
        names = dict.fromkeys((*(name for name in its.primary_metrics if name in judged), *judged))
        return next((name for name in names if name not in fixed), f"{JOB_SERIES}.p50")
    if treatment.open_load is not None:
        return f"{RESPONSE_SERIES}.p95"
    # A store under a mix has one throughput, while the median of its jobs is that of the most frequent operation.
    return JOBS_PER_S if isinstance(treatment.job, Objects) else f"{JOB_SERIES}.p50"


def fixed_reason(treatment: Treatment, figure: Primary) -> str | None:
    """Return why a figure has the same value whatever the treatment, or none at all; None if it may differ."""
    if figure.kind == "containers":
        return None if treatment.is_packing else "the job packs no containers ('hold')"
    if figure.series == RESPONSE_SERIES and treatment.open_load is None:
        return "only jobs that arrive at a 'rate' have a response time"
    if figure.kind == "rate" and treatment.open_load is not None:
        return "the scenario says at which 'rate' jobs arrive"
    if figure.kind == "rate" and treatment.is_packing:
        return "the scenario says how long containers are held"
    script = {operation.name: operation for operation in job_script(treatment)}
    held = [name for name, operation in script.items() if operation.kind in ("hold", "sleep")]
    if figure.series in held or (figure.series == JOB_SERIES and treatment.is_packing):
        return f"the scenario says how long '{figure.series if figure.series in held else held[0]}' lasts"
    if not isinstance(treatment.job, Guest):
        return None
    fixed = workload_of(treatment.job).fixed_figures(treatment.job.params)
    step = script.get(figure.series or "")
    lasts = figure.kind == "rate" or figure.series in (JOB_SERIES, RESPONSE_SERIES)
    name = JOB_SERIES if lasts or (step is not None and (step.argv or step.kind == "wait")) else figure.name
    return f"the parameter '{fixed[name]}' fixes it" if name in fixed else None


def operation_limit_s(operation: Operation, treatment: Treatment) -> float:
    """Return how long an operation may take, in seconds, before it counts as failed.

    A benchmark of unknown duration gets long enough for any; a command of the user's own has the user's own timeout.
    """
    if operation.kind in ("sleep", "hold"):
        return (operation.seconds or 0.0) + treatment.timeout_s
    if operation.kind == "stop":
        return (operation.seconds or 0.0) + treatment.timeout_s
    if isinstance(treatment.job, Guest) and operation.argv and treatment.job.own is None:
        expected = step_seconds(operation, treatment.job)
        if expected is None:
            return max(UNKNOWN_DURATION_S, treatment.timeout_s)
        return 2 * expected + treatment.timeout_s
    return treatment.timeout_s


def step_seconds(operation: Operation, job: Guest) -> float | None:
    """Return about how long a guest's step takes, in seconds; None if unknown."""
    return workload_of(job).expected_seconds(job.params) if operation.seconds is None else operation.seconds


def usual_seconds(job: Guest) -> float | None:
    """Return about how long a guest's step takes on an ordinary machine, in seconds, where its work ends it."""
    return workload_of(job).usual_seconds(job.params)


def disk_bytes(treatment: Treatment) -> int:
    """Return about how much disk the jobs of a treatment that run at once take, in bytes."""
    job = treatment.job
    return treatment.concurrency * workload_of(job).disk_bytes(job.params) if isinstance(job, Guest) else 0


def job_limit_s(treatment: Treatment) -> float:
    """Return how long a whole job can take at most, its services, preparation and clean-up included, in seconds."""
    limits = [operation_limit_s(operation, treatment) for operation in job_script(treatment)]
    # Containers that are packed wait for each other, and for the same hold.
    held_s = sum(one.seconds or 0.0 for one in job_script(treatment) if one.kind == "hold")
    in_turn = treatment.concurrency if treatment.is_packing else 1
    doing_s = held_s + (sum(limits) - held_s) * in_turn
    doing_s += sum(operation_limit_s(operation, treatment) for operation in preparation_script(treatment))
    return doing_s + sum(map(partial(service_limit_s, treatment), _services(treatment))) + CLEANUP_S


def remote_service_limit_s(treatment: Treatment, service: Service) -> float:
    """Return how long a service on another worker may take until it is ready there, in seconds."""
    return 4 * treatment.timeout_s + service.ready_s + REMOTE_REQUEST_S


def service_limit_s(treatment: Treatment, service: Service) -> float:
    """Return how long making, starting, stopping and removing a service may take together, in seconds."""
    if service.name in treatment.placement:
        ended_s = 2 * (service.stop_s + treatment.timeout_s + CLEANUP_S) + 2 * treatment.timeout_s
        return remote_service_limit_s(treatment, service) + REMOTE_REQUEST_S + ended_s
    return 2 * treatment.timeout_s + service.ready_s + service.stop_s + treatment.timeout_s + CLEANUP_S


def _services(treatment: Treatment) -> tuple[Service, ...]:
    return workload_of(treatment.job).services if isinstance(treatment.job, Guest) else ()


def fill_placeholders(argv: tuple[str, ...], words: Mapping[str, str]) -> tuple[str, ...]:
    """Return `argv` with each placeholder of `words` (such as ``{mariadb.port}``) replaced by its value."""
    result = []
    for word in argv:
        text = word
        for placeholder, value in words.items():
            text = text.replace(placeholder, value)
        result.append(text)
    return tuple(result)


def native_argv(argv: tuple[str, ...], programs: Mapping[str, str]) -> tuple[str, ...]:
    """Return `argv` as it is run where there is no image: one of our own `programs` is a file below ``dockerfiles``.

    A Python program is run by this interpreter, anything else by the shell, for which it was written.
    """
    if argv[0] not in programs:
        return argv
    path = str(files("dockerfiles") / programs[argv[0]])
    return (sys.executable if path.endswith(".py") else "/bin/sh", path, *argv[1:])
