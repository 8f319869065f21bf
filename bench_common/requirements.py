"""Decides, before anything runs, what a host cannot provide for a treatment; pure.

Settings and operations that an engine does not support or would ignore are refused; settings without meaning
for it (a plain process has no image) are left out, with a note. Images, networks, log drivers and runtimes are
requirements that a worker checks before it is admitted. A service is placed on an environment or a worker; a worker
that runs services for others takes no jobs of that treatment unless no other worker can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Meta, Struct, to_builtins

from bench_common.cost import COST_UNITS, UNTOLD
from bench_common.errors import did_you_mean
from bench_common.host_settings import MAX_VALUE_CHARS
from bench_common.job_kind import Job
from bench_common.job_rules import rules_of
from bench_common.treatment import ContainerSettings, Mount, named_volumes
from bench_common.units import format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench_common.treatment import Treatment

GRACE_STEP = "stop.grace_step_s"
"""The detail with the step in which an engine counts the grace period of `stop`, in seconds."""

STATS_INTERVAL = "stats.interval_s"
"""The detail with the interval of an engine's stream of statistics, in seconds; without it, any interval works."""

NETWORK_CHOICE = "network.choice"
"""The detail that lists the only networks of an engine, separated by spaces."""

UNNAMED_VOLUMES = "storage.unnamed_volumes"
"""The detail of an engine that does not name volumes."""

ENGINE_MANAGED_STORAGE = "storage.own"
"""The detail of an engine that creates data containers, and host directories for a single container."""

SERVICES_NETWORK = "services.network"
"""The detail that names the only network in which an engine knows the address of a service."""

CAPABILITIES_WITHHELD = "capabilities.withheld"
"""The detail that lists the kernel capabilities that no container on a host gets, separated by spaces."""

_ENGINE_FREE_OPERATIONS = frozenset({"sleep", "hold"})
_BYTES = "_bytes"
"""The suffix of settings in bytes; their keys in a scenario take units and do not have the suffix."""


def unsupported_features(status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    """Return why this engine cannot run this treatment, one reason each; empty when it can.

    Each names the engine, the operation or setting, its value and the reason.
    """
    engine = f"engine '{status.get('name') or treatment.engine}'"
    if not status.get("usable"):
        advice = status.get("advice")
        return [
            f"{engine} cannot be used: {status.get('reason') or 'no reason given'}{f'; {advice}' if advice else ''}"
        ]
    return [
        *_unsupported_operations(engine, status, treatment),
        *_unsupported_settings(engine, status, treatment),
        *_unsupported_services(engine, status, treatment),
    ]


def ignored_settings(status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    """Return what is left out: what has no meaning for this engine, or cannot be told here, one sentence each."""
    meaningless = set(status.get("inapplicable") or ())
    engine = f"engine '{status.get('name') or treatment.engine}'"
    return [
        f"{engine} has no {setting}: {whose}{_format_setting(container, setting)} is left out"
        for whose, container in _containers(treatment)
        for setting in sorted(container.non_default() & meaningless)
        if not (whose and setting == "image")
    ] + _untold_costs(engine, status, treatment)


def untold_primary(status: Mapping[str, Any], treatment: Treatment, primary: str) -> list[str]:
    """Return why the engine cannot tell the primary measure, one of a job's cost, on its host; empty if it can."""
    why = _details(status).get(f"{UNTOLD}{primary.removeprefix('metrics.')}") if treatment.cost else None
    if not why:
        return []
    engine = f"engine '{status.get('name') or treatment.engine}'"
    return [f"{engine} cannot tell {primary} here, which is the primary measure: {why}; name another one"]


def _untold_costs(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    """Return which measures of a job's cost the engine cannot tell on its host, a sentence for each reason."""
    why = {name.removeprefix(UNTOLD): text for name, text in _details(status).items() if name.startswith(UNTOLD)}
    known = [name for name in COST_UNITS if name in why] if treatment.cost else []
    return [
        f"{engine} cannot tell {', '.join(name for name in known if why[name] == reason)} of a job here: {reason}"
        for reason in dict.fromkeys(why[name] for name in known)
    ]


def _unsupported_operations(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    if not treatment.job.engine_operations:
        return []
    able = set(status.get("operations") or ()) | _ENGINE_FREE_OPERATIONS
    step_s, interval_s, found = 0.0, 0.0, []
    try:
        step_s, interval_s = (_detail_s(status, name) for name in (GRACE_STEP, STATS_INTERVAL))
    except ValueError as error:
        found.append(f"{engine} {error}")
    for operation in treatment.job.engine_operations:
        if operation.kind not in able:
            reason = _details(status).get(f"operation.{operation.kind}")
            why = f": {reason}" if reason else f"; it can do {', '.join(sorted(able))}"
            found.append(f"{engine} cannot do the operation {operation.name!r}{why}")
        elif operation.kind == "stop" and operation.seconds is not None and step_s and operation.seconds % step_s:
            found.append(
                f"{engine} counts the grace period of stop in steps of {step_s:g} s: "
                f"{operation.name!r} with {operation.seconds:g} s is not possible"
            )
        elif operation.kind == "stats" and interval_s and operation.seconds not in (None, interval_s):
            found.append(
                f"{engine} sends statistics every {interval_s:g} s, as is its own pace: "
                f"{operation.name!r} every {operation.seconds:g} s is not possible"
            )
    return found


def _unsupported_settings(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    known = set(status.get("settings") or ()) | set(status.get("inapplicable") or ())
    reasons = _details(status)
    return [
        f"{engine} cannot enforce {whose}{_format_setting(container, setting)}: "
        f"{reasons.get(f'setting.{setting}') or 'it does not know this setting'}"
        for whose, container in _containers(treatment)
        for setting in sorted(container.non_default() - known)
    ] + _unsupported_values(engine, status, treatment)


def _unsupported_values(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    """Return why the engine does not support values of settings that it knows, one reason each."""
    details, inapplicable = _details(status), status.get("inapplicable") or ()
    found = []
    networks = details.get(NETWORK_CHOICE, "").split()
    withheld = details.get(CAPABILITIES_WITHHELD, "").split()
    for whose, container in _containers(treatment):
        found += [
            f"{engine} cannot enforce {whose}cap_add={name}: no process of its host has that capability"
            for name in container.cap_add
            if name in withheld
        ]
        if networks and container.network not in {None, *networks}:
            found.append(f"{engine} has no network {container.network!r}; it has: {', '.join(networks)}")
        if UNNAMED_VOLUMES in details:
            named = [mount.source for mount in container.storage if mount.kind == "volume" and mount.source]
            found += [f"{engine} has no volumes with a name, such as {name!r}: leave it empty" for name in named]
        if ENGINE_MANAGED_STORAGE not in details and "storage" not in inapplicable:
            found += [
                f"{engine} makes no {what} for a container: give the storage at {mount.target} another form"
                for mount in container.storage
                for what in _is_engine_managed(mount)
            ]
    return found


def _is_engine_managed(mount: Mount) -> list[str]:
    if mount.kind == "data_container":
        return ["data container"]
    return ["host directory of its own"] if mount.kind == "host" and not mount.source else []


def _unsupported_services(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    if not treatment.services:
        return []
    if status.get("runs_services"):
        only = _details(status).get(SERVICES_NETWORK)
        return [
            f"{engine} reaches services in the network {only!r} alone: give it to service {name} "
            f"(services: {{{name}: {{network: {only}}}}})"
            for name, container in treatment.services.items()
            if only and container.network != only
        ]
    names = ", ".join(treatment.services)
    return [f"{engine} runs no services ({names}): it cannot say at which address a container is reached"]


def _containers(treatment: Treatment) -> list[tuple[str, ContainerSettings]]:
    """Return the containers of the job and of its services, each with a prefix that names its owner."""
    return [("", treatment.container), *((f"service {name}'s ", one) for name, one in treatment.services.items())]


def _details(status: Mapping[str, Any]) -> Mapping[str, str]:
    details: Mapping[str, str] = status.get("details") or {}
    return details


def _detail_s(status: Mapping[str, Any], name: str) -> float:
    """Return a detail in seconds, 0 where there is none; raise `ValueError` where it is no such number."""
    text = _details(status).get(name, "0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"reports {name} = {text!r}: a number of seconds expected")
    return value


def _format_setting(container: ContainerSettings, setting: str) -> str:
    value = getattr(container, setting)
    if setting.endswith(_BYTES):
        return f"{setting.removesuffix(_BYTES)}={format_size(value)}"
    if isinstance(value, tuple) and all(isinstance(one, Mount) for one in value):
        return f"{setting}={', '.join(one.target for one in value)}"
    return f"{setting}={str(value).lower() if isinstance(value, bool) else repr(value)}"


RequestedAction: TypeAlias = Literal["start", "inspect", "stop", "remove"]
"""An action on a service of another worker: start it (create it if it does not exist) and wait until it is ready;
report whether it has ended, and its output; stop it and keep its data; remove it."""
ServiceAction: TypeAlias = RequestedAction | Literal["lost"]
"""The subject of a reply from the host of a service: a requested action, or, unrequested, the loss of the service."""
START: Final = "start"
INSPECT: Final = "inspect"
STOP: Final = "stop"
REMOVE: Final = "remove"
SERVICE_LOST: Final = "lost"
MAX_OPEN_REQUESTS: Final = 4
"""The number of actions of a service: no job has more open requests for one."""

SERVICE_FAILURE: Final = "service"
"""The failure kind of a job that fails because of its service."""

STREAM_LIMIT: Final = 48 << 10
"""How much of each stream of a service's log is sent to the worker of its job, in bytes."""


MAX_SERVICE_ERROR_CHARS: Final = 4096
"""Longest error text of a service, in characters."""


class PlacementTarget(Protocol):
    """The properties of a worker that placement uses."""

    @property
    def worker_id(self) -> str:
        """Its id."""

    @property
    def environment(self) -> str:
        """The name of its environment."""

    @property
    def number(self) -> int:
        """Its number in the roster."""


Worker = TypeVar("Worker", bound=PlacementTarget)


class ServiceOutcome(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of an action on a service of another worker."""

    address: Annotated[str, Meta(max_length=256)] = ""
    """The address of the service, after a start."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """The port of the service, after a start."""
    kind: Annotated[str, Meta(max_length=64)] = ""
    """The failure kind; empty on success."""
    error: Annotated[str, Meta(max_length=MAX_SERVICE_ERROR_CHARS)] = ""
    """The error text; in a reply to ``inspect``, how the service ended."""
    stdout: Annotated[bytes, Meta(max_length=STREAM_LIMIT)] = b""
    """The output of its readiness check, or its log."""
    stderr: Annotated[bytes, Meta(max_length=STREAM_LIMIT)] = b""
    """The error output of the same."""
    truncated: bool = False
    """Whether there was more output."""


def matches_worker(place: str, worker_id: str, environment: str) -> bool:
    """Return whether a place names this worker, by id or environment."""
    return place in (worker_id, environment)


def local_services(treatment: Treatment) -> dict[str, ContainerSettings]:
    """Return the services that run on the host of the job itself."""
    return {name: one for name, one in treatment.services.items() if name not in treatment.placement}


def services_hosted_by(treatment: Treatment, worker_id: str, environment: str) -> dict[str, ContainerSettings]:
    """Return the services that this worker may have to run for jobs of other workers."""
    return {
        name: treatment.services[name]
        for name, place in treatment.placement.items()
        if matches_worker(place, worker_id, environment)
    }


def job_workers(treatment: Treatment, members: Sequence[Worker]) -> list[Worker]:
    """Return the `members` that take jobs of a treatment: hosts of its services only if there is no other worker."""
    free = [one for one in members if not services_hosted_by(treatment, one.worker_id, one.environment)]
    return free or list(members)


def choose_host(place: str, client: PlacementTarget, members: Iterable[Worker]) -> Worker | None:
    """Return which of `members` hosts a client's service; None if the place names none of them.

    The choice for a client is always the same, and not the client itself if there is another member.
    """
    named = sorted(
        (one for one in members if matches_worker(place, one.worker_id, one.environment)), key=lambda one: one.number
    )
    others = [one for one in named if one.number != client.number] or named
    return others[client.number % len(others)] if others else None


def unplaced_services(treatments: Iterable[Treatment], members: Sequence[PlacementTarget]) -> list[str]:
    """Return which services are placed where there is no worker, one reason each."""
    known = sorted({word for one in members for word in (one.worker_id, one.environment)})
    reasons: dict[str, None] = {}
    for treatment in treatments:
        for name, place in treatment.placement.items():
            if place not in known:
                hint = did_you_mean(place, known)
                reasons[f"no worker {place!r}, by id or environment, for the service {name}{hint}"] = None
    return list(reasons)


class ImageProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """The program that containers of an image begin with, as the scenario has it."""

    program: str
    """Its name or path."""
    search_path: str | None = None
    """The PATH that the scenario gives; None: the image's own."""
    directory: str | None = None
    """The working directory that the scenario gives; None: the image's own; empty where that makes no difference."""
    covered: tuple[str, ...] = ()
    """Paths in the container that something else than the image fills: mounts and files."""


class AbsentProgram(Struct, frozen=True, forbid_unknown_fields=True):
    """A program that an image does not have."""

    program: Annotated[str, Meta(max_length=4096)]
    """Its name or path, as the scenario has it."""
    reason: Annotated[str, Meta(max_length=4096)]
    """The engine, the image, and where it was looked for."""


class Requirement(Struct, frozen=True, forbid_unknown_fields=True):
    """What containers of one engine require on a host; None: no requirement of that kind."""

    engine: str
    """The name of the engine."""
    image: str | None = None
    """The image that must be available."""
    network: str | None = None
    """The network that must exist."""
    log_driver: str | None = None
    """The log driver that must be available."""
    runtime: str | None = None
    """The runtime that must be available."""
    snapshotter: str | None = None
    """The snapshotter that must be available."""
    gvisor_platform: str | None = None
    """The platform of gVisor that must be available."""
    program: str | None = None
    """The program that must be installed, where services run on the host itself."""
    command: str | None = None
    """The program of the host that jobs run: nothing that must be there, but the worker tells which file it is."""
    search_path: str | None = None
    """The PATH on which that program is looked up; None: the worker's own."""
    directory: str | None = None
    """The directory in which a relative path of it begins."""
    starts: ImageProgram | None = None
    """The program that must be in the image."""
    compared: bool = False
    """Whether plain processes and containers run beside each other: the worker then tells what surrounds each."""
    volumes: tuple[str, ...] = ()
    """Named volumes: those that are there must be Weighbridge's, unless the worker allows host mounts."""

    @property
    def settings(self) -> ContainerSettings:
        """The container settings that express this requirement."""
        return ContainerSettings(
            image=self.image,
            network=self.network,
            storage=tuple(Mount("volume", "/", name) for name in self.volumes),
            log_driver=self.log_driver,
            runtime=self.runtime,
            snapshotter=self.snapshotter,
            gvisor_platform=self.gvisor_platform,
        )


class KindNeed(Struct, frozen=True, forbid_unknown_fields=True):
    """What jobs of a kind from a package need of a host: what they run on, and of the job what that depends on."""

    engine: str
    """`Treatment.engine`: not an engine, but what the kind knows by this name."""
    job: Mapping[str, Any]
    """The job in plain values: the host may not know its kind, which is then what it lacks."""


def kinds_for_worker(treatments: Iterable[Treatment], environment: str) -> list[KindNeed]:
    """Return what kinds from packages need of a worker of an environment, each once; optional treatments add none."""
    found: dict[tuple[str, Job], None] = {}
    for treatment in treatments:
        need = rules_of(treatment).host_need()
        if need is not None and not treatment.optional and treatment.environment in (None, environment):
            found[treatment.engine, need] = None
    return [KindNeed(engine, to_builtins(job)) for engine, job in found]


class SettingNeed(Struct, frozen=True, forbid_unknown_fields=True):
    """A setting of a host's kernel and the values that trials give it."""

    name: Annotated[str, Meta(max_length=1024)]
    """Its name in records (`bench_common.host_settings`)."""
    values: list[Annotated[str, Meta(max_length=MAX_VALUE_CHARS)]]
    """The values, each once."""


class SettingProblem(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a host's setting cannot have a value."""

    name: Annotated[str, Meta(max_length=1024)]
    value: Annotated[str, Meta(max_length=MAX_VALUE_CHARS)]
    """The value; empty where it can have none."""
    reason: Annotated[str, Meta(max_length=4096)]


def settings_for_worker(treatments: Iterable[Treatment], environment: str) -> list[SettingNeed]:
    """Return the host settings that the jobs of a worker of an environment need, each with its values in order."""
    found: dict[str, dict[str, None]] = {}
    for treatment in treatments:
        if treatment.environment in (None, environment):
            for name, value in treatment.host.items():
                found.setdefault(name, {})[value] = None
    return [SettingNeed(name, list(values)) for name, values in found.items()]


class DoctorNeeds(Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario needs of a host, as `bench-worker --doctor` gets it."""

    requirements: list[Requirement]
    """What its containers need of their engines."""
    disk_bytes: int
    """About how much disk its jobs take at once, besides the images."""


def engines_for_worker(treatments: Iterable[Treatment], environment: str, worker_id: str = "") -> list[str]:
    """Return the engines that the treatments use on a worker of an environment, including its services for others."""
    return sorted(
        {
            treatment.engine
            for treatment in treatments
            if treatment.job.uses_engine
            and (
                treatment.environment in (None, environment) or services_hosted_by(treatment, worker_id, environment)
            )
        }
    )


def requirements_for_worker(
    treatments: Iterable[Treatment], environment: str, worker_id: str = ""
) -> list[Requirement]:
    """Return what the treatments require of a worker of an environment, each once, in the order of the treatments.

    Containers of services count, too, including those for jobs of other workers. Optional treatments, and images that
    the jobs pull, add no requirement.
    """
    found: dict[Requirement, None] = {}
    for treatment in treatments:
        if treatment.optional or not treatment.job.uses_engine:
            continue
        containers = [*services_hosted_by(treatment, worker_id, environment).values()]
        if treatment.environment in (None, environment):
            containers = [treatment.container, *local_services(treatment).values(), *containers]
        for asked in containers:
            fetched = treatment.fetches_image and asked is treatment.container
            image = None if fetched else asked.image
            need = Requirement(
                treatment.engine,
                image,
                asked.network,
                asked.log_driver,
                asked.runtime,
                asked.snapshotter,
                asked.gvisor_platform,
                volumes=named_volumes(asked),
            )
            if need != Requirement(treatment.engine):
                found[need] = None
    return list(found)
