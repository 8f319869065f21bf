"""The samples report: every reading of hosts, engines and event loops as a time series, aligned with the trials."""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO

import numpy as np

from bench_common.stats.rows import SampleColumns
from bench_master.formatting import table_cell
from bench_master.reports import ReportSource

COLUMNS: Final = ("second", "worker", "source", "name", "unit", "value", "trial", "warmup", "treatment", "run_state")


class SamplesReport:
    """Writes a header line and a row for each value: when, whose, what, and the trial that was under way.

    The first row is the number of jobs that are missing; `run_state` says whether the readings are all of the run.

    `second` is the time since the run began, on the master's clock; an amount covers the interval before it. For an
    imported log it is the time since the log began, and empty if its interval is unknown.
    """

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the table, in the order of the file: a block's readings column by column."""
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        state, missing = source.document.run_state, source.document.totals.missing
        writer.writerow(("", "", "run", "jobs_missing", "1", "" if missing is None else missing, "", "", "", state))
        trial_at, workers = _trials_of(source), {-1: "master"}
        workers |= {number: str(body.worker_id) for number, body in source.run.sums.hosts.items()}
        for block in source.run.blocks({"samples"}):
            samples: SampleColumns = block.body
            worker = table_cell(workers.get(samples.worker, str(samples.worker)))
            times, origin = _times(samples, source.stats.began_ns), (worker, table_cell(samples.source))
            readings = [("" if at_s is None else f"{at_s:.6f}", *origin, trial_at(at_ns)) for at_s, at_ns in times]
            for column, values in samples.columns.items():
                if column == "time_ns":
                    continue
                name, unit = table_cell(column), table_cell(str(samples.units.get(column, "")))
                for (*head, trial), value in zip(readings, values.tolist(), strict=True):
                    empty = isinstance(value, float) and not math.isfinite(value)
                    writer.writerow((*head, name, unit, "" if empty else value, *trial, state))


def _times(samples: SampleColumns, began_ns: int) -> Iterator[tuple[float | None, int | None]]:
    """Yield when each reading was taken: in seconds since the run began, and on the clock of the file."""
    times, intervals = samples.columns.get("time_ns"), samples.columns.get("interval_ns")
    if times is not None:
        yield from (((at_ns - began_ns) / 1e9, at_ns) for at_ns in times.tolist())
    elif intervals is not None:
        yield from ((end / 1e9, None) for end in np.cumsum(intervals).tolist())
    else:
        yield from ((None, None) for _ in next(iter(samples.columns.values()), ()))


def _trials_of(source: ReportSource) -> Callable[[int | None], tuple[Any, Any, Any]]:
    """Return what gives the trial that was under way at a time, whether it is a warm-up, and its treatment."""
    header = source.stats.header
    titles = [table_cell(one.title) for one in header.treatments]
    trials = header.trials
    brackets = source.run.sums.trial_brackets
    spans = sorted(
        (begin, end, trial) for trial, (begin, end) in brackets.items() if begin is not None and end is not None
    )

    def trial_at(at_ns: int | None) -> tuple[Any, Any, Any]:
        place = -1 if at_ns is None else bisect_right(spans, at_ns, key=lambda span: span[0]) - 1
        if at_ns is None or place < 0 or at_ns > spans[place][1]:
            return "", "", ""
        trial = spans[place][2]
        entry = trials[trial] if trial < len(trials) else (-1, None, False)
        return trial, str(bool(entry[2])).lower(), titles[entry[0]] if 0 <= entry[0] < len(titles) else ""

    return trial_at
