"""The contract that master and worker share: words, messages, records, clocks, keys and the stats file.

Here is our release and what installed packages register as entry points (engines, workloads, report formats,
launchers) and say of themselves. It is read only when somebody asks for it: each reading takes milliseconds.
"""

from __future__ import annotations

from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint, EntryPoints

__version__: Final = "0.1.0"


def registered(group: str) -> EntryPoints:
    """Return the entry points of a group, such as ``weighbridge.engines``; none of them is loaded."""
    found: EntryPoints = _all_entry_points().select(group=group)
    return found


def load_entry(point: EntryPoint) -> Any:
    """Return what an entry point leads to; raise what its module raises, which may be any `Exception`."""
    return import_safely(point.load)


def import_safely(load: Callable[[], Any]) -> Any:
    """Return what a call gives that imports somebody else's module; one that would end this program raises, too.

    A script that was registered without ``if __name__ == "__main__"`` calls `sys.exit`, perhaps with a code of 0.
    """
    try:
        return load()
    except SystemExit as end:
        raise ImportError(f"the module ends the program that imports it (sys.exit({end.code!r}))") from end


@cache
def _all_entry_points() -> Any:  # its type depends on the version of Python
    from importlib.metadata import entry_points

    return entry_points()


def package_header(package: str, name: str) -> list[str]:
    """Return the values of a header in the metadata of an installed package, such as ``Version``; none without it.

    `importlib.metadata` parses the description of the package, too, which takes longer than all the rest.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(package)
    except PackageNotFoundError:
        return []
    text = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
    headers = takewhile(bool, text.splitlines())
    return [line.partition(":")[2].strip() for line in headers if line.startswith(f"{name}:")]
