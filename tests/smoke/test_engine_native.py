"""Each verb of the native engine on real processes, and each kind of failure."""

import os
import signal
import time
import uuid
from pathlib import Path

import pytest
from busybox_image import run_concurrently, run_patched
from deadlines import ANSWER_S, START_S, wait_until

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.native.engine import NativeEngine, is_stopped
from bench_worker.leases import RunLease
from bench_worker.timing.processes import STATUS_LOST, Exit, spawn

FOREVER = ("sleep", "1000")


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    made = NativeEngine(EngineOptions(f"test-{uuid.uuid4().hex[:12]}", "w1", 64))
    made.open()
    # Somebody may clean up this host meanwhile.
    with RunLease(made.options.run_id):
        yield made
        for leftover in made.leftovers(made.options.run_id):
            made.discard(leftover)
    made.close()


def container(*command, ticket=1, **settings):
    return Container(f"wb-{uuid.uuid4().hex[:12]}", ticket, ContainerSettings(command=command or None, **settings))


def running(engine, *command, **settings):
    made = container(*command, **settings)
    engine.create(made, timeout_s=ANSWER_S)
    engine.start(made, timeout_s=ANSWER_S)
    return made


def kind_of(verb, *arguments, **options):
    before_ns = time.monotonic_ns()
    with pytest.raises(OperationFailed) as caught:
        verb(*arguments, **{"timeout_s": ANSWER_S, **options})
    assert before_ns <= caught.value.start_ns <= caught.value.end_ns <= time.monotonic_ns()
    assert str(caught.value)
    return caught.value.kind


def test_a_whole_life(engine):
    """Each verb does to a process what an engine's does to a container."""
    life = container(
        "sh", "-c", "echo out; echo err >&2; trap 'exit 7' TERM; while :; do sleep 0.02; done", ticket=42
    )
    done = [engine.create(life, timeout_s=ANSWER_S)]
    assert [item.what for item in engine.leftovers(engine.options.run_id)] == ["directory"]
    done.append(engine.start(life, timeout_s=ANSWER_S))
    executed = engine.exec(
        life, ("sh", "-c", "pwd; echo $WEIGHBRIDGE_TICKET; echo oops >&2; exit 5"), timeout_s=ANSWER_S
    )
    assert executed.exit_code == 5
    assert executed.stdout.decode().split() == [str(life.handle.work), "42"]
    assert executed.stderr == b"oops\n"
    done += [executed, engine.pause(life, timeout_s=ANSWER_S)]
    # A shell that starts its sleep in this moment shows another state than one that is stopped.
    assert is_stopped(life.handle.main)
    assert kind_of(engine.pause, life) == "conflict"
    assert kind_of(engine.exec, life, ("true",)) == "conflict"
    done.append(engine.unpause(life, timeout_s=ANSWER_S))
    assert not is_stopped(life.handle.main)
    wait_until(lambda: engine.logs(life, limit_bytes=9, timeout_s=ANSWER_S).stderr)
    done.append(engine.stop(life, grace_s=10, timeout_s=ANSWER_S))
    waited = engine.wait(life, timeout_s=ANSWER_S)
    assert waited.exit_code == 7
    printed = engine.logs(life, limit_bytes=2, timeout_s=ANSWER_S)
    assert printed.truncated
    directory = life.handle.directory
    done += [waited, printed, engine.remove(life, timeout_s=ANSWER_S)]
    assert not directory.exists()
    for one in done:
        assert 0 < one.start_ns <= one.end_ns <= time.monotonic_ns()
    assert [one.start_ns for one in done] == sorted(one.start_ns for one in done)


def test_a_process_can_be_paused_at_any_instant(engine):
    """A shell that does nothing but start programs is stopped in the middle of a vfork sooner or later."""
    made = running(engine, "sh", "-c", "while :; do /bin/true; done")
    for _ in range(60):
        engine.pause(made, timeout_s=ANSWER_S)
        assert kind_of(engine.exec, made, ("true",)) == "conflict"
        engine.unpause(made, timeout_s=ANSWER_S)
    engine.remove(made, timeout_s=ANSWER_S)


def test_its_environment_is_clean(engine, monkeypatch):
    """A process sees a small environment, the scenario's variables, its labels, and nothing of the worker's."""
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "x")
    made = running(engine, "env", env={"MINE": "yes"})
    assert engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    names = {
        line.partition("=")[0]
        for line in engine.logs(made, limit_bytes=9999, timeout_s=ANSWER_S).stdout.decode().split("\n")
    }
    labels = {f"WEIGHBRIDGE_{name}" for name in ("RUN", "WORKER", "TICKET", "OWNER")}
    assert names - {""} == {"PATH", "LANG", "HOME", "MINE"} | labels


def test_what_it_cannot_enforce_is_refused(engine):
    """A limit that would be ignored is an error; a setting without meaning is not."""
    assert kind_of(engine.create, container(*FOREVER, memory_bytes=1 << 30)) == "refused"
    assert kind_of(engine.create, container(*FOREVER, cpus=1.0)) == "refused"
    assert kind_of(engine.create, container(*FOREVER, cpuset="0,4000")) == "refused"
    assert kind_of(engine.create, container(*FOREVER, cpuset="x")) == "refused"
    assert kind_of(engine.create, container()) == "refused"
    made = container(*FOREVER, image="i", network="none", init=True)
    engine.create(made, timeout_s=ANSWER_S)
    assert kind_of(engine.commit, made) == "unsupported"
    engine.remove(made, timeout_s=ANSWER_S)


def test_names_and_states_that_clash_have_their_kind(engine):
    """The same mistakes as with an engine have the same kinds."""
    made = running(engine, *FOREVER)
    assert kind_of(engine.create, Container(made.name, 2, made.settings)) == "conflict"
    assert kind_of(engine.start, made) == "conflict"
    assert kind_of(engine.unpause, made) == "conflict"
    assert kind_of(engine.wait, made, timeout_s=0.05) == "timeout"
    assert kind_of(engine.exec, made, FOREVER, timeout_s=0.05) == "timeout"
    assert kind_of(engine.kill, made, "SIGNOTHING") == "refused"
    assert kind_of(engine.exec, made, ()) == "refused"
    engine.kill(made, "SIGKILL", timeout_s=ANSWER_S)
    assert made.handle.main.exit is not None
    assert engine.wait(made, timeout_s=ANSWER_S).exit_code == 137
    for verb, arguments in ((engine.kill, ("SIGKILL",)), (engine.exec, (("true",),)), (engine.pause, ())):
        assert kind_of(verb, made, *arguments) == "conflict"
    engine.remove(made, timeout_s=ANSWER_S)
    for verb in (engine.start, engine.wait, engine.remove):
        assert kind_of(verb, made) == "not-found"


@pytest.mark.parametrize(
    ("program", "kind"),
    [("no-such-program", "command-not-found"), ("/etc/hostname", "not-executable"), ("/etc", "not-executable")],
)
def test_a_command_that_cannot_run_has_its_kind(engine, program, kind):
    """As the main command and as an exec."""
    made = container(program)
    engine.create(made, timeout_s=ANSWER_S)
    assert kind_of(engine.start, made) == kind
    engine.remove(made, timeout_s=ANSWER_S)
    made = running(engine, *FOREVER)
    assert kind_of(engine.exec, made, (program,)) == kind
    engine.remove(made, timeout_s=ANSWER_S)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(engine):
    """Not before it, and it is dead when `stop` is done."""
    made = running(engine, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done")
    wait_until(lambda: engine.logs(made, limit_bytes=9, timeout_s=ANSWER_S).stdout)
    done = engine.stop(made, grace_s=0.3, timeout_s=ANSWER_S)
    assert done.end_ns - done.start_ns >= 0.3e9
    assert engine.wait(made, timeout_s=ANSWER_S).exit_code == 137
    engine.remove(made, timeout_s=ANSWER_S)


def test_remove_takes_the_children_along(engine):
    """What a command left running in the background goes with its container, and nothing else does."""
    bystander = running(engine, *FOREVER, ticket=2)
    made = running(engine, "sh", "-c", "sleep 1000 & echo started", ticket=3)
    assert engine.wait(made, timeout_s=ANSWER_S).exit_code == 0
    mine = [
        item for item in native_labels.labelled_processes() if item.labels["weighbridge.run"] == engine.options.run_id
    ]
    assert len(mine) == 2
    engine.remove(made, timeout_s=ANSWER_S)
    left = [
        item.pid
        for item in native_labels.labelled_processes()
        if item.labels["weighbridge.run"] == engine.options.run_id
    ]
    assert left == [bystander.handle.main.pid]
    engine.remove(bystander, timeout_s=ANSWER_S)


def test_sixty_four_lives_at_once(engine):
    """No exit is lost and no stamp is out of order when every slot is busy."""

    def life(index):
        made = container("sh", "-c", f"exit {index}", ticket=index)
        created = engine.create(made, timeout_s=START_S)
        started = engine.start(made, timeout_s=START_S)
        ended = engine.wait(made, timeout_s=START_S)
        removed = engine.remove(made, timeout_s=START_S)
        return ended.exit_code, [created, started, ended, removed]

    lives = run_concurrently(life, 64)
    assert [code for code, _ in lives] == list(range(64))
    for _, operations in lives:
        stamps = [stamp for done in operations for stamp in (done.start_ns, done.end_ns)]
        assert stamps == sorted(stamps)
    assert engine.leftovers(engine.options.run_id) == []


def test_leftovers_are_found_by_their_labels_alone(engine, tmp_path):
    """A process and a directory with the right names and without labels are nobody's business."""
    foreign = spawn(FOREVER, env={"PATH": os.environ["PATH"], "WEIGHBRIDGE_WORKER": "w1"}, cwd="/")
    lookalike = native_labels.private_root() / "wb-lookalike"
    lookalike.mkdir()
    made = running(engine, *FOREVER)
    try:
        found = engine.leftovers()
        assert str(lookalike) not in [item.identity for item in found]
        assert not [item for item in found if item.identity.startswith(f"{foreign.pid}:")]
        mine = engine.leftovers(engine.options.run_id, "w1")
        assert [item.what for item in mine] == ["process", "directory"]
        assert engine.leftovers(engine.options.run_id, "w2") == []
        for item in mine * 2:
            engine.discard(item)
        assert engine.leftovers(engine.options.run_id) == []
        assert made.handle.main.wait(ANSWER_S).code == -9
        assert foreign.exit is None
        assert lookalike.is_dir()
    finally:
        foreign.signal_group(signal.SIGKILL)
        foreign.wait(ANSWER_S)


def test_a_stolen_exit_status_is_a_failure_and_no_exit_code(engine):
    """Where another handler reaped the process its true exit code is unknown, and nothing is made up."""
    made = running(engine, *FOREVER)
    engine.kill(made, "SIGKILL", timeout_s=ANSWER_S)
    made.handle.main._exit = Exit(STATUS_LOST, time.monotonic_ns(), None)
    assert kind_of(engine.wait, made) == "engine"
    engine.remove(made, timeout_s=ANSWER_S)


def test_a_directory_that_somebody_else_prepared_is_not_used(tmp_path, monkeypatch):
    """In a shared temporary directory others may wait with a trap: the engine uses another one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    trap = tmp_path / f"weighbridge-native-{os.geteuid()}"
    trap.symlink_to(tmp_path / "elsewhere")
    status = NativeEngine.probe()
    assert status.usable
    assert Path(status.endpoint).parent == tmp_path
    assert Path(status.endpoint) != trap
    engine = NativeEngine(EngineOptions("r", "w", 1))
    engine.open()
    made = running(engine, *FOREVER)
    engine.remove(made, timeout_s=ANSWER_S)
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert "TMPDIR" in NativeEngine.probe().reason


def test_files_are_put_below_the_directory_and_nowhere_else(engine):
    """A file that a container would have at the root is in the private directory; a way out of it is refused."""
    made = running(engine, "cat", "etc/a/x.cnf", files={"/etc/a/x.cnf": "one\n"})
    engine.wait(made, timeout_s=ANSWER_S)
    assert engine.logs(made, limit_bytes=100, timeout_s=ANSWER_S).stdout == b"one\n"
    engine.remove(made, timeout_s=ANSWER_S)
    for path in ("/../x", "/", "/a/../../x"):
        escaping = container("true", files={path: "no"})
        assert kind_of(engine.create, escaping) == "refused"
        engine.remove(escaping, timeout_s=ANSWER_S)
    assert [*native_labels.private_root().iterdir()] == []


def test_its_home_can_be_passed_through_and_not_looked_into(engine):
    """A server that gives up root's rights has to get into its directory, if it opens that itself."""
    assert native_labels.private_root().stat().st_mode & 0o777 == 0o711
    made = running(engine, *FOREVER)
    assert made.handle.directory.stat().st_mode & 0o777 == 0o700
    engine.remove(made, timeout_s=ANSWER_S)
    for mode in (0o700, 0o755):
        native_labels.private_root().chmod(mode)
        assert native_labels.private_root().stat().st_mode & 0o777 == 0o711


def test_the_probe_says_what_it_can_do():
    """Usable here, without a memory limit, and the status has the reason."""
    status = NativeEngine.probe()
    assert status.usable, status.reason
    assert "commit" not in status.operations
    assert "setting.memory_bytes" in status.details


@pytest.mark.slow
@pytest.mark.unpatched
def test_all_of_this_holds_in_a_patched_process(tmp_path):
    """The worker patches the standard library: the same tests pass there."""
    done = run_patched(__file__, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
