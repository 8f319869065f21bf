"""What a real run finds out about its own machine: how fast it was, and that others used it."""

import os
import subprocess
from contextlib import contextmanager

import pytest
from deadlines import START_S, wait_until

ROUNDS = 14


@contextmanager
def busy_processes(count):
    """So many processes that use all the CPU time that they get: each in a session of its own.

    The processes of one session may count as one for the scheduler (autogroup, sched(7)).
    """
    hog = ["sh", "-c", "while :; do :; done"]
    hogs = [subprocess.Popen(hog, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.alone
def test_a_busy_machine_from_the_middle_on_changes_no_verdict_and_is_reported(workspace):
    """Each host measured its speed before each trial; from mid-run on others take most of the CPU time."""
    begun = workspace.folder / "begun"
    jobs = {
        name: {
            "operations": ["run", "wait", "remove"],
            "container": {
                "command": ["sh", "-c", f"echo >> {begun}; i=0; while [ $i -lt {loops} ]; do i=$((i+1)); done"]
            },
        }
        for name, loops in (("few", 10_000), ("many", 40_000))
    }
    program, stats = workspace.start_run(
        workspace.scenario(jobs=jobs, repeats=ROUNDS, speed_probe=True), "--baseline", "job=few", "--no-report"
    )
    wait_until(lambda: begun.exists() and begun.stat().st_size >= ROUNDS, START_S, "the middle of the run")
    with busy_processes(3 * (os.cpu_count() or 1)):
        run = workspace.finish(program, stats)
    verdicts = run.document["verdicts"]
    (only,) = verdicts["comparisons"]
    assert (only["verdict"], verdicts["design"]["grade"]) == ("slower", "A")
    assert only["low"] is None or only["low"] > 1.0
    speeds = [
        (trial, wall / cpu)
        for block in run.blocks("samples")
        if block.source == "speed"
        for trial, wall, cpu in zip(
            *(block.columns[name].tolist() for name in ("trial", "wall_ns", "cpu_ns")), strict=True
        )
    ]
    assert [trial for trial, _ in speeds] == list(range(2 * ROUNDS))
    (speed,) = [flag for flag in verdicts["runs"]["flags"] if flag["kind"] == "speed"]
    assert "changed speed" in speed["text"]
    assert "ratios within a round hold" in speed["text"]
    assert "machine_id" in next(iter(run.blocks("host")))["fingerprint"]


def test_the_speed_probe_can_be_turned_off(workspace):
    """A no-op run has none either: it measures the harness."""
    for measured, flags in ((False, ()), (True, ("--noop",))):
        run = workspace.run(workspace.scenario(repeats=2, speed_probe=measured), "--no-report", *flags)
        assert "speed" not in {block.source for block in run.blocks("samples")}
