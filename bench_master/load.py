"""What the hosts and the harness's own processes were doing while the run went on, summed up from their samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench_common.columns import Column
from bench_common.histogram import Histogram
from bench_common.stats.rows import Samples
from bench_master.analysis.host_samples import Extent

_NOT_SUMMED: Final = frozenset({"time_ns", "interval_ns"})
_RATED: Final = ("disk_", "net_")
"""Columns that are amounts since the previous sample; they are reported per second."""


@dataclass(slots=True)
class Load:
    """The samples of one process's host (``host``) and of its own event loop (``loop``)."""

    columns: dict[str, Extent] = field(default_factory=dict)
    busy: Extent = field(default_factory=lambda: Extent("share"))
    lag: Histogram = field(default_factory=Histogram)

    def add(self, samples: Samples) -> None:
        """Take in one block; sources that are not known are left alone."""
        if samples.source == "host":
            for name, (values, unit) in _per_second(samples.columns, samples.units).items():
                self.columns.setdefault(name, Extent(unit)).add(values)
        elif samples.source == "loop":
            if "busy_share" in samples.columns:
                self.busy.add(samples.columns["busy_share"])
            if "lag_max_ns" in samples.columns:
                self.lag.record(samples.columns["lag_max_ns"])

    def samples(self) -> dict[str, Any]:
        """Return mean, min and max of each column of the host's samples."""
        return {name: extent.document() for name, extent in self.columns.items() if extent.n}

    def loop(self) -> dict[str, Any] | None:
        """Return how busy the event loop was and how late it came; None where nothing was measured.

        Each sample is the longest lag since the one before; `lag_p99_s` is within the histogram's error of the 99th
        percentile of those.
        """
        if not self.lag.n and not self.busy.n:
            return None
        p99 = self.lag.quantile(0.99)
        return {
            "n": max(self.lag.n, self.busy.n),
            "busy_mean": self.busy.total / self.busy.n if self.busy.n else None,
            "busy_max": self.busy.high if self.busy.n else None,
            "lag_p99_s": None if p99 is None else p99 / 1e9,
            "lag_max_s": None if self.lag.max is None else self.lag.max / 1e9,
        }


def _per_second(columns: Mapping[str, Column], units: Mapping[str, str]) -> dict[str, tuple[Column, str]]:
    """Return the columns to sum up, amounts turned into rates by the real length of each interval."""
    interval = columns.get("interval_ns")
    found: dict[str, tuple[Column, str]] = {}
    for name, values in columns.items():
        unit = units.get(name, "")
        if interval is not None and name.startswith(_RATED):
            seconds = np.where(interval > 0, interval, np.nan) / 1e9
            found[f"{name}_per_s"] = (values / seconds, f"{unit}/s")
        elif name not in _NOT_SUMMED:
            found[name] = (values, unit)
    return found
