"""Operations that read a real container: one query of its statistics, a stream of them, its logs, its image."""

import pytest
from workspace import Workspace, require_images

pytestmark = pytest.mark.docker

CONTAINER = {
    "image": "weighbridge/base",
    "command": ["sh", "-c", "echo hello; head -c 1000000 /dev/zero > /part; mv /part /file; sleep 600"],
    "network": "none",
}
WRITTEN = ["sh", "-c", "until [ -e /file ]; do sleep 0.05; done"]
JOBS = {
    "query": {"operations": ["run", "stats", "kill", "remove"]},
    "stream": {"operations": ["run", {"stats": "1s"}, {"sleep": "5s"}, "kill", "remove"], "concurrency": 6},
    "command-line": {
        "operations": ["run", "stats", {"stats": "1s"}, {"sleep": "8s"}, "kill", "remove"],
        "engines": ["docker-cli"],
        "concurrency": 2,
    },
    "logs": {"operations": ["run", {"exec": WRITTEN}, "logs", "commit", "kill", "remove"]},
    "process": {
        "operations": ["run", "wait", "logs", "remove"],
        "container": {"command": ["echo", "hello"]},
        "engines": ["native"],
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of all these jobs, each of which is done."""
    require_images("weighbridge/base").close()
    jobs = {name: {"engines": ["docker"], "container": CONTAINER, **job} for name, job in JOBS.items()}
    with Workspace(tmp_path_factory.mktemp("stats")) as workspace:
        made = workspace.run(workspace.scenario(jobs=jobs, order="as-written"))
    assert set(made.outcomes()) == {"done"}
    return made


@pytest.fixture
def treatments(run):
    """What the report has of each job, by its name."""
    return {row["treatment"]["job"]: row for row in run.document["treatments"]}


def most_readings(run, name):
    """Return how many readings the longest of some jobs can have had: one at once, and one for each second begun."""
    return 2 + max(job["duration_s"] for job in run.jobs if job["treatment"]["job"] == name)


def test_the_command_line_is_called_for_each_reading(run, treatments):
    """Each reading is a `docker stats` of its own; one that its container is removed under is no failure."""
    treatment = treatments["command-line"]
    assert treatment["jobs"]["done"] == treatment["jobs"]["total"] == 2
    assert treatment["operations"]["stats"]["min_s"] > 0.5
    readings = treatment["metrics"]["stats_readings"]
    assert 1 <= readings["min"] <= readings["max"] <= most_readings(run, "command-line")


def test_a_stream_goes_on_beside_the_operations_until_the_job_ends(run, treatments):
    """Six containers are watched at once: each has its readings, and none of them disturbs its removal."""
    assert treatments["stream"]["jobs"]["done"] == 6
    readings = treatments["stream"]["metrics"]["stats_readings"]
    assert 2 <= readings["min"] <= readings["max"] <= most_readings(run, "stream")
    assert "Connection pool" not in run.err


def test_logs_and_the_size_of_a_commit(treatments):
    """Logs are read in their own time; the saved image is larger by what the container wrote."""
    treatment = treatments["logs"]
    assert treatment["operations"]["logs"]["n"] == 1
    size = treatment["metrics"]["commit_bytes"]
    assert size["unit"] == "B"
    assert 1_000_000 <= size["median"] < 1_100_000


def test_a_stream_of_another_interval_is_refused_before_anything_runs(workspace):
    """Docker sends once a second, whatever interval the scenario asks for."""
    job = {"operations": ["run", {"stats": "5s"}, "remove"], "container": CONTAINER}
    run = workspace.run(workspace.scenario(engines=["docker"], job=job), status=2)
    assert any("'stats' every 5 s is not possible" in line for line in run.errors)
