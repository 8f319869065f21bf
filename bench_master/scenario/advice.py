"""What a user should know of a scenario that is right as it is: notes, never refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_common.treatment import Guest, Lifecycle, Treatment
from bench_master.scenario.format import NATIVE
from bench_master.scenario.operations import leaves_container
from workloads.registry import workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FEWEST_TRIALS: Final = 6
"""With fewer trials there is no 95 % interval of a median, whatever the difference."""


def notes_on(treatments: Sequence[Treatment], repeats: Sequence[int]) -> Iterator[str]:
    """Yield a note for each thing that is likely to surprise."""
    lifecycles = [(one, one.job.operations) for one in treatments if isinstance(one.job, Lifecycle)]
    yield from _about(
        (one for one, operations in lifecycles if leaves_container(operations)),
        "the operations end without 'remove'; the worker removes the container afterwards, untimed",
    )
    yield from _about(
        (
            one
            for one, operations in lifecycles
            if one.engine != NATIVE
            and one.container.init is None
            and any(operation.kind == "stop" for operation in operations)
        ),
        "'stop' takes the whole grace period if the command has no SIGTERM handler; 'init: true' forwards it",
    )
    few = [one for one, count in zip(treatments, repeats, strict=True) if count < FEWEST_TRIALS]
    if len(treatments) > 1:
        yield from _about(few, f"fewer than {FEWEST_TRIALS} repeats give no 95 % interval, so no verdict")


def caveats(treatments: Iterable[Treatment]) -> tuple[str, ...]:
    """Return what a reader of the numbers must know of the workloads that gave them, with their names."""
    names = dict.fromkeys(one.job.workload for one in treatments if isinstance(one.job, Guest))
    return tuple(f"{name}: {caveat}" for name in names if (caveat := workload(name).caveat))


def _about(treatments: Iterable[Treatment], text: str) -> Iterator[str]:
    jobs = dict.fromkeys(str(one.labels.get("job", "")) for one in treatments)
    if jobs:
        names = ", ".join(name for name in jobs if name)
        yield f"{f'job {names}: ' if names else ''}{text}"
