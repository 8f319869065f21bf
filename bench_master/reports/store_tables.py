"""The tables of what jobs did on object stores: operations, sizes, endpoints, the course, what was made before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from bench_common.records import FIRST_BYTE
from bench_common.safe_text import one_line
from bench_master.analysis.report_types import ReportDocument
from bench_master.formatting import format_bytes, format_count, format_significant, format_span, format_value, plural
from bench_master.reports.table import (
    MOST_OPEN_ROWS,
    Field,
    Table,
    amount,
    by_treatment,
    count,
    doubtful,
    named_treatments,
    number,
    seconds,
    treatment_table,
    words,
)
from bench_master.run_data.store_course import MB
from bench_master.run_data.transfer_types import (
    EndpointOperationReport,
    EndpointReport,
    SecondReport,
    StoreOperationReport,
    TransferReport,
    TransfersReport,
)
from bench_master.run_data.treatment_types import OperationReport, PopulationPhaseReport, TreatmentReport

_MOST_STEPS: Final = 24
"""Rows that show the course of a treatment's trials at most."""
_One = StoreOperationReport | EndpointOperationReport
_Done = tuple[str, _One, str]
"""An operation, what was done, and the endpoint where rows tell it."""


def store_tables(document: ReportDocument) -> list[Table]:
    """Return the tables of what jobs did on stores, operations first; without rows where no job used one."""
    return [
        store_operations(document, full=True),
        endpoints(document),
        _sizes(document),
        _course(document),
        population(document),
    ]


def store_operations(document: ReportDocument, *, full: bool) -> Table:
    """Return what jobs on a store did, by operation over objects of all sizes; with `full` more notes."""
    fields: list[Field[_Done]] = [
        words("operation", lambda row: row[0]),
        *_measures(),
        count("retries", lambda row: getattr(row[1], "retries", None), optional=True),
    ]
    rows: list[tuple[TreatmentReport, _Done]] = [
        (each, (verb, one, ""))
        for each in document.treatments
        if each.objects
        for verb, one in each.objects.by_operation.items()
        if one.n or one.errors
    ]
    named = named_treatments(document)
    notes = [f"{name}: {text}" for name, one in named if one.objects and (text := _error_text(one.objects))]
    if full or len(named) == 1:
        notes += by_treatment(document, lambda each: _texts(each.objects, full=full))
    name, caption = "Operations on the store", "Over objects of all sizes."
    return treatment_table(document.treatments, name, caption, fields, rows, notes, leads=True)


def _measures() -> Iterator[Field[_Done]]:
    def first(name: str, **column: bool) -> Field[_Done]:
        return seconds(
            f"first byte {name}",
            lambda row: row[1].first_byte.percentiles_s.get(name) if row[1].first_byte is not None else None,
            optional=True,
            **column,
        )

    yield count("done", lambda row: row[1].n)
    yield count("errors", lambda row: row[1].errors)
    yield number("per s", lambda row: row[1].per_s)
    # An operation that moves no content, such as a deletion, has no rate of it.
    yield number("MB/s", lambda row: row[1].mb_per_s or None, optional=True)
    yield first("p50")
    yield first("p99", droppable=True)
    yield seconds("p50", lambda row: row[1].percentiles_s.get("p50"))
    yield doubtful(
        seconds("p99", lambda row: row[1].percentiles_s.get("p99")),
        lambda row: isinstance(row[1], StoreOperationReport) and row[1].p99_marked and bool(row[1].n),
    )
    yield seconds("max", lambda row: row[1].max_s, droppable=True)


def endpoints(document: ReportDocument) -> Table:
    """Return each endpoint of treatments that have several."""
    several = [
        (each, endpoint)
        for each in document.treatments
        if each.objects and len(each.objects.endpoints) > 1
        for endpoint in each.objects.endpoints
    ]
    fields: list[Field[_Done]] = [words("endpoint", lambda row: row[2]), words("operation", lambda row: row[0])]
    fields += _measures()
    rows: list[tuple[TreatmentReport, _Done]] = [
        (each, (verb, one, _endpoint_name(endpoint)))
        for each, endpoint in several
        for verb, one in endpoint.operations.items()
    ]
    notes = [f"{_endpoint_name(endpoint)}: {text}" for _, endpoint in several if (text := _endpoint_errors(endpoint))]
    caption = "Operations by the endpoint that answered last, over objects of all sizes."
    long = len(rows) > MOST_OPEN_ROWS
    return treatment_table(document.treatments, "Endpoints", caption, fields, rows, notes, folded=long)


def _endpoint_name(one: EndpointReport) -> str:
    """Return the URL of an endpoint; its place where it is unknown."""
    return one_line(one.url or f"endpoint {one.endpoint}")


def _endpoint_errors(one: EndpointReport) -> str:
    """Return how many operations failed at an endpoint, by the kind of failure; empty if none did."""
    kinds: Counter[str] = Counter()
    for each in one.operations.values():
        kinds.update(each.error_kinds)
    return ", ".join(f"{format_count(number_)} x {one_line(kind)}" for kind, number_ in kinds.most_common())


def _sizes(document: ReportDocument) -> Table:
    fields: list[Field[tuple[str, TransferReport, OperationReport | None]]] = [
        words("operation", lambda row: row[0]),
        count("done", lambda row: row[2].n if row[2] else None),
        number("per s", lambda row: row[1].per_s),
        number("MB/s", lambda row: row[1].mb_per_s if row[1].content_bytes else None),
        amount("content", lambda row: row[1].content_bytes or None),
        seconds("p50", lambda row: row[2].percentiles_s.get("p50") if row[2] else None),
        count("retries", lambda row: row[1].retries, optional=True),
        count("redrawn", lambda row: row[1].redrawn, optional=True),
        words("slowest transaction", lambda row: row[1].slowest_transaction, droppable=True),
    ]
    rows = [
        (each, (name, one, each.operations.get(name)))
        for each in document.treatments
        if each.objects
        for name, one in each.objects.operations.items()
        if not name.endswith(FIRST_BYTE) and one.per_s
    ]
    return treatment_table(document.treatments, "Operations by size", "", fields, rows, folded=True)


def _course(document: ReportDocument) -> Table:
    moving = [(each, each.objects) for each in document.treatments if each.objects and each.objects.series]
    verbs = list(dict.fromkeys(one.operation for _, moved in moving for one in moved.series))

    def rate(verb: str) -> Field[_Step]:
        return number(f"{verb}/s", lambda row: row[1].get(verb))

    fields: list[Field[_Step]] = [
        words("second", lambda row: row[0]),
        *map(rate, verbs),
        number("MB/s", lambda row: row[2], optional=True),
        count("errors", lambda row: row[3], optional=True),
    ]
    rows = [(each, step) for each, moved in moving for step in _steps(moved)]
    caption = "What ended in each step of the trials, over all endpoints; JSON and CSV have it by endpoint."
    return treatment_table(document.treatments, "Course", caption, fields, rows, folded=True, sortable=False)


_Step = tuple[str, dict[str, float], float, int]


def _steps(moved: TransfersReport) -> Iterator[_Step]:
    """Yield operations and MB per second, and errors, in each step of the trials; `_MOST_STEPS` at most."""
    lengths: dict[int, int] = {}
    for one in moved.series:
        lengths[one.trial] = max(lengths.get(one.trial, 0), len(one.done))
    step = max(1, -(-sum(lengths.values()) // _MOST_STEPS))
    left = _MOST_STEPS
    for trial, length in lengths.items():
        own = [one for one in moved.series if one.trial == trial]
        for begin in range(0, length, step):
            if not left:
                return
            left -= 1
            end = min(length, begin + step)
            span_s = (end - begin) * moved.interval_s
            done: Counter[str] = Counter()
            for one in own:
                done[one.operation] += sum(one.done[begin:end])
            content = sum(sum(one.content_bytes[begin:end]) for one in own)
            where = f"trial {trial}, {begin * moved.interval_s:g} to {end * moved.interval_s:g} s"
            rates = {verb: number_ / span_s for verb, number_ in done.items()}
            yield where, rates, content / MB / span_s, sum(sum(one.failed[begin:end]) for one in own)


_PHASES: Final = {"populate": "made before the first trial", "clear": "deleted after the last one"}


def population(document: ReportDocument) -> Table:
    """Return what was made in stores and deleted, a row for each treatment and phase."""
    fields: list[Field[tuple[str, list[PopulationPhaseReport]]]] = [
        words("objects", lambda row: _PHASES[row[0]]),
        count("number", lambda row: sum(part.objects for part in row[1])),
        count("there before", lambda row: sum(part.found for part in row[1]) if row[0] == "populate" else None),
        amount("content", lambda row: sum(part.content_bytes for part in row[1]) if row[0] == "populate" else None),
        count("failed", lambda row: sum(part.failed for part in row[1])),
        words("took", lambda row: format_span(max(part.seconds for part in row[1]))),
    ]
    rows = [
        (entry, (phase, parts))
        for entry in document.treatments
        for phase in _PHASES
        if (parts := [part for part in entry.population if part.phase == phase])
    ]
    return treatment_table(document.treatments, "Objects", "", fields, rows, folded=True)


# -- notes -----------------------------------------------------------------------------------------------------------


def _texts(moved: TransfersReport | None, *, full: bool) -> Iterator[str]:
    """Yield what jobs moved in all and in a second, with `full` also how late first bytes were stamped."""
    if moved is not None:
        rate = "" if moved.mb_per_s is None else f"{format_significant(moved.mb_per_s)} MB/s, "
        drawn = f"{plural(moved.redrawn, 'job')} did another operation than drawn, for want of an object"
        yield f"{rate}{format_bytes(moved.content_bytes)} of content{f'; {drawn}' if moved.redrawn else ''}"
        if moved.seconds is not None:
            n, slowest = plural(moved.seconds.n, "second"), moved.seconds.slowest
            ends = f"fastest {_second(moved.seconds.fastest)}, median {_second(moved.seconds.median)}"
            which = f"second {slowest.second + 1} of trial {slowest.trial}"
            yield f"of {n}: {ends}, slowest {_second(slowest)} ({which})"
        for verb, one in moved.by_operation.items() if full else ():
            if one.first_byte is not None and one.first_byte.error_s:
                yield f"first byte of {verb}: stamped at most {format_value(one.first_byte.error_s, 's')} late"


def _error_text(moved: TransfersReport) -> str:
    """Return how many operations failed by the kind of failure, and which; empty if none did."""
    kinds: dict[str, dict[str, int]] = {}
    for verb, one in moved.by_operation.items():
        for kind, failed in one.error_kinds.items():
            kinds.setdefault(kind, {})[verb] = failed
    by_count = sorted(kinds.items(), key=lambda one: -sum(one[1].values()))
    texts = []
    for kind, verbs in by_count:
        where = [verb if len(verbs) == 1 else f"{verb} {format_count(failed)}" for verb, failed in verbs.items()]
        texts.append(f"{format_count(sum(verbs.values()))} x {one_line(kind)} ({', '.join(where)})")
    return f"errors: {'; '.join(texts)}" if texts else ""


def _second(second: SecondReport) -> str:
    content = f" and {format_significant(second.mb_per_s)} MB/s" if second.mb_per_s else ""
    return f"{format_value(second.per_s, '1/s')}{content}"
