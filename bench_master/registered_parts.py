"""What packages register for this program, of one type: what is none is left out, and told."""

from __future__ import annotations

from typing import TypeVar

from bench_common import load_entry, registered
from bench_common.streams import program_name, tell

Part = TypeVar("Part")


def load_registered(group: str, kind: type[Part], what: str) -> dict[str, Part]:
    """Return what is registered in a group, by name, in order.

    What cannot be loaded, or is no `kind`, is left out and told on stderr, where it is called `what`.
    """
    found: dict[str, Part] = {}
    for point in sorted(registered(group), key=lambda one: one.name):
        try:
            part = load_entry(point)
            problem = "" if isinstance(part, kind) else f"is no {kind.__name__}"
        except Exception as error:  # noqa: BLE001  somebody else's module may raise anything when imported
            problem = f"cannot be loaded: {type(error).__name__}: {error}"
        if problem:
            tell(f"{program_name()}: the {what} {point.name!r} ({point.value}) is left out: it {problem}")
        else:
            found[point.name] = part
    return found
