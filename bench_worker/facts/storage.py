"""Facts of the disk that the working directory is on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench_worker.host.facts import Fact, chosen

if TYPE_CHECKING:
    from bench_worker.host_files import HostFiles

ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountPoint:
    """Where a file system is mounted: its directory, kind, options, source and device number (``major:minor``)."""

    directory: str
    kind: str
    source: str
    options: str
    device: str


def mount_of(files: HostFiles, directory: str) -> MountPoint | None:
    """Return the mount that holds an absolute directory, or None where mounts are hidden."""
    best: MountPoint | None = None
    for line in (files.text("/proc/self/mountinfo") or "").splitlines():
        mount = _parse_mount(line)
        if mount is None:
            continue
        inside = mount.directory.rstrip("/") + "/"
        # Of two mounts on one directory the later covers the earlier.
        if f"{directory}/".startswith(inside) and (best is None or len(mount.directory) >= len(best.directory)):
            best = mount
    return best


def _parse_mount(line: str) -> MountPoint | None:
    # proc(5): id, parent, major:minor, root, mount point, options, optional fields, " - ", kind, source, options
    front, _, back = line.partition(" - ")
    head, tail = front.split(), back.split()
    if len(head) < 6 or len(tail) < 2:  # noqa: PLR2004
        return None
    return MountPoint(_unescaped(head[4]), tail[0], _unescaped(tail[1]), head[5], head[2])


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _working_mount(files: HostFiles) -> MountPoint | None:
    directory = files.target("/proc/self/cwd")
    return mount_of(files, directory) if directory else None


def _disk(files: HostFiles) -> str | None:
    """Return the name of the whole disk below the working directory."""
    mount = _working_mount(files)
    target = files.target(f"/sys/dev/block/{mount.device}") if mount else None
    if target is None:
        return None
    parent, _, name = target.rpartition("/")
    disk = parent.rpartition("/")[2]
    # A partition's directory lies within its disk's.
    return disk if files.exists(f"/sys/block/{disk}") else name


def _queue(files: HostFiles, name: str) -> str | None:
    disk = _disk(files)
    return chosen(files.text(f"/sys/block/{disk}/queue/{name}")) if disk else None


def _filesystem(files: HostFiles) -> str | None:
    mount = _working_mount(files)
    return mount.kind if mount else None


def _mount_options(files: HostFiles) -> str | None:
    mount = _working_mount(files)
    return mount.options if mount else None


def _rotational(files: HostFiles) -> str | None:
    return {"0": "no", "1": "yes"}.get(_queue(files, "rotational") or "")


STORAGE_FACTS: Final = (
    Fact("filesystem", "file system of the working directory", _filesystem),
    Fact("filesystem_options", "how it is mounted", _mount_options),
    Fact("disk", "the disk below it", _disk),
    Fact("disk_scheduler", "that disk's scheduler", lambda files: _queue(files, "scheduler")),
    Fact("disk_rotational", "whether that disk says it rotates", _rotational),
    Fact(
        "disk_write_cache",
        "that disk's cache: write back or write through",
        lambda files: _queue(files, "write_cache"),
    ),
)
