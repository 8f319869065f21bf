"""The tables of the page: treatments, comparisons, operations, metrics, thresholds.

A treatment has a column for each of its labels that varies, so that a table can be sorted by each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.traced_types import cause_sentence, shares
from bench_master.analysis.transfer_types import EndpointOperationReport, StoreOperationReport
from bench_master.analysis.treatment_types import HarnessReport, MetricReport, TreatmentReport
from bench_master.analysis.verdict_types import ComparisonReport, change_text, interval_text
from bench_master.formatting import MISSING, MISSING_MEANS, format_percent, format_significant, format_value
from bench_master.reports.side_by_side import treatment_names, varying_labels
from bench_master.reports.store_tables import (
    course_cells,
    endpoint_errors,
    endpoint_name,
    error_texts,
    seconds_text,
)
from bench_master.reports.text_sections import packing_cells, packings_notes
from bench_master.reports.traced import MOST_CAUSES, sampling_text
from bench_master.reports.verdict_text import (
    FEWEST_ROUNDS,
    VerdictRow,
    VerdictTable,
    measure_text,
    remark_text,
    verdict_tables,
)

MOST_OPEN_ROWS: Final = 60
"""Rows of a table that are shown at once; a longer one is folded."""
_FEW_CONDITIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column."""

    text: str
    left: bool = False
    """Whether its cells are words, and not numbers."""
    link: str = ""
    """The address of the same table sorted by this column, where a server sorts it."""
    sort: str = ""
    """``ascending`` or ``descending`` where a server has sorted it by this column."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; `value` is what it is sorted by, None for its text."""

    text: str
    value: float | None = None
    left: bool = False
    link: str = ""
    """The address that it leads to."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be sorted."""

    name: str
    caption: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    folded: bool = False
    """Whether a reader must open it."""
    notes: Sequence[str] = ()
    leads: bool = False
    """Whether it belongs to the answer, above the charts."""
    sortable: bool = True
    """Whether a script may sort it: not where it is a part of a longer one."""


def first_tables(document: ReportDocument) -> list[Table]:
    """Return the tables of the first screen: those of the text report, with each baseline among its treatments.

    Of many rows it has the first ones; all comparisons are in a table further down.
    """
    room, found = _FIRST_ROWS, []
    for table in verdict_tables(document):
        rows = table.rows[:room]
        room -= len(rows)
        if rows:
            found.append(_explained(_first_table(table, rows)))
    return found


def _first_table(table: VerdictTable, rows: Sequence[VerdictRow]) -> Table:
    """Return rows of verdicts as a table of the page; a column that is empty in all of them is left out."""
    shown = [
        (place, column)
        for place, column in enumerate(table.columns)
        if not column.optional or any(row.cells[place] for row in rows)
    ]
    heads = [Head(column.title, left=column.left) for _, column in shown]
    cells = [[Cell(row.cells[place], left=column.left) for place, column in shown] for row in rows]
    shared = table.shared_remarks()
    notes = [f"{row.name}: {row.remark}" for row in rows if row.remark and row.remark not in shared]
    notes += [f"{names}: {remark}" for remark, names in shared.items()]
    notes += [table.remark] if table.remark else []
    notes += [f"{len(table.rows) - len(rows)} more below"] if len(rows) < len(table.rows) else []
    return Table(table.caption or "Verdicts", "", heads, cells, notes=notes, sortable=False)


_FIRST_ROWS: Final = 12


def page_tables(document: ReportDocument) -> list[Table]:
    """Return the tables of a page that have rows, what a reader looks for first at the top."""
    return [
        _explained(table)
        for table in (
            _comparisons(document),
            _claims(document),
            _conditions(document),
            _treatments(document),
            _store_operations(document),
            _endpoints(document),
            _course(document),
            _packings(document),
            *_metrics(document),
            _operations(document),
            _traced(document),
            _pressure(document),
        )
        if table.rows
    ]


def _explained(table: Table) -> Table:
    """Return a table that says what a missing value is, instead of a bare dash."""
    if not any(cell.text == "-" for row in table.rows for cell in row):
        return table
    rows = [[replace(cell, text=MISSING) if cell.text == "-" else cell for cell in row] for row in table.rows]
    return replace(table, rows=rows, notes=[*table.notes, f"{MISSING}: {MISSING_MEANS}"])


def _label_heads(treatments: Sequence[TreatmentReport]) -> list[str]:
    return varying_labels(treatments) or ["treatment"]


def _label_cells(names: Sequence[str], labels: Mapping[str, Any], title: str) -> list[Cell]:
    if list(names) == ["treatment"]:
        return [Cell(title, left=True)]
    return [_label(labels.get(name)) for name in names]


def _label(value: Any) -> Cell:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return Cell("-" if value is None else str(value), number, left=True)


def _heads(names: Iterable[str], *others: str, words: int = 0) -> list[Head]:
    """Return heads of columns: labels, then `words` columns of words, then numbers."""
    return [
        *(Head(name, left=True) for name in names),
        *(Head(name, left=place < words) for place, name in enumerate(others)),
    ]


def _comparisons(document: ReportDocument) -> Table:
    comparisons = document.verdicts.comparisons if document.verdicts is not None else ()
    names = _label_heads(document.treatments)
    bases = {each.title: each.treatment for each in document.treatments}
    heads = _heads(names, "verdict", words=1)
    heads += _heads((), "difference", "interval", "rounds", "value", "of baseline")
    heads += _heads((), "baseline", "measure", words=2)
    notes = list(dict.fromkeys(filter(None, (remark_text(each) for each in comparisons))))
    # What limits all verdicts alike needs no mark.
    marked = len(notes) > 1 or any(not remark_text(each) for each in comparisons)
    rows = [
        [
            *_label_cells(names, each.labels, each.b),
            Cell(each.word.lower() + _mark(remark_text(each), notes if marked else ()), left=True),
            Cell(change_text(each), each.ratio),
            Cell(interval_text(each, FEWEST_ROUNDS), each.low),
            Cell(str(each.rounds), each.rounds),
            Cell(format_value(each.b_value, each.unit), each.b_value),
            Cell(format_value(each.a_value, each.unit), each.a_value),
            Cell(_base_name(each, bases.get(each.a, {})), left=True),
            Cell(measure_text(each.measure), left=True),
        ]
        for each in comparisons
    ]
    words = "The verdict on each difference from its baseline, with its interval."
    # What is the same in all rows is said once, and what no row has is not said.
    said, kept = [], []
    for place, head in enumerate(heads):
        texts = {row[place].text for row in rows}
        if head.text in ("baseline", "measure") and len(texts) == 1:
            said += [f"{head.text.capitalize()}: {text}." for text in texts if text]
        elif texts != {"-"}:
            kept.append(place)
    rows = [[row[place] for place in kept] for row in rows]
    heads = [heads[place] for place in kept]
    numbered = [f"[{place}] {note}" for place, note in enumerate(notes, 1)] if marked else notes
    return Table("Comparisons", " ".join([words, *said]), heads, rows, notes=numbered)


def _mark(note: str, notes: Sequence[str]) -> str:
    return f" [{notes.index(note) + 1}]" if note in notes else ""


def _base_name(comparison: ComparisonReport, base: Mapping[str, Any]) -> str:
    """Return what tells a baseline from what is compared with it."""
    own = [str(value) for key, value in base.items() if comparison.labels.get(key) != value]
    return " ".join(own) or comparison.a


def _claims(document: ReportDocument) -> Table:
    """Return what became of the claims that the scenario made before the first job."""
    claims = document.verdicts.claims if document.verdicts is not None else None
    rows = [
        [
            *(Cell(text, left=True) for text in (each.name, each.says, each.measure)),
            Cell(str(each.rounds), each.rounds),
            Cell(each.state if each.state == "kept" else each.state.upper(), left=True),
            Cell(each.text, left=True),
        ]
        for each in (claims.claims if claims is not None else ())
    ]
    heads = [*_heads((), "claim about", "says", "measure", words=3), *_heads((), "rounds")]
    heads += _heads((), "state", "values", words=2)
    caption = "" if claims is None else f"Registered before the first job, sha256 {claims.sha256}."
    return Table("Claims", caption, heads, rows)


def _conditions(document: ReportDocument) -> Table:
    """Return thresholds and gates: what the exit code depends on."""
    found = [(each.threshold, document.threshold_state(each), each.message) for each in document.thresholds]
    if document.verdicts is not None:
        found += [(gate.gate, gate.state, gate.text) for gate in document.verdicts.gates]
    rows = [
        [Cell(text, left=True) for text in (condition, state if state == "passed" else state.upper(), values)]
        for condition, state, values in found
    ]
    heads = _heads((), "threshold or gate", "state", "values", words=3)
    folded = len(rows) > _FEW_CONDITIONS and all(row[1].text == "passed" for row in rows)
    return Table("Thresholds and gates", "What the exit code depends on.", heads, rows, folded=folded)


def _treatments(document: ReportDocument) -> Table:
    names = _label_heads(document.treatments)
    moved = any(each.objects for each in document.treatments)
    limited = any(each.harness is not None and each.harness.ceiling_per_s is not None for each in document.treatments)
    heads = _heads(names, "trials", "done", "failed", "lost", "jobs/s")
    heads += _heads((), *(["harness's own", "share of it"] if limited else []), *(["MB/s"] if moved else []))
    heads += _heads((), "job p50", "timing error (p99)")
    rows = []
    for each in document.treatments:
        job = each.operations.get("job")
        median = job.percentiles_s.get("p50") if job else None
        rate = "-" if each.jobs_per_s is None else format_significant(each.jobs_per_s)
        megabytes = None if each.objects is None else each.objects.mb_per_s
        rows.append(
            [
                *_label_cells(names, each.treatment, each.title),
                Cell(f"{each.trials.run} of {each.trials.planned}", each.trials.run),
                *(Cell(f"{count:,}", count) for count in (each.jobs.done, each.jobs.failed, each.jobs.lost)),
                Cell(rate, each.jobs_per_s),
                *(_ceiling_cells(each.harness) if limited else []),
                *([Cell("-" if megabytes is None else format_significant(megabytes), megabytes)] if moved else []),
                Cell(format_value(median, "s"), median),
                Cell(format_value(each.timing_error_p99_s, "s"), each.timing_error_p99_s),
            ]
        )
    caption = "Jobs by outcome, warm-up left out, and how late an end may be stamped."
    if limited:
        caption += (
            " What the harness itself can do here, in jobs/s: jobs that do nothing, as many at once and with as many "
            "operations. A rate of 80 % of it says nothing of what ran."
        )
    return Table("Treatments", caption, heads, rows)


def _ceiling_cells(harness: HarnessReport | None) -> list[Cell]:
    ceiling, share = (None, None) if harness is None else (harness.ceiling_per_s, harness.share)
    return [
        Cell("-" if ceiling is None else format_significant(ceiling), ceiling),
        Cell(format_percent(share), share),
    ]


def _packings(document: ReportDocument) -> Table:
    names = _label_heads(document.treatments)
    heads = _heads(names, "trial", "held", "memory", "CPU", "up in", words=1)
    heads += _heads((), "host memory", "each", "host CPU", "engine memory", "engine CPU")
    rows = [
        [
            *_label_cells(names, entry.treatment, entry.title),
            *(Cell(text, left=place == 0) for place, text in enumerate(packing_cells(trial))),
        ]
        for entry in document.treatments
        if entry.packing
        for trial in entry.packing.trials
    ]
    caption = (
        "Memory and CPU of a container by its own control group, and of host and engine, while all containers were "
        "held; each: memory of the host beyond that before the first container."
    )
    notes = packings_notes(document, treatment_names(document))
    return Table("Packings", caption, heads, rows, notes=notes, sortable=False)


def _operations(document: ReportDocument) -> Table:
    names = _label_heads(document.treatments)
    rows = []
    for treatment in document.treatments:
        for name, operation in treatment.operations.items():
            if not operation.n and not operation.errors:
                continue
            times = (
                (operation.min_s, False),
                (operation.percentiles_s.get("p50"), False),
                (operation.percentiles_s.get("p95"), False),
                (operation.percentiles_s.get("p99"), operation.p99_marked),
                (operation.max_s, False),
            )
            rows.append(
                [
                    *_label_cells(names, treatment.treatment, treatment.title),
                    Cell(name, left=True),
                    Cell(f"{operation.n:,}", operation.n),
                    Cell(f"{operation.errors:,}", operation.errors),
                    *(Cell(format_value(value, "s") + ("?" if marked else ""), value) for value, marked in times),
                ]
            )
    heads = _heads(names, "operation", "n", "errors", "min", "p50", "p95", "p99", "max", words=1)
    caption = "Durations of operations that were done. ?: a p99 of fewer than 1,000 values."
    return Table("Operations", caption, heads, rows, folded=len(rows) > MOST_OPEN_ROWS)


_STORE_HEADS: Final = ("done", "errors", "per s", "MB/s", "first byte p50", "first byte p99", "p50", "p99", "max")


def _store_operations(document: ReportDocument) -> Table:
    """Return what jobs on a store did, by operation over objects of all sizes."""
    names = _label_heads(document.treatments)
    every, titles = document.treatments, treatment_names(document)
    rows = [
        [
            *_label_cells(names, each.treatment, each.title),
            Cell(verb, left=True),
            *_store_cells(one),
            Cell(f"{one.retries:,}", one.retries),
        ]
        for each in every
        if each.objects
        for verb, one in each.objects.by_operation.items()
        if one.n or one.errors
    ]
    heads = _heads(names, "operation", *_STORE_HEADS, "retries", words=1)
    notes = error_texts(document, titles)
    for title, each in zip(titles, every, strict=True):
        if each.objects and (text := seconds_text(each.objects)):
            notes.append(f"{title}: {text}")
    caption = (
        "Over objects of all sizes; each size is in the table of operations. ?: a p99 of fewer than 1,000 values."
    )
    return Table("Operations on the store", caption, heads, rows, notes=notes, leads=True)


def _store_cells(one: StoreOperationReport | EndpointOperationReport) -> list[Cell]:
    first = one.first_byte.percentiles_s if one.first_byte is not None else {}
    marked = isinstance(one, StoreOperationReport) and one.p99_marked
    times = (
        first.get("p50"),
        first.get("p99"),
        one.percentiles_s.get("p50"),
        one.percentiles_s.get("p99"),
        one.max_s,
    )
    shown = [format_value(each, "s") for each in times]
    if marked:
        shown[1:4:2] = [text if text == "-" else f"{text}?" for text in shown[1:4:2]]
    return [
        Cell(f"{one.n:,}", one.n),
        Cell(f"{one.errors:,}", one.errors),
        _rate_cell(one.per_s),
        _rate_cell(one.mb_per_s or None),
        *(Cell(text, value) for text, value in zip(shown, times, strict=True)),
    ]


def _rate_cell(value: float | None) -> Cell:
    return Cell("-" if value is None else format_significant(value), value)


def _endpoints(document: ReportDocument) -> Table:
    """Return each endpoint of treatments that have several."""
    names = _label_heads(document.treatments)
    rows = [
        [
            *_label_cells(names, each.treatment, each.title),
            Cell(endpoint_name(endpoint), left=True),
            Cell(verb, left=True),
            *_store_cells(one),
        ]
        for each in document.treatments
        if each.objects and len(each.objects.endpoints) > 1
        for endpoint in each.objects.endpoints
        for verb, one in endpoint.operations.items()
    ]
    heads = _heads(names, "endpoint", "operation", *_STORE_HEADS, words=2)
    notes = [
        f"{endpoint_name(endpoint)}: {text}"
        for each in document.treatments
        if each.objects and len(each.objects.endpoints) > 1
        for endpoint in each.objects.endpoints
        if (text := endpoint_errors(endpoint))
    ]
    caption = "Operations by the endpoint that answered last, over objects of all sizes."
    return Table("Endpoints", caption, heads, rows, notes=notes, folded=len(rows) > MOST_OPEN_ROWS)


_COURSE_ROWS: Final = 120
"""Steps of a treatment's trials at most."""


def _course(document: ReportDocument) -> Table:
    """Return operations and MB per second over the time of the trials."""
    names = _label_heads(document.treatments)
    moving = [each for each in document.treatments if each.objects and each.objects.series]
    heads: dict[str, None] = {}
    found = []
    for each in moving:
        assert each.objects is not None
        columns, cells = course_cells(each.objects, _COURSE_ROWS)
        titles = [column.title for column in columns]
        heads.update(dict.fromkeys(titles))
        found += [(each, dict(zip(titles, row, strict=True))) for row in cells]
    rows = [
        [
            *_label_cells(names, each.treatment, each.title),
            *(Cell(row.get(head, "-"), left=place == 0) for place, head in enumerate(heads)),
        ]
        for each, row in found
    ]
    caption = "What ended in each step of the trials, over all endpoints; JSON and CSV have it by endpoint."
    return Table("Course", caption, _heads(names, *heads, words=1), rows, folded=True, sortable=False)


def _traced(document: ReportDocument) -> Table:
    """Return where the time of operations went in the traced trials."""
    names = _label_heads(document.treatments)
    rows = []
    for traced in document.traced:
        treatment = document.treatments[traced.treatment]
        labels = _label_cells(names, treatment.treatment, treatment.title)
        for operation in traced.phases:
            for one in [*shares(operation)][:MOST_CAUSES]:
                share = one.seconds / operation.total_s if operation.total_s else 0.0
                rows.append(
                    [
                        *labels,
                        Cell(operation.operation, left=True),
                        Cell(one.cause, left=True),
                        Cell(one.process or "-", left=True),
                        Cell(one.where or "-", left=True),
                        Cell(format_value(one.seconds, "s"), one.seconds),
                        Cell(format_percent(share), share),
                    ]
                )
    heads = _heads(names, "operation", "cause", "process", "where in the kernel", "a job", "share", words=4)
    caption = "Where the time of operations went, by a few jobs that were traced after the measured ones."
    notes = [
        *(
            f"{document.treatments[one.treatment].title}: {cause_sentence(operation)}."
            for one in document.traced
            for operation in one.phases
        ),
        *(
            f"{document.treatments[one.treatment].title}: "
            + (f"not traced: {one.problem}" if one.problem else sampling_text(document, one))
            for one in document.traced
        ),
    ]
    return Table("Why", caption, heads, rows, notes=notes)


def _pressure(document: ReportDocument) -> Table:
    names = _label_heads(document.treatments)
    rows = [
        [
            *_label_cells(names, entry.treatment, entry.title),
            Cell(kind, left=True),
            Cell(f"{one.n:,}", one.n),
            Cell(f"{one.median:.1%}", one.median),
            Cell(f"{one.max:.1%}", one.max),
            Cell(str(one.max_trial), one.max_trial),
        ]
        for entry in document.treatments
        for kind, one in (entry.pressure or {}).items()
    ]
    caption = (
        "How much the hosts' work was held up in the trials: share of the time in which some task waited (the jobs' "
        "own among them), or the load process for a CPU; steal and softirq are shares of all CPU time."
    )
    heads = _heads(names, "of", "readings", "middle", "max", "in trial", words=1)
    return Table("Pressure", caption, heads, rows, folded=True)


def _metrics(document: ReportDocument) -> Iterator[Table]:
    """Yield the primary metrics, and folded all others; without primary ones all of them."""
    every = [
        (treatment, name, metric)
        for treatment in document.treatments
        for name, metric in treatment.metrics.items()
        if metric.n
    ]
    compared = {each.measure for each in document.verdicts.comparisons} if document.verdicts is not None else set()
    first = {name for _, name, metric in every if metric.primary or name in compared}
    caption = "What workloads measured, over trials."
    primary = [each for each in every if each[1] in first]
    others = [each for each in every if each[1] not in first]
    if primary:
        yield _metric_table(document, caption, "Primary metrics", primary, folded=False)
    name = "Other metrics" if primary else "Metrics"
    folded = bool(primary) or len(others) > MOST_OPEN_ROWS
    yield _metric_table(document, caption, name, others, folded=folded)


def _metric_table(
    document: ReportDocument,
    caption: str,
    name: str,
    found: Sequence[tuple[TreatmentReport, str, MetricReport]],
    *,
    folded: bool,
) -> Table:
    names = _label_heads(document.treatments)
    rows = [
        [
            *_label_cells(names, treatment.treatment, treatment.title),
            Cell(metric, left=True),
            Cell(report.direction or "", left=True),
            Cell(f"{report.n:,}", report.n),
            *(
                Cell(format_value(each, report.unit), each)
                for each in (report.median, report.stddev, report.min, report.max)
            ),
        ]
        for treatment, metric, report in found
    ]
    heads = _heads(names, "metric", "better", "trials", "median", "deviation", "min", "max", words=2)
    return Table(name, caption, heads, rows, folded=folded)
