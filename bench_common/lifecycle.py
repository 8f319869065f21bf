"""The rules of life-cycle jobs: the operations are the scenario's own, and `hold` makes a packing of them."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from bench_common.cost import held_metrics
from bench_common.job_rules import JobRules
from bench_common.thresholds import CONTAINERS, JOB_SERIES
from bench_common.treatment import Lifecycle

if TYPE_CHECKING:
    from bench_common.job_rules import MetricTypes
    from bench_common.thresholds import Primary
    from bench_common.treatment import Operation

COMMIT_BYTES: Final = "commit_bytes"
"""Metric of a life-cycle job: bytes that its last `commit` added to the container's image."""

STATS_READINGS: Final = "stats_readings"
"""Metric: number of readings received while a job was watched."""


class LifecycleRules(JobRules[Lifecycle]):
    """The rules of operations on a container."""

    @property
    def by_itself(self) -> bool:
        """Packed containers wait for each other."""
        return self.treatment.is_packing

    def operations(self) -> tuple[Operation, ...]:
        """See `JobRules`."""
        return self.job.operations

    def metrics(self) -> MetricTypes:
        """Return what the scenario finds in the output of commands, and what some operations give."""
        found: MetricTypes = {
            source.name: {"unit": source.unit, "direction": source.better, "primary": True}
            for operation in self.job.operations
            for source in operation.metrics
        }
        if any(operation.kind == "commit" for operation in self.job.operations):
            found[COMMIT_BYTES] = {"unit": "B", "direction": "lower", "primary": True}
        if any(operation.kind == "stats" and operation.seconds is not None for operation in self.job.operations):
            found[STATS_READINGS] = {"unit": "1", "direction": ""}
        return found | held_metrics() if self.treatment.is_packing else found

    def primary(self) -> str:
        """Return how many containers a host holds where a condition ends the packing.

        Without one the scenario says how many, and the question is how long the last operation before the hold takes,
        which is usually ``start``.
        """
        if not self.treatment.is_packing:
            return super().primary()
        if self.treatment.until is not None:
            return CONTAINERS
        until_hold = takewhile(lambda one: one.kind != "hold", self.job.operations)
        before = [one.name for one in until_hold if one.kind != "sleep"]
        return f"{before[-1]}.p50" if before else CONTAINERS

    def fixed_reason(self, measure: Primary) -> str | None:
        """Return why the scenario itself says what a measure is; None if it does not."""
        if measure.kind == "rate" and self.treatment.is_packing:
            return "the scenario says how long containers are held"
        held = [one.name for one in self.job.operations if one.kind in ("hold", "sleep")]
        if measure.series in held or (measure.series == JOB_SERIES and self.treatment.is_packing):
            return f"the scenario says how long '{measure.series if measure.series in held else held[0]}' lasts"
        return None
