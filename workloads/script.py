"""The script of a job: its operations, their names in reports, their time limits, whatever its kind.

Pure: it follows from the treatment. The master needs it to name rows, the worker to run them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from bench_common.cost import cost_metrics
from bench_common.engine_traits import engine_traits
from bench_common.job_rules import CLEANUP_S, rules_of
from bench_common.shipped import shipped_folder
from bench_common.thresholds import RESPONSE_SERIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.job_rules import MetricTypes
    from bench_common.thresholds import Primary
    from bench_common.treatment import Operation, Treatment

IDLE_COMMAND: Final = ("sleep", "infinity")
"""What a guest's container runs while the steps of a workload with several are executed in it."""


def job_script(treatment: Treatment) -> tuple[Operation, ...]:
    """Return the operations of one job of `treatment`, in order; those of which it does one, where it does one."""
    return rules_of(treatment).operations()


def preparation_script(treatment: Treatment) -> tuple[Operation, ...]:
    """Return what is done once before the first job of `treatment`, in order; nothing where nothing is.

    The container stays where the jobs run in it.
    """
    return rules_of(treatment).preparation()


def shares_container(treatment: Treatment) -> bool:
    """Return whether the jobs of `treatment` run in a container that was prepared once for all of them."""
    return rules_of(treatment).shares_container


def job_metrics(treatment: Treatment) -> MetricTypes:
    """Return what jobs of `treatment` give beside times, as `Workload.declared_metrics` describes it."""
    own = rules_of(treatment).metrics()
    return own | cost_metrics(engine_traits(treatment.engine).cost) if treatment.cost else own


def default_primary(treatment: Treatment) -> str:
    """Return the measure by which treatments of this kind of job are compared unless the scenario names one."""
    return rules_of(treatment).primary()


def fixed_reason(treatment: Treatment, measure: Primary) -> str | None:
    """Return why a measure has the same value whatever the treatment, or none at all; None if it may differ."""
    if measure.kind == "containers":
        if not treatment.is_packing:
            return "the job packs no containers ('hold')"
        fixed = "without 'until' the scenario says how many containers are held"
        return fixed if treatment.until is None else None
    if measure.series == RESPONSE_SERIES and treatment.open_load is None:
        return "only jobs that arrive at a 'rate' have a response time"
    if measure.kind == "rate" and treatment.open_load is not None:
        return "the scenario says at which 'rate' jobs arrive"
    return rules_of(treatment).fixed_reason(measure)


def operation_limit_s(operation: Operation, treatment: Treatment) -> float:
    """Return how long an operation may take, in seconds, before it counts as failed."""
    if operation.kind in ("sleep", "hold", "stop"):
        return (operation.seconds or 0.0) + treatment.timeout_s
    return rules_of(treatment).step_limit_s(operation)


def job_limit_s(treatment: Treatment) -> float:
    """Return how long a whole job can take at most, its services, preparation and clean-up included, in seconds."""
    limits = [operation_limit_s(operation, treatment) for operation in job_script(treatment)]
    # Containers that are packed wait for each other, and for the same hold.
    held_s = sum(one.seconds or 0.0 for one in job_script(treatment) if one.kind == "hold")
    in_turn = treatment.concurrency if treatment.is_packing else 1
    doing_s = held_s + (sum(limits) - held_s) * in_turn
    doing_s += sum(operation_limit_s(operation, treatment) for operation in preparation_script(treatment))
    return doing_s + rules_of(treatment).services_limit_s() + CLEANUP_S


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
    path = str(shipped_folder("dockerfiles") / programs[argv[0]])
    return (sys.executable if path.endswith(".py") else "/bin/sh", path, *argv[1:])
