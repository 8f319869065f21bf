"""The fleet: hosts in a file, and workers on them. `load_inventory` reads the file, launchers start the workers.

Here is its group of sub-commands, as ``--help`` lists it.
"""

from __future__ import annotations

from typing import Final

from bench_master.commands import CommandEntry

MASTER_TIMEOUT_S: Final = 12 * 3600.0
"""How long a worker waits for a master before it exits (s)."""
RUN_MASTER_TIMEOUT_S: Final = 600.0
"""The same for a worker that is started for a single run (s)."""

FLEET: Final = CommandEntry(
    "start, list and stop workers on the hosts of an inventory, and fetch their logs", "bench_features.fleet.commands"
)
