"""Each verb of the engines that drive an OCI runtime, on real containers, and each kind of failure."""

import json
import time
import uuid

import pytest
from tiny_image import import_image, missing, remove_image

from bench_common.spec import ContainerSettings, Mount
from bench_worker.engines import oci_homes, oci_images
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.engines.crun import CrunEngine
from bench_worker.engines.runc import RuncEngine
from bench_worker.engines.runsc import RunscEngine
from bench_worker.engines.youki import YoukiEngine
from bench_worker.lease import RunLease

ENGINES = {"runc": RuncEngine, "crun": CrunEngine, "runsc": RunscEngine, "youki": YoukiEngine}
OPTIONAL = ("youki",)
FOREVER = ("sleep", "1000")


@pytest.fixture(scope="module")
def image():
    name = import_image()
    yield name
    remove_image(name)
    oci_images.prune()


class OciBench:
    """An opened engine for one run; what it made is gone at the end."""

    def __init__(self, engine, image):
        self.image = image
        self.run_id = f"test-{uuid.uuid4().hex[:12]}"
        self.engine = engine(EngineOptions(self.run_id, "w1", 20))
        self.engine.open()
        self.lease = RunLease(self.run_id)
        self.lease.acquire()

    def container(self, *command, **settings):
        given = {"image": self.image, "command": command or None, **settings}
        return Container(f"wb-{uuid.uuid4().hex[:12]}", 1, ContainerSettings(**given))

    def running(self, *command, **settings):
        container = self.container(*command, **settings)
        self.engine.run(container, timeout_s=30)
        return container

    def close(self):
        for leftover in self.engine.leftovers(self.run_id):
            self.engine.discard(leftover)
        self.engine.close()
        self.lease.release()


@pytest.fixture(params=sorted(ENGINES))
def bench(request, image):
    engine = ENGINES[request.param]
    status = engine.probe()
    if not status.usable:
        reason = f"engine {request.param}: {status.reason}; {status.advice}"
        (pytest.skip if request.param in OPTIONAL else missing)(reason)
    made = OciBench(engine, image)
    yield made
    made.close()


def failure(verb, *arguments, **options):
    before_ns = time.monotonic_ns()
    with pytest.raises(OperationFailed) as caught:
        verb(*arguments, **{"timeout_s": 10, **options})
    assert before_ns <= caught.value.start_ns <= caught.value.end_ns <= time.monotonic_ns()
    assert str(caught.value)
    return caught.value


def kind_of(verb, *arguments, **options):
    return failure(verb, *arguments, **options).kind


def until(condition):
    deadline = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def test_a_whole_life(bench):
    """Each verb does what it says, and what it made is gone at the end."""
    engine = bench.engine
    life = bench.container("sh", "-c", "echo out; echo err >&2; trap 'exit 7' TERM; while :; do sleep 0.02; done")
    done = [engine.create(life, timeout_s=30)]
    [leftover] = engine.leftovers(bench.run_id)
    assert (leftover.what, leftover.name, leftover.run_id) == ("container", life.name, bench.run_id)
    assert not engine.logs(life, limit_bytes=9, timeout_s=5).stdout
    done.append(engine.start(life, timeout_s=10))
    executed = engine.exec(life, ("sh", "-c", "echo $MINE; echo oops >&2; exit 5"), timeout_s=10)
    assert (executed.exit_code, executed.stderr) == (5, b"oops\n")
    done.append(executed)
    if "stats" in engine.operations:
        done.append(engine.stats(life, timeout_s=10))
        assert json.loads(done[-1].stdout)
    done.append(engine.pause(life, timeout_s=10))
    assert kind_of(engine.exec, life, ("true",)) == "conflict"
    done.append(engine.unpause(life, timeout_s=10))
    until(lambda: engine.logs(life, limit_bytes=9, timeout_s=5).stderr)
    done.append(engine.stop(life, grace_s=10, timeout_s=20))
    waited = engine.wait(life, timeout_s=10)
    assert waited.exit_code == 7
    printed = engine.logs(life, limit_bytes=2, timeout_s=5)
    assert (printed.stdout, printed.truncated) == (b"ou", True)
    directory = life.handle.directory
    done += [waited, printed, engine.remove(life, timeout_s=10)]
    assert not directory.exists()
    for one in done:
        assert 0 < one.start_ns <= one.end_ns <= time.monotonic_ns()
        assert 0 <= one.end_bound_ns <= one.end_ns - one.start_ns
    assert [one.start_ns for one in done] == sorted(one.start_ns for one in done)
    assert engine.leftovers(bench.run_id) == []
    assert kind_of(engine.remove, life) == "not-found"


def test_exit_codes_are_the_commands_own(bench):
    """Also those that a runtime uses for errors of its own, and those of commands that end before anybody looks."""
    for code in (0, 1, 126, 127, 128, 255):
        made = bench.running("sh", "-c", f"exit {code}")
        assert bench.engine.wait(made, timeout_s=10).exit_code == code
        bench.engine.remove(made, timeout_s=10)
    made = bench.running(*FOREVER)
    for code in (0, 1, 126, 127, 128, 255):
        assert bench.engine.exec(made, ("sh", "-c", f"exit {code}"), timeout_s=10).exit_code == code


def test_what_cannot_be_started_is_told_apart(bench):
    """A command that is not there, one that is no program, and an image that is not there."""
    engine = bench.engine
    made = bench.running(*FOREVER)
    for command, kind in ((("nosuch",), "command-not-found"), (("/plain",), "not-executable")):
        assert kind_of(engine.exec, made, command) == kind
        unborn = bench.container(*command)
        assert kind_of(engine.run, unborn) == kind
        engine.remove(unborn, timeout_s=10)
    unborn = bench.container("true", image="weighbridge-test/nosuch")
    assert kind_of(engine.run, unborn) == "image-missing"
    assert kind_of(engine.remove, unborn) == "not-found"


def test_what_the_states_forbid(bench):
    """A taken name and a verb out of turn are conflicts."""
    engine = bench.engine
    made = bench.running(*FOREVER)
    assert kind_of(engine.run, Container(made.name, 2, made.settings)) == "conflict"
    engine.kill(made, "SIGKILL", timeout_s=10)
    assert kind_of(engine.kill, made, "SIGKILL") == "conflict"
    assert kind_of(engine.pause, made) == "conflict"
    assert kind_of(engine.exec, made, ("true",)) == "conflict"
    assert kind_of(engine.commit, made) == "unsupported"
    engine.remove(made, timeout_s=10)


def test_a_kill_is_over_when_the_process_is_dead(bench):
    """A runtime's kill returns before that, and a removal that follows at once would fail."""
    for _ in range(10):
        made = bench.running(*FOREVER)
        bench.engine.kill(made, "SIGKILL", timeout_s=10)
        assert made.handle.main.exit is not None
        assert bench.engine.wait(made, timeout_s=5).exit_code == 137
        bench.engine.remove(made, timeout_s=10)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(bench):
    """And one that is paused, too, which cannot take any signal before it goes on."""
    for paused in (False, True):
        deaf = bench.running("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done")
        until(lambda made=deaf: bench.engine.logs(made, limit_bytes=9, timeout_s=5).stdout)
        if paused:
            bench.engine.pause(deaf, timeout_s=10)
        stopped = bench.engine.stop(deaf, grace_s=0.5, timeout_s=10)
        assert 0.5e9 <= stopped.end_ns - stopped.start_ns < 9e9
        assert bench.engine.wait(deaf, timeout_s=5).exit_code == 137


def test_an_operation_ends_at_its_deadline(bench):
    """A command that takes too long is killed with its exec; a wait that takes too long changes nothing."""
    made = bench.running(*FOREVER)
    assert kind_of(bench.engine.exec, made, ("sleep", "777"), timeout_s=0.5) == "timeout"
    look = ("sh", "-c", "cat /proc/[0-9]*/cmdline")
    until(lambda: b"777" not in bench.engine.exec(made, look, timeout_s=10).stdout)
    assert kind_of(bench.engine.wait, made, timeout_s=0.3) == "timeout"
    assert bench.engine.exec(made, ("true",), timeout_s=10).exit_code == 0


def test_limits_are_enforced(bench):
    """Memory (the end says that it was the limit), CPUs, and a read-only look at the host's settings."""
    if "memory_bytes" not in bench.engine.settings:
        assert kind_of(bench.engine.run, bench.container("true", memory_bytes=1 << 25)) == "refused"
        return
    hungry = ("dd", "if=/dev/zero", "of=/dev/null", "bs=256M", "count=1")
    made = bench.running(*hungry, memory_bytes=32 << 20)
    ended = bench.engine.wait(made, timeout_s=30)
    assert (ended.exit_code, ended.oom_killed) == (137, True)
    made = bench.running(*FOREVER, cpus=0.5, cpuset="0")
    status = bench.engine.exec(made, ("cat", "/proc/self/status"), timeout_s=10).stdout.decode()
    assert "Cpus_allowed_list:\t0\n" in status


def test_surroundings(bench, tmp_path):
    """Environment, network and storage are those of the settings; host directories only where they are allowed."""
    storage = (Mount("tmpfs", "/scratch", size_bytes=1 << 20), Mount("volume", "/data"))
    made = bench.running(*FOREVER, env={"MINE": "yes"}, storage=storage)
    script = "echo $MINE; touch /scratch/a /data/b /c; ls /sys/class/net; cat /proc/mounts"
    said = bench.engine.exec(made, ("sh", "-c", script), timeout_s=10)
    assert said.exit_code == 0, said.stderr
    words = said.stdout.decode().split()
    assert words[:2] == ["yes", "lo"]
    assert {"/scratch", "/data"} <= set(words)
    refused = {
        "network": "bridge",
        "storage": (Mount("host", "/x", str(tmp_path)),),
        "init": True,
    }
    for setting, value in refused.items():
        said = failure(bench.engine.run, bench.container("true", **{setting: value}))
        assert said.kind == "refused"
        assert setting in str(said) or str(tmp_path) in str(said)
    named = failure(bench.engine.run, bench.container("true", storage=(Mount("volume", "/x", "name"),)))
    assert named.kind == "refused"


def test_only_what_is_labelled_is_ours(bench):
    """A directory that carries no label of ours is neither listed nor removed, nor is another run's asked for."""
    stranger = oci_homes.containers(bench.engine.name) / f"stranger-{uuid.uuid4().hex[:8]}"
    stranger.mkdir()
    try:
        (stranger / "config.json").write_text(json.dumps({"annotations": {"owner": "somebody"}}))
        made = bench.running(*FOREVER)
        assert [item.name for item in bench.engine.leftovers(bench.run_id)] == [made.name]
        assert stranger.name not in {item.name for item in bench.engine.leftovers()}
        assert bench.engine.leftovers(bench.run_id, "another") == []
        [item] = bench.engine.leftovers(bench.run_id, "w1")
        bench.engine.discard(item)
        bench.engine.discard(item)
        assert made.handle.main.wait(5).code in {-9, 137}
        assert bench.engine.leftovers(bench.run_id) == []
        assert stranger.exists()
    finally:
        oci_homes.delete(stranger)
