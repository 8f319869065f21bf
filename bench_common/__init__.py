"""The contract that master and worker share: words, messages, records, clocks, keys and the stats file.

Here is what the metadata of installed packages says: our version, and what is registered as entry points (engines,
workloads, report formats, launchers). It is read once for a process: each reading takes milliseconds.
"""

from functools import cache
from importlib.metadata import EntryPoints, PackageNotFoundError, entry_points, version
from typing import Any

try:
    __version__ = version("weighbridge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+uninstalled"


def registered(group: str) -> EntryPoints:
    """Return the entry points of a group, such as ``weighbridge.engines``; none of them is loaded."""
    found: EntryPoints = _all_entry_points().select(group=group)
    return found


@cache
def _all_entry_points() -> Any:  # its type depends on the version of Python
    return entry_points()
