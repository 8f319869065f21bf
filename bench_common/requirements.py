"""Decides, before anything runs, what a host cannot provide for a treatment; pure.

Settings and operations that an engine cannot do, or would silently ignore, are refused; settings without meaning
for it (a plain process has no image) are left out, with a note. Images, networks, log drivers and runtimes are
requirements that a worker checks before it is admitted. A service is placed on an environment or a worker; a worker
that runs services for others takes no jobs of that treatment unless no other worker can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Meta, Struct

from bench_common.errors import did_you_mean
from bench_common.treatment import ContainerSettings, Lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench_common.treatment import Mount, Treatment

GRACE_STEP = "stop.grace_step_s"
"""The detail that says in which steps an engine counts the grace period of `stop`, in seconds."""

STATS_INTERVAL = "stats.interval_s"
"""The detail that says how often an engine's stream of statistics comes, in seconds; without it, at any interval."""

NETWORK_CHOICE = "network.choice"
"""The detail that lists the only networks of an engine, with blanks between them."""

UNNAMED_VOLUMES = "storage.unnamed_volumes"
"""The detail of an engine whose volumes have no names."""

ENGINE_MANAGED_STORAGE = "storage.own"
"""The detail of an engine that makes data containers, and directories of the host for one container alone."""

SERVICES_NETWORK = "services.network"
"""The detail that names the only network in which an engine can say where a service is reached."""

CAPABILITIES_WITHHELD = "capabilities.withheld"
"""The detail that lists the kernel's capabilities that no container gets on a host, with blanks between them."""

_ENGINE_FREE_OPERATIONS = frozenset({"sleep", "hold"})
_BYTES = "_bytes"
"""How the name of a setting ends whose key in a scenario takes units, and has none in its name."""


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
    """Return what is left out because it has no meaning for this engine, one sentence each."""
    meaningless = set(status.get("inapplicable") or ())
    engine = f"engine '{status.get('name') or treatment.engine}'"
    return [
        f"{engine} has no {setting}: {whose}{_format_setting(container, setting)} is left out"
        for whose, container in _containers(treatment)
        for setting in sorted(container.non_default() & meaningless)
        if not (whose and setting == "image")
    ]


def _unsupported_operations(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    if not isinstance(treatment.job, Lifecycle):
        return []
    able = set(status.get("operations") or ()) | _ENGINE_FREE_OPERATIONS
    step_s, interval_s = (float(_details(status).get(name, 0)) for name in (GRACE_STEP, STATS_INTERVAL))
    found = []
    for operation in treatment.job.operations:
        if operation.kind not in able:
            reason = _details(status).get(f"operation.{operation.kind}")
            said = f": {reason}" if reason else f"; it can do {', '.join(sorted(able))}"
            found.append(f"{engine} cannot do the operation {operation.name!r}{said}")
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
    """Return why values of settings that the engine does know is not possible from it."""
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
    """Return the job's own container and those of its services, each with what says whose it is."""
    return [("", treatment.container), *((f"service {name}'s ", one) for name, one in treatment.services.items())]


def _details(status: Mapping[str, Any]) -> Mapping[str, str]:
    details: Mapping[str, str] = status.get("details") or {}
    return details


def _format_setting(container: ContainerSettings, setting: str) -> str:
    value = getattr(container, setting)
    if setting.endswith(_BYTES):
        return f"{setting.removesuffix(_BYTES)}={value} bytes"
    return f"{setting}={value!r}"


RequestedAction: TypeAlias = Literal["start", "inspect", "stop", "remove"]
"""What a worker may want done with a service elsewhere: start it (making it, if it is not there) and wait until it is
ready; report whether it has ended and what it printed; stop it so that it keeps its data; remove it."""
ServiceAction: TypeAlias = RequestedAction | Literal["lost"]
"""What a worker is told about a service elsewhere: what came of an action, or unasked that the service is lost."""
START: Final = "start"
INSPECT: Final = "inspect"
STOP: Final = "stop"
REMOVE: Final = "remove"
SERVICE_LOST: Final = "lost"
MAX_OPEN_REQUESTS: Final = 4
"""How many actions one service has: no job has more of them under way."""

SERVICE_FAILURE: Final = "service"
"""The kind of failure of a job without its service."""

STREAM_LIMIT: Final = 48 << 10
"""How much of each stream of a service's log travels to the worker whose job it serves, in bytes."""


MAX_SERVICE_ERROR_CHARS: Final = 4096


class PlacementTarget(Protocol):
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


Worker = TypeVar("Worker", bound=PlacementTarget)


class ServiceOutcome(Struct, frozen=True, forbid_unknown_fields=True):
    """What came of an action on a service elsewhere."""

    address: Annotated[str, Meta(max_length=256)] = ""
    """Where the service is reached, after a start."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    kind: Annotated[str, Meta(max_length=64)] = ""
    """The kind of the failure; empty where there was none."""
    error: Annotated[str, Meta(max_length=MAX_SERVICE_ERROR_CHARS)] = ""
    """The failure; in answer to ``inspect`` how the service ended."""
    stdout: Annotated[bytes, Meta(max_length=STREAM_LIMIT)] = b""
    """The output of its readiness check, or its log."""
    stderr: Annotated[bytes, Meta(max_length=STREAM_LIMIT)] = b""
    truncated: bool = False
    """Whether there was more output."""


def matches_worker(place: str, worker_id: str, environment: str) -> bool:
    """Say whether a place names this worker."""
    return place in (worker_id, environment)


def local_services(treatment: Treatment) -> dict[str, ContainerSettings]:
    """Return the services that run on the host of the job itself."""
    return {name: one for name, one in treatment.services.items() if name not in treatment.placement}


def services_hosted_by(treatment: Treatment, worker_id: str, environment: str) -> dict[str, ContainerSettings]:
    """Return the services that this worker may have to run for jobs of others."""
    return {
        name: treatment.services[name]
        for name, place in treatment.placement.items()
        if matches_worker(place, worker_id, environment)
    }


def job_workers(treatment: Treatment, members: Sequence[Worker]) -> list[Worker]:
    """Return those of `members` that take jobs of a treatment: not who lends it a service, where anybody else is."""
    free = [one for one in members if not services_hosted_by(treatment, one.worker_id, one.environment)]
    return free or list(members)


def choose_host(place: str, client: PlacementTarget, members: Iterable[Worker]) -> Worker | None:
    """Return which of `members` a client's service is placed at; None where the place names nobody.

    Always the same one for a client, and another than itself where there is one.
    """
    named = sorted(
        (one for one in members if matches_worker(place, one.worker_id, one.environment)), key=lambda one: one.number
    )
    others = [one for one in named if one.number != client.number] or named
    return others[client.number % len(others)] if others else None


def unplaced_services(treatments: Iterable[Treatment], members: Sequence[PlacementTarget]) -> list[str]:
    """Say which services are placed where no worker is, one reason each."""
    known = sorted({word for one in members for word in (one.worker_id, one.environment)})
    reasons: dict[str, None] = {}
    for treatment in treatments:
        for name, place in treatment.placement.items():
            if place not in known:
                hint = did_you_mean(place, known)
                reasons[f"no worker {place!r}, by id or environment, for the service {name}{hint}"] = None
    return list(reasons)


class Requirement(Struct, frozen=True, forbid_unknown_fields=True):
    """What containers of one engine need to find on a host. None: nothing of that kind."""

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


def engines_for_worker(treatments: Iterable[Treatment], environment: str, worker_id: str = "") -> list[str]:
    """Return the engines that the treatments use on a worker of an environment, for what it lends to others, too."""
    return sorted(
        {
            treatment.engine
            for treatment in treatments
            if treatment.environment in (None, environment) or services_hosted_by(treatment, worker_id, environment)
        }
    )


def requirements_for_worker(
    treatments: Iterable[Treatment], environment: str, worker_id: str = ""
) -> list[Requirement]:
    """Return what the treatments need of a worker of an environment, each once, in the order of the treatments.

    Containers of services count, too, those that it lends to jobs of others as well. What an optional treatment lacks
    is no reason not to begin, nor is an image that its jobs pull.
    """
    found: dict[Requirement, None] = {}
    for treatment in treatments:
        if treatment.optional:
            continue
        containers = [*services_hosted_by(treatment, worker_id, environment).values()]
        if treatment.environment in (None, environment):
            containers = [treatment.container, *local_services(treatment).values(), *containers]
        for asked in containers:
            image = None if treatment.pulls_image else asked.image
            need = Requirement(treatment.engine, image, asked.network, asked.log_driver, asked.runtime)
            if need != Requirement(treatment.engine):
                found[need] = None
    return list(found)
