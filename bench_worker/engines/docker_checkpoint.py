"""Saves containers and lets them go on through Docker's API, which has it among its experimental features.

A checkpoint lies in the container's own directory and goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_worker.engines import criu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.engines.docker_wire import Wire


def name_of(ordinal: int) -> str:
    """Return what a container's checkpoint with this ordinal is called."""
    return f"weighbridge-{ordinal}"


def save(wire: Wire, identity: str, ordinal: int) -> None:
    """Save a container and end its processes."""
    wire.post("containers", identity, "checkpoints", body={"CheckpointID": name_of(ordinal), "Exit": True})


def restore(wire: Wire, identity: str, ordinal: int) -> None:
    """Let a saved container go on."""
    wire.post("containers", identity, "start", checkpoint=name_of(ordinal))


def trouble(info: Mapping[str, Any], *, here: bool) -> str:
    """Return why an engine that gave this `info` cannot save containers; nothing where it can, as far as one sees.

    An engine that is not on this host has a CRIU of its own, which nobody here can ask.
    """
    if not info.get("ExperimentalBuild"):
        return 'the daemon was started without its experimental features ({"experimental": true} in daemon.json)'
    return criu.trouble(str(info.get("DefaultRuntime") or "")) if here else ""
