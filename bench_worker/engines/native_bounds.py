"""What plain processes cannot be held to and cannot have done to them, and why: they are in no container."""

from __future__ import annotations

from typing import Final

from bench_worker.engines.criu import OPERATIONS as SAVING
from bench_worker.engines.oci_confinement import SETTINGS as CONFINEMENT

REASONS: Final = {
    **dict.fromkeys(CONFINEMENT, "a plain process is not confined"),
    "memory_bytes": "a plain process has no memory limit of its own; weigh it without one, or use an engine",
    "cpus": "a plain process has no share of CPU time; `cpuset` can be enforced",
}
"""Why a setting is refused."""

LACKS: Final = {
    **dict.fromkeys(("pull", "commit"), "a plain process has no image"),
    **dict.fromkeys(SAVING, "only what is in a container is saved"),
    "stats": "nobody counts for a plain process alone; `sampling_interval` reads what its host uses",
}
"""Why an operation is refused."""
