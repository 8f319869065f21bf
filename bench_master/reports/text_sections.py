"""Tables of the text report: load of hosts and harness, overhead of engines, packings, published figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bench_common.safe_text import one_line
from bench_master.analysis.report_types import (
    FiguresReport,
    HostReport,
    MasterReport,
    PublishedFiguresReport,
    PublishedReport,
    ReportDocument,
)
from bench_master.analysis.treatment_types import PackingTrialReport, SampleReport, TreatmentReport
from bench_master.formatting import (
    Column,
    fit_table,
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    format_significant,
    format_span,
    paragraph,
)
from bench_master.run_data.host_samples import COLUMNS

_DIGITS: Final = 3

_LOAD: Final = {
    "cpu_user_percent": "user%",
    "cpu_system_percent": "sys%",
    "cpu_iowait_percent": "iowait%",
    "cpu_steal_percent": "steal%",
    "memory_used_bytes": "memory",
    "disk_read_bytes_per_s": "read/s",
    "disk_written_bytes_per_s": "write/s",
    "net_received_bytes_per_s": "rx/s",
    "net_sent_bytes_per_s": "tx/s",
}


def load_table(document: ReportDocument) -> list[str]:
    """Return mean and maximum of each host's samples; nothing without samples."""
    columns = [
        Column("", left=True),
        *(Column(title, droppable=title in ("rx/s", "tx/s"), optional=True) for title in _LOAD.values()),
    ]
    rows = []
    for name, process in _processes(document):
        samples = process.samples
        if samples:
            known = [samples.get(key) for key in _LOAD]
            rows.append([f"{name} mean", *("-" if one is None else _amount(one.mean, one.unit) for one in known)])
            rows.append([f"{name} max", *("-" if one is None else _amount(one.max, one.unit) for one in known)])
    return fit_table(columns, rows) if rows else []


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit.startswith("B"):
        return format_bytes(value)
    return f"{value:.1f}" if unit == "%" else format_significant(value)


def harness_table(document: ReportDocument) -> list[str]:
    """Return how busy and how late the event loops of master and workers were."""
    columns = [Column("process", left=True), Column("readings"), Column("busy mean"), Column("busy max")]
    columns += [Column("lag p99"), Column("lag max")]
    rows = []
    for name, process in _processes(document):
        loop = process.loop
        if loop:
            cells = [str(loop.n), format_percent(loop.busy_mean), format_percent(loop.busy_max)]
            rows.append([name, *cells, format_seconds(loop.lag_p99_s), format_seconds(loop.lag_max_s)])
    return fit_table(columns, rows) if rows else []


def timing_lines(entry: TreatmentReport, hosts: Sequence[HostReport]) -> list[str]:
    """Return a treatment's timing error, and how busy and how late the workers' loops were meanwhile."""
    p99, most = entry.timing_error_p99_s, entry.timing_error_max_s
    if p99 is None:
        return []
    text = f"timing error <= {format_seconds(p99, _DIGITS)} p99, {format_seconds(most, _DIGITS)} max"
    busy = entry.worker_busy_share
    if busy is not None:
        text += f"; worker loop{'s' if len(hosts) > 1 else ''} busy {format_percent(busy)}"
        text += f", lag <= {format_seconds(entry.worker_lag_max_s, _DIGITS)}"
    return paragraph(text, indent=2, hanging=4)


def disturbance_lines(entry: TreatmentReport) -> Iterator[str]:
    """Yield which trials of a treatment were disturbed, and by what; those of one cause together."""
    trials: dict[str, list[int]] = {}
    for one in entry.disturbances:
        trials.setdefault(one.text, []).append(one.trial)
    for text, numbers in trials.items():
        noun = "trial" if len(numbers) == 1 else "trials"
        yield from paragraph(
            f"disturbed  {noun} {', '.join(map(str, numbers))}: {one_line(text)}", indent=2, hanging=4
        )


def _processes(document: ReportDocument) -> Iterator[tuple[str, MasterReport | HostReport]]:
    yield "master", document.master
    for host in document.hosts:
        yield str(host.worker_id), host


def overhead_table(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return a line for each treatment whose engine was sampled; nothing without samples.

    Memory is that of a control group or of the processes (RSS); the last two columns compare with the baseline.
    """
    measured = [
        (name, entry.overhead) for name, entry in zip(names, document.treatments, strict=True) if entry.overhead
    ]
    if not measured:
        return []
    columns = [Column("treatment", left=True), Column("n"), Column("mem min"), Column("avg"), Column("max")]
    columns += [Column("PSS avg", droppable=True), Column("CPU% min"), Column("avg"), Column("max")]
    columns += [Column("Mem %"), Column("CPU x")]
    rows = []
    for name, overhead in measured:
        relative, pss = overhead.relative, overhead.pss_bytes
        rows.append(
            [
                name,
                str(overhead.memory.n if overhead.memory else 0),
                *map(format_bytes, _extremes(overhead.memory)),
                format_bytes(pss.mean if pss else None),
                *(_number(value, "{:.1f}") for value in _extremes(overhead.cpu_percent)),
                _number(relative.memory_percent if relative else None, "{:+.2f}"),
                _number(relative.cpu_factor if relative else None, "{:.2f}"),
            ]
        )
    return fit_table(columns, rows)


def _extremes(reading: SampleReport | None) -> tuple[float | None, float | None, float | None]:
    return (reading.min, reading.mean, reading.max) if reading else (None, None, None)


def overhead_notes(document: ReportDocument) -> Iterator[str]:
    """Yield the notes on the table."""
    overheads = [entry.overhead for entry in document.treatments if entry.overhead]
    if not overheads:
        return
    yield "CPU% is of one CPU; Mem % and CPU x compare averages with the baseline."
    if any(overhead.rss_bytes for overhead in overheads):
        yield (
            "mem is the RSS of the engine's processes, which counts shared pages once per process; PSS counts them "
            "once. Processes that start and exit between two readings are missed."
        )
    if any(overhead.cgroup_bytes for overhead in overheads):
        yield "mem is the memory charged to a control group, without inactive file pages."


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def packing_table(entry: TreatmentReport) -> Iterator[str]:
    """Yield a line for each packing of a treatment, then why each ended; nothing without packings."""
    packing = entry.packing
    if not packing:
        return
    columns = [Column("packed", left=True), Column("containers"), Column("memory"), Column("each")]
    columns += [Column("CPU busy"), Column("engine mem", droppable=True), Column("engine CPU", droppable=True)]
    rows = []
    for trial in packing.trials:
        steady = trial.steady
        engine = steady.get("engine_cgroup_bytes") or steady.get("engine_rss_bytes")
        rows.append(
            [
                f"trial {trial.trial} on {trial.worker}{' (warm-up)' if trial.warmup else ''}",
                str(trial.containers),
                _mean(steady.get("memory_used_bytes")),
                "-" if _within_change(trial) else format_bytes(trial.memory_per_container_bytes),
                _percent(steady.get("cpu_busy_percent")),
                _mean(engine),
                _percent(steady.get("engine_cpu_percent")),
            ]
        )
    yield ""
    yield from fit_table(columns, rows)
    for trial in packing.trials:
        if _within_change(trial):
            change = format_bytes(trial.memory_change_per_container_bytes)
            where = f"memory each, trial {trial.trial} on {trial.worker}"
            text = f"{where}: not distinguishable from the host's own changes (± {change})"
            yield from paragraph(text, indent=2, hanging=4)
    reasons = dict.fromkeys(one_line(trial.reason) for trial in packing.trials)
    yield from paragraph(f"stopped because: {'; '.join(reasons)}", indent=2, hanging=4)


_PHASES: Final = {"populate": "made before the first trial", "clear": "deleted after the last one"}


def population_table(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return what was made in stores and deleted, a line for each treatment and phase; empty where nothing was."""
    columns = [Column("objects", left=True), Column("", left=True), Column("number"), Column("there before")]
    columns += [Column("content"), Column("failed"), Column("took")]
    rows = []
    for entry, name in zip(document.treatments, names, strict=True):
        for phase, done in _PHASES.items():
            parts = [part for part in entry.population if part.phase == phase]
            if parts:
                content = sum(part.content_bytes for part in parts)
                rows.append(
                    [
                        name,
                        done,
                        format_count(sum(part.objects for part in parts)),
                        format_count(sum(part.found for part in parts)) if phase == "populate" else "",
                        format_bytes(content) if phase == "populate" else "",
                        format_count(sum(part.failed for part in parts)),
                        format_span(max(part.seconds for part in parts)),
                    ]
                )
    return list(fit_table(columns, rows)) if rows else []


def _within_change(trial: PackingTrialReport) -> bool:
    """Return whether what a packing's containers took is less than what the host's memory changed by itself."""
    each, change = trial.memory_per_container_bytes, trial.memory_change_per_container_bytes
    return each is not None and change is not None and each <= change


def packing_notes(document: ReportDocument) -> Iterator[str]:
    """Yield the notes on the tables."""
    if any(entry.packing for entry in document.treatments):
        yield (
            "packed: means of the readings during the hold, with all containers running. `each` is the additional "
            "memory in use since before the first container, divided by their number; - where the host's memory "
            "in use changed as much by itself."
        )


def _mean(figures: SampleReport | None) -> str:
    return format_bytes(None if figures is None else figures.mean)


def _percent(figures: SampleReport | None) -> str:
    return "-" if figures is None else f"{format_significant(figures.mean)}%"


def published_lines(section: PublishedReport | None) -> Iterator[str]:
    """Yield the section of published figures; nothing if the scenario names none."""
    if section is None:
        return
    yield from paragraph(f"{section.title}: {section.source}.", indent=2)
    yield from paragraph(section.caution, indent=2)
    if not section.tables:
        yield from paragraph("No published figure matches a treatment of this run.", indent=2)
    columns = [Column("source", left=True), Column("n"), Column("mean"), Column("stddev")]
    columns += [Column("min", droppable=True), Column("median"), Column("max", droppable=True)]
    for one in section.tables:
        yield ""
        sign = {"higher": ", higher is better", "lower": ", lower is better"}.get(one.direction or "", "")
        yield from paragraph(f"{one.treatment}: {one.metric} ({one.unit}{sign})", indent=2, hanging=4)
        rows = [["this run", *_cells(one.ours)]]
        rows += [[f"published: {row.where}", *_cells(row)] for row in one.published]
        yield from fit_table(columns, rows, indent=4)
        for note in dict.fromkeys(row.note for row in one.published if row.note):
            whose = ", ".join(row.where for row in one.published if row.note == note)
            yield from paragraph(f"{whose}: {note}", indent=6, hanging=8)


def published_notes(section: PublishedReport | None) -> Iterator[str]:
    """Yield the notes on the tables."""
    if section is not None and any(one.metric in COLUMNS for one in section.tables):
        yield (
            "host_cpu: ticks per second, all CPUs of a host together. n counts readings whose whole interval lies "
            "in a measured trial; user includes nice, system includes interrupts, and iowait can be negative."
        )


def _cells(figures: FiguresReport | PublishedFiguresReport | None) -> list[str]:
    if figures is None:
        return ["-"] * 6
    shown = (figures.n, figures.mean, figures.stddev, figures.min, figures.median, figures.max)
    return ["-" if value is None else format_significant(value) for value in shown]
