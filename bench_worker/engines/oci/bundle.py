"""The bundle of one container: a writable layer over an unpacked image, the config.json, and the output files.

An OCI runtime starts with a finished bundle, which `bench_worker.engines.oci.bundle_store` makes and removes, outside
of the stamps. Output goes to files of the host. The files of a scenario are mounted one by one, by the runtime, which
follows no link out of the container. The root file system or bundle of a user is only read, and its config.json is
held to a scenario's rules: no hooks, no mounts that expose the host.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.base import HOST, LOOPBACK, ImageUnavailable
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.images import CONFIG, UnpackedImage
from bench_worker.engines.oci.spec import ImageConfig, UnsupportedSetting
from bench_worker.engines.settings import KNOWN_SOCKETS, safe_host_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings
    from bench_worker.timing.processes import Process

_HOSTS: Final = "/etc/hosts"


def files_with_hosts(settings: ContainerSettings, hostname: str, hosts: Path = Path(_HOSTS)) -> Mapping[str, str]:
    """Return a container's files, and in the host's network the host's names, in which its own is found, too.

    Docker does the same; there are servers that do not start where their own name is unknown.
    """
    if settings.network != HOST:
        return settings.files
    try:
        known = hosts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        known = f"{LOOPBACK} localhost\n"
    return {_HOSTS: f"{known.rstrip()}\n{LOOPBACK} {hostname}\n", **settings.files}


def write_files(files: Mapping[str, str], directory: Path) -> None:
    """Write texts below a container's own directory, readable by everybody in it; raise `OSError`."""
    if files:
        _folder(directory).mkdir(mode=0o755)
    for ordinal, text in enumerate(files.values()):
        path = _folder(directory) / str(ordinal)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)


def bind_mounts(files: Mapping[str, str], directory: Path) -> list[dict[str, Any]]:
    """Return the mounts that bring what `write` wrote to the paths that it is for."""
    return [
        {
            "destination": path,
            "type": "bind",
            "source": str(_folder(directory) / str(ordinal)),
            "options": ["bind", "rw"],
        }
        for ordinal, path in enumerate(files)
    ]


def _folder(directory: Path) -> Path:
    return directory / "files"


@dataclass(slots=True)
class Bundle:
    """A container's directory, its first process once there is one, and how to reach its files."""

    directory: Path
    cgroups_path: str
    stop_signal: str = "SIGTERM"
    main: Process | None = None
    paused: bool = False
    runtime_calls: int = 0

    @property
    def config(self) -> Path:
        """The config.json."""
        return self.directory / oci_images.CONFIG

    @property
    def pid_file(self) -> str:
        """Where the runtime writes the number of the first process."""
        return f"{self.directory}/pid"

    def next_log(self) -> str:
        """Return where the runtime writes its own errors of the next operation."""
        self.runtime_calls += 1
        return f"{self.directory}/runtime-{self.runtime_calls}.log"

    @property
    def stdout(self) -> str:
        """What the container's command printed."""
        return f"{self.directory}/stdout"

    @property
    def stderr(self) -> str:
        """What the container's command printed to stderr, and the runtime's error when it could not start it."""
        return f"{self.directory}/stderr"

    @property
    def rootfs(self) -> Path:
        """The root of the container."""
        return self.directory / "rootfs"


_WRITABLE_BY_OTHERS: Final = 0o022


def read_rootfs(directory: str, *, allow_host_mounts: bool) -> UnpackedImage:
    """Return what is in a directory: a bundle, the folder of a ``rootfs``, or the root file system itself.

    Raises `ImageUnavailable` where there is none, `UnsupportedSetting` and `MountRefused` for what must not be.
    """
    if not allow_host_mounts:
        raise UnsupportedSetting(f"rootfs {directory} may not be used: this worker does not allow host directories")
    path = Path(safe_host_directory(directory, KNOWN_SOCKETS))
    if not path.is_dir():
        raise ImageUnavailable(
            "image-missing", f"rootfs {directory}: there is no such directory on the worker's host"
        )
    if not (path / CONFIG).is_file():
        return UnpackedImage(path / "rootfs" if (path / "rootfs").is_dir() else path, ImageConfig(), {})
    base = _config(path / CONFIG)
    rootfs = path / str((base.get("root") or {}).get("path") or "rootfs")
    if not rootfs.is_dir():
        raise ImageUnavailable(
            "image-missing", f"rootfs {directory}: its {CONFIG} names {rootfs}, which is not there"
        )
    return UnpackedImage(Path(safe_host_directory(str(rootfs), KNOWN_SOCKETS)), ImageConfig(), base)


def _config(path: Path) -> Mapping[str, Any]:
    found = path.stat()
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & _WRITABLE_BY_OTHERS:
        raise UnsupportedSetting(f"{path} can be written by other users: chown it to this one and chmod go-w")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnsupportedSetting(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("process", {}), dict):
        raise UnsupportedSetting(f"{path} is no configuration of an OCI container; `runc spec` writes one")
    if config.get("hooks"):
        raise UnsupportedSetting(f"{path} has hooks, which run programs on the host: take them out")
    for mount in config.get("mounts") or ():
        if mount.get("type") == "bind" or {"bind", "rbind"} & set(mount.get("options") or ()):
            safe_host_directory(str(mount.get("source")), KNOWN_SOCKETS)
    return config
