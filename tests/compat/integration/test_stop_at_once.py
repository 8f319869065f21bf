"""`stop` with a grace period of 0: one SIGKILL and no other signal, as the engine itself is asked or tells."""

import os
import shutil
import time

import docker
import pytest
from busybox_image import DockerBench
from deadlines import ANSWER_S
from runtime_bench import RuntimeBench, require

from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.oci.runtimes import CrunEngine, RuncEngine

DEAF = ("sh", "-c", "trap '' TERM; while :; do sleep 0.02; done")
"""It ignores SIGTERM: whatever ends it at once is SIGKILL."""
RECORDING = '#!/bin/sh\necho "$@" >> {calls}\nexec {program} "$@"\n'


def stop_at_once(bench):
    """Stop a container that runs, and one that has ended by itself; return the first one's name."""
    deaf = bench.running(*DEAF)
    bench.engine.stop(deaf, grace_s=0, timeout_s=ANSWER_S)
    assert bench.engine.wait(deaf, timeout_s=ANSWER_S).exit_code == 137
    over = bench.running("true")
    bench.engine.wait(over, timeout_s=ANSWER_S)
    bench.engine.stop(over, grace_s=0, timeout_s=ANSWER_S)
    for made in (deaf, over):
        bench.engine.remove(made, timeout_s=ANSWER_S)
    return deaf.name


@pytest.mark.parametrize("kind", [RuncEngine, CrunEngine], ids=lambda kind: kind.name)
def test_a_runtime_is_started_once_for_it(image, tmp_path, monkeypatch, kind):
    """Three runtime processes for a life cycle of run, stop and remove: as many as bucketbench starts."""
    require(kind)
    program, calls = tmp_path / kind.name, tmp_path / "calls"
    program.write_text(
        RECORDING.format(calls=calls, program=shutil.which(kind.name, path=f"{os.environ['PATH']}:/usr/sbin"))
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    bench = RuntimeBench(kind, image)
    try:
        name = stop_at_once(bench)
    finally:
        bench.close()
    lines = [line.split() for line in calls.read_text().splitlines()]
    commands = [next(word for word in line if word in {"run", "kill", "delete"}) for line in lines if name in line]
    assert commands == ["run", "kill", "delete"]
    assert [line[-1] for line in lines if "kill" in line] == ["KILL"]


@pytest.mark.parametrize("kind", [DockerEngine, DockerCliEngine], ids=lambda kind: kind.name)
def test_docker_tells_of_one_signal(image, kind):
    """Its own events have SIGKILL alone; a `docker stop -t 0` would send SIGTERM before."""
    began = int(time.time()) - 1
    bench = DockerBench(image, kind=kind)
    try:
        name = stop_at_once(bench)
        client = docker.APIClient(timeout=ANSWER_S)
        filters = {"event": "kill", "type": "container"}
        told = client.events(since=began, until=int(time.time()) + 1, filters=filters, decode=True)
        signals = [event["Actor"]["Attributes"]["signal"] for event in told if name in str(event)]
        client.close()
    finally:
        bench.close()
    assert signals == ["9"]
