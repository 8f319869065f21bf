"""How load is given, once each and without a look at the clock: until a verdict, at a rate, shared, watched, by many.

tests/measure has what depends on how fast and how steady the machine is.
"""

from itertools import pairwise

import pytest
from workspace import NAP, require_images

LIFE = ["run", "wait", "remove"]


def test_a_run_ends_by_its_verdict_or_with_its_last_round(workspace):
    """It looks after the fifth round and each that follows, and leaves out the trials that it does not need."""
    commands = {"container.command": [["true"], ["sleep", "0.3"]]}
    repeats = {"until": "verdict", "at-most": 8}
    run = workspace.run(workspace.scenario(job=NAP, matrix=commands, repeats=repeats))
    (found,) = run.document["verdicts"]["comparisons"]
    looks = [event["rounds"] for event in run.blocks("event") if event["kind"] == "look"]
    assert looks == list(range(5, looks[-1] + 1))
    assert found["rounds"] == looks[-1] <= 8
    skipped = [event for event in run.blocks("event") if event["kind"] == "trial-skipped"]
    assert len(skipped) == 2 * (8 - looks[-1])


def test_jobs_arrive_at_their_rate(workspace):
    """Arrivals are evenly spaced by the plan, and no job begins before its own."""
    run = workspace.run(workspace.scenario(rate="10/s", run_seconds="1s", queue_timeout="60s"), workers=2)
    assert run.outcomes() == {"done": 10}
    arrived = sorted(job["start_s"] - job["wait_s"] for job in run.jobs)
    assert [after - before for before, after in pairwise(arrived)] == pytest.approx([0.1] * 9, abs=1e-6)
    assert all(job["wait_s"] >= 0 for job in run.jobs)
    assert run.document["treatments"][0]["open_load"]["offered"] == 10


def test_workers_share_a_treatment(workspace):
    """Four jobs each wait for the other three: two workers have two of them at once."""
    folder = workspace.folder
    meet = f"touch {folder}/$$; until [ $(ls {folder} | grep -c '^[0-9]*$') -ge 4 ]; do sleep 0.05; done"
    job = {"operations": LIFE, "container": {"command": ["sh", "-c", meet]}}
    scenario = workspace.scenario(job=job, repeats=1, warmup=0, concurrency=2, iterations=1)
    run = workspace.run(scenario, workers=2)
    assert run.outcomes() == {"done": 4}
    assert sorted(job["worker"] for job in run.jobs) == ["local-0", "local-0", "local-1", "local-1"]


def test_many_workers_have_a_share_each(workspace):
    """Of a no-op run by six."""
    scenario = workspace.scenario(repeats=2, operation_count=600, concurrency=6)
    run = workspace.run(scenario, "--noop", workers=6)
    assert set(run.outcomes()) == {"done"}
    assert len({job["worker"] for job in run.jobs}) == 6


@pytest.mark.docker
def test_containers_are_watched_and_their_engine_with_them(workspace):
    """A stream of statistics goes on beside the operations, and the daemon's processes are sampled."""
    require_images("weighbridge/base").close()
    container = {"image": "weighbridge/base", "command": ["sleep", "600"], "network": "none"}
    operations = ["run", {"stats": "1s"}, {"exec": ["sleep", "4"]}, "kill", "remove"]
    job = {"operations": operations, "container": container}
    scenario = workspace.scenario(engines=["docker"], overhead=True, job=job, repeats=1, warmup=0, iterations=1)
    run = workspace.run(scenario)
    assert run.outcomes() == {"done": 1}
    (row,) = run.document["treatments"]
    assert row["metrics"]["stats_readings"]["min"] >= 1
    assert row["overhead"]
