"""The details of the text report: where the run was made, each treatment with all its figures, and the notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from bench_common.host_info import DIGEST_DETAIL, OTHER_ENGINE, PROGRAM_DETAIL, short_digests
from bench_common.safe_text import one_line
from bench_master.analysis.document import percentile_name
from bench_master.analysis.report_types import (
    HostReport,
    ImportReport,
    ReportDocument,
    ResumeReport,
    RunReport,
    TotalsReport,
)
from bench_master.analysis.treatment_types import (
    JobCounts,
    MetricReport,
    OpenLoadReport,
    OperationReport,
    TreatmentReport,
)
from bench_master.formatting import (
    MISSING,
    MISSING_MEANS,
    Column,
    field,
    fit_table,
    format_bytes,
    format_count,
    format_seconds,
    format_significant,
    format_span,
    format_value,
    heading,
    paragraph,
    plural,
)
from bench_master.reports.side_by_side import (
    common_labels,
    format_labels,
    primary_metrics,
    scaling_tables,
    side_lines,
    treatment_names,
    varying_labels,
)
from bench_master.reports.store_tables import (
    course_lines,
    endpoint_lines,
    moved_by_class,
    moved_lines,
    operation_lines,
)
from bench_master.reports.text_sections import (
    ceiling_text,
    disturbance_lines,
    harness_table,
    load_table,
    overhead_notes,
    overhead_table,
    packing_notes,
    packing_table,
    population_table,
    pressure_notes,
    pressure_table,
    published_lines,
    published_notes,
    timing_lines,
)
from bench_master.reports.traced import why_lines
from bench_master.reports.verdict_text import comparison_lines
from bench_master.run_data.aggregate import JOB

_DIGITS: Final = 3
"""Seven times of three digits fit a line; the overview and the other formats have more."""


def details(document: ReportDocument) -> Iterator[str]:
    """Yield all that the first page leaves out."""
    names = treatment_names(document)
    yield from section("Comparisons", comparison_lines(document.verdicts))
    yield from section("Run", _run_lines(document))
    if len(names) > 1:
        common = common_labels(document)
        if common:
            yield ""
            yield from paragraph("In every treatment: " + format_labels(common))
        if document.verdicts is not None and document.verdicts.comparisons:
            yield ""
            yield from overview_table(document, names)
        yield from section("Side by side", side_lines(document, full=True))
        yield from section("Scaling", scaling_tables(document, common))
        for entry, name in zip(document.treatments, names, strict=True):
            yield ""
            yield from heading(name, "-")
            yield from treatment_block(entry, document, full=True)
    yield from section("Why", why_lines(document, names, full=True))
    yield from section("Published figures", published_lines(document.published))
    yield from section("Objects", population_table(document, names))
    yield from section("Engine overhead", overhead_table(document, names))
    yield from section("Hosts", load_table(document))
    yield from section("Pressure", pressure_table(document, names))
    yield from section("Harness", harness_table(document))
    yield from section("Notes", _notes(document))


def treatment_block(entry: TreatmentReport, document: ReportDocument, *, full: bool, said: str = "") -> Iterator[str]:
    """Yield the figures of a treatment: all with `full`, else without the metrics that are not primary.

    `said` is what stands above them already.
    """
    yield from _jobs(entry)
    yield from timing_lines(entry, document.hosts)
    yield from disturbance_lines(entry)
    yield ""
    yield from treatment_tables(entry, document.pctile, full=full)
    yield from packing_table(entry, said=said)


def overview_table(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return one line for each treatment, to compare at a glance; `names` distinguishes them."""
    return fit_table(*overview_cells(document, names), indent=0)


def overview_cells(document: ReportDocument, names: Sequence[str]) -> tuple[list[Column], list[list[str]]]:
    """Return columns and rows of the overview: a row for each treatment, a column for each label that varies.

    Jobs by outcome, the rate, the whole job and each primary metric have a column where they say something: not what
    is zero everywhere, and not what no treatment has.
    """
    treatments = document.treatments
    labels = varying_labels(treatments)
    columns = [Column(one_line(label), left=True) for label in labels] or [Column("treatment", left=True)]
    cells = [[_label(entry.treatment.get(label)) for entry in treatments] for label in labels] or [list(names)]
    outcomes: dict[str, Callable[[JobCounts], int]] = {
        "done": lambda jobs: jobs.done,
        "failed": lambda jobs: jobs.failed,
        "lost": lambda jobs: jobs.lost,
        "aborted": lambda jobs: jobs.aborted,
    }
    for name, count in outcomes.items():
        counts = [count(entry.jobs) for entry in treatments]
        if name == "done" or any(counts):
            columns.append(Column(name))
            cells.append([format_count(number) for number in counts])
    chosen = list(dict.fromkeys(("p50", percentile_name(document.pctile))))
    jobs = [entry.operations.get(JOB) for entry in treatments]
    measures = {
        "jobs/s": ["-" if one.jobs_per_s is None else format_significant(one.jobs_per_s) for one in treatments]
    }
    measures["MB/s"] = [_significant(one.objects.mb_per_s) if one.objects else "-" for one in treatments]
    for quantile in chosen:
        measures[f"job {quantile}"] = [
            format_value(job.percentiles_s[quantile] if job else None, "s", 4) for job in jobs
        ]
    measures |= {one_line(name): _medians(name, treatments) for name in primary_metrics(treatments)}
    for title, column in measures.items():
        if any(cell != "-" for cell in column):
            columns.append(Column(title, droppable=title not in ("job p50", "jobs/s")))
            cells.append(column)
    return columns, [list(row) for row in zip(*cells, strict=True)]


def _label(value: Any) -> str:
    return "-" if value is None else one_line(str(value).lower() if isinstance(value, bool) else str(value))


def _medians(name: str, treatments: Sequence[TreatmentReport]) -> list[str]:
    found = [entry.metrics.get(name) for entry in treatments]
    return ["-" if one is None or not one.n else format_value(one.median, one.unit, 4) for one in found]


def _significant(value: float | None) -> str:
    return "-" if value is None else format_significant(value)


def treatment_tables(entry: TreatmentReport, pctile: float, *, full: bool) -> Iterator[str]:
    """Yield a treatment's operations, then its metrics."""
    operations = entry.operations
    # Results that were measured elsewhere have no operation but the whole job, and that without a time.
    timed = list(operations) != [JOB] or operations[JOB].n or operations[JOB].errors
    moved = entry.objects
    if moved is not None and moved.by_operation:
        yield from operation_lines(entry)
        yield from endpoint_lines(moved, operations=full)
        if full:
            yield ""
    if timed and (full or moved is None or not moved.by_operation):
        yield from _operations(operations, percentile_name(pctile))
    if moved is not None and full:
        yield from moved_by_class(moved)
        yield from course_lines(moved)
    given = {name: metric for name, metric in entry.metrics.items() if metric.n}
    shown = given if full else {name: given[name] for name in primary_metrics([entry])}
    if shown:
        if timed:
            yield ""
        yield from _metrics(shown, percentile_name(pctile))
    if len(shown) < len(given):
        yield f"  ... and {plural(len(given) - len(shown), 'other metric')} with -v"
    if missing := [name for name, metric in entry.metrics.items() if not metric.n and (full or metric.primary)]:
        yield ""
        yield from paragraph(f"missing from every trial: {', '.join(missing)}", indent=2, hanging=4)


def _operations(operations: Mapping[str, OperationReport], chosen: str) -> list[str]:
    tail = [] if chosen in ("p99", "p50") else ["p99"]
    shown = [*dict.fromkeys(("p50", chosen))]
    failed = any(operation.errors for operation in operations.values())
    columns = [Column("operation", left=True), Column("n"), *([Column("err")] if failed else [])]
    columns += [Column(title) for title in ("min", "mean", "stddev", *shown)]
    columns += [*(Column(title, droppable=True) for title in tail), Column("max"), Column("slowest")]
    rows = []
    for name, operation in operations.items():
        percentiles = [
            format_seconds(operation.percentiles_s[quantile], _DIGITS) + _mark(quantile, operation)
            for quantile in (*shown, *tail)
        ]
        moments = (operation.min_s, operation.mean_s, operation.stddev_s)
        rows.append(
            [
                name,
                format_count(operation.n),
                *([format_count(operation.errors)] if failed else []),
                *(format_seconds(value, _DIGITS) for value in moments),
                *percentiles,
                format_seconds(operation.max_s, _DIGITS),
                "-" if operation.slowest_job is None else f"{operation.slowest_job}",
            ]
        )
    return fit_table(columns, rows)


def _mark(quantile: str, operation: OperationReport) -> str:
    return "?" if quantile == "p99" and operation.p99_marked else ""


def _metrics(metrics: Mapping[str, MetricReport], chosen: str) -> list[str]:
    columns = [Column("metric", left=True), Column("unit", left=True)]
    if all(metric.n == 1 for metric in metrics.values()):
        # One value is its own mean, extreme and percentile.
        return fit_table(
            [*columns, Column("value")], [[*_named(*each), _significant(each[1].median)] for each in metrics.items()]
        )
    columns += [Column("n"), Column("min"), Column("mean")]
    columns += [Column("stddev"), Column("median"), Column(chosen, droppable=True), Column("max"), Column("worst")]
    rows = []
    for name, metric in metrics.items():
        measures = (metric.min, metric.mean, metric.stddev, metric.median, metric.percentiles[chosen], metric.max)
        worst = "-" if metric.worst_job is None else f"{metric.worst_job}"
        rows.append([*_named(name, metric), str(metric.n), *map(_significant, measures), worst])
    return fit_table(columns, rows)


def _named(name: str, metric: MetricReport) -> list[str]:
    """Return a metric's name, and its unit with the sign of the better direction; without a unit in words."""
    if not metric.unit:
        return [name, metric.direction or ""]
    sign = {"higher": " +", "lower": " -"}.get(metric.direction or "", "")
    return [name, f"{metric.unit}{sign}"]


def _jobs(entry: TreatmentReport) -> Iterator[str]:
    jobs, trials = entry.jobs, entry.trials
    text = f"{jobs.done:,} done, {jobs.failed:,} failed"
    text += "".join(
        f", {count:,} {word}" for count, word in ((jobs.lost, "lost"), (jobs.aborted, "aborted")) if count
    )
    if jobs.not_started:
        text += f" ({jobs.not_started:,} never started)"
    ran = f"{trials.run}" if trials.run == trials.planned else f"{trials.run} of {trials.planned}"
    text += f" in {ran} trial{'s' if trials.planned != 1 else ''}"
    if jobs.warmup:
        text += f"; {jobs.warmup:,} in {_excluded(trials.left_out)}, excluded"
    yield from paragraph(f"jobs   {text}", indent=2, hanging=9)
    rate = entry.jobs_per_s
    if rate is not None:
        text = f"rate   {format_significant(rate)} jobs/s over {format_span(entry.busy_s)} of trials"
        yield from paragraph(text + ceiling_text(entry.harness), indent=2, hanging=9)
    if entry.objects is not None:
        yield from moved_lines(entry.objects)
    if entry.open_load is not None:
        yield from _open_load(entry.open_load)


def _open_load(load: OpenLoadReport) -> Iterator[str]:
    """Yield the load that was requested, offered and achieved."""
    offered, achieved, little = load.offered_per_s, load.achieved_per_s, load.littles_law
    text = f"open   requested {_significant(load.rate_per_s)} jobs/s, {load.process} arrivals"
    text += f"; offered {load.offered:,}" + (f" at {format_significant(offered)}/s" if offered is not None else "")
    text += f"; achieved {format_significant(achieved)}/s" if achieved is not None else ""
    yield from paragraph(f"{text}; dropped {load.dropped:,}", indent=2, hanging=9)
    if little is not None:
        text = f"Little's law: {format_significant(little.in_system)} jobs in the system as counted, "
        text += f"{format_significant(little.expected)} as rate times response time"
        yield from paragraph(text, indent=9, hanging=9)


_FACTS: Final = ("os", "kernel", "cpu_model", "cpu_threads", "memory", "hypervisor", "cgroup")
"""Facts of a host's fingerprint to show; the JSON report has all of them."""


def _resumed(resume: ResumeReport) -> str:
    gap = "" if resume.gap_s is None else f"{format_span(resume.gap_s)} after "
    again = len(resume.rerun_trials)
    repeated = f", {plural(again, 'incomplete trial')} run again" if again else ""
    kept = f"{resume.complete_trials} complete trials kept"
    return f"{format_time(resume.at)}, {gap}it was {resume.ended}; {kept}{repeated}"


def _origin(run: RunReport, origin: ImportReport) -> Iterator[str]:
    """Yield what is known about imported results."""
    yield from field("imported", f"{run.run_id}, {format_time(origin.at)}; time of measurement unknown")
    for file in origin.files:
        amount = f"{file.readings:,} monitor readings" if file.readings else plural(file.runs, "run")
        yield from field("from", one_line(f"{file.name}, {amount}"))
    yield from field("order", "unknown, as are hosts, times, and parameters that the outputs do not state")


def _programs(facts: Mapping[str, str]) -> str:
    """Return which file an engine is, and which ones its jobs run; JSON has the whole digests."""
    files = [(facts.get("program"), facts.get("sha256"))]
    ran = (fact.removeprefix(PROGRAM_DETAIL) for fact in facts if fact.startswith(PROGRAM_DETAIL))
    files += [(facts[f"{PROGRAM_DETAIL}{name}"], facts.get(f"{DIGEST_DETAIL}{name}")) for name in ran]
    shown = [f"{path}, sha256 {short_digests(digest)}" for path, digest in files if path and digest]
    shown += [facts[OTHER_ENGINE]] if OTHER_ENGINE in facts else []
    return f" ({'; '.join(shown)})" if shown else ""


def _host(host: HostReport) -> str:
    engines = ", ".join(
        f"{name} {version}".strip() + _programs(host.programs.get(name) or {})
        for name, version in (host.engines or {}).items()
    )
    where = f" ({host.environment})" if host.environment else ""
    slots = plural(host.slots or 0, "slot")
    return one_line(f"{host.worker_id} on {host.host}{where}, {slots}; {engines or 'no engine'}")


def host_facts(fingerprint: Mapping[str, Any]) -> str:
    """Return what a host is in one line: system, processor, memory."""
    facts = []
    for name in _FACTS:
        value = fingerprint.get(name)
        if value is None or (name == "hypervisor" and value == "none"):
            continue
        words = {"cpu_threads": f"{value} threads", "hypervisor": f"under {value}", "cgroup": f"cgroup {value}"}
        known = isinstance(value, int | float) and math.isfinite(value)
        facts.append(format_bytes(value) if name == "memory" and known else words.get(name, str(value)))
    return one_line("; ".join(facts))


def _notes(document: ReportDocument) -> Iterator[str]:
    operations = [operation for entry in document.treatments for operation in entry.operations.values()]
    metrics = [metric for entry in document.treatments for metric in entry.metrics.values()]
    if any(operation.n for operation in operations):
        failed = any(operation.errors for operation in operations)
        text = "n: successful operations of successful jobs."
        yield from _wrap_note(f"{text} err: failures, excluded from all timings." if failed else text)
        if any(entry.timing_error_max_s for entry in document.treatments):
            yield from _wrap_note("End times are upper bounds, late by the timing error at most.")
        yield from _wrap_note("`job` is a whole successful job, from its start to its end on the worker.")
        if any(entry.open_load for entry in document.treatments):
            yield from _wrap_note(
                "`response` is the time from a job's arrival to its end, as a user sees it. `job` excludes the time "
                "in the queue."
            )
        if not all(entry.open_load for entry in document.treatments):
            yield from _wrap_note(
                "Closed system: a slot starts its next job when the previous one ends, so slow jobs delay later "
                "ones unseen; set `rate` to see the delay."
            )
    if any(operation.p99_marked for operation in operations):
        yield from _wrap_note("? marks a p99 of fewer than 1000 values: it depends on a few of them.")
    if not all(operation.percentiles_exact for operation in operations):
        yield from _wrap_note("Some percentiles come from a histogram and are within 0.2 % of the true value.")
    if any(metric.n for metric in metrics):
        yield from _wrap_note("n of a metric counts trials. + means higher is better, - lower is better.")
    yield from _wrap_note(f"{MISSING} in a table: {MISSING_MEANS}.")
    notes = (
        *published_notes(document.published),
        *overhead_notes(document),
        *packing_notes(document),
        *pressure_notes(document),
    )
    for note in notes:
        yield from _wrap_note(note)
    for remark in document.remarks:
        yield from _wrap_note(f"{one_line(remark)}.")


def _wrap_note(text: str) -> list[str]:
    return paragraph(text, indent=2, hanging=4)


def section(title: str, body: Iterable[str]) -> Iterator[str]:
    """Yield a section with its heading; nothing if it is empty."""
    body = list(body)
    if body:
        yield ""
        yield from heading(title, "-")
        yield from body


def _run_lines(document: ReportDocument) -> Iterator[str]:
    """Yield where, when and of what the run was made."""
    run, scenario, totals = document.run, document.scenario, document.totals
    if scenario.description:
        yield from paragraph(one_line(scenario.description), hanging=2)
        yield ""
    if run.imported:
        yield from _origin(run, run.imported)
    else:
        yield from field("run", f"{run.run_id}, {format_time(run.created)}, took {format_span(totals.duration_s)}")
        yield from field("scenario", one_line(str(scenario.path)))
        yield from field("order", f"{run.order}, seed {run.seed}")
    for resume in run.resumes:
        yield from field("resumed", _resumed(resume))
    yield from field("jobs", totals_text(totals, document.treatments))
    yield from field("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items()))
    for host in () if run.imported else document.hosts:
        yield from field("host", _host(host))
        yield from field("", host_facts(host.fingerprint or {}))
        if host.clock_checks.uncertainty_max_s is not None:
            bound = format_seconds(host.clock_checks.uncertainty_max_s)
            yield from field("", f"clock offset to the master known within {bound}")
        for one in host.findings:
            yield from field("", one_line(f"before the run: {one.check}: {one.finding}"))
    for certificate in run.certificates:
        yield from field("certified", one_line(certificate.sentence))


def format_time(text: str | None) -> str:
    """Return an instant (ISO 8601) as people read it."""
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return str(text)


def _excluded(left_out: int) -> str:
    """Return in which trials jobs were that are in no figure."""
    return "warm-up or a trial that lost a worker" if left_out else "warm-up"


def totals_text(totals: TotalsReport, treatments: Iterable[TreatmentReport]) -> str:
    """Return the number of jobs by outcome, each counted once."""
    treatments = list(treatments)
    among = sum(entry.jobs.not_started or 0 for entry in treatments)
    parts = [f"{totals.done:,} done", f"{totals.failed:,} failed"]
    if totals.left_out:
        parts.append(f"{totals.left_out:,} left out (optional)")
    if totals.lost:
        parts.append(f"{totals.lost:,} lost")
    if totals.aborted:
        parts.append(f"{totals.aborted:,} aborted")
    if among:
        parts[-1] += f" ({among:,} of these never started)"
    if (totals.not_started or 0) > among and totals.not_started != totals.missing:
        # Where none else is missing, the head of the report has their number.
        parts.append(f"{(totals.not_started or 0) - among:,} more never started")
    text = ", ".join(parts)
    if totals.warmup:
        where = _excluded(sum(entry.trials.left_out for entry in treatments))
        text += f"; {totals.warmup:,} in {where}, excluded from all figures"
    return text
