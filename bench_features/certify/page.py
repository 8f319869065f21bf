"""A certificate as a page: what the machine's reports may be believed to show, then what that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from bench_common.safe_text import one_line
from bench_features.certify.certificate import Bounded, Certificate, CertifiedMeasure, FalseWords
from bench_features.certify.findings import PROMISED
from bench_master.formatting import (
    Column,
    escape_markdown,
    field,
    fit_table,
    format_bytes,
    format_change,
    format_share,
    format_span,
    format_value,
    heading,
    markdown_table,
    paragraph,
    plural,
    says_nothing,
)
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
    yield from _measures(certificate)
    yield ""
    for name, text in facts(certificate):
        yield from field(name, text)
    if verbose:
        yield ""
        yield from fit_table(_RUN_COLUMNS, _run_rows(certificate))


def false_words_text(found: FalseWords) -> str:
    """Return how often equal treatments were called different, with what that can mean at most."""
    words = ", ".join(f"{count} {word}" for word, count in found.words.items())
    share = f"{found.runs_found or 'none'} of {plural(found.runs, 'run')}"
    ends = f"{100 * found.runs_low:.1f} to {100 * found.runs_high:.1f} % at 95 %"
    return (
        f"Equal treatments were called different in {share} ({ends}; promised: at most {100 * PROMISED:.0f} %). "
        f"{plural(found.comparisons, 'comparison')}: {words or 'none'}."
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


def _measures(certificate: Certificate) -> Iterator[str]:
    for title, columns, rows in _tables(certificate):
        if title:
            yield from paragraph(title, indent=2, hanging=4)
        yield from fit_table(columns, rows)
    yield from paragraph(_COLUMNS, indent=2)


_COLUMNS: Final = (
    "floor: 19 of 20 runs found less between equal treatments. runs, days: standard deviation of the runs of one "
    "day, and of days."
)


def _tables(certificate: Certificate) -> Iterator[tuple[str, list[Column], list[list[str]]]]:
    """Yield a table for each treatment: its name, if there are several, its columns and its rows."""
    several = len({one.treatment for one in certificate.measures}) > 1
    for treatment, own in groupby(certificate.measures, key=lambda one: one.treatment):
        measures = list(own)
        counts = list(measures[0].detectable)
        columns = [
            Column("measure", left=True), Column("value"), Column("floor"),
            *(Column(f"n={count}") for count in counts),
            Column("runs", optional=True), Column("days", optional=True),
        ]  # fmt: skip
        rows = [_row(one, counts) for one in measures]
        told = [place for place, column in enumerate(columns) if not (column.optional and _is_empty(rows, place))]
        yield (
            one_line(treatment) if several else "",
            [columns[place] for place in told],
            [[row[place] for place in told] for row in rows],
        )


def _is_empty(rows: Sequence[Sequence[str]], place: int) -> bool:
    return says_nothing(row[place] for row in rows)


def _row(one: CertifiedMeasure, counts: Sequence[str]) -> list[str]:
    least = [format_share(one.detectable.get(count)) for count in counts]
    value = format_value(one.value, one.unit)
    return [
        one.measure, value, format_share(one.floor), *least, format_share(one.between_runs),
        format_share(one.between_days),
    ]  # fmt: skip


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
    for title, columns, rows in _tables(certificate):
        if title:
            yield from (escape_markdown(title), "")
        yield from markdown_table(columns, rows)
        yield ""
    yield escape_markdown(_COLUMNS)
    yield ""
    yield from (f"- **{name}**: {escape_markdown(text)}" for name, text in facts(certificate))
    if verbose:
        yield ""
        yield from markdown_table(_RUN_COLUMNS, _run_rows(certificate))


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


_RUN_COLUMNS: Final = (
    Column("run", left=True), Column("began", left=True), Column("took"), Column("words", left=True),
)  # fmt: skip


def _run_rows(certificate: Certificate) -> list[list[str]]:
    return [
        [run.run_id, run.began[:19].replace("T", " "), format_span(run.took_s),
         ", ".join(f"{one.word} {format_change(one.ratio)}" for one in run.comparisons)]
        for run in certificate.runs
    ]  # fmt: skip
