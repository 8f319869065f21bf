"""The operation `pull` on a real registry: what is fetched, what is taken away before, and what never is."""

import time

import docker
import pytest
from deadlines import ANSWER_S, wait_until
from private_registry import private_registry
from runtime_bench import FOREVER, RuntimeBench, failure, kind_of, require
from workspace import Workspace

from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.engine import ContainerdEngine
from bench_worker.engines.containerd.storage import IMAGES
from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine

pytestmark = pytest.mark.docker

ENGINES = {one.name: one for one in (DockerEngine, DockerCliEngine, PodmanEngine, ContainerdEngine)}
INSECURE = '[[registry]]\nlocation = "{address}"\ninsecure = true\n'


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with private_registry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(params=sorted(ENGINES))
def bench(request, registry, tmp_path, monkeypatch):
    engine = ENGINES[request.param]
    require(engine)
    if engine is PodmanEngine:
        # Docker takes the loopback for safe; Podman has to be told.
        (tmp_path / "registries.conf").write_text(INSECURE.format(address=registry.address))
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(tmp_path / "registries.conf"))
    made = RuntimeBench(engine, registry.image, {"network": "none"})
    yield made
    made.close()
    forget(made, registry.image)


def forget(bench, image):
    """Take an image off this host, whatever the test has left of it."""
    if isinstance(bench.engine, ContainerdEngine):
        bench.engine._api.calls(30).do_if_present(f"{IMAGES}Delete", messages.ImageRequest(name=image, sync=True))
        bench.engine.close()
        return
    bench.engine.open()
    try:
        bench.engine._client.remove_image(image, force=True)
    except docker.errors.NotFound:
        pass
    finally:
        bench.engine.close()


def pull(bench, container=None, *, fresh=False):
    """Pull the image for a container and return the operation."""
    return bench.engine.pull(container or bench.container(*FOREVER), fresh=fresh, timeout_s=ANSWER_S)


def test_what_is_pulled_is_what_a_container_is_made_of(bench, registry):
    """The image comes from the registry, once; asked for again it is there, and nothing is sent."""
    engine, life = bench.engine, bench.container("sh", "-c", "test -s /unique && exit 5")
    before = registry.layers_sent()
    done = pull(bench, life)
    assert 0 < done.start_ns < done.end_ns <= time.monotonic_ns()
    # It writes its log when an answer is out.
    wait_until(lambda: registry.layers_sent() == before + 1)
    pull(bench)
    assert registry.layers_sent() == before + 1
    engine.run(life, timeout_s=ANSWER_S)
    assert engine.wait(life, timeout_s=ANSWER_S).exit_code == 5
    engine.remove(life, timeout_s=ANSWER_S)


def test_fresh_transfers_all_of_it_each_time(bench, registry):
    """What is there is taken away before, outside of the stamps."""
    pull(bench, fresh=True)
    sent = registry.layers_sent()
    pull(bench, fresh=True)
    pull(bench, fresh=True)
    wait_until(lambda: registry.layers_sent() >= sent + 2)


def test_an_image_that_a_container_is_made_from_is_not_taken_away(bench):
    """Nothing is forced, be the container running or not: it stays, and so does the image."""
    engine, life = bench.engine, bench.container(*FOREVER)
    pull(bench, life)
    engine.create(life, timeout_s=ANSWER_S)
    assert kind_of(bench.engine.pull, bench.container(*FOREVER), fresh=True) == "conflict"
    engine.start(life, timeout_s=ANSWER_S)
    assert kind_of(bench.engine.pull, bench.container(*FOREVER), fresh=True) == "conflict"
    engine.remove(life, timeout_s=ANSWER_S)
    pull(bench, fresh=True)


def test_an_image_that_the_registry_has_not(bench, registry):
    """The error says that the image is missing, not that the engine broke."""
    unknown = bench.container(*FOREVER, image=f"{registry.address}/bench/nosuch:1")
    assert kind_of(bench.engine.pull, unknown, fresh=True) == "image-missing"
    assert kind_of(bench.engine.pull, bench.container(image=None), fresh=False) == "refused"


@pytest.mark.parametrize("engine", [DockerEngine, ContainerdEngine], ids=lambda engine: engine.name)
def test_a_registry_that_is_gone_costs_nobody_an_image(engine, tmp_path):
    """Before an image is taken away, the registry has to show that it can bring it back."""
    require(engine)
    with private_registry(tmp_path) as registry:
        bench = RuntimeBench(engine, registry.image, {"network": "none"})
        try:
            life = bench.container(*FOREVER)
            pull(bench, life)
            registry.end()
            for fresh in (False, True):
                assert kind_of(bench.engine.pull, bench.container(*FOREVER), fresh=fresh) == "unreachable"
            bench.engine.run(life, timeout_s=ANSWER_S)
        finally:
            bench.close()
            forget(bench, registry.image)


def test_an_image_with_another_name_or_from_no_registry_is_not_taken_away(registry):
    """Another container needs it; the reason says so."""
    require(DockerEngine)
    bench = RuntimeBench(DockerEngine, registry.image, {"network": "none"})
    client, other = bench.engine._client, f"weighbridge-test/other:{registry.image.rpartition(':')[2]}"
    try:
        pull(bench)
        client.tag(registry.image, *other.split(":"))
        refused = failure(bench.engine.pull, bench.container(*FOREVER), fresh=True)
        assert (refused.kind, other in str(refused)) == ("refused", True)
        client.remove_image(registry.image)
        refused = failure(bench.engine.pull, bench.container(*FOREVER, image=other), fresh=True)
        assert (refused.kind, "not pulled from a registry" in str(refused)) == ("refused", True)
        assert client.inspect_image(other)
    finally:
        client.remove_image(other, force=True)
        bench.close()
        forget(bench, registry.image)


def test_a_run_pulls_what_is_not_on_the_host(registry, tmp_path):
    """The image is not asked for before the run, each job fetches it, and the pull has a row of its own."""
    require(DockerEngine)
    job = {
        "operations": [{"pull": {"fresh": True}}, "run", "wait", "remove"],
        "container": {"image": registry.image, "command": ["true"], "network": "none"},
    }
    sent = registry.layers_sent()
    try:
        with Workspace(tmp_path) as workspace:
            run = workspace.run(workspace.scenario(engines=["docker"], job=job, iterations=2))
        assert run.outcomes() == {"done": 2}
        assert next(iter(run.document["treatments"][0]["operations"])) == "pull"
        wait_until(lambda: registry.layers_sent() == sent + 2)
    finally:
        client = docker.APIClient()
        client.remove_image(registry.image, force=True)
        client.close()
