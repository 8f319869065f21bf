"""containerd, through its own command line ``ctr``, in a namespace of its own.

A container in containerd is a record and a snapshot; a task is its process. `create` makes the first, `start` the
second, `remove` deletes both. The end of a process is stamped by the reaper's thread, which waits on a pidfd: it is
no child of ours, so its exit code is what containerd tells of it (see `bench_worker.engines.containerd_exits`).
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import gevent

from bench_worker.engines import containerd_commit, containerd_spec, oci_homes
from bench_worker.engines.arguments import parse_signal
from bench_worker.engines.base import Container, Done
from bench_worker.engines.command_line import Errand
from bench_worker.engines.containerd import probe as containerd_probe
from bench_worker.engines.containerd.tasks import delete, held_still, steer, until_ended
from bench_worker.engines.containerd_exec import Execution
from bench_worker.engines.containerd_ground import ContainerdGround
from bench_worker.engines.memory_kills import MemoryKills
from bench_worker.engines.native.process import disk_errors, ended_at, fail
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci.settings import refusals
from bench_worker.engines.output import read_beginning
from bench_worker.timing.processes import WaitTimeout

_TOLD_S: Final = 10.0
"""How long after the end of a process containerd may take to tell its exit code."""


class ContainerdEngine(ContainerdGround):
    """Drives containerd by ``ctr``; see the module's text."""

    def pull(self, container: Container, *, anew: bool, timeout_s: float) -> Done:
        """``images pull``, which unpacks it, too."""
        with refusals(time.monotonic_ns()):
            errand, container.pulled = self._images.pull(container.settings.image, anew=anew, timeout_s=timeout_s)
        return errand.done()

    def create(self, container: Container, *, timeout_s: float) -> Done:
        """``containers create``: a snapshot and a record."""
        words = self._before(container, "containers", "create")
        errand = self._cli.errand(timeout_s)
        errand.do(*words)
        if containerd_spec.is_needed(container.settings):
            self._specifications.confine(container.name, container.settings, timeout_s=errand.left_s())
        return errand.done()

    def start(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks start --detach``; what is left of a task that has ended goes before."""
        task = self._task(container)
        errand = self._cli.errand(timeout_s)
        if task.started and task.main is not None and task.main.exit is not None:
            errand.do("tasks", "delete", container.name)
        return self._launch(container, errand, "tasks", "start", "--detach", *task.options, container.name)

    def run(self, container: Container, *, timeout_s: float) -> Done:
        """``run --detach``: both in one. Two commands where its specification has to be changed in between."""
        if containerd_spec.is_needed(container.settings):
            return super().run(container, timeout_s=timeout_s)
        words = self._before(container, "run", "--detach")
        return self._launch(container, self._cli.errand(timeout_s), *words)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> Done:
        """``Exec``, ``Start`` and ``Wait`` of its API, attached. At the timeout the command is killed, too."""
        task = self._task(container)
        if not argv:
            fail("refused", "there is no command to start", time.monotonic_ns())
        task.execs += 1
        exec_id = f"exec-{task.execs}"
        deadline = time.monotonic() + timeout_s
        process = self._specifications.process(container.name, argv, timeout_s=timeout_s)
        kills = MemoryKills(self._memory_directory(container))
        execution = Execution(self._api, container.name, exec_id, task.directory)
        done = execution.run(process, timeout_s=deadline - time.monotonic())
        done.oom_killed = kills.explain(done)
        return done

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
        directory = self._memory_directory(container)
        done.oom_killed = bool(done.exit_code) and directory is not None and oci_cgroups.oom_kills(directory) > 0
        return done

    def _memory_directory(self, container: Container) -> Path | None:
        """Return the directory of its cgroup; None where its memory is not limited."""
        if container.settings.memory_bytes is None:
            return None
        return self._cgroups.memory_directory(f"/{containerd_probe.NAMESPACE}/{container.name}")

    def pause(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks pause``."""
        done = self._simply(container, timeout_s, "tasks", "pause")
        self._task(container).paused = True
        return done

    def unpause(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks resume``."""
        done = self._simply(container, timeout_s, "tasks", "resume")
        self._task(container).paused = False
        return done

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> Done:
        """``tasks kill`` with the image's stop signal and, after `grace_s`, with SIGKILL; done when it is dead."""
        task = self._task(container)
        deadline = time.monotonic() + timeout_s
        errand = self._cli.errand(timeout_s)
        if not task.started or task.main is None or task.main.exit is not None:
            return errand.done()
        steer(errand, task.main, "tasks", "kill", container.name)
        if grace_s < timeout_s:
            with suppress(WaitTimeout):
                return self._dead(container, ended_at(errand.start_ns, task.main.wait(grace_s)))
            steer(errand, task.main, "tasks", "kill", "--signal", "SIGKILL", container.name)
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

    def commit(self, container: Container, *, timeout_s: float) -> Done:
        """``snapshots diff``, while it is paused, then ``images import`` of that on top of its image, and labels."""
        task = self._task(container)
        before = self._cli.errand(timeout_s)
        base = containerd_commit.base_of(before, task.image, container.name)
        layer, archive = task.directory / "layer.tar", task.directory / "image.tar"
        name = f"{containerd_commit.images_of(container.name)}{len(container.images) + 1}"
        errand = self._cli.errand(before.left_s())
        try:
            with held_still(errand, container.name, task):
                errand.do(*containerd_commit.DIFF, container.name, stdout_path=str(layer))
            with disk_errors(errand.start_ns):
                work = (layer, archive, base, container)
                packing = gevent.get_hub().threadpool.spawn(containerd_commit.pack, *work)
                try:
                    task.committed_bytes = packing.get(timeout=errand.left_s())
                except gevent.Timeout:
                    raise errand.failure("timeout", "the image was not packed in its time") from None
            errand.do("images", "import", "--index-name", name, str(archive))
            container.images.append(name)
            errand.do("images", "label", name, *(f"{key}={value}" for key, value in container.labels.items()))
        finally:
            for path in (layer, archive):
                path.unlink(missing_ok=True)
        return errand.done()

    def committed_bytes(self, container: Container, *, timeout_s: float) -> int | None:
        """Return the size of the files in the layer that the last `commit` added."""
        del timeout_s
        return self._task(container).committed_bytes

    def remove(self, container: Container, *, timeout_s: float) -> Done:
        """``tasks delete --force`` where it was started, ``containers delete``, and its images."""
        task = self._task(container)
        errand = self._cli.errand(timeout_s)
        if task.started:
            delete(errand, "tasks", "delete", "--force", container.name)
        delete(errand, "containers", "delete", container.name)
        while container.images:
            delete(errand, "images", "rm", "--sync", container.images[-1])
            container.images.pop()
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

    def _launch(self, container: Container, errand: Errand, *words: str) -> Done:
        """Start the process, by a command that ends before it, and watch it from then on."""
        task = self._task(container)
        self._exits.expect(container.name)
        errand.do(*words)
        task.watch(errand.start_ns)
        return errand.done()

    def _simply(self, container: Container, timeout_s: float, *words: str) -> Done:
        self._task(container)
        errand = self._cli.errand(timeout_s)
        errand.do(*words, container.name)
        return errand.done()

    def _dead(self, container: Container, done: Done) -> Done:
        """Let containerd see that the process has ended, before it is asked to delete its task: not timed."""
        self._exits.code(container.name, _TOLD_S)
        return done
