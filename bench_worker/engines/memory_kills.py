"""Whether a memory limit killed something in a container while a command was executed there: its cgroup counts.

Engines tell of a container's first process why it ended, and of no other; the exit code is that of any SIGKILL, or
the command's own where it was its child that was killed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_worker.engines.oci.cgroups import ROOT, oom_kills
from bench_worker.host_files import LiveFiles

if TYPE_CHECKING:
    from bench_worker.engines.base import Done
    from bench_worker.host_files import HostFiles

_CONTROLLER: Final = "memory"


class MemoryKills:
    """Those in the cgroup of a container, from now on; None: it has no limit, or nobody knows its cgroup."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._before = 0 if directory is None else oom_kills(directory)

    @property
    def counted(self) -> bool:
        """Whether anybody counts."""
        return self._directory is not None

    def explain(self, done: Done) -> bool:
        """Say whether a command that ended like this did so for want of memory."""
        return self._directory is not None and done.exit_code != 0 and oom_kills(self._directory) > self._before


def memory_directory(pid: int, identity: str, files: HostFiles | None = None) -> Path | None:
    """Return the directory of the cgroup that limits the memory of a container, by the number of its first process.

    None where that cannot be told. `identity` is part of the cgroup's name with every engine: where it is not, the
    number is that of a process on another host.
    """
    found: dict[bool, str] = {}
    for line in ((files or LiveFiles()).text(f"/proc/{pid}/cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if _CONTROLLER in controllers.split(",") or number == "0":
            found[number == "0"] = path
    # A host that has both versions limits memory with the first (cgroups(7)).
    second = False not in found
    path = found.get(second, "")
    return Path(ROOT, "" if second else _CONTROLLER, path.lstrip("/")) if identity and identity in path else None
