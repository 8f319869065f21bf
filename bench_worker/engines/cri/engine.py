"""Any container runtime behind a CRI socket: containerd with its CRI plugin, CRI-O.

The CRI is what the kubelet speaks. A container lives in a pod, so `create` makes a pod sandbox and a container in it,
and `remove` removes both. It is spoken directly, over gRPC: each of the calls is one request and one answer, stamped
at the socket. (The command line of its makers, ``crictl``, would add its own start to each.)

What is around the verbs of the CRI: being found, images, pods of ours, calls and their failures, leftovers.

None of it is timed but the calls themselves, which the verbs make.
"""

from __future__ import annotations

import json
import math
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import gevent

from bench_common.errors import InfrastructureError
from bench_worker.engines.base import (
    RUN_LABEL,
    WORKER_LABEL,
    Container,
    DaemonProcesses,
    EngineStatus,
    Leftover,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.containerd.tasks import ERROR_KINDS
from bench_worker.engines.cri import TRAITS
from bench_worker.engines.cri import images as cri_images
from bench_worker.engines.cri.images import CriImages
from bench_worker.engines.cri.messages import LOG, RUNTIME, container_config, pod_config, pod_filter, split_log
from bench_worker.engines.daemon_processes import cri_daemon
from bench_worker.engines.docker.images import PULL_KIND_PATTERNS
from bench_worker.engines.docker.settings import DEVICE_LIMITS
from bench_worker.engines.grpc import GrpcChannel, GrpcError, GrpcReply, blob, number, pack, text, texts, unpack
from bench_worker.engines.low_level import LowLevelEngine
from bench_worker.engines.native.container import disk_errors_as_failures, raise_operation_failed
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import Cgroups, OomKillCounter, memory_directory
from bench_worker.engines.oci.images import ImageUnavailable
from bench_worker.engines.oci.settings import UnsupportedSetting, as_operation_failures, check_settings, make_volumes
from bench_worker.engines.output import parse_signal, read_head

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.grpc import Value

_BY_CODE: Final = {4: "timeout", 5: "not-found", 6: "conflict", 9: "conflict", 12: "unsupported", 14: "unreachable"}
"""The kinds of failure that gRPC's codes are, where the words say nothing better."""
_KIND_PATTERNS: Final = (("conflict", re.compile("is in CONTAINER_[A-Z]+ state")), *ERROR_KINDS)

_SHIM_GONE: Final = re.compile("failed to kill container.*ttrpc: closed")
"""How containerd says that a container's shim has gone while it was told to kill the container."""


@dataclass(slots=True)
class Pod:
    """A pod of ours and its only container."""

    directory: Path
    config: bytes = b""
    sandbox: str = ""
    container: str = ""
    started: bool = False
    memory: Path | None = None
    """The directory of the cgroup that limits its memory, once it is known."""


class CriBase(LowLevelEngine):
    """What is around the verbs; these are in `bench_worker.engines.cri.engine`."""

    name: ClassVar[str] = "cri"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"pull", "create", "start", "run", "exec", "wait", "stop", "kill", "stats", "logs", "remove"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "command", "memory_bytes", "cpus", "cpuset", "network", "storage", "env", "files", "read_only"}
        | {"security_options", "cap_add", "cap_drop"}
    )
    setup_errors: ClassVar[tuple[type[Exception], ...]] = (ImageUnavailable, GrpcError)
    inapplicable: ClassVar[frozenset[str]] = TRAITS.inapplicable
    reasons: ClassVar[dict[str, str]] = {
        "init": "the CRI has no such setting; use a command that reaps its children",
        "rootfs": "the CRI starts containers from images alone",
        "runtime": "the CRI knows handlers of its own configuration, and no runtimes",
        **dict.fromkeys(("pids", "ulimits", "blkio_weight", *DEVICE_LIMITS), "the CRI has no field for it"),
    }
    lacks: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("pause", "unpause", "commit"), "the CRI has no call for it"),
        **dict.fromkeys(("checkpoint", "restore"), "the CRI has no call that restores a container"),
    }

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask for the runtime's version."""
        return cri_images.probe_cri(
            cls.name,
            operations=cls.operations,
            settings=cls.settings,
            inapplicable=cls.inapplicable,
            reasons=cls.reasons,
            lacks=cls.lacks,
        )

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return whatever listens at the present address, with its helpers."""
        return cri_daemon(cri_images.address())

    def open(self) -> None:
        """See that it answers."""
        self._usable()
        self._channel = GrpcChannel(cri_images.address())
        self._cgroups = Cgroups.look(swap_limit=False)
        self._home = oci_images.make_private(oci_images.containers_directory(self.name))
        self._images = CriImages(self._channel, self._home)

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()

    def _fetch_image(self, settings: ContainerSettings) -> None:
        self._images.get(settings.image)

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
                    self._end_pod(item.identity, deadline)
                    oci_images.delete_directory(self._home / item.name)
                except (GrpcError, OSError) as error:
                    raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error

    def _end_pod(self, sandbox: str, deadline: float) -> OperationResult:
        """Stop and remove a pod with what is in it; raise `GrpcError`.

        containerd fails to stop what ends in the very moment in which it is to be killed, and so is asked again.
        """
        try:
            start_ns = self._ask("StopPodSandbox", {1: sandbox}, deadline).start_ns
        except GrpcError as error:
            if not _SHIM_GONE.search(str(error)):
                raise
            start_ns = error.start_ns
            self._ask("StopPodSandbox", {1: sandbox}, deadline, since_ns=start_ns)
        return result_of_call(self._ask("RemovePodSandbox", {1: sandbox}, deadline, since_ns=start_ns), start_ns)

    def _before(self, container: Container) -> tuple[Pod, bytes]:
        """Get a container's directory, image and configuration ready, which is not timed."""
        begun_ns = time.monotonic_ns()
        self._label(container)
        directory = self._home / container.name
        with as_operation_failures(begun_ns):
            check_settings(type(self), container.settings, self._cgroups, networks=("host",))
            if any(mount.kind == "tmpfs" for mount in container.settings.storage):
                raise UnsupportedSetting("storage: the CRI mounts no tmpfs; use a volume")
            with grpc_as_operation_failures():
                image = container.pulled_image or self._images.get(container.settings.image)
            allow = self.options.allow_host_mounts
            config = container_config(container, image, directory, allow_host_mounts=allow)
        with disk_errors_as_failures(begun_ns):
            directory.mkdir(mode=0o700)
            container.handle = pod = Pod(directory, pod_config(container, directory))
            make_volumes(container.settings, directory)
            oci_bundle.write_files(container.settings.files, directory)
        return pod, config

    def _pod(self, container: Container) -> Pod:
        if not isinstance(container.handle, Pod):
            raise_operation_failed("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle

    def _memory_directory(self, container: Container, pod: Pod) -> Path | None:
        """Return the directory of its cgroup; None where its memory is not limited, or the runtime does not tell.

        The CRI itself has no word for it. What a runtime tells besides, when asked to be verbose, has the number of
        the first process with both containerd and CRI-O.
        """
        if container.settings.memory_bytes is not None and pod.memory is None:
            with suppress(GrpcError, ValueError, TypeError, KeyError):
                deadline = time.monotonic() + self.options.timeout_s
                reply = self._ask("ContainerStatus", {1: pod.container, 2: 1}, deadline)
                told = json.loads(texts(unpack(reply.message), 2)["info"])
                pod.memory = memory_directory(int(told["pid"]), pod.container)
        return pod.memory

    def _pods(self, message: bytes) -> list[Leftover]:
        try:
            reply = self._channel.call(f"{RUNTIME}ListPodSandbox", message, timeout_s=self.options.timeout_s)
        except GrpcError as error:
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
    ) -> GrpcReply:
        """Call a method of the runtime by `deadline`; a failure began at `since_ns`, if that is given."""
        left_s = max(0.001, deadline - time.monotonic())
        try:
            return self._channel.call(RUNTIME + method, pack(fields), timeout_s=left_s)
        except GrpcError as error:
            error.start_ns = error.start_ns if since_ns is None else since_ns
            raise


@contextmanager
def grpc_as_operation_failures(telling: Sequence[tuple[str, re.Pattern[str]]] = ()) -> Iterator[None]:
    """Turn calls that fail into failures of the operation; words that are `telling` go before gRPC's code."""
    try:
        yield
    except GrpcError as error:
        by_words, told = (
            next((kind for kind, pattern in words if pattern.search(str(error))), "")
            for words in (_KIND_PATTERNS, telling)
        )
        kind = told or _BY_CODE.get(error.code) or by_words or "engine"
        raise OperationFailed(kind, str(error), start_ns=error.start_ns, end_ns=error.end_ns) from error


def result_of_call(reply: GrpcReply, start_ns: int | None = None) -> OperationResult:
    """Return the operation that ended with a call, and began with it or at `start_ns`."""
    return OperationResult(
        reply.start_ns if start_ns is None else start_ns, reply.end_ns, end_uncertainty_ns=reply.end_uncertainty_ns
    )


_EXITED: Final = 2
_POLL_S: Final = 0.005
_LOG_ROOM_BYTES: Final = 1 << 16


class CriEngine(CriBase):
    """Drives whatever serves the CRI; see the module's text."""

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """``PullImage``."""
        with as_operation_failures(time.monotonic_ns()), grpc_as_operation_failures(PULL_KIND_PATTERNS):
            reply = self._images.pull(container.settings.image, fresh=fresh, timeout_s=timeout_s)
        container.pulled_image = container.settings.image
        return result_of_call(reply)

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``RunPodSandbox`` and ``CreateContainer``."""
        deadline = time.monotonic() + timeout_s
        pod, config = self._before(container)
        with grpc_as_operation_failures():
            first = self._ask("RunPodSandbox", {1: pod.config}, deadline)
            pod.sandbox = text(unpack(first.message), 1)
            message: dict[int, Value] = {1: pod.sandbox, 2: config, 3: pod.config}
            second = self._ask("CreateContainer", message, deadline, since_ns=first.start_ns)
        pod.container = text(unpack(second.message), 1)
        return result_of_call(second, first.start_ns)

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``StartContainer``."""
        pod = self._pod(container)
        with grpc_as_operation_failures():
            reply = self._ask("StartContainer", {1: pod.container}, time.monotonic() + timeout_s)
        pod.started = True
        return result_of_call(reply)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """``ExecSync``; at the timeout the runtime kills the command."""
        pod = self._pod(container)
        if not argv:
            raise_operation_failed("refused", "there is no command to start", time.monotonic_ns())
        message: dict[int, Value] = {1: pod.container, 2: argv, 3: math.ceil(timeout_s)}
        kills = OomKillCounter(self._memory_directory(container, pod))
        with grpc_as_operation_failures():
            reply = self._ask("ExecSync", message, time.monotonic() + timeout_s)
        said = unpack(reply.message)
        done = result_of_call(reply)
        done.exit_code, done.stdout, done.stderr = number(said, 3), blob(said, 1), blob(said, 2)
        done.oom_killed = kills.explain(done)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Ask for ``ContainerStatus`` every 5 ms until it has exited: the CRI has no call that waits."""
        begun_ns = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        pod = self._pod(container)
        if not pod.started:
            raise_operation_failed("conflict", f"{container.name} was never started", begun_ns)
        running_ns = begun_ns
        while True:
            with grpc_as_operation_failures():
                reply = self._ask("ContainerStatus", {1: pod.container}, deadline, since_ns=begun_ns)
            status = unpack(blob(unpack(reply.message), 1))
            if number(status, 3) == _EXITED:
                break
            # When this was asked it was not over yet.
            running_ns = reply.start_ns
            gevent.sleep(_POLL_S)
            if time.monotonic() > deadline:
                raise_operation_failed("timeout", f"{container.name} had not ended after {timeout_s:g} s", begun_ns)
        oom_killed = text(status, 10) == "OOMKilled"
        bound_ns = reply.end_ns - running_ns
        return OperationResult(
            begun_ns, reply.end_ns, number(status, 7), oom_killed=oom_killed, end_uncertainty_ns=bound_ns
        )

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Not among `operations`."""
        del timeout_s
        return self._unsupported("pause", container)

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Not among `operations`."""
        del timeout_s
        return self._unsupported("unpause", container)

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """``StopContainer`` with the grace period in whole seconds."""
        pod = self._pod(container)
        with grpc_as_operation_failures():
            reply = self._ask("StopContainer", {1: pod.container, 2: int(grace_s)}, time.monotonic() + timeout_s)
        return result_of_call(reply)

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """``StopContainer`` with no grace period, which is SIGKILL; the CRI sends no other signal."""
        pod = self._pod(container)
        try:
            name = parse_signal(signal).name
        except ValueError as error:
            raise_operation_failed("refused", str(error), time.monotonic_ns())
        if name != "SIGKILL":
            raise_operation_failed("refused", f"the CRI sends no {name}: SIGKILL, or `stop`", time.monotonic_ns())
        with grpc_as_operation_failures():
            reply = self._ask("StopContainer", {1: pod.container}, time.monotonic() + timeout_s)
        return result_of_call(reply)

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``StopPodSandbox`` and ``RemovePodSandbox``, which take the container with them."""
        pod = self._pod(container)
        begun_ns = time.monotonic_ns()
        done = OperationResult(begun_ns, begun_ns)
        if pod.sandbox:
            deadline = time.monotonic() + timeout_s
            with grpc_as_operation_failures():
                done = self._end_pod(pod.sandbox, deadline)
        with disk_errors_as_failures(begun_ns):
            oci_images.delete_directory(pod.directory)
        container.handle = None
        return done

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its command wrote, from the file that the runtime keeps."""
        del timeout_s
        start_ns = time.monotonic_ns()
        # Each line carries a time and a stream of its own there, which takes more room than a short one.
        logged, cut = read_head(self._pod(container).directory / LOG, 8 * limit_bytes + _LOG_ROOM_BYTES)
        stdout, stderr = split_log(logged)
        cut = cut or len(stdout) > limit_bytes or len(stderr) > limit_bytes
        end_ns = time.monotonic_ns()
        return OperationResult(
            start_ns, end_ns, stdout=stdout[:limit_bytes], stderr=stderr[:limit_bytes], truncated=cut
        )

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``ContainerStats``: one reading, as it came in `stdout`."""
        pod = self._pod(container)
        with grpc_as_operation_failures():
            reply = self._ask("ContainerStats", {1: pod.container}, time.monotonic() + timeout_s)
        done = result_of_call(reply)
        done.stdout = reply.message
        return done
