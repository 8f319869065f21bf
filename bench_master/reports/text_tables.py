"""The tables of the text report that hold results: one line per treatment, per operation, per metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench_master.analysis.aggregate import JOB
from bench_master.analysis.document import percentile_name
from bench_master.reports.layout import Column, counted, paragraph, seconds, significant, table

_DIGITS: Final = 3
"""Seven times of three digits fit a line; the overview and the other formats have more."""


def overview(document: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return one line for each treatment, to compare at a glance; `names` are what tells them apart.

    Lost and aborted jobs have a column where there are any, and so have the medians of each treatment's first metric.
    """
    treatments = document["treatments"]
    outcomes = ["done", "failed", *(name for name in ("lost", "aborted") if any(e["jobs"][name] for e in treatments))]
    chosen = list(dict.fromkeys(("p50", percentile_name(document["pctile"]))))
    metric, medians = _first_metrics(treatments)
    columns = [Column("treatment", left=True), *map(Column, outcomes), Column("jobs/s")]
    columns += [*(Column(f"job {figure}") for figure in chosen), *([Column(metric)] if metric else [])]
    rows = []
    for entry, name, median in zip(treatments, names, medians, strict=True):
        rate, job = entry["jobs_per_s"], entry["operations"][JOB]
        rows.append(
            [
                name,
                *(counted(entry["jobs"][outcome]) for outcome in outcomes),
                "-" if rate is None else significant(rate),
                *(seconds(job[f"{figure}_s"]) for figure in chosen),
                *([median] if metric else []),
            ]
        )
    return table(columns, rows, indent=0)


def _first_metrics(treatments: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """Return a column's title (empty: nobody gave a metric) and the median of each treatment's first metric."""
    firsts = [
        next(((name, metric) for name, metric in entry["metrics"].items() if metric["n"]), None)
        for entry in treatments
    ]
    names = {first[0] for first in firsts if first}
    cells = [
        "-" if first is None else f"{significant(first[1]['median'])} {first[1]['unit']}".strip() for first in firsts
    ]
    return ("" if not names else names.pop() if len(names) == 1 else "first metric"), cells


def treatment_tables(entry: Mapping[str, Any], pctile: float) -> Iterator[str]:
    """Yield a treatment's operations, then its metrics."""
    operations = entry["operations"]
    # Results that were measured elsewhere have no operation but the whole job, and that without a time.
    timed = list(operations) != [JOB] or operations[JOB]["n"] or operations[JOB]["errors"]
    if timed:
        yield from _operations(operations, percentile_name(pctile))
    given = {name: metric for name, metric in entry["metrics"].items() if metric["n"]}
    if given:
        if timed:
            yield ""
        yield from _metrics(given, percentile_name(pctile))
    if missing := [name for name in entry["metrics"] if name not in given]:
        yield ""
        yield from paragraph(f"not given by any trial: {', '.join(missing)}", indent=2, hanging=4)


def _operations(operations: Mapping[str, Mapping[str, Any]], chosen: str) -> list[str]:
    tail = [] if chosen in ("p99", "p50") else ["p99"]
    shown = dict.fromkeys(("p50", chosen))
    columns = [Column("operation", left=True), Column("n"), Column("err")]
    columns += [Column(title) for title in ("min", "mean", "stddev", *shown)]
    columns += [*(Column(title, spare=True) for title in tail), Column("max"), Column("slowest")]
    rows = []
    for name, operation in operations.items():
        figures = ("min", "mean", "stddev", *shown, *tail, "max")
        cells = [seconds(operation[f"{figure}_s"], _DIGITS) + _mark(figure, operation) for figure in figures]
        slowest = operation["slowest_job"]
        rows.append(
            [
                name,
                counted(operation["n"]),
                counted(operation["errors"]),
                *cells,
                "-" if slowest is None else f"{slowest}",
            ]
        )
    return table(columns, rows)


def _mark(figure: str, operation: Mapping[str, Any]) -> str:
    return "?" if figure == "p99" and operation["p99_marked"] else ""


def _metrics(metrics: Mapping[str, Mapping[str, Any]], chosen: str) -> list[str]:
    columns = [Column("metric", left=True), Column("unit", left=True), Column("n"), Column("min"), Column("mean")]
    columns += [Column("stddev"), Column("median"), Column(chosen, spare=True), Column("max"), Column("worst")]
    rows = []
    for name, metric in metrics.items():
        sign = {"higher": " +", "lower": " -"}.get(metric["direction"] or "", "")
        figures = ("min", "mean", "stddev", "median", chosen, "max")
        cells = ["-" if metric[figure] is None else significant(metric[figure]) for figure in figures]
        worst = metric["worst_job"]
        rows.append(
            [name, f"{metric['unit']}{sign}".strip(), str(metric["n"]), *cells, "-" if worst is None else f"{worst}"]
        )
    return table(columns, rows)
