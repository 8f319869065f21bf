"""What the bundles of a treatment have in common, worked out once: the config.json, files, and the root below.

Containers of one treatment differ in name and ticket only. So the config.json is made once, with marks in their
places, and a container's own is that text with its name and ticket in place of the marks.
"""

from __future__ import annotations

import json
import secrets
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from bench_worker.engines.base import TICKET_LABEL
from bench_worker.engines.oci.bundle import bind_mounts, files_with_hosts
from bench_worker.engines.oci.spec import (
    HOSTNAME,
    HostContext,
    UnsupportedSetting,
    bind_mount,
    make_config,
    read_user,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.oci.cgroups import Cgroups
    from bench_worker.engines.oci.images import UnpackedImage
    from bench_worker.engines.oci.spec import User

_NAME: Final = secrets.token_hex(16)
_TICKET: Final = secrets.token_hex(16)
"""Marks that no setting has by chance."""


class Recipe(Struct):
    """How to make a bundle for containers with these settings."""

    settings: ContainerSettings
    """The settings, of which a treatment has one object."""
    lower: str
    """The root file system below the writable layer."""
    root_mode: int
    """The permissions of its root."""
    stop_signal: str
    """The signal that `stop` sends."""
    files: Mapping[str, str]
    """Paths in the container with the text that is there."""
    config_text: str
    """The config.json, with marks."""
    cgroups_path: str
    """The path of the cgroup, with marks."""
    ready: deque[str] = field(default_factory=deque)
    """The directories of bundles that wait for their containers."""
    requested: int = 0
    """How many bundles were asked for ahead. Only the event loop's thread changes it."""
    prepared: int = 0
    """How many of those are ready, or failed. Only the native thread that makes them changes it."""
    taken: int = 0
    """How many containers have been made of it."""

    @property
    def ahead(self) -> int:
        """How many bundles are ready or will soon be."""
        return len(self.ready) + self.requested - self.prepared

    @property
    def is_stable(self) -> bool:
        """Whether what it permits stays permitted: a mount of the host is checked anew for each container.

        A `rootfs` is checked once, since containers write to a layer above it.
        """
        return all(mount.kind != "host" for mount in self.settings.storage)

    def config(self, name: str, ticket: str) -> str:
        """Return the config.json of a container."""
        return self.config_text.replace(_NAME, _escaped(name)).replace(_TICKET, _escaped(ticket))

    def cgroup(self, name: str) -> str:
        """Return the path of a container's cgroup, which begins at the root."""
        return self.cgroups_path.replace(_NAME, name)


def _escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


def make_recipe(
    settings: ContainerSettings,
    image: UnpackedImage,
    cgroups: Cgroups,
    home: Path,
    labels: Mapping[str, str],
    *,
    allow_host_mounts: bool,
) -> Recipe:
    """Return the recipe of bundles below `home` that carry `labels` and one of their ticket.

    Raises `UnsupportedSetting`, `MountRefused` and `OSError`.
    """
    directory = home / _NAME
    binds = [bind_mount(mount, directory, allow_host_mounts=allow_host_mounts) for mount in settings.storage]
    # Files last: one may belong into a volume.
    files = settings.files if image.base else files_with_hosts(settings, HOSTNAME)
    binds += bind_mounts(files, directory)
    context = HostContext(
        rootfs=str(directory / "rootfs"),
        cgroups_path=f"/weighbridge/{_NAME}",
        cgroup_v2=cgroups.version > 1,
        swap_limit=cgroups.swap_limit,
        binds=binds,
        annotations={
            **labels,
            TICKET_LABEL: _TICKET,
        },
    )
    try:
        config = make_config(image.base, image.config, settings, _user(image), context)
    except ValueError as error:
        raise UnsupportedSetting(str(error)) from error
    if not config["process"].get("args"):
        raise UnsupportedSetting("there is no command: neither `command` nor the image says what runs")
    return Recipe(
        settings,
        str(image.rootfs),
        image.rootfs.stat().st_mode & 0o7777,
        image.config.stop_signal,
        files,
        json.dumps(config),
        config["linux"]["cgroupsPath"],
    )


def _user(image: UnpackedImage) -> User:
    etc = image.rootfs / "etc"
    texts = [
        path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for path in (etc / "passwd", etc / "group")
    ]
    try:
        return read_user(image.config.user, *texts)
    except ValueError as error:
        raise UnsupportedSetting(str(error)) from error
