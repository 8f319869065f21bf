"""Two hundred workers on one master: they start, run and stop cleanly, and none is missed."""

import sys
import time
from pathlib import Path

import pytest
from workspace import PROGRAMS, Workspace, free_ports

pytestmark = pytest.mark.alone

LIGHT = Path(__file__).parent.parent.parent / "benchmarks" / "light_workers.py"
PROCESSES, EACH = 4, 50
WORKERS = PROCESSES * EACH
JOBS = 100 * WORKERS


@pytest.fixture
def workspace(tmp_path):
    with Workspace(tmp_path) as made:
        yield made


def test_two_hundred_workers_serve_one_master(workspace, monkeypatch):
    """Every one joins, gets its share, and ends by itself; each job is done once, and nothing else happened."""
    monkeypatch.setitem(PROGRAMS, "light-workers", (sys.executable, str(LIGHT)))
    # What a login shell usually has; the hard limit stays.
    monkeypatch.setitem(
        PROGRAMS, "bench-master", ("sh", "-c", 'ulimit -Sn 1024; exec "$@"', "sh", *PROGRAMS["bench-master"])
    )
    control, results, work = free_ports(3)
    # A lane for each worker follows on the first.
    ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    ports += ("--zmq-bind-ip", "127.0.0.1", "--insecure")
    job = {"operations": [{"sleep": "1ns"}], "container": {"command": ["true"]}}
    scenario = workspace.scenario(job=job, repeats=2, operation_count=JOBS // 2, concurrency=2)
    flags = ("--noop", "--expect", WORKERS, "--worker-timeout", "60s", *ports)
    program, stats = workspace.start_run(scenario, *flags, workers=0)
    fleet = []
    for place in range(PROCESSES):
        words = ("--control-port", control, "--count", EACH, "--slots", 2, "--name", f"light-{place}")
        fleet.append(workspace.start("light-workers", *words))
        time.sleep(0.5)  # a fleet does not start in one instant
    run = workspace.finish(program, stats, seconds=120)
    document = run.document
    assert len(document["hosts"]) == WORKERS
    assert document["totals"]["done"] == JOBS
    assert document["incomplete"] == []
    assert len({job["worker"] for job in run.jobs}) == WORKERS, "everybody had a share"
    kinds = {event["kind"] for event in run.blocks("event")}
    assert kinds == {"worker-joined", "run-begin", "trial-begin", "trial-end", "cleanup-done"}
    for processes in fleet:
        ended = processes.wait_for_exit(20)
        assert (ended.status, ended.out) == (0, f"{EACH} of {EACH} served a run\n")
        assert "Traceback" not in ended.err
