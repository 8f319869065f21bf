"""Each verb of the engines that drive an OCI runtime, on real containers, and each kind of failure."""

import io
import json
import tarfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from busybox_image import layer, run_concurrently, run_patched
from deadlines import ANSWER_S, START_S, wait_until
from runtime_bench import ENGINES, FOREVER, RuntimeBench, container_names, failure, kind_of, printed_by, require

from bench_common.treatment import Mount
from bench_worker.engines.base import Container
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.runtimes import RuncEngine


@pytest.fixture(params=sorted(ENGINES))
def bench(request, image):
    engine = ENGINES[request.param]
    require(engine)
    made = RuntimeBench(engine, image, allow_host_mounts=True)
    yield made
    made.close()


@pytest.fixture
def unpacked(tmp_path):
    """A root file system that somebody has unpacked."""
    rootfs = tmp_path / "bundle" / "rootfs"
    rootfs.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(layer())) as archive:
        # An argument for it came with Python 3.11.4.
        archive.extraction_filter = lambda member, _path: member
        archive.extractall(rootfs)
    return rootfs


def test_a_whole_life(bench):
    """Each verb does what it says, and what it made is gone at the end."""
    engine = bench.engine
    life = bench.container("sh", "-c", "echo out; echo err >&2; trap 'exit 7' TERM; sleep 600 & wait")
    done = [engine.create(life, timeout_s=ANSWER_S)]
    [leftover] = engine.leftovers(bench.run_id)
    assert (leftover.what, leftover.name, leftover.run_id) == ("container", life.name, bench.run_id)
    assert not engine.logs(life, limit_bytes=9, timeout_s=ANSWER_S).stdout
    done.append(engine.start(life, timeout_s=ANSWER_S))
    executed = engine.exec(life, ("sh", "-c", "echo $MINE; echo oops >&2; exit 5"), timeout_s=ANSWER_S)
    assert (executed.exit_code, executed.stderr) == (5, b"oops\n")
    done.append(executed)
    if "stats" in engine.operations:
        done.append(engine.stats(life, timeout_s=ANSWER_S))
        assert json.loads(done[-1].stdout)
    done.append(engine.pause(life, timeout_s=ANSWER_S))
    assert kind_of(engine.exec, life, ("true",)) == "conflict"
    done.append(engine.unpause(life, timeout_s=ANSWER_S))
    wait_until(lambda: b"err\n" in printed_by(engine, life))
    done.append(engine.stop(life, grace_s=10, timeout_s=ANSWER_S))
    waited = engine.wait(life, timeout_s=ANSWER_S)
    assert waited.exit_code == 7
    assert sorted(printed_by(engine, life).split()) == [b"err", b"out"]
    printed = engine.logs(life, limit_bytes=2, timeout_s=ANSWER_S)
    assert printed.truncated
    directory = life.handle.directory
    done += [waited, printed, engine.remove(life, timeout_s=ANSWER_S)]
    engine.release()
    assert not directory.exists()
    bench.assert_stamped(done)
    assert engine.leftovers(bench.run_id) == []
    assert kind_of(engine.remove, life) == "not-found"


def test_exit_codes_are_the_commands_own(bench):
    """Also those that a runtime uses for errors of its own, and those of commands that end before anybody looks."""
    for code in (0, 1, 126, 127, 128, 255):
        made = bench.running("sh", "-c", f"exit {code}")
        assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == code
        bench.engine.remove(made, timeout_s=ANSWER_S)
    made = bench.running(*FOREVER)
    for code in (0, 1, 126, 127, 128, 255):
        assert bench.engine.exec(made, ("sh", "-c", f"exit {code}"), timeout_s=ANSWER_S).exit_code == code


def test_what_short_commands_print_is_complete(bench):
    """Several of them at once, on both streams. (Forty in one container make containerd stand still.)"""
    made = bench.running(*FOREVER)

    def message(index):
        done = bench.engine.exec(made, ("sh", "-c", f"echo {index}; echo e{index} >&2"), timeout_s=START_S)
        return done.stdout, done.stderr

    for _ in range(3):
        assert run_concurrently(message, 8) == [(b"%d\n" % index, b"e%d\n" % index) for index in range(8)]


def test_a_command_that_takes_too_long_is_killed(bench):
    """It does not run on in the container, and others can be executed there afterwards."""
    made = bench.running(*FOREVER)
    assert kind_of(bench.engine.exec, made, ("sleep", "4321"), timeout_s=2) == "timeout"  # subject: how long it takes
    look = ("sh", "-c", "cat /proc/[0-9]*/cmdline")
    wait_until(lambda: b"4321" not in bench.engine.exec(made, look, timeout_s=ANSWER_S).stdout)


def test_reasons_why_a_command_cannot_start_are_distinguished(bench):
    """A command that is not there, one that is no program, and an image that is not there."""
    engine = bench.engine
    made = bench.running(*FOREVER)
    bench.assert_failures_distinguished()
    unborn = bench.container("true", image="weighbridge-test/nosuch")
    assert "weighbridge-test/nosuch" in engine.missing(unborn.settings)[0]
    assert engine.missing(made.settings) == []
    assert kind_of(engine.run, unborn) == "image-missing"
    assert kind_of(engine.remove, unborn) == "not-found"


def test_what_the_states_forbid(bench):
    """A taken name and a verb out of turn are conflicts."""
    engine = bench.engine
    made = bench.running(*FOREVER)
    assert kind_of(engine.run, Container(made.name, 2, made.settings)) == "conflict"
    engine.kill(made, "SIGKILL", timeout_s=ANSWER_S)
    assert kind_of(engine.kill, made, "SIGKILL") == "conflict"
    assert kind_of(engine.pause, made) == "conflict"
    assert kind_of(engine.exec, made, ("true",)) == "conflict"
    if "commit" not in engine.operations:
        assert kind_of(engine.commit, made) == "unsupported"
    engine.remove(made, timeout_s=ANSWER_S)


def test_a_kill_is_over_when_the_process_is_dead(bench):
    """A runtime's kill returns before that, and a removal that follows at once would fail."""
    for _ in range(10):
        made = bench.running(*FOREVER)
        bench.engine.kill(made, "SIGKILL", timeout_s=ANSWER_S)
        assert made.handle.main.exit is not None
        assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 137
        bench.engine.remove(made, timeout_s=ANSWER_S)


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace_period(bench):
    """And one that is paused, too, which cannot take any signal before it goes on."""
    for paused in (False, True):
        deaf = bench.running("sh", "-c", "trap '' TERM; echo ready; sleep 600 & wait")
        wait_until(lambda made=deaf: printed_by(bench.engine, made))
        if paused:
            bench.engine.pause(deaf, timeout_s=ANSWER_S)
        stopped = bench.engine.stop(deaf, grace_s=0.5, timeout_s=ANSWER_S)
        assert 0.5e9 <= stopped.end_ns - stopped.start_ns < 9e9
        assert bench.engine.wait(deaf, timeout_s=ANSWER_S).exit_code == 137


def test_an_operation_ends_at_its_deadline(bench):
    """A command that takes too long is killed with its exec; a wait that takes too long changes nothing."""
    bench.assert_deadlines_kept()


def test_limits_are_enforced(bench):
    """Memory (the end says that it was the limit), CPUs, and a read-only look at the host's settings."""
    if "memory_bytes" not in bench.engine.settings:
        assert kind_of(bench.engine.run, bench.container("true", memory_bytes=1 << 25)) == "refused"
        return
    hungry = ("dd", "if=/dev/zero", "of=/dev/null", "bs=256M", "count=1")
    made = bench.running(*hungry, memory_bytes=32 << 20)
    ended = bench.engine.wait(made, timeout_s=ANSWER_S)
    assert (ended.exit_code, ended.oom_killed) == (137, True)
    if bench.engine.name == "runsc":
        # Its limit is that of gVisor's kernel, whose end is that of every command.
        return
    bench.assert_oom_kill_reported()
    made = bench.running(*FOREVER, cpus=0.5)
    if "cpuset" not in bench.engine.settings:
        return
    made = bench.running(*FOREVER, cpuset="0")
    status = bench.engine.exec(made, ("cat", "/proc/self/status"), timeout_s=ANSWER_S).stdout.decode()
    assert "Cpus_allowed_list:\t0\n" in status


def test_environment(bench, tmp_path):
    """Environment, network and storage are those of the settings; host directories only where they are allowed."""
    storage = (Mount("tmpfs", "/scratch", size_bytes=1 << 20), Mount("volume", "/data"))
    made = bench.running(*FOREVER, env={"MINE": "yes"}, storage=storage)
    script = "echo $MINE; touch /scratch/a /data/b /c; ls /sys/class/net; cat /proc/mounts"
    message = bench.engine.exec(made, ("sh", "-c", script), timeout_s=ANSWER_S)
    assert message.exit_code == 0, message.stderr
    words = message.stdout.decode().split()
    assert words[:2] == ["yes", "lo"]
    assert {"/scratch", "/data"} <= set(words)
    (tmp_path / "seen").touch()
    made = bench.running("ls", "/host", storage=(Mount("host", "/host", str(tmp_path), read_only=True),))
    assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    assert bench.engine.logs(made, limit_bytes=99, timeout_s=ANSWER_S).stdout == b"seen\n"


def test_what_it_cannot_give_is_refused(bench, tmp_path):
    """By name and with the reason: nothing is left out without a word."""
    sockets = Mount("host", "/x", "/run")
    for settings, word in (
        ({"network": "bridge"}, "bridge"),
        ({"init": True}, "init"),
        ({"storage": (sockets,)}, "socket"),
        ({"storage": (Mount("volume", "/x", "name"),)}, "name"),
        ({"cpuset": "1-0"}, "1-0"),
        ({"image": None}, "image"),
        ({"rootfs": "/"}, "/"),
    ):
        made = bench.container("true", **settings)
        message = failure(bench.engine.run, made)
        assert message.kind == "refused"
        assert word in str(message)
        assert made.handle is None
    strict = RuntimeBench(type(bench.engine), bench.image)
    for settings in ({"storage": (Mount("host", "/x", str(tmp_path)),)}, {"rootfs": str(tmp_path)}):
        assert kind_of(strict.engine.run, strict.container("true", **settings)) == "refused"
    strict.close()


def test_an_unpacked_root_file_system_will_do(bench, unpacked):
    """By itself, as the folder of a bundle, and with a config.json, which is kept but for what is said otherwise."""
    if "rootfs" not in bench.engine.settings:
        assert kind_of(bench.engine.run, bench.container(image=None, rootfs=str(unpacked))) == "refused"
        return
    for place in (unpacked, unpacked.parent):
        made = bench.running("touch", "/new", image=None, rootfs=str(place))
        assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    assert not (unpacked / "new").exists()
    config = unpacked.parent / "config.json"
    CommandLine("runc").sequence(ANSWER_S).run("spec", "-b", str(unpacked.parent))
    spec = json.loads(config.read_text())
    spec["process"] |= {"terminal": True, "args": ["env"], "env": [*spec["process"]["env"], "OWN=1"]}
    config.write_text(json.dumps(spec))
    config.chmod(0o644)
    made = bench.running(image=None, rootfs=str(unpacked.parent), env={"MINE": "yes"})
    assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    message = bench.engine.logs(made, limit_bytes=999, timeout_s=ANSWER_S).stdout.decode().split()
    assert {"OWN=1", "MINE=yes"} <= set(message)
    config.write_text(json.dumps({**spec, "hooks": {"prestart": [{"path": "/bin/true"}]}}))
    message = failure(bench.engine.run, bench.container(image=None, rootfs=str(unpacked.parent)))
    assert (message.kind, "hooks" in str(message)) == ("refused", True)


@contextmanager
def stranger(bench):
    """Lend the name of somebody else's container, and a look at whether it is still there."""
    name = f"stranger-{uuid.uuid4().hex[:8]}"
    if bench.engine.name != "containerd":
        directory = oci_images.containers_directory(bench.engine.name) / name
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps({"annotations": {"owner": "somebody"}}))
        yield name, directory.exists
        oci_images.delete_directory(directory)
        return
    calls = bench.engine._api.calls(60)
    record = messages.Container(
        id=name, labels={"owner": "somebody"}, runtime=messages.Runtime(name="io.containerd.runc.v2")
    )
    record.spec.type_url = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
    calls.do("containers.v1.Containers/Create", messages.ContainerMessage(container=record))
    yield name, lambda: name in container_names(calls)
    calls.do("containers.v1.Containers/Delete", messages.ContainerRequest(id=name))


def test_only_what_is_labelled_is_ours(bench):
    """What carries no label of ours is neither listed nor removed, nor is another run's asked for."""
    with stranger(bench) as (name, exists):
        made = bench.running(*FOREVER)
        assert [item.name for item in bench.engine.leftovers(bench.run_id)] == [made.name]
        assert name not in {item.name for item in bench.engine.leftovers()}
        assert bench.engine.leftovers(bench.run_id, "another") == []
        [item] = bench.engine.leftovers(bench.run_id, "w1")
        bench.engine.discard(item)
        bench.engine.discard(item)
        made.handle.main.wait(ANSWER_S)
        assert bench.engine.leftovers(bench.run_id) == []
        assert exists()


@pytest.mark.parametrize(
    "bench",
    [pytest.param(name, marks=pytest.mark.slow if name == "runsc" else ()) for name in sorted(ENGINES)],
    indirect=True,
)
def test_twenty_lives_at_once(bench):
    """No exit code is lost or mixed up when twenty containers come and go at the same time."""
    assert bench.twenty_life_cycles() == list(range(20))
    assert bench.engine.leftovers(bench.run_id) == []


def test_what_a_killed_worker_leaves_is_found_and_removed(bench):
    """Its container goes on without it, and goes with what it was made of when its label is swept."""
    name, process = bench.killed_worker()
    container = Path("/proc", process)
    assert container.exists()
    [leftover] = bench.engine.leftovers(bench.run_id)
    assert leftover.name == name
    bench.engine.discard(leftover)
    wait_until(lambda: not container.exists() or ") Z" in (container / "stat").read_text())
    assert bench.engine.leftovers(bench.run_id) == []
    assert not (oci_images.containers_directory(bench.engine.name) / name).exists()


def test_a_paused_container_can_be_removed_and_discarded(bench):
    """By whoever paused it, and by a clean-up that knows nothing of that."""
    engine = bench.engine
    made, left = bench.running(*FOREVER), bench.running(*FOREVER)
    for one in (made, left):
        engine.pause(one, timeout_s=ANSWER_S)
    engine.remove(made, timeout_s=ANSWER_S)
    [item] = engine.leftovers(bench.run_id)
    engine.discard(item)
    assert engine.leftovers(bench.run_id) == []


def test_where_no_overlay_can_be_mounted_there_is_a_copy(bench):
    """As in a container whose own root is an overlay: slower, and just as private."""
    if bench.engine.name == "containerd":
        return  # its snapshotter sees to that
    bench.engine._bundles.overlays = False
    made = bench.running("touch", "/new")
    assert bench.engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    assert (made.handle.rootfs / "new").exists()
    assert (made.handle.rootfs / "bin" / "sh").is_symlink()
    unpacked = bench.engine._images.get(bench.image, {}).rootfs
    assert not (unpacked / "new").exists()
    bench.engine.remove(made, timeout_s=ANSWER_S)


def test_a_full_disk_is_reported_and_leaves_nothing(image, tmp_path, monkeypatch):
    """What could be made of the container goes with it, and the next one works when there is room again."""
    require(RuncEngine)
    CommandLine("mount").sequence(ANSWER_S).run("-t", "tmpfs", "-o", "size=16m", "weighbridge-test", str(tmp_path))
    try:
        monkeypatch.setattr(oci_images, "STORE", tmp_path)
        bench = RuntimeBench(RuncEngine, image)
        bench.engine.remove(bench.running("true"), timeout_s=ANSWER_S)
        bench.engine.release()
        ballast = tmp_path / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 12))
                file.flush()
        unlucky = bench.container("true")
        message = failure(bench.engine.run, unlucky)
        assert (message.kind, str(tmp_path) in str(message)) == ("disk-full", True), str(message)
        bench.engine.remove(unlucky, timeout_s=ANSWER_S)
        ballast.unlink()
        lucky = bench.running("true")
        assert bench.engine.wait(lucky, timeout_s=ANSWER_S).exit_code == 0
        bench.engine.remove(lucky, timeout_s=ANSWER_S)
        bench.engine.release()
        assert list(oci_images.containers_directory("runc").iterdir()) == []
        bench.close()
    finally:
        CommandLine("umount").sequence(ANSWER_S).run("--lazy", str(tmp_path))


@pytest.mark.slow
@pytest.mark.unpatched
def test_all_of_this_holds_in_a_patched_process(tmp_path):
    """The worker patches the standard library: the same tests pass there."""
    done = run_patched(__file__, tmp_path, "runc or containerd")
    assert done.returncode == 0, done.stdout + done.stderr
