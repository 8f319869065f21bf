"""Packings: how many containers a host held, why no more, and its load while it held them.

The steady state is what was sampled on the host from the start of its last container to the end of the hold. Warm-up
is listed and enters no figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.stats.block_types import StoredTrial
from bench_common.stats.rows import Column, SampleColumns
from bench_common.treatment import SOURCE
from bench_master.analysis.treatment_types import PackedCountReport, PackingSummary, PackingTrialReport
from bench_master.run_data.host_samples import MinMeanMax

_HOST: Final = {"memory_used_bytes": "B", "swap_used_bytes": "B"}
_ENGINE: Final = {"rss_bytes": "B", "pss_bytes": "B", "cgroup_bytes": "B", "processes": "1"}


class PackingRecord(Struct):
    """One packing: a trial on a worker. `at_ns` is when the hold began, on the master's clock."""

    trial: int
    treatment: int
    warmup: bool
    worker: int
    at_ns: int
    hold_s: float
    containers: int
    full: bool
    reason: str
    memory_before: int
    held: dict[str, MinMeanMax] = field(default_factory=dict)

    def add(self, name: str, unit: str, values: npt.NDArray[Any], inside: npt.NDArray[np.bool_]) -> None:
        """Add the readings of a column that fall into the hold."""
        self.held.setdefault(name, MinMeanMax(unit)).add(np.asarray(values)[inside])

    @property
    def per_container(self) -> float | None:
        """How much more memory was in use during the hold than before the first container, for each of them."""
        used = self.held.get("memory_used_bytes")
        if used is None or not used.n or not self.containers:
            return None
        return (used.total / used.n - self.memory_before) / self.containers

    def own_change_per_container(self, befores: Sequence[int]) -> float | None:
        """Return how far the host's memory in use changed by itself, for each container, in bytes.

        `befores` is what was in use before the host's packings, in their order. The change is half the range of the
        readings while nothing was started or stopped, or the change from before one packing to before the next, or a
        decrease that cannot be the containers', whichever is most.
        """
        each, used = self.per_container, self.held.get("memory_used_bytes")
        if each is None or used is None:
            return None
        between = [abs(after - before) for before, after in pairwise(befores)]
        changes = [(used.high - used.low) / 2, -each * self.containers, *between]
        return float(max(changes)) / self.containers


class PackingStats:
    """Takes a run's ``packed`` events, then its samples; gives each treatment its packings.

    `engines` has the engine of each treatment: what another engine used meanwhile does not count.
    """

    def __init__(self, trials: Sequence[StoredTrial], engines: Sequence[str]) -> None:
        self._trials = trials
        self._engines = engines
        self._packed: list[PackingRecord] = []

    def __bool__(self) -> bool:
        return bool(self._packed)

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add a ``packed`` event; one of an unplanned trial is ignored.

        If a worker was lost and packs the same trial again, the last packing counts.
        """
        trial, worker = int(event["trial"]), int(event["worker"])
        if not 0 <= trial < len(self._trials):
            return
        self._packed = [packed for packed in self._packed if (packed.trial, packed.worker) != (trial, worker)]
        self._packed.append(
            PackingRecord(
                trial=trial,
                treatment=int(self._trials[trial][0]),
                warmup=bool(self._trials[trial][2]),
                worker=worker,
                at_ns=int(event["at_ns"]),
                hold_s=float(event["hold_s"]),
                containers=int(event["containers"]),
                full=bool(event["full"]),
                reason=str(event["reason"]),
                memory_before=int(event["memory_before"]),
            )
        )

    def add(self, samples: SampleColumns) -> None:
        """Add samples of hosts and engines."""
        columns, times = samples.columns, samples.columns["time_ns"]
        for packed in self._packed:
            if packed.worker != samples.worker:
                continue
            inside = (times >= packed.at_ns) & (times <= packed.at_ns + packed.hold_s * 1e9)
            if not inside.any():
                continue
            if samples.source == "host":
                for name, unit in _HOST.items():
                    if name in columns:
                        packed.add(name, unit, columns[name], inside)
                if "cpu_idle_percent" in columns:
                    idle = columns["cpu_idle_percent"] + columns.get("cpu_iowait_percent", np.zeros(1))
                    packed.add("cpu_busy_percent", "%", (100.0 - idle).clip(0), inside)
            elif samples.source == f"{SOURCE}{self._engines[packed.treatment]}":
                self._add_engine(packed, columns, inside)

    @staticmethod
    def _add_engine(packed: PackingRecord, columns: Mapping[str, Column], inside: npt.NDArray[np.bool_]) -> None:
        for name, unit in _ENGINE.items():
            if name in columns:
                packed.add(f"engine_{name}", unit, columns[name], inside)
        if {"cpu_ns", "interval_ns"} <= columns.keys():
            used = 100.0 * columns["cpu_ns"] / columns["interval_ns"].clip(1)
            packed.add("engine_cpu_percent", "%", used, inside)

    def containers(self) -> dict[int, float]:
        """Return how many containers all workers held together, by trial."""
        counts: dict[int, float] = {}
        for packed in self._packed:
            counts[packed.trial] = counts.get(packed.trial, 0.0) + packed.containers
        return counts

    def report(self, treatment: int, workers: Mapping[int, Mapping[str, Any]]) -> PackingSummary | None:
        """Return a treatment's packings; None if it packs nothing. `workers` are the hosts by number."""
        own = [packed for packed in self._packed if packed.treatment == treatment]
        if not own:
            return None
        counts = [packed.containers for packed in own if not packed.warmup]
        return PackingSummary(
            containers=PackedCountReport(n=len(counts), min=min(counts), median=median(counts), max=max(counts))
            if counts
            else None,
            trials=[
                PackingTrialReport(
                    trial=packed.trial,
                    worker=workers.get(packed.worker, {}).get("worker_id", packed.worker),
                    warmup=packed.warmup,
                    containers=packed.containers,
                    full=packed.full,
                    reason=packed.reason,
                    hold_s=packed.hold_s,
                    memory_before_bytes=packed.memory_before,
                    memory_per_container_bytes=packed.per_container,
                    memory_change_per_container_bytes=packed.own_change_per_container(
                        [one.memory_before for one in self._packed if one.worker == packed.worker]
                    ),
                    steady={name: readings.report() for name, readings in packed.held.items() if readings.n},
                )
                for packed in own
            ],
        )
