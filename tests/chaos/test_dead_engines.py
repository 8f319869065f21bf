"""A Docker Engine that dies, comes back, or has no room left: a clear outcome each time, no leftover and no hang."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import docker
import pytest
from busybox_image import DockerBench, import_image, remove_image, require_docker
from deadlines import ANSWER_S, BUILD_S, END_S, LONG_END_S, LONG_TEST_S, START_S, wait_until
from private_engine import PrivateEngine, private_engine
from workspace import containers_of, skip_or_fail

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import EngineOptions
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import is_listening

pytestmark = pytest.mark.docker

NOTICE = "does not answer; its jobs wait until it does"
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


def await_jobs(program, count):
    """Wait until so many jobs have ended, one way or the other."""

    def shown():
        lines = re.findall(r"^  ([.oO*XLA-]+)$", program.err, re.MULTILINE)
        return sum(len(line.replace("-", "")) for line in lines) >= count or program.process.poll() is not None

    wait_until(shown, START_S, f"{count} jobs")
    assert program.process.poll() is None, program.err


def kinds(run):
    """Return the kinds of a run's failures, each with the words of one of them."""
    return {job["error"]["kind"]: job["error"] for job in run.jobs if job["outcome"] == "failed"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_daemon_that_is_killed_pauses_the_run_which_can_be_ended(workspace, monkeypatch, engine):
    """Only the jobs under way fail, the rest wait and are aborted; once it is back what it had left is removed."""
    with private_engine(monkeypatch) as (daemon, image):
        program, stats = start(workspace, lives(image, engine))
        await_jobs(program, 4)
        daemon.kill()
        wait_until(lambda: NOTICE in program.err, START_S, "the notice")
        program.process.terminate()
        ended = program.wait_for_exit(END_S)
        assert ended.status == 130
        assert "Traceback" not in ended.err
        run = workspace.finish(program, stats, ended.status)
        outcomes = run.outcomes()
        assert outcomes["done"] >= 2
        assert outcomes.get("failed", 0) <= 2, kinds(run)
        assert kinds(run).keys() <= {"unreachable"}, kinds(run)
        daemon.start()
        client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
        try:
            swept = workspace.master("cleanup-containers", "--run", run.run_id)
            assert swept.status == 0, swept.err
            assert containers_of(client, run.run_id) == []
        finally:
            client.close()


@pytest.mark.slow
def test_a_daemon_that_never_comes_back_fails_what_is_left_and_ends_the_run(workspace, monkeypatch):
    """Jobs wait as long as one may take at most; then each has its outcome, and the reason is the daemon."""
    with private_engine(monkeypatch) as (daemon, image):
        program, stats = start(workspace, lives(image, "docker") | {"timeout": "2s"})
        await_jobs(program, 4)
        daemon.kill()
        run = workspace.finish(program, stats, 3, LONG_END_S)
        assert run.outcomes()["done"] + run.outcomes()["failed"] == 16
        assert kinds(run).keys() == {"unreachable"}, kinds(run)
        assert "longer than a job may take; jobs go on and fail" in run.err


@pytest.mark.parametrize("engine", ENGINES)
def test_a_daemon_that_is_restarted_costs_the_jobs_under_way_and_no_others(workspace, monkeypatch, engine):
    """The others wait for it, the run does all of them, and the report marks the trial with from when to when."""
    with private_engine(monkeypatch) as (daemon, image):
        program, stats = start(workspace, lives(image, engine, iterations=10, seconds="0.2"))
        await_jobs(program, 4)
        daemon.stop()
        wait_until(lambda: NOTICE in program.err, START_S, "the notice")
        time.sleep(2)  # many jobs would fail in that time
        daemon.start()
        run = workspace.finish(program, stats)
        outcomes = run.outcomes()
        assert outcomes["done"] + outcomes.get("failed", 0) == 20
        assert outcomes.get("failed", 0) <= 2, kinds(run)
        assert "internal" not in kinds(run)
        assert "answers again after" in run.err
        (entry,) = run.document["treatments"]
        assert "engine-unreachable" in {one["kind"] for one in entry["disturbances"]}
        client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
        try:
            # A removal that the engine has begun it ends by itself, soon after.
            wait_until(lambda: containers_of(client, run.run_id) == [], START_S, "the removal of every container")
        finally:
            client.close()


class PrivateContainerd:
    """A containerd with its own data and socket below a short path; its shims outlive it, as those of any."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.address = f"{folder}/c.sock"
        lines = [
            "version = 2",
            f'root = "{folder}/root"',
            f'state = "{folder}/state"',
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]',
            f'[grpc]\naddress = "{self.address}"',
        ]
        (self.folder / "config.toml").write_text("\n".join(lines))
        self._process = None

    def start(self):
        """Start it; somebody listens at its socket when this returns."""
        command = ["containerd", "--config", f"{self.folder}/config.toml"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: is_listening(f"unix://{self.address}"), START_S, "containerd's socket")

    def stop(self):
        """End it as systemd would."""
        self._process.terminate()
        self._process.wait(ANSWER_S)

    def kill(self):
        """Kill it, with its socket left behind."""
        self._process.kill()
        self._process.wait(ANSWER_S)

    def close(self):
        """End it with all that it has started, and unmount what it has mounted."""
        self.kill()
        PrivateEngine.close(self)

    def _script(self, *_words):
        """Nothing has to be stopped by a script."""


def test_a_containerd_that_is_restarted_costs_the_jobs_under_way_and_no_others(workspace, monkeypatch):
    """Connections that it has closed are not used again; what the failed jobs left is removed with it back."""
    require_docker()
    if os.geteuid() != 0 or shutil.which("containerd") is None:
        skip_or_fail("starting a containerd takes root and containerd (apt-get install containerd)")
    image = import_image()
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        daemon = PrivateContainerd(folder)
        workspace.environ["CONTAINERD_ADDRESS"] = daemon.address
        daemon.start()
        try:
            scenario = lives(image, "containerd", iterations=10, seconds="0.3")
            scenario["job"]["container"].pop("network")
            program, stats = start(workspace, scenario)
            await_jobs(program, 4)
            daemon.stop()
            wait_until(lambda: NOTICE in program.err, START_S, "the notice")
            time.sleep(2)
            daemon.start()
            run = workspace.finish(program, stats)
            outcomes = run.outcomes()
            assert outcomes["done"] + outcomes.get("failed", 0) == 20
            assert outcomes.get("failed", 0) <= 2, kinds(run)
            assert "answers again after" in run.err
            (entry,) = run.document["treatments"]
            assert "engine-unreachable" in {one["kind"] for one in entry["disturbances"]}
        finally:
            daemon.close()


@pytest.fixture
def small_disk():
    """A folder with a short path on a file system of 64 MiB."""
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, timeout=END_S, check=False).returncode:
            skip_or_fail("a tmpfs can be mounted by root only")
        yield Path(folder)
        subprocess.run(["umount", "-l", folder], capture_output=True, timeout=END_S, check=True)


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
