"""What one more container costs a host by the host's own totals, from packings that differ in their number at most.

Memory: how much more was in use during the hold than before the first container, by container, a value a packing. CPU
has no such time before, since the packing before it was just removed: it is the slope of a line through the packings
of several counts, by least squares, with an interval by Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from bench_master.formatting import plural
from bench_master.run_data.treatment_types import HostSlopeReport, PackingTrialReport, TreatmentReport
from bench_master.verdicts.spread import ALPHA, spread_of
from bench_master.verdicts.student import t_quantile

COUNT_LABEL: Final = "concurrency"
"""Treatments that differ in this label alone are packings of one kind."""
_FEWEST: Final = 3
"""Packings that a line is fitted to: two are always on one."""


_FULL_PERCENT: Final = 98.0
"""Of all CPUs: with less idle time a host has none (`bench_master.run_data.validity`)."""


def add_host_slopes(treatments: Sequence[TreatmentReport], threads: Mapping[str | int, int]) -> list[TreatmentReport]:
    """Return treatments whose packings know what a container costs by the host's totals.

    `threads` has the number of CPUs of the host of each worker.
    """
    kinds: dict[tuple[tuple[str, str], ...], list[PackingTrialReport]] = {}
    for entry in treatments:
        if entry.packing is not None:
            measured = [trial for trial in entry.packing.trials if not trial.warmup and trial.containers]
            kinds.setdefault(_kind(entry), []).extend(measured)
    return [
        entry
        if entry.packing is None
        else replace(entry, packing=replace(entry.packing, host=host_slopes(kinds[_kind(entry)], threads)))
        for entry in treatments
    ]


def _kind(entry: TreatmentReport) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(value)) for name, value in sorted(entry.treatment.items()) if name != COUNT_LABEL)


def host_slopes(
    packings: Sequence[PackingTrialReport], threads: Mapping[str | int, int]
) -> dict[str, HostSlopeReport]:
    """Return ``memory_bytes`` and ``cpu_percent`` (of one CPU) of packings of one kind, of what was sampled."""
    found = {}
    if memory := _memory(packings):
        found["memory_bytes"] = memory
    if cpu := _cpu(packings, threads):
        found["cpu_percent"] = cpu
    return found


def _memory(packings: Iterable[PackingTrialReport]) -> HostSlopeReport | None:
    known = [one for one in packings if one.memory_per_container_bytes is not None]
    spread = spread_of([one.memory_per_container_bytes or 0.0 for one in known], log=False)
    if spread is None:
        return None
    limits = [limit for one in known if (limit := one.memory_limit_per_container_bytes) is not None]
    return HostSlopeReport(
        unit="B",
        n=len(known),
        middle=spread.middle,
        low=spread.low,
        high=spread.high,
        is_interval=spread.is_interval,
        # Where half of the packings say no more, there is no more to say.
        limit=max(limits) if limits and 2 * len(limits) >= len(known) else None,
    )


def _cpu(packings: Iterable[PackingTrialReport], threads: Mapping[str | int, int]) -> HostSlopeReport | None:
    known = [one for one in packings if "cpu_busy_percent" in one.steady and one.worker in threads]
    if not known:
        return None
    # A host without idle CPU has no more to give, however many containers there are.
    free = [one for one in known if one.steady["cpu_busy_percent"].mean < _FULL_PERCENT]
    if len(free) < len(known):
        why = f"the host had no idle CPU in {len(known) - len(free)} of {plural(len(known), 'packing')}"
        return HostSlopeReport(unit="%", n=len(known), reason=why)
    points = [(one.containers, one.steady["cpu_busy_percent"].mean * threads[one.worker]) for one in known]
    counts, busy = np.array(points, dtype=float).T
    if len(points) < _FEWEST or len(set(counts)) == 1:
        return HostSlopeReport(unit="%", n=len(points), reason=_too_few(counts.tolist()))
    design = np.column_stack([np.ones_like(counts), counts])
    weights = np.linalg.lstsq(design, busy, rcond=None)[0]
    left = busy - design @ weights
    degrees = len(points) - 2
    spare = float(left @ left) / degrees / float(((counts - counts.mean()) ** 2).sum())
    reach = t_quantile(1.0 - ALPHA / 2.0, degrees) * math.sqrt(spare)
    each = float(weights[1])
    return HostSlopeReport(
        unit="%", n=len(points), middle=each, low=each - reach, high=each + reach, is_interval=True
    )


def _too_few(counts: Sequence[Any]) -> str:
    held = " and ".join(f"{count:.0f}" for count in sorted(set(counts)))
    return (
        f"its slope takes {_FEWEST} packings of two numbers of containers, and there "
        f"{'is' if len(counts) == 1 else 'are'} {plural(len(counts), 'packing')} of {held}"
    )
