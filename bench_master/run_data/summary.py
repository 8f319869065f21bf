"""A run as one measurement: what identifies it, and one level for each treatment.

The level is ln of the median of the trials' values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from bench_common.errors import ExitCode
from bench_common.stats.block_types import StoredTreatment
from bench_common.thresholds import Primary
from bench_master.run_data.harness import HarnessLimits
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.decision import TrialValues
from bench_master.verdicts.reasons import Reason
from bench_master.verdicts.signed_rank import Values


class TreatmentSummary(Struct, frozen=True):
    """One treatment of a run: what runs are compared by, beside its definition."""

    definition: StoredTreatment
    """It as the stats file's header has it."""
    measure: Primary
    trials: TrialValues
    """The value of each trial."""
    imported: bool = False
    """Whether it was measured elsewhere: of its parameters only what the outputs state is known."""
    limits: HarnessLimits = HarnessLimits()
    """How much of it may be the harness's doing."""

    @property
    def title(self) -> str:
        """Its labels as text."""
        return self.definition.title

    @property
    def labels(self) -> Mapping[str, Any]:
        """Its labels."""
        return self.definition.labels

    @property
    def engine(self) -> str:
        """The engine's name."""
        return self.definition.engine

    @property
    def levels(self) -> RunLevels:
        """The run's level, with the band of what is not known exactly; NaN where it has none."""
        ends = (self.trials.values, self.trials.low, self.trials.high)
        point, low, high = (_log_of_median(each) for each in ends)
        return RunLevels(np.array([point]), np.array([low]), np.array([high]))

    @property
    def has_level(self) -> bool:
        """Whether there is a level: not where most trials have no value, or 0."""
        return math.isfinite(self.levels.values[0])


def _log_of_median(values: Values) -> float:
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan
    with np.errstate(invalid="ignore"):
        median = float(np.median(known))
    return math.log(median) if 0.0 < median < math.inf else -math.inf if median <= 0.0 else median


class HostSummary(Struct, frozen=True):
    """What a host is."""

    fingerprint: Mapping[str, Any]
    engines: Mapping[str, str]
    """The versions of its engines."""
    programs: Mapping[str, Mapping[str, str]]
    """Which programs these are, to the byte."""
    speed: float
    """ln of the median time (ns) that a fixed amount of work took on it; NaN where it was not measured."""


class RunSummary(Struct, frozen=True):
    """One run."""

    file: str
    """The stats file, as it was named."""
    run_id: str | None
    created: str | None
    """When it began (ISO 8601); None if unknown, as of imported results."""
    began_s: float
    """The same as seconds since 1970; NaN if unknown."""
    scenario: str | None
    hosts: Mapping[str, HostSummary]
    harness: str
    margin: float | None
    """The scenario's margin; None if it has none."""
    treatments: Mapping[str, TreatmentSummary]
    imported: bool = False
    """Whether it was measured elsewhere."""
    problem: Reason | None = None
    """Why it does not count among others: it is incomplete, damaged, a no-op run; None if it does."""
    incomplete: bool = False
    """Whether the run or its file is incomplete."""
    shortfall: str = ""
    """Why a complete run is no success: treatments without a result, or jobs that failed; else empty."""
    exit_code: ExitCode = ExitCode.OK
    """What its report ends with, thresholds other than on failed jobs left out."""
