"""A certificate as a page: what the machine's reports may be believed to show, then what that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from bench_common.safe_text import one_line
from bench_features.certify.certificate import Bounded, Certificate, CertifiedMeasure, CertifiedRun, FalseWords
from bench_features.certify.findings import PROMISED
from bench_master.formatting import (
    escape_markdown,
    field,
    format_bytes,
    format_change,
    format_share,
    format_span,
    heading,
    paragraph,
    plural,
)
from bench_master.reports.table import Field, Table, markdown_of, measured, numbers, table_of, table_text, words
from bench_master.verdicts.confounds import shown

NONE: Final = "none"
_SHOWS: Final = "What one comparison shows four times in five, by the rounds of its run:"
_LABELS: Final = {"cpu_governor": "governor", "hypervisor": "hypervisor", "container": "container"}


def page_lines(certificate: Certificate, void: Sequence[str] = (), *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines of the page; `void` is why it does not hold any more, `verbose` adds each run."""
    yield from heading(f"Certificate {certificate.id} of host {one_line(certificate.host)}", "=")
    yield ""
    for reason in void:
        yield from paragraph(f"VOID: {one_line(reason)}", indent=2, hanging=4)
    yield from paragraph(false_words_text(certificate.false_words), indent=2)
    yield ""
    yield from paragraph(_SHOWS, indent=2)
    for table in _tables(certificate):
        yield from table_text(table)
    yield from paragraph(_COLUMNS, indent=2)
    yield ""
    for name, text in facts(certificate):
        yield from field(name, text)
    if verbose:
        yield ""
        yield from table_text(table_of("", "", _RUN_FIELDS, certificate.runs))


def false_words_text(found: FalseWords) -> str:
    """Return how often equal treatments were called different, with what that can mean at most."""
    counts = ", ".join(f"{count} {word}" for word, count in found.words.items())
    share = f"{found.runs_found or 'none'} of {plural(found.runs, 'run')}"
    ends = f"{100 * found.runs_low:.1f} to {100 * found.runs_high:.1f} % at 95 %"
    return (
        f"Equal treatments were called different in {share} ({ends}; promised: at most {100 * PROMISED:.0f} %). "
        f"{plural(found.comparisons, 'comparison')}: {counts or 'none'}."
    )


def clause(certificate: Certificate) -> str:
    """Return what it says in one clause: false words, and what a run of as many rounds shows of its first measure."""
    found = certificate.false_words
    text = f"equal treatments differed in {found.runs_found or 'none'} of {plural(found.runs, 'run')}"
    first = next(iter(certificate.measures), None)
    least = None if first is None else first.detectable.get(str(certificate.rounds))
    if first is None or least is None:
        return text
    return f"{text}, {plural(certificate.rounds, 'round')} show {format_share(least)} of {first.measure}"


def _tables(certificate: Certificate) -> Iterator[Table]:
    """Yield a table of the measures of each treatment."""
    several = len({one.treatment for one in certificate.measures}) > 1
    for treatment, own in groupby(certificate.measures, key=lambda one: one.treatment):
        measures = list(own)
        fields: list[Field[CertifiedMeasure]] = [
            words("measure", lambda one: one.measure),
            measured("value", lambda one: one.value, lambda one: one.unit),
            numbers("floor", lambda one: one.floor, format_share),
            *map(_least, measures[0].detectable),
            numbers("runs", lambda one: one.between_runs, format_share, optional=True),
            numbers("days", lambda one: one.between_days, format_share, optional=True),
        ]
        yield table_of("", one_line(treatment) if several else "", fields, measures)


def _least(count: str) -> Field[CertifiedMeasure]:
    return numbers(f"n={count}", lambda one: one.detectable.get(count), format_share)


_COLUMNS: Final = (
    "floor: 19 of 20 runs found less between equal treatments. runs, days: standard deviation of the runs of one "
    "day, and of days."
)
_RUN_FIELDS: Final[Sequence[Field[CertifiedRun]]] = (
    words("run", lambda run: run.run_id),
    words("began", lambda run: run.began[:19].replace("T", " ")),
    numbers("took", lambda run: run.took_s, format_span),
    words("words", lambda run: ", ".join(f"{one.word} {format_change(one.ratio)}" for one in run.comparisons)),
)


def facts(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """Yield what stands below the measures: names and texts of one line each."""
    if certificate.place is not None:
        yield "place", f"the later of two equal trials of a round takes {_bounded(certificate.place)}"
    if certificate.carry_over is not None:
        found = _bounded(certificate.carry_over)
        yield "carry-over", f"trials after the first side against those after the second: {found}"
    probe = certificate.probe
    if probe is not None:
        means = "it explains some of them" if probe.explains else "it is not shown to explain any"
        shares = f"r2 {100 * probe.r2:.1f} % with the rounds' differences, by chance {100 * probe.chance:.1f} %"
        yield "probe", f"{shares}: {means}"
    yield "jobs", one_line(certificate.jobs)
    yield "runs", _runs_text(certificate)
    yield "machine", one_line(machine_text(certificate))
    until = f"{certificate.valid_until:%Y-%m-%d}"
    yield "holds", f"until {until}, or until one of these changes: {', '.join(certificate.machine)}"


def markdown_lines(certificate: Certificate, void: Sequence[str] = (), *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines of the page as Markdown, as `page_lines` does."""
    yield f"**Certificate {certificate.id} of host {escape_markdown(one_line(certificate.host))}**"
    yield ""
    for reason in void:
        yield f"- **VOID**: {escape_markdown(one_line(reason))}"
    if void:
        yield ""
    yield escape_markdown(false_words_text(certificate.false_words))
    yield ""
    yield _SHOWS
    yield ""
    for table in _tables(certificate):
        if table.caption:
            yield from (escape_markdown(table.caption), "")
        yield from markdown_of(table)
        yield ""
    yield escape_markdown(_COLUMNS)
    yield ""
    yield from (f"- **{name}**: {escape_markdown(text)}" for name, text in facts(certificate))
    if verbose:
        yield ""
        yield from markdown_of(table_of("", "", _RUN_FIELDS, certificate.runs))


def _bounded(found: Bounded) -> str:
    text = format_change(1.0 + found.estimate)
    if found.low is None or found.high is None:
        return f"{text} (too few runs for an interval)"
    return f"{text} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def _runs_text(certificate: Certificate) -> str:
    runs = certificate.runs
    took = format_span(sum(run.took_s for run in runs))
    occasions = plural(certificate.occasions, "occasion")
    size = f"{len(runs)} of {plural(certificate.rounds, 'round')} on {occasions}, {took}"
    return f"{size}, margin {100 * certificate.margin:.4g} %; last {certificate.created}"


def machine_text(certificate: Certificate) -> str:
    """Return the machine in one line."""
    machine = certificate.machine
    memory = machine.get("memory")
    parts = [
        shown(machine.get("cpu_model")),
        f"{shown(machine.get('cpu_threads'))} CPUs",
        *([f"{format_bytes(float(memory))} of memory"] if isinstance(memory, int | float) else []),
        f"kernel {shown(machine.get('kernel'))}",
        *(f"{label} {shown(machine[name])}" for name, label in _LABELS.items() if machine.get(name, NONE) != NONE),
        f"Weighbridge {shown(machine.get('weighbridge_version'))}",
    ]
    return ", ".join(parts)
