"""The tables of a run's report, in order: text with ``-v``, Markdown and pages show the same ones.

The first page of a report has some of them in a shorter form. Verdicts are in `verdict_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bench_common.safe_text import one_line
from bench_master.analysis.document import percentile_name
from bench_master.analysis.report_types import PublishedStatisticsReport, ReportDocument, StatisticsReport
from bench_master.analysis.verdict_types import ComparisonReport, change_text, interval_text
from bench_master.formatting import (
    Column,
    format_bytes,
    format_percent,
    format_seconds,
    format_significant,
    format_span,
    format_value,
    plural,
)
from bench_master.reports.side_by_side import primary_metrics
from bench_master.reports.store_tables import endpoints, store_operations, store_tables
from bench_master.reports.table import (
    MOST_OPEN_ROWS,
    Cell,
    Field,
    Table,
    amount,
    by_treatment,
    count,
    doubtful,
    measured,
    named_treatments,
    number,
    numbers,
    seconds,
    share,
    table_of,
    treatment_table,
    words,
)
from bench_master.reports.values_text import packing_sentences, unread_text
from bench_master.reports.verdict_text import FEWEST_ROUNDS, measure_text, remark_text
from bench_master.run_data.aggregate import JOB
from bench_master.run_data.host_samples import COLUMNS
from bench_master.run_data.pressure import KINDS
from bench_master.run_data.run_types import LoopReport
from bench_master.run_data.traced_types import TracedReport, cause_sentence, shares
from bench_master.run_data.treatment_types import (
    DisturbanceReport,
    HarnessReport,
    MetricReport,
    OpenLoadReport,
    OperationReport,
    OverheadReport,
    PackingTrialReport,
    TreatmentReport,
)
from bench_master.run_data.validity import NO_IDLE_CPU

_FEW_CONDITIONS: Final = 3
_MOST_CAUSES: Final = 5
"""Causes of an operation that a table has."""


def tables(document: ReportDocument) -> list[Table]:
    """Return the tables that have rows, what a reader looks for first at the top."""
    primary, others = metrics(document)
    found = [
        treatments(document),
        open_load(document),
        *store_tables(document),
        packings(document),
        *published(document),
        primary,
        operations(document),
        others,
        _causes(document),
        overhead(document),
        _harness(document),
        _disturbances(document),
        _pressure(document),
        _hosts(document),
        _loops(document),
    ]
    return [table for table in found if table.rows]


def figures(document: ReportDocument) -> list[Table]:
    """Return the tables of the only treatment of a run, for a first page."""
    primary, others = metrics(document)
    hidden = len(others.rows)
    if hidden and primary.rows:
        primary = replace(primary, notes=[f"... and {plural(hidden, 'other metric')} with -v"])
    # What the tables below have is not in the first one, too.
    said = set(primary_metrics(document.treatments)) if primary.rows else set()
    timed = store_operations(document, full=False)
    if not timed.rows:
        timed = operations(document).without({"slowest job"})
        said |= {"job p50", f"job {percentile_name(document.pctile)}"}
    if not any(one.jobs.done for one in document.treatments):
        # What failed has a section of its own.
        timed = replace(timed, rows=[])
    first = overview(document).without(said)
    found = [first, open_load(document), timed, endpoints(document), primary, packings(document)]
    return [table for table in found if table.rows]


# -- treatments ------------------------------------------------------------------------------------------------------


def overview(document: ReportDocument) -> Table:
    """Return a row for each treatment, to compare at a glance.

    Jobs by outcome, the rate, the whole job and each primary metric have a column where they say something.
    """
    entries = document.treatments
    fields: list[Field[TreatmentReport]] = [
        *_only_name(document),
        count("done", lambda one: one.jobs.done),
        count("failed", lambda one: one.jobs.failed, optional=True),
        count("lost", lambda one: one.jobs.lost, optional=True),
        count("aborted", lambda one: one.jobs.aborted, optional=True),
        number("jobs/s", lambda one: one.jobs_per_s, optional=True),
        number("MB/s", _megabytes, droppable=True, optional=True),
        *map(_job_time, dict.fromkeys(("p50", percentile_name(document.pctile)))),
        *map(_median, primary_metrics(entries)),
    ]
    rows = [(one, one) for one in entries]
    return treatment_table(entries, "Treatments", "", fields, rows, _missing(document, primary=True))


def _only_name(document: ReportDocument) -> list[Field[TreatmentReport]]:
    """Return a column for the name of a run's only treatment, which no label tells."""
    names = [name for name, _ in named_treatments(document)]
    return [words("treatment", lambda _: names[0])] if len(names) == 1 else []


def _missing(document: ReportDocument, *, primary: bool) -> list[str]:
    """Return which metrics no trial gave, with `primary` of these alone."""

    def lacking(entry: TreatmentReport) -> Iterator[str]:
        names = [one_line(name) for name, one in entry.metrics.items() if not one.n and (one.primary or not primary)]
        if names:
            yield f"missing from every trial: {', '.join(names)}"

    return by_treatment(document, lacking)


def _megabytes(one: TreatmentReport) -> float | None:
    return one.objects.mb_per_s if one.objects is not None else None


def _job_time(name: str) -> Field[TreatmentReport]:
    def get(one: TreatmentReport) -> float | None:
        return one.operations[JOB].percentiles_s[name] if JOB in one.operations else None

    return measured(f"job {name}", get, lambda _: "s", droppable=name != "p50", optional=True)


def _median(name: str) -> Field[TreatmentReport]:
    def cell(one: TreatmentReport) -> Cell:
        metric = one.metrics.get(name)
        if metric is None or not metric.n:
            return Cell("-")
        return Cell(format_value(metric.median, metric.unit), metric.median)

    return Field(Column(one_line(name), droppable=True, optional=True), cell)


def treatments(document: ReportDocument) -> Table:
    """Return each treatment's trials, jobs by outcome and rates."""
    fields: list[Field[TreatmentReport]] = [
        *_only_name(document),
        words("trials", lambda one: f"{one.trials.run} of {one.trials.planned}"),
        count("done", lambda one: one.jobs.done),
        count("failed", lambda one: one.jobs.failed),
        count("lost", lambda one: one.jobs.lost, optional=True),
        count("aborted", lambda one: one.jobs.aborted, optional=True),
        count("not started", lambda one: one.jobs.not_started, optional=True, droppable=True),
        count("warm-up", lambda one: one.jobs.warmup, optional=True, droppable=True),
        number("jobs/s", lambda one: one.jobs_per_s),
        number("MB/s", _megabytes, optional=True),
        Field(Column("trials took", droppable=True), lambda one: Cell(format_span(one.busy_s), one.busy_s)),
    ]
    caption = "Jobs by outcome; those of warm-up are in no figure."
    rows = [(one, one) for one in document.treatments]
    return treatment_table(
        document.treatments, "Treatments", caption, fields, rows, _missing(document, primary=False)
    )


def open_load(document: ReportDocument) -> Table:
    """Return the load that was requested, offered and achieved where jobs arrive at a rate."""
    fields: list[Field[OpenLoadReport]] = [
        number("requested/s", lambda one: one.rate_per_s),
        words("arrivals", lambda one: one.process),
        count("offered", lambda one: one.offered),
        number("offered/s", lambda one: one.offered_per_s),
        number("achieved/s", lambda one: one.achieved_per_s),
        count("dropped", lambda one: one.dropped),
        number("in the system", lambda one: one.littles_law.in_system if one.littles_law else None, optional=True),
        number("expected", lambda one: one.littles_law.expected if one.littles_law else None, optional=True),
    ]
    rows = [(entry, entry.open_load) for entry in document.treatments if entry.open_load is not None]
    law = any(one.littles_law for _, one in rows)
    caption = "In the system: jobs as counted; expected: rate times response time, by Little's law." if law else ""
    return treatment_table(document.treatments, "Open load", caption, fields, rows)


# -- operations and metrics ------------------------------------------------------------------------------------------

_Operation = tuple[str, OperationReport]


def operations(document: ReportDocument) -> Table:
    """Return the durations of each operation of each treatment."""
    chosen = percentile_name(document.pctile)

    def quantile(name: str, **column: bool) -> Field[_Operation]:
        field: Field[_Operation] = seconds(name, lambda row: row[1].percentiles_s.get(name), **column)
        return doubtful(field, lambda row: name == "p99" and row[1].p99_marked)

    fields: list[Field[_Operation]] = [
        words("operation", lambda row: row[0]),
        count("n", lambda row: row[1].n),
        count("errors", lambda row: row[1].errors, optional=True),
        seconds("min", lambda row: row[1].min_s),
        seconds("mean", lambda row: row[1].mean_s, droppable=True),
        seconds("stddev", lambda row: row[1].stddev_s, droppable=True),
        *(quantile(name, droppable=name == "p99" != chosen) for name in dict.fromkeys(("p50", chosen, "p99"))),
        seconds("max", lambda row: row[1].max_s),
        count("slowest job", lambda row: row[1].slowest_job, droppable=True),
    ]
    rows = [
        (entry, (name, one))
        for entry in document.treatments
        for name, one in entry.operations.items()
        if one.n or one.errors
    ]
    compared = {each.measure.partition(".")[0] for each in document.verdicts.comparisons} if document.verdicts else ()
    caption = "Durations of operations that were done."
    if any(row[1][0] in compared for row in rows):
        caption += " They are of all jobs; what a verdict compares is the middle of the trials."
    long = len(rows) > MOST_OPEN_ROWS
    return treatment_table(document.treatments, "Operations", caption, fields, rows, folded=long)


_Metric = tuple[str, MetricReport]


def metrics(document: ReportDocument) -> tuple[Table, Table]:
    """Return the primary metrics of workloads, and all others; without primary ones all are in the second table."""
    every = [
        (entry, (name, metric)) for entry in document.treatments for name, metric in entry.metrics.items() if metric.n
    ]
    compared = {each.measure for each in document.verdicts.comparisons} if document.verdicts is not None else set()
    first = {name for _, (name, metric) in every if metric.primary or name in compared}
    primary = [row for row in every if row[1][0] in first]
    others = [row for row in every if row[1][0] not in first]
    rest = _metric_table(document, "Other metrics" if primary else "Metrics", others)
    return (
        _metric_table(document, "Primary metrics", primary),
        replace(rest, folded=bool(primary) or len(others) > MOST_OPEN_ROWS),
    )


def _metric_table(document: ReportDocument, name: str, rows: Sequence[tuple[TreatmentReport, _Metric]]) -> Table:
    chosen = percentile_name(document.pctile)

    def value(title: str, get: Callable[[MetricReport], float | None], **column: bool) -> Field[_Metric]:
        return measured(title, lambda row: get(row[1]), lambda row: row[1].unit, **column)

    fields: list[Field[_Metric]] = [
        words("metric", lambda row: row[0]),
        words("better", lambda row: row[1].direction),
    ]
    if all(metric.n == 1 for _, (_, metric) in rows):
        fields += [value("value", lambda one: one.median)]
    else:
        fields += [
            count("trials", lambda row: row[1].n),
            value("median", lambda one: one.median),
            value("mean", lambda one: one.mean, droppable=True),
            value("stddev", lambda one: one.stddev, droppable=True),
            value("min", lambda one: one.min),
            value(chosen, lambda one: one.percentiles.get(chosen), droppable=True),
            value("max", lambda one: one.max),
            count("worst job", lambda row: row[1].worst_job, droppable=True),
        ]
    return treatment_table(document.treatments, name, "What workloads measured, over trials.", fields, rows)


# -- packings --------------------------------------------------------------------------------------------------------


def packings(document: ReportDocument) -> Table:
    """Return how many containers each packing held, and what these, host and engine used meanwhile."""

    def reading(name: str, *others: str) -> Callable[[PackingTrialReport], float | None]:
        return lambda one: next((one.steady[each].mean for each in (name, *others) if each in one.steady), None)

    def used(title: str, name: str, **column: bool) -> Field[PackingTrialReport]:
        return numbers(title, reading(name), lambda value: f"{format_significant(value)}%", **column)

    fields: list[Field[PackingTrialReport]] = [
        words("trial", lambda one: f"{one.trial} on {one.worker}{' (warm-up)' if one.warmup else ''}"),
        count("held", lambda one: one.containers),
        amount("memory", reading("container_memory_bytes")),
        used("CPU", "container_cpu_percent"),
        seconds("up in", lambda one: one.start_s),
        amount("host memory", reading("memory_used_bytes")),
        Field(Column("each"), _memory_each),
        used("host CPU", "cpu_busy_percent"),
        amount("engine memory", reading("engine_cgroup_bytes", "engine_rss_bytes"), droppable=True),
        used("engine CPU", "engine_cpu_percent", droppable=True),
    ]
    rows = [(entry, trial) for entry in document.treatments if entry.packing for trial in entry.packing.trials]
    caption = (
        "Memory and CPU (of one CPU) of a container by its own control group, and of host and engine, while all "
        "containers were held; up in: the median time from creation until a container is up; each: memory of the "
        "host beyond that before the first container, divided by their number."
    )
    return treatment_table(document.treatments, "Packings", caption, fields, rows, packing_notes(document))


def _memory_each(one: PackingTrialReport) -> Cell:
    """Return what each container took; an upper limit where the host's memory changed as much by itself."""
    limit = one.memory_limit_per_container_bytes
    each = one.memory_per_container_bytes
    return Cell(format_bytes(each), each) if limit is None else Cell(f"<{format_bytes(limit)}", limit)


def packing_notes(document: ReportDocument) -> list[str]:
    """Return what the packings of a run say and mean, with the treatment's name where there are several."""
    packed = [(name, entry) for name, entry in named_treatments(document) if entry.packing]
    texts = [
        f"{name}: {text}" if len(packed) > 1 else text for name, entry in packed for text in packing_sentences(entry)
    ]
    found = [entry.packing for _, entry in packed if entry.packing]
    trials = [trial for packing in found for trial in packing.trials]
    if any(trial.memory_limit_per_container_bytes is not None for trial in trials):
        texts.append("< in each: not distinguishable from what the host's memory changed by itself")
    texts += dict.fromkeys(text for text in map(unread_text, found) if text)
    if reasons := dict.fromkeys(one_line(trial.reason) for trial in trials):
        texts.append(f"stopped because: {'; '.join(reasons)}")
    return texts


# -- engines and hosts -----------------------------------------------------------------------------------------------


def overhead(document: ReportDocument) -> Table:
    """Return what the engine's own processes used, where they were sampled."""
    fields: list[Field[OverheadReport]] = [
        count("readings", lambda one: one.memory.n if one.memory else 0, droppable=True),
        amount("memory min", lambda one: one.memory.min if one.memory else None),
        amount("mean", lambda one: one.memory.mean if one.memory else None),
        amount("max", lambda one: one.memory.max if one.memory else None),
        amount("PSS mean", lambda one: one.pss_bytes.mean if one.pss_bytes else None, droppable=True, optional=True),
        number("CPU% min", lambda one: one.cpu_percent.min if one.cpu_percent else None),
        number("mean", lambda one: one.cpu_percent.mean if one.cpu_percent else None),
        number("max", lambda one: one.cpu_percent.max if one.cpu_percent else None),
        seconds("CPU/job", lambda one: one.cpu_per_job_s, droppable=True, optional=True),
        numbers("Mem %", lambda one: getattr(one.relative, "memory_percent", None), "{:+.2f}".format, optional=True),
        numbers("CPU x", lambda one: getattr(one.relative, "cpu_factor", None), "{:.2f}".format, optional=True),
    ]
    rows = [(entry, entry.overhead) for entry in document.treatments if entry.overhead]
    caption = "CPU% is of one CPU; Mem % and CPU x compare means with the baseline."
    if any(one.rss_bytes for _, one in rows):
        caption += (
            " Memory is the RSS of the engine's processes, which counts shared pages once per process; PSS counts "
            "them once. Processes that start and exit between two readings are missed."
        )
    if any(one.cgroup_bytes for _, one in rows):
        caption += " Memory is that charged to a control group, without inactive file pages."
    return treatment_table(document.treatments, "Engine overhead", caption, fields, rows)


def _harness(document: ReportDocument) -> Table:
    fields: list[Field[TreatmentReport]] = [
        seconds("timing error p99", lambda one: one.timing_error_p99_s),
        seconds("max", lambda one: one.timing_error_max_s, droppable=True),
        share("loop busy", lambda one: one.worker_busy_share, optional=True),
        seconds("loop lag", lambda one: one.worker_lag_max_s, optional=True),
        number("harness's own", lambda one: one.harness.ceiling_per_s if one.harness else None, optional=True),
        share("share of it", lambda one: one.harness.share if one.harness else None, optional=True),
        share("its CPU", lambda one: one.harness.cpu_share if one.harness else None, optional=True, droppable=True),
        share("idle CPU", lambda one: one.harness.idle_share if one.harness else None, optional=True, droppable=True),
    ]
    rows = [(one, one) for one in document.treatments if one.timing_error_p99_s is not None or one.harness]
    caption = "How late an end may be stamped at most, and how busy and late the workers' event loops were."
    if any(one.harness is not None and one.harness.ceiling_per_s is not None for one in document.treatments):
        caption += (
            " What the harness itself can do here, in jobs/s: jobs that do nothing, as many at once and with as many "
            "operations. A rate of 80 % of it says nothing of what ran."
        )
    notes = dict.fromkeys(
        _ceiling(one.harness) for one in document.treatments if one.harness and one.harness.ceiling is not None
    )
    return treatment_table(document.treatments, "Harness", caption, fields, rows, list(notes))


def _ceiling(harness: HarnessReport) -> str:
    text = f"{harness.ceiling}, {(harness.measured or '').partition('T')[0]}"
    if harness.others_share is not None:
        text += f", beside others with {format_percent(harness.others_share)} of the CPUs"
    return f"harness's own: {text}"


def _disturbances(document: ReportDocument) -> Table:
    fields: list[Field[tuple[str, str]]] = [words("trials", lambda row: row[0]), words("what", lambda row: row[1])]
    rows = [(entry, row) for entry in document.treatments for row in disturbances(entry)]
    caption = "Trials in which something else took much of a host, the worst of them in words."
    return treatment_table(document.treatments, "Disturbances", caption, fields, rows, folded=True)


def disturbances(entry: TreatmentReport) -> Iterator[tuple[str, str]]:
    """Yield which trials of a treatment were disturbed, and by what; those of one cause together.

    Each trial has its own share of it, so the worst trial stands for all.
    """
    found: dict[tuple[str, str], list[DisturbanceReport]] = {}
    for one in entry.disturbances:
        place = str(one.worker) if one.kind == NO_IDLE_CPU else one.what if one.kind in KINDS else one.text
        found.setdefault((one.kind, place), []).append(one)
    for (kind, _), own in found.items():
        trials = list(dict.fromkeys(one.trial for one in own))
        worst = max(own, key=lambda one: one.share or 0.0)
        which = f" (at worst {worst.trial})" if kind in (*KINDS, NO_IDLE_CPU) and len(trials) > 1 else ""
        yield f"{', '.join(map(str, trials))}{which}", one_line(worst.text)


_PRESSURE: Final = {
    "cpu-pressure": "CPU wait",
    "io-pressure": "I/O wait",
    "memory-pressure": "memory wait",
    "run-queue": "run queue",
    "steal": "steal",
    "softirq": "softirq",
}


def _pressure(document: ReportDocument) -> Table:
    Reading = tuple[str, dict[str, float]]  # noqa: N806  a type

    def of(kind: str) -> Callable[[Reading], float | None]:
        return lambda row: row[1].get(kind)

    fields: list[Field[Reading]] = [words("trial", lambda row: row[0])]
    fields += [share(title, of(kind), optional=True) for kind, title in _PRESSURE.items()]
    rows = [
        (entry, (name, {kind: getattr(one, word) for kind, one in entry.pressure.items()}))
        for entry in document.treatments
        if entry.pressure
        for name, word in (("middle", "median"), ("largest", "max"))
    ]
    caption = (
        "CPU, I/O and memory wait: share of the time in which some task of the host waited, the jobs' own among "
        "them; run queue: in which the load process waited for a CPU. Steal and softirq are shares of all CPU time."
    )
    return treatment_table(document.treatments, "Pressure", caption, fields, rows, folded=True)


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
_Samples = tuple[str, Mapping[str, tuple[float | None, str]]]


def _hosts(document: ReportDocument) -> Table:
    def load(name: str, title: str) -> Field[_Samples]:
        def cell(row: _Samples) -> Cell:
            value, unit = row[1].get(name, (None, ""))
            text = "-" if value is None else format_bytes(value) if unit.startswith("B") else f"{value:.1f}"
            return Cell(text, value)

        return Field(Column(title, droppable=title in ("rx/s", "tx/s"), optional=True), cell)

    rows: list[_Samples] = []
    for name, process in _processes(document):
        for word in ("mean", "max") if process.samples else ():
            found = {key: (getattr(one, word), one.unit) for key, one in process.samples.items()}
            rows.append((f"{name} {word}", found))
    fields: list[Field[_Samples]] = [
        words("host", lambda row: row[0]),
        *(load(name, title) for name, title in _LOAD.items()),
    ]
    return table_of("Hosts", "", fields, rows, folded=True)


def _processes(document: ReportDocument) -> Iterator[tuple[str, Any]]:
    yield "master", document.master
    for host in document.hosts:
        yield str(host.worker_id), host


def _loops(document: ReportDocument) -> Table:
    fields: list[Field[tuple[str, LoopReport]]] = [
        words("process", lambda row: row[0]),
        count("readings", lambda row: row[1].n),
        share("busy mean", lambda row: row[1].busy_mean),
        share("busy max", lambda row: row[1].busy_max),
        seconds("lag p99", lambda row: row[1].lag_p99_s),
        seconds("lag max", lambda row: row[1].lag_max_s),
    ]
    rows = [(name, process.loop) for name, process in _processes(document) if process.loop]
    return table_of("Event loops", "", fields, rows, folded=True)


# -- traced jobs, published figures ----------------------------------------------------------------------------------


def _causes(document: ReportDocument) -> Table:
    fields: list[Field[tuple[str, Any, float]]] = [
        words("operation", lambda row: row[0]),
        words("cause", lambda row: row[1].cause),
        words("process", lambda row: row[1].process),
        seconds("a job", lambda row: row[1].seconds),
        share("share", lambda row: row[2]),
        words("where in the kernel", lambda row: row[1].where, droppable=True),
    ]
    rows = [
        (
            document.treatments[traced.treatment],
            (operation.operation, one, one.seconds / operation.total_s if operation.total_s else 0.0),
        )
        for traced in document.traced
        for operation in traced.phases
        for one in [*shares(operation)][:_MOST_CAUSES]
    ]
    title = [entry.title for entry in document.treatments]
    notes = [f"{title[one.treatment]}: {cause_sentence(each)}." for one in document.traced for each in one.phases]
    notes += [
        f"{title[one.treatment]}: "
        + (f"not traced: {one_line(one.problem)}" if one.problem else _sampling_text(document, one))
        for one in document.traced
    ]
    caption = "Where the time of operations went, by a few jobs that were traced after the measured ones."
    return treatment_table(document.treatments, "Why", caption, fields, rows, notes)


def _sampling_text(document: ReportDocument, traced: TracedReport) -> str:
    """Return how the threads were looked at, and the traced durations beside the medians of the measured jobs."""
    sampling = traced.sampling
    if sampling is None:
        return ""
    text = (
        f"{traced.jobs} jobs after the measured ones, one at a time, in no other figure. Threads were looked at "
        f"every {format_seconds(sampling.interval_s, 2)} (at most {format_seconds(sampling.longest_gap_s, 2)} "
        f"apart), which took {sampling.cpu_share:.2f} CPUs; a process that lives for less is missed."
    )
    if not sampling.stacks:
        text += (
            " The kernel's stacks were not readable (that takes root): causes are by the innermost function alone."
        )
    if sampling.cut:
        text += " The trial was longer than the sampler keeps: its end is missing."
    median_of = document.treatments[traced.treatment].operations
    found = [
        f"{one_line(one.operation)} {format_value(one.total_s, 's')} ({format_value(median, 's')})"
        for one in traced.phases
        if (own := median_of.get(one.operation)) and (median := own.percentiles_s.get("p50")) is not None
    ]
    return text + (f" Traced, and in parentheses the measured median: {', '.join(found)}." if found else "")


_Figures = tuple[str, StatisticsReport | PublishedStatisticsReport]


def published(document: ReportDocument) -> list[Table]:
    """Return the published figures beside those of this run, a table for each measure of each treatment."""
    section = document.published
    if section is None:
        return []
    fields: list[Field[_Figures]] = [
        words("source", lambda row: row[0]),
        count("n", lambda row: row[1].n),
        number("mean", lambda row: row[1].mean),
        number("stddev", lambda row: row[1].stddev),
        number("min", lambda row: row[1].min, droppable=True),
        number("median", lambda row: row[1].median),
        number("max", lambda row: row[1].max, droppable=True),
    ]
    found: list[Table] = []
    for one in section.tables:
        sign = {"higher": ", higher is better", "lower": ", lower is better"}.get(one.direction or "", "")
        rows: list[_Figures] = [("this run", one.ours)] if one.ours is not None else []
        rows += [(f"published: {row.where}", row) for row in one.published]
        notes = [
            f"{', '.join(row.where for row in one.published if row.note == note)}: {note}"
            for note in dict.fromkeys(row.note for row in one.published if row.note)
        ]
        if one.metric in COLUMNS:
            notes.append(
                "Ticks per second, all CPUs of a host together. n counts readings whose whole interval lies in a "
                "measured trial; user includes nice, system includes interrupts, and iowait can be negative."
            )
        intro = "" if found else f"{section.title}: {section.source}. {section.caution} "
        caption = f"{intro}{one.treatment}: {one.metric} ({one.unit}{sign})."
        found.append(table_of("Published figures", caption, fields, rows, notes))
    return found


# -- verdicts --------------------------------------------------------------------------------------------------------


def comparisons(document: ReportDocument) -> Table:
    """Return the verdict on each difference from its baseline; what is the same in all rows is in the caption."""
    found = document.verdicts.comparisons if document.verdicts is not None else ()
    by_title = {each.title: each for each in document.treatments}
    notes = list(dict.fromkeys(filter(None, (remark_text(each) for each in found))))
    # What limits all verdicts alike needs no mark.
    is_marked = len(notes) > 1 or any(not remark_text(each) for each in found)
    marks = {note: f"[{place}]" for place, note in enumerate(notes, 1)} if is_marked else {}
    fields: list[Field[ComparisonReport]] = [
        words("verdict", lambda one: f"{one.word.lower()} {marks.get(remark_text(one), '')}".rstrip()),
        Field(Column("difference", optional=True), lambda one: Cell(change_text(one), one.ratio)),
        Field(Column("interval", optional=True), lambda one: Cell(interval_text(one, FEWEST_ROUNDS), one.low)),
        count("rounds", lambda one: one.rounds),
        measured("value", lambda one: one.b_value, lambda one: one.unit),
        measured("of baseline", lambda one: one.a_value, lambda one: one.unit),
    ]
    caption = "The verdict on each difference from its baseline, with its interval."
    named: dict[str, Callable[[ComparisonReport], str]] = {
        "baseline": lambda one: _base_name(one, by_title[one.a].treatment if one.a in by_title else {}),
        "measure": lambda one: measure_text(one.measure),
    }
    for title, name in named.items():
        field = words(title, name)
        texts = {field.cell(each).text for each in found}
        if len(texts) == 1:
            caption += f" {title.capitalize()}: {texts.pop()}."
        else:
            fields.append(field)
    rows = [(by_title[each.b], each) for each in found if each.b in by_title]
    numbered = [f"{marks[note]} {note}" for note in notes] if marks else notes
    return treatment_table(document.treatments, "Comparisons", caption, fields, rows, numbered)


def _base_name(comparison: ComparisonReport, base: Mapping[str, Any]) -> str:
    """Return what tells a baseline from what is compared with it."""
    own = [str(value) for key, value in base.items() if comparison.labels.get(key) != value]
    return " ".join(own) or comparison.a


def claims(document: ReportDocument) -> Table:
    """Return what became of the claims that the scenario made before the first job."""
    made = document.verdicts.claims if document.verdicts is not None else None
    fields: list[Field[Any]] = [
        words("claim about", lambda one: one.name),
        words("says", lambda one: one.says),
        words("measure", lambda one: one.measure),
        count("rounds", lambda one: one.rounds),
        words("state", lambda one: one.state if one.state == "kept" else one.state.upper()),
        words("values", lambda one: one.text),
    ]
    caption = "" if made is None else f"Registered before the first job, sha256 {made.sha256}."
    return table_of("Claims", caption, fields, made.claims if made is not None else ())


def conditions(document: ReportDocument) -> Table:
    """Return thresholds and gates: what the exit code depends on."""
    rows: list[tuple[str, str, str]] = [
        (each.threshold, document.threshold_state(each), each.message) for each in document.thresholds
    ]
    if document.verdicts is not None:
        rows += [(gate.gate, gate.state, gate.text) for gate in document.verdicts.gates]
    fields: list[Field[tuple[str, str, str]]] = [
        words("threshold or gate", lambda row: row[0]),
        words("state", lambda row: row[1] if row[1] == "passed" else row[1].upper()),
        words("values", lambda row: row[2]),
    ]
    dull = len(rows) > _FEW_CONDITIONS and all(row[1] == "passed" for row in rows)
    return table_of("Thresholds and gates", "What the exit code depends on.", fields, rows, folded=dull)
