"""What judges a run by the trend of its series asks for: the earlier runs, from wherever they are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from msgspec import Struct

from bench_master.registered_parts import load_registered
from bench_master.run_data.summary import RunSummary
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.reasons import Reason

if TYPE_CHECKING:
    from bench_master.analysis.verdict_types import RunFileReport


class PastSeries(Struct, frozen=True):
    """The earlier runs of a treatment on this machine as it is now, in the order of time."""

    levels: RunLevels
    runs: Sequence[RunFileReport]
    since: Reason | None = None
    """Why earlier ones do not count: ``since the machine changed (kernel 6.1 -> 6.8)``; None if all do."""


class TrendSource(Protocol):
    """Where earlier runs are."""

    def check(self) -> None:
        """Raise `UsageError` or `InfrastructureError` where there are none to be had: before a run, not after it."""

    def past(self, run: RunSummary) -> Mapping[str, PastSeries]:
        """Return the runs before this one that each of its treatments is compared with, by the treatment's title."""


GROUP: Final = "weighbridge.baselines"


class BaselineWord(NamedTuple):
    """A word for ``--baseline`` that means earlier runs; the entry point that leads to it has its name."""

    help: str
    """What the run is compared with, as the end of a sentence."""
    source: str
    """The class of the `TrendSource`, which takes no arguments, as ``module:Class``: loaded when the word is used."""

    def load(self) -> TrendSource:
        """Return a new source."""
        found: TrendSource = EntryPoint("", self.source, GROUP).load()()
        return found


@cache
def baseline_words() -> dict[str, BaselineWord]:
    """Return the registered words, in order; what is none, or cannot be loaded, is left out, and told on stderr."""
    return load_registered(GROUP, BaselineWord, "baseline")
