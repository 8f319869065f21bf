"""Two hundred workers on one master, on a machine with other things to do: none is missed, and no job is lost."""

import subprocess
import sys
import time

import pytest
from deadlines import BUILD_S, END_S, LONG_END_S, LONG_TEST_S
from places import ROOT
from workspace import PROGRAMS, free_ports

pytestmark = pytest.mark.alone

LIGHT = ROOT / "benchmarks" / "light_workers.py"
PROCESSES, EACH = 4, 50
WORKERS = PROCESSES * EACH
JOBS = 20 * WORKERS


@pytest.fixture
def neighbours():
    """Two busy loops, each in a session of its own, between which the kernel divides the CPUs first."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command, start_new_session=True) for _ in range(2)]
    yield loops
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.timeout(LONG_TEST_S)
def test_two_hundred_workers_serve_one_master_on_a_loaded_machine(workspace, monkeypatch, neighbours):
    """Every one joins, gets its share, and ends by itself; each job is done once, and nobody was lost."""
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
    flags = ("--noop", "--expect", WORKERS, "--worker-timeout", f"{LONG_END_S:g}s", *ports)
    program, stats = workspace.start_run(scenario, *flags, workers=0)
    fleet = []
    for place in range(PROCESSES):
        words = ("--control-port", control, "--count", EACH, "--slots", 2, "--name", f"light-{place}")
        fleet.append(workspace.start("light-workers", *words))
        time.sleep(0.5)  # a fleet does not start in one instant
    run = workspace.finish(program, stats, seconds=BUILD_S)
    document = run.document
    assert len(document["hosts"]) == WORKERS
    assert document["totals"]["done"] == JOBS
    assert document["incomplete"] == []
    assert len({job["worker"] for job in run.jobs}) == WORKERS, "everybody had a share"
    kinds = {event["kind"] for event in run.blocks("event")}
    assert kinds - {"cpu-contention", "host-finding", "master-stalled"} == {
        "worker-joined",
        "run-begin",
        "trial-begin",
        "trial-end",
        "cleanup-done",
    }
    for processes in fleet:
        ended = processes.wait_for_exit(END_S)
        assert (ended.status, ended.out) == (0, f"{EACH} of {EACH} served a run\n")
        assert "Traceback" not in ended.err
