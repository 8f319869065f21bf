"""What a stats file says of its run itself: loops, clocks, findings, resumptions and the order of trials."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class LoopReport(Struct, frozen=True):
    """How busy and how late a process's event loop was."""

    n: int
    """How many readings."""
    busy_mean: float | None
    """Mean share of time that it was busy."""
    busy_max: float | None
    """The largest share of any reading."""
    lag_p99_s: float | None
    """99th percentile of the longest lag of each reading."""
    lag_max_s: float | None
    """The longest lag."""


class ClockDisagreementReport(Struct, frozen=True):
    """A change of a host's clock against the master's by more than their uncertainties allow."""

    trials: Sequence[int]
    """The trials in which it may have been: those between the two comparisons of the clocks that show it."""
    bracket_s: float
    """How long that was by the master's clock."""
    own_s: float
    """How long it was by the host's clock."""
    allowed_s: float
    """By how much the two may differ."""


class ClockReport(Struct, frozen=True):
    """How a host's clock compares to the master's."""

    uncertainty_max_s: float | None
    """Largest uncertainty of its offset in any trial; None if it is the master's own clock."""
    disagreements: Sequence[ClockDisagreementReport]
    """The changes of the clock that no drift explains."""


class HostFindingReport(Struct, frozen=True):
    """What the doctor found on a host before the run."""

    check: str
    """The name of the check."""
    finding: str
    """What it found."""
    advice: str
    """What to do about it."""


class ResumeReport(Struct, frozen=True):
    """One time that the run was resumed."""

    at: str | None
    """When (ISO 8601)."""
    ended: str | None
    """How the run had ended before: ``killed``, ``interrupted`` ..."""
    gap_s: float | None
    """Seconds between its last record and the resume; None if unknown, as after a reboot."""
    complete_trials: int | None
    """Trials that were complete and are kept."""
    rerun_trials: Sequence[int]
    """Trials that were incomplete and are run again."""


class TrialOrderReport(Struct, frozen=True):
    """How the order in which trials ran relates to the planned order."""

    as_planned: bool
    """Whether no trial ran late."""
    late: Sequence[int]
    """Trials that ran after a trial that was planned to follow them."""
    split_blocks: Sequence[int]
    """Blocks that ran partly before and partly after a resume."""
