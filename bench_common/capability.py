"""Decides, before anything runs, what an engine on a host cannot do of a treatment. Pure.

What cannot be done, and what would be ignored without a word, is refused. What has no meaning for an engine (a plain
process has no image) is left out, and said. The status is `EngineStatus` of the worker, as plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_common.spec import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.spec import ContainerSettings, Treatment

GRACE_STEP = "stop.grace_step_s"
"""The detail that says in which steps an engine counts the grace period of `stop`, in seconds."""

_WITHOUT_ENGINE = frozenset({"sleep"})
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
    step_s = float(_details(status).get(GRACE_STEP, 0))
    found = []
    for operation in treatment.job.operations:
        if operation.kind not in able:
            listed = ", ".join(sorted(able))
            found.append(f"{engine} cannot do the operation {operation.name!r}; it can do {listed}")
        elif operation.kind == "stop" and operation.seconds is not None and step_s and operation.seconds % step_s:
            found.append(
                f"{engine} counts the grace period of stop in steps of {step_s:g} s: "
                f"{operation.name!r} with {operation.seconds:g} s cannot be had"
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
    ]


def _service_refusals(engine: str, status: Mapping[str, Any], treatment: Treatment) -> list[str]:
    if not treatment.services or status.get("runs_services"):
        return []
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
