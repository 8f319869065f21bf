"""What an OCI runtime needs around its verbs: being found, images, bundles with their mounts, and what is left over.

None of it is timed. A runtime starts with a bundle that somebody else has made, so making one is no part of a verb.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from bench_common.errors import EngineUnavailable
from bench_worker.engines import criu, oci_confinement, oci_exploded, oci_homes, oci_leftovers, oci_probe
from bench_worker.engines.base import RUN_LABEL, WORKER_LABEL, Container, DaemonSide, Done, EngineStatus, Leftover
from bench_worker.engines.daemon_sides import NO_DAEMON
from bench_worker.engines.docker.settings import MountRefused
from bench_worker.engines.isolation import Ground
from bench_worker.engines.mount_space import MountSpace
from bench_worker.engines.native.process import disk_errors, fail
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci.bundle import Bundle, Bundles
from bench_worker.engines.oci.images import Images, ImageTrouble, Unpacked
from bench_worker.engines.oci.runtime import Runtime, RuntimeErrand
from bench_worker.engines.oci.settings import SettingRefused, check_settings, refusals
from bench_worker.timing.subreaper import adopt, let_orphans_go, take_in_orphans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings


class OciGround(Ground):
    """What is around the verbs of one OCI runtime; the verbs are in `bench_worker.engines.oci.engine`."""

    name: ClassVar[str]
    operations: ClassVar[frozenset[str]] = frozenset(
        {"create", "start", "run", "exec", "wait", "pause", "unpause", "stop", "kill", "stats", "logs", "remove"}
        | {"checkpoint", "restore"}
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "rootfs", "command", "memory_bytes", "cpus", "cpuset", "network", "storage", "env", "files"}
        | oci_confinement.SETTINGS
    )
    troubles: ClassVar[tuple[type[Exception], ...]] = (ImageTrouble, SettingRefused, MountRefused)
    inapplicable: ClassVar[frozenset[str]] = frozenset({"log_driver", "log_options"})
    exec_pid_option: ClassVar[str] = "--pid-file"
    log_option: ClassVar[str] = "{}"
    """How ``--log`` names a file."""
    saving_options: ClassVar[tuple[str, ...]] = ()
    """Options of ``checkpoint`` and ``restore`` beyond those that say where the state is."""
    advice: ClassVar[str]
    reasons: ClassVar[dict[str, str]] = {
        "init": "a runtime brings no init of its own; use a command that reaps its children",
        "runtime": "the engine is a runtime itself: name the other one as the engine",
    }

    lacks: ClassVar[dict[str, str]] = {
        "pull": "a runtime has no images; they are taken from the Docker Engine before anything is timed",
        "commit": "a runtime has no images",
    }
    """Operations that it does not have, and why."""

    @classmethod
    def options_for(cls, container: Container | None) -> tuple[str, ...]:
        """Return the options of the runtime that come before each command for this container."""
        del container
        return ()

    @classmethod
    def unable_to_save(cls, program: str) -> str:
        """Return why the runtime at this path can neither save nor restore a container here; nothing where it can."""
        return criu.trouble(program)

    @classmethod
    def probe(cls) -> EngineStatus:
        """Say whether the runtime is there and may do its work."""
        return oci_probe.look(
            cls.name,
            advice=cls.advice,
            operations=cls.operations,
            settings=cls.settings,
            inapplicable=cls.inapplicable,
            reasons=cls.reasons,
            lacks=cls.lacks,
            unable=cls.unable_to_save,
        )

    @classmethod
    def daemon_side(cls) -> DaemonSide:
        """Return none: a runtime's program ends before its containers do."""
        return NO_DAEMON

    def open(self) -> None:
        """Make the store, the mount namespace and the heirship of orphans."""
        status = self._usable()
        self._space = MountSpace()
        root = oci_homes.make_private(oci_homes.STATE_ROOT / self.name)
        self._runtime = Runtime(status.endpoint, root, self._space, self.log_option)
        self._cgroups = oci_cgroups.Cgroups.look()
        try:
            self._space.enter()
            take_in_orphans()
        except OSError as error:
            text = f"engine {self.name!r} cannot be used: {error.filename or ''}: {error.strerror}; run as root"
            raise EngineUnavailable(text) from error
        self._bundles = Bundles(
            self.name, self._space, self._cgroups, allow_host_mounts=self.options.allow_host_mounts
        )
        self._images = Images()

    def close(self) -> None:
        """Leave the mount namespace, and let go of images and orphans."""
        let_orphans_go()
        self._images.close()
        self._space.close()

    def _get_ready(self, settings: ContainerSettings) -> None:
        self._origin(settings, {RUN_LABEL: self.options.run_id, WORKER_LABEL: self.options.worker_id})

    def _make(self, container: Container, timeout_s: float, *words: str) -> Done:
        begun_ns = time.monotonic_ns()
        self._label(container)
        with refusals(begun_ns):
            check_settings(type(self), container.settings, self._cgroups)
            image = self._origin(container.settings, container.labels)
            with disk_errors(begun_ns):
                self._bundles.make(container, image)
        return self._launch(container, self._errand(container, timeout_s), *words)

    def _launch(self, container: Container, errand: RuntimeErrand, *words: str, append: bool = False) -> Done:
        """Run a command of the runtime that leaves a process behind, and take that in."""
        bundle = self._bundle(container)
        answer = errand.call(
            *words,
            "--bundle",
            str(bundle.directory),
            "--pid-file",
            str(bundle.pid_file),
            container.name,
            stdout_path=str(bundle.stdout),
            stderr_path=str(bundle.stderr),
            append=append,
        )
        if answer.exit_code:
            raise errand.failed(answer)
        try:
            bundle.main = adopt(int(bundle.pid_file.read_text(encoding="ascii")), start_ns=errand.start_ns)
            bundle.paused = False  # also where it was when it was saved
        except (OSError, ValueError) as error:
            raise errand.failure("engine", f"{self.name} left no process behind: {error}") from error
        return errand.done()

    def _origin(self, settings: ContainerSettings, labels: Mapping[str, str]) -> Unpacked:
        """Return what a container is made from; `labels` are for what has to be made to get it."""
        if settings.rootfs is not None:
            return oci_exploded.take(settings.rootfs, allow_host_mounts=self.options.allow_host_mounts)
        return self._images.get(settings.image, labels)

    def _bundle(self, container: Container) -> Bundle:
        if not isinstance(container.handle, Bundle):
            fail("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle

    def _errand(self, container: Container, timeout_s: float) -> RuntimeErrand:
        log = self._bundle(container).next_log()
        return self._runtime.errand(log, self.options_for(container), timeout_s)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers whose config.json carries our labels."""
        return oci_leftovers.find(self.name, run_id, worker_id)

    def discard(self, leftover: Leftover) -> None:
        """Delete the container and its directory, if it still carries the label of that run."""
        oci_leftovers.remove(self._runtime, self.options_for(None), self._bundles, leftover)
