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


class Machine:
    """A host whose processes and clock a test moves."""

    def __init__(self):
        self.texts = {}
        self.now_ns = 0
        self.reading_ns = 0
        self.listening = {}

    def process(self, pid, name, parent=1, *, own=0, waited=0, rss=0, started=100, told="", pss=None):
        """Let a process be there, as /proc has it."""
        words = ["S", parent, *[0] * 9, own, 0, waited, 0, 20, 0, 1, 0, started, 4096, rss, *[0] * 28]
        self.texts[f"/proc/{pid}/stat"] = f"{pid} ({name}) {' '.join(map(str, words))}"
        self.texts[f"/proc/{pid}/cmdline"] = "\0".join(told.split())
        if pss is not None:
            self.texts[f"/proc/{pid}/smaps_rollup"] = f"55a0-7ffd ---p 0 0 0 [rollup]\nRss: 9 kB\nPss: {pss} kB\n"

    def end(self, pid):
        """Let a process be gone."""
        self.texts = {path: text for path, text in self.texts.items() if not path.startswith(f"/proc/{pid}/")}

    def clock(self):
        """Tell the time; each look at it may cost some."""
        self.now_ns += self.reading_ns
        return self.now_ns

    def text(self, path):
        return RecordedHostFiles(self.texts).text(path)

    def names(self, path):
        return RecordedHostFiles(self.texts).names(path)
