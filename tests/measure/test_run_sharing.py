"""Who runs what, in which order, how much at once: whole runs of plain processes."""

import json

import pytest
from workspace import NAP, Workspace


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


def realised(run):
    """Return the treatments of the trials in the order in which they were really done, by their jobs' starts."""
    first = {}
    for job in run.jobs:
        first[job["trial"]] = min(job["start_s"], first.get(job["trial"], job["start_s"]))
    trials = run.header.trials
    return [trials[trial][0] for trial in sorted(first, key=first.__getitem__)]


def planned(run):
    """Return the treatments of the trials in the planned order."""
    return [treatment for treatment, _, _ in run.header.trials]


def quick(**more):
    """Return a scenario of three treatments, each of which does next to nothing."""
    job = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}
    return {"job": job, "matrix": {"container.env.N": ["a", "b", "c"]}, **more}


MEETING = """
n=0
until mkdir {folder}/$n 2>&-; do n=$((n + 1)); done
until [ -e {folder}/$((n / {jobs} * {jobs} + {meeting} - 1)) ]; do sleep 0.01; done
sleep 0.1
"""
"""Takes the next number; none of a trial of so many jobs ends before so many of them have begun."""


def meeting(workspace, name, jobs, meeting):
    """Return a nap of which so many have to be under way at once in each trial, however slow the machine is."""
    folder = workspace.folder / name
    folder.mkdir()
    script = MEETING.format(folder=folder, jobs=jobs, meeting=meeting)
    return {**NAP, "container": {"command": ["sh", "-c", script]}}


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    """A run of two workers: a job with a size of its own for each slot, and one with a count for all of them."""
    with Workspace(tmp_path_factory.mktemp("two")) as workspace:
        jobs = {
            "each": {**meeting(workspace, "each", 12, 4), "iterations": 3},
            "together": {**meeting(workspace, "together", 15, 4), "operation_count": 15},
        }
        return workspace.run(workspace.scenario(jobs=jobs, repeats=2, concurrency=2), workers=2)


def of_trial(run, trial):
    """Return the jobs of one trial."""
    return [job for job in run.jobs if job["trial"] == trial]


def trials_of(run, label):
    """Return, for each trial of a job, the jobs that it ran."""
    names = [run.header.treatments[index].labels["job"] for index in planned(run)]
    return [of_trial(run, trial) for trial, name in enumerate(names) if name == label]


def test_trials_never_overlap(two_workers):
    """No job of a trial starts before all of the trial before it have ended, also with two workers."""
    for trial in range(1, 4):
        before = max(end for earlier in range(trial) for _, end in spans(of_trial(two_workers, earlier)))
        assert before <= min(start for start, _ in spans(of_trial(two_workers, trial)))


def test_concurrency_and_sizes_are_exact(workspace):
    """Each job of a scenario keeps its own sizes, with never one more in flight, and the report counts each."""
    scenario = workspace.scenario(
        jobs={
            "one": {**NAP, "iterations": 4},
            "three": {**meeting(workspace, "three", 7, 3), "operation_count": 7, "concurrency": 3},
        }
    )
    run = workspace.run(scenario, "--format", "json")
    for label, count, concurrency in (("one", 4, 1), ("three", 7, 3)):
        (jobs,) = trials_of(run, label)
        assert (len(jobs), most_at_once(jobs)) == (count, concurrency)
    counts = {row["treatment"]["job"]: row["jobs"]["done"] for row in json.loads(run.out)["treatments"]}
    assert counts == {"one": 4, "three": 7}
    assert json.loads(run.out) == run.document


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory):
    """A run of one trial of each treatment to warm up, and of four rounds."""
    with Workspace(tmp_path_factory.mktemp("interleaved")) as workspace:
        scenario = workspace.scenario(**quick(warmup=1, repeats=4, order="interleaved"))
        return workspace.run(scenario, "--seed", 7)


def test_rounds_are_realised_as_planned(interleaved):
    """The trials are done in the planned order: each treatment once in a round, in an order that differs."""
    assert realised(interleaved) == planned(interleaved)
    order = planned(interleaved)[3:]
    assert [sorted(order[start : start + 3]) for start in range(0, 12, 3)] == [[0, 1, 2]] * 4
    assert order != [0, 1, 2] * 4
    assert interleaved.document["run"]["order"] == "interleaved"


def test_a_seed_reproduces_the_order(workspace):
    """A seed that was drawn is saved, and given again it gives the same order."""
    scenario = workspace.scenario(**quick(repeats=6))
    drawn = workspace.run(scenario, "--noop", "-R")
    again = workspace.run(scenario, "--noop", "-R", "--seed", drawn.header.seed)
    assert planned(again) == planned(drawn) == realised(drawn) == realised(again)
