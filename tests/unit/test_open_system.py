"""The report on an open system: offered, achieved, dropped, response, Little's law."""

import numpy as np
import pytest
from builders import MS, S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import ARRIVAL, DROPPED, ErrorRecord, Outcome
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json

BEGAN = 1000 * S
LOAD = {"rate_per_s": 10.0, "process": "constant", "queue_timeout_s": 0.5}


def run(path, *, service_ms=20, wait_ms=30, counted=0.5, dropped=0, unfinished=0):
    """Write a trial of a hundred jobs, one every 100 ms, and readings of `counted` jobs in the system."""
    wire = treatment_wire(0, {"engine": "native"}) | {"open_load": LOAD}
    builder = StatsBuilder(path, header([wire], [(0, 0, False)])).add("host", host())
    builder.add("event", {"at_ns": BEGAN, "kind": "trial-begin", "trial": 0, "workers": [0]})
    jobs = []
    for job in range(100):
        arrived = BEGAN + S // 10 + job * S // 10
        row = {"ticket": job, "wait_ns": wait_ms * MS, "start_ns": arrived + wait_ms * MS}
        row["end_ns"] = row["start_ns"] + service_ms * MS
        if job < dropped:
            row |= {"outcome": Outcome.FAILED, "end_ns": row["start_ns"]}
        elif job < dropped + unfinished:
            row |= {"outcome": Outcome.LOST, "wait_ns": 0}
        jobs.append(row)
    builder.add_jobs(*jobs)
    builder.writer.errors([ErrorRecord(job, 0, 0, ARRIVAL, DROPPED, "no slot was free") for job in range(dropped)])
    times = BEGAN + S // 10 + (1 + np.arange(19)) * S // 2
    parts = {"running_mean": np.full(19, counted / 2), "waiting_mean": np.full(19, counted / 2)}
    builder.writer.samples(0, "loop", {"time_ns": times, **parts}, {"time_ns": "ns"})
    builder.add("event", {"at_ns": BEGAN + 11 * S, "kind": "trial-end", "trial": 0})
    counts = {"done": 100 - dropped - unfinished, "failed": dropped}
    report = as_json(build_document(StatsFile(builder.close(footer(counts=counts)))))
    return report["treatments"][0], report


def test_service_and_response_time_are_separate(tmp_path):
    """Response time starts at the arrival; service time at the start."""
    entry, _ = run(tmp_path / "a")
    assert list(entry["operations"])[-2:] == ["job", "response"]
    assert entry["operations"]["job"]["p99_s"] == pytest.approx(0.02)
    assert entry["operations"]["response"]["p99_s"] == pytest.approx(0.05)
    assert entry["operations"]["response"]["percentiles_exact"]


def test_offered_and_achieved_are_counted_by_arrivals_and_ends(tmp_path):
    """A hundred jobs in ten seconds; a dropped job is offered and not achieved."""
    load = run(tmp_path / "a", dropped=10)[0]["open_load"]
    assert (load["offered"], load["dropped"]) == (100, 10)
    assert load["offered_per_s"] == pytest.approx(10.0)
    assert load["achieved_per_s"] == pytest.approx(9.0, rel=0.01)


def test_dropped_jobs_give_a_warning(tmp_path):
    """It says what to do."""
    warnings = run(tmp_path / "a", dropped=10)[1]["warnings"]
    assert any("10 of 100 jobs were dropped" in text and "concurrency" in text for text in warnings)


def test_littles_law_is_checked_with_the_workers_counts(tmp_path):
    """Ten jobs a second of 80 ms each are 0.8 jobs in the system, counted or not."""
    entry, report = run(tmp_path / "a", service_ms=50, counted=0.8)
    assert entry["open_load"]["littles_law"]["expected"] == pytest.approx(0.8, rel=0.02)
    assert entry["open_load"]["littles_law"]["in_system"] == pytest.approx(0.8)
    assert not report["warnings"]
    entry, report = run(tmp_path / "b", service_ms=50, counted=1.6)
    assert entry["open_load"]["littles_law"]["difference"] == pytest.approx(0.5, abs=0.02)
    assert any("Little's law does not hold" in text for text in report["warnings"])


def test_littles_law_is_not_checked_if_jobs_are_missing(tmp_path):
    """It is unknown how long a lost job was in the system; it still counts as offered."""
    load = run(tmp_path / "a", unfinished=3)[0]["open_load"]
    assert load["littles_law"] is None
    assert load["offered"] == 100
