"""What judges a run by the trend of its series asks for: the earlier runs, from wherever they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bench_common.thresholds import Primary
from bench_master.verdicts.between_runs import RunLevels


@dataclass(frozen=True, slots=True)
class NewTreatment:
    """A treatment of the run that is judged."""

    title: str
    definition: Mapping[str, Any]
    """It as the stats file's header has it."""
    figure: Primary
    """Its primary figure."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """The run that is judged."""

    scenario: str | None
    """The scenario's name."""
    began_s: float
    """When it began, in seconds since 1970: only runs before it count."""
    hosts: Mapping[str, Mapping[str, Any]]
    """The properties of its hosts by name."""
    treatments: Sequence[NewTreatment]


@dataclass(frozen=True, slots=True)
class PastRun:
    """An earlier run."""

    id: str
    created: str
    """When it began (ISO 8601)."""


@dataclass(frozen=True, slots=True)
class PastSeries:
    """The earlier runs of a treatment on this machine as it is now, in the order of time."""

    levels: RunLevels
    runs: Sequence[PastRun]
    """One for each level."""
    since: str = ""
    """Why earlier ones do not count: ``since the machine changed (kernel 6.1 -> 6.8)``; empty if all do."""


class TrendSource(Protocol):
    """Where earlier runs are."""

    def check(self) -> None:
        """Raise `UsageError` or `InfrastructureError` where there are none to be had: before a run, not after it."""

    def past(self, run: NewRun) -> Mapping[str, PastSeries]:
        """Return the earlier runs of each treatment by its title."""
