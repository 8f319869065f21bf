"""How the cost of engines themselves is to be watched in a run: what a scenario's key ``overhead`` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

INTERVAL_S: Final = 0.5
"""How often an engine's processes are read unless the scenario says otherwise."""

SOURCE: Final = "engine:"
"""What the source of an engine's samples begins with; its name follows."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """`baseline` are the labels of the treatment that others are compared with; empty: the first that has figures.

    `cgroups` are control groups by engine, to be read in the place of the engine's processes.
    """

    interval_s: float = INTERVAL_S
    baseline: Mapping[str, str] = field(default_factory=dict)
    cgroups: Mapping[str, str] = field(default_factory=dict)

    def for_workers(self, engines: Iterable[str]) -> dict[str, Any]:
        """Return what a worker is told: the interval, and the control group (or nothing) of each engine to watch."""
        return {"interval_s": self.interval_s, "engines": {name: self.cgroups.get(name, "") for name in engines}}

    def for_header(self) -> dict[str, Any]:
        """Return what the stats file keeps."""
        return {"interval_s": self.interval_s, "baseline": dict(self.baseline), "cgroups": dict(self.cgroups)}
