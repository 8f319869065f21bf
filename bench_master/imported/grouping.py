"""Keeps imported runs apart that were run differently: each group is a treatment, never averaged with others.

What was different is what the outputs themselves state; it becomes the labels that a run of ours would have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench_common.errors import UsageError
from bench_common.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_common.spec import Scalar
    from bench_master.imported.runs import Run
    from workloads.base import Workload

    Stated = Mapping[str, Scalar]


@dataclass(slots=True)
class Group:
    """Runs that state the same: their places among all runs, and the labels that tell them from the others."""

    stated: Stated
    labels: dict[str, Scalar] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)


def grouped(workload: Workload, runs: Sequence[Run], given: Mapping[str, Scalar]) -> list[Group]:
    """Return the runs in groups, in the order in which each was met first.

    A failed run says less of itself than a whole one: it belongs to the only group that it does not contradict, and
    else to one of its own. `given` are labels of the user's; `UsageError` where an output states something else.
    """
    groups: list[Group] = []
    for at, run in sorted(enumerate(runs), key=lambda pair: (bool(pair[1].error), pair[0])):
        fitting = [one for one in groups if one.stated == run.stated]
        if run.error and not fitting:
            fitting = [one for one in groups if run.stated.items() <= one.stated.items()]
        if len(fitting) != 1:
            fitting = [Group(run.stated)]
            groups += fitting
        fitting[0].members.append(at)
    varying = [
        key
        for key in dict.fromkeys(key for group in groups for key in group.stated)
        if len({group.stated.get(key) for group in groups}) > 1
    ]
    for group in groups:
        shown = {key: _shown(workload, key, value) for key, value in group.stated.items()}
        for key, value in given.items():
            if key in shown and str(shown[key]) != str(value):
                raise UsageError(f"--label {key}={value}: an output says itself that it is {shown[key]}")
        group.labels = {**given, **{key: shown[key] for key in varying if key in shown}}
    return sorted(groups, key=lambda group: min(group.members))


def _shown(workload: Workload, key: str, value: Scalar) -> Scalar:
    """Return a stated value as the label of a run shows it."""
    kind = next((parameter.type for parameter in workload.parameters if parameter.name == key), "text")
    if kind == "size" and isinstance(value, int):
        return format_size(value)
    if kind == "duration" and isinstance(value, float):
        return format_duration(value)
    return value
