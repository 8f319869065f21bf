"""The tables of the text report that tell how a treatment scales: its rate and latencies by jobs in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench_master.analysis.aggregate import JOB
from bench_master.analysis.document import percentile_name
from bench_master.progress.quantities import one_line
from bench_master.reports.layout import Column, counted, paragraph, seconds, significant, table

CONCURRENCY: Final = "concurrency"
"""The label that a matrix gives to what it varies here."""

_COLUMNS: Final = 7
"""How many numbers of jobs in flight stand side by side; further ones have a table of their own."""


def scaling_tables(document: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table for each set of treatments that differ in nothing but the jobs in flight.

    `common` are labels that need not be repeated. Nothing is yielded where the concurrency does not vary.
    """
    first = True
    for labels, entries in _series(document["treatments"]):
        if not first:
            yield ""
        first = False
        spelled = one_line(" ".join(f"{key}={value}" for key, value in labels if key not in common))
        if spelled:
            yield from paragraph(spelled, indent=2, hanging=4)
        for start in range(0, len(entries), _COLUMNS):
            yield from _table(entries[start : start + _COLUMNS], entries[0], document["pctile"])


def _series(treatments: Sequence[Mapping[str, Any]]) -> list[tuple[tuple[tuple[str, Any], ...], list[Any]]]:
    """Return the treatments that differ in concurrency alone, by what they have in common, the lowest first."""
    found: dict[tuple[tuple[str, Any], ...], list[Any]] = {}
    for entry in treatments:
        labels = entry["treatment"]
        # A benchmark may have a parameter of that name, which is not how many of its jobs were in flight.
        if CONCURRENCY in labels and labels[CONCURRENCY] == entry["concurrency"]:
            rest = tuple((key, value) for key, value in labels.items() if key != CONCURRENCY)
            found.setdefault(rest, []).append(entry)
    return [
        (rest, sorted(entries, key=lambda entry: int(entry["treatment"][CONCURRENCY])))
        for rest, entries in found.items()
        if len(entries) > 1
    ]


def _table(entries: Sequence[Mapping[str, Any]], base: Mapping[str, Any], pctile: float) -> list[str]:
    columns = [Column("jobs in flight", left=True)]
    columns += [Column(str(entry["treatment"][CONCURRENCY])) for entry in entries]
    rates = [entry["jobs_per_s"] for entry in entries]
    rows = [["jobs/s", *("-" if rate is None else significant(rate) for rate in rates)]]
    rows.append(
        [f"x that of {base['treatment'][CONCURRENCY]}", *(_ratio(rate, base["jobs_per_s"]) for rate in rates)]
    )
    failed = [entry["jobs"]["failed"] for entry in entries]
    if any(failed):
        rows.append(["failed", *map(counted, failed)])
    names = list(dict.fromkeys(name for entry in entries for name in entry["operations"]))
    rows += [
        [f"{name} {figure}", *(_time(entry["operations"].get(name), f"{figure}_s") for entry in entries)]
        for name in sorted(names, key=lambda name: name != JOB)
        for figure in dict.fromkeys(("p50", percentile_name(pctile)))
    ]
    return table(columns, rows)


def _ratio(rate: float | None, base: float | None) -> str:
    return "-" if rate is None or not base else f"{rate / base:.2f}"


def _time(operation: Mapping[str, Any] | None, figure: str) -> str:
    return seconds(None if operation is None else operation[figure], _DIGITS)
