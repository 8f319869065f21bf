"""A worker whose monotonic clock is another one (a time namespace): what it stamps is stored on the master's."""

import subprocess
import sys

import pytest
from busybox_image import skip_or_fail
from deadlines import END_S, START_S
from places import ROOT
from workspace import PROGRAMS, free_ports

pytestmark = pytest.mark.alone

LIGHT = ROOT / "benchmarks"
STOPPED = f"""
import functools, sys, time
sys.path.insert(0, {str(LIGHT)!r})
real, stops = time.monotonic_ns, []
# Ten seconds ahead; at the begin of the second trial the machine stands still for two, and its clock with it.
time.monotonic_ns = lambda: real() + 10**10 - 2 * 10**9 * len(stops)
import bench_common.clock
bench_common.clock.clock_id = lambda: "of a virtual machine"
import bench_worker.operation_runner as runner
import light_workers
# A no-op run skips the naps between its jobs, and would keep two processors busy for all of its trials.
runner._skip_sleep = functools.partial(runner._sleep, 0.02)
take = light_workers.JobExecutor.take
def taken(crew, treatment, trial, *orders, **sizes):
    if trial == 1 and not stops:
        time.sleep(2)
        stops.append(trial)
    return take(crew, treatment, trial, *orders, **sizes)
light_workers.JobExecutor.take = taken
sys.exit(light_workers.main())
"""
"""A worker of a machine that was stopped for a moment, and does not know."""
AHEAD_S = 5000
PATIENT = ("--worker-timeout", f"{START_S:g}s")
"""For workers that are started by hand: clocks are compared before a run begins."""
SHIFTED = ("unshare", "--time", "--monotonic", str(AHEAD_S), "--fork", "--kill-child")


def test_a_clock_that_is_ahead_is_brought_back(workspace, monkeypatch):
    """The jobs lie within the master's own brackets, and each trial has the clock's offset with a bound."""
    probe = subprocess.run([*SHIFTED, "true"], capture_output=True, timeout=END_S, check=False)
    if probe.returncode:
        skip_or_fail(f"time namespaces cannot be used here: {probe.stderr.decode()}")
    monkeypatch.setitem(PROGRAMS, "bench-worker", (*SHIFTED, *PROGRAMS["bench-worker"]))
    control, results, work = free_ports(3)
    ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    # `unshare` passes no SIGTERM on: the worker ends by itself, with the run.
    workspace.start("bench-worker", "--zmq-control-port", control, "--allow-native", "--once", "-c", 2, "ahead")
    run = workspace.run(workspace.scenario(repeats=3, concurrency=2, iterations=4), *ports, *PATIENT, workers=0)
    assert run.outcomes() == {"done": 24}
    events = [event for event in run.blocks("event") if event["kind"] in ("trial-begin", "trial-end")]
    assert len(events) == 6
    for event in events:
        ((worker, offset_ns, uncertainty_ns, age_ns),) = event["clocks"]
        assert (worker, age_ns >= 0) == (0, True)
        # On a machine that wakes both sides late the bound is as wide as that.
        assert 0 < uncertainty_ns < AHEAD_S * 10**9 / 1000
        assert abs(offset_ns - AHEAD_S * 10**9) <= uncertainty_ns
    brackets = {}
    for event in events:
        brackets.setdefault(event["trial"], []).append(event["at_ns"])
    slack_ns = max(event["clocks"][0][2] for event in events)
    for rows in run.blocks("jobs"):
        for row in rows:
            begin, end = brackets[int(row["trial"])]
            assert begin - slack_ns <= row["start_ns"] <= row["end_ns"] <= end + slack_ns
    (host,) = run.document["hosts"]
    assert host["clock_checks"]["uncertainty_max_s"] == slack_ns / 1e9
    assert host["clock_checks"]["disagreements"] == []
    assert "lie outside" not in run.details


def test_a_machine_that_lost_time_is_reported(workspace, monkeypatch):
    """A host whose machine stood still for two seconds counts less than the master; the trial in question is named.

    The next comparison of the clocks shows it, so it is dated as exactly as they are compared. One that was under way
    meanwhile shows half of it, and the next one the rest.
    """
    monkeypatch.setitem(PROGRAMS, "stopped-machine", (sys.executable, "-c", STOPPED))
    control, results, work = free_ports(3)
    ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    workspace.start("stopped-machine", "--control-port", control, "--name", "vm")
    job = {"operations": [{"sleep": "1ns"}], "container": {"command": ["true"]}}
    scenario = workspace.scenario(job=job, repeats=3, run_seconds="3s")
    ports += ("--zmq-bind-ip", "127.0.0.1", "--insecure")
    run = workspace.run(scenario, "--noop", "--expect", 1, *ports, *PATIENT, workers=0)
    (host,) = run.document["hosts"]
    found = host["clock_checks"]["disagreements"]
    lost_s, allowed_s = sum(one["bracket_s"] - one["own_s"] for one in found), sum(one["allowed_s"] for one in found)
    assert found
    assert lost_s == pytest.approx(2, abs=allowed_s)
    assert all(1 in one["trials"] for one in found)
    assert "the clock of vm-0 disagreed with the master's" in run.details
