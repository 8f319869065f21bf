"""The table of the text report that tells what the engines themselves cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench_master.reports.layout import Column, size, table


def overhead_table(document: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return a line for each treatment whose engine was watched; nothing where none was.

    Memory is that of the processes (RSS) or of a control group; the last two columns are against the baseline's.
    """
    entries = [(name, entry) for name, entry in zip(names, document["treatments"], strict=True) if entry["overhead"]]
    if not entries:
        return []
    columns = [Column("treatment", left=True), Column("n"), Column("mem min"), Column("avg"), Column("max")]
    columns += [Column("PSS avg", spare=True), Column("CPU% min"), Column("avg"), Column("max")]
    columns += [Column("Mem %"), Column("CPU x")]
    rows = []
    for name, entry in entries:
        overhead = entry["overhead"]
        memory: Mapping[str, Any] = overhead.get("cgroup_bytes") or overhead.get("rss_bytes") or {}
        cpu: Mapping[str, Any] = overhead.get("cpu_percent") or {}
        relative: Mapping[str, Any] = overhead["relative"] or {}
        rows.append(
            [
                name,
                str(memory.get("n", 0)),
                *(_size(memory.get(figure)) for figure in ("min", "mean", "max")),
                _size((overhead.get("pss_bytes") or {}).get("mean")),
                *(_number(cpu.get(figure), "{:.1f}") for figure in ("min", "mean", "max")),
                _number(relative.get("memory_percent"), "{:+.2f}"),
                _number(relative.get("cpu_factor"), "{:.2f}"),
            ]
        )
    return table(columns, rows)


def overhead_notes(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has to be known to read the table."""
    overheads = [entry["overhead"] for entry in document["treatments"] if entry["overhead"]]
    if not overheads:
        return
    yield "CPU% is of one CPU; Mem % and CPU x are against the averages of the baseline."
    if any("rss_bytes" in overhead for overhead in overheads):
        yield (
            "mem is the RSS of the engine's processes, in which pages that they share count for each; PSS counts "
            "them once. What began and ended between two readings is missed."
        )
    if any("cgroup_bytes" in overhead for overhead in overheads):
        yield "mem is what is charged to a control group, less file pages that it has not used lately."


def _size(value: float | None) -> str:
    return size(value).replace(" ", "")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
