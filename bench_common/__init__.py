"""The contract that master and worker share: words, messages, records, clocks, keys and the stats file.

Here is what the metadata of installed packages says: our version, and what is registered as entry points (engines,
workloads, report formats, launchers). It is read once for a process, and only when somebody asks for it: each reading
takes milliseconds.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    __version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("weighbridge")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+uninstalled"


def registered(group: str) -> EntryPoints:
    """Return the entry points of a group, such as ``weighbridge.engines``; none of them is loaded."""
    found: EntryPoints = _all_entry_points().select(group=group)
    return found


@cache
def _all_entry_points() -> Any:  # its type depends on the version of Python
    from importlib.metadata import entry_points

    return entry_points()
