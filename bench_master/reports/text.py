"""The text report, for a person in front of a terminal: the answer first, and how far it can be trusted.

The first page fits a screen: what is missing, the verdicts, what they rest on, thresholds, gates, warnings, errors.
With ``-v`` all other figures follow it (`details`); with ``-q`` there is only the answer.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from typing import Any, Final, TextIO

from bench_common.host_info import DIGEST_DETAIL, OTHER_ENGINE, PROGRAM_DETAIL, short_digests
from bench_common.safe_text import escape_lines, one_line
from bench_master.analysis.report_types import HostReport, ImportReport, ReportDocument, RunReport, TotalsReport
from bench_master.analysis.trust import shared_labels, short_names
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import (
    MISSING,
    MISSING_MEANS,
    field,
    fit_table,
    format_bytes,
    format_seconds,
    format_span,
    format_value,
    heading,
    page_width,
    paragraph,
    plural,
)
from bench_master.reports import ReportSource
from bench_master.reports.comparison import answers, between_runs_of, indented, text_lines
from bench_master.reports.side_by_side import format_labels, side_lines
from bench_master.reports.store_tables import population, store_operations
from bench_master.reports.table import grouped, table_text
from bench_master.reports.tables import figures, overhead, overview, packings, published, tables
from bench_master.reports.values_text import only_value, value_sentences
from bench_master.reports.verdict_text import (
    MOST_NEIGHBOURS,
    VerdictTable,
    claim_lines,
    comparison_lines,
    gate_lines,
    looked_for,
    names_by_title,
    neighbour_text,
    no_verdict_text,
    notes,
    trust_sentences,
    verdict_tables,
    warnings,
)
from bench_master.run_data.run_types import ResumeReport
from bench_master.run_data.traced_types import ON_CPU, TracedPhaseReport, cause_sentence
from bench_master.run_data.treatment_types import TreatmentReport

PAGE: Final = 40
"""Lines of a screen: what is not the answer is on the first page only as far as they go."""

_ROWS: Final = 20
"""Rows of verdicts on the first page at most; of more than that it shows the first `_FIRST_ROWS`."""
_FIRST_ROWS: Final = 12
_ITEMS: Final = 5
"""Warnings and kinds of errors on the first page."""
_SHORT_MESSAGE: Final = 2
_MESSAGE_LINES: Final = 6


class TextReport:
    """Writes the report for people: plain text without colours, for the terminal, paper and mail alike."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write as much of the report as the source wants."""
        if source.detail == "answer":
            found = brief_lines(source.document)
        else:
            found = lines(source.document, full=source.detail == "full")
        out.writelines(line + "\n" for line in found)


def brief_lines(document: ReportDocument) -> Iterator[str]:
    """Yield the answer alone, the sentence of the first page; figures where there is nothing to compare."""
    if document.incomplete:
        yield f"{document.run_state.upper()}: {incomplete_text(document)}"
    yield from answer_lines(document)


def answer_lines(document: ReportDocument) -> Iterator[str]:
    """Yield the answer as the first page has it, whether the run is complete or not; figures where there is none."""
    if found := answers(document.verdicts):
        yield from found
        return
    yield from value_sentences(document)


def lines(document: ReportDocument, *, full: bool = False) -> Iterator[str]:
    """Yield the report's first page, and with `full` all else; no line is longer than the page is wide."""
    page = list(_first_page(document, full=full))
    ending = list(_ending(document))
    hidden = []
    if not full:
        for title, body in _extras(document):
            if len(page) + len(body) + len(ending) + 4 <= PAGE:
                page += section(title, body)
            elif body:
                hidden.append(title.lower())
    yield from page
    if full:
        yield from details(document)
    else:
        yield ""
        yield from ending
        hidden += ["each treatment"] if len(document.treatments) > 1 else []
        yield from paragraph(f"More with -v: {', '.join([*hidden, 'hosts', 'harness', 'notes'])}.", hanging=2)
    if full or len(page) + len(ending) > _SCREEN:
        # Of so many lines a terminal shows the last ones.
        verdicts = document.verdicts
        if answer := only_value(document) if verdicts is None else verdicts.answer if verdicts.comparisons else "":
            yield from ["", *paragraph(answer, hanging=2)]


_SCREEN: Final = 30
"""Rows of a terminal."""


def _first_page(document: ReportDocument, *, full: bool) -> Iterator[str]:
    subject, name = document.scenario.subject, one_line(str(document.scenario.name))
    yield from heading(subject or f"Weighbridge report: {name}", "=")
    for notice in notices(document):
        yield from ["", *paragraph(f"*** {notice}", hanging=4)]
    verdicts = document.verdicts
    between = between_runs_of(verdicts)
    if between is not None:
        # Who names an earlier run asks this first.
        yield from section("Against earlier runs", text_lines(between, verbose=full))
    if verdicts is not None and verdicts.comparisons and verdicts.design.unit != "run":
        if between is not None:
            yield ""
            yield from heading("Within this run", "-")
        yield from _verdicts(document, verdicts, full=full)
    else:
        yield from _measures(document, full=full)
        yield from paragraph(one_line(document.trust.sentence), indent=2, hanging=4)
    names = short_names(document.treatments)
    if not full:
        if len(names) > 1:
            # What the containers take is what a packing is for, and what a store does what its load is for.
            for table in (packings(document), store_operations(document, full=False)):
                if 0 < len(table.rows) <= _ROWS:
                    yield from section(table.name, table_text(replace(table, caption="")))
        # Who has treatments traced asks for it.
        yield from section("Why", _why_lines(document, names))
    most = None if full else _ITEMS
    yield from section("Claims", claim_lines(None if verdicts is None else verdicts.claims))
    yield from section("Thresholds", _thresholds(document, full=full))
    # Those on earlier runs stand below their verdicts.
    gates = [] if verdicts is None else [one for one in verdicts.gates if between is None or one not in between.gates]
    yield from section("Gates", gate_lines(gates))
    yield from section("Warnings", _items(document.warnings, most))
    yield from section("Errors", _errors(document, full=full))


def _measures(document: ReportDocument, *, full: bool) -> Iterator[str]:
    """Yield the figures of a run that has nothing to compare."""
    names = short_names(document.treatments)
    yield ""
    if value := only_value(document):
        yield from paragraph(value, indent=2, hanging=4)
        yield ""
    if names and (why := no_verdict_text(document)):
        yield from paragraph(f"No verdict: {why}.")
        yield ""
    if len(names) > 1 and not full:
        yield from [*table_text(overview(document)), ""]
    elif names and not full:
        for table in figures(document):
            # A note that stands above it already is not said again.
            rest = replace(table, caption="", notes=[note for note in table.notes if note not in value])
            yield from [*table_text(rest), ""]


def _verdicts(document: ReportDocument, verdicts: VerdictsReport, *, full: bool) -> Iterator[str]:
    yield ""
    yield from paragraph(one_line(verdicts.question), hanging=2)
    yield ""
    yield from paragraph(verdicts.answer, indent=2, hanging=4)
    tables = verdict_tables(document)
    room = _ROWS if sum(len(table.rows) for table in tables) <= _ROWS else _FIRST_ROWS
    hidden, limit = 0, ""
    for table in tables:
        shown = len(table.rows) if full else min(len(table.rows), room)
        room -= shown
        if not shown:
            hidden += len(table.rows)
            continue
        if table.remark != limit:
            yield from paragraph(limit, indent=2, hanging=4)
        limit = table.remark
        yield ""
        yield from _verdict_table(table, shown)
    # What limits one table after the other alike is said once, after the last of them.
    yield from paragraph(limit, indent=2, hanging=4)
    if hidden:
        yield f"  ... and {hidden} in other tables with -v"
    yield ""
    yield from paragraph(neighbour_text(verdicts, None if full else MOST_NEIGHBOURS), indent=2, hanging=4)
    yield from paragraph(" ".join(trust_sentences(document)), indent=2)
    yield from _items(warnings(document), None if full else _ITEMS)
    if full:
        yield from indented(f"- {note}" for note in notes(document))
        yield from paragraph(looked_for(verdicts), indent=2, hanging=4)


def _verdict_table(table: VerdictTable, shown: int) -> Iterator[str]:
    """Yield the first rows of a table, with what limits a verdict under its row."""
    yield from paragraph(table.caption, indent=2, hanging=4)
    if not table.fits():
        table = table.merged()
    rows = table.rows[:shown]
    shared = table.shared_remarks()
    # The title and each row is one line of the aligned table, or several where the page is too narrow.
    aligned = fit_table(table.columns, [row.cells for row in rows])
    is_aligned = len(aligned) == len(rows) + 1
    for place, line in enumerate(aligned):
        yield line
        if is_aligned and place and (remark := rows[place - 1].remark) not in shared:
            yield from paragraph(remark, indent=6, hanging=6)
    for note in table.notes(() if is_aligned else rows):
        yield from paragraph(note, indent=4, hanging=6)
    if shown < len(table.rows):
        yield f"  ... and {len(table.rows) - shown} more with -v"


def _items(texts: Iterable[str], most: int | None) -> Iterator[str]:
    """Yield what to be careful about; at most so many items, and how many more there are."""
    found = list(texts)
    shown = found if most is None or len(found) <= most + 1 else found[:most]
    yield from indented(f"! {text}" for text in shown)
    if len(shown) < len(found):
        yield f"  ! {len(found) - len(shown)} more with -v"


def _extras(document: ReportDocument) -> list[tuple[str, list[str]]]:
    """Return sections that are on the first page if it has room for them."""
    several = len(document.treatments) > 1
    # A verdict says what limits it; else remarks are all that does.
    remarks = () if document.verdicts is not None else document.remarks
    found = [("Remarks", list(indented(f"{one}." for one in remarks)))]
    tables = [population(document), overhead(document)]
    if several:
        found += [("Side by side", list(side_lines(document, full=False)))]
        long = (packings(document), store_operations(document, full=False))
        tables = [*(table for table in long if len(table.rows) > _ROWS), *tables]
    found += [(table.name, list(table_text(table))) for table in tables if table.rows]
    return [*found, ("Published figures", [line for table in published(document) for line in table_text(table)])]


def _ending(document: ReportDocument) -> Iterator[str]:
    run, totals = document.run, document.totals
    if document.scenario.subject:
        yield from field("scenario", one_line(str(document.scenario.name)))
    if run.imported:
        yield from field("imported", f"{run.run_id}, {format_time(run.imported.at)}")
    else:
        yield from field("run", f"{run.run_id}, {format_time(run.created)}, took {format_span(totals.duration_s)}")
    if run.resumes:
        yield from field("resumed", "once" if len(run.resumes) == 1 else f"{len(run.resumes)} times")
    yield from field("jobs", totals_text(totals, document.treatments))


def _thresholds(document: ReportDocument, *, full: bool) -> Iterator[str]:
    """Yield each threshold that does not hold; with `full` those that do, too."""
    passed = []
    for threshold, verdicts in grouped(document.thresholds, lambda verdict: verdict.threshold).items():
        missed = [verdict for verdict in verdicts if not verdict.passed]
        if not missed:
            passed.append(f"passed  {one_line(threshold)}  ({plural(len(verdicts), 'treatment')})")
            continue
        has_failed = any(document.threshold_state(verdict) == "failed" for verdict in missed)
        word = "FAILED" if has_failed else "UNDECIDED"
        yield from paragraph(f"{word}  {one_line(threshold)}", indent=2, hanging=10)
        for verdict in missed if full else missed[:_ITEMS]:
            yield from paragraph(one_line(verdict.message), indent=10, hanging=12)
        if not full and len(missed) > _ITEMS:
            yield f"          {len(missed) - _ITEMS} more with -v"
    for text in passed if full else ():
        yield from paragraph(text, indent=2, hanging=10)


def _errors(document: ReportDocument, *, full: bool) -> Iterator[str]:
    short = names_by_title(document)
    groups = document.errors if full or len(document.errors) <= _ITEMS else document.errors[:_ITEMS]
    most = _MESSAGE_LINES if full else _SHORT_MESSAGE
    for group in groups:
        where = "; ".join(short[title] for title in group.treatments)
        warmup = f", {group.warmup:,} of them in warm-up" if group.warmup else ""
        head = f"{group.count:,} x {group.operation}: {group.kind}{warmup} ({where})"
        yield from paragraph(one_line(f"{head}, such as job {group.job}:"), indent=2, hanging=4, lines=4)
        shown = [line for line in escape_lines(group.message).splitlines() if line.strip()]
        if (more := len(shown) - most) > 0:
            # The reason of a failure is as often in its last line as in its first.
            shown = [*shown[: most - 1], f"... {more} more lines in the stats file", shown[-1]]
        for line in shown:
            yield from paragraph(line.strip(), indent=6, hanging=8, lines=2)
    if len(groups) < len(document.errors):
        yield f"  {len(document.errors) - len(groups)} more kinds of errors with -v"


# -- details ---------------------------------------------------------------------------------------------------------


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
    yield from section("Why, in one job", _job_lines(document))
    yield from section("Notes", indented(_notes(document)))


_FACTS: Final = ("os", "kernel", "cpu_model", "cpu_threads", "memory", "hypervisor", "cgroup")
"""Facts of a host's fingerprint to show; the JSON report has all of them."""


def _resumed(resume: ResumeReport) -> str:
    gap = "" if resume.gap_s is None else f"{format_span(resume.gap_s)} after "
    again = len(resume.rerun_trials)
    repeated = f", {plural(again, 'incomplete trial')} run again" if again else ""
    kept = f"{resume.complete_trials} complete trials kept"
    return f"{format_time(resume.at)}, {gap}it was {resume.ended}; {kept}{repeated}"


def _origin(run: RunReport, origin: ImportReport) -> Iterator[str]:
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
    others = ((totals.left_out, "left out (optional)"), (totals.lost, "lost"), (totals.aborted, "aborted"))
    parts = [f"{totals.done:,} done", f"{totals.failed:,} failed"]
    parts += [f"{number:,} {outcome}" for number, outcome in others if number]
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


# -- traced jobs ----------------------------------------------------------------------------------------------------

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_CPU: Final = "#"
_NOTHING: Final = "."
_BAR: Final = 64


def _why_lines(document: ReportDocument, names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each operation of each traced treatment, of few treatments."""
    for traced in document.traced[:_ITEMS]:
        if len(names) > 1:
            yield from paragraph(one_line(names[traced.treatment]), indent=2, hanging=4)
        if traced.problem:
            yield from paragraph(f"not traced: {one_line(traced.problem)}", indent=4, hanging=6)
            continue
        for operation in traced.phases:
            yield from paragraph(cause_sentence(operation), indent=4, hanging=6)
    if len(document.traced) > _ITEMS:
        yield f"    ... and {len(document.traced) - _ITEMS} more with -v"


def _job_lines(document: ReportDocument) -> Iterator[str]:
    for traced in document.traced:
        if not traced.problem:
            yield from paragraph(one_line(document.treatments[traced.treatment].title), indent=2, hanging=4)
            yield from _gantt_lines(traced.job)


def _gantt_lines(job: Sequence[TracedPhaseReport]) -> Iterator[str]:
    """Yield a line for each operation of one job on one axis of time: a letter for the cause of each stretch."""
    length_s = max((phase.end_s for phase in job), default=0.0)
    if not length_s:
        return
    letters = _letters(job)
    label = max(len(one_line(phase.operation)) for phase in job)
    width = max(16, min(_BAR, page_width() - label - 8))
    yield ""
    yield f"    {'':{label}}  0{format_value(length_s, 's'):>{width - 1}}"
    for phase in job:
        cells = [_cell(phase, (place + 0.5) * length_s / width, letters) for place in range(width)]
        yield f"    {one_line(phase.operation):{label}}  {''.join(cells)}".rstrip()
    key = [f"{_CPU} {ON_CPU}", *(f"{letter} {cause}" for cause, letter in letters.items() if letter != _CPU)]
    yield from paragraph(", ".join(key), indent=4, hanging=6)


def _letters(job: Sequence[TracedPhaseReport]) -> dict[str, str]:
    """Return a letter for each cause, those that take longest first; too many share a dot."""
    seconds: dict[str, float] = {}
    for phase in job:
        for one in phase.segments:
            seconds[one_line(one.cause)] = seconds.get(one_line(one.cause), 0.0) + one.end_s - one.start_s
    others = sorted((cause for cause in seconds if cause != ON_CPU), key=lambda cause: -seconds[cause])
    return {ON_CPU: _CPU, **dict(zip_longest(others, _LETTERS[: len(others)], fillvalue=_NOTHING))}


def _cell(phase: TracedPhaseReport, at_s: float, letters: Mapping[str, str]) -> str:
    if not phase.start_s <= at_s < phase.end_s:
        return " "
    for one in phase.segments:
        if one.start_s <= at_s < one.end_s:
            return letters[one_line(one.cause)]
    return _NOTHING
