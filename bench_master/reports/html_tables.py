"""The tables of the page: treatments, comparisons, operations, metrics, thresholds.

A treatment has a column for each of its labels that varies, so that a table can be sorted by each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.treatment_types import MetricReport, TreatmentReport
from bench_master.analysis.verdict_types import ComparisonReport, change_text, interval_text
from bench_master.formatting import format_significant, format_value
from bench_master.reports.side_by_side import varying_labels
from bench_master.reports.verdict_text import FEWEST_ROUNDS, figure_text, remark_text

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
    """What stands below it."""
    sortable: bool = True
    """Whether a script may sort it: not where it is a part of a longer one."""


def page_tables(document: ReportDocument) -> list[Table]:
    """Return the tables of a page that have rows, what a reader looks for first at the top."""
    return [
        table
        for table in (
            _comparisons(document),
            _conditions(document),
            _treatments(document),
            *_metrics(document),
            _operations(document),
        )
        if table.rows
    ]


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
    heads += _heads((), "baseline", "figure", words=2)
    notes = list(dict.fromkeys(filter(None, (remark_text(each) for each in comparisons))))
    # What limits all verdicts alike needs no mark.
    marked = len(notes) > 1 or any(not remark_text(each) for each in comparisons)
    rows = [
        [
            *_label_cells(names, each.labels, each.b),
            Cell(each.verdict + _mark(remark_text(each), notes if marked else ()), left=True),
            Cell(change_text(each), each.ratio),
            Cell(interval_text(each, FEWEST_ROUNDS), each.low),
            Cell(str(each.rounds), each.rounds),
            Cell(format_value(each.b_value, each.unit), each.b_value),
            Cell(format_value(each.a_value, each.unit), each.a_value),
            Cell(_base_name(each, bases.get(each.a, {})), left=True),
            Cell(figure_text(each.figure), left=True),
        ]
        for each in comparisons
    ]
    words = "The verdict on each difference from its baseline, with its interval."
    # What is the same in all rows is said once, and what no row has is not said.
    said, kept = [], []
    for place, head in enumerate(heads):
        texts = {row[place].text for row in rows}
        if head.text in ("baseline", "figure") and len(texts) == 1:
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


def _conditions(document: ReportDocument) -> Table:
    """Return thresholds and gates: what the exit code depends on."""
    found = [(each.threshold, document.threshold_state(each), each.message) for each in document.thresholds]
    if document.verdicts is not None:
        found += [(gate.gate, gate.state, gate.text) for gate in document.verdicts.gates]
    rows = [
        [Cell(text, left=True) for text in (condition, state if state == "passed" else state.upper(), figures)]
        for condition, state, figures in found
    ]
    heads = _heads((), "threshold or gate", "state", "figures", words=3)
    folded = len(rows) > _FEW_CONDITIONS and all(row[1].text == "passed" for row in rows)
    return Table("Thresholds and gates", "What the exit code depends on.", heads, rows, folded=folded)


def _treatments(document: ReportDocument) -> Table:
    names = _label_heads(document.treatments)
    moved = any(each.objects for each in document.treatments)
    heads = _heads(names, "trials", "done", "failed", "lost", "jobs/s", *(["MB/s"] if moved else []))
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
                *([Cell("-" if megabytes is None else format_significant(megabytes), megabytes)] if moved else []),
                Cell(format_value(median, "s"), median),
                Cell(format_value(each.timing_error_p99_s, "s"), each.timing_error_p99_s),
            ]
        )
    caption = "Jobs by outcome, warm-up left out, and how late an end may be stamped."
    return Table("Treatments", caption, heads, rows)


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


def _metrics(document: ReportDocument) -> Iterator[Table]:
    """Yield the primary metrics, and folded all others; without primary ones all of them."""
    every = [
        (treatment, name, metric)
        for treatment in document.treatments
        for name, metric in treatment.metrics.items()
        if metric.n
    ]
    compared = {each.figure for each in document.verdicts.comparisons} if document.verdicts is not None else set()
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
