"""Each verb on real containers, and each kind of failure: Docker through its API, and through its command line."""

import os
import threading
import time
from pathlib import Path

import docker
import pytest
from busybox_image import DockerBench, require_podman, run_concurrently, run_patched
from deadlines import ANSWER_S, START_S, wait_until
from runtime_bench import GREEDY_AND_OTHERS

from bench_common.long_output import OUTPUT_GAP
from bench_common.treatment import Mount
from bench_worker.engines.base import (
    OWNER_LABEL,
    RUN_LABEL,
    TICKET_LABEL,
    WORKER_LABEL,
    Container,
    EngineOptions,
    OperationFailed,
)
from bench_worker.engines.docker import errors as docker_errors
from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine, service_limits
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.native.engine import NativeEngine
from bench_worker.owner import own_label

pytestmark = pytest.mark.docker

FOREVER = ("sleep", "1000")
RATES = ("blkio.throttle.write_bps_device", "blkio.throttle.read_iops_device", "io.max")
DEAF = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")


KINDS = (DockerEngine, DockerCliEngine, PodmanEngine)
OWNERS = pytest.mark.parametrize(
    "bench", [kind for kind in KINDS if "files" in kind.settings], indirect=True, ids=lambda kind: kind.name
)
"""Under the engines whose containers can own files and data containers."""


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def bench(image, request):
    if request.param is PodmanEngine:
        require_podman()
    made = DockerBench(image, kind=request.param)
    yield made
    made.close()


@pytest.fixture
def engine(bench):
    return bench.engine


def assert_stamped(done, before_ns, longest_s=60):
    assert before_ns <= done.start_ns <= done.end_ns <= time.monotonic_ns()
    assert done.end_ns - done.start_ns < longest_s * 1e9


def kind_of(verb, *arguments, **options):
    before_ns = time.monotonic_ns()
    with pytest.raises(OperationFailed) as caught:
        verb(*arguments, **{"timeout_s": ANSWER_S, **options})
    assert before_ns <= caught.value.start_ns <= caught.value.end_ns <= time.monotonic_ns()
    assert str(caught.value)
    return caught.value.kind


def test_a_whole_life(bench, engine):
    """Each verb does what it says to a real container, in order, and is stamped where it happened."""
    # Nothing in it forks while it is paused: runc gives up on freezing a cgroup that forks all the time.
    command = ("sh", "-c", "echo out; echo err >&2; trap 'exit 7' TERM; sleep 600 & wait")
    container = bench.container(*command, ticket=42, env={"GREETING": "hello"})
    inspect = bench.client.inspect_container
    before_ns = time.monotonic_ns()
    assert_stamped(engine.create(container, timeout_s=ANSWER_S), before_ns)
    config = inspect(container.handle)["Config"]
    own = {RUN_LABEL: bench.run_id, WORKER_LABEL: "w1", TICKET_LABEL: "42", OWNER_LABEL: own_label()}
    assert config["Labels"] == own
    assert config["Tty"] is False
    assert_stamped(engine.start(container, timeout_s=ANSWER_S), before_ns)
    assert inspect(container.handle)["State"]["Running"]
    done = engine.exec(container, ("sh", "-c", "echo $GREETING; echo oops >&2; exit 5"), timeout_s=ANSWER_S)
    assert (done.exit_code, done.stdout, done.stderr) == (5, b"hello\n", b"oops\n")
    assert_stamped(done, before_ns)
    assert_stamped(engine.pause(container, timeout_s=ANSWER_S), before_ns)
    assert inspect(container.handle)["State"]["Paused"]
    assert kind_of(engine.exec, container, ("true",)) == "conflict"
    assert_stamped(engine.unpause(container, timeout_s=ANSWER_S), before_ns)
    wait_until(lambda: not inspect(container.handle)["State"]["Paused"], ANSWER_S, "Docker's own record of it")
    assert_stamped(engine.commit(container, timeout_s=ANSWER_S), before_ns)
    assert container.images == [f"weighbridge/commit:{container.name}"]
    assert bench.client.inspect_image(container.images[0])["Config"]["Labels"][RUN_LABEL] == bench.run_id
    assert_stamped(engine.stop(container, grace_s=10, timeout_s=ANSWER_S), before_ns)
    done = engine.wait(container, timeout_s=ANSWER_S)
    assert (done.exit_code, done.oom_killed) == (7, False)
    done = engine.logs(container, limit_bytes=1000, timeout_s=ANSWER_S)
    assert (done.stdout, done.stderr, done.truncated) == (b"out\n", b"err\n", False)
    images = list(container.images)
    assert_stamped(engine.remove(container, timeout_s=ANSWER_S), before_ns)
    assert bench.client.images(name=images[0]) == []
    assert bench.client.containers(all=True, filters={"name": container.name}) == []


def test_settings_hold_inside_the_container(bench, engine):
    """What was asked for is what the kernel enforces, not only what the engine noted."""
    name = f"{bench.run_id}-volume"
    container = bench.running(
        *FOREVER,
        memory_bytes=32 << 20,
        cpus=0.5,
        cpuset="0",
        init=True,
        log_driver="none",
        storage=(
            Mount("tmpfs", "/t", size_bytes=1 << 20),
            Mount("volume", "/v"),
            Mount("volume", "/w", source=name, read_only=True),
        ),
    )
    shown = engine.exec(
        container, ("sh", "-c", "cat /proc/1/status /proc/1/comm /proc/mounts; ls /sys/class/net"), timeout_s=ANSWER_S
    ).stdout.decode()
    assert "Cpus_allowed_list:\t0\n" in shown
    assert " /t tmpfs rw" in shown
    assert "size=1024k" in shown
    assert "init" in shown
    assert shown.rstrip().endswith("lo")
    assert engine.exec(container, ("touch", "/v/x"), timeout_s=ANSWER_S).exit_code == 0
    assert engine.exec(container, ("touch", "/w/x"), timeout_s=ANSWER_S).exit_code != 0
    host = bench.client.inspect_container(container.handle)["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (32 << 20, 32 << 20, 500_000_000)
    assert kind_of(engine.logs, container, limit_bytes=10) == "unsupported"
    # What carries our label: the named one, and under Docker the nameless one, too.
    volumes = [item for item in engine.leftovers(bench.run_id) if item.what == "volume"]
    assert len(volumes) == (1 if engine.name == "podman" else 2)
    engine.remove(container, timeout_s=ANSWER_S)
    # The nameless volume lived as long as its container; the named one is the run's, and goes with it.
    (volume,) = [item for item in engine.leftovers(bench.run_id) if item.what == "volume"]
    assert volume.name == name
    engine.discard(volume)


def test_confinement_holds_inside_the_container(bench, engine):
    """Processes, open files, the root file system and privileges are what was asked for, as seen from inside."""
    container = bench.running(
        *FOREVER,
        pids=24,
        ulimits={"nofile": "321"},
        read_only=True,
        security_options=("no-new-privileges", "seccomp=unconfined"),
    )
    done = engine.exec(container, ("sh", "-c", "ulimit -n; touch /x || echo read only"), timeout_s=ANSWER_S)
    assert done.stdout == b"321\nread only\n"
    done = engine.exec(
        container,
        ("sh", "-c", "i=0; while [ $i -lt 40 ]; do sleep 300 >/dev/null 2>&1 & i=$((i+1)); done"),
        timeout_s=ANSWER_S,
    )
    assert done.exit_code != 0
    assert b"can't fork" in done.stderr
    engine.remove(container, timeout_s=ANSWER_S)
    container = bench.running(
        "cat", "/proc/self/status", security_options=("no-new-privileges", "seccomp=unconfined")
    )
    engine.wait(container, timeout_s=ANSWER_S)
    shown = engine.logs(container, limit_bytes=10_000, timeout_s=ANSWER_S).stdout.decode()
    assert "NoNewPrivs:\t1" in shown
    assert "Seccomp:\t0" in shown
    engine.remove(container, timeout_s=ANSWER_S)


def test_rates_of_a_block_device_reach_the_kernel(bench, engine):
    """The container's cgroup holds them, for the device by its number."""
    device = next(path for path in sorted(Path("/dev").glob("*")) if (Path("/sys/block") / path.name).exists())
    number = device.stat().st_rdev
    container = bench.running(*FOREVER, device_write_bps={str(device): 1 << 20}, device_read_iops={str(device): 50})
    pid = bench.client.inspect_container(container.handle)["State"]["Pid"]
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    (where,) = [line.split(":", 2)[2] for line in lines if "blkio" in line.split(":")[1]] or [
        lines[-1].split(":", 2)[2]
    ]
    roots = (Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup"))
    files = [path for root in roots for path in (root / where.lstrip("/")).glob("*") if path.name.startswith(RATES)]
    result = " ".join(path.read_text() for path in files)
    assert f"{os.major(number)}:{os.minor(number)}" in result
    assert str(1 << 20) in result
    assert "50" in result.split() or "riops=50" in result
    engine.remove(container, timeout_s=ANSWER_S)


def test_what_the_engine_may_not_raise_is_refused(bench, engine):
    """A limit beyond that of the daemon fails with its own kind, where the daemon may not raise it."""
    container = bench.container(*FOREVER, ulimits={"nofile": "1048576"})
    if service_limits(engine._address()).ulimits:
        assert kind_of(engine.run, container) == "refused"
    else:
        engine.run(container, timeout_s=ANSWER_S)
        assert engine.exec(container, ("sh", "-c", "ulimit -n"), timeout_s=ANSWER_S).stdout == b"1048576\n"
    engine.remove(container, timeout_s=ANSWER_S)


@OWNERS
def test_what_a_container_owns_is_made_and_removed_with_it(bench, engine, tmp_path, monkeypatch):
    """Files, a host directory and a data container: all there, and all gone, also where the making failed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    storage = (Mount("host", "/mine"), Mount("data_container", "/data"))
    owner = bench.running(*FOREVER, storage=storage, files={"/etc/a/x.cnf": "one\n"})
    shown = engine.exec(owner, ("cat", "/etc/a/x.cnf"), timeout_s=ANSWER_S)
    assert (shown.exit_code, shown.stdout) == (0, b"one\n")
    assert engine.exec(owner, ("sh", "-c", "echo x > /mine/x; echo x > /data/x"), timeout_s=ANSWER_S).exit_code == 0
    (directory,) = native_labels.private_root().iterdir()
    assert (directory / "mine" / "x").read_text() == "x\n"
    (data,) = [item for item in engine.leftovers(bench.run_id) if item.name == f"{owner.name}-data"]
    volumes = [mount["Name"] for mount in bench.client.inspect_container(data.identity)["Mounts"]]
    assert [mount.path for mount in native_labels.labelled_directories()] == [directory]
    engine.stop(owner, grace_s=0, timeout_s=ANSWER_S)
    engine.start(owner, timeout_s=ANSWER_S)
    assert engine.exec(owner, ("cat", "/mine/x", "/data/x"), timeout_s=ANSWER_S).stdout == b"x\nx\n"
    engine.remove(owner, timeout_s=ANSWER_S)
    twice = bench.container(*FOREVER, storage=(*storage, Mount("host", "/proc/1/root", source="/proc")))
    assert kind_of(engine.create, twice) == "refused"
    engine.remove(twice, timeout_s=ANSWER_S)
    assert engine.leftovers(bench.run_id) == []
    assert [*native_labels.private_root().iterdir()] == []
    there = {volume["Name"] for volume in bench.client.volumes()["Volumes"] or ()}
    assert not there & set(volumes)


@OWNERS
def test_what_a_container_owned_is_found_when_its_worker_is_no_more(bench, engine, tmp_path, monkeypatch):
    """By label: the container, its data container with the volume, and, by the native engine, the directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    owner = bench.running(*FOREVER, storage=(Mount("host", "/mine"), Mount("data_container", "/data")))
    data = bench.client.inspect_container(f"{owner.name}-data")
    native = NativeEngine(EngineOptions("", "", 1))
    native.open()
    (directory,) = native.leftovers(bench.run_id)
    assert directory.name == f"{owner.name}-host"
    native.discard(directory)
    found = engine.leftovers(bench.run_id)
    assert sorted(item.name for item in found) == [owner.name, f"{owner.name}-data"]
    for item in found:
        engine.discard(item)
    assert engine.leftovers(bench.run_id) == native.leftovers(bench.run_id) == []
    assert not {volume["Name"] for volume in bench.client.volumes()["Volumes"] or ()} & {
        mount["Name"] for mount in data["Mounts"]
    }


def test_running_out_of_memory_is_told_from_being_killed(bench, engine):
    """Both end with 137; only the one that met its limit is called so."""
    greedy = bench.running("sh", "-c", "x=abcdefgh; while :; do x=$x$x; done", memory_bytes=16 << 20)
    done = engine.wait(greedy, timeout_s=ANSWER_S)
    # Podman's monitor does not see it under cgroup v1, and says that it was killed.
    assert (done.exit_code, done.oom_killed) == (137, True) or (engine.name, done.exit_code) == ("podman", 137)
    engine.remove(greedy, timeout_s=ANSWER_S)
    quiet = bench.running(*FOREVER, memory_bytes=16 << 20)
    engine.kill(quiet, "SIGKILL", timeout_s=ANSWER_S)
    assert not bench.client.inspect_container(quiet.handle)["State"]["Running"]
    done = engine.wait(quiet, timeout_s=ANSWER_S)
    assert (done.exit_code, done.oom_killed) == (137, False)
    assert kind_of(engine.kill, quiet, "SIGKILL") == "conflict"
    assert kind_of(engine.kill, quiet, "SIGNOTHING") == "refused"
    engine.remove(quiet, timeout_s=ANSWER_S)


def test_a_step_that_the_memory_limit_killed_is_reported(bench, engine):
    """The error differs from that of a container that somebody killed, and from kills before it."""
    made = bench.running(*FOREVER, memory_bytes=32 << 20)
    for script, ended in GREEDY_AND_OTHERS:
        done = engine.exec(made, ("sh", "-c", script), timeout_s=ANSWER_S)
        assert (done.exit_code, done.oom_killed) == ended, script
    engine.remove(made, timeout_s=ANSWER_S)


def test_without_the_containers_cgroup_the_engines_events_report_the_kill(bench, engine, monkeypatch):
    """Of a command that was killed itself; Podman has no such events."""
    monkeypatch.setattr(docker_errors, "memory_directory", lambda *_: None)
    made = bench.running(*FOREVER, memory_bytes=32 << 20)
    for script, ended in GREEDY_AND_OTHERS[:2]:
        done = engine.exec(made, ("sh", "-c", script), timeout_s=ANSWER_S)
        assert (done.exit_code, done.oom_killed) == ended or engine.name == "podman", script
    engine.remove(made, timeout_s=ANSWER_S)


def test_a_container_that_ignores_sigterm_is_killed_after_the_grace_period(bench, engine):
    """`stop` takes the whole grace period and not less, then the container is dead."""
    container = bench.running(*DEAF)
    while engine.logs(container, limit_bytes=10, timeout_s=ANSWER_S).stdout != b"ready\n":
        time.sleep(0.02)
    done = engine.stop(container, grace_s=1, timeout_s=ANSWER_S)
    assert done.end_ns - done.start_ns >= 1e9
    assert engine.wait(container, timeout_s=ANSWER_S).exit_code == 137
    assert kind_of(engine.stop, container, grace_s=0.5) == "refused"
    engine.remove(container, timeout_s=ANSWER_S)


def test_timeouts_bound_each_verb(bench, engine):
    """A verb gives up at its deadline, says so, and its time is that of the attempt."""
    container = bench.running(*FOREVER)
    for verb, arguments in ((engine.wait, ()), (engine.exec, (FOREVER,))):
        with pytest.raises(OperationFailed) as caught:
            verb(container, *arguments, timeout_s=0.3)
        assert caught.value.kind == "timeout"
        assert caught.value.end_ns - caught.value.start_ns >= 0.25e9
    engine.remove(container, timeout_s=ANSWER_S)


def test_what_is_missing_or_taken_has_its_kind(bench, engine):
    """A missing image, network or container and a taken name have different kinds."""
    assert kind_of(engine.create, bench.container(image="weighbridge-test/nothing:here")) == "image-missing"
    container = bench.made(*FOREVER)
    twin = Container(container.name, 2, container.settings)
    assert kind_of(engine.create, twin) == "conflict"
    # Whose name it is keeps its container: there is nothing of the twin's to remove.
    assert kind_of(engine.run, twin) == "conflict"
    assert kind_of(engine.remove, twin) == "not-found"
    assert bench.client.inspect_container(container.handle)["Id"] == container.handle
    assert kind_of(engine.wait, container) == "conflict"
    engine.remove(container, timeout_s=ANSWER_S)
    for verb in (engine.start, engine.wait, engine.remove):
        assert kind_of(verb, container) == "not-found"
    container.handle = "0" * 64
    assert kind_of(engine.remove, container) == "not-found"
    lost = bench.container(*FOREVER, network="weighbridge-test-nowhere")
    # Docker looks for the network when it starts the container, Podman when it makes it.
    assert kind_of(engine.run, lost) == "not-found"
    assert kind_of(engine.create, bench.container("true", cpuset="1000")) == "refused"
    assert kind_of(engine.create, bench.container(image=None)) == "refused"


@pytest.mark.parametrize(
    ("program", "kind"), [("nonsense", "command-not-found"), ("/plain", "not-executable"), ("/bin", "not-executable")]
)
def test_a_command_that_cannot_run_has_its_kind(bench, engine, program, kind):
    """As the container's own command and as an exec, with the runtime's own words."""
    container = bench.made(program)
    assert kind_of(engine.start, container) == kind
    engine.remove(container, timeout_s=ANSWER_S)
    container = bench.running(*FOREVER)
    assert kind_of(engine.exec, container, (program,)) == kind
    engine.remove(container, timeout_s=ANSWER_S)


def test_output_is_read_up_to_its_limit(bench, engine):
    """A container that never stops printing does not block its reader, and the result says that it was cut."""
    container = bench.running("sh", "-c", "while :; do echo 0123456789; done")
    while not engine.logs(container, limit_bytes=10, timeout_s=ANSWER_S).stdout:
        time.sleep(0.02)
    done = engine.logs(container, limit_bytes=30, timeout_s=ANSWER_S)
    lines = [b"0123456789", OUTPUT_GAP.encode()]
    assert (done.stdout.splitlines()[:2], done.truncated) == (lines, True)
    engine.remove(container, timeout_s=ANSWER_S)


def test_large_output_of_an_exec_is_whole(bench, engine):
    """Not a byte is lost between the head of the answer and the frames that follow it."""
    container = bench.running(*FOREVER)
    done = engine.exec(container, ("dd", "if=/dev/zero", "bs=1000", "count=300"), timeout_s=ANSWER_S)
    assert (len(done.stdout), done.truncated, done.exit_code) == (300_000, False, 0)
    for _ in range(5):
        assert engine.exec(container, ("echo", "quick"), timeout_s=ANSWER_S).stdout == b"quick\n"
    engine.remove(container, timeout_s=ANSWER_S)


def test_the_engines_socket_cannot_be_mounted(image):
    """Not even by a worker that allows host mounts; another directory can."""
    bench = DockerBench(image, allow_host_mounts=True)
    try:
        for source in ("/var/run/docker.sock", "/run", "/"):
            storage = (Mount("host", "/h", source=source),)
            assert kind_of(bench.engine.create, bench.container(storage=storage)) == "refused"
        folder = str(Path(__file__).parent)
        container = bench.running(*FOREVER, storage=(Mount("host", "/h", source=folder, read_only=True),))
        listed = bench.engine.exec(container, ("ls", "/h"), timeout_s=ANSWER_S).stdout.decode()
        assert Path(__file__).name in listed.split()
        assert bench.engine.exec(container, ("touch", "/h/x"), timeout_s=ANSWER_S).exit_code != 0
    finally:
        bench.close()


def wall_clock_offset_ns():
    """Return how far the wall clock is ahead of the monotonic one, read when nothing came in between."""
    found = []
    for _ in range(100):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        found.append((after_ns - before_ns, wall_ns - before_ns))
    return min(found)[1]


@pytest.mark.parametrize("kind", [DockerEngine, DockerCliEngine], ids=lambda kind: kind.name)
def test_twenty_containers_at_once_agree_with_the_engines_own_events(image, kind):
    """The engine saw twenty made, started, dead and destroyed, each of them within the stamps that we took."""
    bench = DockerBench(image, kind=kind)
    offset_ns = wall_clock_offset_ns()
    # They are listened to from the beginning: the engine remembers only the last few hundred, of everybody's.
    ours = {"type": "container", "label": [f"{RUN_LABEL}={bench.run_id}"]}
    listener = docker.APIClient(timeout=ANSWER_S)
    stream = listener.events(filters=ours, decode=True)
    seen = []

    def listen():
        for event in stream:
            seen.append(event)
            if sum(one["Action"] == "destroy" for one in seen) == 20:
                return

    def life(index):
        container = bench.container("sleep", "1000", ticket=index)
        created = bench.engine.create(container, timeout_s=START_S)
        identity = container.handle
        started = bench.engine.start(container, timeout_s=START_S)
        killed = bench.engine.kill(container, "SIGKILL", timeout_s=START_S)
        removed = bench.engine.remove(container, timeout_s=START_S)
        return identity, {"create": created, "start": started, "die": killed, "destroy": removed}

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    try:
        lives = dict(run_concurrently(life, 20))
        listening.join(ANSWER_S)
        assert not listening.is_alive(), f"{len(seen)} events"
    finally:
        bench.close()
        listener.close()
    counts = {
        action: sum(event["Action"] == action for event in seen) for action in ("create", "start", "die", "destroy")
    }
    assert counts == {"create": 20, "start": 20, "die": 20, "destroy": 20}
    for event in seen:
        done = lives[event["Actor"]["ID"]].get(event["Action"])
        if done is not None:
            # Two clocks of one host: equal but for the slewing of the wall clock.
            assert done.start_ns - 50e6 <= event["timeNano"] - offset_ns <= done.end_ns + 50e6, event["Action"]


@pytest.mark.slow
@pytest.mark.unpatched
def test_this_holds_in_a_patched_process(tmp_path):
    """The worker patches the standard library: the same tests pass there."""
    done = run_patched(__file__, tmp_path, "whole_life or twenty or timeouts or missing_or_taken")
    assert done.returncode == 0, done.stdout + done.stderr
