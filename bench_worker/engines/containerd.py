"""containerd, through its own command line ``ctr``, in a namespace of its own.

A container in containerd is a record and a snapshot; a task is its process. `create` makes the first, `start` the
second, `remove` deletes both. The end of a process is stamped by the reaper's thread, which waits on a pidfd: it is
no child of ours, so its exit code is what containerd tells of it (see `bench_worker.engines.containerd_exits`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import EngineUnavailable
from bench_worker.engines import (
    containerd_leftovers,
    containerd_probe,
    host_network,
    oci_cgroups,
    oci_files,
    oci_homes,
)
from bench_worker.engines.arguments import parse_signal
from bench_worker.engines.base import (
    RUN_LABEL,
    TICKET_LABEL,
    WORKER_LABEL,
    Container,
    DaemonSide,
    Done,
    Engine,
    EngineStatus,
    Leftover,
    OperationFailed,
)
from bench_worker.engines.command_line import CommandLine, Errand
from bench_worker.engines.containerd_exits import Exits
from bench_worker.engines.containerd_images import ContainerdImages
from bench_worker.engines.containerd_options import create_options
from bench_worker.engines.containerd_tasks import FAILED_EXEC, KINDS, Task, delete, send_signal, until_ended
from bench_worker.engines.daemon_sides import containerd_side
from bench_worker.engines.docker_settings import MountRefused
from bench_worker.engines.native_stock import disk_errors, ended_at, fail
from bench_worker.engines.oci_images import ImageTrouble
from bench_worker.engines.oci_settings import SettingRefused, check_settings, make_volumes
from bench_worker.engines.output import read_beginning
from bench_worker.processes import WaitTimeout

if TYPE_CHECKING:
    from bench_common.spec import ContainerSettings

_TOLD_S: Final = 10.0
"""How long after the end of a process containerd may take to tell its exit code."""
_END_EXEC_S: Final = 5.0


class ContainerdEngine(Engine):
    """Drives containerd by ``ctr``; see the module's text."""

    name: ClassVar[str] = "containerd"
    operations: ClassVar[frozenset[str]] = frozenset(
        {
            "pull",
            "create",
            "start",
            "run",
            "exec",
            "wait",
            "pause",
            "unpause",
            "stop",
            "kill",
            "stats",
            "logs",
            "remove",
        }
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "command", "memory_bytes", "cpus", "network", "storage", "env", "files", "read_only"}
    )
    inapplicable: ClassVar[frozenset[str]] = frozenset({"log_driver", "log_options"})
    reasons: ClassVar[dict[str, str]] = {
        "init": "containerd brings no init of its own; use a command that reaps its children",
        "cpuset": "ctr has no option for it",
        "rootfs": "ctr makes no snapshot of a directory; use an OCI runtime",
    }

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask containerd for its version."""
        return containerd_probe.look(
            cls.name,
            operations=cls.operations,
            settings=cls.settings,
            inapplicable=cls.inapplicable,
            reasons=cls.reasons,
        )

    @classmethod
    def daemon_side(cls) -> DaemonSide:
        """Return the containerd that listens at the present address, with its shims."""
        return containerd_side(containerd_probe.address())

    def open(self) -> None:
        """See that it answers, and begin to hear of exits."""
        status = self.probe()
        if not status.usable:
            raise EngineUnavailable(f"engine {self.name!r} cannot be used: {status.reason} ({status.advice})")
        ctr, *options = program = containerd_probe.program(containerd_probe.address())
        self._cli = CommandLine(ctr, tuple(options), kinds=KINDS)
        self._cgroups = oci_cgroups.Cgroups.look(swap_limit=False)
        self._home = oci_homes.make_private(oci_homes.containers(self.name))
        self._images = ContainerdImages(self._cli, self._home)
        self._exits = Exits(program, containerd_probe.NAMESPACE)
        self._exits.open()

    def close(self) -> None:
        """Hear no more."""
        self._exits.close()

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Say what is in the way of the image; import it where nothing is."""
        try:
            self._images.get(settings.image)
        except (ImageTrouble, OperationFailed) as trouble:
            return [str(trouble)]
        return []

    def prepare(self, settings: ContainerSettings) -> None:
        """Import the image, which takes seconds."""
        self.missing(settings)

    def pull(self, container: Container, *, anew: bool, timeout_s: float) -> Done:
        """``images pull``, which unpacks it, too."""
        try:
            errand, container.pulled = self._images.pull(container.settings.image, anew=anew, timeout_s=timeout_s)
        except ImageTrouble as error:
            fail(error.kind, str(error), time.monotonic_ns())
        return errand.done()

    def create(self, container: Container, *, timeout_s: float) -> Done:
        """``containers create``: a snapshot and a record."""
        words = self._before(container, "containers", "create")
        errand = self._cli.errand(timeout_s)
        errand.do(*words)
        return errand.done()

    def start(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks start --detach``; what is left of a task that has ended goes before."""
        task = self._task(container)
        errand = self._cli.errand(timeout_s)
        if task.started and task.main is not None and task.main.exit is not None:
            errand.do("tasks", "delete", container.name)
        return self._launch(container, errand, "tasks", "start", "--detach", *task.files, container.name)

    def run(self, container: Container, *, timeout_s: float) -> Done:
        """``run --detach``: both in one."""
        words = self._before(container, "run", "--detach")
        return self._launch(container, self._cli.errand(timeout_s), *words)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> Done:
        """``tasks exec``, attached. At the timeout the command is killed, too."""
        task = self._task(container)
        if not argv:
            fail("refused", "there is no command to start", time.monotonic_ns())
        task.execs += 1
        exec_id = f"exec-{task.execs}"
        errand = self._cli.errand(timeout_s)
        try:
            answer = errand.call("tasks", "exec", "--exec-id", exec_id, container.name, *argv)
        except OperationFailed:
            with suppress(OperationFailed):
                late = self._cli.errand(_END_EXEC_S)
                late.do("tasks", "kill", "--exec-id", exec_id, "--signal", "SIGKILL", container.name)
            raise
        if answer.exit_code == 1 and FAILED_EXEC.search(answer.complaint):
            raise errand.failed(answer)
        return errand.done(
            exit_code=answer.exit_code, stdout=answer.stdout, stderr=answer.stderr, truncated=answer.truncated
        )

    def wait(self, container: Container, *, timeout_s: float) -> Done:
        """Wait for the end of the process (stamped), and for containerd to tell its exit code."""
        start_ns = time.monotonic_ns()
        task = self._task(container)
        if not task.started:
            fail("conflict", f"{container.name} was never started", start_ns)
        done = until_ended(task, start_ns, timeout_s)
        done.exit_code = self._exits.code(container.name, _TOLD_S)
        if done.exit_code is None:
            fail("engine", f"containerd has not told how {container.name} ended, {_TOLD_S:g} s later", start_ns)
        if done.exit_code and container.settings.memory_bytes is not None:
            path = f"/{containerd_probe.NAMESPACE}/{container.name}"
            done.oom_killed = oci_cgroups.oom_kills(self._cgroups.memory_directory(path)) > 0
        return done

    def pause(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks pause``."""
        return self._simply(container, timeout_s, "tasks", "pause")

    def unpause(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks resume``."""
        return self._simply(container, timeout_s, "tasks", "resume")

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> Done:
        """``tasks kill`` with the image's stop signal and, after `grace_s`, with SIGKILL; done when it is dead."""
        task = self._task(container)
        deadline = time.monotonic() + timeout_s
        errand = self._cli.errand(timeout_s)
        if not task.started or task.main is None or task.main.exit is not None:
            return errand.done()
        send_signal(errand, container.name, task.main)
        if grace_s < timeout_s:
            with suppress(WaitTimeout):
                return self._dead(container, ended_at(errand.start_ns, task.main.wait(grace_s)))
            send_signal(errand, container.name, task.main, "--signal", "SIGKILL")
        return self._dead(container, until_ended(task, errand.start_ns, deadline - time.monotonic()))

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> Done:
        """``tasks kill``. After SIGKILL, done when the process is dead."""
        task = self._task(container)
        deadline = time.monotonic() + timeout_s
        try:
            number = parse_signal(signal)
        except ValueError as error:
            fail("refused", str(error), time.monotonic_ns())
        errand = self._cli.errand(timeout_s)
        errand.do("tasks", "kill", "--signal", number.name, container.name)
        if number.name != "SIGKILL" or task.main is None:
            return errand.done()
        return self._dead(container, until_ended(task, errand.start_ns, deadline - time.monotonic()))

    def remove(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks delete --force`` where it was started, then ``containers delete``."""
        task = self._task(container)
        errand = self._cli.errand(timeout_s)
        if task.started:
            delete(errand, "tasks", "delete", "--force", container.name)
        delete(errand, "containers", "delete", container.name)
        with disk_errors(errand.start_ns):
            oci_homes.delete(task.directory)
        self._exits.forget(container.name)
        container.handle = None
        return errand.done()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> Done:
        """Return what its command wrote; containerd puts both streams in one file, so all of it is `stdout`."""
        del timeout_s
        start_ns = time.monotonic_ns()
        stdout, cut = read_beginning(self._task(container).directory / "log", limit_bytes)
        return Done(start_ns, time.monotonic_ns(), stdout=stdout, truncated=cut)

    def stats(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks metrics``: one reading, as JSON in `stdout`."""
        self._task(container)
        errand = self._cli.errand(timeout_s)
        answer = errand.do("tasks", "metrics", "--format", "json", container.name)
        return errand.done(stdout=answer.stdout)

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's, for a container in the host's network; there is no other way to one."""
        del timeout_s
        return host_network.address_of(container)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers of our namespace that carry the label."""
        return containerd_leftovers.find(self._cli, run_id, worker_id, timeout_s=self.options.timeout_s)

    def discard(self, leftover: Leftover) -> None:
        """Delete the task and the container, if it still carries the label of that run."""
        containerd_leftovers.remove(self._cli, leftover, self._home, timeout_s=self.options.timeout_s)

    def _before(self, container: Container, *words: str) -> tuple[str, ...]:
        """Get a container's directory and image ready, which is not timed; return the command that makes it."""
        begun_ns = time.monotonic_ns()
        container.labels.update(
            {
                RUN_LABEL: self.options.run_id,
                WORKER_LABEL: self.options.worker_id,
                TICKET_LABEL: str(container.ticket),
            }
        )
        directory = self._home / container.name
        try:
            check_settings(type(self), container.settings, self._cgroups)
            image = container.pulled or self._images.get(container.settings.image)
            options = create_options(container, directory, allow_host_mounts=self.options.allow_host_mounts)
        except ImageTrouble as error:
            fail(error.kind, str(error), begun_ns)
        except (SettingRefused, MountRefused) as error:
            fail("refused", str(error), begun_ns)
        with disk_errors(begun_ns):
            directory.mkdir(mode=0o700)
            container.handle = task = Task(directory)
            make_volumes(container.settings, directory)
            oci_files.write(container.settings.files, directory)
        if words[0] == "run":
            options += task.files
        return (*words, *options, "--", image, container.name, *(container.settings.command or ()))

    def _launch(self, container: Container, errand: Errand, *words: str) -> Done:
        """Start the process, by a command that ends before it, and watch it from then on."""
        task = self._task(container)
        self._exits.expect(container.name)
        errand.do(*words)
        task.watch(errand.start_ns)
        return errand.done()

    def _task(self, container: Container) -> Task:
        if not isinstance(container.handle, Task):
            fail("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle

    def _simply(self, container: Container, timeout_s: float, *words: str) -> Done:
        self._task(container)
        errand = self._cli.errand(timeout_s)
        errand.do(*words, container.name)
        return errand.done()

    def _dead(self, container: Container, done: Done) -> Done:
        """Let containerd see that the process has ended, before it is asked to delete its task: not timed."""
        self._exits.code(container.name, _TOLD_S)
        return done
