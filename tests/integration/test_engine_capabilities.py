"""That capabilities are given to containers and taken from them, as programs find out that need one."""

import pytest
from busybox_image import DockerBench
from runtime_bench import ENGINES as RUNTIMES
from runtime_bench import FOREVER, RuntimeBench, assert_empowered, require
from workspace import Workspace

from bench_common.requirements import CAPABILITIES_WITHHELD
from bench_common.treatment import GRANTABLE_CAPABILITIES
from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine

ENGINES = RUNTIMES | {engine.name: engine for engine in (DockerEngine, DockerCliEngine, PodmanEngine)}
SOME = [
    name if name in ("containerd", "crun", "docker") else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(ENGINES)
]
"""One of each kind; the others have their code from one of these."""


@pytest.fixture(params=SOME)
def bench(request, image):
    engine = ENGINES[request.param]
    require(engine)
    made = DockerBench(image, kind=engine) if issubclass(engine, DockerEngine) else RuntimeBench(engine, image)
    yield made
    made.close()


def test_capabilities_are_given_and_taken(bench):
    """By each engine in its own way."""
    assert_empowered(bench)


@pytest.mark.parametrize("name", SOME)
def test_an_unavailable_feature_is_refused_before_anything_runs(name, image, tmp_path):
    """With the capability's name; where the machine has all of them there is nothing to refuse."""
    require(ENGINES[name])
    withheld = ENGINES[name].probe().details[CAPABILITIES_WITHHELD].split()
    lacking = [capability for capability in GRANTABLE_CAPABILITIES if capability in withheld]
    if not lacking:
        return
    container = {"image": image, "command": FOREVER, "network": "none", "cap_add": lacking[:1]}
    with Workspace(tmp_path) as workspace:
        job = {"operations": ["run", "remove"], "container": container}
        program, _ = workspace.start_run(workspace.scenario(engines=[name], job=job))
        ended = program.wait_for_exit()
        assert ended.status == 2
        assert f"cap_add={lacking[0]}" in ended.err
