"""What a stats file says of the harness itself: what it can do on its host, and what it took of that host's CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from bench_master.run_data.treatment_types import HARNESS_CEILING, HarnessReport, OpenLoadReport

MIN_READ_NS: Final = 500_000_000
"""CPU time of a host, of all its CPUs together, below which shares of it are not known: it is counted in ticks."""

_Text = Annotated[str, Meta(max_length=1000)]


class StoredCeiling(Struct, frozen=True):
    """The ceiling of one treatment, as its event has it."""

    treatment: Annotated[int, Meta(ge=0)]
    ceiling: _Text
    """What the jobs did that were measured: ``no-op``."""
    rate_per_s: Annotated[float, Meta(gt=0, le=1e12)]
    """Jobs per second."""
    measured: _Text
    """When, in ISO 8601."""
    setup: _Text = ""
    """With which workers, jobs in flight and operations, in words."""
    others: Annotated[float, Meta(ge=0)] = 0.0
    """Share of the host's CPU time that others took meanwhile."""
    quiet: bool = True
    """Whether they slowed nothing down."""

    @property
    def busy_share(self) -> float | None:
        """What others took of the CPUs if that made it too low; None of a quiet machine."""
        return None if self.quiet else self.others


class NearCeiling(Struct, frozen=True):
    """How near a treatment's rate was to the harness's own."""

    treatment: str
    rate_per_s: float
    """Jobs per second, or the rate at which as many jobs in flight with such times would end."""
    ceiling: StoredCeiling

    @property
    def share(self) -> float:
        """The rate as a share of the harness's own."""
        return self.rate_per_s / self.ceiling.rate_per_s


class HarnessCpu(Struct, frozen=True):
    """What the harness took of its host in a treatment's trials."""

    treatment: str
    share: float
    """Of the host's CPU time."""
    idle: float
    """The share of it that was left idle."""


class HarnessLimits(Struct, frozen=True):
    """How much of a treatment's measure may be the harness's doing, in one run."""

    near: NearCeiling | None = None
    """None where the ceiling is not known, or the measure says nothing of it."""
    cpu: HarnessCpu | None = None
    """None where it is not known, or the measure does not depend on it."""


class HarnessReadings:
    """Takes a run's events; `trials` are the header's: treatment, round, whether it is warm-up."""

    def __init__(self, trials: Sequence[Sequence[Any]]) -> None:
        self._trials = trials
        self._ceilings: dict[int, StoredCeiling] = {}
        self._used: dict[int, Sequence[int]] = {}
        """CPU time by trial: of the harness, and of its host the idle and all of it (ns)."""

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event of a run; a malformed ceiling is ignored, and the last one of a treatment counts."""
        if event["kind"] == HARNESS_CEILING:
            try:
                ceiling = msgspec.convert(event, StoredCeiling)
            except msgspec.ValidationError:
                return
            self._ceilings[ceiling.treatment] = ceiling
        elif event["kind"] == "trial-end" and "harness" in event:
            self._used[event["trial"]] = event["harness"]

    def ceiling(self, treatment: int) -> StoredCeiling | None:
        """Return the ceiling of a treatment; None where it is not known."""
        return self._ceilings.get(treatment)

    def cpu_shares(self, treatment: int) -> tuple[float, float] | None:
        """Return which shares of its host's CPU time the harness took, and were idle, in the measured trials.

        None where they are not known: the run has workers on other hosts, or its trials were too short.
        """
        own = [
            used
            for trial, used in self._used.items()
            if trial < len(self._trials) and self._trials[trial][0] == treatment and not self._trials[trial][2]
        ]
        harness_ns, idle_ns, total_ns = (sum(column) for column in zip(*own, strict=True)) if own else (0, 0, 0)
        if total_ns < MIN_READ_NS:
            return None
        return harness_ns / total_ns, idle_ns / total_ns

    def report(self, treatment: int, jobs_per_s: float | None, load: OpenLoadReport | None) -> HarnessReport | None:
        """Return what is known of a treatment with this rate and this load; None where that is nothing."""
        ceiling, shares = self.ceiling(treatment), self.cpu_shares(treatment)
        if ceiling is None and shares is None:
            return None
        rate = rate_that_counts(jobs_per_s, load)
        return HarnessReport(
            ceiling=None if ceiling is None else ceiling.ceiling,
            ceiling_per_s=None if ceiling is None else ceiling.rate_per_s,
            measured=None if ceiling is None else ceiling.measured,
            setup=None if ceiling is None else ceiling.setup,
            others_share=None if ceiling is None else ceiling.busy_share,
            rate_per_s=None if ceiling is None else rate,
            share=None if ceiling is None or rate is None else rate / ceiling.rate_per_s,
            cpu_share=None if shares is None else shares[0],
            idle_share=None if shares is None else shares[1],
        )


def rate_that_counts(jobs_per_s: float | None, load: OpenLoadReport | None) -> float | None:
    """Return the rate that the harness had to reach: of jobs that were done, or of those that were to arrive."""
    rates = [jobs_per_s, *(() if load is None else (load.rate_per_s, load.offered_per_s))]
    return max((one for one in rates if one is not None), default=None)
