"""Any container runtime behind a CRI socket: containerd with its CRI plugin, CRI-O.

The CRI is what the kubelet speaks. A container lives in a pod, so `create` makes a pod sandbox and a container in it,
and `remove` removes both. It is spoken directly, over gRPC: each of the calls is one request and one answer, stamped
at the socket. (The command line of its makers, ``crictl``, would add its own start to each.)
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import gevent

from bench_worker.engines import oci_homes
from bench_worker.engines.arguments import parse_signal
from bench_worker.engines.base import Container, Done
from bench_worker.engines.cri.messages import LOG, split_log
from bench_worker.engines.cri_ground import CriGround, done_by, failures
from bench_worker.engines.docker_pull import BY_MESSAGE
from bench_worker.engines.memory_kills import MemoryKills
from bench_worker.engines.native.process import disk_errors, fail
from bench_worker.engines.oci.settings import refusals
from bench_worker.engines.output import read_beginning
from bench_worker.engines.protobuf import blob, number, text, unpack

if TYPE_CHECKING:
    from bench_worker.engines.protobuf import Value

_EXITED: Final = 2
_POLL_S: Final = 0.005
_LOG_ROOM_BYTES: Final = 1 << 16


class CriEngine(CriGround):
    """Drives whatever serves the CRI; see the module's text."""

    def pull(self, container: Container, *, anew: bool, timeout_s: float) -> Done:
        """``PullImage``."""
        with refusals(time.monotonic_ns()), failures(BY_MESSAGE):
            reply = self._images.pull(container.settings.image, anew=anew, timeout_s=timeout_s)
        container.pulled = container.settings.image
        return done_by(reply)

    def create(self, container: Container, *, timeout_s: float) -> Done:
        """``RunPodSandbox`` and ``CreateContainer``."""
        deadline = time.monotonic() + timeout_s
        pod, config = self._before(container)
        with failures():
            first = self._ask("RunPodSandbox", {1: pod.config}, deadline)
            pod.sandbox = text(unpack(first.message), 1)
            message: dict[int, Value] = {1: pod.sandbox, 2: config, 3: pod.config}
            second = self._ask("CreateContainer", message, deadline, since_ns=first.start_ns)
        pod.container = text(unpack(second.message), 1)
        return done_by(second, first.start_ns)

    def start(self, container: Container, *, timeout_s: float) -> Done:
        """``StartContainer``."""
        pod = self._pod(container)
        with failures():
            reply = self._ask("StartContainer", {1: pod.container}, time.monotonic() + timeout_s)
        pod.started = True
        return done_by(reply)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> Done:
        """``ExecSync``; at the timeout the runtime kills the command."""
        pod = self._pod(container)
        if not argv:
            fail("refused", "there is no command to start", time.monotonic_ns())
        message: dict[int, Value] = {1: pod.container, 2: argv, 3: math.ceil(timeout_s)}
        kills = MemoryKills(self._memory_directory(container, pod))
        with failures():
            reply = self._ask("ExecSync", message, time.monotonic() + timeout_s)
        said = unpack(reply.message)
        done = done_by(reply)
        done.exit_code, done.stdout, done.stderr = number(said, 3), blob(said, 1), blob(said, 2)
        done.oom_killed = kills.explain(done)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> Done:
        """Ask for ``ContainerStatus`` every 5 ms until it has exited: the CRI has no call that waits."""
        begun_ns = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        pod = self._pod(container)
        if not pod.started:
            fail("conflict", f"{container.name} was never started", begun_ns)
        running_ns = begun_ns
        while True:
            with failures():
                reply = self._ask("ContainerStatus", {1: pod.container}, deadline, since_ns=begun_ns)
            status = unpack(blob(unpack(reply.message), 1))
            if number(status, 3) == _EXITED:
                break
            # When this was asked it was not over yet.
            running_ns = reply.start_ns
            gevent.sleep(_POLL_S)
            if time.monotonic() > deadline:
                fail("timeout", f"{container.name} had not ended after {timeout_s:g} s", begun_ns)
        oom_killed = text(status, 10) == "OOMKilled"
        bound_ns = reply.end_ns - running_ns
        return Done(begun_ns, reply.end_ns, number(status, 7), oom_killed=oom_killed, end_bound_ns=bound_ns)

    def pause(self, container: Container, *, timeout_s: float) -> Done:
        """Not among `operations`."""
        del timeout_s
        return self._unsupported("pause", container)

    def unpause(self, container: Container, *, timeout_s: float) -> Done:
        """Not among `operations`."""
        del timeout_s
        return self._unsupported("unpause", container)

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> Done:
        """``StopContainer`` with the grace period in whole seconds."""
        pod = self._pod(container)
        with failures():
            reply = self._ask("StopContainer", {1: pod.container, 2: int(grace_s)}, time.monotonic() + timeout_s)
        return done_by(reply)

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> Done:
        """``StopContainer`` with no grace period, which is SIGKILL; the CRI sends no other signal."""
        pod = self._pod(container)
        try:
            name = parse_signal(signal).name
        except ValueError as error:
            fail("refused", str(error), time.monotonic_ns())
        if name != "SIGKILL":
            fail("refused", f"the CRI sends no {name}: SIGKILL, or `stop`", time.monotonic_ns())
        with failures():
            reply = self._ask("StopContainer", {1: pod.container}, time.monotonic() + timeout_s)
        return done_by(reply)

    def remove(self, container: Container, *, timeout_s: float) -> Done:
        """``StopPodSandbox`` and ``RemovePodSandbox``, which take the container with them."""
        pod = self._pod(container)
        begun_ns = time.monotonic_ns()
        done = Done(begun_ns, begun_ns)
        if pod.sandbox:
            deadline = time.monotonic() + timeout_s
            with failures():
                done = self._end_pod(pod.sandbox, deadline)
        with disk_errors(begun_ns):
            oci_homes.delete(pod.directory)
        container.handle = None
        return done

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> Done:
        """Return what its command wrote, from the file that the runtime keeps."""
        del timeout_s
        start_ns = time.monotonic_ns()
        # Each line carries a time and a stream of its own there, which takes more room than a short one.
        logged, cut = read_beginning(self._pod(container).directory / LOG, 8 * limit_bytes + _LOG_ROOM_BYTES)
        stdout, stderr = split_log(logged)
        cut = cut or len(stdout) > limit_bytes or len(stderr) > limit_bytes
        end_ns = time.monotonic_ns()
        return Done(start_ns, end_ns, stdout=stdout[:limit_bytes], stderr=stderr[:limit_bytes], truncated=cut)

    def stats(self, container: Container, *, timeout_s: float) -> Done:
        """``ContainerStats``: one reading, as it came in `stdout`."""
        pod = self._pod(container)
        with failures():
            reply = self._ask("ContainerStats", {1: pod.container}, time.monotonic() + timeout_s)
        done = done_by(reply)
        done.stdout = reply.message
        return done
