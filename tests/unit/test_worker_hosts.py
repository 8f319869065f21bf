"""Samples from a worker: checked before they are used."""

import math

import pytest

from bench_common.errors import ProtocolError
from bench_master.run.hosts import busy_percent, validate_columns


def test_columns_become_arrays_on_the_masters_clock():
    """Integers stay integers, and the worker's clock offset is subtracted from stamps."""
    columns = validate_columns({"time_ns": [1000, 2000], "load1": [0.5, math.nan]}, 300)
    assert columns["time_ns"].tolist() == [700, 1700]
    assert columns["load1"].dtype.kind == "f"


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"load1": [1]},
        {"time_ns": []},
        {"time_ns": "now"},
        {"time_ns": [1], "x": [1, 2]},
        {"time_ns": [1], "x": ["1"]},
        {"time_ns": [1], "x": [True]},
        {"time_ns": [1], "x": [math.inf]},
        {"time_ns": [1], "x": [1 << 63]},
        {"time_ns": [1], 7: [1]},
        {"time_ns": list(range(20_000))},
    ],
)
def test_invalid_samples_are_refused(columns):
    """Missing stamps, uneven or endless columns and non-numbers are protocol errors."""
    with pytest.raises(ProtocolError):
        validate_columns(columns, 0)


def test_busy_time_excludes_idle_and_iowait():
    """75 % idle and 5 % iowait leave 20 % busy; without idle it is unknown."""
    columns = validate_columns({"time_ns": [1], "cpu_idle_percent": [75.0], "cpu_iowait_percent": [5.0]}, 0)
    assert busy_percent(columns) == 20.0
    assert busy_percent(validate_columns({"time_ns": [1]}, 0)) is None
