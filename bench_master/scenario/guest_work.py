"""What a job of a workload does, and in which containers: its own and those of its services."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bench_common.errors import WeighbridgeError
from bench_common.treatment import ContainerSettings, Guest, Lifecycle
from bench_master.scenario.containers import client_network, service_places, service_settings
from bench_master.scenario.format import NATIVE
from bench_master.scenario.guest import PARAMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_master.scenario.diagnostics import Findings
    from bench_master.scenario.matrix import Settings
    from bench_master.scenario.tree import Place
    from workloads.base import Workload


@dataclass(frozen=True)
class Work:
    """What the jobs of a treatment do, and in which containers; `places`: where services run that are elsewhere."""

    job: Lifecycle | Guest
    container: ContainerSettings
    services: Mapping[str, ContainerSettings] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GuestOrder:
    """A workload under an engine, as the job with a label, at a place of the scenario, asks for it."""

    workload: type[Workload]
    engine: str
    label: str | None
    place: Place

    def work(self, settings: Settings, container: ContainerSettings, findings: Findings) -> Work | None:
        """Return the workload with its containers; None where something is noted that is in the way."""
        guest = self._guest(settings, findings)
        if container.command is not None:
            name = f"job {self.label}" if self.label else "the job"
            findings.note(f"{name}: 'container.command' is left out, because the workload has its own commands")
        container = replace(container, image=container.image or self.workload.image, command=None)
        params = guest.params if guest is not None else self.workload().defaults()
        services = service_settings(self.workload, params, settings, findings)
        places = service_places(services or {}, settings)
        if guest is not None and places and self.workload().uses_sockets(guest.params):
            name, place = next(iter(places.items()))
            message = f"{name} is on another host, at '{place}', where no Unix socket leads: connect to it by tcp"
            findings.add(self.place, message, deep=True)
        near = {name: one for name, one in (services or {}).items() if name not in places}
        container = self._reaching(near, container, findings)
        return None if guest is None or services is None else Work(guest, container, services, places)

    def _guest(self, settings: Settings, findings: Findings) -> Guest | None:
        """Return the guest job with every parameter; None where the workload refuses them together."""
        params = self.workload().defaults()
        params |= {key.removeprefix(PARAMS): one.value for key, one in settings.items() if key.startswith(PARAMS)}
        try:
            self.workload().steps(params)
        except (ValueError, WeighbridgeError) as error:
            findings.add(self.place, f"workload {self.workload.name} refuses its parameters: {error}", deep=True)
            return None
        return Guest(self.workload.name, params)

    def _reaching(
        self, services: Mapping[str, ContainerSettings], container: ContainerSettings, findings: Findings
    ) -> ContainerSettings:
        """Return the job's container in a network from which its services can be reached."""
        if self.engine == NATIVE:
            return container
        network, complaint = client_network(container.network, services)
        if complaint is not None:
            findings.add(self.place, complaint, deep=True)
        return replace(container, network=network)
