"""Who will take the jobs of which treatment, as far as that can be told before anybody is there.

A plan that is shown counts jobs and time by it. It keeps to what a run does: a treatment of one environment is done
by the workers of that one, and who lends a service to its jobs takes none of them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench_common.placement import lent_by, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.treatment import Treatment


@dataclass(frozen=True, slots=True)
class Prospect:
    """A worker that there will be; empty: nobody has said which environment it is in, or how it is called."""

    worker_id: str = ""
    environment: str = ""


def environments_of(treatments: Sequence[Treatment]) -> frozenset[str]:
    """Return the environments that treatments name."""
    return frozenset(one.environment for one in treatments if one.environment is not None)


def takers_of(treatments: Sequence[Treatment], workers: Sequence[Prospect]) -> tuple[int, ...]:
    """Return how many of the workers take jobs of each treatment: one at the least.

    Those of whom nobody knows the environment are divided evenly among the environments that the treatments name.
    """
    environments = environments_of(treatments)
    return tuple(_takers(treatment, workers, environments) for treatment in treatments)


def _takers(treatment: Treatment, workers: Sequence[Prospect], environments: frozenset[str]) -> int:
    lenders = [one for one in workers if lent_by(treatment, one.worker_id, one.environment)]
    near = [one for one in workers if one.environment and treatment.environment in (None, one.environment)]
    free = [one for one in near if one not in lenders]
    untold = sum(not one.environment and one not in lenders for one in workers)
    # A place that names nobody we know of is one of those of whom we know nothing.
    far = set(treatment.places.values()) - environments
    strangers = sum(not any(names(place, one.worker_id, one.environment) for one in workers) for place in far)
    share = max(0, untold - strangers) // (len(environments) if treatment.environment else 1)
    return max(1, len(free) + share or len(near))
