"""Packings: how many containers a host held, why no more, and its load while it held them.

The steady state is what was sampled on the host from the start of its last container to the end of the hold, and what
the containers' own control groups counted. Warm-up is listed and enters no figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from bench_common.cost import CONTAINER_CPU, CONTAINER_MEMORY, HELD_UNITS
from bench_common.stats.block_types import StoredHost, StoredTrial
from bench_common.stats.rows import Column, SampleColumns
from bench_common.treatment import SOURCE
from bench_master.run_data.host_samples import MEMORY, MinMeanMax
from bench_master.run_data.treatment_types import (
    EachContainerReport,
    HostCurveReport,
    HostKneeReport,
    KneeReport,
    PackedCountReport,
    PackingSummary,
    PackingTrialReport,
    SampleReport,
    StartCurveReport,
)
from bench_master.verdicts.knee import FEWEST_GROUPS, IN_A_GROUP, fit_curve
from bench_master.verdicts.spread import spread_of

if TYPE_CHECKING:
    from bench_master.run_data.packed_jobs import PackedContainers, PackedJobs

_TOLD: Final = ("trial", "worker", "at_ns", "hold_s", "containers", "full", "reason", "memory_before")
"""Fields of a packing that its event has."""
_HOST: Final = {"memory_used_bytes": "B", "swap_used_bytes": "B"}


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
    unread: str = ""
    held: dict[str, MinMeanMax] = field(default_factory=dict)
    filling: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = field(default_factory=list)
    """Instants (ns) and memory in use (bytes) of readings before the hold."""

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
        """Add a ``packed`` event; if a worker was lost and packs the same trial again, the last packing counts."""
        treatment, _, warmup = self._trials[event["trial"]]
        told = {name: event[name] for name in _TOLD} | {"unread": event.get("unread", "")}
        new = PackingRecord(treatment=treatment, warmup=warmup, **told)
        self._packed = [one for one in self._packed if (one.trial, one.worker) != (new.trial, new.worker)]
        self._packed.append(new)

    def add(self, samples: SampleColumns) -> None:
        """Add samples of hosts and engines."""
        columns, times = samples.columns, samples.columns["time_ns"]
        for packed in self._packed:
            if packed.worker != samples.worker:
                continue
            if samples.source == "host" and not packed.warmup and "memory_used_bytes" in columns:
                before = times < packed.at_ns
                used = np.asarray(columns["memory_used_bytes"])[before].astype(float)
                packed.filling.append((times[before].astype(float), used))
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
        for name, unit in MEMORY.items():
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

    def report(self, treatment: int, workers: Mapping[int, StoredHost], jobs: PackedJobs) -> PackingSummary | None:
        """Return a treatment's packings; None if it packs nothing.

        `workers` are the hosts by number, `jobs` has the containers one by one.
        """
        own = [packed for packed in self._packed if packed.treatment == treatment]
        if not own:
            return None
        counts = [packed.containers for packed in own if not packed.warmup]
        held = [jobs.containers(packed.trial, packed.worker) for packed in own]
        measured = [found for packed, found in zip(own, held, strict=True) if not packed.warmup]
        return PackingSummary(
            containers=PackedCountReport(n=len(counts), min=min(counts), median=median(counts), max=max(counts))
            if counts
            else None,
            trials=[
                PackingTrialReport(
                    trial=packed.trial,
                    worker=workers.get(packed.worker, StoredHost()).worker_id or packed.worker,
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
                    start_s=float(np.median(found.start_s)) if len(found.start_s) else None,
                    steady={name: readings.report() for name, readings in packed.held.items() if readings.n}
                    | _own_readings(found),
                )
                for packed, found in zip(own, held, strict=True)
            ],
            each=_each(measured),
            starts=_start_curve([found.start_s for found in measured]),
            fill=_fill_curve([pair for pair in zip(own, held, strict=True) if not pair[0].warmup]),
            unread=next((packed.unread for packed in own if packed.unread), ""),
        )


_TOO_FEW: Final = (
    "it takes the start-up times of "
    f"{FEWEST_GROUPS * IN_A_GROUP} containers, {FEWEST_GROUPS} of them at a time, and there are {{}}, {{}} at a time"
)

_OWN: Final = {CONTAINER_MEMORY: "container_memory_bytes", CONTAINER_CPU: "container_cpu_percent"}
_EACH: Final = {CONTAINER_MEMORY: "memory_bytes", CONTAINER_CPU: "cpu_percent"}


def _own_readings(found: PackedContainers) -> dict[str, SampleReport]:
    """Return what the control groups of one packing's containers counted."""
    readings = {}
    for name, values in found.readings.items():
        if len(values):
            sums = MinMeanMax(HELD_UNITS[name])
            sums.add(values)
            readings[_OWN[name]] = sums.report()
    return readings


def _each(packings: Sequence[PackedContainers]) -> dict[str, EachContainerReport]:
    """Return what each container takes, of the measures that some packing has."""
    found = {}
    for name, key in _EACH.items():
        values = [one.readings[name] for one in packings if len(one.readings.get(name, ()))]
        if values:
            found[key] = _each_container(HELD_UNITS[name], values, [float(own.mean()) for own in values])
    starts = [one.start_s for one in packings if len(one.start_s)]
    if starts:
        # One slow start among many would move the mean.
        found["start_s"] = _each_container("s", starts, [float(np.median(own)) for own in starts])
    return found


def _each_container(
    unit: str, values: Sequence[npt.NDArray[np.float64]], trials: Sequence[float]
) -> EachContainerReport:
    spread = spread_of(trials, log=False)
    assert spread is not None
    low, high = (
        (spread.low, spread.high)
        if spread.is_interval
        else (min(float(own.min()) for own in values), max(float(own.max()) for own in values))
    )
    return EachContainerReport(
        unit=unit,
        n=len(values),
        containers=sum(map(len, values)),
        middle=spread.middle,
        low=low,
        high=high,
        is_interval=spread.is_interval,
    )


def _start_curve(packings: Sequence[npt.NDArray[np.float64]]) -> StartCurveReport | None:
    """Return start-up times by the number of containers, with the knee if there is one; None without times."""
    known = [own for own in packings if len(own)]
    if not known:
        return None
    curve = fit_curve(np.concatenate([np.arange(1.0, len(own) + 1) for own in known]), np.concatenate(known))
    knee = curve.knee
    return StartCurveReport(
        most=max(map(len, known)),
        points=curve.points,
        line=curve.line,
        knee=None if knee is None else KneeReport(knee.at, knee.low, knee.high, knee.before, knee.after),
        reason="" if curve.line else _TOO_FEW.format(sum(map(len, known)), max(map(len, known))),
    )


_TOO_FEW_READINGS: Final = (
    f"it takes {FEWEST_GROUPS * IN_A_GROUP} readings of the host's memory while containers start, at "
    f"{FEWEST_GROUPS} numbers of containers, and there are {{}} at {{}}"
)


def _fill_curve(packings: Sequence[tuple[PackingRecord, PackedContainers]]) -> HostCurveReport | None:
    """Return how much more memory a host has in use by how many containers are up; None where it was not sampled.

    Readings count from the first container on to the hold: each belongs to the containers that were up by then.
    """
    counts, used = [], []
    for packed, found in packings:
        for times, values in packed.filling:
            own = times >= found.began_ns
            counts.append(np.searchsorted(found.up_ns, times[own], side="right").astype(float))
            used.append(values[own] - packed.memory_before)
    loads = np.concatenate(counts) if counts else np.empty(0)
    if not len(loads):
        return None
    curve = fit_curve(loads, np.concatenate(used))
    knee = curve.knee
    return HostCurveReport(
        most=max(packed.containers for packed, _ in packings),
        points=curve.points,
        line=curve.line,
        knee=None if knee is None else HostKneeReport(knee.at, knee.low, knee.high, knee.before, knee.after),
        reason="" if curve.line else _TOO_FEW_READINGS.format(len(loads), len(np.unique(loads))),
    )
