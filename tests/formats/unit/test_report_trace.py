"""The trace and the time series: every operation once, rows that do not overlap, counters, trials."""

import csv
import io
import json
import random
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from builders import MS, S, StatsBuilder, footer, header, host, lifecycle_run, treatment_wire, write_report
from hypothesis import given
from hypothesis import strategies as st

from bench_common.records import ErrorRecord, Outcome
from bench_common.stats.reader import StatsFile
from bench_features.formats.trace import MASTER, UNKNOWN_WORKER, TrackAllocator, trace_events
from bench_master.reports import ReportSource


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def trace_of(path):
    out = io.StringIO()
    write_report(path, out, "trace")
    return json.loads(out.getvalue())


def slices(events, category):
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


def test_a_trace_has_a_slice_for_each_job_and_operation(path):
    """Names, times in microseconds since the run began, and in the arguments job, treatment and outcome."""
    trace = trace_of(lifecycle_run(path))
    events = trace["traceEvents"]
    jobs, operations = slices(events, "job"), slices(events, "operation")
    assert (len(jobs), len(operations), len(slices(events, "failed operation"))) == (8, 8 * 3 - 1, 1)
    first = operations[0]
    assert (first["name"], first["ts"], first["dur"]) == ("start", 1e6, 50e3)
    assert first["args"] == {
        "job": 0,
        "trial": 0,
        "treatment": "environment=bare-metal engine=docker",
        "outcome": "done",
    }
    failed = next(event for event in jobs if event["args"]["outcome"] == "failed")
    assert failed["args"]["error"] == "exec: exit-code: exit code 3: no such table"
    assert trace["displayTimeUnit"] == "ms"


def test_workers_are_processes_and_trials_the_masters_slices(path):
    """Processes and rows have names; a trial spans from its beginning to its end."""
    events = trace_of(lifecycle_run(path))["traceEvents"]
    about = [event for event in events if event["ph"] == "M"]
    names = {(event["pid"], event["name"]): event["args"]["name"] for event in about if "name" in event["args"]}
    assert names[MASTER, "process_name"] == "master"
    assert names[MASTER, "thread_name"] == "trials"
    assert names[MASTER + 1, "process_name"] == "worker w0 on blade1"
    assert names[MASTER + 1, "thread_name"] == "jobs, row 1"
    order = {(event["pid"], event["tid"]): event["args"]["sort_index"] for event in about if "sort" in event["name"]}
    assert order.keys() == {(event["pid"], event["tid"]) for event in about}
    trials = slices(events, "trial")
    assert [event["args"]["trial"] for event in trials] == list(range(8))
    assert [event["args"]["warmup"] for event in trials] == [True, True] + [False] * 6
    assert {event["pid"] for event in trials} == {MASTER}


def test_every_event_is_valid_for_viewers(path):
    """Each has the fields that its phase requires, with numbers where they belong."""
    needed = {"X": {"name", "ts", "dur", "pid", "tid"}, "M": {"name", "pid", "args"}, "C": {"name", "ts", "args"}}
    for event in trace_of(lifecycle_run(path))["traceEvents"]:
        assert needed.get(event["ph"], {"name", "ts"}) <= event.keys()
        if event["ph"] == "C":
            assert all(type(value) in (int, float) for value in event["args"].values())


def test_samples_of_engines_are_counters(path):
    """Memory and CPU are curves of their worker; a missing reading is no point."""
    builder = StatsBuilder(path, header([treatment_wire(0, {"engine": "docker"})], [(0, 0, False)]))
    columns = {
        "time_ns": np.array([1001, 1002]) * S,
        "interval_ns": np.array([S, S]),
        "rss_bytes": np.array([100, 200]),
        "pss_bytes": np.array([50.0, np.nan]),
        "cpu_ns": np.array([0, S // 4]),
    }
    builder.writer.samples(2, "engine:docker", columns, {})
    counters = [event for event in trace_of(builder.close())["traceEvents"] if event["ph"] == "C"]
    found = {(event["name"], event["ts"]): event["args"] for event in counters}
    assert {event["pid"] for event in counters} == {MASTER + 3}
    assert found["docker rss_bytes", 2e6] == {"bytes": 200}
    assert ("docker pss_bytes", 2e6) not in found
    assert found["docker CPU (% of one)", 2e6] == {"used": 25.0}


def test_jobs_that_never_ran_have_no_slice(path):
    """A lost job is in no row; one that was aborted while it ran is."""
    builder = StatsBuilder(path, header([treatment_wire(0, {"engine": "docker"}, ("run",))], [(0, 0, False)]))
    builder.add("host", host(0))
    builder.add_jobs(
        {"ticket": 1, "outcome": Outcome.LOST, "start_ns": 1001 * S, "end_ns": 1001 * S},
        {"ticket": 2, "outcome": Outcome.ABORTED, "start_ns": 1001 * S, "end_ns": 1002 * S},
    )
    builder.writer.errors([ErrorRecord(2, 0, 0, "worker", "aborted", "called off")])
    (job,) = slices(trace_of(builder.close())["traceEvents"], "job")
    assert (job["name"], job["args"]["outcome"]) == ("job 2", "aborted")


def test_operations_far_from_their_job_are_not_lost(path):
    """Beyond the window they have a process of their own, since their job is unknown."""
    builder = StatsBuilder(path, header([treatment_wire(0, {"engine": "docker"}, ("run",))], [(0, 0, False)]))
    builder.add_operations({"ticket": 99, "start_ns": 1001 * S, "duration_ns": MS})
    for ticket in range(6):
        builder.add_jobs({"ticket": ticket, "start_ns": 1000 * S, "end_ns": 1001 * S}).flush()
    events = list(trace_events(ReportSource(StatsFile(builder.close())), window_rows=1))
    (operation,) = slices(events, "operation")
    assert (operation["pid"], operation["args"]["job"]) == (UNKNOWN_WORKER, 99)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda ts, dur: (round(ts * 1000), round(ts * 1000) + round(dur * 1000)), id="perfetto"),
        pytest.param(lambda ts, dur: (ts, ts + dur), id="speedscope"),
    ],
)
def test_slices_nest_as_viewers_add_them_up(path, read):
    """In each row a slice ends before its parent, in nanoseconds and in floating-point numbers."""
    chance = random.Random(7)
    head = header([treatment_wire(0, {"engine": "docker"}, ("a", "b", "c", "d"))], [(0, 0, False)])
    builder = StatsBuilder(path, head)
    jobs, operations = [], []
    for ticket in range(300):
        begun_ns = instant_ns = 5001 * S + 1237 * ticket
        for position in range(4):
            length_ns = chance.randrange(5000)
            place = {"ticket": ticket, "operation": position}
            operations.append({**place, "start_ns": instant_ns, "duration_ns": length_ns})
            instant_ns += length_ns
        jobs.append({"ticket": ticket, "start_ns": begun_ns, "end_ns": instant_ns})
    builder.add_operations(*operations)
    builder.add_jobs(*jobs)
    events = trace_of(builder.close())["traceEvents"]
    rows = defaultdict(list)
    for event in events:
        assert event["pid"] > 0
        assert event.get("tid") != 0
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(read(event["ts"], event["dur"]))
    assert sum(map(len, rows.values())) == 300 * 5
    assert len(rows) > 2
    for row in rows.values():
        around = []
        for start, end in sorted(row, key=lambda slice_: slice_[0]):
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40)


@given(spans)
def test_rows_never_overlap_whatever_the_order(found):
    """Two jobs of one row share no instant, in any order of arrival."""
    lanes, rows = TrackAllocator(), defaultdict(list)
    for start, length in found:
        lane, _ = lanes.place(start, start + length)
        rows[lane].append((start, start + length))
    for row in rows.values():
        for (_, end), (start, _) in pairwise(sorted(row)):
            assert end <= start


@given(spans.filter(bool))
def test_there_are_no_more_rows_than_jobs_at_once(found):
    """Sorted by end, jobs need at most as many rows as ran at the same time."""
    found = sorted(((start, start + length + 1) for start, length in found), key=lambda span: span[1])
    lanes = TrackAllocator()
    fresh = sum(lanes.place(*span)[1] for span in found)
    at_once = max(sum(start <= instant < end for start, end in found) for instant in range(80))
    assert fresh == at_once


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
