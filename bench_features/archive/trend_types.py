"""A trend as declared types: what ``archive trend --format json`` prints, and what the chart of it is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from bench_master.formatting import listed
from bench_master.verdicts.change_points import State
from bench_master.verdicts.decision import Word

TREND_FORMAT: Final = "weighbridge-trend"
TREND_VERSION: Final = 1
ChangeKind: TypeAlias = Literal["step", "confirmed", "unconfirmed"]


def minute(created: str) -> str:
    """Return a time (ISO 8601) to the minute, as people read it."""
    return created[:16].replace("T", " ")


class TrendRun(Struct, frozen=True):
    """One run of a series."""

    run: str
    """Its id in the archive."""
    created: str
    """When it began (ISO 8601, UTC)."""
    created_s: float
    """The same in seconds since 1970."""
    version: str
    """The version of the engine, else that of Weighbridge."""
    value: float
    """The median of its trials; of another measure than the primary one what its report has."""
    low: float | None
    """Lower end of the interval of that within the run (95 %); None below six trials, and above 1,000."""
    high: float | None
    """Upper end."""
    trials: int
    """How many trials have a value; 0 of a measure whose value is over all trials."""


class TrendChange(Struct, frozen=True):
    """When the level of a series changed, and by how much."""

    first: int
    """Place of the first run of the new level among `TrendReport.runs`."""
    run: str
    created: str
    version: str
    kind: ChangeKind
    """``step``: of the history; else the newest runs stand out: ``confirmed`` by a second run, or not yet."""
    word: Word
    """``slower``, ``faster``, ``worse`` or ``better``."""
    ratio: float
    """The new level to the one before."""
    low: float
    """Lower end of the interval of that: at 95 %, of an unconfirmed change at 99.9 %."""
    high: float
    """Upper end."""
    runs: int
    """Runs of the new level, up to the next change or break."""
    acknowledged: bool
    """Whether somebody said that it is known."""

    @property
    def words(self) -> str:
        """When it was, by which run, and how sure that is."""
        sure = {"step": "", "confirmed": ", confirmed by a second run", "unconfirmed": ", unconfirmed"}[self.kind]
        known = ", acknowledged" if self.acknowledged else ""
        return f"since {minute(self.created)} (run {self.run}{sure}{known})"


class FactChange(Struct, frozen=True):
    """A fact of the machine that changed."""

    name: str
    """Its name, such as ``kernel``."""
    before: str
    after: str


class TrendBreak(Struct, frozen=True):
    """Where the machine changed: what comes after is held against nothing before."""

    first: int
    """Place of the first run on the changed machine."""
    run: str
    created: str
    facts: Sequence[FactChange]

    @property
    def text(self) -> str:
        """What changed, in words."""
        return facts_text(self.facts)


def facts_text(facts: Sequence[FactChange]) -> str:
    """Return changed facts in words: ``kernel 6.1 -> 6.8``."""
    return listed([f"{one.name} {one.before} -> {one.after}" for one in facts], 3)


class TrendReport(Struct, frozen=True):
    """A series, its changes and breaks."""

    format: str
    """``weighbridge-trend``."""
    version: int
    series: str
    scenario: str
    treatment: str
    labels: Mapping[str, Any]
    hosts: str
    measure: str
    """The measure that the runs are compared by."""
    unit: str
    """Its unit; ``s`` for times."""
    direction: Literal["higher", "lower"]
    margin: float
    """Smaller changes count as none, as a share."""
    answer: str
    """Since when, on one line."""
    state: State
    """What the newest run says: ``few`` runs of its level, ``steady``, ``unconfirmed`` or ``confirmed`` change."""
    next_low: float | None
    """Lower end of where the next run is expected (95 %), in `unit`; None below five runs of this level."""
    next_high: float | None
    """Upper end."""
    runs: Sequence[TrendRun]
    changes: Sequence[TrendChange]
    """In the order of time."""
    breaks: Sequence[TrendBreak]
    """In the order of time."""
