"""Operations that look at a real container: one query of its statistics, a stream of them, its logs, its image."""

import pytest
from workspace import Workspace, require_images

pytestmark = pytest.mark.docker

CONTAINER = {
    "image": "weighbridge/base",
    "command": ["sh", "-c", "echo hello; head -c 1000000 /dev/zero > /file; sleep 600"],
    "network": "none",
}


@pytest.fixture
def workspace(tmp_path):
    require_images("weighbridge/base").close()
    with Workspace(tmp_path) as made:
        yield made


def run_of(workspace, operations, **keys):
    job = {"operations": operations, "container": CONTAINER}
    run = workspace.run(workspace.scenario(engines=["docker"], job=job, **keys))
    (treatment,) = run.document["treatments"]
    assert treatment["jobs"]["done"] == treatment["jobs"]["total"]
    return run, treatment


def test_one_query_takes_dockers_second(workspace):
    """Docker looks twice, so a single query is as long as that, and gives no count of readings."""
    _, treatment = run_of(workspace, ["run", "stats", "kill", "remove"])
    assert 0.5 < treatment["operations"]["stats"]["min_s"] < 10
    assert treatment["metrics"] == {}


def test_the_command_line_is_asked_once_or_again_and_again(workspace):
    """Each reading is a `docker stats` of its own; one that its container is removed under is no failure."""
    job = {"operations": ["run", "stats", {"stats": "1s"}, {"sleep": "5s"}, "kill", "remove"], "container": CONTAINER}
    run = workspace.run(workspace.scenario(engines=["docker-cli"], job=job, concurrency=2))
    (treatment,) = run.document["treatments"]
    assert treatment["jobs"]["done"] == treatment["jobs"]["total"] == 2
    assert 0.5 < treatment["operations"]["stats"]["min_s"] < 10
    assert 1 <= treatment["metrics"]["stats_readings"]["min"] <= 6


def test_a_stream_goes_on_beside_the_operations_until_the_job_ends(workspace):
    """Six containers that are watched at once: each has its readings, and none of them disturbs its removal."""
    run, treatment = run_of(workspace, ["run", {"stats": "1s"}, {"sleep": "2500ms"}, "kill", "remove"], concurrency=6)
    assert 2 <= treatment["metrics"]["stats_readings"]["min"] <= 6
    assert "Connection pool" not in run.err


def test_a_stream_of_another_pace_is_refused_before_anything_runs(workspace):
    """Docker sends once a second, whatever is asked for."""
    job = {"operations": ["run", {"stats": "5s"}, "remove"], "container": CONTAINER}
    run = workspace.run(workspace.scenario(engines=["docker"], job=job), status=2)
    assert any("'stats' every 5 s is not possible" in line for line in run.errors)


def test_logs_and_the_size_of_a_commit(workspace):
    """Logs are read in their own time; the image that was saved is larger by what the container wrote."""
    _, treatment = run_of(workspace, ["run", {"sleep": "500ms"}, "logs", "commit", "kill", "remove"])
    assert treatment["operations"]["logs"]["n"] == 1
    size = treatment["metrics"]["commit_bytes"]
    assert size["unit"] == "B"
    assert 1_000_000 <= size["median"] < 1_100_000


def test_plain_processes_have_logs_too(workspace):
    """`logs` is an operation of every engine that keeps what a command prints."""
    job = {"operations": ["run", "wait", "logs", "remove"], "container": {"command": ["echo", "hello"]}}
    run = workspace.run(workspace.scenario(job=job))
    assert run.document["treatments"][0]["operations"]["logs"]["n"] == 1
