"""Decides, before anything runs, what an engine on a host cannot do of a treatment. Pure.

What cannot be done, and what would be ignored without a word, is refused. What has no meaning for an engine (a plain
process has no image) is left out, and said. The status is `EngineStatus` of the worker, as plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_common.treatment import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings, Mount, Treatment

GRACE_STEP = "stop.grace_step_s"
"""The detail that says in which steps an engine counts the grace period of `stop`, in seconds."""

STATS_INTERVAL = "stats.interval_s"
"""The detail that says how often an engine's stream of statistics comes, in seconds; without it, at any interval."""

NETWORK_CHOICE = "network.choice"
"""The detail that lists the only networks of an engine, with blanks between them."""

UNNAMED_VOLUMES = "storage.unnamed_volumes"
"""The detail of an engine whose volumes have no names."""

OWN_STORAGE = "storage.own"
"""The detail of an engine that makes data containers, and directories of the host for one container alone."""

SERVICES_NETWORK = "services.network"
"""The detail that names the only network in which an engine can say where a service is reached."""

CAPABILITIES_WITHHELD = "capabilities.withheld"
"""The detail that lists the kernel's capabilities that no container gets on a host, with blanks between them."""

_WITHOUT_ENGINE = frozenset({"sleep", "hold"})
_BYTES = "_bytes"
"""How the name of a setting ends whose key in a scenario takes units, and has none in its name."""


def refusals(status: Mapping[str, Any], treatment: Treatment) -> list[str]:
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
        *_operation_refusals(engine, status, treatment),
        *_setting_refusals(engine, status, treatment),
        *_service_refusals(engine, status, treatment),
    ]


def inapplicable(status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    """Return what is left out because it has no meaning for this engine, one sentence each."""
    meaningless = set(status.get("inapplicable") or ())
    engine = f"engine '{status.get('name') or treatment.engine}'"
    return [
        f"{engine} has no {setting}: {whose}{_shown(container, setting)} is left out"
        for whose, container in _containers(treatment)
        for setting in sorted(container.given() & meaningless)
        if not (whose and setting == "image")
    ]


def _operation_refusals(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    if not isinstance(treatment.job, Lifecycle):
        return []
    able = set(status.get("operations") or ()) | _WITHOUT_ENGINE
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
                f"{operation.name!r} with {operation.seconds:g} s cannot be had"
            )
        elif operation.kind == "stats" and interval_s and operation.seconds not in (None, interval_s):
            found.append(
                f"{engine} sends statistics every {interval_s:g} s, as is its own pace: "
                f"{operation.name!r} every {operation.seconds:g} s cannot be had"
            )
    return found


def _setting_refusals(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    known = set(status.get("settings") or ()) | set(status.get("inapplicable") or ())
    reasons = _details(status)
    return [
        f"{engine} cannot enforce {whose}{_shown(container, setting)}: "
        f"{reasons.get(f'setting.{setting}') or 'it does not know this setting'}"
        for whose, container in _containers(treatment)
        for setting in sorted(container.given() - known)
    ] + _value_refusals(engine, status, treatment)


def _value_refusals(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    """Return why values of settings that the engine does know cannot be had from it."""
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
        if OWN_STORAGE not in details and "storage" not in inapplicable:
            found += [
                f"{engine} makes no {what} for a container: give the storage at {mount.target} another form"
                for mount in container.storage
                for what in _own(mount)
            ]
    return found


def _own(mount: Mount) -> list[str]:
    if mount.kind == "data_container":
        return ["data container"]
    return ["host directory of its own"] if mount.kind == "host" and not mount.source else []


def _service_refusals(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
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


def _shown(container: ContainerSettings, setting: str) -> str:
    value = getattr(container, setting)
    if setting.endswith(_BYTES):
        return f"{setting.removesuffix(_BYTES)}={value} bytes"
    return f"{setting}={value!r}"
