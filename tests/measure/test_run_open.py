"""Open load, for real: jobs arrive by the clock, and what that does to them is in the report."""

from itertools import pairwise

import pytest
from attention import undisturbed
from deadlines import ANSWER_S, wait_until
from workspace import NAP

from bench_common.stats.reader import StatsFile


def test_a_job_that_no_slot_takes_in_time_is_dropped_and_reported(workspace):
    """Ten times more than one slot can do: the queue's wait is in the response, the rest is dropped."""
    flooded = {"rate": "100/s", "run_seconds": "1s", "concurrency": 1, "queue_timeout": "300ms"}
    scenario = workspace.scenario(**flooded, allow_failures=True)

    def check():
        run = workspace.run(scenario)
        begun = max(job["wait_s"] for job in run.jobs if job["outcome"] == "done")
        assert begun <= 0.35, "a job that began much after its time"
        return run

    run = undisturbed(check, limit_s=0.02)
    outcomes = run.outcomes()
    assert outcomes["failed"] >= 50
    assert outcomes["done"] + outcomes["failed"] == 100
    entry = run.document["treatments"][0]
    assert entry["open_load"]["dropped"] == outcomes["failed"]
    done = [job for job in run.jobs if job["outcome"] == "done"]
    longest = max(job["wait_s"] + job["duration_s"] for job in done)
    assert entry["operations"]["response"]["max_s"] == pytest.approx(longest, abs=1e-6)
    # The slot is free once a job: the longest wait of an accepted one may be that much below the timeout.
    assert max(job["wait_s"] for job in done) >= 0.29 - max(job["duration_s"] for job in done)
    assert "arrival: dropped" in run.out
    assert "jobs were dropped: it cannot keep up" in run.details


def test_a_rate_on_the_command_line_opens_any_scenario(workspace):
    """With a size that has an end; without one it is refused in one line."""
    scenario = workspace.scenario(job=NAP | {"iterations": 3})
    run = workspace.run(scenario, "--rate", "20/s", "--arrivals", "poisson", "-o", 10, "--seed", 5)
    again = workspace.run(scenario, "--rate", "20/s", "--arrivals", "poisson", "-o", 10, "--seed", 5)
    began, begun = ([job["start_s"] - job["wait_s"] for job in one.jobs] for one in (run, again))
    gaps = [[after - before for before, after in pairwise(one)] for one in (sorted(began), sorted(begun))]
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-6)
    assert len({round(gap, 6) for gap in gaps[0]}) == 9
    refused = workspace.refused("run-scenario", "-f", scenario, "--workers", 1, "--rate", "20/s")
    (message,) = refused.errors
    assert "'iterations' counts the jobs of a slot and cannot be used with 'rate'" in message


def test_ctrl_c_ends_an_open_load_like_any_other(workspace):
    """What has arrived is finished, nothing further arrives, the file is good."""
    program, stats = workspace.start_run(workspace.scenario(rate="50/s", run_seconds="1h"), "--progress", "chars")
    wait_until(lambda: stats.exists() and list(StatsFile(stats).blocks({"jobs"})), ANSWER_S, "jobs in the file")
    program.process.send_signal(2)
    run = workspace.finish(program, stats, 130)
    assert set(run.outcomes()) == {"done"}
