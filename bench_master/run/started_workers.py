"""The workers of a run that a feature started for it, on other hosts say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct


class StartedWorkers(Struct, frozen=True):
    """Workers that were started for one run, apart from local ones."""

    names: frozenset[str] = frozenset()
    explain_end: Callable[[str], str | None] | None = None
    """Returns what is known of the end of a worker, by its name; may raise `InfrastructureError`."""
    advice: str = ""
    """What to do about one that does not connect."""


NO_WORKERS: Final = StartedWorkers()


def together(several: Iterable[StartedWorkers]) -> StartedWorkers:
    """Return the workers of several features as one."""
    found = [one for one in several if one.names]

    def explain_end(name: str) -> str | None:
        explain = next((one.explain_end for one in found if name in one.names), None)
        return None if explain is None else explain(name)

    return StartedWorkers(
        frozenset[str]().union(*(one.names for one in found)),
        explain_end,
        "; or ".join(one.advice for one in found if one.advice),
    )
