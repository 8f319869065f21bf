"""Whole runs of real containers, held against what the engine itself says of them."""

import json
import subprocess
import time
from collections import Counter

import pytest
from deadlines import ANSWER_S, START_S, wait_until
from workspace import Workspace, containers_of, require_images

from bench_worker.engines.base import RUN_LABEL, TICKET_LABEL

pytestmark = pytest.mark.docker

SLEEPER = {"image": "weighbridge/base", "command": ["sleep", "600"], "network": "none"}


@pytest.fixture(scope="module")
def client():
    opened = require_images("weighbridge/base", "weighbridge/sysbench")
    yield opened
    opened.close()


@pytest.fixture
def engine_events(client, tmp_path):
    """A function that returns what the engine told of a run's containers: (action, ticket) in order."""
    path = tmp_path / "events"
    # Since now: what happens before the listener is connected is told to it afterwards.
    since = f"--since={time.time():.3f}"
    command = ["docker", "events", since, "--filter", f"label={RUN_LABEL}", "--format", "{{json .}}"]
    with path.open("wb") as out:
        listener = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def of(run_id, destroyed):
        def result():
            lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            ours = [line for line in lines if line["Actor"]["Attributes"].get(RUN_LABEL) == run_id]
            events = [(line["Action"], line["Actor"]["Attributes"][TICKET_LABEL]) for line in ours]
            return events if sum(action == "destroy" for action, _ in events) >= destroyed else None

        return wait_until(result, START_S, f"{destroyed} containers destroyed")

    yield of
    listener.terminate()
    listener.wait(ANSWER_S)


@pytest.fixture
def swept(client):
    """A list of run ids; whatever containers such a run left are removed after the test."""
    runs = []
    yield runs
    for run_id in runs:
        for container in containers_of(client, run_id):
            client.remove_container(container["Id"], force=True, v=True)


def test_a_life_cycle_matches_the_engines_events(workspace, client, engine_events):
    """The engine's own create, start, die and destroy events are those of the jobs done, one each."""
    scenario = workspace.scenario(
        engines=["docker"],
        repeats=2,
        concurrency=2,
        iterations=2,
        container=SLEEPER,
        job={"operations": ["create", "start", {"exec": ["true"]}, "kill", "remove"]},
    )
    run = workspace.run(scenario)
    assert run.outcomes() == {"done": 8}
    result = engine_events(run.run_id, 8)
    counts = Counter(action for action, _ in result)
    assert {action: counts[action] for action in ("create", "start", "die", "destroy")} == dict.fromkeys(
        ("create", "start", "die", "destroy"), 8
    )
    assert len({ticket for _, ticket in result}) == 8
    by_ticket = [[action for action, ticket in result if ticket == one] for one in {ticket for _, ticket in result}]
    for actions in by_ticket:
        life = [action for action in actions if action in {"create", "start", "die", "destroy"}]
        assert life == ["create", "start", "die", "destroy"]
        assert sum(action.startswith("exec_create") for action in actions) == 1
    (row,) = run.document["treatments"]
    assert {name: cell["n"] for name, cell in row["operations"].items() if name != "job"} == dict.fromkeys(
        ("create", "start", "exec", "kill", "remove"), 8
    )
    assert containers_of(client, run.run_id) == []
    for job in run.jobs:
        operations = list(job["operations"].values())
        ends = [one["start_s"] + one["duration_s"] for one in operations]
        assert all(end <= later["start_s"] for end, later in zip(ends, operations[1:], strict=False))
        assert job["start_s"] == operations[0]["start_s"]
        assert job["start_s"] + job["duration_s"] == pytest.approx(ends[-1], abs=1e-6)


def test_docker_and_native_side_by_side(workspace, client):
    """One run weighs a benchmark in containers and as plain processes: plausible metrics, raw output kept."""
    params = {"time": "1s", "threads": 1}
    scenario = workspace.scenario(
        engines=["docker", "native"],
        repeats=2,
        container={"network": "none"},
        job={"workload": "sysbench-cpu", "params": params},
    )
    run = workspace.run(scenario, "--format", "json")
    document = json.loads(run.out)
    assert list(document)[:2] == ["format", "version"]
    assert (document["format"], document["version"]) == ("weighbridge-report", 2)
    assert document["totals"].items() >= {"jobs": 4, "done": 4, "failed": 0, "lost": 0, "aborted": 0}.items()
    assert document["totals"]["jobs_per_s"] > 0
    assert document["totals"]["duration_s"] > 4
    assert [row["treatment"]["engine"] for row in document["treatments"]] == ["docker", "native"]
    for row in document["treatments"]:
        assert set(row) >= {"treatment", "jobs", "jobs_per_s", "operations", "metrics"}
        assert set(row["treatment"]) >= {"environment", "engine"}
        assert row["jobs"] == {"total": 2, "done": 2, "failed": 0, "lost": 0, "aborted": 0} | row["jobs"]
        cell = row["operations"]["run"]
        assert set(cell) >= {
            "n", "errors", "mean_s", "stddev_s", "min_s", "p50_s", "p95_s", "p99_s", "max_s",
        }  # fmt: skip
        assert (cell["n"], cell["errors"]) == (2, 0)
        assert 0 < cell["min_s"] <= cell["p50_s"] <= cell["p95_s"] <= cell["max_s"] < document["totals"]["duration_s"]
        metric = row["metrics"]["events_per_second"]
        assert set(metric) >= {"unit", "direction", "n", "median", "mean", "stddev", "min", "max"}
        assert (metric["unit"], metric["direction"], metric["n"]) == ("1/s", "higher", 2)
        assert 0 < metric["min"] <= metric["median"] <= metric["max"]
        assert row["metrics"]["total_time_s"]["n"] == 2
    outputs = [record for block in run.blocks("outputs") for record in block]
    assert sorted({record.ticket for record in outputs}) == sorted({job["id"] for job in run.jobs})
    for record in outputs:
        assert b"events per second" in record.stdout
        assert record.exit_code == 0
    assert containers_of(client, run.run_id) == []


def test_a_failed_operation_ends_its_job_alone(workspace, client, engine_events):
    """The rest of the job is skipped, its time stays apart, its container goes, and the next job is done."""
    scenario = workspace.scenario(
        engines=["docker"],
        order="as-written",
        iterations=2,
        container=SLEEPER,
        jobs={
            "bad": {"operations": ["create", "start", {"exec": ["/no/such/command"]}, "pause", "unpause", "remove"]},
            "good": {"operations": ["create", "start", "remove"]},
        },
    )
    run = workspace.run(scenario, status=3)
    assert run.outcomes() == {"done": 2, "failed": 2}
    bad, good = run.document["treatments"]
    assert (bad["jobs"]["done"], bad["jobs"]["failed"]) == (0, 2)
    assert (good["jobs"]["done"], good["jobs"]["failed"]) == (2, 0)
    assert (bad["operations"]["exec"]["n"], bad["operations"]["exec"]["errors"]) == (0, 2)
    # What was done for a job that failed is kept with its time, and enters no latency.
    assert all(bad["operations"][name]["n"] == 0 for name in ("create", "start", "pause", "remove"))
    assert bad["operations"]["create"]["errors"] == 0
    for job in run.jobs:
        if job["outcome"] == "failed":
            assert list(job["operations"]) == ["create", "start", "exec"]
            assert [one["ok"] for one in job["operations"].values()] == [True, True, False]
            assert job["error"]["operation"] == "exec"
            assert "/no/such/command" in job["error"]["message"]
    assert "/no/such/command" in run.out
    result = Counter(action for action, _ in engine_events(run.run_id, 4))
    assert (result["create"], result["destroy"], result["pause"]) == (4, 4, 0)
    assert containers_of(client, run.run_id) == []
    assert run.errors == ["no job succeeded in 1 of 2 treatments"]


@pytest.fixture(scope="module")
def failing(tmp_path_factory, client):
    """A run in which every job fails, and after which nothing is left: a guest's in both engines, and one that eats.

    Not at once: containerd begins to listen for such news a moment after the start.
    """
    eat = ["sh", "-c", "sleep 2; tail /dev/zero"]
    jobs = {
        "guest": {
            "workload": "sysbench-cpu",
            "params": {"time": "1s", "cpu_max_prime": 1 << 31},
            "engines": ["docker", "native"],
            "container": {"network": "none"},
        },
        "eater": {
            "operations": ["create", "start", "wait", "remove"],
            "engines": ["docker"],
            "container": {**SLEEPER, "command": eat, "memory": "16MiB"},
        },
    }
    with Workspace(tmp_path_factory.mktemp("failing")) as workspace:
        run = workspace.run(workspace.scenario(jobs=jobs), status=3)
        assert run.outcomes() == {"failed": 3}
        assert containers_of(client, run.run_id) == []
        return run


def failed_jobs(run, name):
    """Return what became of a job of a run."""
    return [job for job in run.jobs if job["treatment"]["job"] == name]


def test_a_guest_that_fails_says_so_in_the_tools_words(failing):
    """A tool that rejects its parameters, under any engine, is a failed job with the tool's own message."""
    jobs = failed_jobs(failing, "guest")
    assert {job["treatment"]["engine"] for job in jobs} == {"docker", "native"}
    for job in jobs:
        assert (job["error"]["operation"], job["error"]["kind"]) == ("run", "exit-code")
        assert "Invalid value for the 'cpu_max_prime' option: '2147483648'" in job["error"]["message"]
        assert job["metrics"] == {}
    for row in failing.document["treatments"]:
        assert all(metric["n"] == 0 for metric in row["metrics"].values())
    assert "Invalid value for the 'cpu_max_prime' option: '2147483648'" in " ".join(failing.out.split())
    tickets = {job["id"] for job in jobs}
    outputs = [record for block in failing.blocks("outputs") for record in block if record.ticket in tickets]
    assert {record.exit_code for record in outputs} == {1}


def test_a_container_that_ran_out_of_memory_is_oom_killed(failing):
    """A container that its memory limit killed fails as oom-killed, not as an exit code like any other."""
    (job,) = failed_jobs(failing, "eater")
    assert (job["outcome"], job["error"]["operation"], job["error"]["kind"]) == ("failed", "wait", "oom-killed")


def test_kept_containers_are_listed_and_removed(workspace, client, swept):
    """-k leaves what the jobs left; a dry run of the clean-up lists it, the clean-up removes it and nothing else."""
    scenario = workspace.scenario(
        engines=["docker"], iterations=2, container=SLEEPER, job={"operations": ["create", "start"]}
    )
    with workspace.kept_run(scenario, "-k") as run:
        swept.append(run.run_id)
        kept = containers_of(client, run.run_id)
        assert [one["State"] for one in kept] == ["running"] * 2
        # What runs after it leaves it alone, at its start and at its end.
        tidy = workspace.run(scenario)
        assert containers_of(client, tidy.run_id) == []
        assert len(containers_of(client, run.run_id)) == 2
        everything = json.loads(workspace.master("cleanup-containers", "--dry-run", "--format", "json").out)
        names = {name.removeprefix("/") for one in kept for name in one["Names"]}
        assert {row["name"] for row in everything if row["run_id"] == run.run_id} == names
        named = workspace.master("cleanup-containers", "--dry-run", "--run", run.run_id)
        assert named.out.splitlines()[-1] == "2 listed"
        assert len(containers_of(client, run.run_id)) == 2
        removed = workspace.master("cleanup-containers", "--run", run.run_id)
        assert (removed.status, removed.out.splitlines()[-1]) == (0, "2 removed")
        assert containers_of(client, run.run_id) == []
        again = workspace.master("cleanup-containers", "--run", run.run_id)
        assert (again.status, again.out) == (0, "nothing was left behind\n")
