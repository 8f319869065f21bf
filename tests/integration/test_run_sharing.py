"""Who runs what, in which order, how much at once: whole runs of plain processes."""

import json

import pytest
from workspace import NAP


def spans(jobs):
    """Return the (start, end) of jobs in seconds."""
    return [(job["start_s"], job["start_s"] + job["duration_s"]) for job in jobs]


def most_at_once(jobs):
    """Return how many jobs ran at the same time, at most. One that starts when another ends is not beside it."""
    changes = sorted(change for start, end in spans(jobs) for change in ((start, 1), (end, -1)))
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def by_worker(jobs):
    """Return the jobs of each worker, by its id."""
    return {worker: [job for job in jobs if job["worker"] == worker] for worker in {job["worker"] for job in jobs}}


def realised(run):
    """Return the treatments of the trials in the order in which they were really done, by their jobs' starts."""
    first = {}
    for job in run.jobs:
        first[job["trial"]] = min(job["start_s"], first.get(job["trial"], job["start_s"]))
    trials = run.header["trials"]
    return [trials[trial][0] for trial in sorted(first, key=first.__getitem__)]


def planned(run):
    """Return the treatments of the trials in the planned order."""
    return [treatment for treatment, _, _ in run.header["trials"]]


def quick(**more):
    """Return a scenario of three treatments, each of which does next to nothing."""
    job = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}
    return {"job": job, "matrix": {"container.env.N": ["a", "b", "c"]}, **more}


def test_two_workers_share_the_operation_count(workspace):
    """The jobs of a trial are shared by all workers: each has some, together they have exactly the count."""
    run = workspace.run(workspace.scenario(operation_count=15, concurrency=2), workers=2)
    assert run.outcomes() == {"done": 15}
    shares = by_worker(run.jobs)
    assert set(shares) == {"local-0", "local-1"}
    for jobs in shares.values():
        assert 1 <= most_at_once(jobs) <= 2
    assert most_at_once(run.jobs) > 2


def test_iterations_are_of_each_slot_of_each_worker(workspace):
    """Two workers of two slots do three iterations each: twelve jobs, six on each worker, two at once."""
    run = workspace.run(workspace.scenario(iterations=3, concurrency=2), workers=2)
    shares = by_worker(run.jobs)
    assert {worker: len(jobs) for worker, jobs in shares.items()} == {"local-0": 6, "local-1": 6}
    assert {most_at_once(jobs) for jobs in shares.values()} == {2}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_concurrency_is_exact(workspace, concurrency):
    """As many jobs as the scenario says are in flight, never one more."""
    run = workspace.run(workspace.scenario(operation_count=6, concurrency=concurrency))
    assert most_at_once(run.jobs) == concurrency


def test_trials_never_overlap(workspace):
    """No job of a trial starts before all of the trial before it have ended, also with two workers."""
    run = workspace.run(workspace.scenario(**quick(repeats=3, concurrency=2, iterations=2)), workers=2)
    jobs = run.jobs
    assert len(jobs) == 3 * 3 * 2 * 2 * 2
    for trial in range(1, 9):
        before = max(end for job, (_, end) in zip(jobs, spans(jobs), strict=True) if job["trial"] < trial)
        assert before <= min(job["start_s"] for job in jobs if job["trial"] == trial)


def test_user_count_is_of_all_workers_together(workspace):
    """-u 4 on two workers puts two jobs in flight on each, whatever the scenario's concurrency is."""
    run = workspace.run(workspace.scenario(concurrency=1), "-u", 4, "-o", 12, workers=2)
    assert run.outcomes() == {"done": 12}
    assert most_at_once(run.jobs) == 4
    assert {most_at_once(jobs) for jobs in by_worker(run.jobs).values()} == {2}


@pytest.mark.alone
def test_operation_count_and_run_seconds_replace_the_sizes(workspace):
    """-o sets the jobs of each trial; -r how long each goes on, after which what runs is finished."""
    scenario = workspace.scenario(iterations=50, repeats=2, concurrency=2)
    counted = workspace.run(scenario, "-o", 3)
    assert sorted(job["trial"] for job in counted.jobs) == [0, 0, 0, 1, 1, 1]
    timed = workspace.run(scenario, "-r", "600ms")
    for trial in (0, 1):
        jobs = [job for job in timed.jobs if job["trial"] == trial]
        starts = [start for start, _ in spans(jobs)]
        assert 4 <= len(jobs) <= 14
        assert max(starts) - min(starts) <= 0.75
        assert {job["outcome"] for job in jobs} == {"done"}


def test_warm_up_is_recorded_and_tagged(workspace):
    """Warm-up trials come first, are in the file, are tagged, and enter no number of the report."""
    run = workspace.run(workspace.scenario(**quick(warmup=1, repeats=2)))
    jobs = sorted(run.jobs, key=lambda job: job["start_s"])
    assert [job["warmup"] for job in jobs] == [True] * 3 + [False] * 6
    treatments = run.document["treatments"]
    assert [row["jobs"]["done"] for row in treatments] == [2, 2, 2]
    assert [row["operations"]["run"]["n"] for row in treatments] == [2, 2, 2]
    assert run.document["totals"]["done"] == 6


@pytest.mark.parametrize("order", ["interleaved", "as-written", "blocked"])
def test_the_order_is_realised_as_planned(workspace, order):
    """The trials are done in the planned order, and that is the order which the scenario asks for."""
    run = workspace.run(workspace.scenario(**quick(repeats=4, order=order)), "--seed", 7)
    assert realised(run) == planned(run)
    rounds = [sorted(planned(run)[start : start + 3]) for start in range(0, 12, 3)]
    if order == "blocked":
        assert planned(run) == [0] * 4 + [1] * 4 + [2] * 4
    else:
        assert rounds == [[0, 1, 2]] * 4
        assert (planned(run) == [0, 1, 2] * 4) == (order == "as-written")
    assert run.document["run"]["order"] == order


def test_a_seed_reproduces_the_order(workspace):
    """A seed that was drawn is saved, and given again it gives the same order."""
    scenario = workspace.scenario(**quick(repeats=6))
    drawn = workspace.run(scenario, "--noop", "-R")
    again = workspace.run(scenario, "--noop", "-R", "--seed", drawn.header["seed"])
    assert planned(again) == planned(drawn) == realised(drawn) == realised(again)


def test_jobs_of_their_own_sizes(workspace):
    """Each job of a scenario keeps its own sizes, and the report counts each for itself."""
    short = {**NAP, "container": {"command": ["sleep", "0.02"]}}
    scenario = workspace.scenario(
        jobs={"few": {**short, "iterations": 2}, "many": {**short, "operation_count": 5, "concurrency": 2}}
    )
    run = workspace.run(scenario, "--format", "json")
    counts = {row["treatment"]["job"]: row["jobs"]["done"] for row in json.loads(run.out)["treatments"]}
    assert counts == {"few": 2, "many": 5}
    assert json.loads(run.out) == run.document
