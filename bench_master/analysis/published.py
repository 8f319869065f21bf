"""This run's figures beside published ones: same parameters, other machines, so no ratio is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench_common.stats.block_types import Header
from bench_master.analysis.report_types import (
    PublishedReport,
    PublishedStatisticsReport,
    PublishedTableReport,
    StatisticsReport,
)
from bench_master.run_data.treatment_types import HostCpuReport, MetricReport, TreatmentReport
from bench_master.scenario.keys_run import FULL
from bench_master.scenario.published import matches_labels

CAUTION: Final = (
    "Measured by others, on other machines and with other versions. The figures stand beside each other for "
    "orientation; no difference between them is one of engines or environments."
)


def published_section(header: Header, treatments: Sequence[TreatmentReport]) -> PublishedReport | None:
    """Return this run's figures and the published ones for each treatment and metric.

    None if the run's scenario names no published figures. CPU time of the hosts is found by name like a metric.
    """
    published = header.published
    if not published:
        return None
    scale = header.scenario.scale
    scaled = (
        "" if scale == FULL else f" This run was at scale {scale}, not with the parameters of the published ones."
    )
    tables = [table for entry in treatments for table in _tables(published["rows"], entry)]
    return PublishedReport(
        title=published["title"],
        source=published["source"],
        file=published["file"],
        caution=CAUTION + scaled + _single_values(tables),
        tables=tables,
    )


def _single_values(tables: Sequence[PublishedTableReport]) -> str:
    """Return what statistics of one measurement, ours or theirs, cannot say; nothing where there is none."""
    whose = [
        name
        for name, found in (
            ("this run's", any(one.ours is not None and one.ours.n == 1 for one in tables)),
            ("published", any(row.n == 1 for one in tables for row in one.published)),
        )
        if found
    ]
    if not whose:
        return ""
    return (
        f" Where n is 1 ({' and '.join(whose)} figures), one measurement has no spread: it cannot say whether "
        "another one would differ as much as the figures beside it."
    )


def _tables(rows: Sequence[Mapping[str, Any]], entry: TreatmentReport) -> Iterator[PublishedTableReport]:
    matching = [row for row in rows if matches_labels(row, entry.treatment)]
    for name in dict.fromkeys(row["metric"] for row in matching):
        metric = entry.metrics.get(name) or (entry.host_cpu or {}).get(name)
        theirs = [row for row in matching if row["metric"] == name]
        yield PublishedTableReport(
            treatment=entry.title,
            labels=dict(entry.treatment),
            metric=name,
            unit=theirs[0]["unit"],
            direction=metric.direction if metric else None,
            ours=_statistics(metric) if metric and metric.n else None,
            published=[
                PublishedStatisticsReport(*(row[name] for name in PublishedStatisticsReport.__struct_fields__))
                for row in theirs
            ],
        )


def _statistics(metric: MetricReport | HostCpuReport) -> StatisticsReport:
    return StatisticsReport(*(getattr(metric, name) for name in StatisticsReport.__struct_fields__))
