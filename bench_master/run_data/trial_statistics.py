"""The durations of each operation in each trial, as the few numbers that the archive keeps.

The rows of one trial are in memory at a time: an event ``trial-end`` follows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.histogram import Histogram, nearest_rank
from bench_common.records import OPERATION_DONE, Outcome
from bench_common.stats.block_types import Header, StoredTreatment, StoredTrial
from bench_common.stats.reader import Block, has_times
from bench_common.stats.rows import Columns
from bench_master.run_data.aggregate import JOB, RESPONSE
from bench_master.run_data.percentiles import group_positions

MAX_VALUES: Final = 1_000_000
"""Of more durations in one trial a histogram is kept, which is within 0.2 per cent."""
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
Numbers: TypeAlias = Mapping[str, float]


class _Durations(Struct):
    arrays: list[npt.NDArray[np.int64]] = field(default_factory=list)
    count: int = 0
    histogram: Histogram | None = None

    def add(self, durations: npt.NDArray[np.int64]) -> None:
        self.arrays.append(durations)
        self.count += len(durations)
        if self.count > MAX_VALUES:
            self.histogram = self.histogram or Histogram()
            for each in self.arrays:
                self.histogram.record(each)
            self.arrays.clear()

    def numbers(self) -> Numbers:
        """Return the statistics in seconds."""
        if self.histogram is not None:
            found = {name: self.histogram.quantile(share) or 0 for name, share in _SHARES.items()}
            exact = {"mean": self.histogram.mean or 0.0, "max": self.histogram.max or 0}
            return {name: float(value) / 1e9 for name, value in (found | exact).items()}
        values = np.sort(np.concatenate(self.arrays))
        ranks = {name: values[nearest_rank(len(values), share) - 1] for name, share in _SHARES.items()}
        return {
            name: float(value) / 1e9 for name, value in (ranks | {"mean": values.mean(), "max": values[-1]}).items()
        }


class TrialStatistics:
    """Takes the rows and events of a stats file in their order; `operations` gives each operation's numbers."""

    kinds = frozenset({"jobs", "operations", "event"})

    def __init__(self, header: Header) -> None:
        self._treatments: Sequence[StoredTreatment] = header.treatments
        self._trials: Sequence[StoredTrial] = header.trials
        self._timed = has_times(header)
        self._open: dict[int, dict[str, _Durations]] = {}
        self._ended: dict[int, dict[str, Numbers]] = {}
        self.counts: dict[int, list[int]] = {}
        """Jobs done and failed, by trial."""

    def add(self, block: Block) -> None:
        """Add a block of one of the kinds."""
        if block.kind == "jobs":
            self.add_jobs(block.body)
        elif block.kind == "operations":
            self.add_operations(block.body)
        else:
            self.add_event(block.body)

    def add_jobs(self, rows: Columns) -> None:
        """Add a block of jobs."""
        for trial, where in group_positions(rows["trial"]):
            if not 0 <= trial < len(self._trials):
                continue
            own = rows[where]
            outcomes = own["outcome"]
            done = outcomes == Outcome.DONE
            counts = self.counts.setdefault(trial, [0, 0])
            counts[0] += int(done.sum())
            counts[1] += int(((outcomes == Outcome.FAILED) | (outcomes == Outcome.LOST)).sum())
            if not done.any():
                continue
            self._add(trial, JOB, own["duration_ns"][done])
            if self._treatments[self._trials[trial][0]].open_load:
                self._add(trial, RESPONSE, (own["duration_ns"] + own["wait_ns"])[done])

    def add_operations(self, rows: Columns) -> None:
        """Add a block of operations."""
        for trial, where in group_positions(rows["trial"]):
            if not 0 <= trial < len(self._trials):
                continue
            own = rows[where]
            own = own[own["ok"] == OPERATION_DONE]
            names = self._treatments[self._trials[trial][0]].operation_names
            for operation, places in group_positions(own["operation"]):
                if operation < len(names):
                    self._add(trial, names[operation], own["duration_ns"][places])

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event: the end of a trial reduces its durations."""
        trial = event.get("trial")
        if event.get("kind") == "trial-end" and isinstance(trial, int):
            self._end(trial)

    def _add(self, trial: int, name: str, durations: npt.NDArray[np.int64]) -> None:
        if self._timed and len(durations) and not self._trials[trial][2]:
            self._open.setdefault(trial, {}).setdefault(name, _Durations()).add(durations)

    def _end(self, trial: int) -> None:
        series = self._open.pop(trial, {})
        self._ended.setdefault(trial, {}).update({name: one.numbers() for name, one in series.items()})

    def operations(self, trials: Sequence[int]) -> dict[str, list[Numbers | None]]:
        """Return the numbers of each operation in some trials, in their order; None where a trial has none."""
        for trial in list(self._open):
            self._end(trial)
        names = dict.fromkeys(name for trial in trials for name in self._ended.get(trial, ()))
        return {name: [self._ended.get(trial, {}).get(name) for trial in trials] for name in names}
