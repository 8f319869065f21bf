"""What jobs on objects did, by operation and class of size, as ssbench's report has it.

A cell is an operation (or all: `TOTAL`) on objects of a class (or of all classes: `ALL`, which is no name, as a class
may be called all). It has the latencies to the first and to the last byte, in memory that does not grow with the
rows; percentiles are ssbench's, exact by a second look at the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from bench_common.records import OPERATION_DONE, OPERATION_FAILED, Outcome, TransactionRecord
from bench_common.stats.block_types import StoredTreatment, definition_of, job_kind
from bench_common.stats.reader import Block
from bench_common.stats.rows import Columns
from bench_features.objects.common.job import MAX_OBJECT_BYTES
from bench_master.run_data.measured import MeasuredRun
from bench_master.run_data.percentiles import ExactRanks, LatencySeries, group_positions, select_rows

TOTAL: Final = "TOTAL"
ALL: Final = None

Cell: TypeAlias = tuple[str, str | None]

_NAME: Final = re.compile(r"(?P<operation>[a-z]+)\[(?P<size_class>.*)\](?P<first>\.first)?", re.DOTALL)


@dataclass(slots=True)
class CellMeasures:
    """One operation on one class, or several of either."""

    count: int = 0
    errors: int = 0
    retries: int = 0
    """Tries that failed, of successes and failures."""
    transferred_bytes: int = 0
    """The size of what successes sent or received."""
    unknown_sizes: int = 0
    """Successes whose size is unknown."""
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """When the first job of each trial began and the last one ended (ns); a file of ssbench's is one trial."""

    @property
    def seconds(self) -> float:
        """How long it went on, over all trials."""
        return sum(end - begin for begin, end in self.spans.values()) / 1e9

    @property
    def rate(self) -> float:
        """Successes per second of its spans; 0 if that is no time."""
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def retry_percent(self) -> float:
        """Retries per success, in percent; 0 without successes."""
        return 100 * self.retries / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """A series of latencies, in seconds."""

    minimum: float
    maximum: float
    mean: float
    stddev: float
    """Of the values themselves, as ssbench has it: no estimate of a population's."""
    percentile: float
    worst_transaction: str
    """The store's id of the slowest one; empty if unknown."""


class StoreMeasures:
    """The figures of one treatment."""

    def __init__(self, treatment: StoredTreatment) -> None:
        self.treatment = treatment
        """The treatment as the stats file's header has it."""
        self.cells: dict[Cell, CellMeasures] = {}
        """By operation and class."""
        self.jobs_by_worker: Counter[int] = Counter()
        """Successes by the number of each worker that ran jobs."""
        self.began_ns: int | None = None
        """When the first job began, on the clock of the file."""
        self.ended_ns: int | None = None
        """When the last one ended."""
        self._series: dict[tuple[Cell, bool], LatencySeries] = {}
        self._transactions: dict[tuple[int, bool], str] = {}
        """By the ticket of the job, and whether it was the slowest to its first byte."""
        self._ranks: ExactRanks | None = None
        self._keys: dict[tuple[Cell, bool], tuple[int, str]] = {}
        self._names = [_NAME.fullmatch(str(name)) for name in treatment.operation_names]

    @property
    def classes(self) -> list[str]:
        """The size classes, in the order of the scenario; others that occur follow."""
        known = [str(one["name"]) for one in definition_of(self.treatment).job.get("classes", ())]
        return list(dict.fromkeys([*known, *(size for _, size in self.cells if size is not ALL)]))

    def latency(self, cell: Cell, pctile: float, *, first: bool) -> Latency | None:
        """Return the latencies of a cell to the first or the last byte; None if there are none."""
        series = self._series.get((cell, first))
        if series is None or not series.histogram.n:
            return None
        histogram, key = series.histogram, self._keys[cell, first]
        assert self._ranks is not None
        found = [self._ranks.at_rank(key, rank) for rank in percentile_ranks(histogram.n, pctile)]
        return Latency(
            minimum=(histogram.min or 0) / 1e9,
            maximum=(histogram.max or 0) / 1e9,
            mean=(histogram.mean or 0.0) / 1e9,
            stddev=(series.moments.population_stddev or 0.0) / 1e9,
            percentile=sum(value for value, _ in found) / len(found) / 1e9,
            worst_transaction=self._transactions.get((series.slowest_ticket or 0, first), ""),
        )

    def add(self, kind: str, rows: Columns) -> None:
        """Take the measured rows of this treatment in a block."""
        if kind == "operations" and self._ranks is None:
            self.add_operations(rows)
        elif kind == "operations":
            self.collect(rows)
        elif kind == "transfers":
            self.add_transfers(rows)
        elif len(ran := select_rows(rows, rows["outcome"] <= Outcome.FAILED)):
            self.add_jobs(ran)

    def add_operations(self, rows: Columns) -> None:
        """Take the measured operations of this treatment, in the first look."""
        for first, cells, own in self._grouped(rows):
            done = select_rows(own, own["ok"] == OPERATION_DONE)
            failed = 0 if first else int((own["ok"] == OPERATION_FAILED).sum())
            for cell in cells:
                series = self._series.setdefault((cell, first), LatencySeries())
                series.add(done["duration_ns"], done)
                if not first:
                    measures = self.cells.setdefault(cell, CellMeasures())
                    measures.count += len(done)
                    measures.errors += failed
                    _extend_spans(measures.spans, own)

    def add_transfers(self, rows: Columns) -> None:
        """Take the retries and sizes of the measured jobs of this treatment."""
        for _, cells, own in self._grouped(rows):
            retries = int(own["retries"].sum())
            sizes = own["bytes"][own["ok"] == OPERATION_DONE]
            sent = int(sizes.clip(0, MAX_OBJECT_BYTES).sum())
            for cell in cells:
                measures = self.cells.setdefault(cell, CellMeasures())
                measures.retries += retries
                measures.transferred_bytes += sent
                measures.unknown_sizes += int((sizes < 0).sum())

    def add_jobs(self, rows: Columns) -> None:
        """Take the measured jobs of this treatment that ran."""
        begin, end = int(rows["start_ns"].min()), int(rows["end_ns"].max())
        self.began_ns = begin if self.began_ns is None else min(begin, self.began_ns)
        self.ended_ns = end if self.ended_ns is None else max(end, self.ended_ns)
        done = rows["outcome"] == Outcome.DONE
        for worker, where in group_positions(rows["worker"]):
            self.jobs_by_worker[worker] += int(done[where].sum())

    def add_transactions(self, records: Sequence[TransactionRecord]) -> None:
        """Take the transactions of the slowest jobs, after the first look."""
        slowest = {(series.slowest_ticket, first) for (_, first), series in self._series.items()}
        for record in records:
            parsed = _NAME.fullmatch(record.operation)
            key = record.ticket, bool(parsed and parsed["first"])
            if key in slowest:
                self._transactions[key] = record.transaction_id

    def prepare_ranks(self, pctile: float) -> None:
        """Begin the second look, for a percentile."""
        self._keys = {key: (number, "") for number, key in enumerate(self._series)}
        series = {self._keys[key]: one for key, one in self._series.items()}
        self._ranks = ExactRanks(series, lambda count: percentile_ranks(count, pctile))

    def collect(self, rows: Columns) -> None:
        """Take the same operations once more, in the second look."""
        assert self._ranks is not None
        for first, cells, own in self._grouped(rows):
            durations = own["duration_ns"][own["ok"] == OPERATION_DONE]
            for cell in cells:
                self._ranks.collect(self._keys[cell, first], durations)

    def _grouped(self, rows: Columns) -> Iterator[tuple[bool, list[Cell], Columns]]:
        for place, where in group_positions(rows["operation"]):
            parsed = self._names[place] if place < len(self._names) else None
            if parsed is not None:
                yield bool(parsed["first"]), _cells(parsed["operation"], parsed["size_class"]), rows[where]


def _cells(operation: str, size_class: str) -> list[Cell]:
    return [(one, size) for one in (TOTAL, operation) for size in (ALL, size_class)]


def _extend_spans(spans: dict[int, tuple[int, int]], rows: Columns) -> None:
    for trial, where in group_positions(rows["trial"]):
        starts = rows["start_ns"][where]
        begin, end = int(starts.min()), int((starts + rows["duration_ns"][where]).max())
        first, last = spans.get(trial, (begin, end))
        spans[trial] = min(begin, first), max(end, last)


def percentile_ranks(count: int, pctile: float) -> Sequence[int]:
    """Return the ranks (from 1) whose mean is a percentile in ssbench's way; 0 and 100 are the extremes.

    Where the percentile is a whole rank, ssbench takes the mean of the value there and the next one.
    """
    rank = Fraction(repr(float(pctile))) * count / 100
    if rank <= 0 or rank >= count:
        return (1 if rank <= 0 else count,)
    whole = int(rank)
    return (whole, whole + 1) if rank == whole else (whole + 1,)


def collect_measures(run: MeasuredRun, pctile: float) -> dict[int, StoreMeasures]:
    """Return the figures of each treatment that is a job on objects, by its index; warm-up trials are left out."""
    found = {
        index: StoreMeasures(treatment)
        for index, treatment in enumerate(run.sums.treatments)
        if job_kind(treatment) == "objects"
    }
    if found:
        warmup = np.array([bool(trial[2]) for trial in run.header.trials], dtype=bool)
        run.look_again([_Look({"jobs", "operations", "transfers"}, found, warmup)])
        if not run.header.imported:
            _take_trials(found, run)
        for measures in found.values():
            measures.prepare_ranks(pctile)
        # Exact percentiles, and the transactions of the slowest jobs, which the sums have named.
        run.look_again([_Look({"operations", "transactions"}, found, warmup)])
    return found


def _take_trials(found: Mapping[int, StoreMeasures], run: MeasuredRun) -> None:
    """Let rates be per second of the trials, as in every other report; a file of ssbench's own has none."""
    for index, measures in found.items():
        spans = {span.trial: (span.begin_ns, span.end_ns) for span in run.sums.spans() if span.treatment == index}
        for cell in measures.cells.values():
            cell.spans = spans or cell.spans


class _Look:
    """Shows the measures what of the blocks is theirs; in the second look the ranks are prepared."""

    def __init__(
        self, kinds: Collection[str], measures: Mapping[int, StoreMeasures], warmup: npt.NDArray[np.bool_]
    ) -> None:
        self.kinds = frozenset(kinds)
        self._measures = measures
        self._warmup = warmup

    def add(self, block: Block) -> None:
        if block.kind == "transactions":
            for treatment, measures in self._measures.items():
                measures.add_transactions([record for record in block.body if record.treatment == treatment])
            return
        for treatment, rows in _measured(block.body, self._measures, self._warmup):
            self._measures[treatment].add(block.kind, rows)


def _measured(
    rows: Columns, found: Mapping[int, StoreMeasures], warmup: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, Columns]]:
    for treatment, where in group_positions(rows["treatment"]):
        if treatment in found:
            own = rows[where]
            trial = own["trial"]
            known = trial < len(warmup)
            keep = known & ~warmup[np.where(known, trial, 0)] if len(warmup) else known
            if keep.any():
                yield treatment, select_rows(own, keep)
