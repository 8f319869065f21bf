"""The tables of the text report that put published figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench_master.host_cpu import COLUMNS
from bench_master.reports.layout import Column, paragraph, significant, table
from bench_master.scenario.published import FIGURES


def published_lines(section: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the text report's section; nothing where the scenario names no published figures."""
    if section is None:
        return
    yield from paragraph(f"{section['title']}: {section['source']}.", indent=2)
    yield from paragraph(section["caution"], indent=2)
    if not section["tables"]:
        yield from paragraph("None of the figures published there is of a treatment of this run.", indent=2)
    columns = [Column("whose", left=True), Column("n"), Column("mean"), Column("stddev")]
    columns += [Column("min", spare=True), Column("median"), Column("max", spare=True)]
    for one in section["tables"]:
        yield ""
        sign = {"higher": ", higher is better", "lower": ", lower is better"}.get(one["direction"] or "", "")
        yield from paragraph(f"{one['treatment']}: {one['metric']} ({one['unit']}{sign})", indent=2, hanging=4)
        rows = [["this run", *_cells(one["ours"])]]
        rows += [[f"published: {row['where']}", *_cells(row)] for row in one["published"]]
        yield from table(columns, rows, indent=4)
        for note in dict.fromkeys(row["note"] for row in one["published"] if row["note"]):
            whose = ", ".join(row["where"] for row in one["published"] if row["note"] == note)
            yield from paragraph(f"{whose}: {note}", indent=6, hanging=8)


def published_notes(section: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what has to be known to read the tables."""
    if section is not None and any(one["metric"] in COLUMNS for one in section["tables"]):
        yield (
            "host_cpu: ticks of all CPUs of a host together, per second. n counts the readings whose whole interval "
            "lies in a measured trial; nice is in user, interrupts are in system, and iowait may run backwards."
        )


def _cells(figures: Mapping[str, Any] | None) -> list[str]:
    if figures is None:
        return ["-"] * len(FIGURES)
    return ["-" if figures[name] is None else significant(figures[name]) for name in FIGURES]
