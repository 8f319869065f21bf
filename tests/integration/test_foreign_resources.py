"""Volumes and networks that somebody else made are not a scenario's, unless the user allows it: real engines."""

import uuid

import pytest
from busybox_image import DockerBench, require_podman
from deadlines import ANSWER_S
from msgspec.structs import replace
from workspace import require_images

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import RUN_LABEL, OperationFailed
from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine

pytestmark = pytest.mark.docker

KINDS = pytest.mark.parametrize("kind", [DockerEngine, DockerCliEngine, PodmanEngine], ids=lambda kind: kind.name)
WIPE = ("sh", "-c", "rm -rf /p/*; echo wiped >/p/theirs")


def opened(image, kind, **options):
    if kind is PodmanEngine:
        require_podman()
    return DockerBench(image, kind=kind, **options)


def refusal(bench, **settings):
    with pytest.raises(OperationFailed) as caught:
        bench.made(*WIPE, **settings)
    assert caught.value.kind == "refused"
    return str(caught.value)


@KINDS
def test_a_volume_of_somebody_else_is_neither_read_nor_deleted(image, kind):
    """Refused before the run, and again when the container is made; with consent it is used."""
    name = f"theirs-{uuid.uuid4().hex[:12]}"
    bench = opened(image, kind)
    bench.client.create_volume(name)
    storage = (Mount("volume", "/p", name),)
    try:
        bench.engine.options = replace(bench.engine.options, allow_foreign=True)
        assert bench.engine.forbidden(ContainerSettings(image=image, storage=storage)) == []
        owner = bench.running("sleep", "1000", storage=storage)
        bench.engine.exec(owner, ("sh", "-c", "echo data >/p/theirs"), timeout_s=ANSWER_S)

        bench.engine.options = replace(bench.engine.options, allow_foreign=False)
        wanted = f"volume {name!r} is there and was not made by Weighbridge"
        (reason,) = bench.engine.forbidden(ContainerSettings(image=image, storage=storage))
        assert reason.startswith(wanted)
        assert "--allow-host-mounts" in reason
        assert refusal(bench, storage=storage).startswith(wanted)
        assert bench.engine.exec(owner, ("cat", "/p/theirs"), timeout_s=ANSWER_S).stdout == b"data\n"
        assert [one.what for one in bench.engine.leftovers(bench.run_id)] == ["container"]
        bench.engine.remove(owner, timeout_s=ANSWER_S)
    finally:
        bench.close()
        engine = kind(bench.engine.options)
        engine.open()
        engine._client.remove_volume(name)
        engine.close()


@KINDS
def test_a_volume_that_the_run_creates_is_its_own(image, kind):
    """It has the run's label, so each container of the run may use it, and clean-up removes it."""
    bench = opened(image, kind)
    name = f"ours-{uuid.uuid4().hex[:12]}"
    storage = (Mount("volume", "/p", name),)
    try:
        assert bench.engine.forbidden(ContainerSettings(image=image, storage=storage)) == []
        for _ in range(2):
            bench.engine.remove(bench.running("true", storage=storage), timeout_s=ANSWER_S)
        assert bench.client.inspect_volume(name)["Labels"][RUN_LABEL] == bench.run_id
        assert bench.engine.forbidden(ContainerSettings(image=image, storage=storage)) == []
        assert [one.identity for one in bench.engine.leftovers(bench.run_id) if one.what == "volume"] == [name]
    finally:
        bench.close()


@KINDS
def test_a_network_of_somebody_else_is_not_joined(image, kind):
    """Its services are theirs; a network with our label is used."""
    bench = opened(image, kind)
    name = f"theirs-{uuid.uuid4().hex[:12]}"
    ours = f"ours-{uuid.uuid4().hex[:12]}"
    bench.client.create_network(name)
    bench.client.create_network(ours, labels={RUN_LABEL: bench.run_id})
    try:
        (reason,) = bench.engine.forbidden(ContainerSettings(image=image, network=name))
        assert reason.startswith(f"network {name!r} was not made by Weighbridge")
        assert "--allow-host-mounts" in refusal(bench, network=name)
        assert bench.engine.forbidden(ContainerSettings(image=image, network=ours)) == []
        bench.engine.remove(bench.made("true", network=ours), timeout_s=ANSWER_S)
    finally:
        bench.client.remove_network(name)
        bench.close()


@KINDS
def test_a_log_driver_that_writes_elsewhere_needs_consent(image, kind):
    """One that opens a socket is refused before the engine hears of it."""
    bench = opened(image, kind)
    try:
        options = {"syslog-address": "udp://127.0.0.1:9"}
        assert "log driver 'syslog'" in refusal(bench, log_driver="syslog", log_options=options)
        assert "log option syslog-address" in refusal(bench, log_options=options)
    finally:
        bench.close()


@pytest.fixture
def prod():
    """A volume with data, and a network, both of somebody else."""
    client = require_images("weighbridge/base")
    name = f"prod-{uuid.uuid4().hex[:12]}"
    client.create_volume(name)
    client.create_network(name)
    bound = client.create_host_config(binds=[f"{name}:/p"], network_mode="none")

    def run(*command):
        """Run a command where the volume is at /p; return what it prints."""
        made = client.create_container("weighbridge/base", list(command), host_config=bound)["Id"]
        try:
            client.start(made)
            client.wait(made)
            return client.logs(made).decode()
        finally:
            client.remove_container(made, force=True)

    run("sh", "-c", "echo data >/p/theirs")
    yield name, lambda: run("cat", "/p/theirs")
    client.remove_volume(name)
    client.remove_network(name)
    client.close()


def wiping(workspace, name, **container):
    """Return a scenario that deletes what is in a volume."""
    settings = {"image": "weighbridge/base", "network": "none", "command": list(WIPE), **container}
    job = {"operations": ["run", "wait", "remove"], "container": settings}
    return workspace.scenario(engines=["docker"], repeats=1, iterations=1, warmup=0, job=job)


def test_a_run_on_this_host_leaves_a_volume_of_somebody_else_alone(workspace, prod):
    """Its name may be there by accident: the run is refused before any job and says what to do; the data stays."""
    name, data = prod
    scenario = wiping(workspace, name, storage=[{"volume": name, "target": "/p"}])
    program, stats = workspace.start_run(scenario)
    ended = program.wait_for_exit()
    assert ended.status == 2, ended.err
    wanted = f"engine docker: volume {name!r} is there and was not made by Weighbridge: --allow-host-mounts allows it"
    assert wanted in " ".join(ended.err.split())
    assert not stats.exists()
    assert data() == "data\n"
    workspace.run(scenario, "--allow-host-mounts")
    assert data() == "wiped\n"


def test_weigh_leaves_a_volume_of_somebody_else_alone(workspace, prod):
    """It has the same option."""
    name, data = prod
    storage = f"container.storage=[{{volume: {name}, target: /p}}]"
    flags = ("--repeats", 1, "--set", storage, "-s", workspace.folder / "x.stats.gz")
    ended = workspace.start("bench-master", "weigh", "docker", *flags, "--", *WIPE).wait_for_exit()
    assert ended.status == 2, ended.err
    assert "--allow-host-mounts" in ended.err
    assert data() == "data\n"


@pytest.mark.parametrize("key", ["network", "log_driver", "log_options"])
def test_a_run_on_this_host_needs_consent_for_what_reaches_others(workspace, prod, key):
    """A network of somebody else, and a log that is written elsewhere than where the engine keeps logs."""
    name, _ = prod
    value = {"network": name, "log_driver": "syslog", "log_options": {"syslog-address": "udp://127.0.0.1:9"}}[key]
    program, stats = workspace.start_run(wiping(workspace, name, **{key: value}))
    ended = program.wait_for_exit()
    assert ended.status == 2, ended.err
    named = {"network": f"network {name!r}", "log_driver": "log driver 'syslog'", "log_options": "syslog-address"}[
        key
    ]
    assert named in ended.err
    assert "--allow-host-mounts allows it" in " ".join(ended.err.split())
    assert not stats.exists()


def test_a_run_on_this_host_may_mount_the_directories_that_it_names(workspace, tmp_path):
    """Whoever writes a path into a scenario of their own means it."""
    mine = tmp_path / "mine"
    mine.mkdir()
    workspace.run(wiping(workspace, "", storage=[{"host": str(mine), "target": "/p"}]))
    assert (mine / "theirs").read_text() == "wiped\n"
