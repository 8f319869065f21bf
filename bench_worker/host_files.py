"""How a host's files are read by sampler, fingerprint and doctor, so that tests can feed them a recorded host.

What cannot be read is None or empty, never an error: a fact that a kernel, a container or a permission hides is an
unknown fact.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Space:
    """Room of a file system for an ordinary user; `inodes` 0 where a file system has no fixed number of them."""

    total_bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int


class HostFiles(Protocol):
    """What is read of a host; paths are absolute."""

    def text(self, path: str) -> str | None:
        """Return a file's text without white space around it, or None."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a directory, or none."""

    def exists(self, path: str) -> bool:
        """Return whether something is there."""

    def target(self, path: str) -> str | None:
        """Return what a symbolic link says, or None."""

    def space(self, path: str) -> Space | None:
        """Return the room on the file system of a directory, or None."""


class LiveFiles:
    """This host."""

    def text(self, path: str) -> str | None:
        """Return a file's text without white space around it, or None."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  half the cost of Path.open
                return file.read().strip()
        except (OSError, ValueError):
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a directory, or none."""
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208  names are wanted, not paths
        except OSError:
            return ()

    def exists(self, path: str) -> bool:
        """Return whether something is there."""
        return os.path.lexists(path)

    def target(self, path: str) -> str | None:
        """Return what a symbolic link says, or None."""
        try:
            return os.readlink(path)  # noqa: PTH115  /proc/1/ns/pid says pid:[1], which is no path
        except OSError:
            return None

    def space(self, path: str) -> Space | None:
        """Return the room on the file system of a directory, or None."""
        try:
            state = os.statvfs(path)
        except OSError:
            return None
        return Space(state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize, state.f_files, state.f_favail)


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """A host as it was recorded: texts, links and rooms by path; directories are what the paths imply."""

    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    spaces: Mapping[str, Space] = field(default_factory=dict)

    def text(self, path: str) -> str | None:
        """Return a file's text without white space around it, or None."""
        recorded = self.texts.get(path)
        return None if recorded is None else recorded.strip()

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a directory, or none."""
        inside = path.rstrip("/") + "/"
        paths = (*self.texts, *self.links)
        return tuple(sorted({p[len(inside) :].partition("/")[0] for p in paths if p.startswith(inside)}))

    def exists(self, path: str) -> bool:
        """Return whether something is there."""
        return path in self.texts or path in self.links or bool(self.names(path))

    def target(self, path: str) -> str | None:
        """Return what a symbolic link says, or None."""
        return self.links.get(path)

    def space(self, path: str) -> Space | None:
        """Return the room on the file system of a directory, or None."""
        return self.spaces.get(path)
