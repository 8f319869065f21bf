"""The details of the text report: where the run was made, every table, and the notes."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

from bench_common.host_info import DIGEST_DETAIL, OTHER_ENGINE, PROGRAM_DETAIL, short_digests
from bench_common.safe_text import one_line
from bench_master.analysis.report_types import (
    HostReport,
    ImportReport,
    ReportDocument,
    RunReport,
    TotalsReport,
)
from bench_master.analysis.trust import shared_labels
from bench_master.formatting import (
    MISSING,
    MISSING_MEANS,
    field,
    format_bytes,
    format_seconds,
    format_span,
    heading,
    paragraph,
    plural,
)
from bench_master.reports.side_by_side import format_labels, side_lines
from bench_master.reports.table import table_text
from bench_master.reports.tables import tables
from bench_master.reports.traced import job_lines
from bench_master.reports.verdict_text import comparison_lines
from bench_master.run_data.run_types import ResumeReport
from bench_master.run_data.treatment_types import TreatmentReport


def details(document: ReportDocument) -> Iterator[str]:
    """Yield all that the first page leaves out."""
    yield from section("Comparisons", comparison_lines(document.verdicts))
    yield from section("Run", _run_lines(document))
    if len(document.treatments) > 1:
        if common := shared_labels([entry.treatment for entry in document.treatments]):
            yield ""
            yield from paragraph("In every treatment: " + format_labels(common))
        yield from section("Side by side", side_lines(document, full=True))
    for name, parts in groupby(tables(document), key=lambda table: table.name):
        yield from section(name, [line for table in parts for line in table_text(table)])
    yield from section("Why, in one job", job_lines(document))
    notes = (paragraph(text, indent=2, hanging=4) for text in _notes(document))
    yield from section("Notes", [line for note in notes for line in note])


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
    if any(one.n for entry in document.treatments for one in entry.operations.values()):
        yield "n: successful operations of successful jobs. Failures are excluded from all timings."
        if any(entry.timing_error_max_s for entry in document.treatments):
            yield "End times are upper bounds, late by the timing error at most."
        yield "`job` is a whole successful job, from its start to its end on the worker."
        if any(entry.open_load for entry in document.treatments):
            yield (
                "`response` is the time from a job's arrival to its end, as a user sees it. `job` excludes the time "
                "in the queue."
            )
        if not all(entry.open_load for entry in document.treatments):
            yield (
                "Closed system: a slot starts its next job when the previous one ends, so slow jobs delay later "
                "ones unseen; set `rate` to see the delay."
            )
    every = [one for entry in document.treatments for one in entry.operations.values()]
    if not all(one.percentiles_exact for one in every):
        yield "Some percentiles come from a histogram and are within 0.2 % of the true value."
    yield f"{MISSING} in a table: {MISSING_MEANS}."
    if document.published is not None and not document.published.tables:
        yield f"No figure of {document.published.title} matches a treatment of this run."
    for remark in document.remarks:
        yield f"{one_line(remark)}."


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
        # All other findings are among the warnings.
        for one in host.findings:
            if one.check == "containers":
                yield from field("", one_line(f"before the run: {one.check}: {one.finding}"))
    for certificate in run.certificates:
        yield from field("certified", one_line(certificate.sentence))


def format_time(text: str | None) -> str:
    """Return an instant (ISO 8601) as people read it."""
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return str(text)


def incomplete_text(document: ReportDocument) -> str:
    """Return how many jobs are missing, why the run is not complete, and how to continue it."""
    missing, planned = document.totals.missing, document.totals.planned
    jobs = [f"{missing:,} of {planned:,} planned jobs are missing"] if missing else []
    file = document.stats_file
    again = [f"continue: bench-master run-scenario --resume {shlex.quote(file)}"] if document.can_continue else []
    return one_line("; ".join([*jobs, *document.incomplete, *again]))


def notices(document: ReportDocument) -> Iterator[str]:
    """Yield what to know before reading any figure, each after its word in capitals."""
    if document.run.noop:
        yield "NO-OP: nothing was executed. The figures show the harness's own maximum, not an engine."
    if document.run.imported:
        yield "IMPORTED: measured elsewhere. Only what the files contain is known."
    if document.incomplete:
        yield f"{document.run_state.upper()}: {incomplete_text(document)}"
    for entry in document.treatments:
        if entry.skipped:
            yield one_line(f"SKIPPED: {entry.title} (optional): {entry.skipped}")


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
        has_loss = any(entry.trials.left_out for entry in treatments)
        where = "warm-up or a trial that lost a worker" if has_loss else "warm-up"
        text += f"; {totals.warmup:,} in {where}, excluded from all figures"
    return text
