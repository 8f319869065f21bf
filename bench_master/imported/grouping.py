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

    from bench_common.treatment import Scalar
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
        group = _only_group_of(run, groups)
        if group is None:
            group = Group(run.stated)
            groups.append(group)
        group.members.append(at)
    varying = _varying(groups)
    for group in groups:
        shown = {key: _shown(workload, key, value) for key, value in group.stated.items()}
        _check_given(given, shown)
        group.labels = {**given, **{key: shown[key] for key in varying if key in shown}}
    return sorted(groups, key=lambda group: min(group.members))


def _only_group_of(run: Run, groups: Sequence[Group]) -> Group | None:
    """Return the group that a run belongs to; None where there is none yet, or more than one that it may be of."""
    fitting = [one for one in groups if one.stated == run.stated]
    if run.error and not fitting:
        fitting = [one for one in groups if run.stated.items() <= one.stated.items()]
    return fitting[0] if len(fitting) == 1 else None


def _varying(groups: Sequence[Group]) -> list[str]:
    """Return the keys, in the order in which they were met, that not all groups state alike."""
    keys = dict.fromkeys(key for group in groups for key in group.stated)
    return [key for key in keys if len({group.stated.get(key) for group in groups}) > 1]


def _check_given(given: Mapping[str, Scalar], shown: Mapping[str, Scalar]) -> None:
    for key, value in given.items():
        if key in shown and str(shown[key]) != str(value):
            raise UsageError(f"--label {key}={value}: an output says itself that it is {shown[key]}")


def _shown(workload: Workload, key: str, value: Scalar) -> Scalar:
    """Return a stated value as the label of a run shows it."""
    kind = next((parameter.type for parameter in workload.parameters if parameter.name == key), "text")
    if kind == "size" and isinstance(value, int):
        return format_size(value)
    if kind == "duration" and isinstance(value, float):
        return format_duration(value)
    return value
