"""A loaded scenario: complete, checked, with nothing left to decide but the order of its trials."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import OverheadSampling, Treatment

Order = Literal["interleaved", "blocked", "as-written"]

AGAIN: Final = "(aa)"
"""The hidden label of a treatment that runs a second time. No key of a scenario can have this label."""


def is_again(labels: Mapping[str, Any]) -> bool:
    """Return whether a treatment with these labels is another one, running a second time."""
    return AGAIN in labels


@dataclass(frozen=True, slots=True)
class UntilVerdict:
    """Trials until every comparison is settled, in place of a fixed number of them."""

    at_most: int
    """Rounds at most: the last look at the comparisons."""
    budget_s: float | None = None
    """How long the run may take; None for any time."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to run, where, how often, in which order."""

    name: str
    description: str
    path: str
    """The file that it was read from."""
    text: str
    """The text of that file."""
    document: Mapping[str, Any]
    """The scenario as plain JSON-able data after every override; it loads to an equal scenario."""
    treatments: tuple[Treatment, ...]
    repeats: tuple[int, ...]
    """Trials of each treatment, by its index; at most so many with `until_verdict`."""
    warmup: tuple[int, ...]
    """Warm-up trials of each treatment, by its index."""
    order: Order
    seed: int | None
    """None: the run draws one."""
    sampling_interval_s: float
    thresholds: tuple[str, ...]
    until_verdict: UntilVerdict | None = None
    """None for a fixed number of trials."""
    settle_s: float = 0.0
    """The pause after each trial, before the next begins."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""
    primary: tuple[str, ...] = ()
    """The primary figure of each treatment, by its index."""
    baseline: Mapping[str, str] = field(default_factory=dict)
    """Labels of the treatments that others are compared with; empty for the first one."""
    margin: float | None = None
    """Smaller differences count as none, as a share; None for the default."""
    overhead: OverheadSampling | None = None
    speed_probe: bool = True
    """Whether each host measures its speed before each trial."""
    host_ceiling: bool = False
    """Whether to measure the host ceiling before the treatments."""
    dialect: str = ""
    """The tool whose file format it was written in; empty: Weighbridge's own."""
    untranslated: tuple[str, ...] = ()
    """The notes about parts of such a file that were not carried over."""
    profiles: tuple[str, ...] = ()
    """The scales that it offers besides ``full``."""
    scale: str = "full"
    """The scale that it was loaded at."""
    published: Mapping[str, Any] | None = None
    """Figures of others, as `bench_master.scenario.published` reads them."""
