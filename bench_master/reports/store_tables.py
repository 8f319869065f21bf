"""What jobs did that do one operation each, as tables for text, Markdown and pages: operations, endpoints, course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bench_common.records import FIRST_BYTE
from bench_common.safe_text import one_line
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.transfer_types import (
    EndpointOperationReport,
    EndpointReport,
    FirstByteReport,
    SecondReport,
    StoreOperationReport,
    TransferReport,
    TransfersReport,
)
from bench_master.analysis.treatment_types import OperationReport, TreatmentReport
from bench_master.formatting import (
    Column,
    fit_table,
    format_bytes,
    format_count,
    format_significant,
    format_value,
    paragraph,
    plural,
)
from bench_master.run_data.aggregate import JOB
from bench_master.run_data.store_course import MB

MOST_ROWS: Final = 12
"""Operations that the first page of several treatments shows; of more it shows each treatment as a whole."""
_MOST_STEPS: Final = 24
"""Rows of a text that shows the course of trials."""
_MEASURES: Final = (
    *(Column(title) for title in ("done", "errors", "per s")),
    Column("MB/s", optional=True),
    Column("first byte", optional=True),
    *(Column(title) for title in ("p50", "p99")),
    Column("max", droppable=True),
)


def operation_cells(entry: TreatmentReport, *, sizes: bool) -> list[list[str]]:
    """Return a row for each operation that a treatment did, over objects of all sizes; with `sizes` also of each."""
    moved = entry.objects
    if moved is None:
        return []
    rows = []
    for verb, one in moved.by_operation.items():
        if not one.n and not one.errors:
            continue
        rows.append([verb, *_measures(one)])
        own = [name for name in moved.operations if name.startswith(f"{verb}[") and not name.endswith(FIRST_BYTE)]
        if sizes and len(own) > 1:
            rows += [
                [f"  {name}", *_of_class(name, entry.operations, moved.operations[name])]
                for name in own
                if name in entry.operations and (entry.operations[name].n or entry.operations[name].errors)
            ]
    return rows


def _measures(one: StoreOperationReport | EndpointOperationReport) -> list[str]:
    marked = isinstance(one, StoreOperationReport) and one.p99_marked
    return _cells(one.n, one.errors, one.per_s, one.mb_per_s, one.first_byte, one.percentiles_s, one.max_s, marked)


def _of_class(name: str, operations: Mapping[str, OperationReport], moved: TransferReport) -> list[str]:
    times, first = operations[name], operations.get(f"{name}{FIRST_BYTE}")
    known = None if first is None else FirstByteReport(first.n, first.mean_s, first.percentiles_s, first.max_s, None)
    return _cells(
        times.n, times.errors, moved.per_s, moved.mb_per_s, known, times.percentiles_s, times.max_s, times.p99_marked
    )


def _cells(
    count: int,
    errors: int,
    per_s: float | None,
    mb_per_s: float | None,
    first: FirstByteReport | None,
    percentiles: Mapping[str, float | None],
    most: float | None,
    marked: bool,  # noqa: FBT001  the last of the columns' values
) -> list[str]:
    p50, p99 = (format_value(percentiles.get(name), "s") for name in ("p50", "p99"))
    return [
        format_count(count),
        format_count(errors),
        _number(per_s),
        # An operation that moves no content, such as a deletion, has no rate of it.
        _number(mb_per_s) if mb_per_s else "-",
        "-" if first is None else format_value(first.percentiles_s.get("p50"), "s"),
        p50,
        f"{p99}?" if marked and count else p99,
        format_value(most, "s"),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else format_significant(value)


def operation_lines(entry: TreatmentReport) -> Iterator[str]:
    """Yield the table of a treatment's operations, why they failed, and the range of its seconds."""
    moved = entry.objects
    if moved is None or not (rows := operation_cells(entry, sizes=True)):
        return
    yield from fit_table([Column("operation", left=True), *_MEASURES], rows)
    for text in (error_text(moved), seconds_text(moved)):
        if text:
            yield from paragraph(text, indent=2, hanging=4)


def transfer_cells(document: ReportDocument, names: Sequence[str]) -> tuple[list[Column], list[list[str]]]:
    """Return a table of what jobs that move content are judged by; one without rows where none does.

    A row is an operation of a treatment, with the sizes below it where there is room, or a whole treatment where
    these are too many.
    """
    columns = [Column("treatment", left=True), Column("operation", left=True), *_MEASURES]
    moving = [(name, entry) for name, entry in zip(names, document.treatments, strict=True) if entry.objects]
    for sizes in (True, False):
        rows = [[name, *row] for name, entry in moving for row in operation_cells(entry, sizes=sizes)]
        if len(rows) <= MOST_ROWS:
            return columns, rows
    return columns, [
        [name, JOB, *_whole(entry.operations[JOB], entry)] for name, entry in moving if JOB in entry.operations
    ]


def _whole(job: OperationReport, entry: TreatmentReport) -> list[str]:
    rate = entry.objects.mb_per_s if entry.objects else None
    return _cells(job.n, job.errors, entry.jobs_per_s, rate, None, job.percentiles_s, job.max_s, job.p99_marked)


def transfer_lines(document: ReportDocument, names: Sequence[str]) -> Iterator[str]:
    """Yield that table, and why operations of each treatment failed; nothing where no job moved content."""
    columns, rows = transfer_cells(document, names)
    if rows:
        yield from fit_table(columns, rows)
        for text in error_texts(document, names):
            yield from paragraph(text, indent=2, hanging=4)


def error_texts(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return why operations of each treatment failed, with its name."""
    found = [(name, entry.objects) for name, entry in zip(names, document.treatments, strict=True)]
    return [f"{name}: {text}" for name, moved in found if moved is not None and (text := error_text(moved))]


def error_text(moved: TransfersReport) -> str:
    """Return how many operations failed by the kind of failure, and which; empty if none did."""
    kinds: dict[str, dict[str, int]] = {}
    for verb, one in moved.by_operation.items():
        for kind, count in one.error_kinds.items():
            kinds.setdefault(kind, {})[verb] = count
    by_count = sorted(kinds.items(), key=lambda one: -sum(one[1].values()))
    texts = []
    for kind, verbs in by_count:
        where = [verb if len(verbs) == 1 else f"{verb} {format_count(count)}" for verb, count in verbs.items()]
        texts.append(f"{format_count(sum(verbs.values()))} x {one_line(kind)} ({', '.join(where)})")
    return f"errors: {'; '.join(texts)}" if texts else ""


def seconds_text(moved: TransfersReport) -> str:
    """Return the fastest, median and slowest second; empty where trials were too short."""
    seconds = moved.seconds
    if seconds is None:
        return ""
    slowest = seconds.slowest
    return (
        f"of {plural(seconds.n, 'second')}: fastest {_second(seconds.fastest)}, median {_second(seconds.median)}, "
        f"slowest {_second(slowest)} (second {slowest.second + 1} of trial {slowest.trial})"
    )


def _second(second: SecondReport) -> str:
    content = f" and {format_significant(second.mb_per_s)} MB/s" if second.mb_per_s else ""
    return f"{format_value(second.per_s, '1/s')}{content}"


# -- endpoints ------------------------------------------------------------------------------------------------------

ENDPOINT_COLUMNS: Final = (Column("endpoint", left=True), *_MEASURES, Column("retries", optional=True))


def endpoint_cells(endpoints: Sequence[EndpointReport], *, operations: bool) -> list[list[str]]:
    """Return a row for each endpoint by its URL, with `operations` followed by one for each operation there."""
    rows = []
    for one in endpoints:
        firsts = [each.first_byte for each in one.operations.values() if each.first_byte is not None]
        first = firsts[0] if len(firsts) == 1 else None
        whole = _cells(one.n, one.errors, one.per_s, one.mb_per_s, first, one.percentiles_s, one.max_s, False)
        rows.append([endpoint_name(one), *whole, format_count(one.retries)])
        if operations and len(one.operations) > 1:
            rows += [[f"  {verb}", *_measures(each), ""] for verb, each in one.operations.items()]
    return rows


def endpoint_name(one: EndpointReport) -> str:
    """Return the URL of an endpoint; its place where nobody told it."""
    return one_line(one.url or f"endpoint {one.endpoint}")


def endpoint_lines(moved: TransfersReport, *, operations: bool) -> Iterator[str]:
    """Yield the endpoints beside each other, and why operations failed there; nothing where there is only one."""
    if len(moved.endpoints) < 2:  # noqa: PLR2004
        return
    yield ""
    yield from fit_table(ENDPOINT_COLUMNS, endpoint_cells(moved.endpoints, operations=operations))
    for one in moved.endpoints:
        if text := endpoint_errors(one):
            yield from paragraph(f"{endpoint_name(one)}: {text}", indent=2, hanging=4)


def endpoint_errors(one: EndpointReport) -> str:
    """Return how many operations failed at an endpoint, by the kind of failure; empty if none did."""
    kinds: Counter[str] = Counter()
    for each in one.operations.values():
        kinds.update(each.error_kinds)
    return ", ".join(f"{format_count(count)} x {one_line(kind)}" for kind, count in kinds.most_common())


# -- the course -----------------------------------------------------------------------------------------------------


def course_cells(moved: TransfersReport, most: int = _MOST_STEPS) -> tuple[list[Column], list[list[str]]]:
    """Return operations and MB per second in each step of the trials, over all endpoints; at most so many steps."""
    verbs = list(dict.fromkeys(one.operation for one in moved.series))
    lengths: dict[int, int] = {}
    for one in moved.series:
        lengths[one.trial] = max(lengths.get(one.trial, 0), len(one.done))
    step = max(1, -(-sum(lengths.values()) // most))
    rows = []
    for trial, length in lengths.items():
        own = [one for one in moved.series if one.trial == trial]
        for begin in range(0, length, step):
            end = min(length, begin + step)
            span_s = (end - begin) * moved.interval_s
            done = {verb: sum(sum(one.done[begin:end]) for one in own if one.operation == verb) for verb in verbs}
            failed = sum(sum(one.failed[begin:end]) for one in own)
            content = sum(sum(one.content_bytes[begin:end]) for one in own)
            where = f"trial {trial}, {begin * moved.interval_s:g} to {end * moved.interval_s:g} s"
            rates = [format_significant(done[verb] / span_s) for verb in verbs]
            rows.append([where, *rates, format_significant(content / MB / span_s), format_count(failed)])
            if len(rows) == most:
                break
    columns = [Column("second", left=True), *(Column(f"{verb}/s") for verb in verbs)]
    return [*columns, Column("MB/s", optional=True), Column("errors", optional=True)], rows[:most]


def course_lines(moved: TransfersReport) -> Iterator[str]:
    """Yield the course of the trials; nothing where they were too short."""
    columns, rows = course_cells(moved)
    if rows:
        yield ""
        yield from fit_table(columns, rows)


# -- what was moved -------------------------------------------------------------------------------------------------


def moved_lines(moved: TransfersReport) -> Iterator[str]:
    """Yield what the jobs moved in all."""
    rate = "rate unknown" if moved.mb_per_s is None else f"{_number(moved.mb_per_s)} MB/s"
    text = f"data   {rate}, {format_bytes(moved.content_bytes)} of content"
    if moved.retries:
        text += f"; retries: {moved.retries:,}"
    if moved.redrawn:
        text += f"; {plural(moved.redrawn, 'job')} did another operation than drawn, for want of an object"
    yield from paragraph(text, indent=2, hanging=9)


def moved_by_class(moved: TransfersReport) -> Iterator[str]:
    """Yield what each operation moved, by class of objects."""
    given = {name: one for name, one in moved.operations.items() if not name.endswith(FIRST_BYTE) and one.per_s}
    counted = [title for title in ("retries", "redrawn") if any(getattr(one, title) for one in given.values())]
    columns = [Column("operation", left=True), Column("per s"), Column("MB/s"), Column("content")]
    columns += [*(Column(title) for title in counted), Column("slowest transaction", left=True, droppable=True)]
    rows = [
        [
            name,
            _number(one.per_s),
            _number(one.mb_per_s) if one.content_bytes else "-",
            format_bytes(one.content_bytes) if one.content_bytes else "-",
            *(format_count(getattr(one, title)) for title in counted),
            one_line(one.slowest_transaction or "-"),
        ]
        for name, one in given.items()
    ]
    if rows:
        yield ""
        yield from fit_table(columns, rows)
    late = [(verb, one.first_byte.error_s) for verb, one in moved.by_operation.items() if one.first_byte is not None]
    texts = [
        f"first byte of {verb}: stamped at most {format_value(error, 's')} late" for verb, error in late if error
    ]
    for text in texts:
        yield from paragraph(text, indent=2, hanging=4)
