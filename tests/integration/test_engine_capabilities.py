"""That capabilities are given to containers and taken from them, as programs find out that need one."""

import pytest
from busybox_image import DockerBench
from deadlines import ANSWER_S
from runtime_bench import FOREVER, RuntimeBench
from test_engine_oci import ENGINES as RUNTIMES
from test_engine_oci import require
from workspace import Workspace

from bench_common.requirements import CAPABILITIES_WITHHELD
from bench_common.treatment import GRANTABLE_CAPABILITIES
from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine

ENGINES = RUNTIMES | {engine.name: engine for engine in (DockerEngine, DockerCliEngine, PodmanEngine)}
OWNER = ("busybox", "chown", "1:1", "/plain")
"""Takes CHOWN, which every engine gives to root."""
ROOT = ("busybox", "chroot", "/", "/bin/true")
"""Takes SYS_CHROOT, which every engine gives, too."""
HURRY = ("busybox", "renice", "-n", "-5", "-p", "1")
"""Takes SYS_NICE, which none gives unasked."""


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


def able(bench, *commands, **settings):
    """Say which of these commands can do their work in a container with these settings, beside its own and as it."""
    made = bench.running(*FOREVER, **settings)
    done = [bench.engine.exec(made, command, timeout_s=ANSWER_S).exit_code == 0 for command in commands]
    bench.engine.remove(made, timeout_s=ANSWER_S)
    for command, beside in zip(commands, done, strict=True):
        made = bench.running(*command, **settings)
        assert (bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0) == beside
        bench.engine.remove(made, timeout_s=ANSWER_S)
    return done


def assert_empowered(bench):
    """What is taken is missing, what is given is there, and the rest is as it was."""
    commands = (OWNER, ROOT, HURRY)
    # In gVisor's kernel everybody may hurry, as it is no hurry of the host's.
    free = bench.engine.name == "runsc"
    assert able(bench, *commands) == [True, True, free]
    assert able(bench, *commands, cap_drop=("CHOWN",)) == [False, True, free]
    assert able(bench, *commands, cap_add=("SYS_NICE",)) == [True, True, True]
    assert able(bench, *commands, cap_drop=("ALL",), cap_add=("CHOWN",)) == [True, False, free]


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
