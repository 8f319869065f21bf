"""The time series: readings by second, with the trial that was under way."""

import csv
import io

import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, lifecycle_run, treatment_wire, write_report


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def test_the_time_series_names_the_trial_of_each_reading(path):
    """Second, worker, source, name, unit and value; outside of trials there is none, and NaN is empty."""
    lifecycle_run(path)
    out = io.StringIO()
    write_report(path, out, "samples")
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    busy = [row for row in rows if row["name"] == "busy_share"]
    assert [row["second"] for row in busy] == ["1.000000", "2.000000", "3.000000", "4.000000"]
    assert (busy[0]["worker"], busy[0]["source"], busy[0]["unit"]) == ("master", "loop", "share")
    assert (busy[0]["trial"], busy[0]["warmup"]) == ("0", "true")
    assert busy[0]["treatment"] == "environment=bare-metal engine=docker"
    assert (busy[1]["trial"], busy[1]["treatment"]) == ("", "")


def test_a_missing_reading_is_an_empty_cell(path):
    """It has no value, rather than a word that programs cannot read."""
    builder = StatsBuilder(path, header([treatment_wire(0, {"engine": "docker"})], [(0, 0, False)]))
    builder.writer.samples(0, "host", {"time_ns": np.array([S]), "x": np.array([np.nan])}, {})
    out = io.StringIO()
    write_report(builder.close(footer()), out, "samples")
    _, row = csv.DictReader(io.StringIO(out.getvalue()))
    assert (row["name"], row["value"]) == ("x", "")
