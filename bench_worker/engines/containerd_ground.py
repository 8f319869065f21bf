"""What is around the verbs of containerd, and not timed: being found, images, directories of ours, leftovers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from bench_worker.engines import containerd_leftovers, containerd_spec, oci_files, oci_homes
from bench_worker.engines.base import Container, DaemonSide, EngineStatus, Leftover, OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.containerd import probe as containerd_probe
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.images import ContainerdImages
from bench_worker.engines.containerd.tasks import KINDS, Task
from bench_worker.engines.containerd_exits import Exits
from bench_worker.engines.containerd_options import create_options
from bench_worker.engines.daemon_sides import containerd_side
from bench_worker.engines.isolation import Ground
from bench_worker.engines.native.process import disk_errors, fail
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci.images import ImageTrouble
from bench_worker.engines.oci.settings import check_settings, make_volumes, refusals

if TYPE_CHECKING:
    from bench_common.treatment import ContainerSettings


class ContainerdGround(Ground):
    """What is around the verbs; these are in `bench_worker.engines.containerd.engine`."""

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
            "commit",
            "stats",
            "logs",
            "remove",
        }
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "command", "memory_bytes", "cpus", "network", "storage", "env", "files"} | containerd_spec.SETTINGS
    )
    troubles: ClassVar[tuple[type[Exception], ...]] = (ImageTrouble, OperationFailed)
    inapplicable: ClassVar[frozenset[str]] = frozenset({"log_driver", "log_options"})
    reasons: ClassVar[dict[str, str]] = {
        "init": "containerd brings no init of its own; use a command that reaps its children",
        "runtime": "ctr starts runc, the runtime that it was built with; runtimes are engines of their own",
        "rootfs": "ctr makes no snapshot of a directory; use an OCI runtime",
    }
    lacks: ClassVar[dict[str, str]] = dict.fromkeys(
        ("checkpoint", "restore"), "ctr restores what was saved only as another container"
    )

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask containerd for its version."""
        return containerd_probe.look(
            cls.name,
            operations=cls.operations,
            settings=cls.settings,
            inapplicable=cls.inapplicable,
            reasons=cls.reasons,
            lacks=cls.lacks,
        )

    @classmethod
    def daemon_side(cls) -> DaemonSide:
        """Return the containerd that listens at the present address, with its shims."""
        return containerd_side(containerd_probe.address())

    def open(self) -> None:
        """See that it answers, and begin to hear of exits."""
        self._usable()
        socket = containerd_probe.address()
        ctr, *options = program = containerd_probe.program(socket)
        self._cli = CommandLine(ctr, tuple(options), kinds=KINDS)
        self._cgroups = oci_cgroups.Cgroups.look(swap_limit=False)
        self._home = oci_homes.make_private(oci_homes.containers(self.name))
        self._images = ContainerdImages(self._cli, self._home)
        self._exits = Exits(program, containerd_probe.NAMESPACE)
        self._exits.open()
        self._api = ContainerdApi(socket, containerd_probe.NAMESPACE)
        self._specifications = containerd_spec.Specifications(self._api)

    def close(self) -> None:
        """Hear no more, and close the connections."""
        self._exits.close()
        self._api.close()

    def _get_ready(self, settings: ContainerSettings) -> None:
        self._images.get(settings.image)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers and images of our namespace that carry the label."""
        return containerd_leftovers.find(self._cli, run_id, worker_id, timeout_s=self.options.timeout_s)

    def discard(self, leftover: Leftover) -> None:
        """Delete one of them, if it still carries the label of that run."""
        containerd_leftovers.remove(self._cli, leftover, self._home, timeout_s=self.options.timeout_s)

    def _before(self, container: Container, *words: str) -> tuple[str, ...]:
        """Get a container's directory and image ready, which is not timed; return the command that makes it."""
        begun_ns = time.monotonic_ns()
        self._label(container)
        directory = self._home / container.name
        with refusals(begun_ns):
            check_settings(type(self), container.settings, self._cgroups)
            containerd_spec.check(container.settings)
            image = container.pulled or self._images.get(container.settings.image)
            options = create_options(container, directory, allow_host_mounts=self.options.allow_host_mounts)
        with disk_errors(begun_ns):
            directory.mkdir(mode=0o700)
            container.handle = task = Task(directory, image)
            make_volumes(container.settings, directory)
            oci_files.write(container.settings.files, directory)
        if words[0] == "run":
            options += task.options
        return (*words, *options, "--", image, container.name, *(container.settings.command or ()))

    def _task(self, container: Container) -> Task:
        if not isinstance(container.handle, Task):
            fail("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle
