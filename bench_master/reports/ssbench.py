"""The report that ssbench's users know, in its words and columns, as text and as two lines of CSV.

Both show jobs on objects: of a run, or imported from ssbench's own stat file. What ssbench has not (rates of bytes,
kinds of errors, notes where a figure means something else) follows its lines and columns, never stands between them.

A cell is an operation (or all: `TOTAL`) on objects of a class (or of all classes: `ALL`). It has the latencies to the
first and to the last byte, in memory that does not grow with the rows; percentiles are ssbench's, exact by a second
pass over the rows.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, ClassVar, Final, TextIO, TypeAlias

import numpy as np

from bench_common.object_job import MAX_OBJECT_BYTES
from bench_common.records import OPERATION_DONE, OPERATION_FAILED, Outcome, TransactionRecord
from bench_common.safe_text import flat_line, one_line
from bench_common.stats.reader import StatsFile
from bench_common.stats.rows import Columns
from bench_master.analysis.percentiles import ExactRanks, LatencySeries, group_positions, select_rows
from bench_master.analysis.treatment_types import TreatmentReport
from bench_master.formatting import plural, table_cell
from bench_master.reports import ReportSource

TOTAL: Final = "TOTAL"
ALL: Final = "all"

Cell: TypeAlias = tuple[str, str]
"""Operation and class."""

_NAME: Final = re.compile(r"(?P<operation>[a-z]+)\[(?P<size_class>.*)\](?P<first>\.first)?", re.DOTALL)
FORMATS: Final = frozenset({"ssbench", "ssbench-csv"})
"""The names of the formats."""
_BLOCKS: Final = (TOTAL, "create", "read", "update", "delete", "head", "list")
"""The operations in the order of ssbench's blocks, and then those that it has not."""
_CRUD: Final = ("create", "read", "update", "delete")
_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"
_UNITS: Final = (" B", "kB", "MB", "GB", "TB")
_RULE: Final = "-" * 69
_NO_TIMES: Final = " N/A   -   N/A      N/A    (  N/A  )    N/A  "
_NOT_KNOWN: Final = (" N/A  ", *("  N/A  ",) * 4)
_DELAYED_ACK: Final = (
    "CREATE and UPDATE times of ssbench hold about 40 ms of its own client, which sends head and body of a request "
    "in two pieces and waits for a delayed ACK"
)


# -- figures ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Span:
    """When the first job of something began and the last one ended, in one trial (ns)."""

    begin: int
    end: int


@dataclass(slots=True)
class CellFigures:
    """One operation on one class, or several of either."""

    count: int = 0
    """Successes."""
    errors: int = 0
    """Failures."""
    retries: int = 0
    """Tries that failed, of successes and failures."""
    transferred_bytes: int = 0
    """The size of what successes sent or received."""
    unknown_sizes: int = 0
    """Successes whose size is unknown."""
    spans: dict[int, Span] = field(default_factory=dict)
    """By trial, failures included."""

    @property
    def seconds(self) -> float:
        """How long it went on, over all trials."""
        return sum(span.end - span.begin for span in self.spans.values()) / 1e9

    @property
    def rate(self) -> float:
        """Successes per second between its own first start and last end; 0 if that is no time."""
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
    exact: bool
    """Whether the percentile is exact."""


class StoreFigures:
    """The figures of one treatment."""

    def __init__(self, treatment: Mapping[str, Any]) -> None:
        self.treatment = treatment
        """The treatment as the stats file's header has it."""
        self.cells: dict[Cell, CellFigures] = {}
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
        self._names = [_NAME.fullmatch(str(name)) for name in treatment.get("operation_names", ())]

    @property
    def classes(self) -> list[str]:
        """The size classes, in the order of the scenario; others that occur follow."""
        known = [str(one["name"]) for one in self.treatment["job"].get("classes", ())]
        return list(dict.fromkeys([*known, *(size for _, size in self.cells if size != ALL)]))

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
            stddev=(series.population_stddev or 0.0) / 1e9,
            percentile=sum(value for value, _ in found) / len(found) / 1e9,
            worst_transaction=self._transactions.get((series.slowest_ticket or 0, first), ""),
            exact=all(is_exact for _, is_exact in found),
        )

    def add(self, kind: str, rows: Columns) -> None:
        """Take the measured rows of this treatment in a block, in the first pass."""
        if kind == "operations":
            self.add_operations(rows)
        elif kind == "transfers":
            self.add_transfers(rows)
        elif len(ran := select_rows(rows, rows["outcome"] <= Outcome.FAILED)):
            self.add_jobs(ran)

    def add_operations(self, rows: Columns) -> None:
        """Take the measured operations of this treatment, in the first pass."""
        for first, cells, own in self._grouped(rows):
            done = select_rows(own, own["ok"] == OPERATION_DONE)
            failed = 0 if first else int((own["ok"] == OPERATION_FAILED).sum())
            for cell in cells:
                series = self._series.setdefault((cell, first), LatencySeries())
                series.add(done["duration_ns"], done)
                if not first:
                    figures = self.cells.setdefault(cell, CellFigures())
                    figures.count += len(done)
                    figures.errors += failed
                    _extend_spans(figures.spans, own)

    def add_transfers(self, rows: Columns) -> None:
        """Take the retries and sizes of the measured jobs of this treatment."""
        for _, cells, own in self._grouped(rows):
            retries = int(own["retries"].sum())
            sizes = own["bytes"][own["ok"] == OPERATION_DONE]
            sent = int(sizes.clip(0, MAX_OBJECT_BYTES).sum())
            for cell in cells:
                figures = self.cells.setdefault(cell, CellFigures())
                figures.retries += retries
                figures.transferred_bytes += sent
                figures.unknown_sizes += int((sizes < 0).sum())

    def add_jobs(self, rows: Columns) -> None:
        """Take the measured jobs of this treatment that ran."""
        begin, end = int(rows["start_ns"].min()), int(rows["end_ns"].max())
        self.began_ns = begin if self.began_ns is None else min(begin, self.began_ns)
        self.ended_ns = end if self.ended_ns is None else max(end, self.ended_ns)
        done = rows["outcome"] == Outcome.DONE
        for worker, where in group_positions(rows["worker"]):
            self.jobs_by_worker[worker] += int(done[where].sum())

    def add_transactions(self, records: Sequence[TransactionRecord]) -> None:
        """Take the transactions of the slowest jobs, after the first pass."""
        slowest = {(series.slowest_ticket, first) for (_, first), series in self._series.items()}
        for record in records:
            parsed = _NAME.fullmatch(record.operation)
            key = record.ticket, bool(parsed and parsed["first"])
            if key in slowest:
                self._transactions[key] = record.transaction_id

    def prepare_ranks(self, pctile: float) -> None:
        """Begin the second pass, for a percentile."""
        self._keys = {key: (number, "") for number, key in enumerate(self._series)}
        series = {self._keys[key]: one for key, one in self._series.items()}
        self._ranks = ExactRanks(series, lambda count: percentile_ranks(count, pctile))

    def collect(self, rows: Columns) -> None:
        """Take the same operations once more, in the second pass."""
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


def _extend_spans(spans: dict[int, Span], rows: Columns) -> None:
    for trial, where in group_positions(rows["trial"]):
        starts = rows["start_ns"][where]
        begin, end = int(starts.min()), int((starts + rows["duration_ns"][where]).max())
        span = spans.setdefault(trial, Span(begin, end))
        span.begin, span.end = min(begin, span.begin), max(end, span.end)


def percentile_ranks(count: int, pctile: float) -> Sequence[int]:
    """Return the ranks (from 1) whose mean is a percentile in ssbench's way; 0 and 100 are the extremes.

    Where the percentile is a whole rank, ssbench takes the mean of the value there and the next one.
    """
    rank = Fraction(repr(float(pctile))) * count / 100
    if rank <= 0 or rank >= count:
        return (1 if rank <= 0 else count,)
    whole = int(rank)
    return (whole, whole + 1) if rank == whole else (whole + 1,)


def collect_figures(stats: StatsFile, pctile: float) -> dict[int, StoreFigures]:
    """Return the figures of each treatment that is a job on objects, by its index; warm-up trials are left out."""
    header = stats.header
    found = {
        index: StoreFigures(treatment)
        for index, treatment in enumerate(header.get("treatments", ()))
        if (treatment.get("job") or {}).get("kind") == "objects"
    }
    warmup = np.array([bool(trial[2]) for trial in header.get("trials", ())], dtype=bool)
    if not found:
        return found
    for block in stats.blocks({"jobs", "operations", "transfers"}, by_column=True):
        for treatment, rows in _measured(block.body, found, warmup):
            found[treatment].add(block.kind, rows)
    for block in stats.blocks({"transactions"}):
        for treatment, figures in found.items():
            figures.add_transactions([record for record in block.body if record.treatment == treatment])
    for figures in found.values():
        figures.prepare_ranks(pctile)
    for block in stats.blocks({"operations"}, by_column=True):
        for treatment, rows in _measured(block.body, found, warmup):
            found[treatment].collect(rows)
    return found


def _measured(rows: Columns, found: Mapping[int, StoreFigures], warmup: Any) -> Iterator[tuple[int, Columns]]:
    for treatment, where in group_positions(rows["treatment"]):
        if treatment in found:
            own = rows[where]
            trial = own["trial"]
            known = trial < len(warmup)
            keep = known & ~warmup[np.where(known, trial, 0)] if len(warmup) else known
            if keep.any():
                yield treatment, select_rows(own, keep)


# -- reports ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """One treatment with all that its report says."""

    title: str
    """The scenario's name, and the treatment's where there are several."""
    tool: str
    """What made the results, with its version."""
    figures: StoreFigures
    users: int
    """Jobs in flight over all workers."""
    began: datetime | None
    """When the first job began; None if unknown."""
    ended: datetime | None
    """When the last job ended."""
    pctile: float
    errors: Mapping[str, int]
    """Failed jobs by operation and kind."""
    notes: Sequence[str]

    @property
    def job(self) -> Mapping[str, Any]:
        """The job on objects, as the stats file has it."""
        job: Mapping[str, Any] = self.figures.treatment["job"]
        return job

    @property
    def duration_s(self) -> float:
        """The time from the first start to the last end, in seconds."""
        return (self.ended - self.began).total_seconds() if self.began and self.ended else 0.0

    def blocks(self) -> Iterator[tuple[str, CellFigures]]:
        """Yield each operation that was tried with its figures, the sum of all first."""
        for name in _BLOCKS:
            figures = self.figures.cells.get((name, ALL))
            if figures is not None and (figures.count or figures.errors):
                yield name, figures

    def lines_of(self, block: str) -> Iterator[tuple[str, str, Latency | None]]:
        """Yield class, ``first`` or ``last``, and latencies of each line of a block."""
        for size in (ALL, *self.figures.classes):
            if (block, size) in self.figures.cells:
                for which in ("first", "last"):
                    yield size, which, self.figures.latency((block, size), self.pctile, first=which == "first")


class SsbenchReport:
    """Writes ssbench's text report of each treatment."""

    name: ClassVar[str] = "ssbench"
    needs_times: ClassVar[bool] = True

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the report."""
        runs = _runs(source)
        if not runs:
            out.writelines(f"{flat_line(line)}\n" for line in _nothing(source))
        for run in runs:
            out.writelines(f"{flat_line(line)}\n" for line in text_lines(run))


class SsbenchCsvReport:
    """Writes ssbench's CSV: a line of names, and a line of values for each treatment."""

    name: ClassVar[str] = "ssbench-csv"
    needs_times: ClassVar[bool] = True

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the report."""
        rows = [csv_row(run) for run in _runs(source)]
        rows = rows or [{"scenario_name": table_cell(str(source.document.scenario.name))}]
        names = list(dict.fromkeys(name for row in rows for name in row))
        for row in rows:
            row["run_state"] = source.document.run_state
        writer = csv.DictWriter(
            out, [*names, "run_state"], restval="", lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC
        )
        writer.writeheader()
        writer.writerows(rows)


def _runs(source: ReportSource) -> list[_Run]:
    header, document = source.stats.header, source.document
    found = collect_figures(source.stats, source.pctile)
    versions = header.get("versions", {})
    tool = "ssbench" if "ssbench" in versions else "weighbridge"
    entries = {one.title: one for one in document.treatments}
    runs = []
    groups = sorted(source.ledger.errors.values(), key=lambda group: -group.count)
    for index, figures in found.items():
        title = str(figures.treatment.get("title"))
        entry = entries.get(title)
        if entry is None:
            continue  # a treatment that runs a second time, for the run's noise floor
        errors = {
            f"{group.operation}: {group.kind}": group.treatments[index] for group in groups if group.treatments[index]
        }
        name = str(document.scenario.name)
        runs.append(
            _Run(
                title=name if len(found) == 1 else f"{name}: {title}",
                tool=f"{tool} version {versions.get(tool)}",
                figures=figures,
                users=_users(header, figures),
                began=_at(header, figures.began_ns),
                ended=_at(header, figures.ended_ns),
                pctile=source.pctile,
                errors=errors,
                notes=list(_notes(source, entry, imported=bool(header.get("imported")))),
            )
        )
    return runs


def _nothing(source: ReportSource) -> Iterator[str]:
    """Yield the report of a run without jobs on objects."""
    yield ""
    yield f"{one_line(str(source.document.scenario.name))}  (no jobs on objects: the format text shows every job)"
    yield from (f"NOTE: INCOMPLETE: {reason}" for reason in source.document.incomplete)


def _users(header: Mapping[str, Any], figures: StoreFigures) -> int:
    """Return the jobs in flight over all workers."""
    given = (header.get("options") or {}).get("user_count")
    each = figures.treatment.get("concurrency") or 1
    return given if isinstance(given, int) else each * max(1, len(figures.jobs_by_worker))


def _at(header: Mapping[str, Any], at_ns: int | None) -> datetime | None:
    clock = header.get("clock") or {}
    if at_ns is None or not clock.get("unix_ns"):
        return None
    return datetime.fromtimestamp((clock["unix_ns"] - clock.get("monotonic_ns", 0) + at_ns) / 1e9, UTC)


# -- text ---------------------------------------------------------------------------------------------------------


def text_lines(run: _Run) -> Iterator[str]:
    """Yield the lines of the text report of one treatment."""
    yield ""
    yield f"{one_line(run.title)}  (generated with {run.tool})"
    began, ended = ((at.strftime(_TIME) if at else "-") for at in (run.began, run.ended))
    workers = len(run.figures.jobs_by_worker)
    yield (
        f"Worker count: {workers:3d}   Concurrency: {run.users:3d}  "
        f"Ran {began} to {ended} ({round(run.duration_s):.0f}s)"
    )
    yield f"Object expiration (X-Delete-After): {run.job.get('delete_after_s')} (sec)"
    yield ""
    yield from _size_table(run.job)
    for block, figures in run.blocks():
        yield ""
        yield from _block(run, block, figures)
    yield ""
    yield _distribution(list(run.figures.jobs_by_worker.values()))
    yield from _more(run)


def _size_table(job: Mapping[str, Any]) -> Iterator[str]:
    classes = job.get("classes", ())
    total = sum(one.get("weight", 1.0) for one in classes) or 1.0
    average = [0.0] * len(_CRUD)
    yield "% Ops    C   R   U   D       Size Range       Size Name"
    for one in classes:
        percent = 100 * one.get("weight", 1.0) / total
        crud = _crud(one)
        low, high = one["sizes"]["minimum"], one["sizes"]["maximum"]
        sizes = f"{_bytes(low):<15s}" if low == high else f"{_bytes(low)} - {_bytes(high)}"
        yield f"{percent:3.0f}%   % {'  '.join(f'{share:2.0f}' for share in crud)}      {sizes}  {one['name']}"
        average = [sofar + percent * share / 100 for sofar, share in zip(average, crud, strict=True)]
    yield _RULE
    yield f"        {' '.join(f'{share:3.0f}' for share in average)}      CRUD weighted average"


def _crud(size_class: Mapping[str, Any]) -> list[float]:
    mix = dict(size_class.get("mix", ()))
    total = sum(mix.values()) or 1.0
    return [100 * mix.get(name, 0.0) / total for name in _CRUD]


def _bytes(size: float) -> str:
    unit = 0
    while round(size / 1000, 3) >= 1 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    # As Python 2 rounds.
    return f"{math.floor(size + 0.5):3.0f} {_UNITS[unit]}"


def _block(run: _Run, block: str, figures: CellFigures) -> Iterator[str]:
    yield block.upper()
    yield (
        f"       Count: {figures.count:5d} ({figures.errors:5d} error; {figures.retries:5d} retries: "
        f"{figures.retry_percent:5.2f}%)  Average requests per second: {figures.rate:5.1f}"
    )
    yield (
        f"                            min       max      avg      std_dev  {_rank(run.pctile)}%-ile"
        f"  {'':15s}  Worst latency TX ID"
    )
    for size, which, latency in run.lines_of(block):
        name = "(all obj sizes)" if size == ALL else f"({size:>8s} objs)"
        times = _NO_TIMES if latency is None else _times(latency)
        transaction = "" if latency is None else latency.worst_transaction
        yield f"       {'First-byte' if which == 'first' else 'Last-byte '} latency: {times}  {name}  {transaction}"


def _rank(pctile: float) -> str:
    return f"{int(pctile):02d}" if float(pctile).is_integer() else f"{pctile:g}"


def _times(one: Latency) -> str:
    return f"{one.minimum:6.3f} - {one.maximum:7.3f}  {one.mean:7.3f}  ({one.stddev:7.3f})  {one.percentile:7.3f}"


def _distribution(counts: Sequence[int]) -> str:
    if not any(counts):
        return "Distribution of requests per worker-ID: no request succeeded"
    mean = sum(counts) / len(counts)
    stddev = math.sqrt(sum((count - mean) ** 2 for count in counts) / len(counts))
    return (
        f"Distribution of requests per worker-ID: {min(counts):6.3f} - {max(counts):7.3f} "
        f"(avg: {mean:7.3f}; stddev: {stddev:7.3f})"
    )


def _more(run: _Run) -> Iterator[str]:
    """Yield what ssbench's report has not."""
    rates = [f"{block.upper()} {rate:.1f}" for block, figures in run.blocks() if (rate := _mb_per_s(figures))]
    if rates:
        yield f"Average MB per second (10^6 bytes): {', '.join(rates)}"
    if run.errors:
        yield "Errors by kind:"
        yield from (f"       {count:5d}  {kind}" for kind, count in run.errors.items())
    yield from (f"NOTE: {note}" for note in run.notes)


def _mb_per_s(figures: CellFigures) -> float:
    """Return the rate of what was sent and received; 0 if that is not known of every job."""
    if figures.unknown_sizes or not figures.seconds > 0:
        return 0.0
    return figures.transferred_bytes / 1e6 / figures.seconds


def _notes(source: ReportSource, entry: TreatmentReport, *, imported: bool) -> Iterator[str]:
    """Yield where a figure means something else than its name says, or than it does in ssbench's own report."""
    document = source.document
    yield from (f"INCOMPLETE: {reason}" for reason in document.incomplete)
    if document.run.noop:
        yield "a no-op run: no store was asked, the figures are the harness's own maximum"
    if imported:
        yield f"{_DELAYED_ACK}; they cannot be compared with those of Weighbridge"
        yield "failed tries and the time that they took are in no latency; the length of a read was never checked"
    else:
        yield f"{_DELAYED_ACK}; the times above do not"
        yield "a retried request counts from its first try, in ssbench from its last one"
    if entry.trials.run > 1:
        yield f"{plural(entry.trials.run, 'trial')} together: rates are per second of the trials"
    yield from (f"WARNING: {warning}" for warning in document.warnings)


# -- CSV ----------------------------------------------------------------------------------------------------------


def csv_row(run: _Run) -> dict[str, Any]:
    """Return the values of one treatment by column: those of ssbench, then ours."""
    tool, _, version = run.tool.partition(" version ")
    row: dict[str, Any] = {
        "scenario_name": table_cell(run.title),
        "ssbench_version": version if tool == "ssbench" else f"{tool} {version}",
        "worker_count": len(run.figures.jobs_by_worker),
        "concurrency": run.users,
        "start_time": run.began.strftime(_TIME) if run.began else "",
        "stop_time": run.ended.strftime(_TIME) if run.ended else "",
        "duration": run.duration_s,
        "delete_after": str(run.job.get("delete_after_s")),
    }
    more: dict[str, Any] = {}
    for block, figures in run.blocks():
        label = block.lower()
        row[f"{label}_count"] = figures.count
        row[f"{label}_errors"] = figures.errors
        row[f"{label}_retries"] = figures.retries
        row[f"{label}_retry_rate"] = f"{figures.retry_percent:f}"
        row[f"{label}_avg_req_per_s"] = round(figures.rate, 6)
        for size, which, latency in run.lines_of(block):
            values: Sequence[float | str] = _NOT_KNOWN
            if latency is not None:
                every = (latency.minimum, latency.maximum, latency.mean, latency.stddev, latency.percentile)
                values = [round(value, 6) for value in every]
            names = ("min", "max", "avg", "std_dev", f"{run.pctile:g}_pctile")
            row |= {f"{label}_{which}_{size}_{name}": value for name, value in zip(names, values, strict=True)}
            row[f"{label}_{which}_{size}_worst_txid"] = (
                "" if latency is None else table_cell(latency.worst_transaction)
            )
        more[f"{label}_mb_per_s"] = round(_mb_per_s(figures), 6)
    more |= {f"errors {table_cell(kind)}": count for kind, count in run.errors.items()}
    return row | more
