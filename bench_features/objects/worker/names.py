"""What containers and objects are called, so that no two processes make the same one and a clean-up knows ours.

Without a base of the user's, the containers of a treatment belong to its run alone::

    weighbridge-3f2a9c1b04de-2-000007                       container 7 of treatment 2

With one, containers and population are called as ssbench calls them, so that its objects are used again::

    ssbench_000007_default_policy                           container 7
    tiny_000012                                             object 12 of the population of a class

An object that a job creates is called after the process that creates it: ``tiny_000301-p3``, with a base
``tiny_000301-p3-3f2a9c1b04de``.

Pure: no socket and no clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench_common.records import KEEP_RUN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_features.objects.common.job import Objects

OWN_PREFIX: Final = "weighbridge-"
"""What the containers of a run begin with that has no base of the user's."""
DEFAULT_POLICY: Final = "default_policy"
"""What ssbench puts into a container's name where no policy is given."""

_RUN_ID: Final = rf"(?:{KEEP_RUN_PREFIX})?[0-9a-f]{{12}}"
_OWN_CONTAINER: Final = re.compile(rf"{OWN_PREFIX}(?P<run_id>{_RUN_ID})-\d+-\d{{6,}}")
_CREATED: Final = re.compile(rf".+_\d{{6,}}-p\d+(?:-(?P<run_id>{_RUN_ID}))?")
_POPULATION: Final = re.compile(r".+_\d{6,}")


class Names(Struct, frozen=True):
    """The names of a treatment's containers, and of the objects that one process creates in them."""

    run_id: str
    treatment: int
    process: int
    """The number of the process: no other of the run has it, nor had one before it."""
    base: str
    """The base of the user's; empty: none."""
    containers: tuple[str, ...]

    @classmethod
    def of(cls, objects: Objects, run_id: str, treatment: int, process: int) -> Names:
        """Return the names of a treatment in a run."""
        base = objects.container_base
        if base:
            policy = objects.policy or DEFAULT_POLICY
            names = tuple(f"{base}_{number:06d}_{policy}" for number in range(objects.containers))
        else:
            start = f"{OWN_PREFIX}{run_id}-{treatment}"
            names = tuple(f"{start}-{number:06d}" for number in range(objects.containers))
        return cls(run_id, treatment, process, base, names)

    def created(self, size_class: str, number: int) -> str:
        """Return the name of the object of that number which this process creates."""
        suffix = f"-{self.run_id}" if self.base else ""
        return f"{size_class}_{number:06d}-p{self.process}{suffix}"


class PopulationObject(Struct, frozen=True):
    """One object of the population."""

    size_class: int
    """The place of its class in `Objects.classes`."""
    number: int
    """Its number in its class, from 1."""
    container: int
    """The place of its container."""
    name: str


def population_of(objects: Objects, part: int = 0, parts: int = 1) -> Iterator[PopulationObject]:
    """Yield the objects of the population that belong to one of `parts` processes.

    They are in the order of ssbench's: one of each class in turn, as long as it has any, each in the next container.
    The objects of each class are spread evenly over the processes.
    """
    place = 0
    for number in range(1, max((one.population for one in objects.classes), default=0) + 1):
        for size_class, one in enumerate(objects.classes):
            if number > one.population:
                continue
            if (number - 1 + size_class) % parts == part:
                name = f"{one.name}_{number:06d}"
                yield PopulationObject(size_class, number, place % objects.containers, name)
            place += 1


def run_of_container(name: str) -> str | None:
    """Return the run that a container belongs to by its name; None for any other container."""
    found = _OWN_CONTAINER.fullmatch(name)
    return found["run_id"] if found else None


def base_pattern(base: str) -> re.Pattern[str]:
    """Return what the names of the containers of a base match: under S3, underscores are hyphens."""
    return re.compile(rf"{re.escape(base)}[_-]\d{{6,}}[_-].+")


def is_ours(name: str, run_id: str | None = None) -> bool:
    """Return whether an object in one of our containers has the form of our names, of a run's where one is named.

    Of a run are only the objects that it created: those of the population have no run in their names.
    """
    created = _CREATED.fullmatch(name)
    if run_id is not None:
        return created is not None and created["run_id"] == run_id
    return created is not None or _POPULATION.fullmatch(name) is not None
