"""Open systems: how many jobs were offered, how many were done, and whether Little's law holds.

Offered load is counted by arrivals, achieved load by ends. Little's law, L = lambda W, holds for any system that is
watched long enough (J. D. C. Little, Operations Research 9 (3), 1961): the jobs in it, which each worker counts by
itself a hundred times a second, are on average the arrivals a second times the time from arrival to end, which the
records say. Where the two disagree, one of them is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from bench_common.records import Outcome
from bench_common.stats.block_types import StoredOpenLoad, StoredTreatment
from bench_common.stats.rows import Columns, SampleColumns
from bench_master.run_data.host_samples import TrialSpans
from bench_master.run_data.percentiles import group_positions
from bench_master.run_data.treatment_types import LittlesLawReport, OpenLoadReport, TreatmentReport

READING_INTERVAL_NS: Final = 500_000_000
"""How long a reading of the workers' loops covers."""
FIRST_ARRIVAL_DELAY_NS: Final = 100_000_000
"""How long after a trial's begin its first job arrives."""

LITTLES_LAW_TOLERANCE: Final = 0.2
"""Relative difference of the two sides of Little's law above which the report warns."""
LITTLES_LAW_MIN_SAMPLES: Final = 6
"""With fewer readings of half a second each there is no check."""
LITTLES_LAW_MIN_JOBS: Final = 0.5
"""With fewer jobs in the system on average there is no check."""


class OpenTrial(Struct):
    """One trial: its arrivals and ends (ns), and the jobs that the workers saw in the system."""

    offered: int = 0
    done: int = 0
    first_ns: float = math.inf
    last_ns: float = -math.inf
    ended_ns: float = -math.inf
    response_ns: float = 0.0
    """Summed from arrival to end, of all jobs that ended by themselves, dropped ones too."""
    in_system: dict[int, list[float]] = field(default_factory=dict)
    """Readings of running and waiting jobs together, by worker."""

    def add(self, rows: Columns, *, done: bool) -> None:
        """Add jobs of the trial that were done or failed."""
        arrived = rows["start_ns"] - rows["wait_ns"]
        self.first_ns = min(self.first_ns, int(arrived.min()))
        self.last_ns = max(self.last_ns, int(arrived.max()))
        self.ended_ns = max(self.ended_ns, int(rows["end_ns"].max()))
        self.offered += len(rows)
        self.done += len(rows) if done else 0
        self.response_ns += float((rows["end_ns"] - arrived).sum())

    @property
    def arriving_s(self) -> float | None:
        """For how long jobs arrived, from the first to one gap after the last; None of a single job."""
        if self.offered < 2:  # noqa: PLR2004
            return None
        return (self.last_ns - self.first_ns) / 1e9 * self.offered / (self.offered - 1)

    @property
    def lasting_s(self) -> float:
        """For how long jobs arrived or were still in the system."""
        if not self.offered:
            return 0.0
        return max((self.ended_ns - self.first_ns) / 1e9, self.arriving_s or 0.0)


class OpenSystem:
    """All measured trials of one treatment. `load` is its `OpenLoad` as the header has it."""

    def __init__(self, load: StoredOpenLoad) -> None:
        self._load = load
        self.trials: dict[int, OpenTrial] = {}
        self.dropped = 0
        self.unfinished = 0
        """Jobs that were lost or cancelled: they arrived, but their times are unknown."""

    def add(self, rows: Columns, outcome: Outcome) -> None:
        """Add jobs of measured trials with one outcome."""
        if outcome > Outcome.FAILED:
            self.unfinished += len(rows)
            return
        for trial, where in group_positions(rows["trial"]):
            self.trials.setdefault(trial, OpenTrial()).add(rows[where], done=outcome == Outcome.DONE)

    def watch(self, trial: int, worker: int, counts: list[float]) -> None:
        """Add how many jobs a worker saw in the system in readings within a trial."""
        self.trials.setdefault(trial, OpenTrial()).in_system.setdefault(worker, []).extend(counts)

    def report(self) -> OpenLoadReport:
        """Return the load that was offered and achieved."""
        trials = self.trials.values()
        arriving = [(trial.offered, trial.arriving_s) for trial in trials if trial.arriving_s]
        lasting = sum(trial.lasting_s for trial in trials)
        offered_s = sum(seconds for _, seconds in arriving if seconds)
        return OpenLoadReport(
            rate_per_s=self._load.rate_per_s,
            process=self._load.process,
            queue_timeout_s=self._load.queue_timeout_s,
            offered=sum(trial.offered for trial in trials) + self.unfinished,
            offered_per_s=sum(count for count, _ in arriving) / offered_s if offered_s else None,
            achieved_per_s=sum(trial.done for trial in trials) / lasting if lasting else None,
            dropped=self.dropped,
            littles_law=self._littles_law(),
        )

    def _littles_law(self) -> LittlesLawReport | None:
        """Return both sides of Little's law; None with too few readings or jobs, or if jobs are missing."""
        readings = seen = expected_ns = lasting_s = 0.0
        for trial in self.trials.values():
            counts = [values for values in trial.in_system.values() if values]
            if counts:
                # Each worker's mean, summed: they need not have been read equally often.
                seen += trial.lasting_s * sum(sum(values) / len(values) for values in counts)
                readings += min(len(values) for values in counts)
                expected_ns += trial.response_ns
                lasting_s += trial.lasting_s
        if self.unfinished or readings < LITTLES_LAW_MIN_SAMPLES or not lasting_s:
            return None
        counted, expected = seen / lasting_s, expected_ns / 1e9 / lasting_s
        if max(counted, expected) < LITTLES_LAW_MIN_JOBS:
            return None
        difference = abs(counted - expected) / max(counted, expected)
        return LittlesLawReport(in_system=counted, expected=expected, readings=int(readings), difference=difference)


class OpenSystems:
    """The open systems of a run, by treatment, and what its workers saw in them."""

    def __init__(self, treatments: Sequence[StoredTreatment]) -> None:
        self.systems = {index: OpenSystem(load) for index, one in enumerate(treatments) if (load := one.open_load)}

    def report(self, treatment: int) -> OpenLoadReport | None:
        """Return the load of a treatment; None in the closed model."""
        return self.systems[treatment].report() if treatment in self.systems else None

    def watch(self, spans: TrialSpans, samples: SampleColumns) -> None:
        """Add a worker's readings that lie completely within a trial."""
        columns = samples.columns
        if samples.source != "loop" or not columns.keys() >= {"time_ns", "running_mean", "waiting_mean"}:
            return
        ends, counts = columns["time_ns"], columns["running_mean"] + columns["waiting_mean"]
        begins = ends - READING_INTERVAL_NS - FIRST_ARRIVAL_DELAY_NS
        for span, inside in spans.containing(samples.worker, begins, ends):
            if span.treatment in self.systems:
                self.systems[span.treatment].watch(span.trial, samples.worker, counts[inside].tolist())


def open_warnings(treatments: Iterable[TreatmentReport]) -> list[str]:
    """Return warnings about the open load of each treatment."""
    found = []
    for entry in treatments:
        load = entry.open_load
        if load is None:
            continue
        little = load.littles_law
        if load.dropped:
            found.append(
                f"{entry.title}: {load.dropped:,} of {load.offered:,} jobs were dropped: it cannot keep up "
                f"with {load.rate_per_s:g}/s; offer less, or allow more at once (concurrency)"
            )
        if little is not None and little.difference > LITTLES_LAW_TOLERANCE:
            found.append(
                f"{entry.title}: Little's law does not hold: the workers counted {little.in_system:.3g} jobs in the "
                f"system, rate times response time is {little.expected:.3g}; run for longer, and check how busy the "
                "event loops are"
            )
    return found
