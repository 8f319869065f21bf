"""Takes a root file system that the user has unpacked, or a whole OCI bundle, in place of an image.

It lies on the worker's host and is only read: each container has a layer of its own on top. What a bundle's
config.json may ask of the host is held to the same rules as what a scenario asks: no hooks, and no mounts that would
hand the host out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.docker.settings import KNOWN_SOCKETS, safe_host_directory
from bench_worker.engines.oci.images import ImageTrouble, Unpacked
from bench_worker.engines.oci.settings import SettingRefused
from bench_worker.engines.oci.spec import ImageConfig
from bench_worker.engines.oci_homes import CONFIG

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITABLE_BY_OTHERS: Final = 0o022


def take(directory: str, *, allow_host_mounts: bool) -> Unpacked:
    """Return what is in a directory: a bundle, the folder of a ``rootfs``, or the root file system itself.

    Raises `ImageTrouble` where there is none, `SettingRefused` and `MountRefused` for what must not be.
    """
    if not allow_host_mounts:
        raise SettingRefused(f"rootfs {directory} may not be used: this worker does not allow host directories")
    path = Path(safe_host_directory(directory, KNOWN_SOCKETS))
    if not path.is_dir():
        raise ImageTrouble("image-missing", f"rootfs {directory}: there is no such directory on the worker's host")
    if not (path / CONFIG).is_file():
        return Unpacked(path / "rootfs" if (path / "rootfs").is_dir() else path, ImageConfig(), {})
    base = _config(path / CONFIG)
    rootfs = path / str((base.get("root") or {}).get("path") or "rootfs")
    if not rootfs.is_dir():
        raise ImageTrouble("image-missing", f"rootfs {directory}: its {CONFIG} names {rootfs}, which is not there")
    return Unpacked(Path(safe_host_directory(str(rootfs), KNOWN_SOCKETS)), ImageConfig(), base)


def _config(path: Path) -> Mapping[str, Any]:
    found = path.stat()
    if found.st_uid not in {0, os.geteuid()} or found.st_mode & _WRITABLE_BY_OTHERS:
        raise SettingRefused(f"{path} can be written by other users: chown it to this one and chmod go-w")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingRefused(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("process", {}), dict):
        raise SettingRefused(f"{path} is no configuration of an OCI container; `runc spec` writes one")
    if config.get("hooks"):
        raise SettingRefused(f"{path} has hooks, which run programs on the host: take them out")
    for mount in config.get("mounts") or ():
        if mount.get("type") == "bind" or {"bind", "rbind"} & set(mount.get("options") or ()):
            safe_host_directory(str(mount.get("source")), KNOWN_SOCKETS)
    return config
