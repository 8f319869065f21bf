"""Whose a named volume or network is: without consent a container uses Weighbridge's own only.

A volume that somebody else made holds their data, and a network that somebody else made reaches their services. Both
have no label of ours (`bench_worker.engines.base.RUN_LABEL`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench_common.treatment import FOREIGN_ADVICE, named_volumes
from bench_worker.engines.base import RUN_LABEL
from bench_worker.engines.settings import MountRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import Container
    from bench_worker.engines.docker.http import TimedRequest

NETWORK_MODES: Final = ("default", "bridge", "host", "none", "private")
"""What is no name of a network. ``container:NAME`` and ``ns:PATH`` are others: the network of somebody else."""

BORROWED_MODES: Final = ("container:", "ns:")
"""How the network of another container or process begins."""


def foreign_resources(engine: TimedRequest, settings: ContainerSettings) -> list[str]:
    """Return which named volumes and networks of these settings are there and not ours, one reason each."""
    found = [(name, engine.find("volumes", name)) for name in named_volumes(settings)]
    reasons = [_volume_reason(name) for name, seen in found if seen is not None and not _is_ours(seen)]
    return reasons + _foreign_networks(engine, settings.network)


def claim_resources(engine: TimedRequest, container: Container) -> None:
    """Make the named volumes of a container that are not there, with its labels; raise `MountRefused` for others'.

    An engine returns a volume that is there already with the labels that it has, so nobody's can come in between.
    """
    for name in named_volumes(container.settings):
        body = {"Name": name, "Labels": dict(container.labels)}
        if not _is_ours(engine.post("volumes", "create", body=body)):
            raise MountRefused(_volume_reason(name))
    for reason in _foreign_networks(engine, container.settings.network):
        raise MountRefused(reason)


def needs_claim(settings: ContainerSettings) -> bool:
    """Return whether these settings name a volume or a network; most name none."""
    return bool(settings.storage and named_volumes(settings)) or settings.network not in (None, *NETWORK_MODES)


def _foreign_networks(engine: TimedRequest, network: str | None) -> list[str]:
    if network is None or network in NETWORK_MODES:
        return []
    seen = None if network.startswith(BORROWED_MODES) else engine.find("networks", network)
    if seen is None and not network.startswith(BORROWED_MODES):
        return []
    return [] if _is_ours(seen) else [f"network {network!r} was not made by Weighbridge: {FOREIGN_ADVICE}"]


def _volume_reason(name: str) -> str:
    return f"volume {name!r} is there and was not made by Weighbridge: {FOREIGN_ADVICE}; or name another volume"


def _is_ours(seen: Mapping[str, Any] | None) -> bool:
    return bool(((seen or {}).get("Labels") or {}).get(RUN_LABEL))
