"""Saving containers and letting them go on: where the machine can, that they do; where it cannot, that this is said.

CRIU works on few kernels, and gVisor saves itself on all of them; so each engine is held to what its status says.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from busybox_image import DockerBench
from deadlines import ANSWER_S, END_S, START_S, wait_until
from private_engine import private_engine
from runtime_bench import FOREVER, RuntimeBench, kind_of
from test_engine_oci import require
from workspace import Workspace

from bench_common.requirements import unsupported_features
from bench_common.treatment import ContainerSettings, Lifecycle, Operation, Treatment
from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine
from bench_worker.engines.oci.runtimes import CrunEngine, RuncEngine, RunscEngine

ENGINES = {engine.name: engine for engine in (RuncEngine, CrunEngine, RunscEngine, PodmanEngine)}
ABLE_CRUN = Path("/usr/local/lib/weighbridge-criu/bin/crun")
"""A crun that was built with CRIU, as few distributions build it; `script/engines criu` brings it."""
SWEPT_S = 3
"""By when containerd has deleted what nobody refers to any more."""
COUNTING = ("sh", "-c", "trap 'exit 7' TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done")


@pytest.fixture(
    params=["crun", *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(ENGINES) if name != "crun")]
)
def engine(request, monkeypatch):
    if request.param == "crun" and ABLE_CRUN.exists():
        monkeypatch.setenv("PATH", f"{ABLE_CRUN.parent}:{os.environ['PATH']}")
    require(ENGINES[request.param])
    return ENGINES[request.param]


def opened(engine, image):
    """Return an opened engine that has the image."""
    if issubclass(engine, DockerEngine):
        return DockerBench(image, kind=engine)
    return RuntimeBench(engine, image, {"network": "none"})


def printed(bench, container):
    """Return the numbers that a counting container has printed so far."""
    text = bench.engine.logs(container, limit_bytes=1 << 20, timeout_s=ANSWER_S).stdout
    return [int(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def saves(engine):
    """Say whether an engine can save containers here, as it has to in CI; where it cannot, it says why."""
    status = engine.probe()
    if {"checkpoint", "restore"} <= set(status.operations):
        return True
    treatment = Treatment(
        0, {}, None, engine.name, Lifecycle((Operation("checkpoint", "checkpoint"),)), ContainerSettings(image="i")
    )
    if os.environ.get("CI") == "true" and (engine is not CrunEngine or ABLE_CRUN.exists()):
        pytest.fail(f"engine {engine.name} cannot save containers: {status.details['operation.checkpoint']}")
    plain = {"name": status.name, "usable": True, "operations": status.operations, "settings": ["image"]}
    [reason] = unsupported_features({**plain, "details": status.details}, treatment)
    assert "CRIU" in reason or "criu" in reason
    return False


def save_and_go_on(engine, image):
    """Save a container twice and see that its memory, output, exit code and name are those that it had."""
    bench = opened(engine, image)
    try:
        life = bench.running(*COUNTING)
        for _ in range(2):
            wait_until(lambda: len(printed(bench, life)) > 3)
            bench.engine.checkpoint(life, timeout_s=START_S)
            before = printed(bench, life)
            assert kind_of(bench.engine.exec, life, ("true",)) in {"conflict", "not-found", "engine"}
            assert printed(bench, life) == before
            if type(bench.engine) in {DockerEngine, DockerCliEngine}:
                # It hands the state to containerd, which may still have it from saving, and does not expect that.
                time.sleep(SWEPT_S)
            bench.engine.restore(life, timeout_s=START_S)
            wait_until(lambda last=before[-1]: printed(bench, life)[-1] > last + 3)
            numbers = printed(bench, life)
            assert numbers == list(range(1, len(numbers) + 1))
            assert bench.engine.exec(life, ("true",), timeout_s=ANSWER_S).exit_code == 0
        bench.engine.stop(life, grace_s=10, timeout_s=ANSWER_S)
        assert bench.engine.wait(life, timeout_s=ANSWER_S).exit_code == 7
        assert kind_of(bench.engine.checkpoint, life) == "conflict"
        bench.engine.remove(life, timeout_s=ANSWER_S)
        assert bench.engine.leftovers(bench.run_id) == []
    finally:
        bench.close()


def test_a_saved_container_goes_on_where_it_was(engine, image):
    """As often as it is saved."""
    if saves(engine):
        save_and_go_on(engine, image)


@pytest.mark.slow
@pytest.mark.docker
def test_docker_saves_containers_where_it_is_asked_to_have_experimental_features(monkeypatch):
    """The usual daemon says that it has none; one that has them saves, by both ways to it, where CRIU can."""
    with private_engine(monkeypatch, experimental=True) as (daemon, image):
        # It has a network of its own, in which CRIU wants to find a loopback.
        pid = (daemon.folder / "docker.pid").read_text()
        subprocess.run(["nsenter", "-t", pid, "-n", "ip", "link", "set", "lo", "up"], check=True, timeout=END_S)
        for engine in (DockerEngine, DockerCliEngine):
            if saves(engine):
                save_and_go_on(engine, image)


def test_what_is_saved_can_be_removed(engine, image):
    """Also when nobody lets it go on, and also as a leftover."""
    if not saves(engine):
        return
    bench = opened(engine, image)
    try:
        lives = [bench.running(*FOREVER) for _ in range(2)]
        for life in lives:
            bench.engine.checkpoint(life, timeout_s=START_S)
        bench.engine.remove(lives[0], timeout_s=ANSWER_S)
        [leftover] = bench.engine.leftovers(bench.run_id)
        bench.engine.discard(leftover)
        assert bench.engine.leftovers(bench.run_id) == []
    finally:
        bench.close()


def test_a_run_saves_its_containers_or_is_refused_before_it_begins(engine, image, tmp_path):
    """Nothing is found out halfway: exit code 2 and the reason, or rows for both operations."""
    job = {
        "operations": ["run", "checkpoint", "restore", "remove"],
        "container": {"image": image, "command": FOREVER, "network": "none"},
    }
    able = saves(engine)
    with Workspace(tmp_path) as workspace:
        # gVisor's sandbox runs as nobody in a folder below it, and a test's own is closed to others.
        del workspace.environ["TMPDIR"]
        scenario = workspace.scenario(engines=[engine.name], job=json.loads(json.dumps(job)), iterations=2)
        if able:
            run = workspace.run(scenario)
            assert run.outcomes() == {"done": 2}
            assert {"checkpoint", "restore"} <= set(run.document["treatments"][0]["operations"])
        else:
            program, stats = workspace.start_run(scenario)
            ended = program.wait_for_exit()
            assert ended.status == 2
            assert "cannot do the operation 'checkpoint': " in ended.err
            assert not stats.exists() or not workspace.finish(program, stats, 2).jobs
    if engine is PodmanEngine:
        # The run has copied the image into its store.
        opened(engine, image).close()
