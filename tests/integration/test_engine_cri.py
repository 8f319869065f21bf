"""The engine of the CRI on a real one: a private containerd with its CRI plugin, and no network but the host's."""

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
import uuid
from pathlib import Path

import docker
import pytest
from busybox_image import layer, remove_image, skip_or_fail
from deadlines import ANSWER_S, LONG_END_S, wait_until
from private_registry import private_registry
from runtime_bench import FOREVER, RuntimeBench, assert_empowered, failure, kind_of, printed_by
from workspace import Workspace, require_images

from bench_common.requirements import ImageProgram
from bench_common.treatment import Mount
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.images import import_archive, qualified_name
from bench_worker.engines.cri import engine as cri_engine
from bench_worker.engines.cri import images as cri_images
from bench_worker.engines.cri import messages_pb2 as messages
from bench_worker.engines.cri.engine import CriEngine, pod_config
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import PARENT, ROOT
from bench_worker.timing.processes import spawn

PAUSE = f"weighbridge-test/pause:{uuid.uuid4().hex[:12]}"
CONFIG = """
version = 2
root = "{home}/root"
state = "{home}/state"
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{pause}"
  restrict_oom_score_adj = true
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
"""


@pytest.fixture(scope="module")
def endpoint(image):
    """A containerd of our own, in a folder whose name is short enough for sockets, with a pause image."""
    if shutil.which("containerd") is None or os.geteuid() != 0:
        skip_or_fail("a private containerd takes root and the program; `script/engines containerd`")
    home = Path(tempfile.mkdtemp(prefix="wb-cri-"))
    (home / "config.toml").write_text(CONFIG.format(home=home, pause=PAUSE))
    argv = ("containerd", "--config", str(home / "config.toml"))
    daemon = spawn(argv, env=os.environ, cwd="/", stdout_path=str(home / "out"), stderr_path=str(home / "log"))
    socket = home / "containerd.sock"
    try:
        wait_until(socket.exists)
        client = docker.APIClient(timeout=ANSWER_S)
        repository, _, tag = PAUSE.partition(":")
        client.import_image_from_data(layer(), repository, tag, changes=['CMD ["/bin/sleep", "100000"]'])
        api = ContainerdApi(str(socket), "k8s.io")
        import_archive(api, client.get_image(PAUSE), {}, home, qualified_name(PAUSE))
        api.close()
        client.close()
        yield f"unix://{socket}"
    finally:
        with contextlib.suppress(docker.errors.DockerException):
            remove_image(PAUSE)
        daemon.signal_group(signal.SIGTERM)
        daemon.wait(ANSWER_S)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def bench(endpoint, image, monkeypatch):
    monkeypatch.setenv(cri_images.VARIABLE, endpoint)
    made = RuntimeBench(CriEngine, image, {"network": "host"}, allow_host_mounts=True)
    yield made
    made.close()


def test_pulling_an_image(bench, tmp_path):
    """It comes from the registry into the runtime's own store, fresh where that is asked, never from under a pod."""
    engine = bench.engine
    with private_registry(tmp_path) as registry:
        life = bench.container("sh", "-c", "test -s /unique && exit 5", image=registry.image)
        done = engine.pull(life, fresh=True, timeout_s=ANSWER_S)
        assert 0 < done.start_ns < done.end_ns <= time.monotonic_ns()
        engine.pull(life, fresh=False, timeout_s=ANSWER_S)
        wait_until(lambda: registry.layers_sent() == 1)
        engine.pull(life, fresh=True, timeout_s=ANSWER_S)
        wait_until(lambda: registry.layers_sent() == 2)
        engine.run(life, timeout_s=ANSWER_S)
        assert engine.wait(life, timeout_s=ANSWER_S).exit_code == 5
        assert kind_of(engine.pull, life, fresh=True) == "conflict"
        engine.remove(life, timeout_s=ANSWER_S)
        unknown = bench.container(*FOREVER, image=f"{registry.address}/bench/nosuch:1")
        assert kind_of(engine.pull, unknown, fresh=False) == "image-missing"
        registry.end()
        assert kind_of(engine.pull, life, fresh=True) == "unreachable"
        engine.run(life, timeout_s=ANSWER_S)
        engine.remove(life, timeout_s=ANSWER_S)


def test_an_image_tells_what_surrounds_its_commands(bench):
    """As far as its configuration says."""
    settings = bench.container(*FOREVER).settings
    assert bench.engine.missing(settings) == []
    found = bench.engine.surroundings(settings, ImageProgram("sh"))
    assert found["side user"] == "root"


def test_a_pod_tells_its_cost_and_its_control_group_goes_with_it(bench):
    """Of a container that ended, too: its pod's group outlives it, and used to outlive the pod as well."""
    made = bench.container("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; times")
    made.counts_cost = True
    bench.engine.run(made, timeout_s=ANSWER_S)
    assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    printed = bench.engine.logs(made, limit_bytes=999, timeout_s=ANSWER_S).stdout.decode().split()
    meter = bench.engine.cost_meter(made)
    bench.engine.remove(made, timeout_s=ANSWER_S)
    found = meter()
    assert found["cpu_total"] >= 0.5 * float(printed[0].partition("m")[2].rstrip("s")) - 0.01 > 0
    assert found["memory_peak"] > 0
    other = bench.running(*FOREVER)
    assert bench.engine.cost_meter(other)() == {}
    bench.engine.remove(other, timeout_s=ANSWER_S)
    assert not [one for made in (made, other) for one in Path(ROOT).glob(f"*/{PARENT}/{made.name}")]


def test_capabilities_are_given_and_taken(bench):
    """As a program finds out that needs one; so with new privileges."""
    assert_empowered(bench)
    look = "while read name value; do case $name in NoNewPrivs:) echo $value;; esac; done < /proc/self/status"
    for options, expected in (
        (("no-new-privileges",), b"1\n"),
        (("seccomp=unconfined", "apparmor=unconfined"), b"0\n"),
    ):
        made = bench.running(*FOREVER, security_options=options)
        assert bench.engine.exec(made, ("sh", "-c", look), timeout_s=ANSWER_S).stdout == expected


def test_a_whole_life(bench):
    """Each verb does what it says, and what it made is gone at the end."""
    engine = bench.engine
    life = bench.container("sh", "-c", "echo out; echo err >&2; trap 'exit 7' TERM; while :; do sleep 0.02; done")
    done = [engine.create(life, timeout_s=ANSWER_S)]
    [leftover] = engine.leftovers(bench.run_id)
    assert (leftover.what, leftover.name, leftover.run_id) == ("pod", life.name, bench.run_id)
    done.append(engine.start(life, timeout_s=ANSWER_S))
    executed = engine.exec(life, ("sh", "-c", "echo there; echo oops >&2; exit 5"), timeout_s=ANSWER_S)
    assert (executed.exit_code, executed.stdout, executed.stderr) == (5, b"there\n", b"oops\n")
    done += [executed, engine.stats(life, timeout_s=ANSWER_S)]
    assert done[-1].stdout
    wait_until(lambda: b"err\n" in printed_by(engine, life))
    done.append(engine.stop(life, grace_s=10, timeout_s=ANSWER_S))
    done.append(engine.wait(life, timeout_s=ANSWER_S))
    assert done[-1].exit_code == 7
    printed = engine.logs(life, limit_bytes=9, timeout_s=ANSWER_S)
    assert (printed.stdout, printed.stderr) == (b"out\n", b"err\n")
    directory = life.handle.directory
    done.append(engine.remove(life, timeout_s=ANSWER_S))
    assert not directory.exists()
    bench.assert_stamped(done)
    assert engine.leftovers(bench.run_id) == []
    assert kind_of(engine.remove, life) == "not-found"


def test_each_failure_has_its_kind(bench):
    """What cannot be started, what is not there, what comes out of turn, and what the CRI cannot do."""
    engine = bench.engine
    made = bench.running(*FOREVER)
    bench.assert_failures_distinguished()
    assert kind_of(engine.run, bench.container("true", image="weighbridge-test/nosuch")) == "image-missing"
    assert kind_of(engine.run, type(made)(made.name, 2, made.settings)) == "conflict"
    assert kind_of(engine.kill, made, "SIGHUP") == "refused"
    engine.kill(made, "SIGKILL", timeout_s=ANSWER_S)
    assert engine.wait(made, timeout_s=ANSWER_S).exit_code == 137
    assert kind_of(engine.exec, made, ("true",)) == "conflict"
    for verb in (engine.pause, engine.unpause, engine.commit):
        assert kind_of(verb, made) == "unsupported"
    for settings, word in (
        ({"network": "bridge"}, "bridge"),
        ({"init": True}, "init"),
        ({"rootfs": "/x"}, "rootfs"),
        ({"storage": (Mount("tmpfs", "/t"),)}, "tmpfs"),
        ({"storage": (Mount("host", "/x", "/run"),)}, "socket"),
    ):
        message = failure(engine.run, bench.container("true", **settings))
        assert (message.kind, word in str(message)) == ("refused", True), str(message)


def test_a_runtime_that_is_not_there_is_unusable(bench, monkeypatch, tmp_path):
    """The probe says which socket it was; an engine that loses its socket says that nobody answers."""
    monkeypatch.setenv(cri_images.VARIABLE, f"unix://{tmp_path}/nobody.sock")
    status = CriEngine.probe()
    assert not status.usable
    assert f"{tmp_path}/nobody.sock" in status.reason
    bench.engine._channel.close()
    bench.engine._channel.path, path = f"{tmp_path}/nobody.sock", bench.engine._channel.path
    assert kind_of(bench.engine.run, bench.container("true")) == "unreachable"
    bench.engine._channel.path = path


def test_a_wait_is_told_of_the_end_by_the_kernel(bench, monkeypatch):
    """The end has a stamp of its own, before the runtime is asked; it is only asked where the process is not seen."""
    engine, asked = bench.engine, []
    status = CriEngine._status

    def counted(calls, pod, **options):
        reply = status(calls, pod, **options)
        asked.append((time.monotonic_ns(), reply.status.state))
        return reply

    monkeypatch.setattr(CriEngine, "_status", staticmethod(counted))
    made = bench.running("sh", "-c", "sleep 0.7; exit 3")
    done = engine.wait(made, timeout_s=ANSWER_S)
    running = [at_ns for at_ns, state in asked if state == messages.CONTAINER_RUNNING and at_ns < done.end_ns]
    assert done.exit_code == 3
    assert len(running) <= 1
    assert done.start_ns <= done.end_ns <= asked[-1][0]
    monkeypatch.setattr(cri_engine, "memory_directory", lambda *_: None)
    asked.clear()
    made = bench.running("sh", "-c", "sleep 0.3; exit 4")
    assert engine.wait(made, timeout_s=ANSWER_S).exit_code == 4
    assert asked[-1][1] == messages.CONTAINER_EXITED


def test_an_operation_ends_at_its_deadline(bench):
    """A command that takes too long is killed, and the connection is as good as new; a wait changes nothing."""
    bench.assert_deadlines_kept()


def test_settings_are_enforced(bench, tmp_path):
    """Memory (the end says that it was the limit), CPUs, environment and storage."""
    made = bench.running("dd", "if=/dev/zero", "of=/dev/null", "bs=256M", "count=1", memory_bytes=32 << 20)
    ended = bench.engine.wait(made, timeout_s=ANSWER_S)
    assert (ended.exit_code, ended.oom_killed) == (137, True)
    bench.assert_oom_kill_reported()
    (tmp_path / "seen").touch()
    storage = (Mount("volume", "/data"), Mount("host", "/host", str(tmp_path), read_only=True))
    made = bench.running(*FOREVER, cpus=0.5, cpuset="0", env={"MINE": "yes"}, storage=storage)
    script = "cat /proc/self/status; echo $MINE; touch /data/b; ls /host; touch /host/x"
    message = bench.engine.exec(made, ("sh", "-c", script), timeout_s=ANSWER_S).stdout.decode()
    assert "Cpus_allowed_list:\t0\n" in message
    assert message.endswith("yes\nseen\n")
    assert not (tmp_path / "x").exists()


def test_only_what_is_labelled_is_ours(bench):
    """Somebody else's pod on the same runtime is neither listed nor removed."""
    engine = bench.engine
    stranger = bench.container("true")
    stranger.labels["owner"] = "somebody"
    calls = engine._calls(60)
    request = messages.RunPodSandboxRequest(config=pod_config(stranger, Path("/tmp")))
    identity = calls.call("RuntimeService/RunPodSandbox", request, messages.RunPodSandboxResponse).pod_sandbox_id
    try:
        made = bench.running(*FOREVER)
        assert [item.name for item in engine.leftovers(bench.run_id)] == [made.name]
        assert identity not in {item.identity for item in engine.leftovers()}
        assert engine.leftovers(bench.run_id, "another") == []
        [item] = engine.leftovers(bench.run_id, "w1")
        engine.discard(item)
        engine.discard(item)
        assert engine.leftovers(bench.run_id) == []
        assert not made.handle.directory.exists()
        request = messages.ListPodSandboxRequest(filter=messages.PodSandboxFilter(id=identity))
        assert calls.call("RuntimeService/ListPodSandbox", request, messages.ListPodSandboxResponse).items
    finally:
        for method in ("StopPodSandbox", "RemovePodSandbox"):
            calls.do(f"RuntimeService/{method}", messages.PodSandboxRequest(pod_sandbox_id=identity))


def test_what_a_killed_worker_leaves_is_found_and_removed(bench):
    """Its pod goes on without it, and goes when its label is swept."""
    name, _ = bench.killed_worker()
    [leftover] = bench.engine.leftovers(bench.run_id)
    assert leftover.name == name
    bench.engine.discard(leftover)
    assert bench.engine.leftovers(bench.run_id) == []
    assert not (oci_images.containers_directory("cri") / name).exists()


@pytest.mark.unpatched
def test_a_run(endpoint, image, tmp_path):
    """A whole run: every job done, four at a time; which image it had is in the stats file, and nothing is left."""
    with Workspace(tmp_path) as workspace:
        workspace.environ[cri_images.VARIABLE] = endpoint
        container = {"image": image, "command": ["sleep", "600"], "network": "host"}
        job = {"operations": ["run", {"exec": ["/bin/true"]}, "kill", "remove"], "container": container}
        run = workspace.run(workspace.scenario(engines=["cri"], job=job, concurrency=4, iterations=2))
        assert run.outcomes() == {"done": 8}
        (host,) = run.blocks("host")
        assert re.fullmatch("[0-9a-f]{64}", host.programs["cri"][f"image {image}"])


@pytest.mark.slow
@pytest.mark.unpatched
def test_a_server_in_the_hosts_network_is_reached(endpoint, tmp_path):
    """Its files are there before it starts, and nothing of it is left; one in another network is refused."""
    require_images("weighbridge/sysbench", "weighbridge/mariadb").close()
    params = {"test": "read_write", "tables": 1, "table_size": 200, "time": "1s", "buffer_pool_size": "16MiB"}
    job = {"workload": "sysbench-oltp", "params": params}
    with Workspace(tmp_path) as workspace:
        workspace.environ[cri_images.VARIABLE] = endpoint
        program, _ = workspace.start_run(workspace.scenario(engines=["cri"], job=job))
        ended = program.wait_for_exit()
        assert ended.status == 2
        assert "services: {mariadb: {network: host}}" in " ".join(ended.err.split())
        beside = {**job, "services": {"mariadb": {"network": "host"}}}
        run = workspace.run(workspace.scenario(engines=["cri"], job=beside), seconds=LONG_END_S)
        assert run.outcomes() == {"done": 1}
        listed = workspace.master("cleanup-containers", "--dry-run", "--run", run.run_id)
        assert run.run_id not in listed.out
