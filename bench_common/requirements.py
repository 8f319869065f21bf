"""What containers need to find on a host: a worker is asked for it before it is admitted, so that no job fails.

Only what another program would have to provide: an image, a network, a log driver, a runtime. Limits and the like are
the engine's own business, and its status says which it enforces.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench_common.errors import ProtocolError
from bench_common.placement import beside, lent_by
from bench_common.treatment import ContainerSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench_common.treatment import Treatment


@dataclass(frozen=True, slots=True)
class Need:
    """What containers of one engine have to find. None: nothing of that kind."""

    engine: str
    image: str | None = None
    network: str | None = None
    log_driver: str | None = None
    runtime: str | None = None

    @property
    def settings(self) -> ContainerSettings:
        """The container's settings that name it."""
        return ContainerSettings(
            image=self.image, network=self.network, log_driver=self.log_driver, runtime=self.runtime
        )

    def to_wire(self) -> dict[str, Any]:
        """Return plain msgpack values from which `from_wire` makes an equal one."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Any) -> Need:
        """Rebuild one; raise `ProtocolError` on anything that `to_wire` would not have sent."""
        if not isinstance(wire, dict) or wire.keys() != cls.__dataclass_fields__.keys():
            raise ProtocolError("not a need of a container")
        if not all(isinstance(value, str) or (value is None and name != "engine") for name, value in wire.items()):
            raise ProtocolError("a need of a container that is no text")
        return cls(**wire)


def engines_of(treatments: Iterable[Treatment], environment: str, worker_id: str = "") -> list[str]:
    """Return the engines that the treatments use on a worker of an environment, for what it lends to others, too."""
    return sorted(
        {
            treatment.engine
            for treatment in treatments
            if treatment.environment in (None, environment) or lent_by(treatment, worker_id, environment)
        }
    )


def needs_of(treatments: Iterable[Treatment], environment: str, worker_id: str = "") -> list[Need]:
    """Return what the treatments need of a worker of an environment, each once, in the order of the treatments.

    Containers of services count, too, those that it lends to jobs of others as well. What an optional treatment lacks
    is no reason not to begin, nor is an image that its jobs pull.
    """
    found: dict[Need, None] = {}
    for treatment in treatments:
        if treatment.optional:
            continue
        containers = [*lent_by(treatment, worker_id, environment).values()]
        if treatment.environment in (None, environment):
            containers = [treatment.container, *beside(treatment).values(), *containers]
        for asked in containers:
            image = None if treatment.pulls else asked.image
            need = Need(treatment.engine, image, asked.network, asked.log_driver, asked.runtime)
            if need != Need(treatment.engine):
                found[need] = None
    return list(found)
