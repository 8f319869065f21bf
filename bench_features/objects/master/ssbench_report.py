"""The report that ssbench's users know, in its words and columns, as text and as two lines of CSV.

Both show jobs on objects: of a run, or imported from ssbench's own stat file. What ssbench has not (rates of bytes,
kinds of errors, notes where a figure means something else) follows its lines and columns, never stands between them.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TextIO

from bench_common.records import Outcome
from bench_common.safe_text import flat_line, one_line
from bench_common.stats.block_types import Header, StoredClass, StoredJob, definition_of
from bench_features.objects.master.store_measures import (
    ALL,
    TOTAL,
    CellMeasures,
    Latency,
    StoreMeasures,
    collect_measures,
)
from bench_master.formatting import format_significant, plural, table_cell
from bench_master.reports import RATES_LONGEST_S, ReportSource
from bench_master.run_data.treatment_types import TreatmentReport

_BLOCKS: Final = (TOTAL, "create", "read", "update", "delete", "head", "list")
"""The operations in the order of ssbench's blocks, and then those that it has not."""
_CRUD: Final = ("create", "read", "update", "delete")
_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"
_UNITS: Final = (" B", "kB", "MB", "GB", "TB")
_RULE: Final = "-" * 69
_SECOND_NS: Final = 1_000_000_000
_NO_TIMES: Final = " N/A   -   N/A      N/A    (  N/A  )    N/A  "
_NOT_KNOWN: Final = (" N/A  ", *("  N/A  ",) * 4)
_DELAYED_ACK: Final = (
    "CREATE and UPDATE times of ssbench hold about 40 ms of its own client, which sends head and body of a request "
    "in two pieces and waits for a delayed ACK"
)


@dataclass(frozen=True, slots=True)
class _Run:
    """One treatment with all that its report says."""

    title: str
    """The scenario's name, and the treatment's where there are several."""
    tool: str
    """What made the results, with its version."""
    measures: StoreMeasures
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
    def job(self) -> StoredJob:
        """The job on objects, as the stats file has it."""
        return definition_of(self.measures.treatment).job

    @property
    def duration_s(self) -> float:
        """The time from the first start to the last end, in seconds."""
        return (self.ended - self.began).total_seconds() if self.began and self.ended else 0.0

    def blocks(self) -> Iterator[tuple[str, CellMeasures]]:
        """Yield each operation that was tried with its figures, the sum of all first."""
        for name in _BLOCKS:
            measures = self.measures.cells.get((name, ALL))
            if measures is not None and (measures.count or measures.errors):
                yield name, measures

    def lines_of(self, block: str) -> Iterator[tuple[str | None, str, Latency | None]]:
        """Yield class (`ALL` for all of them), ``first`` or ``last``, and latencies of each line of a block."""
        for size in (ALL, *self.measures.classes):
            if (block, size) in self.measures.cells:
                for which in ("first", "last"):
                    yield size, which, self.measures.latency((block, size), self.pctile, first=which == "first")


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

    def write_rates(self, source: ReportSource, out: TextIO) -> int:
        """Write ssbench's two columns: the second of the calendar, from 1, and the requests that ended in it.

        Failed requests do not count, those of warm-up trials do. Returns how many ended too late to be in it.
        """
        stats = source.stats
        unix_ns = stats.header.clock.unix_ns - stats.began_ns
        seconds: Counter[int] = Counter()
        for block in source.run.blocks({"jobs"}):
            rows = block.body
            at = (rows["end_ns"][rows["outcome"] == Outcome.DONE] + unix_ns) // _SECOND_NS
            seconds.update(Counter(at.tolist()))
        out.write('"Seconds Since Start","Requests Completed"\n')
        first = min(seconds, default=0)
        last = min(max(seconds, default=-1), first + RATES_LONGEST_S - 1)
        out.writelines(f"{second - first + 1},{seconds[second]}\n" for second in range(first, last + 1))
        return sum(count for second, count in seconds.items() if second > last)


class SsbenchCsvReport(SsbenchReport):
    """Writes ssbench's CSV: a line of names, and a line of values for each treatment."""

    name: ClassVar[str] = "ssbench-csv"

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
    found = collect_measures(source.run, source.pctile)
    versions = header.versions
    tool = "ssbench" if "ssbench" in versions else "weighbridge"
    entries = {one.title: one for one in document.treatments}
    runs = []
    groups = sorted(source.run.sums.errors.values(), key=lambda group: -group.count)
    for index, measures in found.items():
        title = measures.treatment.title
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
                measures=measures,
                users=_users(header, measures),
                began=_at(header, measures.began_ns),
                ended=_at(header, measures.ended_ns),
                pctile=source.pctile,
                errors=errors,
                notes=list(_notes(source, entry, imported=bool(header.imported))),
            )
        )
    return runs


def _nothing(source: ReportSource) -> Iterator[str]:
    """Yield the report of a run without jobs on objects."""
    yield ""
    yield f"{one_line(str(source.document.scenario.name))}  (no jobs on objects: the format text shows every job)"
    yield from (f"NOTE: INCOMPLETE: {reason}" for reason in source.document.incomplete)


def _users(header: Header, measures: StoreMeasures) -> int:
    """Return the jobs in flight over all workers."""
    given = header.options.get("user_count")
    each = measures.treatment.concurrency or 1
    return given if isinstance(given, int) else each * max(1, len(measures.jobs_by_worker))


def _at(header: Header, at_ns: int | None) -> datetime | None:
    clock = header.clock
    if at_ns is None or not clock.unix_ns:
        return None
    return datetime.fromtimestamp((clock.unix_ns - clock.monotonic_ns + at_ns) / 1e9, UTC)


# -- text ---------------------------------------------------------------------------------------------------------


def text_lines(run: _Run) -> Iterator[str]:
    """Yield the lines of the text report of one treatment."""
    yield ""
    yield f"{one_line(run.title)}  (generated with {run.tool})"
    began, ended = ((at.strftime(_TIME) if at else "-") for at in (run.began, run.ended))
    workers = len(run.measures.jobs_by_worker)
    yield (
        f"Worker count: {workers:3d}   Concurrency: {run.users:3d}  "
        f"Ran {began} to {ended} ({round(run.duration_s):.0f}s)"
    )
    yield f"Object expiration (X-Delete-After): {run.job.get('delete_after_s')} (sec)"
    yield ""
    yield from _size_table(run.job)
    for block, measures in run.blocks():
        yield ""
        yield from _block(run, block, measures)
    yield ""
    yield _distribution(list(run.measures.jobs_by_worker.values()))
    yield from _more(run)


def _size_table(job: StoredJob) -> Iterator[str]:
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


def _crud(size_class: StoredClass) -> list[float]:
    mix = dict(size_class.get("mix", ()))
    total = sum(mix.values()) or 1.0
    return [100 * mix.get(name, 0.0) / total for name in _CRUD]


def _bytes(size: float) -> str:
    unit = 0
    while round(size / 1000, 3) >= 1 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    # As Python 2 rounds.
    return f"{math.floor(size + 0.5):3.0f} {_UNITS[unit]}"


def _block(run: _Run, block: str, measures: CellMeasures) -> Iterator[str]:
    yield block.upper()
    yield (
        f"       Count: {measures.count:5d} ({measures.errors:5d} error; {measures.retries:5d} retries: "
        f"{measures.retry_percent:5.2f}%)  Average requests per second: {measures.rate:5.1f}"
    )
    yield (
        f"                            min       max      avg      std_dev  {_rank(run.pctile)}%-ile"
        f"  {'':15s}  Worst latency TX ID"
    )
    for size, which, latency in run.lines_of(block):
        name = "(all obj sizes)" if size is ALL else f"({size:>8s} objs)"
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
    rates = [
        f"{block.upper()} {format_significant(rate)}"
        for block, measures in run.blocks()
        if (rate := _mb_per_s(measures))
    ]
    if rates:
        yield f"Average MB per second (10^6 bytes): {', '.join(rates)}"
    if run.errors:
        yield "Errors by kind:"
        yield from (f"       {count:5d}  {kind}" for kind, count in run.errors.items())
    yield from (f"NOTE: {note}" for note in run.notes)


def _mb_per_s(measures: CellMeasures) -> float | None:
    """Return the rate of what was sent and received; None if that is not known of every job."""
    if measures.unknown_sizes:
        return None
    if not measures.seconds > 0:
        return 0.0
    return measures.transferred_bytes / 1e6 / measures.seconds


def _notes(source: ReportSource, entry: TreatmentReport, *, imported: bool) -> Iterator[str]:
    """Yield where a figure means something else than its name says, or than it does in ssbench's own report."""
    document = source.document
    yield from (f"INCOMPLETE: {reason}" for reason in document.incomplete)
    if document.run.noop:
        yield "a no-op run: no store was asked, the figures are the harness's own maximum"
    if imported:
        yield f"{_DELAYED_ACK}; they cannot be compared with those of Weighbridge"
        yield "failed tries and the time that they took are in no latency; the length of a read was never checked"
        if entry.trials.run > 1:
            yield f"{plural(entry.trials.run, 'trial')} together: rates are per second of the trials"
    else:
        yield f"{_DELAYED_ACK}; the times above do not"
        yield "a retried request counts from its first try, in ssbench from its last one"
        yield f"rates are per second of {plural(entry.trials.run, 'trial')}, in ssbench from first to last request"
    yield from (f"WARNING: {warning}" for warning in document.warnings)


# -- CSV ----------------------------------------------------------------------------------------------------------


def csv_row(run: _Run) -> dict[str, Any]:
    """Return the values of one treatment by column: those of ssbench, then ours."""
    tool, _, version = run.tool.partition(" version ")
    row: dict[str, Any] = {
        "scenario_name": table_cell(run.title),
        "ssbench_version": version if tool == "ssbench" else f"{tool} {version}",
        "worker_count": len(run.measures.jobs_by_worker),
        "concurrency": run.users,
        "start_time": run.began.strftime(_TIME) if run.began else "",
        "stop_time": run.ended.strftime(_TIME) if run.ended else "",
        "duration": run.duration_s,
        "delete_after": str(run.job.get("delete_after_s")),
    }
    more: dict[str, Any] = {}
    for block, measures in run.blocks():
        label = block.lower()
        row[f"{label}_count"] = measures.count
        row[f"{label}_errors"] = measures.errors
        row[f"{label}_retries"] = measures.retries
        row[f"{label}_retry_rate"] = f"{measures.retry_percent:f}"
        row[f"{label}_avg_req_per_s"] = round(measures.rate, 6)
        for size, which, latency in run.lines_of(block):
            values: Sequence[float | str] = _NOT_KNOWN
            if latency is not None:
                every = (latency.minimum, latency.maximum, latency.mean, latency.stddev, latency.percentile)
                values = [round(value, 6) for value in every]
            names = ("min", "max", "avg", "std_dev", f"{run.pctile:g}_pctile")
            column = _column(size, run.measures.classes)
            row |= {f"{label}_{which}_{column}_{name}": value for name, value in zip(names, values, strict=True)}
            row[f"{label}_{which}_{column}_worst_txid"] = (
                "" if latency is None else table_cell(latency.worst_transaction)
            )
        rate = _mb_per_s(measures)
        more[f"{label}_mb_per_s"] = _NOT_KNOWN[0] if rate is None else round(rate, 6)
    more |= {f"errors {table_cell(kind)}": count for kind, count in run.errors.items()}
    return row | more


def _column(size: str | None, classes: Sequence[str]) -> str:
    """Return what a class is called in the names of columns: one called all beside others is not all of them."""
    if size is ALL:
        return "all"
    return "class_all" if size == "all" and len(classes) > 1 else size
