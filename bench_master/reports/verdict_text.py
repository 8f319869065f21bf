"""The verdicts as tables, sentences and short lines: what every report for people says of them.

A row is a treatment, the best first, with its baseline among them. What limits a verdict is a remark under its row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from bench_common.safe_text import one_line
from bench_master.analysis.answer import badness, share_text, spoken_name, value_text
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.trust import differing_text, flag_texts
from bench_master.analysis.verdict_types import (
    ClaimReport,
    ClaimsReport,
    ComparisonReport,
    DesignReport,
    FlagLevel,
    GateReport,
    HostEffectReport,
    PartReport,
    QuantileReport,
    VerdictsReport,
    change_text,
    change_words,
    interval_text,
)
from bench_master.formatting import (
    Column,
    fit_table,
    format_change,
    format_change_interval,
    format_value,
    has_room,
    paragraph,
    plural,
    says_nothing,
)
from bench_master.reports.table import grouped, named_treatments, varying_labels
from bench_master.verdicts.reasons import Code

FULL_INTERVAL: Final = 0.94
"""Below this confidence an interval is the range of a few rounds."""
FEWEST_ROUNDS: Final = 2
"""Fewer have no range worth showing."""
MOST_NEIGHBOURS: Final = 5
_VERDICT_COLUMNS: Final = 5
"""Columns of a verdict after the labels."""
_TREATMENT: Final = "treatment"


class VerdictRow(NamedTuple):
    """A treatment's row."""

    cells: Sequence[str]
    remark: str
    """What limits its verdict; empty if nothing does."""

    @property
    def name(self) -> str:
        """Its labels."""
        return " ".join(self.cells[:-_VERDICT_COLUMNS])


class VerdictTable(NamedTuple):
    """The verdicts on one measure."""

    caption: str
    """The measure; empty if all verdicts are on the same one."""
    columns: Sequence[Column]
    """Labels that vary, then verdict, value, difference, interval and rounds."""
    rows: Sequence[VerdictRow]
    """The best of a group first."""
    remark: str
    """What limits every verdict of the table alike; empty if nothing does."""

    def fits(self) -> bool:
        """Whether a page has room for each row on one line."""
        return has_room(self.columns, [row.cells for row in self.rows])

    def merged(self) -> VerdictTable:
        """Return the table with one column for all labels, for a page that has no room for each."""
        titles = " ".join(column.title for column in self.columns[:-_VERDICT_COLUMNS])
        name = Column(titles if len(titles) <= len(_TREATMENT) else _TREATMENT, left=True)
        rows = [VerdictRow([row.name, *row.cells[-_VERDICT_COLUMNS:]], row.remark) for row in self.rows]
        return self._replace(columns=[name, *self.columns[-_VERDICT_COLUMNS:]], rows=rows)

    def shared_remarks(self) -> dict[str, str]:
        """Return the remarks that limit several verdicts, each with the names that it limits."""
        found = grouped(self.rows, lambda row: row.remark)
        return {remark: ", ".join(row.name for row in rows) for remark, rows in found.items() if remark and rows[1:]}

    def notes(self, rows: Sequence[VerdictRow]) -> list[str]:
        """Return what limits the verdicts of some of its rows, each alone, and then what limits several."""
        shared = self.shared_remarks()
        found = [f"{row.name}: {row.remark}" for row in rows if row.remark and row.remark not in shared]
        return [*found, *(f"{names}: {remark}" for remark, names in shared.items())]


def verdict_tables(document: ReportDocument) -> list[VerdictTable]:
    """Return a table for each measure that treatments are compared by; for each group of it where one is too wide."""
    verdicts = document.verdicts
    if verdicts is None:
        return []
    measures = grouped(verdicts.comparisons, lambda each: (each.measure, each.unit, each.direction))
    labels = {entry.title: entry.treatment for entry in document.treatments}
    confidence = 1 - verdicts.family.alpha
    tables = []
    for found in measures.values():
        table = _table(found, labels, confidence, captioned=len(measures) > 1)
        groups = grouped(found, lambda each: (each.group, each.a))
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
    measure = measure_text(comparisons[0].measure)
    columns = [Column(name, left=True) for name in names] or [Column(_TREATMENT, left=True)]
    columns += [Column("verdict", left=True), Column(measure if len(measure) <= _LONG else "value")]
    known = [each for each in comparisons if interval_text(each, FEWEST_ROUNDS) != "-"]
    ranges = known and all(each.confidence < FULL_INTERVAL for each in known)
    title = "range of the rounds" if ranges else f"{100 * confidence:.4g} % interval"
    columns += [Column("difference"), Column(title, left=True, optional=True), Column("rounds")]
    rows: list[VerdictRow] = []
    for group in grouped(comparisons, lambda each: (each.group, each.a)).values():
        rows += _group_rows(group, names, labels)
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
    return one_line(f"{where}{measure_text(first.measure)}{better}")


def measure_text(measure: str) -> str:
    """Return a measure's name as people read it: ``job.p50`` is ``job p50``."""
    return one_line(measure.replace(".", " ", 1) if measure.rpartition(".")[2].startswith("p") else measure)


def _varying_labels(comparisons: Sequence[ComparisonReport], labels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the labels that tell the treatments of a table apart, in their order; none if a baseline has none."""
    sides = [labels[each.a] for each in comparisons if each.a in labels]
    if len(sides) < len(comparisons):
        return []
    return varying_labels([*sides, *(each.labels for each in comparisons)])


def _group_rows(
    comparisons: Sequence[ComparisonReport], names: Sequence[str], labels: Mapping[str, Mapping[str, Any]]
) -> list[VerdictRow]:
    """Return the rows of a group, with its baseline where it belongs by its value."""
    first = comparisons[0]
    base = labels.get(first.a, {})
    own = [_cell(base.get(name)) for name in names] or [one_line(first.a)]
    known = [each for each in comparisons if each.a_value is not None] or comparisons
    value = _value_cell(known[0], first.a, known[0].a_value)
    even = 0.0 if first.scale == "difference" else 1.0 if first.direction == "lower" else -1.0
    ranked = [(even, VerdictRow([*own, _BASELINE, value, "", "", ""], ""))]
    for each in comparisons:
        cells = [_cell(each.labels.get(name)) for name in names] or [one_line(each.name)]
        interval = interval_text(each, FEWEST_ROUNDS)
        cells += [each.word, _value_cell(each, each.b, each.b_value), change_text(each)]
        cells += ["" if interval == "-" else interval, f"{each.rounds}"]
        ranked.append((badness(each), VerdictRow(cells, remark_text(each))))
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0])]


def _value_cell(comparison: ComparisonReport, title: str, value: float | None) -> str:
    """Return a side's value; of one that drifted or stepped, so that no single number holds, its range."""
    text = value_text(comparison, title, value).partition(", ")[0]
    return text or ("varies" if comparison.ratio is not None else format_value(value, comparison.unit))


def _cell(value: Any) -> str:
    return "-" if value is None else one_line(str(value))


def remark_text(comparison: ComparisonReport) -> str:
    """Return what limits a verdict, and what would settle it; empty if nothing does."""
    return "; ".join(filter(None, [_limits(comparison), EXPLORATORY if comparison.exploratory else ""]))


def _limits(comparison: ComparisonReport) -> str:
    parts = [comparison.reason] if comparison.reason else []
    if comparison.verdict == "refused":
        text = "; ".join(parts)
        if comparison.tipping:
            text += f"{'. ' if text else ''}A shift of {share_text(comparison.tipping)} would explain it all."
        return one_line(text)
    if comparison.mde is not None and any(map(comparison.has_reason, _NOTHING_FOUND)):
        parts.append(f"a difference of {share_text(comparison.mde)} would have been missed in one run of five")
    if comparison.a_failure or comparison.b_failure:
        # More rounds of what does not work settle nothing.
        pass
    elif comparison.more_rounds:
        parts.append(f"about {plural(comparison.more_rounds, 'more round')} would settle it")
    elif comparison.verdict == "inconclusive" and comparison.has_reason(Code.NOT_ENOUGH_EVIDENCE):
        parts.append("no number of rounds within reach would settle it: lower the noise, or widen the margin")
    # Of two rounds everybody knows that their range is no interval.
    is_range = comparison.confidence < FULL_INTERVAL and comparison.rounds > FEWEST_ROUNDS
    if is_range and interval_text(comparison, FEWEST_ROUNDS) != "-":
        held = f"{100.0 * comparison.confidence:.3g} % confidence"
        parts.append(f"shown is the range of {comparison.rounds} rounds ({held})")
    # Where there is a verdict, the interval has what is not known of the clock, and it changes no word.
    if comparison.verdict == "inconclusive" and (share := _clock_share(comparison)) > _LARGE_SHARE:
        parts.append(f"how the clock was read makes {100 * share:.0f} % of the interval's width")
    if comparison.lost:
        parts.append(f"{plural(comparison.lost, 'round')} lost")
    return one_line("; ".join(parts))


EXPLORATORY: Final = "exploratory: not claimed before the run"
_LARGE_SHARE: Final = 0.1
"""From this share of an interval's width on what is not known of the clock is told."""


_LARGE_QUOTIENT: Final = math.log(1.02)


def is_another_quotient(comparison: ComparisonReport) -> bool:
    """Return whether a reader who divides the two values would come to another difference than the one shown."""
    values = (comparison.ratio, comparison.a_value, comparison.b_value)
    if comparison.scale != "ratio" or any(one is None or one <= 0.0 for one in values):
        return False
    ratio, a, b = (math.log(one) for one in values if one is not None)
    return abs(b - a - ratio) > _LARGE_QUOTIENT


def _clock_share(comparison: ComparisonReport) -> float:
    """Return which share of the width of an interval is there because ends may be stamped late."""
    band = comparison.band
    if band is None or band.why != "clock" or comparison.confidence < FULL_INTERVAL:
        return 0.0
    ends = (comparison.low, comparison.high, band.low, band.high)
    known = [end for end in ends if end is not None and (end > 0.0 or comparison.scale == "difference")]
    if len(known) < len(ends):
        return 0.0
    low, high, first, last = known if comparison.scale == "difference" else map(math.log, known)
    return 1.0 - (last - first) / (high - low) if high > low else 0.0


_NOTHING_FOUND: Final = (Code.NOT_ENOUGH_EVIDENCE, Code.NOT_ENOUGH_TOGETHER)


def no_verdict_text(document: ReportDocument) -> str:
    """Return why nothing is compared; empty for a packing, which measures what containers take, and has that."""
    reason = document.no_verdict_reason
    packed = any(entry.packing for entry in document.treatments)
    if reason is None or (reason.code is Code.ONE_TREATMENT and packed):
        return ""
    return one_line(reason.sentence()).rstrip(".")


_WHY_STOPPED: Final = {
    "settled": "settled",
    "at-most": "no more were allowed",
    "budget": "the budget was spent",
    "interrupted": "interrupted",
}


def trust_sentences(document: ReportDocument) -> list[str]:
    """Return how far the figures can be trusted, in a word; what verdicts are about, and how they were found."""
    verdicts = document.verdicts
    if verdicts is None:
        return [one_line(document.trust.sentence)]
    design, comparisons = verdicts.design, verdicts.comparisons
    sentences = [document.trust.sentence]
    sentences += [f"{design.scope[:1].upper()}{design.scope[1:]}."] if design.scope else []
    decided = [each for each in comparisons if each.verdict != "refused" and each.confidence >= FULL_INTERVAL]
    level = f"{100 * (1 - verdicts.family.alpha):.4g} %"
    if decided:
        together, apart = verdicts.family.comparisons, verdicts.family.exploratory
        noun = "claimed interval" if verdicts.claims is not None else "interval"
        text = confidence_together(together, noun, level) if together > 1 else ""
        if apart:
            rest = "that of the exploratory comparison" if apart == 1 else f"the {apart} exploratory ones"
            text = f"{text or f'{level} confidence for the {noun}'}, {rest} aside"
        sentences.append(f"{text}." if text else "")
    if decided and verdicts.family.together is not None:
        error = f"{100 * verdicts.family.together:.4g} %"
        sentences.append(
            f"Extended after its end: a word is wrong in at most {error} of such runs with the earlier ends."
        )
    sentences.append(_rounds_text(design, comparisons))
    if design.stopping is not None:
        stopping = design.stopping
        failed = any(one.has_failed or one.baseline_has_failed for one in comparisons)
        why = "settled or failed" if failed and stopping.why == "settled" else stopping.why
        why = _WHY_STOPPED.get(why, why)
        sentences.append(f"Stopped after round {stopping.look} of at most {stopping.last}: {why}.")
    if any(map(is_another_quotient, comparisons)):
        sentences.append("A difference is the middle of the rounds' ratios, not the quotient of two values.")
    floor = verdicts.runs.noise_floor
    if floor is not None:
        name = names_by_title(document).get(floor.a, floor.a)
        # One label that varies needs no name.
        name = name if " " in name else name.rpartition("=")[2]
        sentences.append(f"{name} against itself: {change_text(floor)} {interval_text(floor, FEWEST_ROUNDS)}.")
    return [one_line(sentence) for sentence in sentences if sentence]


def neighbour_text(verdicts: VerdictsReport | None, most: int | None = MOST_NEIGHBOURS) -> str:
    """Return how each treatment compares with the next one in the order of their values; empty if nothing does.

    Such as ``Each against the next one: crun 2.62x as fast as runc [2.10, 3.31]; runc and containerd not told apart:
    -2.1 % [-5.0, +1.2].``. At most so many pairs are named.
    """
    if verdicts is None or not verdicts.neighbours:
        return ""
    names = {(each.b, each.group): spoken_name(each) for each in verdicts.comparisons}
    groups = len({each.group for each in verdicts.neighbours}) > 1
    shown = verdicts.neighbours[:most]
    texts = [
        _neighbours(each, names.get((each.a, each.group), each.a), verdicts.family.margin)
        + (f" ({each.group})" if groups and each.group else "")
        for each in shown
    ]
    rest = len(verdicts.neighbours) - len(shown)
    more = f"; {rest} more with -v" if rest else ""
    return one_line(f"Each against the next one: {'; '.join(texts)}{more}.")


def _neighbours(comparison: ComparisonReport, other: str, margin: float) -> str:
    interval = interval_text(comparison, FEWEST_ROUNDS)
    change = change_text(comparison)
    shown = "" if interval == "-" else f" {interval}"
    size = f": {change}{shown}" if shown else ""
    name = spoken_name(comparison)
    both = f"{name} and {other}"
    match comparison.verdict:
        case "same":
            return f"{both} the same within {share_text(margin)}{size}"
        case "inconclusive":
            return f"{both} not told apart{size}"
        case "refused":
            return f"{both} not compared"
        case _ if change.endswith(("as fast", "as slow")):
            return f"{name} {change} as {other}{shown}"
        case _:
            return f"{name} {change_words(comparison)} than {other}{size}"


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
    text = f"{plural(design.rounds, 'round')} {order}"
    jobs = _range(each.jobs_per_trial for each in comparisons)
    if jobs and jobs != "1":
        text += f"; {jobs} jobs a trial"
        # So few trials do not know it to a tenth.
        effective = _range(_whole(each.effective_jobs) for each in comparisons)
        text += f" (effective sample size {effective})" if effective else ""
    return f"{text}."


def _whole(value: float | None) -> float | None:
    return None if value is None else max(1.0, round(value))


def _range(values: Iterable[float | None]) -> str:
    known = sorted(value for value in values if value is not None and math.isfinite(value))
    if not known:
        return ""
    ends = list(dict.fromkeys(_plain(value) for value in (known[0], known[-1])))
    return " to ".join(ends)


def _plain(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or value >= 10 else f"{value:.1f}"  # noqa: PLR2004


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
    names = names_by_title(document)
    for level in _LEVELS:
        yield from flag_texts(verdicts, level, names)
    if text := differing_text(verdicts):
        yield text


_LEVELS: Final[tuple[FlagLevel, ...]] = ("refusal", "warning")


def names_by_title(document: ReportDocument) -> dict[str, str]:
    """Return the short name of each treatment by its title."""
    return {entry.title: name for name, entry in named_treatments(document)}


def notes(document: ReportDocument) -> Iterator[str]:
    """Yield what is only a note: what was found without harm, and each property that differs with its values."""
    verdicts = document.verdicts
    if verdicts is None:
        return
    yield from flag_texts(verdicts, "note", names_by_title(document))
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


def claim_line(claim: ClaimReport) -> str:
    """Return what is claimed, and what became of it."""
    said = f"{claim.says} ({measure_text(claim.measure)}, {claim.rounds} rounds)"
    return one_line(f"{claim.name}: {said}: {claim.text}")


def claim_lines(claims: ClaimsReport | None) -> Iterator[str]:
    """Yield what became of each registered claim, and the digest that fixed them."""
    if claims is None:
        return
    for claim in claims.claims:
        word = "kept" if claim.state == "kept" else claim.state.upper()
        yield from paragraph(f"{word:<9}  {claim_line(claim)}", indent=2, hanging=13)
    yield from paragraph(f"registered before the first job, sha256 {one_line(claims.sha256)}", indent=2, hanging=4)


_EXPLAINED: Final = ("explained by", "detectable")
_MEANINGS: Final = {
    "explained by": "a shift between the two sides that would explain the difference",
    "detectable": "a difference so large would have been missed in one run of five",
    "effective": "the effective sample size of the jobs of a trial, of the side where it is smaller",
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
        cells = [name, "-" if each.p is None else f"{each.p:.2g}", share_text(each.tipping or None)]
        jobs = (_plain(value) for value in (each.jobs_per_trial, _whole(each.effective_jobs)))
        rows.append([*cells, share_text(each.mde), *jobs, f"{each.lost}"])
    yield from fit_table(columns, rows)
    shown = [
        f"{column.title}: {_MEANINGS[column.title]}."
        for place, column in enumerate(columns)
        if column.title in _MEANINGS and not says_nothing(row[place] for row in rows)
    ]
    yield from paragraph(" ".join(shown), indent=2)
    quantiles = [(name, f"p{100 * at.q:g}", at) for name, each in known for at in each.quantiles]
    parts = [(name, f"{at.first}-{at.last}", at) for name, each in known for at in each.parts]
    hosts = [(name, one_line(at.host), at) for name, each in known for at in each.per_host]
    tables: list[tuple[str, Column, Sequence[tuple[str, str, _Effect]]]] = [
        ("quantiles of jobs", Column("of"), quantiles),
        ("parts of the run", Column("rounds"), parts),
        ("on each host", Column("host", left=True), hosts),
    ]
    for title, what, found in tables:
        if found:
            yield ""
            columns = [Column(title, left=True), what, Column("difference"), Column("interval", left=True)]
            columns += [Column("rounds")] if found is hosts else []
            yield from fit_table(columns, [[name, text, *_effect(at)] for name, text, at in found])


_Effect: TypeAlias = QuantileReport | HostEffectReport | PartReport


def _effect(at: _Effect) -> list[str]:
    """Return a difference and its interval, of a host also its rounds; dashes without them."""
    rounds = [f"{at.rounds}"] if isinstance(at, HostEffectReport) else []
    if at.ratio is None:
        return ["-", "-", *rounds]
    known = at.low is not None or at.high is not None
    return [format_change(at.ratio), format_change_interval(at.low, at.high, at.ratio) if known else "-", *rounds]
