"""Drives an OCI runtime by its command line: nearly everything that runc, crun, youki and runsc need.

Each verb is one measured call of the runtime. Bundles are made before and removed after, untimed. The runtime
detaches from a container's first process, which becomes a child of ours: the reaper's thread stamps its end (see
`bench_worker.timing.subreaper`), without polling the runtime. Leftovers are recognised by their labels alone.
"""

from __future__ import annotations

import re
import signal as signals
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench_common.errors import EngineUnavailable, InfrastructureError
from bench_worker.engines.base import (
    OWNER_LABEL,
    RUN_LABEL,
    Container,
    DaemonProcesses,
    EngineStatus,
    ImageUnavailable,
    Leftover,
    LowLevelEngine,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.daemon_processes import NO_DAEMON
from bench_worker.engines.image_programs import absent_reason, find_in_root, names_in_root, program_places
from bench_worker.engines.native.labels import matches
from bench_worker.engines.oci import RUNC
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci import runtime as oci_runtime
from bench_worker.engines.oci import spec as oci_spec
from bench_worker.engines.oci.bundle import Bundle
from bench_worker.engines.oci.bundle_store import BundleStore
from bench_worker.engines.oci.cgroups import OomKillCounter
from bench_worker.engines.oci.images import UnpackedImage, UnpackedImages
from bench_worker.engines.oci.mount_namespace import MountNamespace
from bench_worker.engines.oci.processes import end_processes
from bench_worker.engines.oci.recipe import Recipe, make_recipe
from bench_worker.engines.oci.runtime import Runtime, RuntimeCommandSequence, kill_from_pid_file
from bench_worker.engines.oci.spec import UnsupportedSetting, as_operation_failures, check_settings
from bench_worker.engines.output import parse_signal, read_ends
from bench_worker.engines.results import (
    disk_errors_as_failures,
    raise_operation_failed,
    result_at_exit,
    wait_exit,
    wait_result,
)
from bench_worker.engines.settings import GVISOR_ONLY, MountRefused
from bench_worker.engines.surroundings import image_surroundings
from bench_worker.timing.processes import Process, WaitTimeout
from bench_worker.timing.subreaper import adopt_orphan, become_subreaper, release_subreaper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.requirements import ImageProgram
    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import CostMeter

_DISCARD_S = 30.0


def _config_of(image: UnpackedImage) -> Mapping[str, Any]:
    """Return an image's configuration under the names that Docker gives it."""
    its = image.config
    return {"Entrypoint": its.entrypoint, "Env": its.env, "WorkingDir": its.directory, "User": its.user}


def find_leftovers(engine: str, run_id: str | None, worker_id: str | None) -> list[Leftover]:
    """Return an engine's containers whose config.json carries our labels."""
    return [
        Leftover(
            engine,
            "container",
            str(item.path),
            item.path.name,
            item.labels[RUN_LABEL],
            item.age_s,
            str(item.labels.get(OWNER_LABEL, "")),
        )
        for item in oci_images.labelled_containers(engine)
        if matches(item.labels, run_id, worker_id)
    ]


def remove_leftover(runtime: Runtime, options: tuple[str, ...], bundles: BundleStore, leftover: Leftover) -> None:
    """Delete a container and its directory, if it still carries the label of that run; a missing one is no error.

    `options` are the runtime's, before each command. Raises `InfrastructureError`.
    """
    for item in oci_images.labelled_containers(leftover.engine):
        if str(item.path) != leftover.identity or item.labels[RUN_LABEL] != leftover.run_id:
            continue
        sequence = runtime.sequence(str(item.path / "discard.log"), options, _DISCARD_S)
        try:
            if sequence.run_unchecked("delete", "--force", item.path.name).exit_code:
                # Not every runtime can delete one that is paused; another error stays one.
                sequence.run_unchecked("resume", item.path.name)
                sequence.run("delete", "--force", item.path.name)
            # It says the same of a container that it does not know, and a bundle is not deleted below a live one.
            end_processes(item.path.name)
            bundles.delete(item.path)
        except (OSError, OperationFailed) as error:
            raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error


class OciBase(LowLevelEngine):
    """One OCI runtime without its verbs, which are those of `OciEngine`."""

    name: ClassVar[str]
    operations: ClassVar[frozenset[str]] = frozenset(
        {"create", "start", "run", "exec", "wait", "pause", "unpause", "stop", "kill", "stats", "logs", "remove"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "rootfs", "command", "memory_bytes", "cpus", "cpuset", "network", "storage", "env", "files"}
        | {"directory"}
        | oci_spec.SETTINGS
    )
    setup_errors: ClassVar[tuple[type[Exception], ...]] = (ImageUnavailable, UnsupportedSetting, MountRefused)
    inapplicable: ClassVar[frozenset[str]] = RUNC.inapplicable
    exec_pid_option: ClassVar[str] = "--pid-file"
    log_option: ClassVar[str] = "{}"
    """How ``--log`` names a file."""
    advice: ClassVar[str]
    unsupported_settings: ClassVar[Mapping[str, str]] = {
        "init": "a runtime brings no init of its own; use a command that reaps its children",
        "runtime": "the engine is a runtime itself: name the other one as the engine",
        "snapshotter": "a runtime has none: its root file system is an overlay of the worker's",
        "gvisor_platform": GVISOR_ONLY,
    }
    unsupported_operations: ClassVar[Mapping[str, str]] = {
        "pull": "a runtime has no images; they are copied from the Docker Engine before anything is timed",
        "commit": "a runtime has no images",
    }

    @classmethod
    def options_for(cls, container: Container | None) -> tuple[str, ...]:
        """Return the options of the runtime that come before each command for this container."""
        del container
        return ()

    @classmethod
    def probe(cls) -> EngineStatus:
        """Say whether the runtime is there and may do its work."""
        return oci_runtime.probe_runtime(cls)

    @classmethod
    def program_of(cls, status: EngineStatus) -> str:
        """Return the runtime."""
        return status.endpoint

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return none: a runtime's program ends before its containers do."""
        return NO_DAEMON

    def open(self) -> None:
        """Make the store and the mount namespace, and become the subreaper of containers' processes."""
        status = self._usable()
        self._mount_namespace = MountNamespace()
        root = oci_images.make_private(oci_images.STATE_ROOT / self.name)
        self._runtime = Runtime(
            status.endpoint, root, self._mount_namespace, oci_runtime.runtime_environment(), self.log_option
        )
        self._cgroups = oci_cgroups.Cgroups.detect()
        try:
            self._mount_namespace.enter()
            become_subreaper()
        except OSError as error:
            text = f"engine {self.name!r} cannot be used: {error.filename or ''}: {error.strerror}; run as root"
            raise EngineUnavailable(text) from error
        self._bundles = BundleStore(self.name, self._mount_namespace, self.options.slots)
        self._images = UnpackedImages()

    def close(self) -> None:
        """Release the images, the mount namespace and the role of subreaper."""
        self._bundles.release()
        release_subreaper()
        self._images.close()
        self._mount_namespace.close()

    def _fetch_image(self, settings: ContainerSettings) -> None:
        self._origin(settings, self._labels())

    def absent_program(self, settings: ContainerSettings, wanted: ImageProgram) -> str:
        """Look in the unpacked image."""
        if settings.rootfs is not None:
            return ""
        image = self._origin(settings, self._labels())
        places = program_places(wanted, _config_of(image))
        if not places or any(find_in_root(place, image.rootfs) for place in places):
            return ""
        return absent_reason(settings.image, wanted, places, names_in_root(image.rootfs, places))

    def surroundings(self, settings: ContainerSettings, wanted: ImageProgram | None) -> Mapping[str, str]:
        """Look in the unpacked image; a container inherits the limits of this process, as a plain process does."""
        if settings.rootfs is not None or wanted is None:
            return {}
        image = self._origin(settings, self._labels())

        def read(place: str) -> bytes | None:
            found = find_in_root(place, image.rootfs)
            return found.read_bytes() if found is not None and found.is_file() else None

        try:
            return image_surroundings(_config_of(image), wanted, read)
        except OSError:
            return {}

    def image_digest(self, settings: ContainerSettings) -> str:
        """Return the id of the image that was unpacked: it names the directory."""
        return "" if settings.rootfs else self._origin(settings, self._labels()).rootfs.parent.name

    def release(self) -> None:
        """Remove the bundles that were made ahead of further containers."""
        self._bundles.release()

    def prepare(self, settings: ContainerSettings) -> None:
        """Unpack the image and make the first bundle; a failure is that of the job that needs it."""
        with suppress(*self.setup_errors, OSError):
            self._bundles.make_ahead(self._recipe(settings))

    def _make(self, container: Container, timeout_s: float, *words: str) -> OperationResult:
        begun_ns = time.monotonic_ns()
        self._label(container)
        with as_operation_failures(begun_ns), disk_errors_as_failures(begun_ns):
            self._bundles.make(container, self._recipe(container.settings))
        return self._launch(container, self._sequence(container, timeout_s), *words)

    def _recipe(self, settings: ContainerSettings) -> Recipe:
        """Return how to make bundles for these settings, worked out once for each treatment."""
        recipe = self._bundles.find_recipe(settings)
        if recipe is None:
            check_settings(type(self), settings, self._cgroups)
            labels = self._labels()
            image = self._origin(settings, labels)
            home, allowed = self._bundles.home, self.options.allow_host_mounts
            recipe = make_recipe(settings, image, self._cgroups, home, labels, allow_host_mounts=allowed)
            self._bundles.keep_recipe(recipe)
        return recipe

    def _launch(self, container: Container, sequence: RuntimeCommandSequence, *words: str) -> OperationResult:
        """Run a command of the runtime that leaves a process behind, and adopt that process."""
        bundle = self._bundle(container)
        result = sequence.run_unchecked(
            *words,
            "--bundle",
            str(bundle.directory),
            "--pid-file",
            bundle.pid_file,
            container.name,
            stdout_path=bundle.stdout,
            stderr_path=bundle.stderr,
        )
        if result.exit_code:
            raise sequence.failed(result)
        try:
            with open(bundle.pid_file, encoding="ascii") as file:  # noqa: PTH123  a path object takes longer
                pid = int(file.read())
            bundle.main = adopt_orphan(pid, start_ns=sequence.start_ns)
            bundle.paused = False  # also where it was when it was saved
        except (OSError, ValueError) as error:
            raise sequence.failure("engine", f"{self.name} left no process behind: {error}") from error
        return sequence.result()

    def _origin(self, settings: ContainerSettings, labels: Mapping[str, str]) -> UnpackedImage:
        """Return the root file system of a container; `labels` mark what has to be created to get it."""
        if settings.rootfs is not None:
            return oci_bundle.read_rootfs(settings.rootfs, allow_host_mounts=self.options.allow_host_mounts)
        return self._images.get(settings.image, labels)

    def _bundle(self, container: Container) -> Bundle:
        if not isinstance(container.handle, Bundle):
            raise_operation_failed("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle

    def _sequence(self, container: Container, timeout_s: float) -> RuntimeCommandSequence:
        log = self._bundle(container).next_log()
        return self._runtime.sequence(log, self.options_for(container), timeout_s)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers whose config.json carries our labels, and the bundles that wait for one."""
        self._bundles.finish_removals()
        return find_leftovers(self.name, run_id, worker_id)

    def discard(self, leftover: Leftover) -> None:
        """Delete the container and its directory, if it still carries the label of that run."""
        remove_leftover(self._runtime, self.options_for(None), self._bundles, leftover)


_ENDING_S: Final = 0.2
"""How long a process may still take to end that could not be sent a signal, for a reason that names no end."""
_HAS_ENDED: Final = re.compile(
    r"not running|already finished|no such process|connecting to control server .*(connection refused|no such file)",
    re.IGNORECASE,
)
"""What they say of a signal to a container that ends: gVisor's sandbox closes its socket before its process ends."""


class OciEngine(OciBase):
    """One OCI runtime. A subclass gives its name, its options and what it cannot do."""

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Make the bundle (not timed), then ``create``: the container is there, its command does not run yet."""
        return self._make(container, timeout_s, "create")

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``start``: the command replaces the process that waited in the container."""
        self._bundle(container)
        return self._run_simple(container, "start", timeout_s)

    def run(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Make the bundle (not timed), then ``run --detach``."""
        return self._make(container, timeout_s, "run", "--detach")

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """``exec``, attached. The timeout kills the command, too."""
        if not argv:
            raise_operation_failed("refused", "there is no command to start", time.monotonic_ns())
        if self._bundle(container).paused:
            # A runtime that checks before the kernel has frozen the whole container starts a command that never runs.
            raise_operation_failed(
                "conflict", f"{container.name} is paused; unpause it before exec", time.monotonic_ns()
            )
        with disk_errors_as_failures(time.monotonic_ns()):
            words = self.exec_argv(container, argv)
        kills = OomKillCounter(self._memory_directory(container))
        sequence = self._sequence(container, timeout_s)
        pid_file = Path(f"{sequence.log}.pid")
        try:
            result = sequence.run_unchecked("exec", self.exec_pid_option, str(pid_file), *words)
        except OperationFailed:
            self.end_exec(container, pid_file)
            raise
        if result.exit_code and sequence.error_text():
            raise sequence.failed(result)
        done = sequence.result(
            exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr, truncated=result.truncated
        )
        done.oom_killed = kills.explain(done)
        return done

    def exec_argv(self, container: Container, argv: tuple[str, ...]) -> list[str]:
        """Return the arguments of ``exec`` after its options: the container and the command."""
        return [container.name, *argv]

    def end_exec(self, container: Container, pid_file: Path) -> None:
        """Kill the command of an `exec` whose runtime was killed; one that has ended is no error."""
        main = self._bundle(container).main
        if main is not None and main.exit is None:
            kill_from_pid_file(pid_file, main.pid)

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait for the end of the first process, which the reaper stamps. No command of the runtime is run."""
        start_ns = time.monotonic_ns()
        bundle = self._bundle(container)
        if bundle.main is None:
            raise_operation_failed("conflict", f"{container.name} was never started", start_ns)
        done = wait_result(bundle.main, start_ns, time.monotonic() + timeout_s)
        directory = self._memory_directory(container)
        done.oom_killed = bool(done.exit_code) and directory is not None and oci_cgroups.oom_kills(directory) > 0
        return done

    def cgroup(self, container: Container) -> str | None:
        """Return the path that its bundle asks for."""
        bundle = container.handle
        return bundle.cgroups_path if isinstance(bundle, Bundle) else None

    def cost_meter(self, container: Container) -> CostMeter:
        """Return what reads its cgroup, which goes away with it."""
        path = self.cgroup(container)
        return dict if path is None else self._cgroups.cost_meter(path)

    def _memory_directory(self, container: Container) -> Path | None:
        """Return the directory of its cgroup; None where its memory is not limited."""
        if container.settings.memory_bytes is None:
            return None
        return self._cgroups.memory_directory(self._bundle(container).cgroups_path)

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``pause``."""
        done = self._run_simple(container, "pause", timeout_s)
        self._bundle(container).paused = True
        return done

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``resume``."""
        done = self._run_simple(container, "resume", timeout_s)
        self._bundle(container).paused = False
        return done

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """``kill`` with the image's stop signal and, after `grace_s`, with SIGKILL; done when the process is dead.

        Without a grace period, one ``kill`` with SIGKILL.
        """
        bundle = self._bundle(container)
        sequence = self._sequence(container, timeout_s)
        deadline = time.monotonic() + timeout_s
        main = bundle.main
        if main is None or main.exit is not None:
            return sequence.result()
        if grace_s > 0:
            self._signal(sequence, container, bundle.stop_signal, main, deadline)
        if 0 < grace_s < timeout_s:
            with suppress(WaitTimeout):
                return result_at_exit(sequence.start_ns, main.wait(grace_s))
        if grace_s < timeout_s:
            self._signal(sequence, container, "SIGKILL", main, deadline)
        return result_at_exit(sequence.start_ns, wait_exit(main, sequence.start_ns, deadline))

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """``kill``. After SIGKILL, done when the first process is dead; the runtime itself does not wait for that."""
        bundle = self._bundle(container)
        deadline = time.monotonic() + timeout_s
        try:
            number = parse_signal(signal)
        except ValueError as error:
            raise_operation_failed("refused", str(error), time.monotonic_ns())
        sequence = self._sequence(container, timeout_s)
        if bundle.main is None or bundle.main.exit is not None:
            raise sequence.failure("conflict", f"{container.name} is not running")
        self._signal(sequence, container, number.name, bundle.main, deadline)
        if number is not signals.SIGKILL:
            return sequence.result()
        return result_at_exit(sequence.start_ns, wait_exit(bundle.main, sequence.start_ns, deadline))

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``delete --force``, then the bundle (not timed)."""
        bundle = self._bundle(container)
        sequence = self._sequence(container, timeout_s)
        self._resume(sequence, container)
        sequence.run_silent("delete", "--force", container.name)
        done = sequence.result()
        with disk_errors_as_failures(done.start_ns):
            self._bundles.remove(bundle, container.settings)
        container.handle = None
        return done

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what the first process wrote to its two files."""
        del timeout_s
        start_ns = time.monotonic_ns()
        bundle = self._bundle(container)
        stdout, cut_out = read_ends(Path(bundle.stdout), limit_bytes)
        stderr, cut_err = read_ends(Path(bundle.stderr), limit_bytes)
        return OperationResult(
            start_ns, time.monotonic_ns(), stdout=stdout, stderr=stderr, truncated=cut_out or cut_err
        )

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``events --stats``: one reading, as JSON in `stdout`."""
        sequence = self._sequence(container, timeout_s)
        result = sequence.run("events", "--stats", container.name)
        return sequence.result(stdout=result.stdout)

    def _run_simple(self, container: Container, verb: str, timeout_s: float) -> OperationResult:
        self._bundle(container)
        sequence = self._sequence(container, timeout_s)
        sequence.run_silent(verb, container.name)
        return sequence.result()

    def _signal(
        self, sequence: RuntimeCommandSequence, container: Container, signal: str, main: Process, deadline: float
    ) -> None:
        """Send a signal to the first process, resumed if it is paused; one that ends meanwhile is no error."""
        self._resume(sequence, container)
        result = sequence.run_silent_unchecked("kill", container.name, signal.removeprefix("SIG"))
        if result.exit_code:
            failure = sequence.failed(result)
            ends = _HAS_ENDED.search(str(failure))
            try:
                main.wait(max(0.0, deadline - time.monotonic()) if ends else _ENDING_S)
            except WaitTimeout:
                raise failure from None

    def _resume(self, sequence: RuntimeCommandSequence, container: Container) -> None:
        """Resume a paused container, so that it can receive signals."""
        bundle = self._bundle(container)
        if bundle.paused:
            sequence.run_silent("resume", container.name)
            bundle.paused = False
