"""The fleet: hosts in a file, and workers on them. `load_inventory` reads the file, launchers start the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

MASTER_TIMEOUT_S: Final = 12 * 3600.0
"""How long a worker waits for a master before it exits (s)."""
RUN_MASTER_TIMEOUT_S: Final = 600.0
"""The same for a worker that is started for a single run (s)."""


class FleetWorkers(Struct, frozen=True):
    """The workers of a run that were started on the hosts of an inventory."""

    names: frozenset[str] = frozenset()
    """Their names; none without an inventory."""
    explain_end: Callable[[str], str | None] | None = None
    """Returns what the launcher knows of the end of a worker, by its name; may raise `InfrastructureError`."""
