"""Finds and removes what runs left of an OCI runtime's containers: only labels count, a name makes nothing ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_common.errors import InfrastructureError
from bench_worker.engines import oci_homes
from bench_worker.engines.base import RUN_LABEL, Leftover, OperationFailed
from bench_worker.engines.native.labels import matches

if TYPE_CHECKING:
    from bench_worker.engines.oci.bundle import Bundles
    from bench_worker.engines.oci.runtime import Runtime

_DISCARD_S = 30.0


def find(engine: str, run_id: str | None, worker_id: str | None) -> list[Leftover]:
    """Return an engine's containers whose config.json carries our labels."""
    return [
        Leftover(engine, "container", str(item.path), item.path.name, item.labels[RUN_LABEL], item.age_s)
        for item in oci_homes.labelled(engine)
        if matches(item.labels, run_id, worker_id)
    ]


def remove(runtime: Runtime, options: tuple[str, ...], bundles: Bundles, leftover: Leftover) -> None:
    """Delete a container and its directory, if it still carries the label of that run; gone already is fine.

    `options` are the runtime's, before each command. Raises `InfrastructureError`.
    """
    for item in oci_homes.labelled(leftover.engine):
        if str(item.path) != leftover.identity or item.labels[RUN_LABEL] != leftover.run_id:
            continue
        errand = runtime.errand(item.path / "discard.log", options, _DISCARD_S)
        try:
            if errand.call("delete", "--force", item.path.name).exit_code:
                # Not every runtime can delete one that is paused; another error stays one.
                errand.call("resume", item.path.name)
                errand.do("delete", "--force", item.path.name)
            bundles.delete(item.path)
        except (OSError, OperationFailed) as error:
            raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error
