"""The script of a job: which operations it has, what they are called in reports, how long each may take.

Master and worker both need it, the one to name rows, the other to do them; it follows from the treatment alone.
"""

from __future__ import annotations

from typing import Final

from bench_common.spec import Guest, Operation, Treatment
from workloads.registry import workload

IDLE_COMMAND: Final = ("sleep", "infinity")
"""What a guest's container runs while the steps of a workload with several are executed in it."""

UNKNOWN_LENGTH_S: Final = 3600.0
"""How long a guest's step may take where nobody can know how long it takes."""

CLEAN_UP_S: Final = 60.0
"""How long removing a container may take beyond its own timeout, once its job has ended."""


COMMIT_BYTES: Final = "commit_bytes"
"""The metric of a life-cycle job that says how much its last `commit` added to the container's image, in bytes."""

STATS_READINGS: Final = "stats_readings"
"""The metric that says how many readings came while a job was watched."""


def script_of(treatment: Treatment) -> tuple[Operation, ...]:
    """Return the operations of one job of `treatment`, in order.

    A guest job is a life cycle too: its only step is the container's own command and is waited for; several steps are
    executed one after the other in an idle container.
    """
    job = treatment.job
    if not isinstance(job, Guest):
        return job.operations
    steps = workload(job.workload).steps(job.params)
    create, start = Operation("create", "create"), Operation("start", "start")
    remove = Operation("remove", "remove")
    if len(steps) == 1:
        return (create, start, Operation("wait", steps[0].name, argv=steps[0].argv), remove)
    return (create, start, *(Operation("exec", step.name, argv=step.argv) for step in steps), remove)


def metrics_of(treatment: Treatment) -> dict[str, dict[str, str]]:
    """Return unit and direction (empty: neither way is better) of what jobs of `treatment` give beside times."""
    job = treatment.job
    if isinstance(job, Guest):
        metrics = workload(job.workload).metrics
        return {metric.name: {"unit": metric.unit, "direction": metric.direction} for metric in metrics}
    found = {}
    if any(operation.kind == "commit" for operation in job.operations):
        found[COMMIT_BYTES] = {"unit": "B", "direction": "lower"}
    if any(operation.kind == "stats" and operation.seconds is not None for operation in job.operations):
        found[STATS_READINGS] = {"unit": "1", "direction": ""}
    return found


def operation_limit_s(operation: Operation, treatment: Treatment) -> float:
    """Return how long an operation may take, in seconds, before it counts as failed."""
    if operation.kind in ("sleep", "hold"):
        return (operation.seconds or 0.0) + treatment.timeout_s
    if operation.kind == "stop":
        return (operation.seconds or 0.0) + treatment.timeout_s
    if isinstance(treatment.job, Guest) and operation.argv:
        expected = workload(treatment.job.workload).expected_seconds(treatment.job.params)
        if expected is None:
            return max(UNKNOWN_LENGTH_S, treatment.timeout_s)
        return 2 * expected + treatment.timeout_s
    return treatment.timeout_s


def job_limit_s(treatment: Treatment) -> float:
    """Return how long a whole job can take at most, clean-up included, in seconds."""
    limits = [operation_limit_s(operation, treatment) for operation in script_of(treatment)]
    # Containers that are packed wait for each other, and for the same hold.
    held = sum(one.seconds or 0.0 for one in script_of(treatment) if one.kind == "hold")
    in_turn = treatment.concurrency if treatment.packs else 1
    return held + (sum(limits) - held) * in_turn + CLEAN_UP_S
