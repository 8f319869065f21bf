"""A Docker Engine that dies, comes back, or has no room left: a clear outcome each time, no leftover and no hang."""

import os
import re
import tempfile
from pathlib import Path

import docker
import pytest
from busybox_image import DockerBench, import_image, remove_image, require_docker
from deadlines import ANSWER_S, BUILD_S, LONG_END_S, LONG_TEST_S, START_S, wait_until
from private_engine import PrivateEngine, private_engine
from small_disk import mounted_disk
from workspace import containers_of

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import EngineOptions
from bench_worker.engines.docker.engine import DockerEngine

pytestmark = pytest.mark.docker

ENGINES = ("docker", pytest.param("docker-cli", marks=pytest.mark.slow))


def lives(image, engine, *, iterations=8, concurrency=2, seconds="0.5"):
    """Return a scenario of life cycles, at most 16 and two at a time unless more are asked for."""
    return {
        "engines": [engine],
        "allow_failures": True,
        "concurrency": concurrency,
        "iterations": iterations,
        "timeout": f"{ANSWER_S:g}s",
        "job": {
            "operations": ["run", "wait", "remove"],
            "container": {"image": image, "command": ["sleep", seconds], "network": "none"},
        },
    }


def start(workspace, scenario):
    """Start a run with the engine that DOCKER_HOST names by now."""
    workspace.environ["DOCKER_HOST"] = os.environ.get("DOCKER_HOST", "")
    return workspace.start_run(workspace.scenario(**scenario), "--progress", "chars")


def await_jobs(program, count, signs=".oO*XLA"):
    """Wait until so many jobs have ended with one of these signs: one way or the other, or X, failed."""

    def shown():
        lines = re.findall(r"^  ([.oO*XLA-]+)$", program.err, re.MULTILINE)
        ended = sum(sign in signs for line in lines for sign in line)
        return ended >= count or program.process.poll() is not None

    wait_until(shown, START_S, f"{count} jobs")
    assert program.process.poll() is None, program.err


def kinds(run):
    """Return the kinds of a run's failures, each with the words of one of them."""
    return {job["error"]["kind"]: job["error"] for job in run.jobs if job["outcome"] == "failed"}


def assert_the_end_was_done(run, count):
    """Assert that each of so many jobs was done or failed by its engine, and that the last one was done."""
    outcomes = run.outcomes()
    assert outcomes["done"] + outcomes["failed"] == count
    # A daemon that ends says so in many words.
    assert {"unreachable"} <= kinds(run).keys() <= {"unreachable", "engine"}, kinds(run)
    assert max(run.jobs, key=lambda job: job["start_s"])["outcome"] == "done"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_daemon_that_never_comes_back_fails_what_is_left_and_ends_the_run(workspace, monkeypatch, engine):
    """Each job has its outcome, and the reason is the daemon; what it holds can be removed when it is back."""
    with private_engine(monkeypatch) as (daemon, image):
        program, stats = start(workspace, lives(image, engine))
        await_jobs(program, 4)
        daemon.kill()
        run = workspace.finish(program, stats, 3, LONG_END_S)
        assert run.outcomes()["done"] + run.outcomes()["failed"] == 16
        assert kinds(run).keys() == {"unreachable"}, kinds(run)
        daemon.start()
        client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
        try:
            swept = workspace.master("cleanup-containers", "--run", run.run_id)
            assert swept.status == 0, swept.err
            assert containers_of(client, run.run_id) == []
        finally:
            client.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_daemon_that_is_restarted_fails_jobs_until_it_is_back(workspace, monkeypatch, engine):
    """The run goes on to its end, and nothing is left of it."""
    with private_engine(monkeypatch) as (daemon, image):
        program, stats = start(workspace, lives(image, engine, iterations=50, seconds="0.1"))
        await_jobs(program, 4)
        daemon.stop()
        await_jobs(program, 1, "X")
        daemon.start()
        run = workspace.finish(program, stats, 0, LONG_END_S)
        assert_the_end_was_done(run, 100)
        client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
        try:
            # A removal that the engine has begun it ends by itself, soon after.
            wait_until(lambda: containers_of(client, run.run_id) == [], START_S, "the removal of every container")
        finally:
            client.close()


@pytest.fixture
def small_disk():
    """A folder with a short path on a file system of 64 MiB."""
    temporary = tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True)
    with temporary as folder, mounted_disk(Path(folder), "64m") as disk:
        yield disk


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_disk_is_reported_as_such(workspace, monkeypatch, small_disk, engine):
    """With the engine's disk full, every job fails as `disk-full`, and nothing is left when there is room."""
    daemon = PrivateEngine(small_disk)
    monkeypatch.setenv("DOCKER_HOST", daemon.address)
    try:
        daemon.start()
        image = import_image()
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 12))
            except OSError:
                pass
        program, stats = start(workspace, lives(image, engine, iterations=2))
        run = workspace.finish(program, stats, 3)
        assert run.outcomes() == {"failed": 4}
        assert kinds(run).keys() == {"disk-full"}, kinds(run)
        ballast.unlink()
        client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
        try:
            assert containers_of(client, run.run_id) == []
        finally:
            client.close()
    finally:
        daemon.close()


def test_a_registered_runtime_is_used_and_another_is_missing(monkeypatch):
    """`runtime` is any that the daemon knows by name: here a second name of runc."""
    runc = next(path for path in ("/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc") if Path(path).exists())
    with private_engine(monkeypatch, runtimes={"second": {"path": runc}}) as (_, image):
        bench = DockerBench(image)
        try:
            container = bench.running("sleep", "100", runtime="second")
            assert bench.client.inspect_container(container.handle)["HostConfig"]["Runtime"] == "second"
            assert bench.engine.missing(ContainerSettings(image=image, runtime="second")) == []
            (reason,) = bench.engine.missing(ContainerSettings(image=image, runtime="secnod"))
            assert "did you mean 'second'?" in reason
        finally:
            bench.close()


@pytest.mark.slow
@pytest.mark.timeout(LONG_TEST_S)
def test_a_hundred_containers_at_once(workspace):
    """All hundred are made, end and are removed; a stranger's container on the same daemon is never touched."""
    require_docker()
    image = import_image()
    engine = DockerEngine(EngineOptions("", "", 1))
    engine.open()
    client = engine._client
    stranger = client.create_container(
        image, ["sleep", "600"], host_config=client.create_host_config(network_mode="none")
    )["Id"]
    try:
        client.start(stranger)
        scenario = lives(image, "docker", iterations=1, concurrency=100, seconds="5") | {"timeout": "300s"}
        program, stats = start(workspace, scenario)
        run = workspace.finish(program, stats, 0, BUILD_S)
        assert run.outcomes() == {"done": 100}
        assert containers_of(client, run.run_id) == []
        assert client.inspect_container(stranger)["State"]["Running"]
    finally:
        client.remove_container(stranger, force=True)
        engine.close()
        remove_image(image)
