"""Samples as they come from a worker: checked, made arrays, moved to the master's clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from bench_common.errors import ProtocolError

Column = np.ndarray[Any, np.dtype[Any]]

MAX_COLUMNS: Final = 256
MAX_ROWS: Final = 10_000
TIME: Final = "time_ns"


def checked_columns(columns: Mapping[Any, Any], offset_ns: int) -> dict[str, Column]:
    """Return equally long arrays by name, `time_ns` less the worker's clock offset; raise `ProtocolError`."""
    if not 0 < len(columns) <= MAX_COLUMNS or TIME not in columns:
        raise ProtocolError(f"samples with {len(columns)} columns, or without {TIME}")
    lengths = set()
    checked: dict[str, Column] = {}
    for name, values in columns.items():
        if not isinstance(name, str) or not isinstance(values, list) or not 0 < len(values) <= MAX_ROWS:
            raise ProtocolError(f"sample column {str(name)[:40]!r} is no list of readings")
        # NaN is allowed: a share of nothing at all is no number, and says so.
        if not all(type(value) in (int, float) and (abs(value) < 1 << 62 or math.isnan(value)) for value in values):
            raise ProtocolError(f"sample column {name[:40]!r} holds what is no number")
        whole = all(type(value) is int for value in values)
        checked[name] = np.array(values, np.int64 if whole else np.float64)
        lengths.add(len(values))
    if len(lengths) != 1:
        raise ProtocolError("sample columns of different lengths")
    checked[TIME] = checked[TIME].astype(np.int64) - offset_ns
    return checked


def busy_percent(columns: Mapping[str, Column]) -> float | None:
    """Return the CPU's busy share of the last reading, in percent of all CPUs; None where it is not known."""
    idle, iowait = columns.get("cpu_idle_percent"), columns.get("cpu_iowait_percent")
    if idle is None:
        return None
    waiting = float(iowait[-1]) if iowait is not None else 0.0
    return min(100.0, max(0.0, 100.0 - float(idle[-1]) - waiting))
