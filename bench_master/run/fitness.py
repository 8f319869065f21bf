"""Whether a worker can do what the plan asks of it: looked at when it joins, before anything runs.

What a worker says of itself is not trusted to have the right shape; what it does not say, it cannot do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench_common.capability import inapplicable, refusals
from bench_common.placement import beside, lent_by
from bench_common.treatment import ContainerSettings, Treatment
from bench_master.table import counted


@dataclass(frozen=True, slots=True)
class Fitness:
    """What stands against a worker: `reasons` (empty: fit), and whether an engine is not usable on its host.

    `remarks` are settings that have no meaning for an engine of the plan, and are left out there.
    """

    reasons: tuple[str, ...] = ()
    unusable: bool = False
    remarks: tuple[str, ...] = ()


def assess(
    treatments: Sequence[Treatment],
    *,
    environment: str,
    slots: int,
    info: Mapping[str, Any],
    noop: bool,
    worker_id: str = "",
) -> Fitness:
    """Hold the treatments of an environment against a worker's slots and engines (`info` is from its hello).

    So are the services that it has to lend to the jobs of others.
    """
    reasons: dict[str, None] = {}
    remarks: dict[str, None] = {}
    unusable = False
    told = info.get("engines")
    engines: Mapping[str, Any] = told if isinstance(told, dict) else {}
    for treatment in treatments:
        lent = {} if noop else lent_by(treatment, worker_id, environment)
        takes = treatment.environment in (None, environment)
        if not takes and not lent:
            continue
        if takes and treatment.concurrency > slots:
            asked, there = counted(treatment.concurrency, "job"), counted(slots, "slot")
            reasons[f"{asked} in flight asked for, and it has {there} (-c)"] = None
        if noop:
            continue
        status = engines.get(treatment.engine)
        if not isinstance(status, dict):
            reasons[f"it does not know the engine {treatment.engine!r}"] = None
        elif not status.get("usable"):
            unusable = True
            advice = f"; {status['advice']}" if status.get("advice") else ""
            reasons[f"engine {treatment.engine} cannot be used: {status.get('reason')}{advice}"] = None
        else:
            here = _here(treatment, lent, takes=takes)
            reasons |= dict.fromkeys(refusals(status, here))
            reasons |= dict.fromkeys(_mounts(here, info, status))
            reasons |= dict.fromkeys(_swap(here, info))
            remarks |= dict.fromkeys(inapplicable(status, here))
    return Fitness(tuple(reasons), unusable, tuple(remarks))


def _here(treatment: Treatment, lent: Mapping[str, ContainerSettings], *, takes: bool) -> Treatment:
    """Return what of a treatment is done on a worker's host: its jobs with what is beside them, what it lends."""
    if not treatment.places:
        return treatment
    if takes:
        return replace(treatment, services={**beside(treatment), **lent})
    return replace(treatment, container=ContainerSettings(), services=dict(lent), swap_off=False)


def _mounts(treatment: Treatment, info: Mapping[str, Any], status: Mapping[str, Any]) -> list[str]:
    if info.get("allow_host_mounts"):
        return []
    containers = (treatment.container, *treatment.services.values())
    sources = [mount.source for one in containers for mount in one.storage if mount.kind == "host" and mount.source]
    if treatment.container.rootfs and "rootfs" not in status.get("inapplicable", ()):
        sources.append(treatment.container.rootfs)
    return [f"host directory {source} may not be mounted: start it with --allow-host-mounts" for source in sources]


def _swap(treatment: Treatment, info: Mapping[str, Any]) -> list[str]:
    fingerprint = info.get("fingerprint")
    none = isinstance(fingerprint, dict) and fingerprint.get("swap") == 0
    if not treatment.swap_off or none or info.get("allow_swapoff"):
        return []
    return ["swap may not be switched off: start it with --allow-swapoff, or let it be with `swap: as-is`"]
