"""The report that bucketbench's users know: rates by threads, then each command's times, in its words.

It has the same columns without its mistakes: rates count only successful containers, times are not truncated to
whole milliseconds, failures have no time, `wait` and repeated commands have their own rows, and each row names its
number of threads. Tables that a run did not measure (the host ceiling, the overhead) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TextIO

from bench_common.safe_text import one_line
from bench_common.stats.block_types import StoredTreatment
from bench_master.analysis.report_types import ReportDocument
from bench_master.formatting import align_table, format_significant, plural
from bench_master.plan import is_host_ceiling
from bench_master.reports import ReportSource
from bench_master.run_data.aggregate import JOB
from bench_master.run_data.treatment_types import SampleReport, TreatmentReport

_WORDS: Final = {"unpause": "resume", "remove": "delete", "stats": "metrics"}
"""Operations that bucketbench calls by another name."""

_ROW_KEYS: Final = frozenset({"environment", "engine", "job"})
_MIB: Final = 1024**2


@dataclass(frozen=True, slots=True)
class _TreatmentCell:
    """One treatment: the row that it belongs to, its threads, its iterations, and its part of the report."""

    row: str
    threads: int
    iterations: int | None
    entry: TreatmentReport


class BucketbenchReport:
    """Writes the tables of bucketbench: rates by threads."""

    name: ClassVar[str] = "bucketbench"
    needs_times: ClassVar[bool] = True

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the report."""
        out.writelines(f"{line}\n" for line in lines(source.document, source.stats.header.treatments))


def lines(document: ReportDocument, treatments: Sequence[StoredTreatment]) -> Iterator[str]:
    """Yield the report's lines; `treatments` are those of the stats file's header, in the document's order."""
    cells = _cells(document, treatments)
    yield "SUMMARY TIMINGS/THREAD RATES"
    yield ""
    yield from _rates(cells)
    yield ""
    yield "DETAILED COMMAND TIMINGS/STATISTICS (ms)"
    for cell in cells:
        if not is_host_ceiling(cell.entry.treatment):
            yield ""
            yield from _times(cell)
    yield from _overhead(cells)
    yield from _notes(document, cells)


def _cells(document: ReportDocument, treatments: Sequence[StoredTreatment]) -> list[_TreatmentCell]:
    name = one_line(str(document.scenario.name))
    environments = {entry.treatment.get("environment") for entry in document.treatments}
    cells = []
    for entry, treatment in zip(document.treatments, treatments, strict=True):
        labels = entry.treatment
        ceiling = is_host_ceiling(labels)
        row = ["Limit"] if ceiling else [name, str(labels.get("job", labels.get("engine")))]
        if len(environments) > 1:
            row.append(str(labels.get("environment")))
        if not ceiling:
            given = _ROW_KEYS | ({"concurrency"} if labels.get("concurrency") == treatment.concurrency else set())
            row += [f"{key}={value}" for key, value in labels.items() if key not in given]
        iterations = treatment.iterations
        cells.append(_TreatmentCell(one_line(":".join(row)), int(treatment.concurrency or 0), iterations, entry))
    # The host ceiling is the first line, wherever it stands in the file.
    return sorted(cells, key=lambda cell: not is_host_ceiling(cell.entry.treatment))


def _rates(cells: Sequence[_TreatmentCell]) -> list[str]:
    """Return a line for each row with its rate at each number of threads that occurs."""
    threads = sorted({cell.threads for cell in cells})
    rows: dict[tuple[str, int | None], dict[int, TreatmentReport]] = {}
    for cell in cells:
        rows.setdefault((cell.row, cell.iterations), {})[cell.threads] = cell.entry
    head = ["", "Iter/Thd", *(plural(count, "thrd") for count in threads)]
    table = []
    for (row, iterations), entries in rows.items():
        rates = [entries[count].jobs_per_s if count in entries else None for count in threads]
        shown = ["" if count not in entries else "-" for count in threads]
        numbers = [
            word if rate is None else format_significant(rate) for rate, word in zip(rates, shown, strict=True)
        ]
        table.append([row, "-" if iterations is None else str(iterations), *numbers])
    return align_table(head, table, right=head)


def _times(cell: _TreatmentCell) -> list[str]:
    head = [f"{cell.row}:{cell.threads}", "Min", "Max", "Avg", "Median", "Stddev", "Errors"]
    table = []
    for name, operation in cell.entry.operations.items():
        if name == JOB:
            continue
        kind, dash, number = name.partition("-")
        median = operation.percentiles_s["p50"]
        numbers = (operation.min_s, operation.max_s, operation.mean_s, median, operation.stddev_s)
        word = f"{_WORDS.get(kind, kind)}{dash}{number}"
        table.append([word, *("-" if value is None else f"{1000 * value:.3f}" for value in numbers)])
        table[-1].append(str(operation.errors))
    return align_table(head, table, right=head)


def _overhead(cells: Sequence[_TreatmentCell]) -> Iterator[str]:
    """Yield the overhead of the engines, if the run measured it."""
    measured = [(cell, cell.entry.overhead) for cell in cells if cell.entry.overhead]
    if not measured:
        return
    yield ""
    yield "OVERHEAD"
    yield ""
    head = ["Bench / driver / threads", *(("Min", "Max", "Avg") * 2), "Mem %", "CPU x"]
    table = []
    for cell, overhead in measured:
        relative = overhead.relative
        table.append(
            [
                f"{cell.row}:{cell.threads}",
                *(_number(value, "{:.1f} MiB", _MIB) for value in _extremes(overhead.memory)),
                *(_number(value, "{:.2f} %") for value in _extremes(overhead.cpu_percent)),
                _number(relative.memory_percent if relative else None, "{:+.2f}%"),
                _number(relative.cpu_factor if relative else None, "{:.2f}x"),
            ]
        )
    yield from align_table(head, table, right=head)


def _extremes(reading: SampleReport | None) -> tuple[float | None, float | None, float | None]:
    return (reading.min, reading.max, reading.mean) if reading else (None, None, None)


def _number(value: float | None, form: str, unit: float = 1.0) -> str:
    return "-" if value is None else form.format(value / unit)


def _notes(document: ReportDocument, cells: Sequence[_TreatmentCell]) -> Iterator[str]:
    """Yield notes on the tables."""
    remarks = [f"INCOMPLETE: {reason}" for reason in document.incomplete]
    if document.run.noop:
        remarks.append("NO-OP: nothing was executed; the figures show the harness's own maximum")
    remarks += [f"WARNING: {warning}" for warning in document.warnings]
    for cell in cells:
        jobs = cell.entry.jobs
        unsuccessful = {"failed": jobs.failed, "lost": jobs.lost, "aborted": jobs.aborted}
        if any(unsuccessful.values()):
            counts = ", ".join(f"{count} {name}" for name, count in unsuccessful.items() if count)
            remarks.append(f"{cell.row}:{cell.threads}: {counts} of {jobs.total}, not counted in its rate")
    for group in document.errors:
        first = next(iter(str(group.message).splitlines()), "")
        remarks.append(f"{group.count} x {group.operation}: {group.kind}: {first}")
    workers = len(document.hosts)
    if workers > 1:
        remarks.append(f"threads are per worker ({workers} workers); rates are totals")
    remarks += document.remarks
    if remarks:
        yield ""
        yield from (one_line(f"- {remark}") for remark in remarks)
