"""Aggregates a stats file while it streams by: outcomes, durations, trial spans, metrics, errors, events.

Memory grows with treatments, trials and kinds of error, never with jobs. (The one exception: tickets of jobs that
failed in treatments with metrics, which are guest jobs, of which no run has many.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from bench_common.histogram import Histogram
from bench_common.records import (
    ARRIVAL,
    BATCH_SAMPLES_SOURCE,
    DROPPED,
    LOOP_FIELDS,
    MISSING_PREREQUISITE_KINDS,
    OPERATION_DONE,
    OPERATION_FAILED,
    SPEED_SOURCE,
    ErrorRecord,
    MetricRecord,
    Outcome,
    job_id_of,
)
from bench_common.stats.block_types import (
    Header,
    StoredBaseline,
    StoredFooter,
    StoredHost,
    StoredTreatment,
    StoredTrial,
    does_one_operation,
)
from bench_common.stats.reader import RESUMED, Block, has_times
from bench_common.stats.rows import Columns, SampleColumns
from bench_master.run_data.harness import HarnessReadings
from bench_master.run_data.host_samples import HostLoad, TrialSpan, TrialSpans
from bench_master.run_data.open_system import OpenSystems
from bench_master.run_data.packing import PackingStats
from bench_master.run_data.percentiles import Key, LatencySeries, group_positions, group_rows, select_rows
from bench_master.run_data.store_course import over_all_sizes
from bench_master.run_data.traced_types import TracedTrials
from bench_master.run_data.transfers import PopulationStats, Transfers
from bench_master.run_data.validity import ClockChecker, Disturbances, LoopStats, Neighbours, TrialOrder, Watches

JOB: Final = "job"
"""Name of the whole job among the operations."""
RESPONSE: Final = "response"
"""Name of the time from arrival to end, in an open system."""

_INT64: Final = np.iinfo(np.int64)
_LOOP_COLUMNS: Final = LOOP_FIELDS[:3]
_WAKE_UP: Final = LOOP_FIELDS[3]
_BATCH_COLUMNS: Final = frozenset({"treatment", "trial", *_LOOP_COLUMNS})
MAX_ERROR_GROUPS: Final = 1000


class ErrorGroup(Struct):
    """Errors of one operation and kind, with one real message."""

    operation: str
    kind: str
    message: str
    job: int
    count: int = 0
    warmup: int = 0
    treatments: Counter[int] = field(default_factory=Counter)
    """How many are no warm-up, by the treatment in which they occurred."""
    messages: dict[int, str] = field(default_factory=dict)
    """The first message of each treatment."""


class TrialMetric(Struct):
    """The values of a metric in one trial; the trial counts once, with their mean."""

    total: float = 0.0
    values: int = 0
    job: int = 0

    @property
    def mean(self) -> float:
        """Return the trial's value."""
        return self.total / self.values


class SpeedReading(Struct, frozen=True):
    """How fast a host was before a trial."""

    trial: int
    wall_ns: int
    """How long the fixed amount of work took."""
    cpu_ns: int
    """How much CPU time it took."""


class PlannedJobs:
    """The jobs and the measured trials of each treatment, by the plan in the header."""

    def __init__(self, treatments: Sequence[StoredTreatment], trials: Sequence[StoredTrial]) -> None:
        self._per_trial = [treatment.jobs_per_trial for treatment in treatments]
        self._trials = trials
        self._measured: dict[int, list[int]] = {}
        for trial, (treatment, _, warmup) in enumerate(trials):
            if not warmup:
                self._measured.setdefault(treatment, []).append(trial)
        self.returned: Counter[int] = Counter()
        """Planned jobs that a full host had no room for, by trial."""
        self.looks: list[Mapping[str, Any]] = []
        """The events of a run that went on until its verdicts were settled: its looks, and what ended it."""
        self._unneeded: set[int] = set()
        self.extensions: list[int] = []
        """How many trials were added to the run each time that it was extended after its end."""

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Note the looks at the verdicts, and the trials that they made needless."""
        kind = event["kind"]
        if kind in ("last-look", "look", "rounds-over"):
            self.looks.append(event)
        elif kind == RESUMED and event.get("more_trials"):
            self.extensions.append(len(event["more_trials"]))
        elif kind == "trial-skipped" and "reason" in event:
            self._unneeded.add(event["trial"])
            for measured in self._measured.values():
                if event["trial"] in measured:
                    measured.remove(event["trial"])

    def trials(self, treatment: int) -> Sequence[int]:
        """Return the measured trials of a treatment that were needed."""
        return self._measured.get(treatment, ())

    def jobs(self, treatment: int | None = None) -> int | None:
        """Return the jobs of a treatment's measured trials, or of all trials; None if unknown, as by time."""
        planned = 0
        for trial in range(len(self._trials)) if treatment is None else self.trials(treatment):
            if trial in self._unneeded:
                continue
            jobs = self._per_trial[self._trials[trial][0]]
            if jobs is None:
                return None
            planned += max(0, jobs - self.returned[trial])
        return planned


class Aggregator:
    """Takes block after block of one stats file; `summary` makes the report of it.

    The trials in `left_out` are warm-up in the `header` and were none: their jobs that were not done count as ever.
    """

    def __init__(  # noqa: PLR0915  one line for each thing that is counted
        self, header: Header, left_out: Collection[int] = ()
    ) -> None:
        self._left_out = np.array(sorted(left_out), np.int64)
        self.treatments: Sequence[StoredTreatment] = header.treatments
        self.run_id = header.run_id
        self._trials: Sequence[StoredTrial] = header.trials
        self._timed = has_times(header)
        """Whether stamps are times; most imported results have none."""
        self._is_imported = bool(header.imported)
        """Whether nobody knows how late its stamps may be."""
        self._warmup = np.array([bool(trial[2]) for trial in self._trials], dtype=bool)
        count = len(self._trials)
        self._starts, self._ends = (np.full(count, extreme) for extreme in (_INT64.max, _INT64.min))
        self.done = np.zeros(count, np.int64)
        """The jobs of each measured trial that are done."""
        self.trial_brackets: dict[int, list[int | None]] = {}
        """When the master began and ended each trial, on its own clock."""
        self.takers: dict[int, frozenset[int]] = {}
        """Workers that ran each trial, by roster number; none where the file does not say."""
        self.outcomes: dict[int, Counter[str]] = {index: Counter() for index in range(len(self.treatments))}
        self.all_outcomes: Counter[str] = Counter()
        """With warm-up jobs, as the footer counts them."""
        self.series: dict[Key, LatencySeries] = {}
        self.totals: dict[Key, LatencySeries] = {}
        """Operations over objects of all classes, which are in no series of their own."""
        self._total_of: dict[Key, Key] = {}
        for index, treatment in enumerate(self.treatments):
            for name in (*treatment.operation_names, JOB):
                self.series[index, name] = LatencySeries()
                total = over_all_sizes(name)
                if total != name and does_one_operation(treatment):
                    self._total_of[index, name] = index, total
                    self.totals.setdefault((index, total), LatencySeries())
        self._operation_counts = np.array([len(one.operation_names) for one in self.treatments], np.int64)
        baseline = (header.overhead or StoredBaseline()).baseline
        self.baseline: Mapping[str, str] = {key: str(value) for key, value in baseline.items()}
        """Labels of the treatment that engines' overheads are compared to; empty for the first one."""
        self.open = OpenSystems(self.treatments)
        for index in self.open.systems:
            self.series[index, RESPONSE] = LatencySeries()
        self.loops = [LoopStats() for _ in self.treatments]
        self.uncertainties: dict[int, Histogram] = {index: Histogram() for index in range(len(self.treatments))}
        """How late (ns) the ends of each treatment's measured jobs that are done may be stamped."""
        self._metrics: dict[tuple[int, str], dict[int, TrialMetric]] = {}
        self.has_metrics = False
        """Whether there are any metrics."""
        self._unsuccessful: list[np.ndarray[Any, Any]] = []
        self._excluded: np.ndarray[Any, Any] | None = None
        """Their tickets, in order."""
        self.errors: dict[tuple[str, str], ErrorGroup] = {}
        self.absent: dict[int, str] = {}
        """What was missing, by treatment, for treatments that failed for no other reason."""
        self._other_failures: set[int] = set()
        self.ungrouped_errors = 0
        self.hosts: dict[int, StoredHost] = {}
        self.loads: dict[int, HostLoad] = {}
        self.speeds: dict[int, list[SpeedReading]] = {}
        """How fast the hosts were, by the worker that measured it, in order."""
        self.course = TrialOrder(self._trials)
        self.clocks = ClockChecker()
        self.disturbances = Disturbances(self.treatments, noop=header.noop)
        self.neighbours = Neighbours()
        self.watches = Watches()
        self.events: Counter[str] = Counter()
        self.lost_workers: list[str] = []
        self.spoilt: dict[int, str] = {}
        """The measured trials in which a worker was lost that had more to do, with who it was and why."""
        self.populations = PopulationStats()
        self.traced = TracedTrials()
        self.harness = HarnessReadings(self._trials)
        self.packings = PackingStats(self._trials, [treatment.engine for treatment in self.treatments])
        self.transfers = Transfers()
        self.plan = PlannedJobs(self.treatments, self._trials)
        self.footer: StoredFooter | None = None
        self.unlisted_operations = 0
        """Operations that the header does not list for their treatment."""
        self.strangers = 0
        """Jobs of treatments that the header does not list."""
        self.first_ns, self.last_ns = _INT64.max, _INT64.min

    def add(self, block: Block) -> None:  # noqa: C901  one case for each kind
        """Add one block; metrics follow in a second look, outputs are never used."""
        match block.kind:
            case "jobs":
                self._add_jobs(block.body)
            case "operations":
                self._add_operations(block.body)
            case "errors":
                for record in block.body:
                    self._add_error(record)
            case "transfers":
                self.transfers.add(self.listed(block.body))
            case "transactions":
                self.transfers.add_transactions(block.body)
            case "metrics":
                self.has_metrics = True
            case "samples":
                self._add_samples(block.body)
            case "host":
                self.hosts[block.body.worker] = block.body
            case "event":
                self._add_event(block.body)
            case "footer":
                self.footer = block.body

    def keys_of(self, key: Key) -> Iterator[Key]:
        """Yield the key of an operation, and that of its total if it has one."""
        yield key
        if key in self._total_of:
            yield self._total_of[key]

    def _add_operations(self, rows: Columns) -> None:
        known = select_rows(rows, rows["treatment"] < len(self.treatments))
        self.unlisted_operations += int((known["operation"] >= self._operation_counts[known["treatment"]]).sum())
        for key, group in self.measured_operations(rows):
            done = select_rows(group, group["ok"] == OPERATION_DONE)
            errors = int((group["ok"] == OPERATION_FAILED).sum())
            for each in self.keys_of(key):
                series = self.series[each] if each in self.series else self.totals[each]
                series.add(done["duration_ns"], done)
                series.errors += errors

    def _add_samples(self, samples: SampleColumns) -> None:
        if samples.source == SPEED_SOURCE:
            self._add_speeds(samples)
            return
        if samples.source != BATCH_SAMPLES_SOURCE or not samples.columns.keys() >= _BATCH_COLUMNS:
            self.loads.setdefault(samples.worker, HostLoad()).add(samples)
            return
        columns = [samples.columns[name].tolist() for name in ("treatment", "trial", *_LOOP_COLUMNS)]
        # Where nobody measured how late threads are woken there is no such column.
        wake_ups = samples.columns.get(_WAKE_UP)
        columns.append([0] * len(columns[0]) if wake_ups is None else wake_ups.tolist())
        for treatment, trial, *loop in zip(*columns, strict=True):
            if 0 <= treatment < len(self.loops) and not self.is_warmup(trial):
                self.loops[treatment].add(*loop)

    def _add_speeds(self, samples: SampleColumns) -> None:
        columns = samples.columns
        if columns.keys() >= {"trial", "wall_ns", "cpu_ns"}:
            rows = zip(*(columns[name].tolist() for name in ("trial", "wall_ns", "cpu_ns")), strict=True)
            own = self.speeds.setdefault(samples.worker, [])
            own += [SpeedReading(int(trial), int(wall), int(cpu)) for trial, wall, cpu in rows if min(wall, cpu) > 0]

    def split_blocks(self) -> frozenset[int]:
        """Return the blocks of which a part ran before the run was interrupted and a part after it was resumed."""
        measured = {block for _, block, warmup in self._trials if not warmup}
        return frozenset(measured.intersection(self.course.actual_order().split_blocks))

    def is_warmup(self, trial: int) -> bool:
        """Return whether a trial is warm-up; one that the header does not list is not."""
        return trial < len(self._warmup) and bool(self._warmup[trial])

    def _measured(self, rows: Columns) -> Columns:
        """Return the rows of measured trials and known treatments."""
        keep = rows["treatment"] < len(self.treatments)
        if self._warmup.any():
            trial = np.minimum(rows["trial"], len(self._warmup) - 1)
            keep &= ~(self._warmup[trial] & (rows["trial"] < len(self._warmup)))
        return select_rows(rows, keep)

    def listed(self, rows: Columns) -> Columns:
        """Return the operations, or transfers, of measured trials that the header lists for their treatment."""
        measured = self._measured(rows)
        return select_rows(measured, measured["operation"] < self._operation_counts[measured["treatment"]])

    def measured_jobs(self, rows: Columns, wanted: Outcome = Outcome.DONE) -> Iterator[tuple[Key, Columns]]:
        """Yield the jobs of measured trials with an outcome by treatment, if their times are known."""
        if not self._timed:
            return
        for treatment, outcome, group in group_rows(self._measured(rows), "outcome"):
            if outcome == wanted:
                yield (treatment, JOB), group

    def response_times(self, treatment: int, rows: Columns) -> np.ndarray[Any, Any] | None:
        """Return the times (ns) from arrival to end of jobs of a treatment; None in the closed model."""
        return rows["duration_ns"] + rows["wait_ns"] if treatment in self.open.systems else None

    def measured_operations(self, rows: Columns) -> Iterator[tuple[Key, Columns]]:
        """Yield the operations of measured trials, failed ones too, by treatment and name."""
        for treatment, operation, group in group_rows(self.listed(rows), "operation"):
            yield (treatment, self.treatments[treatment].operation_names[operation]), group

    def _add_jobs(self, rows: Columns) -> None:
        if not len(rows):
            return
        self.strangers += int((rows["treatment"] >= len(self.treatments)).sum())
        ran = select_rows(rows, rows["outcome"] <= Outcome.FAILED)
        if len(ran) and self._timed:
            self.first_ns = min(self.first_ns, int(ran["start_ns"].min()))
            self.last_ns = max(self.last_ns, int(ran["end_ns"].max()))
        for treatment, code, group in group_rows(rows, "outcome"):
            outcome = Outcome(code)
            self.all_outcomes[outcome.name.lower()] += len(group)
            if treatment < len(self.treatments):
                self._add_outcomes(treatment, outcome, group)

    def _add_outcomes(self, treatment: int, outcome: Outcome, rows: Columns) -> None:
        measured = self._measured(rows)
        counts, counted = self.outcomes[treatment], len(measured)
        if outcome != Outcome.DONE and len(self._left_out):
            counted += int(np.isin(rows["trial"], self._left_out).sum())
        counts["warmup"] += len(rows) - counted
        counts[outcome.name.lower()] += counted
        if outcome == Outcome.DONE and self._timed:
            self.series[treatment, JOB].add(measured["duration_ns"], measured)
            if not self._is_imported:
                self.uncertainties[treatment].record(measured["uncertainty_ns"])
            responses = self.response_times(treatment, measured)
            if responses is not None:
                self.series[treatment, RESPONSE].add(responses, measured)
        elif outcome == Outcome.FAILED:
            self.series[treatment, JOB].errors += len(measured)
        if outcome != Outcome.DONE and self.treatments[treatment].metrics:
            self._unsuccessful.append(rows["ticket"].copy())
        if treatment in self.open.systems:
            self.open.systems[treatment].add(measured, outcome)
        if outcome <= Outcome.FAILED:
            self._extend_trials(select_rows(measured, measured["trial"] < len(self._trials)), outcome)

    def _extend_trials(self, rows: Columns, outcome: Outcome) -> None:
        for trial, where in group_positions(rows["trial"]):
            self._starts[trial] = min(self._starts[trial], rows["start_ns"][where].min())
            self._ends[trial] = max(self._ends[trial], rows["end_ns"][where].max())
            self.done[trial] += rows["end_ns"][where].size if outcome == Outcome.DONE else 0

    def add_metrics(self, records: Sequence[MetricRecord]) -> None:
        """Add metrics, after all jobs: those of unsuccessful jobs and of warm-up are excluded."""
        if self._excluded is None:
            # As an array: there may be many, and a set of numbers takes ten times the memory.
            self._excluded = np.unique(np.concatenate([np.zeros(0, np.uint64), *self._unsuccessful]))
        tickets = np.array([record.ticket for record in records], np.uint64)
        places = np.searchsorted(self._excluded, tickets)
        known = np.append(self._excluded, np.uint64(0))[places] == tickets
        excluded = known & (places < len(self._excluded))
        for record, is_excluded in zip(records, excluded.tolist(), strict=True):
            if is_excluded or self.is_warmup(record.trial) or not np.isfinite(record.value):
                continue
            trials = self._metrics.setdefault((record.treatment, record.name), {})
            entry = trials.setdefault(record.trial, TrialMetric(job=job_id_of(record.ticket)))
            entry.total += record.value
            entry.values += 1

    def trial_metrics(self, treatment: int, name: str) -> Mapping[int, TrialMetric]:
        """Return the metric by trial."""
        return self._metrics.get((treatment, name), {})

    def is_skipped(self, treatment: int) -> bool:
        """Return whether a treatment is optional and did nothing, as something that it needs is missing."""
        is_idle = self.treatments[treatment].optional and not self.outcomes[treatment]["done"]
        return is_idle and treatment in self.absent

    def metric_names(self, treatment: int) -> list[str]:
        """Return the metrics of a treatment: the declared ones, then any others."""
        declared = list(self.treatments[treatment].metrics)
        return declared + sorted({name for index, name in self._metrics if index == treatment} - set(declared))

    def _add_error(self, record: ErrorRecord) -> None:
        if record.kind not in MISSING_PREREQUISITE_KINDS:
            self._other_failures.add(record.treatment)
            self.absent.pop(record.treatment, None)
        elif record.treatment not in self._other_failures:
            self.absent.setdefault(record.treatment, record.message)
        key = (record.operation, record.kind)
        if key not in self.errors and len(self.errors) >= MAX_ERROR_GROUPS:
            self.ungrouped_errors += 1
            return
        if key == (ARRIVAL, DROPPED) and record.treatment in self.open.systems:
            self.open.systems[record.treatment].dropped += not self.is_warmup(record.trial)
        group = self.errors.setdefault(key, ErrorGroup(*key, record.message, job_id_of(record.ticket)))
        group.count += 1
        group.warmup += self.is_warmup(record.trial)
        group.treatments[record.treatment] += not self.is_warmup(record.trial)
        group.messages.setdefault(record.treatment, record.message)

    def _add_event(self, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        self.events[kind] += 1
        self.course.add_event(event)
        self.clocks.add_event(event)
        self.disturbances.add_event(event)
        self.neighbours.add_event(event)
        self.watches.add_event(event)
        self.plan.add_event(event)
        self.populations.add_event(event)
        self.traced.add_event(event)
        self.harness.add_event(event)
        if kind == RESUMED:
            self.footer = None
        elif kind == "worker-lost":
            self._note_loss(event)
        elif kind in ("packed", "trial-begin", "trial-end") and event["trial"] < len(self._trials):
            self._add_trial_event(kind, event["trial"], event)

    def _note_loss(self, event: Mapping[str, Any]) -> None:
        who = event.get("worker_id", event.get("worker"))
        self.lost_workers.append(f"worker {who}: {event.get('reason', 'no reason given')}")
        trial = event.get("trial")
        if trial is not None and trial < len(self._trials) and not self.is_warmup(trial):
            self.spoilt.setdefault(trial, self.lost_workers[-1])

    def _add_trial_event(self, kind: str, trial: int, event: Mapping[str, Any]) -> None:
        if kind == "packed":
            self.packings.add_event(event)
            self.plan.returned[trial] += event.get("returned", 0)
            return
        bracket = self.trial_brackets.setdefault(trial, [None, None])
        if kind == "trial-begin":
            bracket[:] = [None, None]
            self.spoilt.pop(trial, None)  # a resumed run does it again
            self.takers[trial] = frozenset(event.get("workers", ()))
        bracket[kind == "trial-end"] = event["at_ns"]
        if kind == "trial-end" and (trial in self._left_out or not self.is_warmup(trial)):
            # Jobs that were never handed out.
            missing, counts = event.get("not_started", 0), self.outcomes[self._trials[trial][0]]
            counts["not_started"] += missing
            lost = event.get("not_started_outcome") in ("lost", int(Outcome.LOST))
            counts["lost" if lost else "aborted"] += missing

    @property
    def duration_s(self) -> float | None:
        """How long the run took; of one without an end, from the first start to the last end of its jobs."""
        stated = (self.footer or StoredFooter()).duration_s
        if stated is None and self.last_ns >= self.first_ns:
            return (self.last_ns - self.first_ns) / 1e9
        return stated

    def spans(self) -> TrialSpans:
        """Return the measured trials with a known begin and end."""
        return TrialSpans(
            TrialSpan(int(self._trials[trial][0]), begin, end, self.takers.get(trial, frozenset()), trial)
            for trial, (begin, end) in self.trial_brackets.items()
            if begin is not None and end is not None and not self.is_warmup(trial)
        )

    def trials_of(self, treatment: int) -> tuple[int, int]:
        """Return how many measured trials of a treatment were planned, and how many ran."""
        planned = self.plan.trials(treatment)
        return len(planned), sum(self._span(trial) is not None for trial in planned)

    def busy_ns(self, treatment: int) -> int:
        """Return the time that the measured trials of a treatment took, summed.

        A trial lasts as long as the master measured, hand-out included; if the file lacks its end, from the first
        start to the last end of its jobs.
        """
        return sum(self._span(trial) or 0 for trial in self.plan.trials(treatment))

    def jobs_outside_trial(self) -> int:
        """Count the measured trials with a job outside the master's time window beyond the clock uncertainty."""
        slack_ns = max(self.clocks.uncertainties.values(), default=0)
        found = 0
        for trial, (begin, end) in self.trial_brackets.items():
            if begin is not None and end is not None and self._ends[trial] >= self._starts[trial]:
                found += bool(self._starts[trial] < begin - slack_ns or self._ends[trial] > end + slack_ns)
        return found

    def _span(self, trial: int) -> int | None:
        begin, end = self.trial_brackets.get(trial, (None, None))
        if begin is not None and end is not None:
            return end - begin
        start, last = int(self._starts[trial]), int(self._ends[trial])
        return last - start if last >= start else None
