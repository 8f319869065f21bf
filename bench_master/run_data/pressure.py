"""How much the hosts' work was held up in each trial, and where more than the treatment's own other trials explain.

A job may well wait for a disk, or keep every CPU busy: that is what it is measured for. So a trial stands out only
among the trials of its own treatment on the same host, and by an amount that matters. Stolen time needs no such
comparison: no job takes it.

``benchmarks/pressure_rates.py`` shows what these limits mark, on a quiet host and beside a neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from bench_common.stats.rows import SampleColumns
from bench_master.run_data.host_samples import TrialSpan, TrialSpans
from bench_master.run_data.treatment_types import PressureReport

SOURCE: Final = "pressure"
"""The source of the samples."""
MIN_INSIDE: Final = 0.75
"""A reading counts if at least this share of its interval lies within the trial."""
MIN_COVERED: Final = 0.5
"""How much of a trial such readings must cover."""
MIN_TRIALS: Final = 6
"""Of fewer trials none stands out: nobody knows what is usual."""
MIN_TICKS: Final = 10
"""An excess of fewer ticks, which is 0.1 s, may be chance: of a short trial a single one is much."""
_MAD_TO_SIGMA: Final = 1.4826
"""Median absolute deviation to standard deviation, of the normal distribution."""


class Measure(Struct, frozen=True):
    """One way in which work is held up."""

    name: str
    column: str
    of: str
    """The column that it is a share of."""
    least: float
    """By how much of that a trial must exceed the usual; with `absolute`, what it must exceed."""
    words: str
    """What happened, with the place of a host's name."""
    absolute: bool = False
    per_worker: bool = False
    """Whether each worker has its own, instead of one for all on a host."""
    is_wait_for_cpu: bool = False
    """Whether a host without idle CPU explains it."""


_TIME: Final = "interval_ns"
_TICKS: Final = "cpu_ticks"
MEASURES: Final = (
    Measure("cpu-pressure", "cpu_some_ns", _TIME, 0.2, "tasks on host {} waited for a CPU", is_wait_for_cpu=True),
    Measure("io-pressure", "io_some_ns", _TIME, 0.1, "tasks on host {} waited for input and output"),
    Measure("memory-pressure", "memory_some_ns", _TIME, 0.05, "tasks on host {} waited for memory"),
    Measure(
        "run-queue",
        "load_wait_ns",
        _TIME,
        0.1,
        "the load process on host {} waited for a CPU",
        per_worker=True,
        is_wait_for_cpu=True,
    ),
    Measure("steal", "steal_ticks", _TICKS, 0.1, "the hypervisor took CPU time from host {}", absolute=True),
    Measure("softirq", "softirq_ticks", _TICKS, 0.1, "soft interrupts took CPU time of host {}"),
)
KINDS: Final = {measure.name: measure for measure in MEASURES}
_SUMMED: Final = (_TIME, _TICKS, *(measure.column for measure in MEASURES))


def outlier_factor(trials: int) -> float:
    """Return how many spreads above the median a trial must lie to stand out among so many (from `MIN_TRIALS` on).

    The spread of a few values is itself uncertain, so the factor grows as they get fewer: of readings that are spread
    normally or exponentially one in 500 or fewer exceed it.
    """
    return 8.0 + 60.0 / (trials - 2)


def stands_out(values: npt.NDArray[np.float64], least: float) -> npt.NDArray[np.bool_]:
    """Return which of a treatment's readings, one for each trial, exceed by `least` and more what is usual for it."""
    if len(values) < MIN_TRIALS:
        return np.zeros(len(values), bool)
    above = values - np.median(values)
    spread = _MAD_TO_SIGMA * np.median(np.abs(above))
    found: npt.NDArray[np.bool_] = (above > least) & (above > outlier_factor(len(values)) * spread)
    return found


class Reading(Struct, frozen=True):
    """How much the work of a host, or of a worker, was held up in a trial."""

    span: TrialSpan
    worker: int
    host: str
    share: float
    whole: float
    """What it is a share of, in ns or ticks."""


class Excess(Reading, frozen=True):
    """A trial in which a host's work was held up."""

    measure: Measure
    usual: float
    """The median of the treatment's trials there."""

    @property
    def text(self) -> str:
        """All of it in a sentence."""
        words = self.measure.words.format(self.host)
        if self.measure.absolute:
            return f"{words}: {self.share:.0%} of it"
        share = f" for {self.share:.0%} of the time" if self.measure.of == _TIME else f": {self.share:.0%} of it"
        return f"{words}{share}, where {self.usual:.0%} is usual for the treatment"


class TrialPressure:
    """The readings of each trial, by worker; those of a host from that of its workers that covers most of a trial."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], dict[str, float]] = {}
        self.readings: dict[int, dict[tuple[str, str | int], list[Reading]]] = {}
        """By treatment, then by measure and place, which is a host or a worker."""
        self.blind: dict[str, None] = {}
        """The hosts that gave readings, and no pressure among them."""

    def add(self, spans: TrialSpans, samples: SampleColumns) -> None:
        """Add a block; one of another source, or without times, is ignored."""
        columns = samples.columns
        if samples.source != SOURCE:
            return
        values = {name: columns[name].tolist() for name in _SUMMED if name in columns}
        for row, span, overlap_ns, length_ns in spans.overlaps(samples):
            inside = overlap_ns / length_ns
            if inside >= MIN_INSIDE:
                sums = self._sums.setdefault((span.trial, samples.worker), {})
                for name, own in values.items():
                    # An unknown part makes the whole unknown.
                    part = max(0.0, own[row]) if math.isfinite(own[row]) else math.nan
                    sums[name] = sums.get(name, 0.0) + part * inside

    def settle(self, hosts: Mapping[int, str], spans: TrialSpans) -> None:
        """Sum up, when all samples were added."""
        for span in spans:
            lasted_ns = span.end_ns - span.begin_ns
            known = {
                worker: sums
                for worker in sorted(span.workers)
                if (sums := self._sums.get((span.trial, worker))) and sums[_TIME] >= MIN_COVERED * lasted_ns
            }
            speaker: dict[str, int] = {}
            for worker, sums in known.items():
                host = str(hosts.get(worker))
                if host not in speaker or sums[_TIME] > known[speaker[host]][_TIME]:
                    speaker[host] = worker
                if not any(measure.column in sums for measure in MEASURES if measure.name.endswith("-pressure")):
                    self.blind[host] = None
            for worker, sums in known.items():
                host = str(hosts.get(worker))
                for measure in MEASURES:
                    share = _share(sums, measure)
                    if share is not None and (measure.per_worker or speaker[host] == worker):
                        place = worker if measure.per_worker else host
                        own = self.readings.setdefault(span.treatment, {})
                        own.setdefault((measure.name, place), []).append(
                            Reading(span, worker, host, share, sums[measure.of])
                        )

    def excesses(self) -> Iterator[Excess]:
        """Yield which trials were held up, by treatment, measure and place."""
        for (name, _), readings in (item for own in self.readings.values() for item in own.items()):
            measure, shares = KINDS[name], np.array([one.share for one in readings])
            found = shares > measure.least if measure.absolute else stands_out(shares, measure.least)
            usual = float(np.median(shares))
            if measure.of == _TICKS:
                wholes = np.array([one.whole for one in readings])
                found &= (shares - (0.0 if measure.absolute else usual)) * wholes >= MIN_TICKS
            for place in np.flatnonzero(found).tolist():
                one = readings[place]
                yield Excess(one.span, one.worker, one.host, one.share, one.whole, measure, usual)

    def report(self, treatment: int) -> dict[str, PressureReport] | None:
        """Return a treatment's figures by measure; None without readings."""
        own, reports = self.readings.get(treatment, {}), {}
        for measure in MEASURES:
            if found := [one for (name, _), readings in own.items() if name == measure.name for one in readings]:
                most = max(found, key=lambda one: one.share)
                reports[measure.name] = PressureReport(
                    n=len(found),
                    median=float(np.median([one.share for one in found])),
                    max=most.share,
                    max_trial=most.span.trial,
                )
        return reports or None

    def remarks(self) -> list[str]:
        """Return which hosts said nothing of waits."""
        return [
            f"host {host} tells nothing of waits for CPU, input and output, and memory (no PSI; bench-master doctor "
            "says why), so no trial is marked for those"
            for host in self.blind
        ]


def _share(sums: Mapping[str, float], measure: Measure) -> float | None:
    """Return a reading as a share; None where it is unknown."""
    part, whole = sums.get(measure.column), sums.get(measure.of, 0.0)
    if part is None or not math.isfinite(part) or not 0 < whole < math.inf:
        return None
    return min(1.0, part / whole)


def warning_of(found: Sequence[Excess], which: str) -> str:
    """Return a warning about trials (`which` in words) in which one thing held up the work of one host."""
    worst = max(found, key=lambda one: one.share)
    words = worst.measure.words.format(worst.host)
    most = f"{worst.share:.0%} in trial {worst.span.trial}"
    if worst.measure.absolute:
        return f"{words} in {which}: {most}"
    unusually = "unusually long" if worst.measure.of == _TIME else "more than usual"
    return f"{words} {unusually} in {which}: {most}, where {worst.usual:.0%} is usual"
