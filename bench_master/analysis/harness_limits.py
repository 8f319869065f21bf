"""Where a figure says more of the harness than of what it measured: why a comparison is refused then.

Two rules. A rate within a fifth of what the harness itself can do on this host is the harness's: whatever is faster
would show the same. And where the harness took more of the host's CPU time than was left idle, it took it from the
jobs; if that share is larger than the difference that was measured, the difference may be its doing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bench_common.thresholds import JOB_SERIES, Primary
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.harness import HarnessCpu, HarnessLimits, NearCeiling, rate_that_counts
from bench_master.run_data.treatment_types import TreatmentReport
from bench_master.verdicts.reasons import Code, Reason, because

LIMIT: Final = 0.8
"""A rate of this share of the harness's own, or more, is limited by the harness."""


def limits_of(ledger: Aggregator, index: int, value: float | None, measure: Primary) -> HarnessLimits:
    """Return how near a treatment of a run was to what the harness itself can do, and what that took of the CPUs.

    `value` is the median of its trials' measures. The time of a whole job counts as the rate at which so many jobs in
    flight would end. A job that runs alone shares no CPU with its own hand-out, so its time is no harness's.
    """
    if not measure.is_time_or_rate or measure.kind not in ("duration", "rate"):
        return HarnessLimits()
    title = ledger.treatments[index].title
    ceiling, shares = ledger.harness.ceiling(index), ledger.harness.cpu_shares(index)
    near = None if ceiling is None else NearCeiling(title, _rate(ledger, index, value, measure), ceiling)
    alone = measure.kind == "duration" and _in_flight(ledger, index) == 1
    return HarnessLimits(near, None if shares is None or alone else HarnessCpu(title, *shares))


def _rate(ledger: Aggregator, index: int, value: float | None, measure: Primary) -> float:
    busy_s, load = ledger.busy_ns(index) / 1e9, ledger.open.report(index)
    rate = rate_that_counts(ledger.outcomes[index]["done"] / busy_s if busy_s else None, load) or 0.0
    if measure.series == JOB_SERIES and load is None and value:
        rate = max(rate, _in_flight(ledger, index) / value)
    return rate


def middle_of(runs: Sequence[HarnessLimits]) -> HarnessLimits:
    """Return what stands for several runs of a treatment: the middle one of those that tell, the upper of two."""
    near = sorted((one.near for one in runs if one.near is not None), key=lambda one: one.share)
    cpu = sorted((one.cpu for one in runs if one.cpu is not None), key=lambda one: one.share - one.idle)
    return HarnessLimits(near[len(near) // 2] if near else None, cpu[len(cpu) // 2] if cpu else None)


def ceiling_refusal(sides: Iterable[HarnessLimits]) -> Reason | None:
    """Return that a side's rate is within a fifth of the harness's own; None where none is, or nobody knows."""
    found = [one.near for one in sides if one.near is not None and one.near.share >= LIMIT]
    if not found:
        return None
    near = max(found, key=lambda one: one.share)
    return because(
        Code.LIMITED_BY_HARNESS,
        treatment=near.treatment,
        rate_per_s=near.rate_per_s,
        ceiling_per_s=near.ceiling.rate_per_s,
        ceiling=near.ceiling.ceiling,
        others=near.ceiling.busy_share,
    )


def cpu_refusal(sides: Iterable[HarnessLimits], ratio: float | None, margin: float) -> Reason | None:
    """Return that the harness took more of the host's CPU time than the sides differ by, and than was idle.

    `ratio` is b / a. A difference below the margin counts as the margin: so much *same* claims.
    """
    found = [one.cpu for one in sides if one.cpu is not None and one.cpu.share > one.cpu.idle]
    if ratio is None or not found:
        return None
    worst, difference = max(found, key=lambda one: one.share), abs(ratio - 1.0)
    if worst.share <= max(difference, margin):
        return None
    data = {"treatment": worst.treatment, "share": worst.share, "idle": worst.idle, "difference": difference}
    return because(Code.HARNESS_CPU, **data)


def _in_flight(ledger: Aggregator, index: int) -> int:
    """Return how many jobs of a treatment are in flight on all workers together."""
    each = ledger.treatments[index].concurrency
    workers = max((len(ledger.takers.get(trial, ())) for trial in ledger.plan.trials(index)), default=1)
    return max(1, workers) * (each if isinstance(each, int) and each > 0 else 1)


def limit_warnings(treatments: Sequence[TreatmentReport]) -> list[str]:
    """Return a warning on each treatment whose rate is within a fifth of the harness's own."""
    found = []
    for one in treatments:
        own = one.harness
        if own is None or own.ceiling_per_s is None or own.rate_per_s is None or (own.share or 0.0) < LIMIT:
            continue
        data = {"rate_per_s": own.rate_per_s, "ceiling_per_s": own.ceiling_per_s, "ceiling": own.ceiling}
        data["others"] = own.others_share
        found.append(because(Code.LIMITED_BY_HARNESS, treatment=one.title, **data).sentence())
    return found
