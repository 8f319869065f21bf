"""The processes of a container that its runtime does not know: found by their cgroup, and killed.

A runtime keeps its state in ``/run``. Of a container whose worker had a ``/run`` of its own it knows nothing
elsewhere, says that there is nothing to delete, and the container lives on. Its cgroup has a name that nothing else
has, wherever it is mounted, so the kernel tells which processes are in it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gevent
import psutil

from bench_common.errors import InfrastructureError
from bench_worker.engines.native.labels import state_of
from bench_worker.engines.oci.cgroups import PARENT, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEATH_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.01
_FREEZER: Final = "freezer"
_ENDED: Final = "ZX"


def cgroups_of(pid: int, container: str, proc: Path = Path("/proc")) -> dict[str, str]:
    """Return the cgroups of a process that are a container's or below it, by their controllers; raise `OSError`.

    The unified hierarchy of version 2 has none. Where the process is in no such cgroup, there is nothing.
    """
    found = {}
    for line in (proc / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if f"/{PARENT}/{container}/" in f"{path}/":
            found[controllers] = path
    return found


def end_processes(container: str) -> None:
    """Kill what runs in the cgroups of a container, and remove those; nothing is there as a rule.

    Raises `InfrastructureError` where something is left after 10 s, or runs where it cannot be seen from here.
    """
    deadline = time.monotonic() + _DEATH_TIMEOUT_S
    directories = set(_own_directories(container))
    while running := list(_running(container)):
        if time.monotonic() > deadline:
            left = ", ".join(str(pid) for pid, _ in running)
            raise InfrastructureError(f"processes {left} of container {container} did not exit after SIGKILL")
        for pid, cgroups in running:
            directories |= {_directory(controllers, path) for controllers, path in cgroups.items()}
            if _FREEZER in cgroups:
                # What version 1 has frozen takes no signal.
                with suppress(OSError):
                    (_directory(_FREEZER, cgroups[_FREEZER]) / "freezer.state").write_text("THAWED", "ascii")
            _kill(pid, container)
        gevent.sleep(_POLL_S)
    for directory in directories:
        if _is_populated(directory):
            raise InfrastructureError(
                f"container {container} has processes in a PID namespace that is not seen from here: clean up there"
            )
        with suppress(OSError):
            directory.rmdir()


def _running(container: str) -> Iterator[tuple[int, dict[str, str]]]:
    for pid in psutil.pids():
        with suppress(OSError, ValueError):
            cgroups = cgroups_of(pid, container)
            if cgroups and state_of(pid) not in _ENDED:
                yield pid, cgroups


def _kill(pid: int, container: str) -> None:
    """Kill a process if it still is the container's: the pidfd pins it, and its number may be another's by now."""
    with suppress(ProcessLookupError, FileNotFoundError):
        pidfd = os.pidfd_open(pid)
        try:
            if cgroups_of(pid, container):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _own_directories(container: str) -> Iterator[Path]:
    """Yield the cgroups that a container has which was made from here."""
    for parent in (Path(ROOT), *Path(ROOT).glob("*/")):
        directory = parent / PARENT / container
        if directory.is_dir():
            yield directory


def _directory(controllers: str, path: str) -> Path:
    return Path(ROOT, controllers.removeprefix("name="), path.lstrip("/"))


def _is_populated(directory: Path) -> bool:
    """Return whether processes are in a cgroup; those of other PID namespaces have the number 0 there."""
    with suppress(OSError):
        return bool((directory / "cgroup.procs").read_text("ascii").strip())
    return False
