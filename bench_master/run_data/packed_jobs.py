"""The containers of packings one by one: how long each took until it was up, and what it took while it was held.

Only the rows of treatments that pack are kept: as many as there were containers at the same time, in each packing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.cost import HELD_UNITS
from bench_common.records import OPERATION_DONE, Outcome
from bench_common.stats.block_types import definition_of
from bench_common.stats.reader import has_times

if TYPE_CHECKING:
    from bench_common.stats.block_types import StoredTreatment
    from bench_common.stats.reader import Block
    from bench_common.stats.rows import Columns
    from bench_master.run_data.measured import MeasuredRun

_HOLD: Final = "hold"
_RESTS: Final = "sleep"
Values = npt.NDArray[np.float64]


class PackedContainers(Struct):
    """The containers of one packing, in the order in which they were made."""

    start_s: Values
    """How long the operations before the hold took for each of them; without sleeps and the wait for its turn."""
    readings: dict[str, Values]
    """The measures of `HELD_UNITS` that were read."""
    up_ns: Values
    """When each was up, on the master's clock."""
    began_ns: float
    """When the first of them began; infinite without one."""


class _Rows(Struct):
    """What is known of the jobs of a trial, by ticket."""

    workers: dict[int, int] = field(default_factory=dict)
    begins: dict[int, int] = field(default_factory=dict)
    took: dict[int, int] = field(default_factory=dict)
    ups: dict[int, int] = field(default_factory=dict)
    readings: dict[str, dict[int, float]] = field(default_factory=dict)


class PackedJobs:
    """Takes the rows of a run that packs containers (`MeasuredRun.part`)."""

    def __init__(self, run: MeasuredRun) -> None:
        treatments = run.sums.treatments
        before = [_before_hold(one) for one in treatments] if has_times(run.header) else []
        self._before = {index: places for index, places in enumerate(before) if places}
        self._packs = bool(run.sums.packings)
        self._trials: dict[int, _Rows] = {}

    @property
    def kinds(self) -> frozenset[str]:
        """Nothing is read again of a run without packings."""
        return frozenset({"jobs", "operations", "metrics"} if self._packs and self._before else ())

    def add(self, block: Block) -> None:
        """Add a block of one of the kinds."""
        if block.kind == "jobs":
            self._add_jobs(block.body)
        elif block.kind == "operations":
            self._add_operations(block.body)
        else:
            for record in block.body:
                if record.name in HELD_UNITS and record.treatment in self._before and math.isfinite(record.value):
                    own = self._rows(record.trial).readings.setdefault(record.name, {})
                    own[record.ticket] = record.value

    def containers(self, trial: int, worker: int) -> PackedContainers:
        """Return those that a worker held in a trial, of jobs that were done."""
        rows = self._trials.get(trial, _Rows())
        own = [one for one in rows.begins if rows.workers.get(one) == worker]
        own.sort(key=rows.begins.__getitem__)
        return PackedContainers(
            np.array([rows.took[one] / 1e9 for one in own]),
            {
                name: np.array([value for ticket, value in values.items() if rows.workers.get(ticket) == worker])
                for name, values in rows.readings.items()
            },
            np.array(sorted(rows.ups[one] for one in own), dtype=float),
            min((rows.begins[one] for one in own), default=math.inf),
        )

    def _rows(self, trial: int) -> _Rows:
        return self._trials.setdefault(trial, _Rows())

    def _add_jobs(self, rows: Columns) -> None:
        for index in self._before:
            own = rows[(rows["treatment"] == index) & (rows["outcome"] == Outcome.DONE)]
            for trial, ticket, worker in _tuples(own, "trial", "ticket", "worker"):
                self._rows(trial).workers[ticket] = worker

    def _add_operations(self, rows: Columns) -> None:
        for index, places in self._before.items():
            mine = (rows["treatment"] == index) & (rows["ok"] == OPERATION_DONE) & np.isin(rows["operation"], places)
            for trial, ticket, start_ns, duration_ns in _tuples(
                rows[mine], "trial", "ticket", "start_ns", "duration_ns"
            ):
                found = self._rows(trial)
                found.begins[ticket] = min(start_ns, found.begins.get(ticket, start_ns))
                found.took[ticket] = found.took.get(ticket, 0) + duration_ns
                found.ups[ticket] = max(start_ns + duration_ns, found.ups.get(ticket, 0))


def _tuples(rows: Columns, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].tolist() for name in names), strict=True))


def _before_hold(treatment: StoredTreatment) -> list[int]:
    """Return the places of the operations that make a container before it is held; empty where none is held."""
    operations = definition_of(treatment).job.get("operations")
    kinds = [str(one.get("kind")) for one in operations] if operations else list(treatment.operation_names)
    if _HOLD not in kinds:
        return []
    return [place for place, kind in enumerate(kinds[: kinds.index(_HOLD)]) if kind != _RESTS]
