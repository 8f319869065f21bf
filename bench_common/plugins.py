"""What installed packages register as entry points: engines, workloads, report formats, launchers.

The metadata of every installed package is read once for a process: each reading takes milliseconds.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any


def registered(group: str) -> EntryPoints:
    """Return the entry points of a group, such as ``weighbridge.engines``; none of them is loaded."""
    found: EntryPoints = _all_entry_points().select(group=group)
    return found


@cache
def _all_entry_points() -> Any:  # its type depends on the version of Python
    return entry_points()
