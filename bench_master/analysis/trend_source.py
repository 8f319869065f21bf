"""What judges a run by the trend of its series asks for: the earlier runs, from wherever they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from bench_master.run_data.summary import RunSummary
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.reasons import Reason


class PastRun(Struct, frozen=True):
    """An earlier run."""

    id: str
    created: str
    """When it began (ISO 8601)."""


class PastSeries(Struct, frozen=True):
    """The earlier runs of a treatment on this machine as it is now, in the order of time."""

    levels: RunLevels
    runs: Sequence[PastRun]
    """One for each level."""
    since: Reason | None = None
    """Why earlier ones do not count: ``since the machine changed (kernel 6.1 -> 6.8)``; None if all do."""


class TrendSource(Protocol):
    """Where earlier runs are."""

    def check(self) -> None:
        """Raise `UsageError` or `InfrastructureError` where there are none to be had: before a run, not after it."""

    def past(self, run: RunSummary) -> Mapping[str, PastSeries]:
        """Return the runs before this one that each of its treatments is compared with, by the treatment's title."""
