"""blogload and blogbench in real runs, as plain processes and in containers, and how their failures are told.

The real blogbench is in no archive that a test could rely on: where its part is the command line and the exit code, a
script stands in for it that prints what the real one printed.
"""

import os

import places
import pytest
from attention import undisturbed
from workspace import containers_of, require_images

DATA = places.DATA / "blogbench"
LOAD = {"writers": 2, "rewriters": 1, "commenters": 1, "readers": 2, "time": "1s", "total_size": "16MiB"}
BENCH = {"iterations": 5, "sleep": "1s"}


@pytest.fixture(scope="module")
def client():
    opened = require_images("weighbridge/base", "weighbridge/blogload")
    yield opened
    opened.close()


@pytest.fixture
def stand_in(workspace, tmp_path):
    """A function that puts a blogbench on PATH, which prints two samples and exits with 0."""

    def put(helping, running, stderr=""):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        script = folder / "blogbench"
        script.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = --help ]; then exec cat "{DATA / helping}"; fi\n'
            f'cat "{DATA / running}"\n'
            f"printf '%s' '{stderr}' >&2\n"
        )
        script.chmod(0o755)
        workspace.environ["PATH"] = f"{folder}{os.pathsep}{workspace.environ['PATH']}"

    return put


@pytest.mark.docker
def test_blogload_weighs_natively_and_in_a_container(workspace, client):
    """Each kind of process got to work, and its files are gone afterwards."""
    scenario = workspace.scenario(
        engines=["native", "docker"],
        container={"network": "none"},
        job={"workload": "blogload", "params": {**LOAD, "report_interval": "500ms"}},
    )

    def check():
        run = workspace.run(scenario)
        assert all(row["metrics"]["total_time_s"]["median"] <= 1.5 for row in run.document["treatments"])
        outputs = [record.stdout for block in run.blocks("outputs") for record in block]
        assert all(b"\n[0.5s] blogs=" in text for text in outputs)
        # Each kind of process has a second for its first.
        assert all(metric["median"] > 0 for row in run.document["treatments"] for metric in row["metrics"].values())
        return run

    run = undisturbed(check, limit_s=0.02)
    assert run.outcomes() == {"done": 2}
    for row in run.document["treatments"]:
        assert row["metrics"]["total_time_s"]["median"] >= 1.0
    assert containers_of(client, run.run_id) == []
    assert not list((workspace.folder / "tmp").rglob("blogload-*"))


@pytest.mark.parametrize("version", [pytest.param("1.1", marks=pytest.mark.slow), "1.2"])
def test_blogbench_s_scores_have_its_version(workspace, stand_in, version):
    """The binary on PATH is used natively, and its own help says which version it is."""
    stand_in(f"{version}-help.txt", f"{version}-i5-s2.txt")
    run = workspace.run(workspace.scenario(job={"workload": "blogbench", "params": BENCH}))
    given = {name for name, metric in run.document["treatments"][0]["metrics"].items() if metric["n"]}
    suffix = version.replace(".", "_")
    assert given == {f"reads_score_{suffix}", f"writes_score_{suffix}"}


@pytest.mark.parametrize(
    ("running", "stderr", "message"),
    [
        pytest.param("fail-badopt.txt", "", "blogbench refused its arguments", marks=pytest.mark.slow),
        ("1.2-i5-s2.txt", "write(): [No space left on device]", "No space left on device"),
        pytest.param("fail-missingdir.txt", "", "No such file or directory", marks=pytest.mark.slow),
    ],
)
def test_blogbench_that_fails_with_0_is_a_failed_job(workspace, stand_in, running, stderr, message):
    """Its exit code says nothing; what it printed does."""
    stand_in("1.2-help.txt", running, stderr)
    run = workspace.run(workspace.scenario(job={"workload": "blogbench", "params": BENCH}), status=3)
    assert run.outcomes() == {"failed": 1}
    assert message in run.document["errors"][0]["message"]


def test_an_optional_job_is_skipped_if_its_tool_is_missing(workspace):
    """The run goes on and succeeds, and the report says what was skipped, and why."""
    jobs = {
        "bench": {"workload": "blogbench", "params": BENCH, "optional": True},
        "nap": {"operations": [{"sleep": "10ms"}]},
    }
    run = workspace.run(workspace.scenario(jobs=jobs))
    bench = next(row for row in run.document["treatments"] if row["treatment"]["job"] == "bench")
    assert "blogbench: not found" in bench["skipped"]
    assert "*** SKIPPED: engine=native job=bench (optional):" in run.out
    assert "optional treatment skipped: engine=native job=bench" in run.err
    assert " 0 failed, " in run.err
    assert " left out (optional)" in run.err


def test_a_run_that_skipped_every_treatment_is_no_success(workspace):
    """Where nothing at all was measured the exit code says so."""
    job = {"workload": "blogbench", "params": BENCH, "optional": True}
    assert "every treatment was skipped" in workspace.run(workspace.scenario(job=job), status=3).err
