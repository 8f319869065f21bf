"""The verdicts as tables, sentences and short lines: what every report for people says of them.

A row is a treatment, the best first, with its baseline among them. What limits a verdict is a remark under its row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench_common.safe_text import one_line
from bench_master.analysis.answer import MAX_NAMES, badness, share_text, span
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.verdict_types import (
    ComparisonReport,
    DesignReport,
    FlagLevel,
    GateReport,
    HostEffectReport,
    QuantileReport,
    VerdictsReport,
    change_text,
    interval_text,
)
from bench_master.formatting import (
    Column,
    fit_table,
    format_change,
    format_change_interval,
    format_percent,
    format_value,
    paragraph,
    plural,
    says_nothing,
)
from bench_master.reports.side_by_side import treatment_names
from bench_master.verdicts.reasons import Code

FULL_INTERVAL: Final = 0.94
"""Below this confidence an interval is the range of a few rounds."""
FEWEST_ROUNDS: Final = 3
"""Fewer have no range worth showing."""
_PROPERTIES: Final = 6


_FIGURES: Final = 5
"""Columns of a verdict after the labels."""


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A treatment's row."""

    cells: Sequence[str]
    remark: str
    """What limits its verdict; empty if nothing does."""

    @property
    def name(self) -> str:
        """Its labels."""
        return " ".join(self.cells[:-_FIGURES])


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """The verdicts on one figure."""

    caption: str
    """The figure; empty if all verdicts are on the same one."""
    columns: Sequence[Column]
    """Labels that vary, then verdict, value, difference, interval and rounds."""
    rows: Sequence[VerdictRow]
    """The best of a group first."""
    remark: str
    """What limits every verdict of the table alike; empty if nothing does."""

    def fits(self) -> bool:
        """Whether a page has room for each row on one line."""
        return len(fit_table(self.columns, [row.cells for row in self.rows])) == len(self.rows) + 1

    def shared_remarks(self) -> dict[str, str]:
        """Return the remarks that limit several verdicts, each with the names that it limits."""
        names: dict[str, list[str]] = {}
        for row in self.rows:
            names.setdefault(row.remark, []).append(row.name)
        return {remark: ", ".join(several) for remark, several in names.items() if remark and len(several) > 1}


def verdict_word(comparison: ComparisonReport) -> str:
    """Return the word of a verdict as it is printed."""
    return comparison.verdict.upper()


def _labels_by_title(document: ReportDocument) -> dict[str, Mapping[str, Any]]:
    return {str(entry.title): entry.treatment for entry in document.treatments}


def verdict_tables(document: ReportDocument) -> list[VerdictTable]:
    """Return a table for each figure that treatments are compared by; for each group of it where one is too wide."""
    verdicts = document.verdicts
    if verdicts is None:
        return []
    figures: dict[tuple[str, str, str], list[ComparisonReport]] = {}
    for each in verdicts.comparisons:
        figures.setdefault((each.figure, each.unit, each.direction), []).append(each)
    labels = _labels_by_title(document)
    confidence = 1 - verdicts.family.alpha
    tables = []
    for found in figures.values():
        table = _table(found, labels, confidence, captioned=len(figures) > 1)
        groups: dict[tuple[str, str], list[ComparisonReport]] = {}
        for each in found:
            groups.setdefault((each.group, each.a), []).append(each)
        if len(groups) == 1 or not all(group for group, _ in groups) or table.fits():
            tables.append(table)
        else:
            tables += [_table(group, labels, confidence, captioned=True) for group in groups.values()]
    return tables


def _table(
    comparisons: Sequence[ComparisonReport],
    labels: Mapping[str, Mapping[str, Any]],
    confidence: float,
    *,
    captioned: bool,
) -> VerdictTable:
    names = _varying_labels(comparisons, labels)
    figure = figure_text(comparisons[0].figure)
    columns = [Column(name, left=True) for name in names] or [Column("treatment", left=True)]
    columns += [Column("verdict", left=True), Column(figure if len(figure) <= _LONG else "value")]
    columns += [Column("difference"), Column(f"{100 * confidence:.0f} % interval", left=True), Column("rounds")]
    rows: list[VerdictRow] = []
    for group in dict.fromkeys((each.group, each.a) for each in comparisons):
        rows += _group_rows([each for each in comparisons if (each.group, each.a) == group], names, labels)
    remarks = {row.remark for row in rows if row.cells[len(names) or 1] != _BASELINE}
    alike = remarks.pop() if len(remarks) == 1 and len(rows) > 2 else ""  # noqa: PLR2004  two: the only comparison
    if alike:
        rows = [VerdictRow(row.cells, "") for row in rows]
    return VerdictTable(_caption(comparisons) if captioned else "", columns, rows, alike)


_BASELINE: Final = "the baseline"
_LONG: Final = 12


def _caption(comparisons: Sequence[ComparisonReport]) -> str:
    first = comparisons[0]
    groups = list(dict.fromkeys(each.group for each in comparisons))
    where = f"{groups[0]}: " if len(groups) == 1 and groups[0] else ""
    better = ", higher is better" if first.direction == "higher" else ""
    return one_line(f"{where}{figure_text(first.figure)}{better}")


def figure_text(figure: str) -> str:
    """Return a figure's name as people read it: ``job.p50`` is ``job p50``."""
    return one_line(figure.replace(".", " ", 1) if figure.rpartition(".")[2].startswith("p") else figure)


def _varying_labels(comparisons: Sequence[ComparisonReport], labels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the labels that tell the treatments of a table apart, in their order; none if a baseline has none."""
    sides = [labels.get(each.a) for each in comparisons]
    if any(side is None for side in sides):
        return []
    every = [*(side for side in sides if side is not None), *(each.labels for each in comparisons)]
    names = dict.fromkeys(name for side in every for name in side)
    return [name for name in names if len({repr(side.get(name)) for side in every}) > 1]


def _group_rows(
    comparisons: Sequence[ComparisonReport], names: Sequence[str], labels: Mapping[str, Mapping[str, Any]]
) -> list[VerdictRow]:
    """Return the rows of a group, with its baseline where it belongs by its value."""
    first = comparisons[0]
    base = labels.get(first.a, {})
    own = [_cell(base.get(name)) for name in names] or [one_line(first.a)]
    values = [each.a_value for each in comparisons if each.a_value is not None]
    value = format_value(values[0] if values else None, first.unit)
    even = 0.0 if first.scale == "difference" else 1.0 if first.direction == "lower" else -1.0
    ranked = [(even, VerdictRow([*own, _BASELINE, value, "", "", ""], ""))]
    for each in comparisons:
        cells = [_cell(each.labels.get(name)) for name in names] or [one_line(each.name)]
        cells += [verdict_word(each), format_value(each.b_value, each.unit), change_text(each)]
        cells += [interval_text(each, FEWEST_ROUNDS), f"{each.rounds}"]
        ranked.append((badness(each), VerdictRow(cells, remark_text(each))))
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0])]


def _cell(value: Any) -> str:
    return "-" if value is None else one_line(str(value))


def remark_text(comparison: ComparisonReport) -> str:
    """Return what limits a verdict, and what would settle it; empty if nothing does."""
    parts = [comparison.reason] if comparison.reason else []
    if comparison.verdict == "refused":
        text = "; ".join(parts)
        if comparison.tipping:
            text += f"{'. ' if text else ''}A shift of {share_text(comparison.tipping)} would explain it all."
        return one_line(text)
    if comparison.more_rounds:
        parts.append(f"about {comparison.more_rounds} more rounds would settle it")
    elif comparison.verdict == "inconclusive" and comparison.has_reason(Code.NOT_ENOUGH_EVIDENCE):
        parts.append("no number of rounds within reach would settle it: lower the noise, or widen the margin")
    if comparison.confidence < FULL_INTERVAL and interval_text(comparison, FEWEST_ROUNDS) != "-":
        parts.append(f"shown is the range of {comparison.rounds} rounds ({format_percent(comparison.confidence)})")
    if comparison.lost:
        parts.append(f"{plural(comparison.lost, 'round')} lost")
    return one_line("; ".join(parts))


def trust_sentences(document: ReportDocument) -> list[str]:
    """Return how far the verdicts can be trusted: what they are about, and how it was measured."""
    verdicts = document.verdicts
    if verdicts is None:
        return []
    design, comparisons = verdicts.design, verdicts.comparisons
    sentences = [f"{design.scope[:1].upper()}{design.scope[1:]}."] if design.scope else []
    decided = [each for each in comparisons if each.verdict != "refused"]
    level = f"{100 * (1 - verdicts.family.alpha):.0f} %"
    if decided:
        together = verdicts.family.comparisons
        sentences.append(f"{confidence_together(together, 'interval', level)}." if together > 1 else "")
    sentences.append(_rounds_text(design, comparisons))
    if design.stopping is not None:
        stopping = design.stopping
        sentences.append(f"Stopped after round {stopping.look} of at most {stopping.last}: {stopping.why}.")
    if text := _smallest(decided):
        sentences.append(f"Smallest detectable difference: {text}, at 80 % power.")
    floor = verdicts.runs.noise_floor
    if floor is not None:
        names = dict(zip((str(one.title) for one in document.treatments), treatment_names(document), strict=True))
        name = names.get(floor.a, floor.a)
        # One label that varies needs no name.
        name = name if " " in name else name.rpartition("=")[2]
        sentences.append(f"{name} against itself: {change_text(floor)} {interval_text(floor, FEWEST_ROUNDS)}.")
    return [one_line(sentence) for sentence in sentences if sentence]


def confidence_together(count: int, noun: str, level: str) -> str:
    """Return at which level several intervals or verdicts hold at once."""
    every = "both" if count == 2 else f"all {count}"  # noqa: PLR2004
    return f"{level} confidence for {every} {noun}s together"


_ORDERS: Final = {
    "interleaved": "in drawn order",
    "as-written": "in the order of the scenario",
    "sequential": "one treatment after the other",
    "blocked": "one treatment after the other",
}


def _rounds_text(design: DesignReport, comparisons: Sequence[ComparisonReport]) -> str:
    order = _ORDERS.get(str(design.order), "in unknown order")
    seed = f" (seed {design.seed})" if design.seed is not None and design.order == "interleaved" else ""
    text = f"{plural(design.rounds, 'round')} {order}{seed}"
    jobs = _range(each.jobs_per_trial for each in comparisons)
    if jobs and jobs != "1":
        text += f"; {jobs} jobs a trial"
        effective = _range(each.effective_jobs for each in comparisons)
        text += f" (effective sample size {effective})" if effective else ""
    return f"{text}."


def _range(values: Iterable[float | None]) -> str:
    known = sorted(value for value in values if value is not None and math.isfinite(value))
    if not known:
        return ""
    ends = list(dict.fromkeys(_plain(value) for value in (known[0], known[-1])))
    return " to ".join(ends)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 10 else f"{value:.1f}"  # noqa: PLR2004


def _smallest(comparisons: Sequence[ComparisonReport]) -> str:
    """Return the smallest detectable difference: of each group where they are few, else their range."""
    groups: dict[str, list[float]] = {}
    for each in comparisons:
        if each.mde is not None and math.isfinite(each.mde):
            groups.setdefault(each.group, []).append(each.mde)
    if 1 < len(groups) <= MAX_NAMES:
        return ", ".join(f"{_share_span(found)} ({group})" for group, found in groups.items())
    known = [mde for found in groups.values() for mde in found]
    return _share_span(known) if known else ""


def _share_span(shares: Iterable[float]) -> str:
    known = sorted(shares)
    return span([share_text(known[0]), share_text(known[-1])])


def warnings(document: ReportDocument) -> Iterator[str]:
    """Yield what to be careful about, the gravest first: the diagnosis, the design, what else differs."""
    verdicts = document.verdicts
    if verdicts is None:
        return
    if verdicts.design.grade != "A":
        said = [reason for each in verdicts.comparisons for reason in each.reasons]
        for reason in verdicts.design.limits:
            if reason not in said:
                yield one_line(f"design {verdicts.design.grade}: {reason.sentence()}")
    for level in ("refusal", "warning"):
        yield from _flag_texts(document, verdicts, level)
    differing = [each for each in verdicts.environment.differences if each.level in ("refusal", "warning")]
    if differing:
        names = ", ".join(each.name for each in differing[:_PROPERTIES])
        rest = ", ..." if len(differing) > _PROPERTIES else ""
        noun = "1 property differs" if len(differing) == 1 else f"{len(differing)} properties differ"
        yield one_line(f"{noun} besides the treatment: {names}{rest}")


def _flag_texts(document: ReportDocument, verdicts: VerdictsReport, level: FlagLevel) -> Iterator[str]:
    """Yield each finding of a level once; treatments have their short names."""
    titles = (str(entry.title) for entry in document.treatments)
    names = dict(zip(titles, treatment_names(document), strict=True))
    texts = []
    for flag in (*verdicts.runs.flags, *(flag for each in verdicts.comparisons for flag in each.flags)):
        if flag.level == level:
            text = flag.reason.sentence(names)
            is_placed = flag.reason.names_place() or not flag.where
            texts.append(one_line(text if is_placed else f"{names.get(flag.where, flag.where)}: {text}"))
    yield from dict.fromkeys(texts)


def notes(document: ReportDocument) -> Iterator[str]:
    """Yield what is only a note: what was found without harm, and each property that differs with its values."""
    verdicts = document.verdicts
    if verdicts is None:
        return
    yield from _flag_texts(document, verdicts, "note")
    for each in verdicts.environment.differences:
        values = "; ".join(f"{side}: {value}" for side, value in each.values.items())
        yield one_line(f"{each.name} differs ({each.level}): {values}")


def looked_for(verdicts: VerdictsReport) -> str:
    """Return the checks of the diagnosis that found nothing; empty if all found something or none was made."""
    absent = verdicts.runs.looked_for
    return one_line(f"checks passed: {', '.join(f'no {one}' for one in absent)}") if absent else ""


def gate_lines(gates: Iterable[GateReport]) -> Iterator[str]:
    """Yield the outcome of each gate."""
    for gate in gates:
        word = "passed" if gate.state == "passed" else gate.state.upper()
        yield from paragraph(f"{word:<9}  {one_line(f'{gate.gate}: {gate.text}')}", indent=2, hanging=13)


_EXPLAINED: Final = ("explained by", "detectable")
_MEANINGS: Final = {
    "explained by": "a shift between the two sides that would explain the difference",
    "detectable": "the smallest detectable difference, at 80 % power",
    "effective": "the effective sample size of the jobs of a trial",
}


def comparison_lines(verdicts: VerdictsReport | None) -> Iterator[str]:
    """Yield what else is known of each comparison: its test, its reach, its quantiles and its hosts."""
    if verdicts is None or not verdicts.comparisons:
        return
    groups = len({each.group for each in verdicts.comparisons}) > 1
    names = [f"{each.name} ({each.group})" if groups and each.group else each.name for each in verdicts.comparisons]
    known = list(zip(names, verdicts.comparisons, strict=True))
    columns = [Column("comparison", left=True)]
    columns += [Column(title, optional=True) for title in ("p", *_EXPLAINED, "jobs", "effective", "lost")]
    rows = []
    for name, each in known:
        shares = [share_text(each.tipping or None), share_text(each.mde)]
        jobs = ["-" if value is None else _plain(value) for value in (each.jobs_per_trial, each.effective_jobs)]
        rows.append([name, "-" if each.p is None else f"{each.p:.2g}", *shares, *jobs, f"{each.lost}"])
    yield from fit_table(columns, rows)
    shown = [
        f"{column.title}: {_MEANINGS[column.title]}."
        for place, column in enumerate(columns)
        if column.title in _MEANINGS and not says_nothing(row[place] for row in rows)
    ]
    yield from paragraph(" ".join(shown), indent=2)
    quantiles = [(name, at) for name, each in known for at in each.quantiles]
    if quantiles:
        yield ""
        columns = [
            Column("quantiles of jobs", left=True),
            Column("of"),
            Column("difference"),
            Column("interval", left=True),
        ]
        yield from fit_table(columns, [[name, f"p{100 * at.q:g}", *_effect(at)] for name, at in quantiles])
    hosts = [(name, at) for name, each in known for at in each.per_host]
    if hosts:
        yield ""
        columns = [Column("on each host", left=True), Column("host", left=True), Column("difference")]
        columns += [Column("interval", left=True), Column("rounds")]
        yield from fit_table(columns, [[name, one_line(at.host), *_effect(at), f"{at.rounds}"] for name, at in hosts])


def _effect(at: QuantileReport | HostEffectReport) -> list[str]:
    """Return a difference and its interval; dashes without them."""
    if at.ratio is None:
        return ["-", "-"]
    known = at.low is not None or at.high is not None
    return [format_change(at.ratio), format_change_interval(at.low, at.high, at.ratio) if known else "-"]
