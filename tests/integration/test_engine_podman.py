"""What is Podman's own: its private service, and images from Docker's store. Its verbs are in test_engine_docker."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest
from busybox_image import DockerBench, require_podman, skip_or_fail
from deadlines import ANSWER_S, START_S, wait_until
from workspace import Workspace

from bench_common.errors import EngineUnavailable
from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import EngineOptions, OperationFailed
from bench_worker.engines.docker.podman import PodmanEngine, PrivateService, is_listening

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("usable")]

HOLD = """
import sys
from bench_worker.engines.docker.podman import PrivateService
print(PrivateService().start(20), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def usable():
    return require_podman()


@pytest.fixture
def engine():
    made = PodmanEngine(EngineOptions(f"test-{uuid.uuid4().hex[:12]}", "w1", 2))
    made.open()
    yield made
    made.close()


def test_a_private_service_lives_as_long_as_it_is_needed():
    """It answers when `start` returns, and nothing of it is left after `end`."""
    service = PrivateService()
    address = service.start(20)
    folder = Path(address.removeprefix("unix://")).parent
    assert is_listening(address)
    service.end()
    assert not is_listening(address)
    assert not folder.exists()
    service.end()


def test_no_podman_starts_where_it_would_forget_the_containers_of_the_host(engine):
    """In a mount namespace with a /run of its own: live containers of the host would be "never started"."""
    if os.geteuid() != 0:
        skip_or_fail("a mount namespace needs root")
    del engine  # while it is open, a Podman runs on this host
    own = "mount -t tmpfs tmpfs /run && exec "
    words = shlex.join([sys.executable, "-m", "bench_master", "list", "engines", "--format", "json"])
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", own + words], capture_output=True, text=True, timeout=START_S, check=False
    )
    [found] = [one for one in json.loads(ended.stdout) if one["name"] == "podman"]
    assert not found["usable"]
    assert "Podman would forget the state of the containers that run on this host" in found["reason"]


def test_a_private_service_ends_with_whoever_started_it():
    """Also when that process is killed, and what it leaves in the file system goes with the next start."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = holder.stdout.readline().strip()
        assert is_listening(address)
        holder.send_signal(signal.SIGKILL)
        holder.wait(ANSWER_S)
        wait_until(lambda: not is_listening(address), ANSWER_S, "the end of the service")
    finally:
        holder.kill()
        holder.wait(ANSWER_S)
        holder.stdin.close()
        holder.stdout.close()
    service = PrivateService()
    service.start(20)
    service.end()
    assert not Path(address.removeprefix("unix://")).parent.exists()


def test_a_service_that_is_named_is_used(monkeypatch, image):
    """CONTAINER_HOST names one; it goes on when the engine is closed."""
    service = PrivateService()
    address = service.start(20)
    try:
        monkeypatch.setenv("CONTAINER_HOST", address)
        assert PodmanEngine.probe().endpoint == address
        bench = DockerBench(image, kind=PodmanEngine)
        container = bench.running("sleep", "100")
        bench.engine.remove(container, timeout_s=ANSWER_S)
        bench.close()
        assert is_listening(address)
    finally:
        service.end()


def test_an_unreachable_service_is_reported(monkeypatch, tmp_path):
    """With the address, and what to do."""
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{tmp_path}/none")
    status = PodmanEngine.probe()
    assert not status.usable
    assert f"{tmp_path}/none" in status.reason
    assert "Docker" not in status.reason + status.advice
    with pytest.raises(EngineUnavailable, match="podman"):
        PodmanEngine(EngineOptions("r", "w1", 1)).open()


def test_an_image_comes_from_dockers_store_and_only_once(engine, image):
    """It keeps its id on the way, and an image that neither store has is reported."""
    assert engine.missing(ContainerSettings(image=image)) == []
    first = engine._client.inspect_image(image)["Id"]
    assert engine.missing(ContainerSettings(image=image)) == []
    assert engine._client.inspect_image(image)["Id"] == first
    engine._client.remove_image(image, force=True)
    (reason,) = engine.missing(ContainerSettings(image="weighbridge-test/nothing:here"))
    assert "weighbridge-test/nothing:here" in reason
    assert "nor in Docker's" in reason


def test_a_service_that_is_killed_is_a_clear_failure(image):
    """Each verb fails as `unreachable`; only to remove what it has made does the engine start another service."""
    bench = DockerBench(image, kind=PodmanEngine)
    try:
        container = bench.running("sleep", "100")
        bench.engine._service.end()
        for verb in (bench.engine.pause, bench.engine.start):
            with pytest.raises(OperationFailed) as caught:
                verb(container, timeout_s=ANSWER_S)
            assert caught.value.kind == "unreachable"
        bench.engine.remove(container, timeout_s=ANSWER_S)
        bench.client = bench.engine._client
        assert bench.engine.leftovers(bench.run_id) == []
    finally:
        bench.close()


def test_containers_outlive_the_service_that_made_them(image):
    """They are Podman's, not the service's: the next engine finds what the last one left."""
    bench = DockerBench(image, kind=PodmanEngine)
    try:
        container = bench.running("sleep", "100")
        bench.engine.close()
        bench.engine.open()
        (left,) = bench.engine.leftovers(bench.run_id)
        assert (left.what, left.identity) == ("container", container.handle)
        bench.client = bench.engine._client
        assert bench.client.inspect_container(left.identity)["State"]["Running"]
    finally:
        bench.close()


def test_a_killed_agent_takes_the_service_along_and_nothing_is_left(engine, image, tmp_path):
    """Its load process goes on to remove what it made, by a service of its own; the jobs are retried."""
    with Workspace(tmp_path) as workspace:
        scenario = workspace.scenario(
            engines=["podman"],
            concurrency=2,
            iterations=5,
            job={"operations": ["run", "wait", "remove"]},
            container={"image": image, "network": "none", "command": ["sleep", "1"]},
        )
        program, stats = workspace.start_run(scenario, "--progress", "chars")
        # A job of a second and more; how much more is the machine's business.
        wait_until(lambda: re.search(r"^  [oO*]", program.err, re.MULTILINE), START_S, "the first job")
        master = psutil.Process(program.process.pid)
        (agent,) = [one for one in master.children() if "--control" in one.cmdline()]
        agent.kill()
        run = workspace.finish(program, stats)
        assert run.outcomes() == {"done": 10}
    wait_until(lambda: engine.leftovers(run.run_id) == [], START_S, "the removal of every container")
    engine._client.remove_image(image, force=True)
