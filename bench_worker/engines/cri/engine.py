"""Any container runtime behind a CRI socket: containerd with its CRI plugin, CRI-O.

The CRI is what the kubelet speaks. A container lives in a pod, so `create` makes a pod sandbox and a container in it,
and `remove` removes both. Each of its calls is one request and one reply, stamped at the socket; ``crictl``, its
command line, would add its own start to each.
"""

from __future__ import annotations

import json
import math
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import gevent

from bench_common.errors import InfrastructureError
from bench_common.long_output import OUTPUT_GAP, join_ends, keep_ends
from bench_worker.engines.base import (
    HOST,
    OWNER_LABEL,
    RUN_LABEL,
    WORKER_LABEL,
    Container,
    DaemonProcesses,
    EngineStatus,
    ImageUnavailable,
    Leftover,
    LowLevelEngine,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.cost_group import CostGroups, group_path, remove_group
from bench_worker.engines.cri import TRAITS
from bench_worker.engines.cri import images as cri_images
from bench_worker.engines.cri import messages_pb2 as messages
from bench_worker.engines.cri.images import PACKAGE, CriImages
from bench_worker.engines.daemon_processes import cri_daemon
from bench_worker.engines.grpc import CallSequence, GrpcChannel
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import Cgroups, OomKillCounter, cgroup_path, memory_directory
from bench_worker.engines.oci.spec import (
    CPU_PERIOD_US,
    UnsupportedSetting,
    as_operation_failures,
    bind_mount,
    check_settings,
    make_volumes,
)
from bench_worker.engines.output import parse_signal, read_ends
from bench_worker.engines.results import (
    delete_directory,
    disk_errors_as_failures,
    raise_operation_failed,
    result_at_exit,
)
from bench_worker.engines.settings import DEVICE_LIMITS, GVISOR_ONLY
from bench_worker.engines.surroundings import image_surroundings
from bench_worker.program_digest import listening_program
from bench_worker.timing.processes import Process, WaitTimeout, spawn_lock, watch_process

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from google.protobuf.message import Message

    from bench_common.requirements import ImageProgram
    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import Container, CostMeter


_RUNTIME: Final = "RuntimeService/"
_SHIM_GONE: Final = re.compile("failed to (?:stop|kill) container.*ttrpc: closed")
"""containerd's message when a container's shim ends while it is to stop or kill the container."""
_POLL_S: Final = 0.005
_LOG_ROOM_BYTES: Final = 1 << 16


LOG: Final = "log"
"""The name of a container's log in its directory of ours."""

_POD_NAMESPACE: Final = "weighbridge"
_UNCONFINED: Final = messages.SecurityProfile(profile_type=messages.SecurityProfile.UNCONFINED)


def pod_config(container: Container, directory: Path) -> messages.PodSandboxConfig:
    """Return the configuration of a pod of one container, which logs below `directory`."""
    name, network = container.name, container.settings.network
    options = messages.NamespaceOption(network=_network_mode(network))
    return messages.PodSandboxConfig(
        metadata=messages.PodSandboxMetadata(name=name, uid=name, namespace=_POD_NAMESPACE),
        hostname="" if network == HOST else "weighbridge",
        log_directory=str(directory),
        labels=container.labels,
        linux=messages.LinuxPodSandboxConfig(
            cgroup_parent=group_path(name),
            security_context=messages.LinuxSandboxSecurityContext(namespace_options=options),
        ),
    )


def container_config(
    container: Container, image: str, directory: Path, *, allow_host_mounts: bool
) -> messages.ContainerConfig:
    """Return the configuration of a pod's container; raise `UnsupportedSetting` and `MountRefused`."""
    settings = container.settings
    binds = [bind_mount(storage, directory, allow_host_mounts=allow_host_mounts) for storage in settings.storage]
    return messages.ContainerConfig(
        metadata=messages.ContainerMetadata(name="main"),
        image=messages.ImageSpec(image=image),
        args=settings.command or (),
        envs=[messages.KeyValue(key=name, value=value) for name, value in settings.env.items()],
        mounts=[
            messages.Mount(
                container_path=mount["destination"], host_path=mount["source"], readonly="ro" in mount["options"]
            )
            for mount in (*binds, *oci_bundle.bind_mounts(settings.files, directory))
        ],
        labels=container.labels,
        log_path=LOG,
        linux=messages.LinuxContainerConfig(
            resources=_resources(settings), security_context=_security_context(settings)
        ),
    )


def _security_context(settings: ContainerSettings) -> messages.LinuxContainerSecurityContext:
    options = settings.security_options
    return messages.LinuxContainerSecurityContext(
        capabilities=messages.Capability(add_capabilities=settings.cap_add, drop_capabilities=settings.cap_drop),
        namespace_options=messages.NamespaceOption(network=_network_mode(settings.network), pid=messages.CONTAINER),
        readonly_rootfs=bool(settings.read_only),
        no_new_privs="no-new-privileges" in options,
        seccomp=_UNCONFINED if "seccomp=unconfined" in options else None,
        apparmor=_UNCONFINED if "apparmor=unconfined" in options else None,
    )


def _network_mode(network: str | None) -> messages.NamespaceMode:
    return messages.NODE if network == HOST else messages.POD


def _resources(settings: ContainerSettings) -> messages.LinuxContainerResources:
    quota = None if settings.cpus is None else round(settings.cpus * CPU_PERIOD_US)
    return messages.LinuxContainerResources(
        cpu_period=CPU_PERIOD_US if quota else None,
        cpu_quota=quota,
        memory_limit_in_bytes=settings.memory_bytes,
        cpuset_cpus=settings.cpuset,
    )


def split_log(text: bytes) -> tuple[bytes, bytes]:
    """Return stdout and stderr of a log in the CRI's format: lines of time, stream, F or P (part of a line), text."""
    streams: dict[bytes, bytearray] = {b"stdout": bytearray(), b"stderr": bytearray()}
    for line in text.splitlines():
        _, _, rest = line.partition(b" ")
        stream, _, rest = rest.partition(b" ")
        tag, _, printed = rest.partition(b" ")
        if stream in streams:
            streams[stream] += printed + (b"\n" if tag.startswith(b"F") else b"")
    return bytes(streams[b"stdout"]), bytes(streams[b"stderr"])


@dataclass(slots=True)
class Pod:
    """A pod of ours and its only container."""

    directory: Path
    config: messages.PodSandboxConfig = field(default_factory=messages.PodSandboxConfig)
    """What it is made from."""
    sandbox: str = ""
    """The runtime's name for it, once it is made."""
    container: str = ""
    """The runtime's name for its container, once that is made."""
    started: bool = False
    """Whether its container was started."""
    memory: Path | None = None
    """The directory of the cgroup that limits its memory, once it is known."""


class CriEngine(LowLevelEngine):
    """Drives what serves the CRI; see the module's text."""

    name: ClassVar[str] = "cri"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"pull", "create", "start", "run", "exec", "wait", "stop", "kill", "stats", "logs", "remove"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "command", "memory_bytes", "cpus", "cpuset", "network", "storage", "env", "files", "read_only"}
        | {"security_options", "cap_add", "cap_drop"}
    )
    setup_errors: ClassVar[tuple[type[Exception], ...]] = (ImageUnavailable, OperationFailed)
    inapplicable: ClassVar[frozenset[str]] = TRAITS.inapplicable
    unsupported_settings: ClassVar[Mapping[str, str]] = {
        "init": "the CRI has no such setting; use a command that reaps its children",
        "rootfs": "the CRI starts containers from images alone",
        "runtime": "the CRI knows handlers of its own configuration, and no runtimes",
        "snapshotter": "the runtime's own configuration names it",
        "gvisor_platform": GVISOR_ONLY,
        "directory": "containers of the CRI start in the directory of their image here",
        **dict.fromkeys(("pids", "ulimits", "blkio_weight", *DEVICE_LIMITS), "the CRI has no field for it"),
    }
    unsupported_operations: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("pause", "unpause", "commit"), "the CRI has no call for it"),
    }

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask for the runtime's version."""
        return cri_images.probe_cri(cls, cri_images.address(cls.place))

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return what listens at the present address, with its helpers."""
        return cri_daemon(cri_images.address(cls.place))

    @classmethod
    def program_of(cls, status: EngineStatus) -> str:
        """Return the daemon's."""
        return listening_program(status.endpoint)

    def open(self) -> None:
        """Check that the runtime answers."""
        self._usable()
        self._channel = GrpcChannel(cri_images.address(self.place), PACKAGE)
        self._cgroups = Cgroups.detect(swap_limit=False)
        self._cost_groups = CostGroups(self._cgroups)
        self._home = oci_images.make_private(oci_images.containers_directory(self.name))
        self._images = CriImages(self._channel, self._home)

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()
        self._cost_groups.close()

    def _fetch_image(self, settings: ContainerSettings) -> None:
        self._images.get(settings.image)

    def image_digest(self, settings: ContainerSettings) -> str:
        """Return the image's id, the digest of its configuration, which names its layers."""
        return self._images.digest(settings.image)

    def surroundings(self, settings: ContainerSettings, wanted: ImageProgram | None) -> Mapping[str, str]:
        """Return what the image's configuration says; the CRI shows no files of images."""
        if settings.image is None or wanted is None or (config := self._images.config(settings.image)) is None:
            return {}
        return image_surroundings(config, wanted, lambda _: None)

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """``PullImage``."""
        with as_operation_failures(time.monotonic_ns()):
            done = self._images.pull(container.settings.image, fresh=fresh, timeout_s=timeout_s)
        container.pulled_image = container.settings.image
        return done

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``RunPodSandbox`` and ``CreateContainer``."""
        begun = time.monotonic()
        pod, config = self._prepare_pod(container)
        calls = self._calls(begun + timeout_s - time.monotonic())
        request = messages.RunPodSandboxRequest(config=pod.config)
        pod.sandbox = calls.call(f"{_RUNTIME}RunPodSandbox", request, messages.RunPodSandboxResponse).pod_sandbox_id
        pod.container = calls.call(
            f"{_RUNTIME}CreateContainer",
            messages.CreateContainerRequest(pod_sandbox_id=pod.sandbox, config=config, sandbox_config=pod.config),
            messages.CreateContainerResponse,
        ).container_id
        return calls.result()

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``StartContainer``."""
        pod = self._pod(container)
        calls = self._calls(timeout_s)
        calls.do(f"{_RUNTIME}StartContainer", messages.StartContainerRequest(container_id=pod.container))
        pod.started = True
        return calls.result()

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """``ExecSync``; at the timeout the runtime kills the command."""
        pod = self._pod(container)
        if not argv:
            raise_operation_failed("refused", "there is no command to start", time.monotonic_ns())
        kills = OomKillCounter(self._memory_directory(container, pod))
        request = messages.ExecSyncRequest(container_id=pod.container, cmd=argv, timeout=math.ceil(timeout_s))
        calls = self._calls(timeout_s)
        reply = calls.call(f"{_RUNTIME}ExecSync", request, messages.ExecSyncResponse)
        done = calls.result(exit_code=reply.exit_code, stdout=reply.stdout, stderr=reply.stderr)
        done.oom_killed = kills.explain(done)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait for the end of its process, then ask for ``ContainerStatus`` until the runtime knows of it, too.

        The CRI has no call that waits. Where the process is not to be seen from here, it is only asked, every 5 ms.
        """
        begun_ns = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        pod = self._pod(container)
        if not pod.started:
            raise_operation_failed("conflict", f"{container.name} was never started", begun_ns)
        running_ns, process, ended, asked = begun_ns, None, None, False
        while True:
            calls = self._calls(max(0.001, deadline - time.monotonic()))
            calls.start_ns = begun_ns
            reply = self._status(calls, pod, verbose=not asked)
            status = reply.status
            if status.state == messages.CONTAINER_EXITED:
                break
            # It still ran when this was asked.
            running_ns = calls.last_start_ns
            if not asked:
                asked, process = True, _watch_container(reply.info, pod.container, begun_ns)
            if process is not None and ended is None:
                with suppress(WaitTimeout):
                    ended = process.wait(max(0.0, deadline - time.monotonic()))
            else:
                gevent.sleep(_POLL_S)
            if time.monotonic() > deadline:
                raise_operation_failed("timeout", f"{container.name} did not end within {timeout_s:g} s", begun_ns)
        done = calls.result() if ended is None else result_at_exit(begun_ns, ended)
        if ended is None:
            done.end_uncertainty_ns = calls.end_ns - running_ns
        done.exit_code, done.oom_killed = status.exit_code, status.reason == "OOMKilled"
        return done

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
        return self._stop(container, int(grace_s), timeout_s)

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """``StopContainer`` with no grace period, which is SIGKILL; the CRI sends no other signal."""
        self._pod(container)
        try:
            name = parse_signal(signal).name
        except ValueError as error:
            raise_operation_failed("refused", str(error), time.monotonic_ns())
        if name != "SIGKILL":
            raise_operation_failed("refused", f"the CRI sends no {name}: SIGKILL, or `stop`", time.monotonic_ns())
        return self._stop(container, 0, timeout_s)

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``StopPodSandbox`` and ``RemovePodSandbox``, which take the container with them."""
        pod = self._pod(container)
        calls = self._calls(timeout_s)
        if pod.sandbox:
            _remove_pod(calls, pod.sandbox)
        with disk_errors_as_failures(calls.start_ns or time.monotonic_ns()):
            delete_directory(pod.directory)
        if container.cost_group is not None:
            container.cost_group.remove()
        else:
            self._cost_groups.remove(group_path(container.name))
        container.handle = None
        return calls.result()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its command wrote, from the file that the runtime keeps."""
        del timeout_s
        start_ns = time.monotonic_ns()
        # Each line carries a time and a stream of its own there, which takes more room than a short one.
        logged, cut = read_ends(self._pod(container).directory / LOG, 8 * limit_bytes + _LOG_ROOM_BYTES)
        if cut:
            first, _, last = logged.partition(OUTPUT_GAP.encode())
            ends = zip(split_log(first), split_log(last), strict=True)
            stdout, stderr = (join_ends(head, tail, limit_bytes) for head, tail in ends)
        else:
            (stdout, cut_out), (stderr, cut_err) = (keep_ends(each, limit_bytes) for each in split_log(logged))
            cut = cut_out or cut_err
        return OperationResult(start_ns, time.monotonic_ns(), stdout=stdout, stderr=stderr, truncated=cut)

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``ContainerStats``: one reading, as the runtime sent it, in `stdout`."""
        pod = self._pod(container)
        calls = self._calls(timeout_s)
        request = messages.ContainerStatsRequest(container_id=pod.container)
        reply = calls.call(f"{_RUNTIME}ContainerStats", request, messages.ContainerStatsResponse)
        return calls.result(stdout=reply.SerializeToString())

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the pods that carry the label."""
        wanted = {RUN_LABEL: run_id, WORKER_LABEL: worker_id}
        labels = {label: value for label, value in wanted.items() if value is not None}
        return [item for item in self._pods(messages.PodSandboxFilter(label_selector=labels)) if item.run_id]

    def discard(self, leftover: Leftover) -> None:
        """Remove a pod that still carries the label of that run."""
        calls = self._calls(self.options.timeout_s)
        for item in self._pods(messages.PodSandboxFilter(id=leftover.identity)):
            if (item.identity, item.run_id) == (leftover.identity, leftover.run_id):
                try:
                    _remove_pod(calls, item.identity)
                    remove_group(group_path(item.name))
                    delete_directory(self._home / item.name)
                except (OperationFailed, OSError) as error:
                    raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error

    def cost_meter(self, container: Container) -> CostMeter:
        """Return what reads the group of its pod, which has the pod's idle process, too."""
        return dict if container.cost_group is None else container.cost_group.meter()

    def _calls(self, timeout_s: float) -> CallSequence:
        return CallSequence(self._channel, timeout_s)

    def _prepare_pod(self, container: Container) -> tuple[Pod, messages.ContainerConfig]:
        """Prepare a container's directory, image and configuration, which is not timed."""
        begun_ns = time.monotonic_ns()
        self._label(container)
        directory = self._home / container.name
        with as_operation_failures(begun_ns):
            check_settings(type(self), container.settings, self._cgroups, networks=("host",))
            if any(mount.kind == "tmpfs" for mount in container.settings.storage):
                raise UnsupportedSetting("storage: the CRI mounts no tmpfs; use a volume")
            image = container.pulled_image or self._images.get(container.settings.image)
            allow = self.options.allow_host_mounts
            config = container_config(container, image, directory, allow_host_mounts=allow)
        if container.counts_cost:
            self._cost_groups.add(container)
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

    def _stop(self, container: Container, grace_s: int, timeout_s: float) -> OperationResult:
        request = messages.StopContainerRequest(container_id=self._pod(container).container, timeout=grace_s)
        calls = self._calls(timeout_s)
        _do_despite_end(calls, "StopContainer", request)
        return calls.result()

    def _memory_directory(self, container: Container, pod: Pod) -> Path | None:
        """Return the directory of its cgroup; None where its memory is not limited, or the runtime does not show it.

        The CRI has no field for it. In its verbose form, the status has the number of the first process, with both
        containerd and CRI-O.
        """
        if container.settings.memory_bytes is not None and pod.memory is None:
            with suppress(OperationFailed, ValueError, TypeError, KeyError):
                info = self._status(self._calls(self.options.timeout_s), pod, verbose=True).info
                pod.memory = memory_directory(int(json.loads(info["info"])["pid"]), pod.container)
        return pod.memory

    def cgroup(self, container: Container) -> str | None:
        """Return where its first process is, as far as the runtime shows that and it is on this host."""
        pod = self._pod(container)
        with suppress(OperationFailed, ValueError, TypeError, KeyError):
            info = self._status(self._calls(self.options.timeout_s), pod, verbose=True).info
            return cgroup_path(int(json.loads(info["info"])["pid"]), pod.container)
        return None

    def _pods(self, wanted: messages.PodSandboxFilter) -> list[Leftover]:
        request = messages.ListPodSandboxRequest(filter=wanted)
        calls = self._calls(self.options.timeout_s)
        try:
            pods = calls.call(f"{_RUNTIME}ListPodSandbox", request, messages.ListPodSandboxResponse).items
        except OperationFailed as error:
            raise InfrastructureError(f"the CRI does not list what was left behind: {error}") from error
        now_s = time.time()
        return [
            Leftover(
                self.name,
                "pod",
                pod.id,
                pod.metadata.name,
                pod.labels.get(RUN_LABEL, ""),
                max(0.0, now_s - pod.created_at / 1e9),
                pod.labels.get(OWNER_LABEL, ""),
            )
            for pod in pods
        ]

    @staticmethod
    def _status(calls: CallSequence, pod: Pod, *, verbose: bool = False) -> messages.ContainerStatusResponse:
        request = messages.ContainerStatusRequest(container_id=pod.container, verbose=verbose)
        return calls.call(f"{_RUNTIME}ContainerStatus", request, messages.ContainerStatusResponse)


def _watch_container(info: Mapping[str, str], identity: str, start_ns: int) -> Process | None:
    """Watch the first process of a running container; None where the runtime does not show it, or it is not here."""
    try:
        pid = int(json.loads(info["info"])["pid"])
    except (ValueError, TypeError, LookupError):
        return None
    if memory_directory(pid, identity) is None:
        return None
    with suppress(ProcessLookupError), spawn_lock:
        process = watch_process(pid, start_ns=start_ns)
        # The number may have become another's just before.
        return process if memory_directory(pid, identity) is not None or process.exit is not None else None
    return None


def _remove_pod(calls: CallSequence, sandbox: str) -> None:
    """Stop and remove a pod with what is in it; raise `OperationFailed`."""
    request = messages.PodSandboxRequest(pod_sandbox_id=sandbox)
    _do_despite_end(calls, "StopPodSandbox", request)
    calls.do(f"{_RUNTIME}RemovePodSandbox", request)


def _do_despite_end(calls: CallSequence, method: str, request: Message) -> None:
    """Call a method that stops something; raise `OperationFailed`.

    containerd fails to stop what ends in the very moment in which it is to be signalled: the connection to its shim
    is closed, and it has not heard of the end yet. It is asked again until it has, before the deadline of `calls`.
    """
    while True:
        try:
            calls.do(f"{_RUNTIME}{method}", request)
        except OperationFailed as error:
            if not _SHIM_GONE.search(str(error)):
                raise
            gevent.sleep(_POLL_S)
        else:
            return
