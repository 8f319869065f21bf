"""The text report, for a person in front of 80 columns: what is missing or doubtful comes before any figure.

The tables of results and of scaling are here; those of hosts, engines, packings and published figures are in
`text_sections`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TextIO

from bench_common.safe_text import escape_lines, one_line
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
from bench_master.reports import ReportSource
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

_DIGITS: Final = 3
"""Seven times of three digits fit a line; the overview and the other formats have more."""


def overview_table(document: ReportDocument, names: Sequence[str]) -> list[str]:
    """Return one line for each treatment, to compare at a glance; `names` distinguishes them.

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
    return fit_table(columns, rows, indent=0)


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


CONCURRENCY: Final = "concurrency"
"""The label of a matrix that varies the jobs in flight."""

_COLUMNS: Final = 7
"""Columns per table; more than that continue in another table."""


def scaling_tables(document: ReportDocument, common: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table for each set of treatments that differ only in the jobs in flight.

    Labels in `common` are not repeated. Yields nothing if the concurrency does not vary.
    """
    first = True
    for labels, entries in _series(document.treatments):
        if not first:
            yield ""
        first = False
        spelled = one_line(" ".join(f"{key}={value}" for key, value in labels if key not in common))
        if spelled:
            yield from paragraph(spelled, indent=2, hanging=4)
        for start in range(0, len(entries), _COLUMNS):
            yield from _table(entries[start : start + _COLUMNS], entries[0], document.pctile)


def _series(treatments: Sequence[TreatmentReport]) -> list[tuple[tuple[tuple[str, Any], ...], list[TreatmentReport]]]:
    """Return groups of treatments that differ only in concurrency, by their other labels, lowest first."""
    found: dict[tuple[tuple[str, Any], ...], list[TreatmentReport]] = {}
    for entry in treatments:
        labels = entry.treatment
        # A benchmark may have a parameter of that name with another meaning.
        if CONCURRENCY in labels and labels[CONCURRENCY] == entry.concurrency:
            rest = tuple((key, value) for key, value in labels.items() if key != CONCURRENCY)
            found.setdefault(rest, []).append(entry)
    return [
        (rest, sorted(entries, key=lambda entry: int(entry.treatment[CONCURRENCY])))
        for rest, entries in found.items()
        if len(entries) > 1
    ]


def _table(entries: Sequence[TreatmentReport], base: TreatmentReport, pctile: float) -> list[str]:
    columns = [Column("jobs in flight", left=True)]
    columns += [Column(str(entry.treatment[CONCURRENCY])) for entry in entries]
    rates = [entry.jobs_per_s for entry in entries]
    rows = [["jobs/s", *("-" if rate is None else format_significant(rate) for rate in rates)]]
    rows.append([f"x that of {base.treatment[CONCURRENCY]}", *(_ratio(rate, base.jobs_per_s) for rate in rates)])
    failed = [entry.jobs.failed for entry in entries]
    if any(failed):
        rows.append(["failed", *map(format_count, failed)])
    names = list(dict.fromkeys(name for entry in entries for name in entry.operations))
    rows += [
        [f"{name} {figure}", *(_time(entry.operations.get(name), figure) for entry in entries)]
        for name in sorted(names, key=lambda name: name != JOB)
        for figure in dict.fromkeys(("p50", percentile_name(pctile)))
    ]
    return fit_table(columns, rows)


def _ratio(rate: float | None, base: float | None) -> str:
    return "-" if rate is None or not base else f"{rate / base:.2f}"


def _time(operation: OperationReport | None, percentile: str) -> str:
    return format_seconds(None if operation is None else operation.percentiles_s[percentile], _DIGITS)


_FACTS: Final = ("os", "kernel", "cpu_model", "cpu_threads", "memory", "hypervisor", "cgroup")
"""Facts of a host's fingerprint to show; the JSON report has all of them."""

_MESSAGE_LINES: Final = 6


class TextReport:
    """Writes the report for people: plain text without colours, for the terminal, paper and mail alike."""

    name: ClassVar[str] = "text"
    needs_times: ClassVar[bool] = False

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the report."""
        out.writelines(line + "\n" for line in lines(source.document))


def lines(document: ReportDocument) -> Iterator[str]:
    """Yield the report's lines, none longer than the page."""
    yield from _head(document)
    common = _common_labels(document.treatments)
    names = [_name(entry, common) for entry in document.treatments]
    if len(names) > 1:
        yield ""
        if common:
            yield from paragraph("In every treatment: " + _format_labels(common))
            yield ""
        yield from overview_table(document, names)
        yield from _section("Scaling", scaling_tables(document, common))
    for entry, name in zip(document.treatments, names, strict=True):
        yield ""
        yield from heading(name, "-")
        yield from _jobs(entry)
        yield from timing_lines(entry, document.hosts)
        yield from disturbance_lines(entry)
        yield ""
        yield from treatment_tables(entry, document.pctile)
        yield from packing_table(entry)
    yield from _section("Published figures", published_lines(document.published))
    yield from _section("Thresholds", _thresholds(document))
    yield from _section("Errors", _errors(document, names))
    yield from _section("Engine overhead", overhead_table(document, names))
    yield from _section("Hosts", load_table(document))
    yield from _section("Harness", harness_table(document))
    yield from _section("Notes", _notes(document))


def _section(title: str, body: Sequence[str] | Iterator[str]) -> Iterator[str]:
    body = list(body)
    if body:
        yield ""
        yield from heading(title, "-")
        yield from body


def _head(document: ReportDocument) -> Iterator[str]:
    run, scenario, totals = document.run, document.scenario, document.totals
    yield from heading(f"Weighbridge report: {one_line(str(scenario.name))}", "=")
    yield from _warning_banners(document)
    yield ""
    if scenario.description:
        yield from paragraph(one_line(scenario.description), hanging=2)
        yield ""
    if run.imported:
        yield from _origin(run, run.imported)
    else:
        yield from field("run", f"{run.run_id}, {_format_time(run.created)}, took {format_span(totals.duration_s)}")
        yield from field("scenario", one_line(str(scenario.path)))
        yield from field("order", f"{run.order}, seed {run.seed}")
    for resume in run.resumes:
        yield from field("resumed", _resumed(resume))
    yield from field("jobs", _totals(totals, document.treatments))
    yield from field("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items()))
    for host in () if run.imported else document.hosts:
        yield from field("host", _host(host))
        yield from field("", _facts(host.fingerprint or {}))
        if host.clock_checks.uncertainty_max_s is not None:
            bound = format_seconds(host.clock_checks.uncertainty_max_s)
            yield from field("", f"clock offset to the master known within {bound}")


def _resumed(resume: ResumeReport) -> str:
    gap = "" if resume.gap_s is None else f"{format_span(resume.gap_s)} after "
    again = len(resume.rerun_trials)
    repeated = f", {plural(again, 'incomplete trial')} run again" if again else ""
    kept = f"{resume.complete_trials} complete trials kept"
    return f"{_format_time(resume.at)}, {gap}it was {resume.ended}; {kept}{repeated}"


def _missing(totals: TotalsReport) -> str:
    if not totals.missing:
        return ""
    return f"{totals.missing:,} of {totals.planned:,} planned jobs are missing; "


def _warning_banners(document: ReportDocument) -> Iterator[str]:
    """Yield what to know before reading any figure."""
    run = document.run
    if run.noop:
        yield from _banner(
            "NO-OP", "nothing was executed. The figures show the harness's own maximum, not an engine."
        )
    if run.imported:
        yield from _banner("IMPORTED", "measured elsewhere. Only what the files below contain is known.")
    if document.incomplete:
        yield from _banner("INCOMPLETE", f"{_missing(document.totals)}the figures cover only the data that exists.")
        for reason in document.incomplete:
            yield from paragraph(f"- {one_line(reason)}", indent=2, hanging=4)
    for entry in document.treatments:
        if entry.skipped:
            yield from _banner("SKIPPED", one_line(f"{entry.title} (optional): {entry.skipped}"))
    if document.warnings:
        yield from _banner("WARNING", "")
        for warning in document.warnings:
            yield from paragraph(f"- {one_line(warning)}", indent=2, hanging=4)


def _origin(run: RunReport, origin: ImportReport) -> Iterator[str]:
    """Yield what is known about imported results."""
    yield from field("imported", f"{run.run_id}, {_format_time(origin.at)}; time of measurement unknown")
    for file in origin.files:
        amount = f"{file.readings:,} monitor readings" if file.readings else plural(file.runs, "run")
        yield from field("from", one_line(f"{file.name}, {amount}"))
    yield from field("order", "unknown, as are hosts, times, and parameters that the outputs do not state")


def _banner(word: str, text: str) -> list[str]:
    return ["", *paragraph(f"*** {word}{': ' if text else ''}{text}", hanging=4)]


def _format_time(text: str | None) -> str:
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return str(text)


def _totals(totals: TotalsReport, treatments: Iterable[TreatmentReport]) -> str:
    """Return the number of jobs by outcome, each counted once."""
    among = sum(entry.jobs.not_started or 0 for entry in treatments)
    parts = [f"{totals.done:,} done", f"{totals.failed:,} failed"]
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


def _common_labels(treatments: Sequence[TreatmentReport]) -> dict[str, Any]:
    """Return the labels that all treatments share."""
    if len(treatments) < 2:  # noqa: PLR2004
        return {}
    first = treatments[0].treatment
    others = [entry.treatment for entry in treatments[1:]]
    return {
        key: value for key, value in first.items() if all(key in other and other[key] == value for other in others)
    }


def _name(entry: TreatmentReport, common: Mapping[str, Any]) -> str:
    """Return the labels that distinguish a treatment from the others."""
    own = {key: value for key, value in entry.treatment.items() if key not in common}
    return _format_labels(own) or one_line(str(entry.title))


def _format_labels(labels: Mapping[str, Any]) -> str:
    return one_line(" ".join(f"{key}={value}" for key, value in labels.items()))


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


def _thresholds(document: ReportDocument) -> Iterator[str]:
    for threshold in dict.fromkeys(verdict.threshold for verdict in document.thresholds):
        verdicts = [verdict for verdict in document.thresholds if verdict.threshold == threshold]
        failed = [verdict for verdict in verdicts if not verdict.passed]
        where = plural(len(verdicts), "treatment")
        word = f"FAILED  {one_line(threshold)}" if failed else f"passed  {one_line(threshold)}  ({where})"
        yield from paragraph(word, indent=2, hanging=10)
        for verdict in failed:
            yield from paragraph(one_line(verdict.message), indent=10, hanging=12)


def _errors(document: ReportDocument, names: Sequence[str]) -> Iterator[str]:
    short = {entry.title: name for entry, name in zip(document.treatments, names, strict=True)}
    for group in document.errors:
        where = "; ".join(short[title] for title in group.treatments)
        warmup = f", {group.warmup:,} of them in warm-up" if group.warmup else ""
        head = f"{group.count:,} x {group.operation}: {group.kind}{warmup} ({where})"
        yield from paragraph(one_line(f"{head}, such as job {group.job}:"), indent=2, hanging=4, lines=4)
        shown = [line for line in escape_lines(group.message).splitlines() if line.strip()]
        for line in shown[:_MESSAGE_LINES]:
            yield from paragraph(line.strip(), indent=6, hanging=8, lines=2)
        if len(shown) > _MESSAGE_LINES:
            yield f"      ... {len(shown) - _MESSAGE_LINES} more lines in the stats file"


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
