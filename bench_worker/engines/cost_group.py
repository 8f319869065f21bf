"""A control group around the container of a job, which still has its counters when the container is gone.

Docker, Podman and what is behind the CRI remove a container's own control group when its process ends, before anybody
can read it. What it used stays counted in the group above (cgroup-v1/{cpuacct,memory}.rst and cgroup-v2.rst in the
documentation of Linux), so the container is put into a group that is made for it alone. The engine must be on this
host and take a path for a parent, which systemd's driver does not: there the group of a running container is read.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gevent

from bench_common.cost import CPU_TOTAL, IO_READ, IO_WRITTEN, MEMORY_PEAK
from bench_worker.engines.oci.cgroups import PARENT, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_worker.engines.base import Container, CostMeter
    from bench_worker.engines.oci.cgroups import Cgroups

log = logging.getLogger(__name__)

_END_S: Final = 5.0
_POLL_S: Final = 0.01

MONITOR: Final = "conmon"
"""The group beside the container's to which Podman moves its monitor: that is the engine's cost."""


@cache
def tell_once(reason: str) -> None:
    """Log why jobs do not tell their cost: once, not for each of thousands."""
    log.warning("nobody can tell what jobs cost: %s", reason)


SYSTEMD: Final = (
    "systemd makes the control groups of the engine's containers, and only one that still runs before the last "
    "operation of its job can be read"
)


def no_parent_reason(info: Mapping[str, Any], *, here: bool, kernel: str = os.uname().release) -> str:
    """Return why an engine that says this of itself cannot put a container into a group of ours; empty if it can.

    `info` is what ``docker info`` prints, `here` whether the engine's socket is on this host, `kernel` this host's.
    """
    theirs, driver = str(info.get("KernelVersion") or kernel), str(info.get("CgroupDriver") or "")
    if not here or theirs != kernel:
        place = f" (its kernel is {theirs}, this one {kernel})" if here else ""
        return f"the engine is not on this host{place}, nor are the control groups of its containers"
    if info.get("Rootless") or any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        return "the engine runs without root and makes no control groups outside of its own"
    if driver == "systemd":
        return SYSTEMD
    return "" if driver == "cgroupfs" else f"the engine's cgroup driver is {driver or 'none'!r}"


class CostGroups:
    """The groups of an engine's containers."""

    def __init__(self, cgroups: Cgroups) -> None:
        self.cgroups = cgroups
        self._busy: list[str] = []

    def add(self, container: Container) -> None:
        """Make one for a container that is not made yet; where that cannot be, the log says why, once."""
        self._busy = [path for path in self._busy if not remove_group(path)]
        group = CostGroup(self, container.name)
        try:
            group.make()
        except OSError as error:
            tell_once(f"{error.filename}: {error.strerror}")
        else:
            container.cost_group = group

    def remove(self, path: str) -> None:
        """Remove one; a monitor that ends after its container keeps it there, until later."""
        if not remove_group(path) and path not in self._busy:
            self._busy.append(path)

    def close(self) -> None:
        """Remove those that were busy, within some seconds; what is left then is named in the log."""
        deadline = time.monotonic() + _END_S
        while self._busy and time.monotonic() < deadline:
            self._busy = [path for path in self._busy if not remove_group(path)]
            if self._busy:
                gevent.sleep(_POLL_S)
        if self._busy:
            log.warning("processes keep %d control groups: %s", len(self._busy), ", ".join(self._busy))
            self._busy = []


class CostGroup:
    """The group of one job's container; `path` begins at the root of the hierarchies."""

    def __init__(self, groups: CostGroups, name: str) -> None:
        self.path = group_path(name)
        self._groups, self._cgroups = groups, groups.cgroups
        self._last: dict[str, float] | None = None

    def make(self) -> None:
        """Make it in each hierarchy, as the engine would: so the engine's own operation has nothing to make."""
        for root in _hierarchies():
            directory = f"{root}{self.path}"
            try:
                os.mkdir(directory)  # noqa: PTH102  a dozen of them before each container
            except FileNotFoundError:
                os.makedirs(directory, exist_ok=True)  # noqa: PTH103
            except FileExistsError:
                continue

    def cost(self) -> dict[str, float]:
        """Return what its container has used, by the names of `bench_common.cost`; the last figures once it is gone.

        Version 1 forgets the bytes of a group that is removed: there they are left out once the container ended, as
        is the peak of memory where the engine has a monitor beside the container.
        """
        if self._last is not None:
            return self._last
        found = self._cgroups.cost(self.path)
        if not found.get(CPU_TOTAL):
            return {}
        inner = self._groups_inside()
        containers = [name for name in inner if name != MONITOR]
        if MONITOR in inner:
            monitor = self._cgroups.cost(f"{self.path}/{MONITOR}")
            # A peak is no sum: only the container's own group has it.
            found.pop(MEMORY_PEAK, None)
            found = {name: max(0.0, value - monitor.get(name, 0.0)) for name, value in found.items()}
            for name in containers:
                own = self._cgroups.cost(f"{self.path}/{name}")
                found |= {MEMORY_PEAK: own[MEMORY_PEAK]} if MEMORY_PEAK in own else {}
        if self._cgroups.version == 1 and not containers:
            for name in (IO_READ, IO_WRITTEN):
                found.pop(name, None)
        return found

    def meter(self) -> CostMeter:
        """Return what tells the cost when the last operation is over: the latest figures that there were of each."""
        before = self.cost()

        def read() -> dict[str, float]:
            found = before | self.cost()
            if not found:
                tell_once(f"no process has run in the control group {self.path}: the engine makes its own elsewhere")
            return found

        return read

    def remove(self) -> None:
        """Remove it after its container, keeping the figures; what still runs in it keeps it there."""
        self._last = self.cost()
        self._groups.remove(self.path)

    def _groups_inside(self) -> list[str]:
        with suppress(OSError):
            return [one.name for one in os.scandir(self._cgroups.memory_directory(self.path)) if one.is_dir()]
        return []


def group_path(name: str) -> str:
    """Return the path of the group around the container of this name, which begins at the root."""
    return f"/{PARENT}/{name}"


def remove_groups(prefix: str) -> None:
    """Remove the groups around containers whose names begin so, as far as nothing runs in them."""
    for root in _hierarchies():
        with suppress(OSError):
            for name in [one.name for one in os.scandir(f"{root}/{PARENT}") if one.name.startswith(prefix)]:
                remove_group(group_path(name))


def remove_group(path: str) -> bool:
    """Remove a group that may be there, as far as nothing runs in it; return whether it is gone.

    Podman's monitor of an exec ends minutes after it, so monitors go to the root of the hierarchy.
    """
    left = False
    for root in _hierarchies():
        directory = f"{root}{path}"
        if not _remove(directory):
            _move_processes(f"{directory}/{MONITOR}", root)
            left |= not _remove(directory)
    return not left


def _remove(directory: str) -> bool:
    """Remove a group with those in it; return whether it is gone."""
    try:
        os.rmdir(directory)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError:
        with suppress(OSError):
            for inner in [one.path for one in os.scandir(directory) if one.is_dir()]:
                os.rmdir(inner)  # noqa: PTH106
            os.rmdir(directory)  # noqa: PTH106
            return True
        return False
    return True


def _move_processes(directory: str, target: str) -> None:
    with suppress(OSError):
        for pid in Path(directory, "cgroup.procs").read_text("ascii").split():
            with suppress(OSError):  # it may have ended
                Path(target, "cgroup.procs").write_text(pid, "ascii")


@cache
def _hierarchies() -> tuple[str, ...]:
    """Return where hierarchies are mounted: one of version 2, or a directory for each of version 1."""
    if os.path.exists(f"{ROOT}/cgroup.controllers"):  # noqa: PTH110
        return (ROOT,)
    return tuple(one.path for one in os.scandir(ROOT) if one.is_dir(follow_symlinks=False))
