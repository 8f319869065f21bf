"""What follows from a treatment on both sides: the operations of a job, its metrics, its primary measure."""

from __future__ import annotations

from bench_common.job_rules import Estimate, JobRules, MetricTypes
from bench_common.treatment import Operation
from dice_jobs.job import Dice


class DiceRules(JobRules[Dice]):
    """The dice are shaken, then thrown."""

    def operations(self) -> tuple[Operation, ...]:
        return (Operation("shake", "shake"), Operation("throw", "throw"))

    def metrics(self) -> MetricTypes:
        return {"pips": {"unit": "1", "direction": "higher", "primary": True}}

    def primary(self) -> str:
        return "pips"

    def job_estimate(self) -> Estimate:
        return Estimate(0.001, "a throw takes about 1 ms")
