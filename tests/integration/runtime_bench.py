"""An opened engine with its containers, whichever runtime is behind it: what the tests of runtimes share."""

import sys
import time
import uuid

import gevent
import pytest
from busybox_image import skip_or_fail
from deadlines import ANSWER_S, END_S, LONG_END_S, START_S, wait_until

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.engine import ContainerdEngine
from bench_worker.engines.oci.runtimes import CrunEngine, RuncEngine, RunscEngine, YoukiEngine
from bench_worker.leases import RunLease

ENGINES = {engine.name: engine for engine in (RuncEngine, CrunEngine, RunscEngine, YoukiEngine, ContainerdEngine)}
OPTIONAL = ("youki",)
FOREVER = ("sleep", "1000")
OWNER = ("busybox", "chown", "1:1", "/plain")
"""Takes CHOWN, which every engine gives to root."""
CHROOT = ("busybox", "chroot", "/", "/bin/true")
"""Takes SYS_CHROOT, which every engine gives, too."""
HURRY = ("busybox", "renice", "-n", "-5", "-p", "1")
"""Takes SYS_NICE, which none gives unasked."""
GREEDY = "dd if=/dev/zero of=/dev/null bs=256M count=1"
GREEDY_AND_OTHERS = (
    ("kill -9 $$", (137, False)),
    (f"exec {GREEDY}", (137, True)),
    # Another one after it, and one that tells in its own way that its child was killed, or does not mind.
    ("kill -9 $$", (137, False)),
    (f"{GREEDY} || exit 3", (3, True)),
    (f"{GREEDY}; exit 0", (0, False)),
    ("exit 3", (3, False)),
)
"""Scripts under a memory limit of 32 MiB: what each ends with, and whether the OOM killer ends it."""

_KILLED_WORKER = """
import os, signal, sys
from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions
from bench_worker.engines.registry import open_engine

name, run, image, network, container = sys.argv[1:]
engine = open_engine(name, EngineOptions(run, "w1", 1))
made = Container(container, 1, ContainerSettings(image=image, command=("sleep", "1000"), network=network or None))
engine.run(made, timeout_s=600)  # whoever runs this has the deadline
print(getattr(getattr(made.handle, "main", None), "pid", ""), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class RuntimeBench:
    """An opened engine for one run; what it made is gone at the end."""

    def __init__(self, engine, image, settings=None, **options):
        self.image = image
        self.settings = settings or {}
        self.run_id = f"test-{uuid.uuid4().hex[:12]}"
        self.engine = engine(EngineOptions(self.run_id, "w1", 20, **options))
        self.engine.open()
        self.lease = RunLease(self.run_id)
        self.lease.acquire()

    def container(self, *command, **settings):
        given = {"image": self.image, "command": command or None, **self.settings, **settings}
        return Container(f"wb-{uuid.uuid4().hex[:12]}", 1, ContainerSettings(**given))

    def running(self, *command, **settings):
        container = self.container(*command, **settings)
        self.engine.run(container, timeout_s=ANSWER_S)
        return container

    def killed_worker(self):
        """Let a worker run a container and be killed; return the container's name, and its process if known."""
        name = f"wb-{uuid.uuid4().hex[:12]}"
        words = (self.engine.name, self.run_id, self.image, self.settings.get("network", ""), name)
        worker = CommandLine(sys.executable).sequence(START_S).run_unchecked("-c", _KILLED_WORKER, *words)
        assert worker.exit_code == 137, worker.stderr
        return name, worker.text

    def twenty_life_cycles(self):
        """Let twenty containers come and go at once; return their exit codes, 0 to 19 if none is lost."""

        def life(code):
            made = self.container("sh", "-c", f"exit {code}")
            ran = self.engine.run(made, timeout_s=END_S)
            ended = self.engine.wait(made, timeout_s=END_S)
            removed = self.engine.remove(made, timeout_s=END_S)
            assert ran.start_ns <= ran.end_ns <= removed.start_ns <= removed.end_ns
            return ended.exit_code

        lives = [gevent.spawn(life, code) for code in range(20)]
        return [one.get(timeout=LONG_END_S) for one in lives]

    @staticmethod
    def assert_stamped(done):
        """Each operation has stamps within its bound, and they follow each other."""
        for one in done:
            assert 0 < one.start_ns <= one.end_ns <= time.monotonic_ns()
            assert 0 <= one.end_uncertainty_ns <= one.end_ns - one.start_ns
        assert [one.start_ns for one in done] == sorted(one.start_ns for one in done)

    def assert_failures_distinguished(self):
        """A command that is not there fails otherwise than one that is no program, in an `exec` and by itself."""
        made = self.running(*FOREVER)
        for command, kind in ((("nosuch",), "command-not-found"), (("/plain",), "not-executable")):
            assert kind_of(self.engine.exec, made, command) == kind
            unborn = self.container(*command)
            assert kind_of(self.engine.run, unborn) == kind
            self.engine.remove(unborn, timeout_s=ANSWER_S)

    def assert_deadlines_kept(self):
        """A command that takes too long is killed with its exec; a wait that takes too long changes nothing."""
        made = self.running(*FOREVER)
        assert kind_of(self.engine.exec, made, ("sleep", "777"), timeout_s=0.5) == "timeout"
        look = ("sh", "-c", "cat /proc/[0-9]*/cmdline")
        wait_until(lambda: b"777" not in self.engine.exec(made, look, timeout_s=ANSWER_S).stdout)
        assert kind_of(self.engine.wait, made, timeout_s=0.3) == "timeout"
        assert self.engine.exec(made, ("true",), timeout_s=ANSWER_S).exit_code == 0

    def assert_oom_kill_reported(self):
        """A command beside the container's own that met the memory limit is told from one that was killed."""
        made = self.running(*FOREVER, memory_bytes=32 << 20)
        for script, ended in GREEDY_AND_OTHERS:
            done = self.engine.exec(made, ("sh", "-c", script), timeout_s=ANSWER_S)
            assert (done.exit_code, done.oom_killed) == ended, script
        free = self.running(*FOREVER)
        done = self.engine.exec(free, ("sh", "-c", "kill -9 $$"), timeout_s=ANSWER_S)
        assert (done.exit_code, done.oom_killed) == (137, False)

    def close(self):
        for leftover in self.engine.leftovers(self.run_id):
            self.engine.discard(leftover)
        self.engine.close()
        self.lease.release()


def failure(verb, *arguments, **options):
    before_ns = time.monotonic_ns()
    with pytest.raises(OperationFailed) as caught:
        verb(*arguments, **{"timeout_s": ANSWER_S, **options})
    assert before_ns <= caught.value.start_ns <= caught.value.end_ns <= time.monotonic_ns()
    assert str(caught.value)
    return caught.value


def kind_of(verb, *arguments, **options):
    return failure(verb, *arguments, **options).kind


def printed_by(engine, container):
    """What a command printed to either stream: containerd does not keep them apart."""
    printed = engine.logs(container, limit_bytes=99, timeout_s=ANSWER_S)
    return printed.stdout + printed.stderr


def require(engine):
    """Skip, or fail in CI where that installs it, when an engine cannot be used here."""
    status = engine.probe()
    if not status.usable:
        reason = f"engine {engine.name}: {status.reason}; {status.advice}"
        (pytest.skip if engine.name in OPTIONAL else skip_or_fail)(reason)


def container_names(calls):
    """Return the names of all containers of containerd's namespace of ours."""
    listed = calls.call("containers.v1.Containers/List", messages.ListRequest(), messages.ListContainersResponse)
    return [container.id for container in listed.containers]


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
    commands = (OWNER, CHROOT, HURRY)
    # In gVisor's kernel everybody may hurry, as it is no hurry of the host's.
    free = bench.engine.name == "runsc"
    assert able(bench, *commands) == [True, True, free]
    assert able(bench, *commands, cap_drop=("CHOWN",)) == [False, True, free]
    assert able(bench, *commands, cap_add=("SYS_NICE",)) == [True, True, True]
    assert able(bench, *commands, cap_drop=("ALL",), cap_add=("CHOWN",)) == [True, False, free]
