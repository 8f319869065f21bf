"""The samples report: every reading of hosts, engines and event loops as a time series, aligned with the trials."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TextIO

import numpy as np

from bench_common.stats.block_types import StoredTreatment, StoredTrial
from bench_common.stats.rows import SampleColumns
from bench_master.formatting import table_cell
from bench_master.reports import ReportSource

COLUMNS: Final = ("second", "worker", "source", "name", "unit", "value", "trial", "warmup", "treatment", "run_state")

_READING_COLUMNS: Final = frozenset({"time_ns"})


class SamplesReport:
    """Writes a header line and a row for each value: when, whose, what, and the trial that was under way.

    The first row is the number of jobs that are missing; `run_state` says whether the readings are all of the run.

    `second` is the time since the run began, on the master's clock; an amount covers the interval before it. For an
    imported log it is the time since the log began, and empty if its interval is unknown.
    """

    name: ClassVar[str] = "samples"
    needs_times: ClassVar[bool] = False

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the table, in the order of the file: a block's readings column by column."""
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        state, missing = source.document.run_state, source.document.totals.missing
        writer.writerow(("", "", "run", "jobs_missing", "1", "" if missing is None else missing, "", "", "", state))
        series = _SampleRows(source)
        for block in source.run.blocks({"samples"}):
            writer.writerows((*row, state) for row in series.rows(block.body))


class _SampleRows:
    """Knows the trials and the workers of a run."""

    def __init__(self, source: ReportSource) -> None:
        header = source.stats.header
        self._began_ns = source.stats.began_ns
        treatments: Sequence[StoredTreatment] = header.treatments
        self._titles = [table_cell(one.title) for one in treatments]
        self._trials: Sequence[StoredTrial] = header.trials
        sums = source.run.sums
        self._workers: dict[int, Any] = {
            -1: "master",
            **{number: body.worker_id for number, body in sums.hosts.items()},
        }
        spans = sorted(
            (begin, end, trial)
            for trial, (begin, end) in sums.trial_brackets.items()
            if begin is not None and end is not None
        )
        self._begins = np.array([span[0] for span in spans], np.int64)
        self._spans = spans

    def rows(self, samples: SampleColumns) -> list[tuple[Any, ...]]:
        """Return the rows of one block."""
        times = samples.columns.get("time_ns")
        if times is None:
            return self._imported_rows(samples)
        places = np.searchsorted(self._begins, times, side="right") - 1
        heads, tails = [], []
        worker, origin = (
            table_cell(str(self._workers.get(samples.worker, samples.worker))),
            table_cell(samples.source),
        )
        for instant_ns, place in zip(times.tolist(), places.tolist(), strict=True):
            heads.append((f"{(instant_ns - self._began_ns) / 1e9:.6f}", worker, origin))
            tails.append(self._trial(place, instant_ns))
        return _column_by_column(samples, heads, tails)

    def _imported_rows(self, samples: SampleColumns) -> list[tuple[Any, ...]]:
        worker, origin = (
            table_cell(str(self._workers.get(samples.worker, samples.worker))),
            table_cell(samples.source),
        )
        readings = len(next(iter(samples.columns.values()), ()))
        intervals = samples.columns.get("interval_ns")
        seconds = [""] * readings if intervals is None else [f"{end / 1e9:.6f}" for end in np.cumsum(intervals)]
        heads = [(second, worker, origin) for second in seconds]
        return _column_by_column(samples, heads, [("", "", "")] * readings)

    def _trial(self, place: int, instant_ns: int) -> tuple[Any, ...]:
        if place < 0 or instant_ns > self._spans[place][1]:
            return ("", "", "")
        trial = self._spans[place][2]
        entry = self._trials[trial] if trial < len(self._trials) else (-1, None, False)
        known = 0 <= entry[0] < len(self._titles)
        return (trial, str(bool(entry[2])).lower(), self._titles[entry[0]] if known else "")


def _column_by_column(
    samples: SampleColumns, heads: Sequence[tuple[Any, ...]], tails: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Return a row for each value of each column, with what stands before and behind those of its reading."""
    found = []
    for column, values in samples.columns.items():
        if column in _READING_COLUMNS:
            continue
        name, unit = table_cell(column), table_cell(str(samples.units.get(column, "")))
        for head, value, tail in zip(heads, values.tolist(), tails, strict=True):
            empty = isinstance(value, float) and not math.isfinite(value)
            found.append((*head, name, unit, "" if empty else value, *tail))
    return found
