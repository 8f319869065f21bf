"""A host as it was recorded, in place of the files of this one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench_worker.host.procfs import DiskSpace


@dataclass(frozen=True, slots=True)
class RecordedHostFiles:
    """Texts, links and rooms by path; directories follow from the paths."""

    texts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    spaces: Mapping[str, DiskSpace] = field(default_factory=dict)

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

    def space(self, path: str) -> DiskSpace | None:
        """Return the room on the file system of a directory, or None."""
        return self.spaces.get(path)
