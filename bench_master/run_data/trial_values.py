"""From the jobs of each trial to its one number, with what is not known exactly as a band.

The jobs of one trial are in memory at a time: an event ``trial-end`` follows all rows of its trial. The number is the
trial's primary measure: a quantile or mean of a duration, the mean of a metric, jobs per second, or containers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from statistics import median
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.cost import COST_UNITS
from bench_common.histogram import RELATIVE_ERROR, Histogram
from bench_common.records import OPERATION_DONE, Outcome
from bench_common.stats.block_types import Header, StoredTreatment, StoredTrial, does_one_operation, job_kind
from bench_common.stats.reader import Block, has_times
from bench_common.stats.rows import Columns
from bench_common.thresholds import JOBS_PER_S, Primary, parse_primary
from bench_master.plan import is_host_ceiling
from bench_master.run_data.aggregate import JOB, RESPONSE, Aggregator, TrialMetric
from bench_master.run_data.percentiles import group_positions
from bench_master.verdicts.decision import BandKind, TrialValues
from bench_master.verdicts.quantiles import (
    MEDIAN,
    SHIFT_QUANTILES,
    UNEQUAL,
    quantile,
    quantiles,
    summarise_logs,
    type8_position,
)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Band: TypeAlias = tuple[float, float, float]
"""A value, the least and the most that it may be."""
Failures: TypeAlias = Literal["worst", "at-random"]

MAX_JOBS: Final = 5_000_000
"""Of more jobs in one trial a histogram is kept, and its error goes into the band."""
MAX_LOGS: Final = 10_000
"""How many jobs of a trial are looked at for how alike they are."""
MANY_BEYOND: Final = 100
"""Of trials with more jobs beyond a quantile unequal numbers do not matter."""
FEWEST_FOR_SHIFT: Final = 4
"""Of fewer jobs there is no quantile but the median."""
RESOLUTIONS_PER_MARGIN: Final = 5
"""A margin is at least so many steps of the measure."""
UNKNOWN_LATENESS_NS: Final = 4_294_967_295
"""How the file says that an end may be stamped late by so much or more."""


class TrialValue(Struct, frozen=True):
    """One trial's number."""

    trial: int
    """Index of the trial in the plan."""
    value: float
    """The measure in its unit; NaN where no job gave one."""
    low: float
    """The least that it may be."""
    high: float
    """The most that it may be."""
    band: BandKind | None = None
    """Why these differ: the larger reason."""
    jobs: int = 0
    failed: int = 0
    """Jobs that failed or were lost, or that gave no measure."""
    shift: tuple[Band, ...] = ()
    """Value, least and most of each of `SHIFT_QUANTILES`, of a trial with several jobs."""
    logs: tuple[int, float, float] | None = None
    """Number, mean and sum of squared deviations of the logarithms of (some of) its jobs."""
    hosts: Mapping[str, TrialValue] = field(default_factory=dict)
    """The measure on each host, where a trial ran on several."""
    cut: Mapping[int, TrialValue] = field(default_factory=dict)
    """The trial as if it had only so many jobs, drawn by the run's seed: as many as another one of its round."""

    def beside(self, other: TrialValue) -> TrialValue:
        """Return the trial with as many jobs as a smaller one of its round: quantiles of few jobs lie off."""
        return self.cut.get(other.jobs, self)


class _Durations(Struct):
    """The durations of one series in one trial, and how late each may be stamped (ns)."""

    exact: list[Array] = field(default_factory=list)
    earliest: list[Array] = field(default_factory=list)
    count: int = 0
    histograms: tuple[Histogram, Histogram] | None = None
    """Instead of the arrays, of very many jobs."""

    def add(self, durations: Array, lateness: Array) -> None:
        if not len(durations):
            return
        self.count += len(durations)
        earliest = durations
        if lateness.any():
            earliest = durations - lateness
            np.maximum(earliest, 0, out=earliest)
            if lateness.max() >= UNKNOWN_LATENESS_NS:
                earliest[lateness >= UNKNOWN_LATENESS_NS] = 0
        self.exact.append(durations)
        self.earliest.append(earliest)
        if self.count > MAX_JOBS:
            self.histograms = self.histograms or (Histogram(), Histogram())
            for histogram, held in zip(self.histograms, (self.exact, self.earliest), strict=True):
                for each in held:
                    histogram.record(each)
                held.clear()

    def drawn(self, size: int, generator: np.random.Generator) -> _Durations:
        """Return so many of the durations, drawn at random."""
        places = generator.choice(self.count, min(size, self.count), replace=False)
        exact, earliest = ([np.concatenate(held)[places]] for held in (self.exact, self.earliest))
        return _Durations(exact, earliest, len(places))

    def summary(self, trial: int, q: float | None, failed: int, failures: Failures) -> TrialValue:
        """Return the measure in seconds, and what else is kept of the jobs."""
        failed_ones = failed if failures == "worst" else 0
        if not self.count:
            return TrialValue(trial, math.nan, math.nan, math.nan, "failed" if failed else None, 0, failed)
        if self.histograms is not None:
            value, low, high, band = self._approximate(*self.histograms, q, failed_ones)
            return TrialValue(trial, value / 1e9, low / 1e9, high / 1e9, band, self.count, failed)
        exact = np.concatenate(self.exact)
        is_late = any(late is not sure for sure, late in zip(self.exact, self.earliest, strict=True))
        earliest = np.concatenate(self.earliest) if is_late else exact
        wanted = [*([] if q is None else [q]), *(SHIFT_QUANTILES if self.count >= FEWEST_FOR_SHIFT else ())]
        values = quantiles(exact, wanted)
        # Failed jobs are the fastest of all, or the slowest.
        lows = quantiles(earliest, wanted, zeros=failed_ones) if is_late or failed_ones else values
        highs = quantiles(exact, wanted, infinite=failed_ones) if failed_ones else values
        bands = [(value / 1e9, low / 1e9, high / 1e9) for value, low, high in zip(values, lows, highs, strict=True)]
        if q is None:
            value = float(exact.mean()) / 1e9
            low = float(earliest.sum()) / (self.count + failed_ones) / 1e9
            bands = [(value, low, math.inf if failed_ones else value), *bands]
        (value, low, high), *shift = bands
        band = None
        if low < value or high > value:
            least = float(earliest.mean()) if q is None else quantile(earliest, q)
            late = value - least / 1e9 if is_late else 0.0
            band = "failed" if high - low > 2.0 * late else "clock"
        logs = summarise_logs(exact[:: -(-self.count // MAX_LOGS)].clip(1)) if self.count > 1 else None
        return TrialValue(trial, value, low, high, band, self.count, failed, tuple(shift), logs)

    def _approximate(
        self, exact: Histogram, earliest: Histogram, q: float | None, failed: int
    ) -> tuple[float, float, float, BandKind | None]:
        if q is None:
            value, low = exact.mean or 0.0, earliest.mean or 0.0
            share = self.count / (self.count + failed)
            return value, low * share, math.inf if failed else value, "failed" if failed else "clock"

        def at(histogram: Histogram, zeros: int, infinite: int) -> float:
            rank, _ = type8_position(self.count + zeros + infinite, q)
            within = rank - zeros
            if within < 1 or within > self.count:
                return 0.0 if within < 1 else math.inf
            return histogram.quantile(within / self.count) or 0.0

        value = at(exact, 0, 0)
        low = at(earliest, failed, 0) * (1.0 - RELATIVE_ERROR)
        return value, low, at(exact, 0, failed) * (1.0 + RELATIVE_ERROR), "failed" if failed else "quantised"


class _OpenTrial(Struct):
    """A trial whose rows are being read."""

    durations: _Durations = field(default_factory=_Durations)
    done: int = 0
    failed: int = 0
    aborted: int = 0
    tickets: list[Array] = field(default_factory=list)
    """Of the jobs, with `lateness`, where the measure is an operation's."""
    lateness: list[Array] = field(default_factory=list)
    operations: list[tuple[Array, Array]] = field(default_factory=list)
    """Tickets and durations of the operation."""
    workers: list[Array] = field(default_factory=list)
    """Of the jobs, where the measure is an operation's and the run has several hosts."""
    hosts: dict[str, _Durations] = field(default_factory=dict)
    """The durations by host, where the run has several."""


class TrialCollector:
    """Takes the rows and events of a file in their order; `table` gives each trial's value."""

    def __init__(
        self,
        header: Header,
        hosts: Mapping[int, str] | None = None,
        measures: Mapping[int, Primary] | None = None,
        done: Array | None = None,
    ) -> None:
        """Take the primary measure of each treatment, or for the treatments in `measures` those alone.

        `done` are the jobs that are done of each trial, where an earlier look counted them: then a trial is cut to
        the numbers of the smaller ones of its round, too.
        """
        self._treatments: Sequence[StoredTreatment] = header.treatments
        self._trials: Sequence[StoredTrial] = header.trials
        self._seed = abs(header.seed or 0)
        self._hosts = dict(hosts or {}) if len(set((hosts or {}).values())) > 1 else {}
        """Names of the hosts by roster number of their workers, of a run on several."""
        self._is_timed = has_times(header)
        if measures is None:
            kept = (one for one in enumerate(self._treatments) if not is_host_ceiling(one[1].labels))
            measures = {index: primary_of(treatment) for index, treatment in kept}
        self.measures = dict(measures)
        self._operations = {
            index: list(self._treatments[index].operation_names).index(measure.series)
            for index, measure in self.measures.items()
            if measure.series is not None and measure.series in self._treatments[index].operation_names
        }
        """The operation whose durations are wanted, by treatment."""
        self._wanted = [not warmup and treatment in self.measures for treatment, _, warmup in self._trials]
        self._sizes: dict[int, set[int]] = {}
        """The jobs of the trials of each round."""
        for number, ((_, block, _), is_wanted) in enumerate(zip(self._trials, self._wanted, strict=True)):
            if done is not None and is_wanted and done[number]:
                self._sizes.setdefault(block, set()).add(int(done[number]))
        self._open: dict[int, _OpenTrial] = {}
        self._ended: dict[int, Mapping[Failures, TrialValue]] = {}
        """The value of each trial by how its failed jobs are counted."""
        self._has_ends = False
        """Whether the file says when trials ended; imported results do not."""
        self._aborted: dict[int, int] = {}
        """Jobs that the end of the run cut short, by trial."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of blocks that it takes."""
        return frozenset({"jobs", "event"} | ({"operations"} if self._operations else set()))

    def add(self, block: Block) -> None:
        """Add a block of one of the kinds."""
        if block.kind == "jobs":
            self.add_jobs(block.body)
        elif block.kind == "operations":
            self.add_operations(block.body)
        else:
            self.add_event(block.body)

    def add_jobs(self, rows: Columns) -> None:
        """Add a block of jobs."""
        for trial, where in group_positions(rows["trial"]):
            if not self._is_wanted(trial):
                continue
            own = rows[where]
            entry = self._entry(trial)
            treatment, outcomes = self._trials[trial][0], own["outcome"]
            done = outcomes == Outcome.DONE
            if not done.all():
                entry.failed += int(((outcomes == Outcome.FAILED) | (outcomes == Outcome.LOST)).sum())
                entry.aborted += int((outcomes == Outcome.ABORTED).sum())
                own = own[done]
            entry.done += len(own)
            series = self.measures[treatment].series
            if not self._is_timed or not len(own) or series is None:
                continue
            if treatment in self._operations:
                entry.tickets.append(own["ticket"])
                entry.lateness.append(own["uncertainty_ns"])
                entry.workers += [own["worker"]] if self._hosts else []
            else:
                durations = own["duration_ns"]
                if series == RESPONSE:
                    durations = durations + own["wait_ns"]
                self._add_durations(entry, durations, own["uncertainty_ns"], own["worker"] if self._hosts else None)

    def _add_durations(self, entry: _OpenTrial, durations: Array, lateness: Array, workers: Array | None) -> None:
        entry.durations.add(durations, lateness)
        if workers is None:
            return
        for worker, where in group_positions(workers):
            name = self._hosts.get(worker, f"worker {worker}")
            entry.hosts.setdefault(name, _Durations()).add(durations[where], lateness[where])

    def add_operations(self, rows: Columns) -> None:
        """Add a block of operations."""
        if not self._operations:
            return
        for trial, where in group_positions(rows["trial"]):
            if not self._is_wanted(trial):
                continue
            operation = self._operations.get(self._trials[trial][0])
            own = rows[where]
            own = own[(own["operation"] == operation) & (own["ok"] == OPERATION_DONE)]
            if len(own):
                self._entry(trial).operations.append((own["ticket"], own["duration_ns"]))

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event: the end of a trial is the time to make its value."""
        if event["kind"] not in ("trial-begin", "trial-end") or not self._is_wanted(trial := event["trial"]):
            return
        entry = self._entry(trial)
        if event["kind"] == "trial-end":
            self._has_ends = True
            if event.get("not_started_outcome") in ("lost", int(Outcome.LOST)):
                entry.failed += event.get("not_started", 0)
            else:
                entry.aborted += event.get("not_started", 0)
            self._end(trial)

    def _is_wanted(self, trial: int) -> bool:
        """Whether rows of a trial count: of one that has ended there are none."""
        return trial < len(self._wanted) and self._wanted[trial] and trial not in self._ended

    def _entry(self, trial: int) -> _OpenTrial:
        return self._open.setdefault(trial, _OpenTrial())

    def _end(self, trial: int) -> None:
        """Make the value of a trial; what is left of it is counts."""
        entry = self._open.pop(trial)
        treatment, block, _ = self._trials[trial]
        measure = self.measures[treatment]
        if entry.tickets:
            self._join(entry)
        hosts = {name: durations.summary(trial, measure.q, 0, "worst") for name, durations in entry.hosts.items()}

        tail = min(1.0 - SHIFT_QUANTILES[-1], 1.0 if measure.q is None else min(measure.q, 1.0 - measure.q))
        cuts = {
            size: entry.durations.drawn(size, np.random.default_rng((self._seed, trial, size)))
            for size in self._sizes.get(block, ())
            if entry.done >= UNEQUAL * size and size * tail <= MANY_BEYOND and entry.durations.exact
        }

        def value(failures: Failures) -> TrialValue:
            found = entry.durations.summary(trial, measure.q, entry.failed, failures)
            cut = {
                size: replace(
                    own.summary(trial, measure.q, -(-entry.failed * size // entry.done), failures), jobs=size
                )
                for size, own in cuts.items()
            }
            return replace(found, jobs=entry.done, hosts=hosts, cut=cut)

        worst = value("worst")
        self._ended[trial] = {"worst": worst, "at-random": value("at-random") if entry.failed else worst}
        self._aborted[trial] = entry.aborted

    def _join(self, entry: _OpenTrial) -> None:
        """Give the operations the lateness of their jobs; those of unsuccessful jobs have none and do not count."""
        jobs, lateness = np.concatenate(entry.tickets), np.concatenate(entry.lateness)
        workers = np.concatenate(entry.workers) if entry.workers else None
        order = np.argsort(jobs)
        jobs = jobs[order]
        for tickets, durations in entry.operations:
            places = np.minimum(np.searchsorted(jobs, tickets), len(jobs) - 1)
            own = jobs[places] == tickets
            rows = order[places[own]]
            self._add_durations(entry, durations[own], lateness[rows], None if workers is None else workers[rows])

    def table(self, ledger: Aggregator, failures: Failures) -> TrialTable:
        """Return all values, with failed jobs counted in this way.

        `ledger` knows the metrics, the brackets and the packings of all trials.
        """
        for trial in sorted(self._open):
            # Where trials have ends, one without is what a killed run was at.
            self._open[trial].aborted += self._has_ends
            self._end(trial)
        self._choose_measured_metrics(ledger)
        spans = {span.trial: span.end_ns - span.begin_ns for span in ledger.spans()}
        packed = ledger.packings.containers()
        rounds: dict[int, dict[int, TrialValue]] = {index: {} for index in self.measures}
        for trial, ended in self._ended.items():
            # A trial that the end of the run cut short says nothing of its treatment.
            if self._aborted[trial]:
                continue
            treatment, block, _ = self._trials[trial]
            measure, value = self.measures[treatment], ended[failures]
            if measure.kind == "rate":
                value = _rate(value, spans.get(trial))
            elif measure.kind == "metric":
                value = _metric(value, ledger.trial_metrics(treatment, measure.name).get(trial), failures)
            elif measure.kind == "containers":
                count = packed.get(trial, math.nan)
                value = replace(value, value=count, low=count, high=count, band=None)
            rounds[treatment][block] = value
        return TrialTable(self.measures, rounds)

    def _choose_measured_metrics(self, ledger: Aggregator) -> None:
        """Put the first metric that was measured in the place of one that no treatment of the job has."""
        groups: dict[Primary, list[int]] = {}
        for treatment, measure in self.measures.items():
            if measure.kind == "metric":
                groups.setdefault(measure, []).append(treatment)
        for measure, members in groups.items():
            if measure.name in COST_UNITS or any(
                ledger.trial_metrics(treatment, measure.name) for treatment in members
            ):
                continue
            declared = self._treatments[members[0]].metrics
            measured = (one for one in declared if any(ledger.trial_metrics(each, one) for each in members))
            instead = next(measured, None)
            if instead is not None:
                self.measures.update(dict.fromkeys(members, parse_primary(instead, (), declared)))


def _metric(trial: TrialValue, metric: TrialMetric | None, failures: Failures) -> TrialValue:
    """Return a trial with the mean of its metric; the jobs that failed may have given anything."""
    if metric is None:
        return replace(trial, value=math.nan, low=math.nan, high=math.nan, band="failed")
    mean, without = metric.mean, trial.failed + max(0, trial.jobs - metric.values)
    if not without or failures == "at-random":
        return replace(trial, value=mean, low=mean, high=mean, band=None, failed=without)
    least = min(0.0, metric.total) if metric.total < 0 else metric.total / (metric.values + without)
    return replace(trial, value=mean, low=least, high=math.inf, band="failed", failed=without)


def _rate(trial: TrialValue, span_ns: int | None) -> TrialValue:
    """Return jobs per second: of those that failed none or all may have been done."""
    if not span_ns:
        return replace(trial, value=math.nan, low=math.nan, high=math.nan, band=None)
    seconds = span_ns / 1e9
    value, high = trial.jobs / seconds, (trial.jobs + trial.failed) / seconds
    return replace(trial, value=value, low=value, high=high, band="failed" if trial.failed else None)


def primary_of(treatment: StoredTreatment) -> Primary:
    """Return the primary measure of a treatment as the header has it: declared, or the default of its kind of job."""
    names, metrics = treatment.operation_names, treatment.metrics
    if treatment.primary is not None:
        # What the scenario's check let pass fits; another program may have written the header.
        with suppress(ValueError):
            return parse_primary(treatment.primary, names, metrics)
    primary = f"{JOB}.p50"
    if "hold" in names:
        primary = "containers"
    elif metrics and (job_kind(treatment) == "guest" or not names):
        primary = next(iter(metrics))
    elif treatment.open_load:
        primary = f"{RESPONSE}.p95"
    elif does_one_operation(treatment):
        primary = JOBS_PER_S
    return parse_primary(primary, names, metrics)


class Sides(Struct, frozen=True):
    """Both sides of a comparison."""

    rounds: Sequence[int]
    """The rounds that ran on both."""
    a: TrialValues
    """The baseline's values in these rounds."""
    b: TrialValues
    least_margin: float
    """What a margin must not be below, as a share: five steps of the measure, or how late ends may be stamped."""


class TrialTable(Struct, frozen=True):
    """The value of every measured trial that ran."""

    measures: Mapping[int, Primary]
    """The primary measure of each treatment, by index; host ceilings have none."""
    rounds: Mapping[int, Mapping[int, TrialValue]]
    """The trials of each treatment by round."""

    def sides(self, a: int, b: int) -> Sides:
        """Return the values of both sides in the rounds that ran on both."""
        rounds, first, second = self.paired(a, b, alike=self.measures[a].q not in (None, MEDIAN))
        # What the harness reads from its own clock has steps of a nanosecond.
        stepped = self.measures[a].kind in ("metric", "containers")
        steps = (_step(first, second), _step(second, first)) if stepped else (0.0, 0.0)
        return Sides(
            rounds,
            _as_values(first, steps[0]),
            _as_values(second, steps[1]),
            max(_least_margin(first, steps[0]), _least_margin(second, steps[1])),
        )

    def paired(self, a: int, b: int, *, alike: bool = False) -> tuple[list[int], list[TrialValue], list[TrialValue]]:
        """Return the rounds that ran on both sides, and the trials of each; `alike`: with alike numbers of jobs."""
        rounds = sorted(self.rounds[a].keys() & self.rounds[b].keys())
        first, second = ([self.rounds[index][each] for each in rounds] for index in (a, b))
        if alike:
            pairs = list(zip(first, second, strict=True))
            first, second = [one.beside(other) for one, other in pairs], [other.beside(one) for one, other in pairs]
        return rounds, first, second

    def values(self, treatment: int) -> TrialValues:
        """Return the values of all trials of a treatment, by round."""
        trials = [self.rounds[treatment][each] for each in sorted(self.rounds[treatment])]
        stepped = self.measures[treatment].kind in ("metric", "containers")
        return _as_values(trials, _step(trials, trials) if stepped else 0.0)

    def without(self, blocks: Collection[int]) -> TrialTable:
        """Return the table without some rounds."""
        return self._of_rounds(lambda block: block not in blocks)

    def before(self, block: int | None) -> TrialTable:
        """Return the values of the rounds before a block; all of them for None."""
        return self if block is None else self._of_rounds(lambda number: number < block)

    def _of_rounds(self, wanted: Callable[[int], bool]) -> TrialTable:
        rounds = {
            index: {block: value for block, value in own.items() if wanted(block)}
            for index, own in self.rounds.items()
        }
        return TrialTable(self.measures, rounds)

    def first_rounds(self, a: int, b: int, count: int | None) -> TrialTable:
        """Return the values of the first so many rounds that ran on both of two treatments; all of them for None."""
        common = sorted(self.rounds[a].keys() & self.rounds[b].keys())
        return self if count is None or len(common) <= count else self.before(common[count])

    def fewest_jobs(self, treatment: int) -> int:
        """Return the number of jobs of the smallest trial that has a value; 0 without any."""
        return min((each.jobs for each in self.rounds[treatment].values() if each.jobs), default=0)


def _as_values(trials: Sequence[TrialValue], step: float) -> TrialValues:
    half = step / 2.0
    values, low, high = (np.array([getattr(each, name) for each in trials]) for name in ("value", "low", "high"))
    widths: dict[BandKind, float] = {"quantised": step} if step else {}
    for each in trials:
        if each.band is not None:
            width = each.high - each.low if math.isfinite(each.value) else math.inf
            widths[each.band] = max(width, widths.get(each.band, 0.0))
    widest = max(widths, key=lambda kind: widths[kind], default=None)
    low = np.where(values > 0.0, (low - half).clip(0.0), low - half)
    return TrialValues(values, low, high + half, widest)


def _least_margin(trials: Sequence[TrialValue], step: float) -> float:
    """Return the smallest share that the values of a side can tell from none."""
    positive = [each for each in trials if each.value > 0.0]
    if not positive:
        return 0.0
    late = [1.0 - each.low / each.value if each.band == "clock" else 0.0 for each in positive]
    return max(RESOLUTIONS_PER_MARGIN * step / median(each.value for each in positive), median(late))


def _step(side: Sequence[TrialValue], other: Sequence[TrialValue]) -> float:
    """Return the step in which a side's values are given: above 0 if at most half of them are distinct.

    Where neither side varies, both are counted or computed: the distance between two constants is the difference,
    and no step of the measure, so the last digit of each is it.
    """
    own = _distinct(side)
    known = sum(math.isfinite(each.value) for each in side)
    if known < 2 or len(own) > known / 2:  # noqa: PLR2004  one value alone has no step
        return 0.0
    if len(own) < 2 and len(_distinct(other)) > 1:  # noqa: PLR2004
        own = _distinct([*side, *other])
    return float(np.diff(own).min()) if len(own) > 1 else _last_digit(own)


def _distinct(trials: Iterable[TrialValue]) -> Array:
    return np.unique([each.value for each in trials if math.isfinite(each.value)])


def _last_digit(values: Array) -> float:
    """Return the value of the last decimal digit of equal values; a whole number is known to its ones."""
    if not len(values):
        return 0.0
    # A mean of equal values may differ from them in the last of a double's 17 digits.
    exponent = Decimal(f"{float(values[0]):.15g}").as_tuple().exponent
    return 10.0 ** min(int(exponent), 0)
