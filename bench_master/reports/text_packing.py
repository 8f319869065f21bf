"""The table of the text report that tells how many containers hosts held, and how they were meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench_master.progress.quantities import one_line
from bench_master.reports.layout import Column, paragraph, significant, size, table


def packing_table(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each packing of a treatment, then why each ended; nothing where nothing was packed."""
    packing = entry["packing"]
    if not packing:
        return
    columns = [Column("packed", left=True), Column("containers"), Column("memory"), Column("each")]
    columns += [Column("CPU busy"), Column("engine mem", spare=True), Column("engine CPU", spare=True)]
    rows = []
    for trial in packing["trials"]:
        steady = trial["steady"]
        engine = steady.get("engine_cgroup_bytes") or steady.get("engine_rss_bytes")
        rows.append(
            [
                f"trial {trial['trial']} on {trial['worker']}{' (warm-up)' if trial['warmup'] else ''}",
                str(trial["containers"]),
                _mean(steady.get("memory_used_bytes")),
                _size(trial["memory_per_container_bytes"]),
                _percent(steady.get("cpu_busy_percent")),
                _mean(engine),
                _percent(steady.get("engine_cpu_percent")),
            ]
        )
    yield ""
    yield from table(columns, rows)
    reasons = dict.fromkeys(one_line(trial["reason"]) for trial in packing["trials"])
    yield from paragraph(f"no more, because: {'; '.join(reasons)}", indent=2, hanging=4)


def packing_notes(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has to be known to read the tables."""
    if any(entry["packing"] for entry in document["treatments"]):
        yield (
            "packed: means of the readings while all containers were held. `each` is how much more memory was in use "
            "than before the first of them, shared out."
        )


def _mean(figures: Mapping[str, Any] | None) -> str:
    return _size(None if figures is None else figures["mean"])


def _percent(figures: Mapping[str, Any] | None) -> str:
    return "-" if figures is None else f"{significant(figures['mean'])}%"
