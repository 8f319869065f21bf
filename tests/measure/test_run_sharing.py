"""Who runs what, in which order, how much at once: whole runs of plain processes."""

import json

import pytest
from attention import undisturbed
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
    names = [dict(run.header["treatments"][index]["labels"])["job"] for index in planned(run)]
    return [of_trial(run, trial) for trial, name in enumerate(names) if name == label]


def test_two_workers_share_the_operation_count(two_workers):
    """The jobs of a trial are shared by all workers: each has some, together they have exactly the count."""
    assert two_workers.outcomes() == {"done": 2 * 12 + 2 * 15}
    for jobs in trials_of(two_workers, "together"):
        assert len(jobs) == 15
        shares = by_worker(jobs)
        assert set(shares) == {"local-0", "local-1"}
        assert all(1 <= most_at_once(mine) <= 2 for mine in shares.values())
        assert most_at_once(jobs) > 2


def test_iterations_are_of_each_slot_of_each_worker(two_workers):
    """Two workers of two slots do three iterations each: twelve jobs, six on each worker, two at once."""
    for jobs in trials_of(two_workers, "each"):
        shares = by_worker(jobs)
        assert {worker: len(mine) for worker, mine in shares.items()} == {"local-0": 6, "local-1": 6}
        assert {most_at_once(mine) for mine in shares.values()} == {2}


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


def test_user_count_and_operation_count_replace_the_sizes(workspace):
    """-u 4 on two workers puts two jobs in flight on each, and -o sets the jobs of each trial."""
    scenario = workspace.scenario(job=meeting(workspace, "met", 12, 4), iterations=50, repeats=2)
    run = workspace.run(scenario, "-u", 4, "-o", 12, workers=2)
    assert run.outcomes() == {"done": 24}
    for trial in (0, 1):
        jobs = of_trial(run, trial)
        assert len(jobs) == 12
        assert most_at_once(jobs) == 4
        assert {most_at_once(mine) for mine in by_worker(jobs).values()} == {2}


def test_run_seconds_replace_the_sizes(workspace):
    """-r says how long each trial goes on, after which what runs is finished; the first line says so."""
    scenario = workspace.scenario(iterations=50, repeats=2, concurrency=2)

    def check():
        run = workspace.run(scenario, "-r", "600ms")
        for trial in (0, 1):
            jobs = of_trial(run, trial)
            starts = [start for start, _ in spans(jobs)]
            assert 4 <= len(jobs) <= 14
            assert max(starts) - min(starts) <= 0.75
        return run

    run = undisturbed(check, limit_s=0.02)
    first = "--run-seconds 600ms is the length of each trial, not of the run: 2 trials, together at least 1.2s"
    assert run.err.splitlines()[0] == first
    assert run.outcomes().keys() == {"done"}


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory):
    """A run of one trial of each treatment to warm up, and of four rounds."""
    with Workspace(tmp_path_factory.mktemp("interleaved")) as workspace:
        scenario = workspace.scenario(**quick(warmup=1, repeats=4, order="interleaved"))
        return workspace.run(scenario, "--seed", 7)


def test_warm_up_is_recorded_and_tagged(interleaved):
    """Warm-up trials come first, are in the file, are tagged, and enter no number of the report."""
    jobs = sorted(interleaved.jobs, key=lambda job: job["start_s"])
    assert [job["warmup"] for job in jobs] == [True] * 3 + [False] * 12
    treatments = interleaved.document["treatments"]
    assert [row["jobs"]["done"] for row in treatments] == [4, 4, 4]
    assert [row["operations"]["run"]["n"] for row in treatments] == [4, 4, 4]
    assert interleaved.document["totals"]["done"] == 12


def test_rounds_are_realised_as_planned(interleaved):
    """The trials are done in the planned order: each treatment once in a round, in an order that differs."""
    assert realised(interleaved) == planned(interleaved)
    order = planned(interleaved)[3:]
    assert [sorted(order[start : start + 3]) for start in range(0, 12, 3)] == [[0, 1, 2]] * 4
    assert order != [0, 1, 2] * 4
    assert interleaved.document["run"]["order"] == "interleaved"


def test_blocks_are_realised_as_planned(workspace):
    """The trials are done in the planned order: those of one treatment after the other."""
    run = workspace.run(workspace.scenario(**quick(repeats=4, order="blocked")), "--seed", 7)
    assert realised(run) == planned(run) == [0] * 4 + [1] * 4 + [2] * 4
    assert run.document["run"]["order"] == "blocked"


def test_a_seed_reproduces_the_order(workspace):
    """A seed that was drawn is saved, and given again it gives the same order."""
    scenario = workspace.scenario(**quick(repeats=6))
    drawn = workspace.run(scenario, "--noop", "-R")
    again = workspace.run(scenario, "--noop", "-R", "--seed", drawn.header["seed"])
    assert planned(again) == planned(drawn) == realised(drawn) == realised(again)
