"""Drives an OCI runtime by its command line: what runc, crun, youki and runsc have in common, which is nearly all.

The runtime is called once for each verb, and what it takes is what is measured. The bundle is made before and taken
away after. A container's first process is left to us when the runtime has detached from it, so its end and exit code
come from the reaper's thread (see `bench_worker.timing.subreaper`), not from asking the runtime again and again.
"""

from __future__ import annotations

import signal as signals
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench_worker.engines import oci_checkpoint
from bench_worker.engines.arguments import parse_signal
from bench_worker.engines.base import Container, Done, OperationFailed
from bench_worker.engines.command_line import Errand
from bench_worker.engines.memory_kills import MemoryKills
from bench_worker.engines.native.process import disk_errors, ended_at, fail, until_dead, wait_for
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci.runtime import kill_noted
from bench_worker.engines.oci_ground import OciGround
from bench_worker.engines.output import read_beginning
from bench_worker.timing.processes import Process, WaitTimeout

_ENDING_S: Final = 0.2


class OciEngine(OciGround):
    """One OCI runtime. A subclass gives its name, its options and what it cannot do."""

    def create(self, container: Container, *, timeout_s: float) -> Done:
        """Make the bundle (not timed), then ``create``: the container is there, its command does not run yet."""
        return self._make(container, timeout_s, "create")

    def start(self, container: Container, *, timeout_s: float) -> Done:
        """``start``: the command takes the place of what waited in the container."""
        self._bundle(container)
        return self._simply(container, "start", timeout_s)

    def run(self, container: Container, *, timeout_s: float) -> Done:
        """Make the bundle (not timed), then ``run --detach``."""
        return self._make(container, timeout_s, "run", "--detach")

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> Done:
        """``exec``, attached. At the timeout the command is killed, too."""
        if not argv:
            fail("refused", "there is no command to start", time.monotonic_ns())
        if self._bundle(container).paused:
            # A runtime that looks before the kernel has frozen all of it would start a command that never runs.
            fail("conflict", f"{container.name} is paused; unpause it before exec", time.monotonic_ns())
        with disk_errors(time.monotonic_ns()):
            words = self.exec_words(container, argv)
        kills = MemoryKills(self._memory_directory(container))
        errand = self._errand(container, timeout_s)
        pid_file = errand.log.with_suffix(".pid")
        try:
            answer = errand.call("exec", self.exec_pid_option, str(pid_file), *words)
        except OperationFailed:
            self.end_exec(container, pid_file)
            raise
        if answer.exit_code and errand.complaint():
            raise errand.failed(answer)
        done = errand.done(
            exit_code=answer.exit_code, stdout=answer.stdout, stderr=answer.stderr, truncated=answer.truncated
        )
        done.oom_killed = kills.explain(done)
        return done

    def exec_words(self, container: Container, argv: tuple[str, ...]) -> list[str]:
        """Return what says, after ``exec`` and its options, where a command is executed and which one."""
        return [container.name, *argv]

    def end_exec(self, container: Container, pid_file: Path) -> None:
        """Kill the command of an `exec` whose runtime was killed; one that is gone is no error."""
        del container
        kill_noted(pid_file)

    def wait(self, container: Container, *, timeout_s: float) -> Done:
        """Wait for the end of the first process; its stamp is the reaper's. No command of the runtime is run."""
        start_ns = time.monotonic_ns()
        bundle = self._bundle(container)
        if bundle.main is None:
            fail("conflict", f"{container.name} was never started", start_ns)
        done = wait_for(bundle.main, start_ns, time.monotonic() + timeout_s)
        directory = self._memory_directory(container)
        done.oom_killed = bool(done.exit_code) and directory is not None and oci_cgroups.oom_kills(directory) > 0
        return done

    def _memory_directory(self, container: Container) -> Path | None:
        """Return the directory of its cgroup; None where its memory is not limited."""
        if container.settings.memory_bytes is None:
            return None
        return self._cgroups.memory_directory(self._bundle(container).cgroups_path)

    def pause(self, container: Container, *, timeout_s: float) -> Done:
        """``pause``."""
        done = self._simply(container, "pause", timeout_s)
        self._bundle(container).paused = True
        return done

    def unpause(self, container: Container, *, timeout_s: float) -> Done:
        """``resume``."""
        done = self._simply(container, "resume", timeout_s)
        self._bundle(container).paused = False
        return done

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> Done:
        """``kill`` with the image's stop signal and, after `grace_s`, with SIGKILL; done when the process is dead."""
        bundle = self._bundle(container)
        errand = self._errand(container, timeout_s)
        deadline = time.monotonic() + timeout_s
        main = bundle.main
        if main is None or main.exit is not None:
            return errand.done()
        self._signal(errand, container, bundle.stop_signal, main)
        if grace_s < timeout_s:
            with suppress(WaitTimeout):
                return ended_at(errand.start_ns, main.wait(grace_s))
            self._signal(errand, container, "SIGKILL", main)
        return ended_at(errand.start_ns, until_dead(main, errand.start_ns, deadline))

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> Done:
        """``kill``. After SIGKILL, done when the first process is dead; the runtime itself does not wait for that."""
        bundle = self._bundle(container)
        deadline = time.monotonic() + timeout_s
        try:
            number = parse_signal(signal)
        except ValueError as error:
            fail("refused", str(error), time.monotonic_ns())
        errand = self._errand(container, timeout_s)
        if bundle.main is None or bundle.main.exit is not None:
            raise errand.failure("conflict", f"{container.name} is not running")
        self._signal(errand, container, number.name, bundle.main)
        if number is not signals.SIGKILL:
            return errand.done()
        return ended_at(errand.start_ns, until_dead(bundle.main, errand.start_ns, deadline))

    def checkpoint(self, container: Container, *, timeout_s: float) -> Done:
        """``checkpoint``: its processes are saved in its directory, and end."""
        bundle = self._bundle(container)
        main = bundle.main
        if main is None or main.exit is not None:
            fail("conflict", f"{container.name} is not running", time.monotonic_ns())
        with disk_errors(time.monotonic_ns()):
            oci_checkpoint.declare_outputs(bundle, main.pid)
            words = oci_checkpoint.words(bundle, anew=True)
        errand = self._errand(container, timeout_s)
        answer = errand.call("checkpoint", *self.saving_options, *words, container.name)
        if answer.exit_code:
            raise oci_checkpoint.explained(bundle, errand.failed(answer))
        return errand.done()

    def restore(self, container: Container, *, timeout_s: float) -> Done:
        """``restore --detach``: processes with the old numbers go on where the saved ones were."""
        bundle = self._bundle(container)
        with disk_errors(time.monotonic_ns()):
            words = oci_checkpoint.words(bundle)
        errand = self._errand(container, timeout_s)
        try:
            self.clear(container, errand)
            words = [*self.saving_options, *words]
            return self._launch(container, errand, "restore", "--detach", *words, append=True)
        except OperationFailed as failure:
            raise oci_checkpoint.explained(bundle, failure) from failure

    def clear(self, container: Container, errand: Errand) -> None:
        """Do what this runtime needs before a saved container is restored: nothing, as a rule."""

    def remove(self, container: Container, *, timeout_s: float) -> Done:
        """``delete --force``, then the bundle (not timed)."""
        bundle = self._bundle(container)
        errand = self._errand(container, timeout_s)
        self._thaw(errand, container)
        errand.do("delete", "--force", container.name)
        done = errand.done()
        with disk_errors(done.start_ns):
            self._bundles.delete(bundle.directory)
        container.handle = None
        return done

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> Done:
        """Return what the first process wrote to its two files."""
        del timeout_s
        start_ns = time.monotonic_ns()
        bundle = self._bundle(container)
        stdout, cut_out = read_beginning(bundle.stdout, limit_bytes)
        stderr, cut_err = read_beginning(bundle.stderr, limit_bytes)
        return Done(start_ns, time.monotonic_ns(), stdout=stdout, stderr=stderr, truncated=cut_out or cut_err)

    def stats(self, container: Container, *, timeout_s: float) -> Done:
        """``events --stats``: one reading, as JSON in `stdout`."""
        errand = self._errand(container, timeout_s)
        answer = errand.do("events", "--stats", container.name)
        return errand.done(stdout=answer.stdout)

    def _simply(self, container: Container, verb: str, timeout_s: float) -> Done:
        self._bundle(container)
        errand = self._errand(container, timeout_s)
        errand.do(verb, container.name)
        return errand.done()

    def _signal(self, errand: Errand, container: Container, signal: str, main: Process) -> None:
        """Send a signal to the first process; one that has just ended is no error, one that is paused must go on."""
        self._thaw(errand, container)
        answer = errand.call("kill", container.name, signal.removeprefix("SIG"))
        if answer.exit_code:
            try:
                main.wait(_ENDING_S)
            except WaitTimeout:
                raise errand.failed(answer) from None

    def _thaw(self, errand: Errand, container: Container) -> None:
        """Let a paused container go on, as it has to take its signals."""
        bundle = self._bundle(container)
        if bundle.paused:
            errand.do("resume", container.name)
            bundle.paused = False
