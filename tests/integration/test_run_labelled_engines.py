"""Whole runs under labels: two programs of one runtime, two Docker Engines, a worker that offers a label."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import docker
import pytest
from deadlines import ANSWER_S, LONG_END_S
from private_engine import PrivateEngine
from rootless_podman import rootless_podman
from runtime_bench import require
from workspace import Workspace

from bench_worker.engines.oci.runtimes import CrunEngine

LIFE = {"operations": ["run", {"exec": ["/bin/true"]}, "kill", "remove"]}


@pytest.fixture
def other_crun(tmp_path):
    """Another file with the distribution's crun, called otherwise and with a digest of its own."""
    require(CrunEngine)
    place = tmp_path / "opt" / "crun-of-mine"
    place.parent.mkdir()
    shutil.copyfile(shutil.which("crun"), place)
    with place.open("ab") as file:
        file.write(b"\n")
    place.chmod(0o755)
    return place


def docker_image_id(image):
    client = docker.APIClient(timeout=ANSWER_S)
    try:
        return client.inspect_image(image)["Id"].removeprefix("sha256:")
    finally:
        client.close()


def life_of(image):
    return {**LIFE, "container": {"image": image, "command": ["sleep", "600"], "network": "none"}}


def test_two_programs_of_one_runtime_are_compared(image, other_crun, tmp_path):
    """Each is run by its own program, which the report knows to the byte; a label needs its place again."""
    label = f"mine=crun:{other_crun}"
    with Workspace(tmp_path) as workspace:
        scenario = workspace.scenario(engines=["crun", "mine"], job=life_of(image), repeats=6, seed=1)
        unknown = workspace.master("validate-scenario", "-f", scenario)
        assert unknown.status == 2
        assert "unknown engine 'mine'" in unknown.err
        assert workspace.master("validate-scenario", "-f", scenario, "--engine", label).status == 0
        run = workspace.run(scenario, "--engine", label, seconds=LONG_END_S)
        assert run.outcomes() == {"done": 12}
        assert '"mine"' in json.dumps(run.document["verdicts"])
        [host] = run.document["hosts"]
        assert host["programs"]["mine"] == {
            "program": str(other_crun),
            "sha256": hashlib.sha256(other_crun.read_bytes()).hexdigest(),
            f"image {image}": docker_image_id(image),
        }
        assert host["programs"]["crun"][f"image {image}"] == docker_image_id(image)
        assert host["programs"]["crun"]["program"] == shutil.which("crun")
        assert host["engines"]["mine"] == host["engines"]["crun"]
        digest = host["programs"]["mine"]["sha256"]
        assert f"sha256 {digest[:12]})" in run.details
        again = workspace.master("run-scenario", "-f", scenario, "--engine", "mine=crun", "--seed", "1")
        assert again.status == 2
        assert "engine 'mine' has no place for the workers of this host: --engine mine=crun:PLACE" in again.err


def test_what_a_run_left_under_a_label_is_found_without_the_option(image, other_crun, tmp_path):
    """The record of use has the program."""
    with Workspace(tmp_path) as workspace:
        scenario = workspace.scenario(engines=["mine"], job={**life_of(image), "operations": ["run"]})
        with workspace.kept_run(scenario, "--keep", "--engine", f"mine=crun:{other_crun}") as run:
            before = workspace.master("cleanup-containers", "--run", run.run_id, "--dry-run")
            swept = workspace.master("cleanup-containers", "--run", run.run_id)
            after = workspace.master("cleanup-containers", "--run", run.run_id, "--dry-run")
        assert (before.status, swept.status, after.status) == (0, 0, 0)
        assert run.run_id in before.out
        assert run.run_id not in after.out


def test_a_worker_offers_a_label_by_itself(image, other_crun, tmp_path):
    """The master needs to know which engine it is, and nothing of its program."""
    with Workspace(tmp_path) as workspace:
        scenario = workspace.scenario(engines=["mine"], job=life_of(image))
        program, stats = workspace.start_run(scenario, "--expect", "1", "--engine", "mine=crun", workers=0)
        worker = workspace.start("bench-worker", "--once", "--engine", f"mine=crun:{other_crun}")
        run = workspace.finish(program, stats, seconds=LONG_END_S)
        assert worker.wait_for_exit().status == 0
        assert run.outcomes() == {"done": 1}
        assert run.document["hosts"][0]["programs"]["mine"]["program"] == str(other_crun)


def test_two_docker_engines_in_one_run(image, tmp_path):
    """The second one gets the image from the first, and each has its own containers."""
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        second = PrivateEngine(folder)
        label = f"second=docker:{second.address}"
        try:
            second.start()
            client = docker.APIClient(base_url=second.address, timeout=ANSWER_S)
            with Workspace(tmp_path) as workspace:
                scenario = workspace.scenario(engines=["docker", "second"], job=life_of(image), iterations=2)
                run = workspace.run(scenario, "--engine", label, seconds=LONG_END_S)
                assert run.outcomes() == {"done": 4}
                digest = client.inspect_image(image)["Id"].removeprefix("sha256:")
                [host] = run.document["hosts"]
                assert host["programs"]["second"][f"image {image}"] == digest
                assert host["programs"]["second"]["storage_driver"] == client.info()["Driver"]
                assert client.containers(all=True) == []
                listed = workspace.master("list", "engines", "--engine", label, "--format", "json")
            client.close()
        finally:
            second.close()
    found = {one["name"]: one for one in json.loads(listed.out)}
    assert (found["second"]["kind"], found["second"]["endpoint"]) == ("docker", second.address)
    assert found["second"]["details"]["sha256"] == found["docker"]["details"]["sha256"]
    assert found["crun"]["details"]["program"] == shutil.which("crun")


def test_a_rootless_engine_stands_beside_the_rootful_one(image, tmp_path):
    """It gets the image from the host's store and does every job; its containers are in its own store, and go."""
    with rootless_podman() as address, Workspace(tmp_path) as workspace:
        label = f"rootless=podman:{address}"
        scenario = workspace.scenario(engines=["podman", "rootless"], job=life_of(image), repeats=2, seed=1)
        run = workspace.run(scenario, "--engine", label, seconds=LONG_END_S)
        client = docker.APIClient(base_url=address, timeout=ANSWER_S)
        left, info = client.containers(all=True), client.info()
        client.close()
    assert run.outcomes() == {"done": 4}
    assert left == []
    assert Path(info["DockerRootDir"]).is_relative_to(Path(address.removeprefix("unix://")).parents[1] / "home")
    [host] = run.document["hosts"]
    assert host["programs"]["rootless"]["program"] == host["programs"]["podman"]["program"]
    assert host["programs"]["rootless"][f"image {image}"] == host["programs"]["podman"][f"image {image}"]
    [row] = run.document["verdicts"]["comparisons"]
    assert (row["a"], row["b"], row["rounds"]) == ("engine=podman", "engine=rootless", 2)
