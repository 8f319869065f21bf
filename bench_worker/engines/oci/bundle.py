"""The bundle of one container: a writable layer over an unpacked image, the config.json, and what it printed.

It is made before the runtime is called and taken away afterwards, outside of the stamps: an OCI runtime starts with a
bundle that somebody else has made.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gevent

from bench_worker.engines import oci_files, oci_homes
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.oci.settings import SettingRefused, bind, make_volumes
from bench_worker.engines.oci.spec import HOSTNAME, Surroundings, make_config, read_user
from bench_worker.engines.oci_checkpoint import ANNOTATION, CONFIGURATION

if TYPE_CHECKING:
    from bench_worker.engines.base import Container
    from bench_worker.engines.mount_space import MountSpace
    from bench_worker.engines.oci.cgroups import Cgroups
    from bench_worker.engines.oci.images import Unpacked
    from bench_worker.engines.oci.spec import User
    from bench_worker.timing.processes import Process


_NO_OVERLAY: Final = frozenset({errno.EINVAL, errno.ENODEV, errno.EPERM, errno.EOPNOTSUPP})
_COPY_S: Final = 300


@dataclass(slots=True)
class Bundle:
    """A container's directory, its first process once there is one, and how to reach its files."""

    directory: Path
    cgroups_path: str
    stop_signal: str = "SIGTERM"
    main: Process | None = None
    paused: bool = False
    errands: int = 0
    checkpoints: int = 0

    @property
    def config(self) -> Path:
        """The config.json."""
        return self.directory / oci_homes.CONFIG

    @property
    def pid_file(self) -> Path:
        """Where the runtime writes the number of the first process."""
        return self.directory / "pid"

    def next_log(self) -> Path:
        """Return where the runtime writes its own errors of the next operation."""
        self.errands += 1
        return self.directory / f"runtime-{self.errands}.log"

    @property
    def stdout(self) -> Path:
        """What the container's command printed."""
        return self.directory / "stdout"

    @property
    def stderr(self) -> Path:
        """What the container's command printed to stderr, and what the runtime said when it could not start it."""
        return self.directory / "stderr"

    @property
    def rootfs(self) -> Path:
        """The root of the container."""
        return self.directory / "rootfs"


class Bundles:
    """Makes and deletes the bundles of one engine. `overlays` says whether writable layers are overlays or copies."""

    def __init__(self, engine: str, space: MountSpace, cgroups: Cgroups, *, allow_host_mounts: bool) -> None:
        self.home = oci_homes.make_private(oci_homes.containers(engine))
        self._space = space
        self._cgroups = cgroups
        self._allow_host_mounts = allow_host_mounts
        self.overlays = True

    def make(self, container: Container, image: Unpacked) -> Bundle:
        """Make the bundle of a container, whose name it claims, and hand it to `container.handle`.

        Raises `FileExistsError` where the name is taken, `SettingRefused`, `MountRefused` and `OSError`.
        """
        directory = self.home / container.name
        if directory.parent != self.home:
            raise SettingRefused(f"{container.name!r} is no name for a container")
        binds = [
            bind(mount, directory, allow_host_mounts=self._allow_host_mounts) for mount in container.settings.storage
        ]
        # Files last: one may belong into a volume.
        files = container.settings.files if image.base else oci_files.with_names(container.settings, HOSTNAME)
        binds += oci_files.binds(files, directory)
        surroundings = Surroundings(
            rootfs=str(directory / "rootfs"),
            cgroups_path=f"/weighbridge/{container.name}",
            cgroup_v2=self._cgroups.version > 1,
            swap_limit=self._cgroups.swap_limit,
            binds=binds,
            annotations={**container.labels, ANNOTATION: str(directory / CONFIGURATION)},
        )
        try:
            config = make_config(image.base, image.config, container.settings, self._user(image), surroundings)
        except ValueError as error:
            raise SettingRefused(str(error)) from error
        if not config["process"].get("args"):
            raise SettingRefused("there is no command: neither `command` nor the image says what runs")
        directory.mkdir(mode=0o700)
        bundle = Bundle(directory, config["linux"]["cgroupsPath"], stop_signal=image.config.stop_signal)
        # From here on there is something to remove, and to find by its labels.
        container.handle = bundle
        try:
            bundle.config.write_text(json.dumps(config), encoding="utf-8")
            make_volumes(container.settings, directory)
            oci_files.write(files, directory)
            self._lay(bundle, image.rootfs)
        except OSError as error:
            # A write to a full disk does not say where.
            error.filename = error.filename or str(directory)
            raise
        return bundle

    def delete(self, directory: Path) -> None:
        """Undo the mount and delete the directory; one that is gone is no error. Raises `OSError`."""
        self._space.unmount(directory / "rootfs")
        gevent.get_hub().threadpool.apply(oci_homes.delete, (directory,))

    def _lay(self, bundle: Bundle, lower: Path) -> None:
        upper, work = bundle.directory / "upper", bundle.directory / "work"
        for path in (bundle.rootfs, upper, work):
            path.mkdir()
        # The layer's root is the container's: as an image has it.
        found = lower.stat()
        upper.chmod(found.st_mode & 0o7777)
        if self.overlays:
            try:
                self._space.overlay(bundle.rootfs, lower=lower, upper=upper, work=work)
            except OSError as error:
                if error.errno not in _NO_OVERLAY:
                    raise
                # Where the store itself is an overlay, as in a container, there is none on top of it.
                self.overlays = False
        if not self.overlays:
            copy = CommandLine("cp").errand(_COPY_S)
            copy.do("-a", "--reflink=auto", f"{lower}/.", f"{bundle.rootfs}/")

    def _user(self, image: Unpacked) -> User:
        etc = image.rootfs / "etc"
        texts = [
            path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            for path in (etc / "passwd", etc / "group")
        ]
        try:
            return read_user(image.config.user, *texts)
        except ValueError as error:
            raise SettingRefused(str(error)) from error
