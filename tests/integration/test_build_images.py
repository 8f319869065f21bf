"""build-images against the real Docker Engine and the real package mirror."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid

import docker
import docker.errors
import pytest
from busybox_image import skip_or_fail
from deadlines import BUILD_S, END_S, LONG_TEST_S, START_S

from bench_worker.engines.docker.images import DockerImages

pytestmark = [pytest.mark.docker, pytest.mark.timeout(LONG_TEST_S)]


@pytest.fixture(scope="module")
def engine():
    """The Docker Engine; in CI its absence is a failure."""
    try:
        client = docker.from_env(timeout=START_S)
        client.ping()
    except docker.errors.DockerException as error:
        skip_or_fail(f"no Docker Engine answers: {error}")
    yield client
    client.close()


def bench_master(*argv):
    command = [sys.executable, "-m", "bench_master", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)


@pytest.fixture(scope="module")
def built(engine):
    """Both images, made if this machine lacks them."""
    done = bench_master("build-images", "sysbench")
    assert done.returncode == 0, done.stderr
    return done


def test_the_images_are_there_with_their_labels(engine, built):
    """After build-images both images exist, marked as ours, with no label of a run."""
    for name in ("weighbridge/base", "weighbridge/sysbench"):
        labels = engine.images.get(name).labels
        assert labels["weighbridge.image"] == "1"
        assert len(labels["weighbridge.recipe"]) == 64
        assert "weighbridge.run" not in labels


def test_a_second_run_builds_nothing(engine, built):
    """An image that is up to date is reported as such, and keeps its id."""
    before = engine.images.get("weighbridge/sysbench").id
    again = bench_master("build-images", "sysbench")
    assert again.returncode == 0
    assert [line.split()[1] for line in again.stdout.splitlines()] == ["cached", "cached"]
    assert engine.images.get("weighbridge/sysbench").id == before


def test_the_image_runs_the_tool(engine, built):
    """The sysbench in the image is one whose output the parser knows."""
    output = engine.containers.run(
        "weighbridge/sysbench",
        ["sysbench", "cpu", "--cpu-max-prime=100", "--time=1", "--events=10", "run"],
        remove=True,
        network_mode="none",
        name=f"weighbridge-test-images-{uuid.uuid4().hex[:8]}",
    )
    from bench_workloads.sysbench_cpu import SysbenchCpu

    assert SysbenchCpu().parse(output.decode())["total_events"] == 10


def test_a_dry_run_says_what_is_there(built):
    """With everything up to date a dry run has nothing to build."""
    done = bench_master("build-images", "--dry-run", "sysbench")
    assert done.returncode == 0
    assert "would build" not in done.stdout


def test_an_unknown_image_is_a_usage_error():
    """A misspelt name ends with exit code 2 and the right spelling, before any engine is asked."""
    done = bench_master("build-images", "sysbnech")
    assert done.returncode == 2
    assert "did you mean 'sysbench'?" in done.stderr


def test_no_engine_is_broken_infrastructure():
    """If no engine answers, the exit code is 3 and the message says how to get one."""
    command = [sys.executable, "-m", "bench_master", "build-images"]
    environment = {**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=END_S, check=False)
    assert done.returncode == 3
    assert "script/docker-engine start" in done.stderr


def test_a_proxy_leaves_no_trace_in_an_image(engine, built, tmp_path):
    """The address of a proxy reaches the build and is found nowhere in the image."""
    seen = 'case "$http_proxy" in http://u:*@proxy.test) ;; *) exit 1 ;; esac'
    (tmp_path / "Dockerfile").write_text(f"FROM weighbridge/base\nRUN {seen}\n")
    image = f"weighbridge-test-images/{uuid.uuid4().hex[:8]}"
    store = DockerImages()
    try:
        store.build(
            tmp_path,
            image,
            labels={},
            arguments={"http_proxy": "http://u:s3cret@proxy.test"},
            progress=lambda line: None,
        )
        made = engine.images.get(image)
        assert "s3cret" not in str(made.history())
        assert "s3cret" not in str(made.attrs)
    finally:
        store.close()
        with contextlib.suppress(docker.errors.ImageNotFound):
            engine.images.remove(image, force=True)
