"""The limit: how many jobs of a program that does nothing the machine itself gets done, before anything is weighed.

As many jobs as the treatments have, with as many in flight, of ``true`` as a plain process. No engine can be
faster than that here, Weighbridge's own share included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench_common.treatment import ContainerSettings, Lifecycle, Operation, Scalar, Treatment

ENGINE: Final = "native"
JOB: Final = "(limit)"
"""What the job is called; no job of a scenario can have this label."""

_COMMAND: Final = ("true",)
_LIFE: Final = Lifecycle(tuple(Operation(kind, kind) for kind in ("run", "wait", "remove")))


def limits_of(
    treatments: Sequence[Treatment], repeats: Sequence[int], warmup: Sequence[int]
) -> tuple[tuple[Treatment, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the limits of a plan's treatments with their repeats and warm-ups.

    There is one for each environment, concurrency and size of a trial that the treatments have; it is repeated
    as often as the most repeated of them. Their indices go on after those of the treatments.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, one in enumerate(treatments):
        key = (one.environment, one.concurrency, one.iterations, one.operation_count, one.run_seconds)
        groups.setdefault(key, []).append(place)
    told_apart = _told_apart(list(groups))
    limits: list[Treatment] = []
    for key, places in groups.items():
        environment, concurrency, iterations, operation_count, run_seconds = key
        labels: dict[str, Scalar] = {} if environment is None else {"environment": environment}
        labels |= {"engine": ENGINE, "job": JOB}
        labels |= {name: key[place] for name, place in told_apart.items() if key[place] is not None}
        limits.append(
            Treatment(
                index=len(treatments) + len(limits),
                labels=labels,
                environment=environment,
                engine=ENGINE,
                job=_LIFE,
                container=ContainerSettings(command=_COMMAND),
                concurrency=concurrency,
                iterations=iterations,
                operation_count=operation_count,
                run_seconds=run_seconds,
                timeout_s=max(treatments[place].timeout_s for place in places),
            )
        )
    counts = [tuple(max(row[place] for place in places) for places in groups.values()) for row in (repeats, warmup)]
    return tuple(limits), counts[0], counts[1]


def _told_apart(keys: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Return what besides the environment the limits differ in, by label, with its place in the keys."""
    names = ("concurrency", "iterations", "operation_count", "run_seconds")
    return {name: place for place, name in enumerate(names, 1) if len({key[place] for key in keys}) > 1}


def is_limit(labels: Mapping[str, Any]) -> bool:
    """Say whether a treatment with these labels is a limit."""
    return labels.get("job") == JOB
