"""containerd, through its own API, in a namespace of its own.

A container in containerd is a record and a snapshot; a task is its process. `create` makes the first two, `start` the
third, `remove` deletes all. Clean-up finds what carries Weighbridge's label, in that namespace alone.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from google.protobuf.any_pb2 import Any as TypedValue

from bench_common.errors import InfrastructureError
from bench_common.host_info import SIDE_DETAIL
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
from bench_worker.engines.containerd import TRAITS, storage
from bench_worker.engines.containerd import api as containerd_api
from bench_worker.engines.containerd import images as containerd_images
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import NAMESPACE, SNAPSHOTTER, ContainerdApi
from bench_worker.engines.containerd.images import ContainerdImages, committed_image_prefix, read_in_layers
from bench_worker.engines.containerd.storage import IMAGES
from bench_worker.engines.containerd.tasks import TASKS, ExecProcess, Task, delete_task, read_metrics
from bench_worker.engines.daemon_processes import containerd_daemon
from bench_worker.engines.grpc import NotFound
from bench_worker.engines.image_programs import absent_reason, find_in_root, program_places
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import Cgroups, OomKillCounter
from bench_worker.engines.oci.spec import SETTINGS as CONFINEMENT
from bench_worker.engines.oci.spec import (
    HostContext,
    ImageConfig,
    UnsupportedSetting,
    User,
    as_operation_failures,
    bind_mount,
    check_settings,
    make_config,
    make_volumes,
)
from bench_worker.engines.output import parse_signal, read_ends
from bench_worker.engines.results import (
    delete_directory,
    disk_errors_as_failures,
    raise_operation_failed,
    result_at_exit,
)
from bench_worker.engines.settings import GVISOR_ONLY
from bench_worker.engines.surroundings import image_surroundings
from bench_worker.program_digest import listening_program
from bench_worker.timing.processes import WaitTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench_common.requirements import ImageProgram
    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import CostMeter
    from bench_worker.engines.grpc import CallSequence

_CONTAINERS: Final = "containers.v1.Containers/"
_RUNTIME: Final = "io.containerd.runc.v2"
_SPEC_TYPE: Final = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
_IMAGE: Final = "image"
_EXIT_CODE_TIMEOUT_S: Final = 10.0
"""How long after the end of a process containerd may take to know its exit code."""
_OPEN_FILES: Final = {"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 1024}
_RUN_MOUNT: Final = {
    "destination": "/run",
    "type": "tmpfs",
    "source": "tmpfs",
    "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
}
_HOST_FILES: Final = ("/etc/hosts", "/etc/resolv.conf")


def container_spec(
    container: Container,
    image: ImageConfig,
    user: User,
    directory: Path,
    *,
    cgroups: Cgroups,
    allow_host_mounts: bool,
) -> dict[str, Any]:
    """Return the OCI specification of a container; its volumes are below `directory`.

    It is that of the OCI engines, but for what containerd's own client does otherwise: a process gets no new
    privileges and at most 1,024 open files, /run is a tmpfs, no cgroups are mounted, and a container in the host's
    network has the host's name and its files of names. Raises `UnsupportedSetting` and `MountRefused`.
    """
    settings = container.settings
    binds = [bind_mount(storage, directory, allow_host_mounts=allow_host_mounts) for storage in settings.storage]
    binds += oci_bundle.bind_mounts(settings.files, directory)
    if settings.network == HOST:
        binds[:0] = [
            {"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]}
            for path in _HOST_FILES
            if os.path.exists(path)  # noqa: PTH110
        ]
    place = HostContext(
        rootfs="rootfs",
        cgroups_path=f"/{NAMESPACE}/{container.name}",
        cgroup_v2=cgroups.version > 1,
        swap_limit=False,
        binds=[_RUN_MOUNT, *binds],
    )
    try:
        spec = make_config({}, image, settings, user, place)
    except ValueError as error:
        raise UnsupportedSetting(str(error)) from error
    process = spec["process"]
    if not process["args"]:
        raise UnsupportedSetting("there is no command: neither `command` nor the image says what runs")
    del spec["hostname"]
    spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "cgroup"]
    process["noNewPrivileges"] = True
    limits = process.setdefault("rlimits", [])
    if all(limit["type"] != _OPEN_FILES["type"] for limit in limits):
        limits.append(_OPEN_FILES)
    return spec


class ContainerdEngine(LowLevelEngine):
    """Drives containerd; see the module's text."""

    name: ClassVar[str] = "containerd"
    operations: ClassVar[frozenset[str]] = frozenset(
        {"pull", "create", "start", "run", "exec", "wait", "pause", "unpause", "stop", "kill", "commit", "stats"}
        | {"logs", "remove"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "command", "memory_bytes", "cpus", "cpuset", "network", "storage", "env", "files", "snapshotter"}
        | {"directory"}
        | CONFINEMENT
    )
    setup_errors: ClassVar[tuple[type[Exception], ...]] = (ImageUnavailable, OperationFailed)
    inapplicable: ClassVar[frozenset[str]] = TRAITS.inapplicable
    unsupported_settings: ClassVar[Mapping[str, str]] = {
        "init": "containerd brings no init of its own; use a command that reaps its children",
        "runtime": "containers run under runc, containerd's default; runtimes are engines of their own",
        "rootfs": "containerd starts containers from images; use an OCI runtime",
        "gvisor_platform": GVISOR_ONLY,
    }

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask containerd for its version."""
        return containerd_api.probe_containerd(cls, containerd_api.address(cls.place))

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return the containerd that listens at the present address, with its shims."""
        return containerd_daemon(containerd_api.address(cls.place))

    @classmethod
    def program_of(cls, status: EngineStatus) -> str:
        """Return the daemon's."""
        return listening_program(status.endpoint)

    def open(self) -> None:
        """Check that it answers."""
        self._usable()
        self._cgroups = Cgroups.detect(swap_limit=False)
        self._home = oci_images.make_private(oci_images.containers_directory(self.name))
        self._api = ContainerdApi(containerd_api.address(self.place))
        self._images = ContainerdImages(self._api, self._home)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _fetch_image(self, settings: ContainerSettings) -> None:
        name = self._images.get(settings.image)
        if settings.snapshotter is not None:
            self._images.unpack(name, settings.snapshotter)

    def image_digest(self, settings: ContainerSettings) -> str:
        """Return the id that the imported image had in the Docker Engine: it is in its name."""
        return self._images.get(settings.image).removeprefix(containerd_images.IMPORTED)

    def absent_program(self, settings: ContainerSettings, wanted: ImageProgram) -> str:
        """Look in the layers of the image."""
        image = self._images.resolve(self._images.get(settings.image))
        places = program_places(wanted, image.document.get("config") or {})
        with self._images.layers(image) as roots:
            if not (places and roots) or any(find_in_root(place, *roots) for place in places):
                return ""
        return absent_reason(settings.image, wanted, places)

    def surroundings(self, settings: ContainerSettings, wanted: ImageProgram | None) -> Mapping[str, str]:
        """Look in the layers of the image; see `container_spec` for the open files."""
        if wanted is None:
            return {}
        image = self._images.resolve(self._images.get(settings.image))
        with self._images.layers(image) as roots:
            found = image_surroundings(
                image.document.get("config") or {}, wanted, lambda place: read_in_layers(place, roots)
            )
        return {f"{SIDE_DETAIL}open files": str(_OPEN_FILES["soft"]), **found}

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """Fetch the image from its registry into the content store, and unpack it, which only the usual one does."""
        if container.settings.snapshotter not in (None, SNAPSHOTTER):
            text = f"pull unpacks into the snapshotter {SNAPSHOTTER}, and not into {container.settings.snapshotter}"
            raise_operation_failed("refused", text, time.monotonic_ns())
        with as_operation_failures(time.monotonic_ns()):
            done, container.pulled_image = self._images.pull(
                container.settings.image, fresh=fresh, timeout_s=timeout_s
            )
        return done

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``Containers/Create`` and ``Snapshots/Prepare``: a record and a writable snapshot of its image."""
        task, record, chain = self._prepare_record(container)
        calls = self._api.calls(timeout_s)
        # The record first: it keeps the snapshot from the garbage collector, and clean-up finds it.
        calls.do(f"{_CONTAINERS}Create", messages.ContainerMessage(container=record))
        task.mounts = storage.prepare_snapshot(calls, container.name, chain, task.snapshotter)
        return calls.result()

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``Tasks/Create`` and ``Tasks/Start``; what is left of a task that has ended is deleted before."""
        task = self._task(container)
        calls = self._api.calls(timeout_s)
        task.start(calls)
        return calls.result()

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """``Tasks/Exec``, ``Start`` and ``Wait``, streams attached; at the timeout the command is killed."""
        task = self._task(container)
        if not argv:
            raise_operation_failed("refused", "there is no command to start", time.monotonic_ns())
        kills = OomKillCounter(self._memory_directory(container))
        done = ExecProcess(self._api, task, f"exec-{next(task.exec_numbers)}").run(argv, timeout_s=timeout_s)
        done.oom_killed = kills.explain(done)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait for the end of the process (stamped), then ask for its exit code by ``Tasks/Wait``."""
        start_ns = time.monotonic_ns()
        task = self._task(container)
        if not task.started:
            raise_operation_failed("conflict", f"{container.name} was never started", start_ns)
        done = task.wait_ended(start_ns, timeout_s)
        done.exit_code = task.exit_code(self._api.calls(_EXIT_CODE_TIMEOUT_S))
        directory = self._memory_directory(container)
        done.oom_killed = bool(done.exit_code) and directory is not None and oci_cgroups.oom_kills(directory) > 0
        return done

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``Tasks/Pause``."""
        done = self._do(container, "Pause", timeout_s)
        self._task(container).paused = True
        return done

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``Tasks/Resume``."""
        done = self._do(container, "Resume", timeout_s)
        self._task(container).paused = False
        return done

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """``Tasks/Kill`` with the image's stop signal and, after `grace_s`, with SIGKILL; done when it is dead.

        Without a grace period, SIGKILL alone.
        """
        task = self._task(container)
        deadline = time.monotonic() + timeout_s
        calls = self._api.calls(timeout_s)
        if not task.started:
            return calls.result()
        if task.main is None or not task.runs:
            return self._confirm_end(task, calls.result())
        if grace_s > 0:
            task.do_unless_ended(calls, "Kill", _kill(container, task.stop_signal))
        if 0 < grace_s < timeout_s:
            with suppress(WaitTimeout):
                return self._confirm_end(task, result_at_exit(calls.start_ns, task.main.wait(grace_s)))
        if grace_s < timeout_s:
            task.do_unless_ended(calls, "Kill", _kill(container, "SIGKILL"))
        return self._confirm_end(task, task.wait_ended(calls.start_ns, deadline - time.monotonic()))

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """``Tasks/Kill``. After SIGKILL, done when the process is dead."""
        task = self._task(container)
        deadline = time.monotonic() + timeout_s
        try:
            name = parse_signal(signal).name
        except ValueError as error:
            raise_operation_failed("refused", str(error), time.monotonic_ns())
        calls = self._api.calls(timeout_s)
        calls.do(f"{TASKS}Kill", _kill(container, name))
        if name != "SIGKILL" or task.main is None:
            return calls.result()
        return self._confirm_end(task, task.wait_ended(calls.start_ns, deadline - time.monotonic()))

    def commit(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``Diff/Diff``, while it is paused; then the new image is written, unpacked and named."""
        task = self._task(container)
        before = self._api.calls(timeout_s)
        base = self._images.resolve(task.image)
        parent = storage.snapshot_parent(before, container.name, task.snapshotter)
        if base.chain != parent:
            text = f"image {task.image}, which {container.name} was made from, has changed since"
            raise before.failure("image-missing", text)
        with self._api.lease(before.remaining_s()) as header, storage.view(before, parent, task.snapshotter) as left:
            calls = self._api.calls(before.remaining_s(), [header])
            with task.paused_during(self._api, calls):
                layer = storage.save_layer(calls, left, container.name, task.snapshotter)
            name = f"{committed_image_prefix(container.name)}{len(container.images) + 1}"
            container.images.append(name)
            containerd_images.save_image(calls, base, layer, container, name)
        task.committed_layer = layer
        return calls.result()

    def committed_bytes(self, container: Container, *, timeout_s: float) -> int | None:
        """Return the size of the files in the layer that the last `commit` added."""
        layer = self._task(container).committed_layer
        return None if layer is None else storage.changed_bytes(self._api.calls(timeout_s), layer)

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``Tasks/Kill`` and ``Tasks/Delete`` where it was started, then its snapshot, its record and its images."""
        task = self._task(container)
        calls = self._api.calls(timeout_s)
        if task.created:
            delete_task(calls, container.name, runs=task.runs, end_known=task.end_known)
        _delete_container(calls, container.name, task.snapshotter)
        while container.images:
            calls.do_if_present(f"{IMAGES}Delete", messages.ImageRequest(name=container.images[-1], sync=True))
            container.images.pop()
        with disk_errors_as_failures(calls.start_ns):
            delete_directory(task.directory)
        container.handle = None
        return calls.result()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its command wrote; containerd puts both streams in one file, so all of it is `stdout`."""
        del timeout_s
        start_ns = time.monotonic_ns()
        stdout, cut = read_ends(self._task(container).directory / "log", limit_bytes)
        return OperationResult(start_ns, time.monotonic_ns(), stdout=stdout, truncated=cut)

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``Tasks/Metrics``: one reading, as JSON in `stdout`."""
        self._task(container)
        calls = self._api.calls(timeout_s)
        return calls.result(stdout=read_metrics(calls, container.name))

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers and images of our namespace that carry the label."""
        wanted = f'labels."{RUN_LABEL}"' if run_id is None else f'labels."{RUN_LABEL}"=="{run_id}"'
        if worker_id is not None:
            wanted += f',labels."{WORKER_LABEL}"=="{worker_id}"'
        request = messages.ListRequest(filters=[wanted])
        calls = self._api.calls(self.options.timeout_s)
        try:
            containers = calls.call(f"{_CONTAINERS}List", request, messages.ListContainersResponse).containers
            images = calls.call(f"{IMAGES}List", request, messages.ListImagesResponse).images
        except OperationFailed as error:
            raise InfrastructureError(f"containerd does not list what was left behind: {error}") from error
        return [
            *(_leftover(self.name, "container", one.id, one.labels) for one in containers),
            *(_leftover(self.name, _IMAGE, one.name, one.labels) for one in images),
        ]

    def discard(self, leftover: Leftover) -> None:
        """Delete one of them, if it still carries the label of that run; a missing one is no error.

        With a container goes the image that was saved from it and has no label.
        """
        calls = self._api.calls(self.options.timeout_s)
        name = leftover.identity
        try:
            with suppress(NotFound):
                if leftover.what == _IMAGE:
                    if _labels_of_image(calls, name).get(RUN_LABEL) == leftover.run_id:
                        calls.do(f"{IMAGES}Delete", messages.ImageRequest(name=name, sync=True))
                elif (record := _record_of(calls, name)).labels.get(RUN_LABEL) == leftover.run_id:
                    delete_task(calls, name, runs=True)
                    _delete_container(calls, name, record.snapshotter)
                    for image in containerd_images.list_images(calls):
                        if image.startswith(committed_image_prefix(name)):
                            calls.do_if_present(f"{IMAGES}Delete", messages.ImageRequest(name=image, sync=True))
                    delete_directory(self._home / name)
        except (OperationFailed, OSError) as error:
            raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error

    def _prepare_record(self, container: Container) -> tuple[Task, messages.Container, str]:
        """Prepare a container's directory, image and specification, which is not timed.

        Return what stands for it, its record, and the name of its image's snapshot.
        """
        begun_ns = time.monotonic_ns()
        self._label(container)
        directory = self._home / container.name
        with as_operation_failures(begun_ns):
            check_settings(type(self), container.settings, self._cgroups)
            name = container.pulled_image or self._images.get(container.settings.image)
            snapshotter = container.settings.snapshotter or SNAPSHOTTER
            self._images.unpack(name, snapshotter)
            image = self._images.resolve(name)
            try:
                user = self._images.user(image)
            except ValueError as error:
                raise UnsupportedSetting(str(error)) from error
            spec = container_spec(
                container,
                image.config,
                user,
                directory,
                cgroups=self._cgroups,
                allow_host_mounts=self.options.allow_host_mounts,
            )
        with disk_errors_as_failures(begun_ns):
            directory.mkdir(mode=0o700)
            task = Task(container.name, directory, name, image.config.stop_signal, snapshotter, spec["process"])
            container.handle = task
            make_volumes(container.settings, directory)
            oci_bundle.write_files(container.settings.files, directory)
        record = messages.Container(
            id=container.name,
            labels=container.labels,
            image=name,
            runtime=messages.Runtime(name=_RUNTIME),
            spec=TypedValue(type_url=_SPEC_TYPE, value=json.dumps(spec).encode()),
            snapshotter=snapshotter,
            snapshot_key=container.name,
        )
        return task, record, image.chain

    def _task(self, container: Container) -> Task:
        if not isinstance(container.handle, Task):
            raise_operation_failed("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle

    def cgroup(self, container: Container) -> str | None:
        """Return the path that its specification asks for."""
        return f"/{NAMESPACE}/{container.name}"

    def cost_meter(self, container: Container) -> CostMeter:
        """Return what reads its cgroup, which goes away with the task."""
        return self._cgroups.cost_meter(f"/{NAMESPACE}/{container.name}")

    def _memory_directory(self, container: Container) -> Path | None:
        """Return the directory of its cgroup; None where its memory is not limited."""
        if container.settings.memory_bytes is None:
            return None
        return self._cgroups.memory_directory(f"/{NAMESPACE}/{container.name}")

    def _do(self, container: Container, method: str, timeout_s: float) -> OperationResult:
        self._task(container)
        calls = self._api.calls(timeout_s)
        calls.do(f"{TASKS}{method}", messages.ProcessRequest(container_id=container.name))
        return calls.result()

    def _confirm_end(self, task: Task, done: OperationResult) -> OperationResult:
        """Wait, untimed, until containerd knows that the process has ended: only then can its task be deleted."""
        with suppress(OperationFailed):
            task.exit_code(self._api.calls(_EXIT_CODE_TIMEOUT_S))
        return done


def _kill(container: Container, signal: str) -> messages.KillRequest:
    return messages.KillRequest(container_id=container.name, signal=parse_signal(signal).value)


def _delete_container(calls: CallSequence, name: str, snapshotter: str) -> None:
    """Delete a container's snapshot and then its record, by which clean-up finds both; a missing one is no error."""
    storage.remove_snapshot(calls, name, snapshotter)
    calls.do_if_present(f"{_CONTAINERS}Delete", messages.ContainerRequest(id=name))


def _leftover(engine: str, what: str, name: str, labels: Mapping[str, str]) -> Leftover:
    owner = labels.get(OWNER_LABEL, "")
    return Leftover(engine, what, name, name, labels[RUN_LABEL], owner=owner)


def _record_of(calls: CallSequence, name: str) -> messages.Container:
    request = messages.ContainerRequest(id=name)
    return calls.call(f"{_CONTAINERS}Get", request, messages.ContainerMessage).container


def _labels_of_image(calls: CallSequence, name: str) -> dict[str, str]:
    return dict(calls.call(f"{IMAGES}Get", messages.ImageRequest(name=name), messages.ImageMessage).image.labels)
