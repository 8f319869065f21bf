"""The rate histogram: how many jobs ended in each second of the run, by outcome."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Final, TextIO

import numpy as np

from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile

SECOND_NS: Final = 1_000_000_000
LONGEST_S: Final = 31 * 86_400
"""Seconds without a job are written too, but no file may ask for more lines than this."""


def write_rate_histogram(stats: StatsFile, out: TextIO, *, delimiter: str = "\t") -> int:
    """Write a header and a line for each second since the run began, from the first with a job to the last.

    Warm-up is counted too: this is what the machine did. Jobs without an end of their own (lost before they were
    handed out) are not in it, nor are those that ended before the run began or over a month after it: their number
    is returned.
    """
    began_ns = int(stats.header.get("clock", {}).get("monotonic_ns", 0))
    seconds: dict[Outcome, Counter[int]] = {outcome: Counter() for outcome in Outcome}
    outside = 0
    for rows in stats.iter_jobs():
        at = (rows["end_ns"] - began_ns) // SECOND_NS
        inside = (at >= 0) & (at < LONGEST_S)
        outside += int((~inside).sum())
        for outcome, counter in seconds.items():
            distinct, counts = np.unique(at[inside & (rows["outcome"] == outcome)], return_counts=True)
            counter.update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["second", *(outcome.name.lower() for outcome in Outcome)])
    every = sorted({second for counter in seconds.values() for second in counter})
    for second in range(every[0], every[-1] + 1) if every else ():
        writer.writerow([second, *(seconds[outcome][second] for outcome in Outcome)])
    return outside
