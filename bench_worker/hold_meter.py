"""What a container of a packing takes while it is held, by the counters of its own control group.

The first reading is taken when all containers are up, the second at the end of the hold, before anything stops: in
between a container does nothing but run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bench_common.cost import CONTAINER_CPU, CONTAINER_MEMORY
from bench_worker.host.sampler import ROOT, CgroupSampler

if TYPE_CHECKING:
    from bench_worker.engines.base import Container, Engine
    from bench_worker.host.procfs import HostFiles


class HoldMeter:
    """Reads the control group of one container, where there is one; else `unread` says why not."""

    def __init__(self, engine: Engine, container: Container, files: HostFiles | None = None) -> None:
        """Find the group of a running container; its engine may have to be asked."""
        self._files = files
        self._path = engine.cgroup(container)
        self._sampler: CgroupSampler | None = None
        self.unread = ""
        if self._path is None:
            self.unread = f"{engine.name} shows no control group of a container on this host"
        elif not CgroupSampler(self._path, files).found:
            self.unread = f"there is no control group {self._path.rpartition('/')[0] or '/'}/... below {ROOT}"
        self.readings: dict[str, float] = {}
        """The measures of `bench_common.cost.HELD_UNITS`, once the hold is over; what nobody counts is left out."""

    def begin(self) -> None:
        """Note that all containers are up."""
        if self._path is not None and not self.unread:
            self._sampler = CgroupSampler(self._path, self._files)

    def end(self) -> None:
        """Take the readings."""
        row = None if self._sampler is None else self._sampler.sample()
        if row is None:
            return
        found = {CONTAINER_MEMORY: float(row["cgroup_bytes"])}
        if row["interval_ns"] > 0:
            found[CONTAINER_CPU] = 100.0 * row["cpu_ns"] / row["interval_ns"]
        self.readings = {name: value for name, value in found.items() if math.isfinite(value)}
