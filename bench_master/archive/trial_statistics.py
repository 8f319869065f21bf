"""The durations of each operation in each trial, as the few numbers that the index keeps.

The rows of one trial are in memory at a time: an event ``trial-end`` follows all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bench_common.histogram import Histogram, nearest_rank
from bench_common.records import OPERATION_DONE, Outcome
from bench_common.stats.rows import Columns
from bench_master.analysis.aggregate import JOB, RESPONSE
from bench_master.analysis.percentiles import group_positions
from bench_master.archive.contents import ValueContents
from bench_master.archive.types import OPERATION, STATISTICS

MAX_VALUES: Final = 1_000_000
"""Of more durations in one trial a histogram is kept, which is within 0.2 per cent."""
_SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_Numbers = Mapping[str, float]


@dataclass(slots=True)
class _Durations:
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

    def numbers(self) -> _Numbers:
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
    """Takes the rows and events of a stats file in their order; `values` gives each operation's rows."""

    def __init__(self, header: Mapping[str, Any], *, timed: bool) -> None:
        self._treatments: Sequence[Mapping[str, Any]] = header.get("treatments", ())
        self._trials: Sequence[Sequence[Any]] = header.get("trials", ())
        self._timed = timed
        self._open: dict[int, dict[str, _Durations]] = {}
        self._ended: dict[int, dict[str, _Numbers]] = {}
        self.counts: dict[int, list[int]] = {}
        """Jobs done and failed, by trial."""

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
            if self._treatments[self._trials[trial][0]].get("open_load"):
                self._add(trial, RESPONSE, (own["duration_ns"] + own["wait_ns"])[done])

    def add_operations(self, rows: Columns) -> None:
        """Add a block of operations."""
        for trial, where in group_positions(rows["trial"]):
            if not 0 <= trial < len(self._trials):
                continue
            own = rows[where]
            own = own[own["ok"] == OPERATION_DONE]
            names = self._treatments[self._trials[trial][0]].get("operation_names", ())
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

    def values(self, treatment: int, trials: Sequence[int]) -> list[ValueContents]:
        """Return the operations of a treatment; `trials` are its measured ones, in order."""
        for trial in list(self._open):
            self._end(trial)
        names = dict.fromkeys(name for trial in trials for name in self._ended.get(trial, ()))
        return [self._value(name, trials) for name in names if self._trials and treatment >= 0]

    def _value(self, name: str, trials: Sequence[int]) -> ValueContents:
        rows = [self._ended.get(trial, {}).get(name) for trial in trials]
        values = {each: [None if row is None else row[each] for row in rows] for each in STATISTICS}
        return ValueContents(
            kind=OPERATION,
            name=name,
            unit="s",
            direction="lower",
            level=middle(values["p50"]),
            trials=values,
        )


def middle(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None if there is none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(np.median(known)) if known else None
