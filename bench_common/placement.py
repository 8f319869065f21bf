"""Which services of a treatment run beside its jobs, and which on another worker: where the scenario places them.

A place is an environment or the id of a worker. Whoever lends a service to the jobs of others takes no job of that
treatment itself, unless nobody else is there to take one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from bench_common.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench_common.treatment import ContainerSettings, Treatment

START: Final = "start"
LOOK: Final = "look"
STOP: Final = "stop"
REMOVE: Final = "remove"
LOST: Final = "lost"
ACTS: Final = (START, LOOK, STOP, REMOVE)
"""What a worker may want done with a service elsewhere: start it and wait until it is ready (making it, if it is not
there), say whether it has ended and what it printed, stop it so that it keeps what it holds, remove it. It is told in
return what came of it, and unasked that the service is `LOST`."""

KIND: Final = "service"
"""The kind of failure of a job whose service was not to be had."""

STREAM_LIMIT: Final = 48 << 10
"""How much of each stream of a service's log travels to the worker whose job it serves, in bytes."""


class Placeable(Protocol):
    """A worker, as far as a place can name it."""

    @property
    def worker_id(self) -> str:
        """Its id."""

    @property
    def environment(self) -> str:
        """The kind of place that it runs in."""

    @property
    def number(self) -> int:
        """Its place in the roster."""


Worker = TypeVar("Worker", bound=Placeable)


@dataclass(frozen=True, slots=True)
class Supplied:
    """What came of an act on a service elsewhere.

    `address` and `port` are where it is reached after a start. `kind` and `problem` are empty where all went well;
    to a look they say how it ended. `stdout` and `stderr` are what its readiness check, or its log, has.
    """

    address: str = ""
    port: int = 0
    kind: str = ""
    problem: str = ""
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False


def names(place: str, worker_id: str, environment: str) -> bool:
    """Say whether a place names this worker."""
    return place in (worker_id, environment)


def beside(treatment: Treatment) -> dict[str, ContainerSettings]:
    """Return the services that run on the host of the job itself."""
    return {name: one for name, one in treatment.services.items() if name not in treatment.places}


def lent_by(treatment: Treatment, worker_id: str, environment: str) -> dict[str, ContainerSettings]:
    """Return the services that this worker may have to run for jobs of others."""
    places: Mapping[str, str] = treatment.places
    return {name: treatment.services[name] for name, place in places.items() if names(place, worker_id, environment)}


def takers(treatment: Treatment, members: Sequence[Worker]) -> list[Worker]:
    """Return those of `members` that take jobs of a treatment: not who lends it a service, where anybody else is."""
    free = [one for one in members if not lent_by(treatment, one.worker_id, one.environment)]
    return free or list(members)


def lender(place: str, client: Placeable, members: Iterable[Worker]) -> Worker | None:
    """Return which of `members` a client's service is placed at; None where the place names nobody.

    Always the same one for a client, and another than itself where there is one.
    """
    named = sorted(
        (one for one in members if names(place, one.worker_id, one.environment)), key=lambda one: one.number
    )
    others = [one for one in named if one.number != client.number] or named
    return others[client.number % len(others)] if others else None


def unplaced(treatments: Iterable[Treatment], members: Sequence[Placeable]) -> list[str]:
    """Say which services are placed where no worker is, one reason each."""
    known = sorted({word for one in members for word in (one.worker_id, one.environment)})
    reasons: dict[str, None] = {}
    for treatment in treatments:
        for name, place in treatment.places.items():
            if place not in known:
                hint = did_you_mean(place, known)
                reasons[f"no worker {place!r}, by id or environment, for the service {name}{hint}"] = None
    return list(reasons)
