"""The containers of a treatment and its services, and the checks that need container, job and engine together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.engine_traits import engine_traits
from bench_common.errors import WeighbridgeError
from bench_common.job_kind import Job
from bench_common.treatment import OWN_COMMAND, ContainerSettings, Guest, Operation
from bench_master.scenario.guest import OWN_SERVICES, PARAMS, own_command
from bench_master.scenario.keys_container import CONTAINER_FIELDS
from bench_master.scenario.matrix import list_values
from bench_master.scenario.types import INVALID, ListOf, MapOf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_common.treatment import Scalar
    from bench_master.scenario.diagnostics import Diagnostics
    from bench_master.scenario.matrix import Settings
    from bench_master.scenario.types import Field
    from bench_master.scenario.yaml_tree import SourceLocation
    from bench_workloads.base import Workload

HOST_NETWORK: Final = "host"
"""The network of the host itself."""


def container_settings(
    settings: Settings, findings: Diagnostics, prefix: str = "container"
) -> ContainerSettings | None:
    """Return the container that the settings below `prefix` describe; None where one of them is invalid."""
    _check_mounts(settings, findings, prefix)
    _check_cpuset(settings, findings, prefix)
    _check_ulimits(settings, findings, prefix)
    _check_capabilities(settings, findings, prefix)
    start = f"{prefix}."
    inner = {
        key.removeprefix(start): given.value
        for key, given in settings.items()
        if key == prefix or key.startswith(start)
    }
    if any(value is INVALID for value in inner.values()):
        return None
    carried = {
        field.carried_as or field.name: value
        for field in CONTAINER_FIELDS
        if (value := _plain_value(field, inner)) is not None
    }
    return ContainerSettings(**carried)


def _plain_value(field: Field, inner: Mapping[str, Any]) -> Any:
    """Return the value given for a setting, as plain data; None where none is given."""
    if isinstance(field.shape, MapOf):
        start = f"{field.name}."
        return {key.removeprefix(start): value for key, value in inner.items() if key.startswith(start)}
    value = inner.get(field.name)
    return tuple(item.value for item in value) if value is not None and isinstance(field.shape, ListOf) else value


def _check_mounts(settings: Settings, findings: Diagnostics, prefix: str) -> None:
    given = settings.get(f"{prefix}.storage")
    if given is None or given.value is INVALID:
        return
    targets: set[str] = set()
    for mount in given.value:
        target = mount.value.target.rstrip("/") or "/"
        if target in targets:
            findings.add(mount.place, f"two mounts at '{target}': choose another target", deep=True)
        targets.add(target)


def _check_cpuset(settings: Settings, findings: Diagnostics, prefix: str) -> None:
    given = settings.get(f"{prefix}.cpuset")
    if given is None or given.value is INVALID:
        return
    for part in given.value.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            findings.add(given.place, f"'{part}' is not a range of CPUs: write {last}-{first}", deep=True)


def _check_ulimits(settings: Settings, findings: Diagnostics, prefix: str) -> None:
    for key, given in settings.items():
        if not key.startswith(f"{prefix}.ulimits.") or given.value is INVALID:
            continue
        soft, _, hard = str(given.value).partition(":")
        # -1 is no limit.
        if hard and int(hard) >= 0 and not 0 <= int(soft) <= int(hard):
            findings.add(given.place, f"'{given.value}': the soft limit exceeds the hard limit, {hard}", deep=True)


def _check_capabilities(settings: Settings, findings: Diagnostics, prefix: str) -> None:
    dropped = list_values(settings.get(f"{prefix}.cap_drop"))
    given = settings.get(f"{prefix}.cap_add")
    for name in list_values(given):
        if given is not None and name in dropped:
            findings.add(given.place, f"{name} is in 'cap_drop' too: remove it from one of the two", deep=True)


def check_lifecycle_container(
    operations: Sequence[Operation], engine: str, settings: Settings, place: SourceLocation, findings: Diagnostics
) -> None:
    """Report a life-cycle job without an image, or without a command where the engine has no images."""
    makers = [operation for operation in operations if operation.kind in {"pull", "create", "run"}]
    if not makers or findings.is_misspelt("container"):
        return
    if not engine_traits(engine).has_images:
        given = "container.command" in settings or makers[0].argv or "container" in settings
        if not given and not findings.is_misspelt("command"):
            findings.add(
                place,
                f"'container.command' is missing: engine {engine} has no images, so the scenario names the command",
                deep=True,
            )
    elif not {"container.image", "container.rootfs", "container"} & settings.keys() and not findings.is_misspelt(
        "image"
    ):
        findings.add(
            place,
            f"'container.image' is missing: a life-cycle job of engine {engine} needs one, such as weighbridge/base",
            deep=True,
        )


def service_settings(
    workload: Workload, params: Mapping[str, Scalar], settings: Settings, findings: Diagnostics
) -> dict[str, ContainerSettings] | None:
    """Return the container of each of the workload's services; None where a setting is invalid.

    A file that the scenario gives replaces the one that the parameters generate.
    """
    files = workload.service_files(params)
    result = {}
    for service in workload.services:
        made = container_settings(settings, findings, f"services.{service.name}")
        if made is None:
            return None
        texts = {**files.get(service.name, {}), **made.files}
        result[service.name] = replace(made, image=made.image or service.image or None, files=texts, command=None)
    return result


def service_placement(services: Mapping[str, ContainerSettings], settings: Settings) -> dict[str, str]:
    """Return the environment or worker of each service that does not run on the host of the job."""
    given = {name: settings.get(f"services.{name}.placement") for name in services}
    return {name: one.value for name, one in given.items() if one is not None}


def client_network(given: str | None, services: Mapping[str, ContainerSettings]) -> tuple[str | None, str | None]:
    """Return the network of the job's own container, and the reason if it cannot reach a service from there.

    The default is the host's network as soon as a service uses it: no other network reaches the host's loopback.
    """
    in_host_network = [name for name, service in services.items() if service.network == HOST_NETWORK]
    if not in_host_network or given == HOST_NETWORK:
        return given, None
    if given is None:
        return HOST_NETWORK, None
    return given, (
        f"the job's container uses network '{given}' and cannot reach {in_host_network[0]}, which uses the host's "
        "network: set 'host' for both or for neither"
    )


class JobPlan(Struct, frozen=True):
    """What the jobs of a treatment do, in which containers, and where services run that are placed elsewhere."""

    job: Job
    container: ContainerSettings
    services: Mapping[str, ContainerSettings] = field(default_factory=dict)
    placement: Mapping[str, str] = field(default_factory=dict)


class GuestJob(Struct, frozen=True):
    """A workload under an engine, as a job of the scenario requests it."""

    workload: type[Workload]
    engine: str
    label: str | None
    place: SourceLocation

    def work(self, settings: Settings, container: ContainerSettings, findings: Diagnostics) -> JobPlan | None:
        """Return the workload with its containers; None where a problem was reported."""
        guest = self._guest(settings, findings)
        if container.command is not None:
            name = f"job {self.label}" if self.label else "the job"
            findings.note(f"{name}: 'container.command' is ignored: the workload has its own commands")
        self._check_image(container, settings, findings)
        container = replace(container, image=container.image or self.workload.image or None, command=None)
        params = guest.params if guest is not None else self.workload().defaults()
        workload = self.workload() if guest is None else self.workload().for_job(guest)
        services = service_settings(workload, params, settings, findings)
        self._check_service_images(services or {}, settings, findings)
        placement = service_placement(services or {}, settings)
        if guest is not None and placement and self.workload().uses_sockets(guest.params):
            name, place = next(iter(placement.items()))
            message = f"{name} runs on another host, '{place}': a Unix socket cannot reach it; use a TCP connection"
            findings.add(self.place, message, deep=True)
        near = {name: one for name, one in (services or {}).items() if name not in placement}
        container = self._with_service_network(near, container, findings)
        return None if guest is None or services is None else JobPlan(guest, container, services, placement)

    def _guest(self, settings: Settings, findings: Diagnostics) -> Guest | None:
        """Return the guest job with every parameter; None where the workload rejects their combination."""
        params = self.workload().defaults()
        params |= {key.removeprefix(PARAMS): one.value for key, one in settings.items() if key.startswith(PARAMS)}
        if self.workload.name == OWN_COMMAND:
            own = own_command(settings)
            if own is None and not findings.is_misspelt("command"):
                message = "'command' is missing: workload command runs a command of yours, such as [mytool, --all]"
                findings.add(self.place, message, deep=True)
            return None if own is None else Guest(OWN_COMMAND, {}, own)
        try:
            self.workload().steps(params)
        except (ValueError, WeighbridgeError) as error:
            findings.add(self.place, f"workload {self.workload.name} rejects its parameters: {error}", deep=True)
            return None
        return Guest(self.workload.name, params)

    def _check_image(self, container: ContainerSettings, settings: Settings, findings: Diagnostics) -> None:
        """Report a job without an image whose workload has none, where the engine needs one."""
        given = self.workload.image or container.image or container.rootfs or "container" in settings
        if not given and engine_traits(self.engine).has_images and not findings.is_misspelt("image"):
            message = (
                f"'container.image' is missing: workload {self.workload.name} has no image of its own, and engine "
                f"{self.engine} needs one, such as weighbridge/base"
            )
            findings.add(self.place, message, deep=True)

    def _check_service_images(
        self, services: Mapping[str, ContainerSettings], settings: Settings, findings: Diagnostics
    ) -> None:
        """Report services without an image, where the engine needs one."""
        for name, made in () if findings.is_misspelt("image") else services.items():
            if made.image is None and made.rootfs is None and engine_traits(self.engine).has_images:
                place = settings[OWN_SERVICES].place if OWN_SERVICES in settings else self.place
                text = f"'services.{name}.image' is missing: engine {self.engine} needs one, such as weighbridge/base"
                findings.add(place, text, deep=True)

    def _with_service_network(
        self, services: Mapping[str, ContainerSettings], container: ContainerSettings, findings: Diagnostics
    ) -> ContainerSettings:
        """Return the job's container with a network that reaches its services."""
        if not engine_traits(self.engine).has_networks:
            return container
        network, complaint = client_network(container.network, services)
        if complaint is not None:
            findings.add(self.place, complaint, deep=True)
        return replace(container, network=network)
