"""The details of the text report: where the run was made, each treatment with all its figures, and the notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from bench_common.safe_text import one_line
from bench_master.analysis.aggregate import JOB
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
    Column,
    field,
    fit_table,
    format_bytes,
    format_count,
    format_seconds,
    format_significant,
    format_span,
    heading,
    paragraph,
    plural,
)
from bench_master.reports.side_by_side import (
    common_labels,
    format_labels,
    scaling_tables,
    side_lines,
    treatment_names,
)
from bench_master.reports.text_sections import (
    disturbance_lines,
    harness_table,
    load_table,
    overhead_notes,
    overhead_table,
    packing_notes,
    packing_table,
    published_lines,
    published_notes,
    timing_lines,
)
from bench_master.reports.verdict_text import comparison_lines

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
            yield from treatment_block(entry, document)
    yield from section("Published figures", published_lines(document.published))
    yield from section("Engine overhead", overhead_table(document, names))
    yield from section("Hosts", load_table(document))
    yield from section("Harness", harness_table(document))
    yield from section("Notes", _notes(document))


def treatment_block(entry: TreatmentReport, document: ReportDocument) -> Iterator[str]:
    """Yield all figures of a treatment."""
    yield from _jobs(entry)
    yield from timing_lines(entry, document.hosts)
    yield from disturbance_lines(entry)
    yield ""
    yield from treatment_tables(entry, document.pctile)
    yield from packing_table(entry)


def overview_table(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return one line for each treatment, to compare at a glance; `names` distinguishes them."""
    return fit_table(*overview_cells(document, names), indent=0)


def overview_cells(document: ReportDocument, names: Sequence[str]) -> tuple[list[Column], list[list[str]]]:
    """Return columns and rows of the overview.

    Lost jobs, aborted jobs and the median of each treatment's first metric have a column if there are any.
    """
    treatments = document.treatments
    outcomes: dict[str, Callable[[JobCounts], int]] = {
        "done": lambda jobs: jobs.done,
        "failed": lambda jobs: jobs.failed,
    }
    if any(entry.jobs.lost for entry in treatments):
        outcomes["lost"] = lambda jobs: jobs.lost
    if any(entry.jobs.aborted for entry in treatments):
        outcomes["aborted"] = lambda jobs: jobs.aborted
    chosen = list(dict.fromkeys(("p50", percentile_name(document.pctile))))
    metric, medians = _first_metrics(treatments)
    columns = [Column("treatment", left=True), *map(Column, outcomes), Column("jobs/s")]
    columns += [*(Column(f"job {figure}") for figure in chosen), *([Column(metric)] if metric else [])]
    rows = []
    for entry, name, median in zip(treatments, names, medians, strict=True):
        rate, job = entry.jobs_per_s, entry.operations[JOB]
        rows.append(
            [
                name,
                *(format_count(count(entry.jobs)) for count in outcomes.values()),
                "-" if rate is None else format_significant(rate),
                *(format_seconds(job.percentiles_s[figure]) for figure in chosen),
                *([median] if metric else []),
            ]
        )
    return columns, rows


def _first_metrics(treatments: Sequence[TreatmentReport]) -> tuple[str, list[str]]:
    """Return a column's title (empty: there are no metrics) and the median of each treatment's first metric."""
    firsts = [next(((name, one) for name, one in entry.metrics.items() if one.n), None) for entry in treatments]
    names = {first[0] for first in firsts if first}
    cells = ["-" if first is None else f"{_significant(first[1].median)} {first[1].unit}".strip() for first in firsts]
    return ("" if not names else names.pop() if len(names) == 1 else "first metric"), cells


def _significant(value: float | None) -> str:
    return "-" if value is None else format_significant(value)


def treatment_tables(entry: TreatmentReport, pctile: float) -> Iterator[str]:
    """Yield a treatment's operations, then its metrics."""
    operations = entry.operations
    # Results that were measured elsewhere have no operation but the whole job, and that without a time.
    timed = list(operations) != [JOB] or operations[JOB].n or operations[JOB].errors
    if timed:
        yield from _operations(operations, percentile_name(pctile))
    given = {name: metric for name, metric in entry.metrics.items() if metric.n}
    if given:
        if timed:
            yield ""
        yield from _metrics(given, percentile_name(pctile))
    if missing := [name for name in entry.metrics if name not in given]:
        yield ""
        yield from paragraph(f"missing from every trial: {', '.join(missing)}", indent=2, hanging=4)


def _operations(operations: Mapping[str, OperationReport], chosen: str) -> list[str]:
    tail = [] if chosen in ("p99", "p50") else ["p99"]
    shown = [*dict.fromkeys(("p50", chosen))]
    columns = [Column("operation", left=True), Column("n"), Column("err")]
    columns += [Column(title) for title in ("min", "mean", "stddev", *shown)]
    columns += [*(Column(title, droppable=True) for title in tail), Column("max"), Column("slowest")]
    rows = []
    for name, operation in operations.items():
        percentiles = [
            format_seconds(operation.percentiles_s[figure], _DIGITS) + _mark(figure, operation)
            for figure in (*shown, *tail)
        ]
        moments = (operation.min_s, operation.mean_s, operation.stddev_s)
        rows.append(
            [
                name,
                format_count(operation.n),
                format_count(operation.errors),
                *(format_seconds(value, _DIGITS) for value in moments),
                *percentiles,
                format_seconds(operation.max_s, _DIGITS),
                "-" if operation.slowest_job is None else f"{operation.slowest_job}",
            ]
        )
    return fit_table(columns, rows)


def _mark(figure: str, operation: OperationReport) -> str:
    return "?" if figure == "p99" and operation.p99_marked else ""


def _metrics(metrics: Mapping[str, MetricReport], chosen: str) -> list[str]:
    columns = [Column("metric", left=True), Column("unit", left=True), Column("n"), Column("min"), Column("mean")]
    columns += [Column("stddev"), Column("median"), Column(chosen, droppable=True), Column("max"), Column("worst")]
    rows = []
    for name, metric in metrics.items():
        sign = {"higher": " +", "lower": " -"}.get(metric.direction or "", "")
        figures = (metric.min, metric.mean, metric.stddev, metric.median, metric.percentiles[chosen], metric.max)
        worst = "-" if metric.worst_job is None else f"{metric.worst_job}"
        rows.append([name, f"{metric.unit}{sign}".strip(), str(metric.n), *map(_significant, figures), worst])
    return fit_table(columns, rows)


def _jobs(entry: TreatmentReport) -> Iterator[str]:
    jobs, trials = entry.jobs, entry.trials
    text = f"{jobs.done:,} done, {jobs.failed:,} failed, {jobs.lost:,} lost, {jobs.aborted:,} aborted"
    if jobs.not_started:
        text += f" ({jobs.not_started:,} never started)"
    ran = f"{trials.run}" if trials.run == trials.planned else f"{trials.run} of {trials.planned}"
    text += f" in {ran} trial{'s' if trials.planned != 1 else ''}"
    if jobs.warmup:
        text += f"; {jobs.warmup:,} in warm-up, excluded"
    yield from paragraph(f"jobs   {text}", indent=2, hanging=9)
    rate = entry.jobs_per_s
    if rate is not None:
        yield from paragraph(
            f"rate   {format_significant(rate)} jobs/s over {format_span(entry.busy_s)} of trials", indent=2
        )
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


def _host(host: HostReport) -> str:
    engines = ", ".join(f"{name} {version}".strip() for name, version in (host.engines or {}).items())
    where = f" ({host.environment})" if host.environment else ""
    slots = plural(host.slots or 0, "slot")
    return one_line(f"{host.worker_id} on {host.host}{where}, {slots}; {engines or 'no engine'}")


def _facts(fingerprint: Mapping[str, Any]) -> str:
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
        yield from _wrap_note(
            "n: successful operations of successful jobs. err: failures, excluded from all timings."
        )
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
    notes = (*published_notes(document.published), *overhead_notes(document), *packing_notes(document))
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
        yield from field("", _facts(host.fingerprint or {}))
        if host.clock_checks.uncertainty_max_s is not None:
            bound = format_seconds(host.clock_checks.uncertainty_max_s)
            yield from field("", f"clock offset to the master known within {bound}")


def format_time(text: str | None) -> str:
    """Return an instant (ISO 8601) as people read it."""
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return str(text)


def totals_text(totals: TotalsReport, treatments: Iterable[TreatmentReport]) -> str:
    """Return the number of jobs by outcome, each counted once."""
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
    if (totals.not_started or 0) > among:
        parts.append(f"{(totals.not_started or 0) - among:,} more never started")
    text = ", ".join(parts)
    if totals.warmup:
        text += f"; {totals.warmup:,} in warm-up, excluded from all figures"
    return text
