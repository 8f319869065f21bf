"""Tables of the text report: load of hosts and harness, overhead of engines, packings, published figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bench_common.safe_text import one_line
from bench_master.analysis.report_types import (
    HostReport,
    MasterReport,
    PublishedReport,
    PublishedStatisticsReport,
    ReportDocument,
    StatisticsReport,
)
from bench_master.analysis.treatment_types import (
    DisturbanceReport,
    HarnessReport,
    PackingTrialReport,
    SampleReport,
    TreatmentReport,
)
from bench_master.analysis.validity import NO_IDLE_CPU
from bench_master.formatting import (
    Column,
    fit_table,
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    format_significant,
    format_span,
    format_value,
    paragraph,
)
from bench_master.reports.packing_text import packing_sentences, unread_text
from bench_master.run_data.host_samples import COLUMNS
from bench_master.run_data.pressure import KINDS

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
    harness = entry.harness
    if harness is not None and harness.cpu_share is not None:
        text += f"; the harness took {format_percent(harness.cpu_share)} of the host's CPUs"
        text += f", {format_percent(harness.idle_share)} were idle"
    return paragraph(text, indent=2, hanging=4)


def ceiling_text(harness: HarnessReport | None) -> str:
    """Return what stands behind a rate: what the harness itself can do here; empty where nobody knows."""
    if harness is None or harness.ceiling_per_s is None or harness.share is None:
        return ""
    ceiling, when = format_significant(harness.ceiling_per_s), (harness.measured or "").partition("T")[0]
    how = one_line(f"{harness.ceiling}, {when}")
    if harness.others_share is not None:
        how += f", beside others with {format_percent(harness.others_share)} of the CPUs"
    return f"; {format_percent(harness.share)} of the {ceiling} jobs/s that the harness itself can do here ({how})"


def disturbance_lines(entry: TreatmentReport) -> Iterator[str]:
    """Yield which trials of a treatment were disturbed, and by what; those of one cause together.

    Each trial has its own share of it, so the worst trial stands for all.
    """
    found: dict[tuple[str, str], list[DisturbanceReport]] = {}
    for one in entry.disturbances:
        place = str(one.worker) if one.kind == NO_IDLE_CPU else one.what if one.kind in KINDS else one.text
        found.setdefault((one.kind, place), []).append(one)
    for (kind, _), own in found.items():
        trials = list(dict.fromkeys(one.trial for one in own))
        noun = "trial" if len(trials) == 1 else "trials"
        worst = max(own, key=lambda one: one.share or 0.0)
        which = f" (at worst {worst.trial})" if kind in (*KINDS, NO_IDLE_CPU) and len(trials) > 1 else ""
        yield from paragraph(
            f"disturbed  {noun} {', '.join(map(str, trials))}{which}: {one_line(worst.text)}", indent=2, hanging=4
        )


_PRESSURE: Final = {
    "cpu-pressure": "CPU wait",
    "io-pressure": "I/O wait",
    "memory-pressure": "memory wait",
    "run-queue": "run queue",
    "steal": "steal",
    "softirq": "softirq",
}


def pressure_table(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return how much the hosts' work was held up in each treatment's trials; nothing without readings."""
    columns = [Column("%", left=True), *(Column(title, optional=True) for title in _PRESSURE.values())]
    rows = []
    for name, entry in zip(names, document.treatments, strict=True):
        if entry.pressure:
            known = [entry.pressure.get(kind) for kind in _PRESSURE]
            rows.append([f"{name} middle", *("-" if one is None else f"{100 * one.median:.1f}" for one in known)])
            rows.append([f"{name} max", *("-" if one is None else f"{100 * one.max:.1f}" for one in known)])
    return fit_table(columns, rows) if rows else []


def pressure_notes(document: ReportDocument) -> Iterator[str]:
    """Yield the note on that table."""
    if any(entry.pressure for entry in document.treatments):
        yield (
            "Pressure is that of the middle trial and of the largest. CPU, I/O and memory wait: share of the time in "
            "which some task of the host waited, the jobs' own among them; run queue: in which the load process "
            "waited for a CPU. Steal and softirq are shares of all CPU time."
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
    columns += [Column("CPU/job", droppable=True), Column("Mem %"), Column("CPU x")]
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
                format_seconds(overhead.cpu_per_job_s, 3),
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


_PACKED: Final = (
    Column("trial", left=True),
    Column("held"),
    Column("memory"),
    Column("CPU"),
    Column("up in"),
    Column("host mem"),
    Column("each"),
    Column("host CPU"),
    Column("engine mem"),
    Column("engine CPU"),
)
_NARROW: Final = 8
"""Of them, so many fit on a page of text; a sentence has what the engine used."""


def packing_table(entry: TreatmentReport, *, said: str = "") -> Iterator[str]:
    """Yield a line for each packing of a treatment, what they say, and why each ended; nothing without packings.

    `said` is what stands above it already.
    """
    if entry.packing:
        yield ""
        yield from _packing_lines(entry, said=said)
        yield from _remark_lines([entry])


def packing_tables(treatments: Sequence[TreatmentReport], names: Sequence[str]) -> Iterator[str]:
    """Yield that for several treatments, below the name of each; what holds for all packings is said once."""
    packed = [(name, entry) for name, entry in zip(names, treatments, strict=True) if entry.packing]
    for name, entry in packed:
        yield from paragraph(name, indent=2, hanging=4)
        yield from _packing_lines(entry)
    yield from _remark_lines([entry for _, entry in packed])


def _packing_lines(entry: TreatmentReport, *, said: str = "") -> Iterator[str]:
    trials = entry.packing.trials if entry.packing else ()
    yield from fit_table(_PACKED[:_NARROW], [packing_cells(trial)[:_NARROW] for trial in trials])
    for text in packing_sentences(entry):
        if text not in said:
            yield from paragraph(text, indent=2, hanging=4)


def _remark_lines(treatments: Sequence[TreatmentReport]) -> Iterator[str]:
    for remark in packing_remarks(treatments):
        yield from paragraph(remark, indent=2, hanging=4)


def packing_cells(trial: PackingTrialReport) -> list[str]:
    """Return what a packing is, how many containers it held, and what these, host and engine used meanwhile."""
    steady = trial.steady
    return [
        f"{trial.trial} on {trial.worker}{' (warm-up)' if trial.warmup else ''}",
        str(trial.containers),
        _mean(steady.get("container_memory_bytes")),
        _percent(steady.get("container_cpu_percent")),
        format_value(trial.start_s, "s"),
        _mean(steady.get("memory_used_bytes")),
        _memory_each(trial),
        _percent(steady.get("cpu_busy_percent")),
        _mean(steady.get("engine_cgroup_bytes") or steady.get("engine_rss_bytes")),
        _percent(steady.get("engine_cpu_percent")),
    ]


def packing_remarks(treatments: Sequence[TreatmentReport]) -> Iterator[str]:
    """Yield what the cells of packings mean where that is not plain, and why each packing ended."""
    trials = [trial for entry in treatments if entry.packing for trial in entry.packing.trials]
    if any(trial.memory_limit_per_container_bytes is not None for trial in trials):
        yield "< in `each`: not distinguishable from what the host's memory changed by itself"
    packings = [entry.packing for entry in treatments if entry.packing]
    yield from dict.fromkeys(text for text in map(unread_text, packings) if text)
    if reasons := dict.fromkeys(one_line(trial.reason) for trial in trials):
        yield f"stopped because: {'; '.join(reasons)}"


def packings_of_all(document: ReportDocument, names: Sequence[str]) -> tuple[list[Column], list[list[str]]]:
    """Return one table of all packings of a run; one without rows where nothing was packed."""
    return [Column("treatment", left=True), *_PACKED], [
        [name, *packing_cells(trial)]
        for entry, name in zip(document.treatments, names, strict=True)
        if entry.packing
        for trial in entry.packing.trials
    ]


def packings_notes(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return what the packings of a run say and mean, with the treatment's name where there are several."""
    packed = [(name, entry) for name, entry in zip(names, document.treatments, strict=True) if entry.packing]
    texts = [
        f"{name}: {text}" if len(packed) > 1 else text for name, entry in packed for text in packing_sentences(entry)
    ]
    return [*texts, *packing_remarks(document.treatments)]


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


def _memory_each(trial: PackingTrialReport) -> str:
    """Return what each container took; an upper limit where the host's memory changed as much by itself."""
    limit = trial.memory_limit_per_container_bytes
    return format_bytes(trial.memory_per_container_bytes) if limit is None else f"<{format_bytes(limit)}"


def packing_notes(document: ReportDocument) -> Iterator[str]:
    """Yield the notes on the tables."""
    if any(entry.packing for entry in document.treatments):
        yield (
            "packings: `memory` and `CPU` (of one CPU) are means of what the containers' own control groups counted "
            "during the hold, `up in` is the median time from a container's creation until it is up. The others are "
            "means of the readings of host and engine meanwhile. `each` is the additional memory in use since before "
            "the first container, divided by their number; with < it is less than the host's memory changed by "
            "itself."
        )


def _mean(statistics: SampleReport | None) -> str:
    return format_bytes(None if statistics is None else statistics.mean)


def _percent(statistics: SampleReport | None) -> str:
    return "-" if statistics is None else f"{format_significant(statistics.mean)}%"


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


def _cells(statistics: StatisticsReport | PublishedStatisticsReport | None) -> list[str]:
    if statistics is None:
        return ["-"] * 6
    shown = (statistics.n, statistics.mean, statistics.stddev, statistics.min, statistics.median, statistics.max)
    return ["-" if value is None else format_significant(value) for value in shown]
