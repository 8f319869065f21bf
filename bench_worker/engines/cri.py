"""Any container runtime behind a CRI socket: containerd with its CRI plugin, CRI-O.

The CRI is what the kubelet speaks. A container lives in a pod, so `create` makes a pod sandbox and a container in it,
and `remove` removes both. It is spoken directly, over gRPC: each of the calls is one request and one answer, stamped
at the socket. (The command line of its makers, ``crictl``, would add its own start to each.)
"""

from __future__ import annotations

import math
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import gevent

from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_worker.engines import cri_probe, host_network, oci_files, oci_homes
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
from bench_worker.engines.containerd_tasks import KINDS
from bench_worker.engines.cri_images import CriImages
from bench_worker.engines.cri_messages import LOG, RUNTIME, container_config, pod_config, pod_filter, split_log
from bench_worker.engines.daemon_sides import cri_side
from bench_worker.engines.docker_pull import BY_MESSAGE
from bench_worker.engines.docker_settings import MountRefused
from bench_worker.engines.grpc_channel import CallFailed, Channel, Reply
from bench_worker.engines.native_stock import disk_errors, fail
from bench_worker.engines.oci_cgroups import Cgroups
from bench_worker.engines.oci_images import ImageTrouble
from bench_worker.engines.oci_settings import SettingRefused, check_settings, make_volumes
from bench_worker.engines.output import read_beginning
from bench_worker.engines.protobuf import blob, number, pack, text, texts, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_common.spec import ContainerSettings
    from bench_worker.engines.protobuf import Value

_BY_CODE: Final = {4: "timeout", 5: "not-found", 6: "conflict", 9: "conflict", 12: "unsupported", 14: "unreachable"}
"""The kinds of failure that gRPC's codes are, where the words say nothing better."""
_WORDS: Final = (("conflict", re.compile("is in CONTAINER_[A-Z]+ state")), *KINDS)
_EXITED: Final = 2
_POLL_S: Final = 0.005
_LOG_ROOM_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Pod:
    """A pod of ours and its only container."""

    directory: Path
    config: bytes = b""
    sandbox: str = ""
    container: str = ""
    started: bool = False


class CriEngine(Engine):
    """Drives whatever serves the CRI; see the module's text."""

    name: ClassVar[str] = "cri"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"pull", "create", "start", "run", "exec", "wait", "stop", "kill", "stats", "logs", "remove"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "command", "memory_bytes", "cpus", "cpuset", "network", "storage", "env", "files", "read_only"}
    )
    inapplicable: ClassVar[frozenset[str]] = frozenset({"log_driver", "log_options"})
    reasons: ClassVar[dict[str, str]] = {
        "init": "the CRI has no such setting; use a command that reaps its children",
        "rootfs": "the CRI starts containers from images alone",
    }

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask for the runtime's version."""
        return cri_probe.look(
            cls.name,
            operations=cls.operations,
            settings=cls.settings,
            inapplicable=cls.inapplicable,
            reasons=cls.reasons,
        )

    @classmethod
    def daemon_side(cls) -> DaemonSide:
        """Return whatever listens at the present address, with its helpers."""
        return cri_side(cri_probe.address())

    def open(self) -> None:
        """See that it answers."""
        status = self.probe()
        if not status.usable:
            raise EngineUnavailable(f"engine {self.name!r} cannot be used: {status.reason} ({status.advice})")
        self._channel = Channel(cri_probe.address())
        self._cgroups = Cgroups.look(swap_limit=False)
        self._home = oci_homes.make_private(oci_homes.containers(self.name))
        self._images = CriImages(self._channel, self._home)

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Say what is in the way of the image; get it where nothing is."""
        try:
            self._images.get(settings.image)
        except (ImageTrouble, CallFailed) as trouble:
            return [str(trouble)]
        return []

    def prepare(self, settings: ContainerSettings) -> None:
        """Get the image, which takes seconds."""
        self.missing(settings)

    def pull(self, container: Container, *, anew: bool, timeout_s: float) -> Done:
        """``PullImage``."""
        try:
            with _failures(BY_MESSAGE):
                reply = self._images.pull(container.settings.image, anew=anew, timeout_s=timeout_s)
        except ImageTrouble as error:
            fail(error.kind, str(error), time.monotonic_ns())
        container.pulled = container.settings.image
        return _done(reply)

    def create(self, container: Container, *, timeout_s: float) -> Done:
        """``RunPodSandbox`` and ``CreateContainer``."""
        deadline = time.monotonic() + timeout_s
        pod, config = self._before(container)
        with _failures():
            first = self._ask("RunPodSandbox", {1: pod.config}, deadline)
            pod.sandbox = text(unpack(first.message), 1)
            message: dict[int, Value] = {1: pod.sandbox, 2: config, 3: pod.config}
            second = self._ask("CreateContainer", message, deadline, since_ns=first.start_ns)
        pod.container = text(unpack(second.message), 1)
        return _done(second, first.start_ns)

    def start(self, container: Container, *, timeout_s: float) -> Done:
        """``StartContainer``."""
        pod = self._pod(container)
        with _failures():
            reply = self._ask("StartContainer", {1: pod.container}, time.monotonic() + timeout_s)
        pod.started = True
        return _done(reply)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> Done:
        """``ExecSync``; at the timeout the runtime kills the command."""
        pod = self._pod(container)
        if not argv:
            fail("refused", "there is no command to start", time.monotonic_ns())
        message: dict[int, Value] = {1: pod.container, 2: argv, 3: math.ceil(timeout_s)}
        with _failures():
            reply = self._ask("ExecSync", message, time.monotonic() + timeout_s)
        said = unpack(reply.message)
        done = _done(reply)
        done.exit_code, done.stdout, done.stderr = number(said, 3), blob(said, 1), blob(said, 2)
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
            with _failures():
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
        with _failures():
            reply = self._ask("StopContainer", {1: pod.container, 2: int(grace_s)}, time.monotonic() + timeout_s)
        return _done(reply)

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> Done:
        """``StopContainer`` with no grace period, which is SIGKILL; the CRI sends no other signal."""
        pod = self._pod(container)
        try:
            name = parse_signal(signal).name
        except ValueError as error:
            fail("refused", str(error), time.monotonic_ns())
        if name != "SIGKILL":
            fail("refused", f"the CRI sends no {name}: SIGKILL, or `stop`", time.monotonic_ns())
        with _failures():
            reply = self._ask("StopContainer", {1: pod.container}, time.monotonic() + timeout_s)
        return _done(reply)

    def remove(self, container: Container, *, timeout_s: float) -> Done:
        """``StopPodSandbox`` and ``RemovePodSandbox``, which take the container with them."""
        pod = self._pod(container)
        begun_ns = time.monotonic_ns()
        done = Done(begun_ns, begun_ns)
        if pod.sandbox:
            deadline = time.monotonic() + timeout_s
            with _failures():
                first = self._ask("StopPodSandbox", {1: pod.sandbox}, deadline)
                second = self._ask("RemovePodSandbox", {1: pod.sandbox}, deadline, since_ns=first.start_ns)
            done = _done(second, first.start_ns)
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
        with _failures():
            reply = self._ask("ContainerStats", {1: pod.container}, time.monotonic() + timeout_s)
        done = _done(reply)
        done.stdout = reply.message
        return done

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's, for a container in the host's network; there is no other way to one."""
        del timeout_s
        return host_network.address_of(container)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the pods that carry the label."""
        wanted = {RUN_LABEL: run_id, WORKER_LABEL: worker_id}
        labels = {label: value for label, value in wanted.items() if value is not None}
        return [item for item in self._pods(pod_filter(labels=labels)) if item.run_id]

    def discard(self, leftover: Leftover) -> None:
        """Remove a pod that still carries the label of that run."""
        deadline = time.monotonic() + self.options.timeout_s
        for item in self._pods(pod_filter(leftover.identity)):
            if (item.identity, item.run_id) == (leftover.identity, leftover.run_id):
                try:
                    self._ask("StopPodSandbox", {1: item.identity}, deadline)
                    self._ask("RemovePodSandbox", {1: item.identity}, deadline)
                    oci_homes.delete(self._home / item.name)
                except (CallFailed, OSError) as error:
                    raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error

    def _before(self, container: Container) -> tuple[Pod, bytes]:
        """Get a container's directory, image and configuration ready, which is not timed."""
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
            check_settings(type(self), container.settings, self._cgroups, networks=("host",))
            if any(mount.kind == "tmpfs" for mount in container.settings.storage):
                raise SettingRefused("storage: the CRI mounts no tmpfs; use a volume")
            with _failures():
                image = container.pulled or self._images.get(container.settings.image)
            allow = self.options.allow_host_mounts
            config = container_config(container, image, directory, allow_host_mounts=allow)
        except ImageTrouble as error:
            fail(error.kind, str(error), begun_ns)
        except (SettingRefused, MountRefused) as error:
            fail("refused", str(error), begun_ns)
        with disk_errors(begun_ns):
            directory.mkdir(mode=0o700)
            container.handle = pod = Pod(directory, pod_config(container, directory))
            make_volumes(container.settings, directory)
            oci_files.write(container.settings.files, directory)
        return pod, config

    def _pod(self, container: Container) -> Pod:
        if not isinstance(container.handle, Pod):
            fail("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle

    def _pods(self, message: bytes) -> list[Leftover]:
        try:
            reply = self._channel.call(f"{RUNTIME}ListPodSandbox", message, timeout_s=self.options.timeout_s)
        except CallFailed as error:
            raise InfrastructureError(f"the CRI cannot say what was left behind: {error}") from error
        found = []
        for item in unpack(reply.message).get(1, ()):
            pod = unpack(item) if isinstance(item, bytes) else {}
            run = texts(pod, 5).get(RUN_LABEL, "")
            age_s = max(0.0, time.time() - number(pod, 4) / 1e9)
            found.append(Leftover(self.name, "pod", text(pod, 1), text(unpack(blob(pod, 2)), 1), run, age_s))
        return found

    def _ask(
        self, method: str, fields: Mapping[int, Value], deadline: float, *, since_ns: int | None = None
    ) -> Reply:
        """Call a method of the runtime by `deadline`; a failure began at `since_ns`, if that is given."""
        left_s = max(0.001, deadline - time.monotonic())
        try:
            return self._channel.call(RUNTIME + method, pack(fields), timeout_s=left_s)
        except CallFailed as error:
            error.start_ns = error.start_ns if since_ns is None else since_ns
            raise


@contextmanager
def _failures(telling: Sequence[tuple[str, re.Pattern[str]]] = ()) -> Iterator[None]:
    """Turn calls that fail into failures of the operation; words that are `telling` go before gRPC's code."""
    try:
        yield
    except CallFailed as error:
        by_words, told = (
            next((kind for kind, pattern in words if pattern.search(str(error))), "") for words in (_WORDS, telling)
        )
        kind = told or _BY_CODE.get(error.code) or by_words or "engine"
        raise OperationFailed(kind, str(error), start_ns=error.start_ns, end_ns=error.end_ns) from error


def _done(reply: Reply, start_ns: int | None = None) -> Done:
    return Done(reply.start_ns if start_ns is None else start_ns, reply.end_ns, end_bound_ns=reply.end_bound_ns)
